/* Parameter updates, element by element: AdamW (Loshchilov & Hutter 2019) and SGD with momentum, in
 * the order of operations of torch.optim, whose results they match to rounding. One pass reads and
 * writes everything once: clipping, the update, the rounded copy for compute and grad = 0. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

/* A skipped step moves nothing but still clears the gradient. */
static enum ax_status clear(struct ax_queue *q, const struct ax_tensor *grad) {
    return AX_VEC(ax_cpu_fill)(q, &(struct ax_fill){*grad, 0}, NULL);
}

/* The flat segment, or a piece of it, and the step's constants, rounded once from double. */
struct adamw {
    float *w, *grad, *m, *v;
    void *copy;                  /* NULL = none */
    float clip, keep;            /* keep: 1 − lr·decay */
    float blend1, beta2, blend2; /* blend: 1 − β */
    float step_size, root, eps;  /* lr/(1−β₁ᵗ), √(1−β₂ᵗ) */
};

AX_INLINE void adamw_vector(enum ax_dtype copy, const struct adamw *a, int64_t i, int64_t n) {
    v_float g = v_load_f32(a->grad + i, n) * v_set(a->clip);
    v_float m = v_load_f32(a->m + i, n), v = v_load_f32(a->v + i, n);
    m = v_fma(v_set(a->blend1), g - m, m);
    v = v_fma(g * g, v_set(a->blend2), v * v_set(a->beta2));
    v_float denominator = v_sqrt(v) / v_set(a->root) + v_set(a->eps);
    v_float w = v_load_f32(a->w + i, n) * v_set(a->keep);
    w = v_fnma(v_set(a->step_size), m / denominator, w);
    v_store_f32(a->w + i, n, w);
    v_store_f32(a->m + i, n, m);
    v_store_f32(a->v + i, n, v);
    v_store_f32(a->grad + i, n, v_set(0));
    if (a->copy != NULL) {
        v_store(copy, a->copy, i, n, w);
    }
}

/* Address of element i of the copy, NULL if there is none. */
AX_INLINE void *copy_at(enum ax_dtype dtype, void *copy, int64_t i) {
    return copy == NULL ? NULL : (char *)copy + i * (dtype == AX_BF16 ? 2 : 4);
}

AX_INLINE void adamw_piece(enum ax_dtype copy, struct adamw a, int64_t first, int64_t n) {
    a.w += first;
    a.grad += first;
    a.m += first;
    a.v += first;
    a.copy = copy_at(copy, a.copy, first);
    AX_EACH_VECTOR(n, adamw_vector, copy, &a);
}

enum ax_status AX_VEC(ax_cpu_adamw)(struct ax_queue *q, const struct ax_adamw *args, void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip) {
        return clear(q, &args->grad);
    }
    double step = (double)s->step;
    struct adamw a = {
        .w = args->master.data,
        .grad = args->grad.data,
        .m = args->exp_avg.data,
        .v = args->exp_avg_sq.data,
        .copy = args->copy.data,
        .clip = (float)s->clip,
        .keep = (float)(1.0 - s->lr * args->weight_decay),
        .blend1 = (float)(1.0 - args->beta1),
        .beta2 = (float)args->beta2,
        .blend2 = (float)(1.0 - args->beta2),
        .step_size = (float)(s->lr / (1.0 - pow(args->beta1, step))),
        .root = (float)sqrt(1.0 - pow(args->beta2, step)),
        .eps = (float)args->eps,
    };
    int64_t n = args->master.shape[0], count = ceil_div(n, PIECE);
    AX_PARALLEL_FOR(team(q, n))
    for (int64_t p = 0; p < count; p++) {
        AX_BY_DTYPE(args->copy.dtype, adamw_piece, a, p * PIECE, least(PIECE, n - p * PIECE));
    }
    return AX_OK;
}

struct sgd {
    float *w, *grad, *momentum_buffer; /* buffer NULL = no momentum */
    void *copy;
    float clip, decay, momentum, lr;
    bool nesterov, first;
};

AX_INLINE void sgd_vector(enum ax_dtype copy, const struct sgd *a, int64_t i, int64_t n) {
    v_float w = v_load_f32(a->w + i, n);
    v_float g = v_fma(w, v_set(a->decay), v_load_f32(a->grad + i, n) * v_set(a->clip));
    if (a->momentum_buffer != NULL) {
        v_float buffer = g;
        if (!a->first) {
            buffer += v_load_f32(a->momentum_buffer + i, n) * v_set(a->momentum);
        }
        v_store_f32(a->momentum_buffer + i, n, buffer);
        g = a->nesterov ? v_fma(buffer, v_set(a->momentum), g) : buffer;
    }
    w = v_fnma(v_set(a->lr), g, w);
    v_store_f32(a->w + i, n, w);
    v_store_f32(a->grad + i, n, v_set(0));
    if (a->copy != NULL) {
        v_store(copy, a->copy, i, n, w);
    }
}

AX_INLINE void sgd_piece(enum ax_dtype copy, struct sgd a, int64_t first, int64_t n) {
    a.w += first;
    a.grad += first;
    if (a.momentum_buffer != NULL) {
        a.momentum_buffer += first;
    }
    a.copy = copy_at(copy, a.copy, first);
    AX_EACH_VECTOR(n, sgd_vector, copy, &a);
}

enum ax_status AX_VEC(ax_cpu_sgd)(struct ax_queue *q, const struct ax_sgd *args, void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip) {
        return clear(q, &args->grad);
    }
    struct sgd a = {.w = args->master.data,
                    .grad = args->grad.data,
                    .momentum_buffer = args->momentum_buffer.data,
                    .copy = args->copy.data,
                    .clip = (float)s->clip,
                    .decay = (float)args->weight_decay,
                    .momentum = (float)args->momentum,
                    .lr = (float)s->lr,
                    .nesterov = args->nesterov,
                    .first = s->step == 1};
    int64_t n = args->master.shape[0], count = ceil_div(n, PIECE);
    AX_PARALLEL_FOR(team(q, n))
    for (int64_t p = 0; p < count; p++) {
        AX_BY_DTYPE(args->copy.dtype, sgd_piece, a, p * PIECE, least(PIECE, n - p * PIECE));
    }
    return AX_OK;
}
