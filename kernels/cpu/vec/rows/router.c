/* Routes tokens to experts: router_forward, router_balance, router_backward. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"

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

AX_INLINE void sigmoid_vector(const float *logits, float *probs, int64_t i, int64_t n) {
    v_float e = v_exp(v_set(0) - v_load_f32(logits + i, n));
    v_store_f32(probs + i, n, v_set(1) / (v_set(1) + e));
}

/* What a row's experts are chosen by. */
struct scores {
    const float *probs, *bias; /* bias NULL: none */
    int64_t group;             /* experts in a group */
    uint64_t kept;             /* bits: groups */
};

static float biased(const struct scores *s, int64_t e) {
    return s->bias == NULL ? s->probs[e] : s->probs[e] + s->bias[e];
}

static float score(const struct scores *s, int64_t e) {
    return (s->kept >> (e / s->group) & 1) != 0 ? biased(s, e) : -INFINITY;
}

static float group_score(const struct scores *s, int64_t g, int best_of) {
    float best = -INFINITY, second = -INFINITY;
    for (int64_t e = g * s->group; e < (g + 1) * s->group; e++) {
        float x = biased(s, e);
        second = x > best ? best : x > second ? x : second;
        best = x > best ? x : best;
    }
    return best_of == 1 ? best : best + second;
}

/* The groups with the largest scores; the first of equal ones. */
static uint64_t keep_groups(const struct scores *s, const struct ax_routing *r) {
    float scores[AX_ROUTER_GROUPS];
    uint64_t kept = 0;
    for (int g = 0; g < r->groups; g++)
        scores[g] = group_score(s, g, r->group_best);
    for (int i = 0; i < r->groups_kept; i++) {
        int best = -1;
        for (int g = 0; g < r->groups; g++)
            if ((kept >> g & 1) == 0 && (best < 0 || scores[g] > scores[best]))
                best = g;
        kept |= (uint64_t)1 << best;
    }
    return kept;
}

/* Keeps the k largest so far, largest first; ties stay in order. */
static void choose(const struct scores *s, int64_t experts, int64_t k, int32_t *chosen) {
    for (int32_t e = 0; e < experts; e++) {
        int64_t i = e < k ? e : k;
        const float own = score(s, e);
        if (i == k && !(own > score(s, chosen[k - 1])))
            continue;
        for (i = i == k ? k - 1 : i; i > 0 && own > score(s, chosen[i - 1]); i--)
            chosen[i] = chosen[i - 1];
        chosen[i] = e;
    }
}

static void weigh(const float *probs, const int32_t *chosen, int64_t k,
                  const struct ax_routing *routing, float *weights) {
    double sum = routing->renormalize ? 0 : 1;
    for (int64_t i = 0; i < k && routing->renormalize; i++)
        sum += (double)probs[chosen[i]];
    for (int64_t i = 0; i < k; i++)
        weights[i] = (float)(routing->scale * ((double)probs[chosen[i]] / sum));
}

