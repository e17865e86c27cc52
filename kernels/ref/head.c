/* The head: softmax_stats, softmax_merge, softmax_backward, nll_loss, argmax, top_entropy,
 * top_logits. */
#include <math.h>

#include "kernels/ref/ref.h"

/* Column of this shard that holds the label of row t, or −1. */
static int64_t label_col(const struct ax_tensor *labels, int64_t t, int64_t first_col,
                         int64_t cols) {
    int64_t label = ax_ref_i32(labels, t);
    int64_t col = label - first_col;
    return label >= 0 && col >= 0 && col < cols ? col : -1;
}

/* e^d is 0 long before the floor; of −inf, times that would be NaN. */
static double floored(double d) {
    return d < AX_LOG_FLOOR ? AX_LOG_FLOOR : d;
}

enum ax_status ax_ref_softmax_stats(struct ax_queue *q, const struct ax_softmax_stats *a,
                                    void *work) {
    (void)q;
    (void)work;
    int64_t cols = a->logits.shape[1];
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        double max = -INFINITY;
        int64_t at = -1;
        for (int64_t c = 0; c < cols; c++)
            if (ax_ref_get(&a->logits, t, c) > max) {
                max = ax_ref_get(&a->logits, t, c);
                at = c;
            }
        double rest = 0, moment = 0, plain = 0;
        for (int64_t c = 0; c < cols; c++) {
            const double x = ax_ref_get(&a->logits, t, c);
            plain += x;
            if (c == at)
                continue;
            const double d = floored(at < 0 ? x : (x - max) * a->inv_temperature);
            rest += exp(d);
            moment += exp(d) * d;
        }
        int64_t label = label_col(&a->labels, t, a->first_col, cols);
        ax_ref_set(&a->stats, t, 0, max);
        ax_ref_set(&a->stats, t, 1, rest);
        ax_ref_set(&a->stats, t, 2, moment);
        ax_ref_set(&a->stats, t, 3, label < 0 ? 0 : ax_ref_get(&a->logits, t, label));
        ax_ref_set(&a->stats, t, 4, plain);
    }
    return AX_OK;
}

enum ax_status ax_ref_softmax_merge(struct ax_queue *q, const struct ax_softmax_merge *a,
                                    void *work) {
    (void)q;
    (void)work;
    int64_t shards = a->stats.shape[0];
    for (int64_t t = 0; t < a->stats.shape[1]; t++) {
        const int64_t at = t * AX_SOFTMAX_STATS;
        double max = -INFINITY;
        int64_t top = 0;
        for (int64_t s = 0; s < shards; s++)
            if (ax_ref_get(&a->stats, s, at) > max) {
                max = ax_ref_get(&a->stats, s, at);
                top = s;
            }
        double rest = 0, moment = 0, at_label = 0, plain = 0;
        for (int64_t s = 0; s < shards; s++) {
            const double d = floored((ax_ref_get(&a->stats, s, at) - max) * a->inv_temperature);
            const double part = ax_ref_get(&a->stats, s, at + 1);
            rest += s == top ? part : exp(d) * (1 + part);
            moment += s == top ? ax_ref_get(&a->stats, s, at + 2)
                               : exp(d) * (ax_ref_get(&a->stats, s, at + 2) + d * (1 + part));
            at_label += ax_ref_get(&a->stats, s, at + 3);
            plain += ax_ref_get(&a->stats, s, at + 4);
        }
        const double log_sum = log1p(rest) + (max - max); /* of infinity: NaN */
        const double peak = max * a->inv_temperature;
        const bool labeled = ax_ref_i32(&a->labels, t) >= 0;
        ax_ref_set(&a->logprob, t, 0,
                   labeled ? (at_label - max) * a->inv_temperature - log_sum : 0);
        ax_ref_set(&a->lse, t, 0, peak + log_sum);
        ax_ref_set(&a->entropy, t, 0, log_sum - moment / (1 + rest));
        if (ax_ref_given(&a->mean_logprob))
            ax_ref_set(&a->mean_logprob, t, 0,
                       (plain / (double)a->vocab - max) * a->inv_temperature - log_sum);
        if (ax_ref_given(&a->lse_rest))
            ax_ref_set(&a->lse_rest, t, 0, log_sum - (ax_ref_get(&a->lse, t, 0) - peak));
    }
    return AX_OK;
}

