/* Routes tokens to experts: router_forward, router_balance, router_backward. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rowsum.h"

AX_INLINE void max_vector(const float *logits, v_float *max, int64_t i, int64_t n) {
    *max = v_max(v_keep(n, v_load_f32(logits + i, n), -INFINITY), *max);
}

AX_INLINE void exp_vector(const float *logits, float *probs, v_float max, v_float *sum, int64_t i,
                          int64_t n) {
    v_float e = v_exp(v_load_f32(logits + i, n) - max);
    v_store_f32(probs + i, n, e);
    *sum += v_keep(n, e, 0);
}

AX_INLINE void divide_vector(float *probs, v_float sum, int64_t i, int64_t n) {
    v_store_f32(probs + i, n, v_load_f32(probs + i, n) / sum);
}

static void softmax_row(const float *logits, float *probs, int64_t experts) {
    v_float max = v_set(-INFINITY), sum = v_set(0);
    AX_EACH_VECTOR(experts, max_vector, logits, &max);
    AX_EACH_VECTOR(experts, exp_vector, logits, probs, v_set(v_max_lane(max)), &sum);
    AX_EACH_VECTOR(experts, divide_vector, probs, v_set((float)v_sum(sum)));
}

/* Keeps the k largest so far, largest first; ties stay in order. */
static void choose(const float *probs, int64_t experts, int64_t k, int32_t *chosen) {
    for (int32_t e = 0; e < experts; e++) {
        int64_t i = e < k ? e : k;
        if (i == k && !(probs[e] > probs[chosen[k - 1]]))
            continue;
        for (i = i == k ? k - 1 : i; i > 0 && probs[e] > probs[chosen[i - 1]]; i--)
            chosen[i] = chosen[i - 1];
        chosen[i] = e;
    }
}

static void weigh(const float *probs, const int32_t *chosen, int64_t k, bool renormalize,
                  float *weights) {
    double sum = renormalize ? 0 : 1;
    for (int64_t i = 0; i < k && renormalize; i++)
        sum += (double)probs[chosen[i]];
    for (int64_t i = 0; i < k; i++)
        weights[i] = (float)((double)probs[chosen[i]] / sum);
}

size_t AX_VEC(ax_cpu_router_forward_workspace)(struct ax_queue *q,
                                               const struct ax_router_forward *args) {
    (void)q;
    return args->load.data != NULL ? block_sums_bytes(args->logits.shape[0], args->logits.shape[1])
                                   : 0;
}

AX_INLINE void add_vector(float *sums, const float *row, int64_t i, int64_t n) {
    v_store_f32(sums + i, n, v_load_f32(sums + i, n) + v_load_f32(row + i, n));
}

static void add_load(const struct ax_queue *q, const struct ax_router_forward *args, float *work) {
    const int64_t rows = args->probs.shape[0], experts = args->probs.shape[1];
    float *load = args->load.data;
    const int32_t *chosen = args->experts.data;
    for (int64_t i = 0; i < ax_tensor_numel(&args->experts); i++)
        if (chosen[i] >= 0)
            load[chosen[i]] += 1.0f;
    struct row_blocks blocks = block_rows(rows);
    AX_PARALLEL_FOR (team(q, rows * experts), b, blocks.count) {
        float *sums = work + b * experts;
        memset(sums, 0, (size_t)experts * sizeof(*sums));
        for (int64_t t = b * blocks.rows; t < least(rows, (b + 1) * blocks.rows); t++)
            AX_EACH_VECTOR(experts, add_vector, sums, ax_tensor_row(&args->probs, t));
    }
    add_blocks(q, load + experts, work, blocks.count, experts);
}

enum ax_status AX_VEC(ax_cpu_router_forward)(struct ax_queue *q,
                                             const struct ax_router_forward *args, void *work) {
    const int64_t rows = args->logits.shape[0], experts = args->logits.shape[1];
    const int64_t k = args->weights.shape[1];
    const int32_t *valid = args->valid.data;
    const int64_t tokens = valid == NULL ? rows : *valid - args->first;
    AX_PARALLEL_FOR (team(q, rows * experts), t, rows) {
        float *probs = ax_tensor_row(&args->probs, t), *weights = ax_tensor_row(&args->weights, t);
        int32_t *chosen = ax_tensor_row(&args->experts, t);
        if (t < tokens) {
            softmax_row(ax_tensor_row(&args->logits, t), probs, experts);
            choose(probs, experts, k, chosen);
            weigh(probs, chosen, k, args->renormalize, weights);
        } else {
            memset(probs, 0, (size_t)experts * sizeof(*probs));
            memset(weights, 0, (size_t)k * sizeof(*weights));
            memset(chosen, 0xff, (size_t)k * sizeof(*chosen)); /* −1 */
        }
    }
    if (args->load.data != NULL)
        add_load(q, args, work);
    return AX_OK;
}

