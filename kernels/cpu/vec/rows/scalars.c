/* Ops on the step's scalars: nll_loss, begin_step, sumsq, clip. Sums are taken in double. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

/* One value per token: not worth threads. */
enum ax_status AX_VEC(ax_cpu_nll_loss)(struct ax_queue *q, const struct ax_nll_loss *args,
                                       void *work) {
    (void)q;
    (void)work;
    const float *logprob = args->logprob.data, *weight = args->weight.data;
    const float *mean = args->mean_logprob.data, *lse = args->lse.data;
    const int32_t *labels = args->labels.data;
    float *g_logprob = args->g_logprob.data, *g_mean = args->g_mean.data, *g_lse = args->g_lse.data;
    const float *targets = args->targets.data;
    const double z = args->z_loss;
    double loss = 0, right = 0, labeled_rows = 0;
    for (int64_t t = 0; t < args->logprob.shape[0]; t++) {
        const bool labeled = labels[t] >= 0;
        const double w = labeled ? (double)weight[t] * args->scalars->inv_weight : 0;
        const double p = targets && labeled ? (double)targets[t] : 0;
        const double e = targets ? 2 * fmin(p, 1 - p) : args->label_smoothing;
        double slope = -w * (1 - e);
        if (args->dynamic && labeled)
            slope *= exp((double)logprob[t]);
        g_logprob[t] = (float)slope;
        labeled_rows += labeled;
        right += labeled && (double)logprob[t] > -M_LN2;
        loss += labeled ? slope * (double)logprob[t] : 0;
        if (targets || e != 0) {
            g_mean[t] = (float)(-w * e);
            loss -= labeled ? w * e * (double)mean[t] : 0;
        }
        if (z != 0) {
            const double size = (double)lse[t];
            g_lse[t] = labeled ? (float)(2 * w * z * size) : 0;
            loss += labeled ? w * z * size * size : 0;
        }
    }
    args->scalars->loss += loss;
    if (args->measures) {
        args->measures->sum[0] += right;
        args->measures->of[0] += labeled_rows;
    }
    return AX_OK;
}

enum ax_status AX_VEC(ax_cpu_begin_step)(struct ax_queue *q, const struct ax_begin_step *args,
                                         void *work) {
    (void)q;
    (void)work;
    struct ax_step_scalars *s = args->scalars;
    s->inv_weight = s->weight > 0 ? 1 / s->weight : 0;
    s->step += !args->repeat && s->skip == 0;
    s->sumsq = s->loss = s->aux_loss = s->sequence_loss = s->index_loss = 0;
    s->skip = 0;
    return AX_OK;
}

/* Each block of PIECE elements has its sum in the workspace. */
size_t AX_VEC(ax_cpu_sumsq_workspace)(struct ax_queue *q, const struct ax_sumsq *args) {
    (void)q;
    return (size_t)ceil_div(args->x.shape[0], PIECE) * sizeof(double);
}

/* The square of a float is exact in double. */
AX_INLINE void square_vector(const float *x, v_double *low, v_double *high, int64_t i, int64_t n) {
    v_float v = v_load_f32(x + i, n);
    v_double a = v_low(v), b = v_high(v);
    *low += a * a;
    *high += b * b;
}

enum ax_status AX_VEC(ax_cpu_sumsq)(struct ax_queue *q, const struct ax_sumsq *args, void *work) {
    const float *x = args->x.data;
    int64_t n = args->x.shape[0], blocks = ceil_div(n, PIECE);
    double *sums = work;
    AX_PARALLEL_FOR (team(q, n), b, blocks) {
        v_double low = v_zero_double(), high = v_zero_double();
        AX_EACH_VECTOR(least(PIECE, n - b * PIECE), square_vector, x + b * PIECE, &low, &high);
        sums[b] = v_sum_double(low + high);
    }
    double total = 0;
    for (int64_t b = 0; b < blocks; b++)
        total += sums[b];
    args->scalars->sumsq += total;
    return AX_OK;
}

enum ax_status AX_VEC(ax_cpu_clip)(struct ax_queue *q, const struct ax_clip *args, void *work) {
    (void)q;
    (void)work;
    struct ax_step_scalars *s = args->scalars;
    s->grad_norm = sqrt(s->sumsq);
    s->clip = s->max_norm > 0 ? fmin(1.0, s->max_norm / (s->grad_norm + 1e-6)) : 1.0;
    s->skip = s->inv_weight == 0 || !isfinite(s->grad_norm) || !isfinite(s->loss) ||
              s->loss > s->hold_above;
    return AX_OK;
}