enum ax_status ax_ref_softmax_backward(struct ax_queue *q, const struct ax_softmax_backward *a,
                                       void *work) {
    (void)q;
    (void)work;
    int64_t cols = a->logits.shape[1];
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        int64_t label = label_col(&a->labels, t, a->first_col, cols);
        const double rest = ax_ref_given(&a->lse_rest) ? ax_ref_get(&a->lse_rest, t, 0) : 0;
        double lse = ax_ref_get(&a->lse, t, 0);
        double entropy = ax_ref_get(&a->entropy, t, 0);
        double g_logprob = ax_ref_i32(&a->labels, t) >= 0 ? ax_ref_get(&a->g_logprob, t, 0) : 0;
        double g_lse = ax_ref_given(&a->g_lse) ? ax_ref_get(&a->g_lse, t, 0) : 0;
        double g_entropy = ax_ref_given(&a->g_entropy) ? ax_ref_get(&a->g_entropy, t, 0) : 0;
        double g_mean = ax_ref_given(&a->g_mean) ? ax_ref_get(&a->g_mean, t, 0) : 0;
        double even = g_mean != 0 ? g_mean / (double)a->vocab : 0;
        for (int64_t c = 0; c < cols; c++) {
            double d = floored(ax_ref_get(&a->logits, t, c) * a->inv_temperature - lse - rest);
            double p = exp(d);
            double dz = g_logprob * (c == label ? -expm1(d) : -p) + g_lse * p -
                        g_entropy * p * (d + entropy) + even - g_mean * p;
            ax_ref_set(&a->dlogits, t, c, a->inv_temperature * dz);
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_nll_loss(struct ax_queue *q, const struct ax_nll_loss *a, void *work) {
    (void)q;
    (void)work;
    const bool soft = ax_ref_given(&a->targets);
    const double z = a->z_loss;
    double loss = 0, right = 0, labels = 0;
    for (int64_t t = 0; t < a->logprob.shape[0]; t++) {
        const bool labeled = ax_ref_i32(&a->labels, t) >= 0;
        const double w = labeled ? ax_ref_get(&a->weight, t, 0) * a->scalars->inv_weight : 0;
        const double p = soft && labeled ? ax_ref_get(&a->targets, t, 0) : 0;
        const double e = soft ? 2 * fmin(p, 1 - p) : a->label_smoothing;
        const double logprob = labeled ? ax_ref_get(&a->logprob, t, 0) : 0;
        const double s = a->dynamic ? exp(logprob) : 1;
        labels += labeled;
        right += labeled && logprob > -M_LN2;
        ax_ref_set(&a->g_logprob, t, 0, -w * (1 - e) * s);
        loss -= w * (1 - e) * s * logprob;
        if (soft || e != 0) {
            ax_ref_set(&a->g_mean, t, 0, -w * e);
            loss -= labeled ? w * e * ax_ref_get(&a->mean_logprob, t, 0) : 0;
        }
        if (z != 0) {
            const double lse = ax_ref_get(&a->lse, t, 0);
            ax_ref_set(&a->g_lse, t, 0, labeled ? 2 * w * z * lse : 0);
            loss += labeled ? w * z * lse * lse : 0;
        }
    }
    a->scalars->loss += loss;
    if (a->measures) {
        a->measures->sum[0] += right;
        a->measures->of[0] += labels;
    }
    return AX_OK;
}

/* Does token c come after another one, the largest first, of equal ones the first? −1: any does. */
static bool follows(const struct ax_tensor *logits, int64_t t, int32_t c, int32_t after) {
    if (after < 0)
        return true;
    const double z = ax_ref_get(logits, t, c), of = ax_ref_get(logits, t, after);
    return z < of || (z == of && c > after);
}

enum ax_status ax_ref_argmax(struct ax_queue *q, const struct ax_argmax *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        int32_t best = ax_ref_given(&a->after) ? -1 : 0;
        const int32_t after = best < 0 ? ((int32_t *)a->after.data)[t] : -1;
        for (int32_t c = 0; c < a->logits.shape[1]; c++)
            if ((best >= 0 || after >= 0) && follows(&a->logits, t, c, after) &&
                (best < 0 || ax_ref_get(&a->logits, t, c) > ax_ref_get(&a->logits, t, best)))
                best = c;
        ((int32_t *)a->index.data)[t] = best;
    }
    return AX_OK;
}

/* The k largest of row t, or all of fewer, the largest first; returns how many. */
static int64_t find_top(const struct ax_tensor *logits, int64_t t, int64_t k, double *top) {
    int64_t n = 0;
    AX_ASSERT(k >= 1 && k <= AX_TOP_MAX);
    for (int64_t c = 0; c < logits->shape[1]; c++) {
        const double z = ax_ref_get(logits, t, c);
        if (n == k && z <= top[n - 1])
            continue;
        int64_t at = n < k ? n++ : n - 1;
        for (; at > 0 && top[at - 1] < z; at--)
            top[at] = top[at - 1];
        top[at] = z;
    }
    return n;
}

enum ax_status ax_ref_top_logits(struct ax_queue *q, const struct ax_top_logits *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        double top[AX_TOP_MAX];
        const int64_t n = find_top(&a->logits, t, a->out.shape[1], top);
        for (int64_t i = 0; i < a->out.shape[1]; i++)
            ax_ref_set(&a->out, t, i, i < n ? top[i] : -INFINITY);
    }
    return AX_OK;
}

enum ax_status ax_ref_top_entropy(struct ax_queue *q, const struct ax_top_entropy *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        double top[AX_TOP_MAX], sum = 0, entropy = 0;
        const int64_t n = find_top(&a->logits, t, a->k, top);
        for (int64_t i = 0; i < n; i++)
            top[i] *= a->inv_temperature;
        for (int64_t i = 0; i < n; i++)
            sum += exp(top[i] - top[0]);
        for (int64_t i = 0; i < n; i++) {
            const double p = exp(top[i] - top[0]) / sum;
            entropy -= p * log(p + 1e-10);
        }
        ax_ref_set(&a->out, t, 0, ax_ref_get(&a->weight, t, 0) * pow(fmax(entropy, 0), a->alpha));
    }
    return AX_OK;
}