/* Once per step and micro-batch, a few hundred numbers. */
enum ax_status AX_VEC(ax_cpu_router_balance)(struct ax_queue *q,
                                             const struct ax_router_balance *args, void *work) {
    (void)q;
    (void)work;
    const int64_t experts = args->load.shape[1];
    const float *counts = args->load.data, *probs = counts + experts;
    float *slope = args->slope.data;
    double assigned = 0, dot = 0;
    for (int64_t e = 0; e < experts; e++) {
        assigned += (double)counts[e];
        dot += (double)counts[e] * (double)probs[e];
    }
    const double n = assigned / (double)args->k, share = args->weight * args->scalars->inv_weight;
    const double scale = n > 0 ? share * (double)experts / (n * n) : 0;
    for (int64_t e = 0; e < experts; e++)
        slope[e] = (float)(args->coef * scale * (double)counts[e]);
    args->scalars->aux_loss += args->counts ? scale * dot : 0;
    return AX_OK;
}

AX_INLINE void slope_vector(const float *probs, const float *slope, v_float *mean, int64_t i,
                            int64_t n) {
    *mean = v_fma(v_load_f32(probs + i, n), v_load_f32(slope + i, n), *mean);
}

AX_INLINE void dlogits_vector(enum ax_dtype real, void *out, const float *probs, const float *slope,
                              v_float mean, int64_t i, int64_t n) {
    v_float dp = slope == NULL ? v_set(0) : v_load_f32(slope + i, n);
    v_store(real, out, i, n, v_load_f32(probs + i, n) * (dp - mean));
}

/* Computes every expert's gradient as if none was chosen, then the chosen ones' again. */
AX_INLINE void backward_row(enum ax_dtype real, const struct ax_router_backward *args, int64_t t) {
    const int64_t experts = args->probs.shape[1], k = args->dweights.shape[1];
    const float *probs = ax_tensor_row(&args->probs, t), *slope = args->slope.data;
    const float *dweights = ax_tensor_row(&args->dweights, t);
    const int32_t *chosen = ax_tensor_row(&args->experts, t);
    double sum = 1, shift = 0;
    if (args->renormalize) {
        double dot = sum = 0;
        for (int64_t i = 0; i < k; i++) {
            sum += (double)probs[chosen[i]];
            dot += (double)dweights[i] * (double)probs[chosen[i]];
        }
        shift = dot / sum;
    }
    v_float along_slope = v_set(0);
    if (slope != NULL)
        AX_EACH_VECTOR(experts, slope_vector, probs, slope, &along_slope);
    double mean = v_sum(along_slope);
    for (int64_t i = 0; i < k; i++)
        mean += (double)probs[chosen[i]] * (((double)dweights[i] - shift) / sum);
    void *out = ax_tensor_row(&args->dlogits, t);
    AX_EACH_VECTOR(experts, dlogits_vector, real, out, probs, slope, v_set((float)mean));
    for (int64_t i = 0; i < k; i++) {
        const int32_t e = chosen[i];
        double dp = ((double)dweights[i] - shift) / sum + (slope == NULL ? 0 : (double)slope[e]);
        v_store(real, out, e, 1, v_set((float)((double)probs[e] * (dp - mean))));
    }
}

enum ax_status AX_VEC(ax_cpu_router_backward)(struct ax_queue *q,
                                              const struct ax_router_backward *args, void *work) {
    (void)work;
    const struct ax_tensor *out = &args->dlogits;
    const int64_t rows = out->shape[0], experts = out->shape[1];
    AX_PARALLEL_FOR (team(q, rows * experts), t, rows)
        if (((const int32_t *)ax_tensor_row(&args->experts, t))[0] >= 0)
            AX_BY_DTYPE(out->dtype, backward_row, args, t);
        else
            memset(ax_tensor_row(out, t), 0, (size_t)experts * ax_dtype_size(out->dtype));
    return AX_OK;
}