static void route_row(const struct ax_router_forward *args, int64_t t) {
    const struct ax_routing *r = &args->routing;
    const int64_t experts = args->logits.shape[1], k = args->weights.shape[1];
    const float *logits = ax_tensor_row(&args->logits, t);
    float *probs = ax_tensor_row(&args->probs, t);
    int32_t *chosen = ax_tensor_row(&args->experts, t);
    struct scores s = {probs, args->bias.data, experts, 1};
    if (r->sigmoid)
        AX_EACH_VECTOR(experts, sigmoid_vector, logits, probs);
    else
        softmax_row(logits, probs, experts);
    if (r->groups > 0) {
        s.group = experts / r->groups;
        s.kept = keep_groups(&s, r);
    }
    choose(&s, experts, k, chosen);
    weigh(probs, chosen, k, r, ax_tensor_row(&args->weights, t));
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
        if (t < tokens) {
            route_row(args, t);
        } else {
            memset(ax_tensor_row(&args->probs, t), 0, (size_t)experts * sizeof(float));
            memset(ax_tensor_row(&args->weights, t), 0, (size_t)k * sizeof(float));
            memset(ax_tensor_row(&args->experts, t), 0xff, (size_t)k * sizeof(int32_t)); /* −1 */
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

/* The gradients of probabilities from balancing losses: the same for all rows, and row t's. */
struct slopes {
    const float *all, *row; /* NULL: none */
};

AX_INLINE v_float slopes_at(const struct slopes *s, int64_t i, int64_t n) {
    v_float all = s->all == NULL ? v_set(0) : v_load_f32(s->all + i, n);
    v_float row = s->row == NULL ? v_set(0) : v_load_f32(s->row + i, n);
    return all + row;
}

AX_INLINE void slope_vector(const float *probs, const struct slopes *s, v_float *mean, int64_t i,
                            int64_t n) {
    *mean = v_fma(v_load_f32(probs + i, n), slopes_at(s, i, n), *mean);
}

AX_INLINE void dlogits_vector(enum ax_dtype real, void *out, const float *probs,
                              const struct slopes *s, v_float mean, int64_t i, int64_t n) {
    v_store(real, out, i, n, v_load_f32(probs + i, n) * (slopes_at(s, i, n) - mean));
}

/* Each expert's own probability: no mean. */
AX_INLINE void dsigmoid_vector(enum ax_dtype real, void *out, const float *probs,
                               const struct slopes *s, int64_t i, int64_t n) {
    v_float p = v_load_f32(probs + i, n);
    v_store(real, out, i, n, p * (v_set(1) - p) * slopes_at(s, i, n));
}

/* Computes every expert's gradient as if none was chosen, then the chosen ones' again. */
AX_INLINE void backward_row(enum ax_dtype real, const struct ax_router_backward *args, int64_t t) {
    const int64_t experts = args->probs.shape[1], k = args->dweights.shape[1];
    const float *probs = ax_tensor_row(&args->probs, t);
    const struct slopes slopes = {
        args->slope.data, args->slopes.data == NULL ? NULL : ax_tensor_row(&args->slopes, t)};
    const float *dweights = ax_tensor_row(&args->dweights, t);
    const int32_t *chosen = ax_tensor_row(&args->experts, t);
    const bool sigmoid = args->routing.sigmoid;
    double sum = 1, shift = 0, mean = 0;
    if (args->routing.renormalize) {
        double dot = sum = 0;
        for (int64_t i = 0; i < k; i++) {
            sum += (double)probs[chosen[i]];
            dot += (double)dweights[i] * (double)probs[chosen[i]];
        }
        shift = dot / sum;
    }
    const double scale = args->routing.scale / sum;
    void *out = ax_tensor_row(&args->dlogits, t);
    if (sigmoid) {
        AX_EACH_VECTOR(experts, dsigmoid_vector, real, out, probs, &slopes);
    } else {
        v_float along_slope = v_set(0);
        if (slopes.all != NULL || slopes.row != NULL)
            AX_EACH_VECTOR(experts, slope_vector, probs, &slopes, &along_slope);
        mean = v_sum(along_slope);
        for (int64_t i = 0; i < k; i++)
            mean += (double)probs[chosen[i]] * (((double)dweights[i] - shift) * scale);
        AX_EACH_VECTOR(experts, dlogits_vector, real, out, probs, &slopes, v_set((float)mean));
    }
    for (int64_t i = 0; i < k; i++) {
        const int32_t e = chosen[i];
        const double p = (double)probs[e];
        double dp = ((double)dweights[i] - shift) * scale;
        dp += slopes.all == NULL ? 0 : (double)slopes.all[e];
        dp += slopes.row == NULL ? 0 : (double)slopes.row[e];
        v_store(real, out, e, 1, v_set((float)(p * (sigmoid ? (1 - p) * dp : dp - mean))));
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
