/* The softmax head in three steps, so that the vocabulary can be sharded: statistics of a shard's
 * logits, merging them into log-probability, log-sum-exp and entropy, and the gradient of all
 * three; argmax and the entropy of the largest. The logits are read once per direction.
 *
 * A row is processed in blocks that fit the L1 cache: the block's largest element first, then the
 * sums relative to the largest so far (the "online" softmax of Milakov & Gimelshein 2018). */
#include <float.h>
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

/* Columns; a lane sums at most 256 of them in float32. */
#define BLOCK     (AX_LANES < 8 ? 1024 : 2048)
#define TOP_BLOCK 128 /* columns per block in the search for the largest */

/* Column of the label within this shard, or −1. */
static int64_t column_of(int32_t label, int64_t first_col, int64_t cols) {
    int64_t c = label - first_col;
    return label >= 0 && c >= 0 && c < cols ? c : -1;
}

/* Address of element i of a row. */
AX_INLINE const char *element(enum ax_dtype dtype, const char *row, int64_t i) {
    return row + i * (dtype == AX_BF16 ? 2 : 4);
}

AX_INLINE float load_one(enum ax_dtype dtype, const void *row, int64_t i) {
    return v_lane0(v_load(dtype, row, i, 1));
}

AX_INLINE void peak_vector(enum ax_dtype dtype, const void *row, v_float *peak, int64_t i,
                           int64_t n) {
    *peak = v_max(v_keep(n, v_load(dtype, row, i, n), -INFINITY), *peak);
}

/* The largest of n elements that are not NaN, −inf if there is none. */
AX_INLINE float peak_of(enum ax_dtype dtype, const void *row, int64_t n) {
    v_float peak = v_set(-INFINITY);
    AX_EACH_VECTOR(n, peak_vector, dtype, row, &peak);
    return v_max_lane(peak);
}

/* Index of the first of n elements that equals value; one does. */
AX_INLINE int64_t find(enum ax_dtype dtype, const char *block, int64_t n, float value) {
    for (int64_t i = 0; i < n; i += AX_LANES) {
        v_float x = v_load(dtype, block, i, least(AX_LANES, n - i));
        int lane = v_find(v_keep(n - i, x, -INFINITY), value);
        if (lane >= 0)
            return i + lane;
    }
    return 0;
}

/* For d = (x − max)·temper: exp += Σ e^d; moment += Σ e^d·d, with d = −inf, whose exponential is 0,
 * counting as 0; plain += Σ x. */
struct exp_sums {
    v_float exp, moment, plain;
};

AX_INLINE void exp_vector(enum ax_dtype dtype, const void *logits, v_float temper, v_float max,
                          struct exp_sums *sums, int64_t i, int64_t n) {
    v_float x = v_load(dtype, logits, i, n);
    v_float d = v_max(v_set(-FLT_MAX), v_keep(n, (x - max) * temper, -INFINITY)), e = v_exp(d);
    sums->exp += e;
    sums->moment = v_fma(e, d, sums->moment);
    sums->plain += x; /* lanes past the end are 0 */
}

AX_INLINE void stats_row(enum ax_dtype dtype, const char *logits, int64_t cols, float temper,
                         float *stats) {
    float max = -INFINITY;
    double rest = 0, moment = 0, plain = 0;
    for (int64_t first = 0; first < cols; first += BLOCK) {
        int64_t n = least(BLOCK, cols - first);
        const char *block = element(dtype, logits, first);
        const float peak = peak_of(dtype, block, n);
        int64_t end = n;
        if (peak > max) {
            const float step = fmaxf((float)AX_LOG_FLOOR, (max - peak) * temper);
            const double shrink = (double)exp_one(step), sum = 1 + rest;
            moment = shrink * (moment + (double)step * sum);
            rest = shrink * sum;
            max = peak;
            end = find(dtype, block, n, peak); /* is left out */
            plain += (double)peak;
        }
        /* as long as all are −inf, exponentials are 0 relative to anything finite */
        v_float base = v_set(max == -INFINITY ? 0 : max);
        struct exp_sums part = {v_set(0), v_set(0), v_set(0)};
        for (int64_t from = 0; from < n; from = end + 1, end = n)
            AX_EACH_VECTOR(end - from, exp_vector, dtype, element(dtype, block, from),
                           v_set(temper), base, &part);
        rest += v_sum(part.exp);
        moment += v_sum(part.moment);
        plain += v_sum(part.plain);
    }
    stats[0] = max;
    stats[1] = (float)rest;
    stats[2] = (float)moment;
    stats[4] = (float)plain;
}

