/* Parameter updates, element by element: AdamW (Loshchilov & Hutter 2019), SGD with momentum and
 * Lion, with torch.optim's order of operations, matching its results to rounding. One pass reads
 * and writes everything once: clipping, the update, the rounded copy for compute. */
#include <math.h>

#include "kernels/cpu/vec/update/update.h"

/* The flat segment, or a run of it, and the step's constants, rounded once from double. */
struct adamw {
    struct weights w;
    const float *grad;
    void *m, *v;
    const uint32_t *random;      /* MOMENTS_DRAWN: a word per element */
    float clip, keep;            /* keep: 1 − lr·decay */
    float blend1, beta2, blend2; /* blend: 1 − β */
    float step_size, root, eps;  /* lr/(1−β₁ᵗ), √(1−β₂ᵗ) */
};

AX_INLINE void adamw_vector(enum weights_kind weights, enum moments_kind moments,
                            const struct adamw *a, int64_t i, int64_t n) {
    v_float g = v_load_f32(a->grad + i, n) * v_set(a->clip);
    v_float m = moment_load(moments, a->m, i, n), v = moment_load(moments, a->v, i, n);
    m = v_fma(v_set(a->blend1), g - m, m);
    v = v_fma(g * g, v_set(a->blend2), v * v_set(a->beta2));
    v_float denominator = v_sqrt(v) / v_set(a->root) + v_set(a->eps);
    v_float w = weights_load(weights, &a->w, i, n) * v_set(a->keep);
    w = v_fnma(v_set(a->step_size), m / denominator, w);
    weights_store(weights, &a->w, i, n, w);
    v_int word = moments == MOMENTS_DRAWN ? v_load_int(a->random + i) : v_set_int(0);
    moment_store(moments, a->m, i, n, m, v_shift_right(word, 16));
    moment_store(moments, a->v, i, n, v, v_and(word, v_set_int(0xffffu)));
}

/* Elements [first, first + n) of the call. */
AX_INLINE void adamw_piece(enum weights_kind weights, enum moments_kind moments,
                           const struct ax_adamw *args, const struct adamw *whole, int64_t first,
                           int64_t n) {
    uint32_t room[2][RANDOM_ROOM(RUN)];
    for (int64_t end = first + n; first < end; first += RUN) {
        const int64_t len = least(RUN, end - first);
        struct adamw a = *whole;
        a.w = weights_at(weights, whole->w, first);
        a.grad += first;
        a.m = moment_at(moments, a.m, first);
        a.v = moment_at(moments, a.v, first);
        if (moments == MOMENTS_DRAWN)
            a.random = draw_words(&args->draw, args->scalars, 0, first, len, room[0]);
        if (weights_drawn(weights))
            a.w.random = draw_words(&args->draw, args->scalars, 1, first, len, room[1]);
        AX_EACH_VECTOR(len, adamw_vector, weights, moments, &a);
    }
}

#define ADAMW_PIECE(weights, moments, ...)                                                         \
    do {                                                                                           \
        if ((moments) == MOMENTS_F32) {                                                            \
            adamw_piece(weights, MOMENTS_F32, __VA_ARGS__);                                        \
        } else if ((moments) == MOMENTS_NEAREST) {                                                 \
            adamw_piece(weights, MOMENTS_NEAREST, __VA_ARGS__);                                    \
        } else {                                                                                   \
            adamw_piece(weights, MOMENTS_DRAWN, __VA_ARGS__);                                      \
        }                                                                                          \
    } while (0)

enum ax_status AX_VEC(ax_cpu_adamw)(struct ax_queue *q, const struct ax_adamw *args, void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip)
        return AX_OK;
    double step = (double)s->step;
    const struct adamw a = {
        .w = {args->master.data, args->copy.data, args->remainder.data, NULL},
        .grad = args->grad.data,
        .m = args->exp_avg.data,
        .v = args->exp_avg_sq.data,
        .clip = (float)s->clip,
        .keep = (float)(1.0 - s->lr * args->weight_decay),
        .blend1 = (float)(1.0 - args->beta1),
        .beta2 = (float)args->beta2,
        .blend2 = (float)(1.0 - args->beta2),
        .step_size = (float)(s->lr / (1.0 - pow(args->beta1, step))),
        .root = (float)sqrt(1.0 - pow(args->beta2, step)),
        .eps = (float)args->eps,
    };
    const enum weights_kind weights = weights_kind_of(&args->master, &args->copy, &args->remainder);
    const enum moments_kind moments = moments_kind_of(&args->exp_avg, args->nearest);
    int64_t n = args->master.shape[0], count = ceil_div(n, PIECE);
    AX_PARALLEL_FOR (team(q, n), p, count)
        BY_WEIGHTS(weights, ADAMW_PIECE, moments, args, &a, p * PIECE, least(PIECE, n - p * PIECE));
    return AX_OK;
}

struct sgd {
    struct weights w;
    const float *grad;
    float *momentum_buffer; /* NULL = no momentum */
    float clip, decay, momentum, lr;
    bool nesterov, first;
};

AX_INLINE void sgd_vector(enum weights_kind weights, const struct sgd *a, int64_t i, int64_t n) {
    v_float w = weights_load(weights, &a->w, i, n);
    v_float g = v_fma(w, v_set(a->decay), v_load_f32(a->grad + i, n) * v_set(a->clip));
    if (a->momentum_buffer != NULL) {
        v_float buffer = g;
        if (!a->first)
            buffer += v_load_f32(a->momentum_buffer + i, n) * v_set(a->momentum);
        v_store_f32(a->momentum_buffer + i, n, buffer);
        g = a->nesterov ? v_fma(buffer, v_set(a->momentum), g) : buffer;
    }
    weights_store(weights, &a->w, i, n, v_fnma(v_set(a->lr), g, w));
}

