/* The elementwise parts of Muon (Jordan 2024): momentum and norm before its matrix iteration, the
 * weights after it. */
#include <math.h>

#include "kernels/cpu/vec/update/update.h"

/* The matrix that Muon orthogonalizes, before it is divided by its norm. */
struct muon {
    const float *grad;
    float *buf;
    float clip, blend, momentum;
    bool nesterov;
};

AX_INLINE v_float muon_update(const struct muon *a, v_float g, v_float buf) {
    return a->nesterov ? v_fma(v_set(a->momentum), buf - g, g) : buf;
}

AX_INLINE void muon_buffer_vector(const struct muon *a, v_double *low, v_double *high, int64_t i,
                                  int64_t n) {
    v_float g = v_load_f32(a->grad + i, n) * v_set(a->clip), buf = v_load_f32(a->buf + i, n);
    buf = v_fma(v_set(a->blend), g - buf, buf);
    v_store_f32(a->buf + i, n, buf);
    v_float u = muon_update(a, g, buf);
    v_double x = v_low(u), y = v_high(u);
    *low += x * x;
    *high += y * y;
}

AX_INLINE void muon_out_vector(enum ax_dtype real, const struct muon *a, void *out, float divisor,
                               int64_t i, int64_t n) {
    v_float g = v_load_f32(a->grad + i, n) * v_set(a->clip);
    v_float u = muon_update(a, g, v_load_f32(a->buf + i, n));
    v_store(real, out, i, n, u / v_set(divisor));
}

AX_INLINE void muon_out_piece(enum ax_dtype real, const struct muon *a, char *out, float divisor,
                              int64_t first, int64_t n) {
    struct muon piece = *a;
    piece.grad += first;
    piece.buf += first;
    AX_EACH_VECTOR(n, muon_out_vector, real, &piece, out + first * (real == AX_BF16 ? 2 : 4),
                   divisor);
}

size_t AX_VEC(ax_cpu_muon_momentum_workspace)(struct ax_queue *q,
                                              const struct ax_muon_momentum *args) {
    (void)q;
    return (size_t)ceil_div(ax_tensor_numel(&args->grad), PIECE) * sizeof(double);
}

enum ax_status AX_VEC(ax_cpu_muon_momentum)(struct ax_queue *q, const struct ax_muon_momentum *args,
                                            void *work) {
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip)
        return AX_VEC(ax_cpu_fill)(q, &(struct ax_fill){args->out, 0}, NULL);
    const struct muon a = {.grad = args->grad.data,
                           .buf = args->momentum_buffer.data,
                           .clip = (float)s->clip,
                           .blend = (float)(1.0 - args->momentum),
                           .momentum = (float)args->momentum,
                           .nesterov = args->nesterov};
    const int64_t n = ax_tensor_numel(&args->grad), count = ceil_div(n, PIECE);
    const int threads = team(q, n);
    double *sums = work, total = 0;
    {
        AX_PARALLEL_FOR (threads, p, count) {
            struct muon piece = a;
            piece.grad += p * PIECE;
            piece.buf += p * PIECE;
            v_double low = v_zero_double(), high = v_zero_double();
            AX_EACH_VECTOR(least(PIECE, n - p * PIECE), muon_buffer_vector, &piece, &low, &high);
            sums[p] = v_sum_double(low + high);
        }
    }
    for (int64_t p = 0; p < count; p++)
        total += sums[p];
    const float divisor = (float)fmax(sqrt(total), args->eps);
    AX_PARALLEL_FOR (threads, p, count) {
        AX_BY_DTYPE(args->out.dtype, muon_out_piece, &a, args->out.data, divisor, p * PIECE,
                    least(PIECE, n - p * PIECE));
    }
    return AX_OK;
}

AX_INLINE void apply_piece(enum weights_kind weights, const struct ax_muon_apply *args,
                           struct move move, int64_t first, int64_t n) {
    for (int64_t end = first + n; first < end; first += RUN) {
        const int64_t len = least(RUN, end - first);
        const char *u =
            (const char *)args->update.data + first * (int64_t)ax_dtype_size(args->update.dtype);
        if (args->update.dtype == AX_BF16)
            move_run(weights, AX_BF16, move, u, first, len);
        else
            move_run(weights, AX_F32, move, u, first, len);
    }
}

enum ax_status AX_VEC(ax_cpu_muon_apply)(struct ax_queue *q, const struct ax_muon_apply *args,
                                         void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    const enum weights_kind weights = weights_kind_of(&args->master, &args->copy, &args->remainder);
    struct move move = move_of(&args->master, &args->copy, &args->remainder, &args->draw, s);
    move.keep = (float)(1 - s->lr * args->weight_decay);
    move.size = (float)(s->lr * args->ratio);
    const int64_t n = s->skip ? 0 : ax_tensor_numel(&args->master), count = ceil_div(n, PIECE);
    AX_PARALLEL_FOR (team(q, n), p, count)
        BY_WEIGHTS(weights, apply_piece, args, move, p * PIECE, least(PIECE, n - p * PIECE));
    return AX_OK;
}