enum ax_status AX_VEC(ax_cpu_softmax_stats)(struct ax_queue *q, const struct ax_softmax_stats *args,
                                            void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits;
    const int32_t *labels = args->labels.data;
    int64_t cols = logits->shape[1];
    float temper = (float)args->inv_temperature;
    AX_PARALLEL_FOR (team(q, logits->shape[0] * cols), t, logits->shape[0]) {
        const char *row = ax_tensor_row(logits, t);
        float *stats = ax_tensor_row(&args->stats, t);
        AX_BY_DTYPE(logits->dtype, stats_row, row, cols, temper, stats);
        int64_t label = column_of(labels[t], args->first_col, cols);
        stats[3] = label >= 0 ? load_one(logits->dtype, row, label) : 0;
    }
    return AX_OK;
}

enum ax_status AX_VEC(ax_cpu_softmax_merge)(struct ax_queue *q, const struct ax_softmax_merge *args,
                                            void *work) {
    (void)work;
    const struct ax_tensor *stats = &args->stats;
    int64_t shards = stats->shape[0], tokens = stats->shape[1];
    const int32_t *labels = args->labels.data;
    float *logprob = args->logprob.data, *lse = args->lse.data, *entropy = args->entropy.data;
    float *mean_logprob = args->mean_logprob.data, *lse_rest = args->lse_rest.data;
    const double temper = (double)(float)args->inv_temperature; /* of the other ops */
    AX_PARALLEL_FOR (team(q, shards * tokens * 16), t, tokens) {
        const float *first = (const float *)stats->data + t * AX_SOFTMAX_STATS;
        int64_t top = 0;
        for (int64_t s = 1; s < shards; s++)
            top = first[s * stats->row_stride] > first[top * stats->row_stride] ? s : top;
        const double max = (double)first[top * stats->row_stride];
        double rest = 0, moment = 0, chosen = 0, plain = 0;
        for (int64_t s = 0; s < shards; s++) {
            const float *part = first + s * stats->row_stride;
            const double d = fmax(AX_LOG_FLOOR, ((double)part[0] - max) * temper);
            const double share = s == top ? 1 : exp(d), own = (double)part[1] + (s != top);
            rest += share * own;
            moment += share * ((double)part[2] + (s == top ? 0 : d * own));
            chosen += (double)part[3]; /* 0 in all shards except one */
            plain += (double)part[4];
        }
        const double log_sum = log1p(rest) + (max - max); /* of infinity: NaN */
        logprob[t] = labels[t] >= 0 ? (float)((chosen - max) * temper - log_sum) : 0;
        lse[t] = (float)(max * temper + log_sum);
        entropy[t] = (float)(log_sum - moment / (1 + rest));
        if (mean_logprob != NULL)
            mean_logprob[t] = (float)((plain / (double)args->vocab - max) * temper - log_sum);
        if (lse_rest != NULL)
            lse_rest[t] = (float)(log_sum - ((double)lse[t] - max * temper));
    }
    return AX_OK;
}

/* A row's gradient is e^d·(constant + slope·d) + even with d = z − lse. At the label it is
 * chosen·(1 − e^d) + e^d·(beside + slope·d) + even. */
struct row_gradient {
    float temper, lse, lse_rest, constant, slope, even;
    double chosen, beside;
};

static struct row_gradient gradient_of(const struct ax_softmax_backward *args, int64_t t,
                                       bool labeled) {
    const float *lse = args->lse.data, *entropy = args->entropy.data;
    const float *lse_rest = args->lse_rest.data;
    const float *g_logprob = args->g_logprob.data, *g_lse = args->g_lse.data,
                *g_entropy = args->g_entropy.data, *g_mean = args->g_mean.data;
    const double temper = args->inv_temperature;
    const double chosen = labeled ? (double)g_logprob[t] : 0;
    double beside = g_lse != NULL ? (double)g_lse[t] : 0;
    double slope = 0, even = 0;
    if (g_mean != NULL) {
        beside -= (double)g_mean[t];
        even = (double)g_mean[t] / (double)args->vocab;
    }
    if (g_entropy != NULL) {
        slope = -(double)g_entropy[t];
        beside += slope * (double)entropy[t];
    }
    return (struct row_gradient){.temper = (float)temper,
                                 .lse = lse[t],
                                 .lse_rest = lse_rest != NULL ? lse_rest[t] : 0,
                                 .constant = (float)(temper * (beside - chosen)),
                                 .slope = (float)(temper * slope),
                                 .even = (float)(temper * even),
                                 .chosen = temper * chosen,
                                 .beside = temper * beside};
}