AX_INLINE void sgd_piece(enum weights_kind weights, const struct ax_sgd *args,
                         const struct sgd *whole, int64_t first, int64_t n) {
    uint32_t room[RANDOM_ROOM(RUN)];
    for (int64_t end = first + n; first < end; first += RUN) {
        const int64_t len = least(RUN, end - first);
        struct sgd a = *whole;
        a.w = weights_at(weights, whole->w, first);
        a.grad += first;
        if (a.momentum_buffer != NULL)
            a.momentum_buffer += first;
        if (weights_drawn(weights))
            a.w.random = draw_words(&args->draw, args->scalars, 1, first, len, room);
        AX_EACH_VECTOR(len, sgd_vector, weights, &a);
    }
}

enum ax_status AX_VEC(ax_cpu_sgd)(struct ax_queue *q, const struct ax_sgd *args, void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip)
        return AX_OK;
    const struct sgd a = {.w = {args->master.data, args->copy.data, args->remainder.data, NULL},
                          .grad = args->grad.data,
                          .momentum_buffer = args->momentum_buffer.data,
                          .clip = (float)s->clip,
                          .decay = (float)args->weight_decay,
                          .momentum = (float)args->momentum,
                          .lr = (float)s->lr,
                          .nesterov = args->nesterov,
                          .first = s->step == 1};
    const enum weights_kind weights = weights_kind_of(&args->master, &args->copy, &args->remainder);
    int64_t n = args->master.shape[0], count = ceil_div(n, PIECE);
    AX_PARALLEL_FOR (team(q, n), p, count)
        BY_WEIGHTS(weights, sgd_piece, args, &a, p * PIECE, least(PIECE, n - p * PIECE));
    return AX_OK;
}

struct lion {
    struct weights w;
    const float *grad;
    void *m;
    const uint32_t *random;
    float clip, beta1, blend1, blend2, lr, decay;
};

/* 1, 0 or −1; NaN stays NaN. */
AX_INLINE v_float v_sign(v_float x) {
    v_float big = v_set(0x1p100f);
    return v_min(v_set(1), v_max(v_set(-1), x * big * big));
}

AX_INLINE void lion_vector(enum weights_kind weights, enum moments_kind moments,
                           const struct lion *a, int64_t i, int64_t n) {
    v_float g = v_load_f32(a->grad + i, n) * v_set(a->clip);
    v_float m = moment_load(moments, a->m, i, n), w = weights_load(weights, &a->w, i, n);
    v_float direction = v_sign(v_fma(m, v_set(a->beta1), g * v_set(a->blend1)));
    weights_store(weights, &a->w, i, n,
                  v_fnma(v_set(a->lr), v_fma(w, v_set(a->decay), direction), w));
    v_int word = moments == MOMENTS_DRAWN ? v_load_int(a->random + i) : v_set_int(0);
    m = v_fma(v_set(a->blend2), g - m, m);
    moment_store(moments, a->m, i, n, m, v_shift_right(word, 16));
}

AX_INLINE void lion_piece(enum weights_kind weights, enum moments_kind moments,
                          const struct ax_lion *args, const struct lion *whole, int64_t first,
                          int64_t n) {
    uint32_t room[2][RANDOM_ROOM(RUN)];
    for (int64_t end = first + n; first < end; first += RUN) {
        const int64_t len = least(RUN, end - first);
        struct lion a = *whole;
        a.w = weights_at(weights, whole->w, first);
        a.grad += first;
        a.m = moment_at(moments, a.m, first);
        if (moments == MOMENTS_DRAWN)
            a.random = draw_words(&args->draw, args->scalars, 0, first, len, room[0]);
        if (weights_drawn(weights))
            a.w.random = draw_words(&args->draw, args->scalars, 1, first, len, room[1]);
        AX_EACH_VECTOR(len, lion_vector, weights, moments, &a);
    }
}

#define LION_PIECE(weights, moments, ...)                                                          \
    do {                                                                                           \
        if ((moments) == MOMENTS_F32) {                                                            \
            lion_piece(weights, MOMENTS_F32, __VA_ARGS__);                                         \
        } else {                                                                                   \
            lion_piece(weights, MOMENTS_DRAWN, __VA_ARGS__);                                       \
        }                                                                                          \
    } while (0)

enum ax_status AX_VEC(ax_cpu_lion)(struct ax_queue *q, const struct ax_lion *args, void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip)
        return AX_OK;
    const struct lion a = {.w = {args->master.data, args->copy.data, args->remainder.data, NULL},
                           .grad = args->grad.data,
                           .m = args->exp_avg.data,
                           .clip = (float)s->clip,
                           .beta1 = (float)args->beta1,
                           .blend1 = (float)(1.0 - args->beta1),
                           .blend2 = (float)(1.0 - args->beta2),
                           .lr = (float)s->lr,
                           .decay = (float)args->weight_decay};
    const enum weights_kind weights = weights_kind_of(&args->master, &args->copy, &args->remainder);
    const enum moments_kind moments = moments_kind_of(&args->exp_avg, false);
    int64_t n = args->master.shape[0], count = ceil_div(n, PIECE);
    AX_PARALLEL_FOR (team(q, n), p, count)
        BY_WEIGHTS(weights, LION_PIECE, moments, args, &a, p * PIECE, least(PIECE, n - p * PIECE));
    return AX_OK;
}