/* e^d is 0 long before the floor; a d of −inf would make the product 0·inf. */
AX_INLINE v_float slopes(v_float logits, const struct row_gradient *g) {
    v_float d = v_fma(logits, v_set(g->temper), v_set(-g->lse)) - v_set(g->lse_rest);
    d = v_max(v_set((float)AX_LOG_FLOOR), d);
    return v_fma(v_exp(d), v_fma(v_set(g->slope), d, v_set(g->constant)), v_set(g->even));
}

/* Of a label that is almost certain 1 − e^d is all that is left. */
static float slope_at_label(float logit, const struct row_gradient *g) {
    double d = (double)logit * (double)g->temper - (double)g->lse - (double)g->lse_rest;
    d = d < AX_LOG_FLOOR ? AX_LOG_FLOOR : d;
    return (float)(exp(d) * (g->beside + (double)g->slope * d) - g->chosen * expm1(d) +
                   (double)g->even);
}

AX_INLINE void gradient_vector(enum ax_dtype from, enum ax_dtype to, const void *logits, void *out,
                               const struct row_gradient *g, int64_t i, int64_t n) {
    v_store(to, out, i, n, slopes(v_load(from, logits, i, n), g));
}

/* label: column, −1 = not here. Its logit is read first: out may be the logits themselves. */
AX_INLINE void gradient_row(enum ax_dtype to, enum ax_dtype from, const char *logits, char *out,
                            int64_t cols, int64_t label, struct row_gradient g) {
    v_float at_label = v_set(0);
    if (label >= 0)
        at_label = v_set(slope_at_label(load_one(from, logits, label), &g));
    if (g.constant == 0 && g.slope == 0 &&
        g.even == 0) { /* a row without a label, e.g. in a prompt: no exponentials */
        memset(out, 0, (size_t)(element(to, out, cols) - out));
    } else {
        AX_EACH_VECTOR(cols, gradient_vector, from, to, logits, out, &g);
    }
    if (label >= 0)
        v_store(to, out, label, 1, at_label);
}

enum ax_status AX_VEC(ax_cpu_softmax_backward)(struct ax_queue *q,
                                               const struct ax_softmax_backward *args, void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits, *out = &args->dlogits;
    const int32_t *labels = args->labels.data;
    int64_t cols = logits->shape[1];
    AX_PARALLEL_FOR (team(q, logits->shape[0] * cols), t, logits->shape[0]) {
        AX_BY_DTYPES(logits->dtype, out->dtype, gradient_row, ax_tensor_row(logits, t),
                     ax_tensor_row(out, t), cols, column_of(labels[t], args->first_col, cols),
                     gradient_of(args, t, labels[t] >= 0));
    }
    return AX_OK;
}

/* Only a block with a new largest element is searched for its position. */
AX_INLINE int32_t argmax_row(enum ax_dtype dtype, const char *row, int64_t cols) {
    float best = -INFINITY;
    int64_t index = 0;
    for (int64_t first = 0; first < cols; first += BLOCK) {
        int64_t n = least(BLOCK, cols - first);
        const char *block = element(dtype, row, first);
        float peak = peak_of(dtype, block, n);
        if (peak > best) {
            best = peak;
            index = first + find(dtype, block, n, peak);
        }
    }
    return (int32_t)index;
}

/* The element that follows number `after`: smaller, or as large and later. −1: there is none. */
AX_INLINE int32_t next_row(enum ax_dtype dtype, const char *row, int64_t cols, int32_t after) {
    if (after < 0)
        return -1;
    const float limit = load_one(dtype, row, after);
    float best = -INFINITY;
    int64_t index = -1;
    for (int64_t i = 0; i < cols; i++) {
        const float x = load_one(dtype, row, i);
        const bool follows = x < limit || (x == limit && i > after);
        if (follows && (x > best || index < 0)) {
            best = x;
            index = i;
        }
    }
    return (int32_t)index;
}

static void follow_rows(struct ax_queue *q, const struct ax_argmax *args) {
    const struct ax_tensor *logits = &args->logits;
    const int64_t cols = logits->shape[1];
    const int32_t *after = args->after.data;
    int32_t *index = args->index.data;
    AX_PARALLEL_FOR (team(q, logits->shape[0] * cols), t, logits->shape[0])
        index[t] = AX_BY_DTYPE(logits->dtype, next_row, ax_tensor_row(logits, t), cols, after[t]);
}

enum ax_status AX_VEC(ax_cpu_argmax)(struct ax_queue *q, const struct ax_argmax *args, void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits;
    int64_t cols = logits->shape[1];
    int32_t *index = args->index.data;
    if (args->after.data != NULL) {
        follow_rows(q, args);
        return AX_OK;
    }
    AX_PARALLEL_FOR (team(q, logits->shape[0] * cols), t, logits->shape[0])
        index[t] = AX_BY_DTYPE(logits->dtype, argmax_row, ax_tensor_row(logits, t), cols);
    return AX_OK;
}

/* The largest logits so far, the smallest of them first. */
struct top {
    float v[AX_TOP_MAX];
    int64_t n;
};

static void put_top(struct top *top, float x) {
    int64_t i = 0;
    for (; i + 1 < top->n && top->v[i + 1] < x; i++)
        top->v[i] = top->v[i + 1];
    top->v[i] = x;
}

/* Skips blocks with nothing larger than the smallest of the largest. */
AX_INLINE void find_top(enum ax_dtype dtype, const char *row, int64_t cols, struct top *top) {
    for (int64_t i = 0; i < top->n; i++)
        top->v[i] = -INFINITY;
    for (int64_t first = 0; first < cols; first += TOP_BLOCK) {
        int64_t n = least(TOP_BLOCK, cols - first);
        if (!(peak_of(dtype, element(dtype, row, first), n) > top->v[0]))
            continue;
        for (int64_t i = first; i < first + n; i++) {
            float x = load_one(dtype, row, i);
            if (x > top->v[0])
                put_top(top, x);
        }
    }
}

AX_INLINE void top_row(enum ax_dtype dtype, const char *row, int64_t cols, int64_t k, float *out) {
    struct top top = {.n = k};
    find_top(dtype, row, cols, &top);
    for (int64_t i = 0; i < k; i++)
        out[i] = top.v[k - 1 - i];
}

enum ax_status AX_VEC(ax_cpu_top_logits)(struct ax_queue *q, const struct ax_top_logits *args,
                                         void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits;
    const int64_t cols = logits->shape[1], k = args->out.shape[1];
    AX_PARALLEL_FOR (team(q, logits->shape[0] * cols), t, logits->shape[0])
        AX_BY_DTYPE(logits->dtype, top_row, ax_tensor_row(logits, t), cols, k,
                    ax_tensor_row(&args->out, t));
    return AX_OK;
}

AX_INLINE double entropy_row(enum ax_dtype dtype, const char *row, int64_t cols, int64_t k,
                             double temper) {
    struct top top = {.n = least(k, cols)};
    double sum = 0, entropy = 0;
    find_top(dtype, row, cols, &top);
    const double max = (double)top.v[top.n - 1];
    for (int64_t i = 0; i < top.n; i++)
        sum += exp(((double)top.v[i] - max) * temper);
    for (int64_t i = 0; i < top.n; i++) {
        const double p = exp(((double)top.v[i] - max) * temper) / sum;
        entropy -= p * log(p + 1e-10);
    }
    return entropy > 0 ? entropy : 0;
}

enum ax_status AX_VEC(ax_cpu_top_entropy)(struct ax_queue *q, const struct ax_top_entropy *args,
                                          void *work) {
    (void)work;
    const struct ax_tensor *logits = &args->logits;
    int64_t cols = logits->shape[1];
    const float *weight = args->weight.data;
    float *out = args->out.data;
    AX_PARALLEL_FOR (team(q, logits->shape[0] * cols), t, logits->shape[0]) {
        double entropy = AX_BY_DTYPE(logits->dtype, entropy_row, ax_tensor_row(logits, t), cols,
                                     args->k, args->inv_temperature);
        out[t] = weight[t] * (float)pow(entropy, args->alpha);
    }
    return AX_OK;
}
