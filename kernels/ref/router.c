/* router_forward, router_balance, router_backward. */
#include <math.h>

#include "kernels/ref/ref.h"

/* True if row t is a token. */
static bool is_token(const struct ax_router_forward *a, int64_t t) {
    return !ax_ref_given(&a->valid) || a->first + t < ax_ref_i32(&a->valid, 0);
}

/* p of row t, each rounded as it is stored, so that ties stay ties. */
static void sigmoid_row(const struct ax_router_forward *a, int64_t t, bool token) {
    for (int64_t e = 0; e < a->logits.shape[1]; e++)
        ax_ref_set(&a->probs, t, e, token ? 1 / (1 + exp(-ax_ref_get(&a->logits, t, e))) : 0);
}

static void softmax_row(const struct ax_router_forward *a, int64_t t, bool token) {
    int64_t experts = a->logits.shape[1];
    double max = -INFINITY, sum = 0;
    for (int64_t e = 0; e < experts; e++)
        max = fmax(max, ax_ref_get(&a->logits, t, e));
    for (int64_t e = 0; e < experts; e++)
        sum += exp(ax_ref_get(&a->logits, t, e) - max);
    for (int64_t e = 0; e < experts; e++) {
        double p = exp(ax_ref_get(&a->logits, t, e) - max) / sum;
        ax_ref_set(&a->probs, t, e, token ? p : 0);
    }
}

static bool chosen_before(const int32_t *chosen, int64_t n, int32_t expert) {
    for (int64_t i = 0; i < n; i++)
        if (chosen[i] == expert)
            return true;
    return false;
}

/* What expert e of row t is chosen by. */
static double score(const struct ax_router_forward *a, int64_t t, int64_t e) {
    double p = ax_ref_get(&a->probs, t, e);
    return ax_ref_given(&a->bias) ? ax_ref_round(a->probs.dtype, p + ax_ref_get(&a->bias, e, 0))
                                  : p;
}

/* The sum of the largest scores of group g. */
static double group_score(const struct ax_router_forward *a, int64_t t, int64_t g) {
    int64_t size = a->logits.shape[1] / a->routing.groups;
    double best = -INFINITY, second = -INFINITY;
    for (int64_t e = g * size; e < (g + 1) * size; e++) {
        double s = score(a, t, e);
        if (s > best) {
            second = best;
            best = s;
        } else if (s > second) {
            second = s;
        }
    }
    return a->routing.group_best == 1 ? best : ax_ref_round(a->probs.dtype, best + second);
}

/* True if fewer than groups_kept groups come before the expert's own. */
static bool is_kept(const struct ax_router_forward *a, int64_t t, int64_t expert) {
    if (a->routing.groups == 0)
        return true;
    int64_t own = expert / (a->logits.shape[1] / a->routing.groups);
    double mine = group_score(a, t, own);
    int before = 0;
    for (int64_t g = 0; g < a->routing.groups; g++) {
        double other = group_score(a, t, g);
        before += other > mine || (other == mine && g < own) ? 1 : 0;
    }
    return before < a->routing.groups_kept;
}

/* k times the first largest of the remaining ones; among NaNs, the first. */
static void choose(const struct ax_router_forward *a, int64_t t) {
    int64_t k = a->weights.shape[1];
    int32_t *chosen = ax_tensor_row(&a->experts, t);
    double sum = 0;
    for (int64_t i = 0; i < k; i++) {
        int32_t best = -1;
        for (int32_t e = 0; e < a->logits.shape[1]; e++) {
            if (!chosen_before(chosen, i, e) && is_kept(a, t, e) &&
                (best < 0 || score(a, t, e) > score(a, t, best))) {
                best = e;
            }
        }
        chosen[i] = best;
        sum += ax_ref_get(&a->probs, t, best);
    }
    for (int64_t i = 0; i < k; i++) {
        double p = ax_ref_get(&a->probs, t, chosen[i]);
        ax_ref_set(&a->weights, t, i, a->routing.scale * (a->routing.renormalize ? p / sum : p));
    }
}

static void add_load(const struct ax_router_forward *a) {
    int64_t rows = a->logits.shape[0], k = a->weights.shape[1];
    for (int64_t e = 0; e < a->logits.shape[1]; e++) {
        double count = 0, sum = 0;
        for (int64_t t = 0; t < rows; t++) {
            sum += ax_ref_get(&a->probs, t, e);
            count += chosen_before(ax_tensor_row(&a->experts, t), k, (int32_t)e) ? 1 : 0;
        }
        ax_ref_set(&a->load, 0, e, ax_ref_get(&a->load, 0, e) + count);
        ax_ref_set(&a->load, 1, e, ax_ref_get(&a->load, 1, e) + sum);
    }
}

enum ax_status ax_ref_router_forward(struct ax_queue *q, const struct ax_router_forward *a,
                                     void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        bool token = is_token(a, t);
        if (a->routing.sigmoid)
            sigmoid_row(a, t, token);
        else
            softmax_row(a, t, token);
        if (token) {
            choose(a, t);
            continue;
        }
        for (int64_t i = 0; i < a->weights.shape[1]; i++) {
            ax_ref_set(&a->experts, t, i, -1);
            ax_ref_set(&a->weights, t, i, 0);
        }
    }
    if (ax_ref_given(&a->load))
        add_load(a);
    return AX_OK;
}

enum ax_status ax_ref_router_balance(struct ax_queue *q, const struct ax_router_balance *a,
                                     void *work) {
    (void)q;
    (void)work;
    int64_t experts = a->load.shape[1];
    double assigned = 0, dot = 0;
    for (int64_t e = 0; e < experts; e++) {
        assigned += ax_ref_get(&a->load, 0, e);
        dot += ax_ref_get(&a->load, 0, e) * ax_ref_get(&a->load, 1, e);
    }
    double n = assigned / (double)a->k;
    double scale = n > 0 ? a->weight * a->scalars->inv_weight * (double)experts / (n * n) : 0;
    for (int64_t e = 0; e < experts; e++)
        ax_ref_set(&a->slope, e, 0, a->coef * scale * ax_ref_get(&a->load, 0, e));
    a->scalars->aux_loss += a->counts ? scale * dot : 0;
    return AX_OK;
}

/* The gradient of row t's probability of expert e, without the slope. */
static double through_weights(const struct ax_router_backward *a, int64_t t, int32_t e) {
    int64_t k = a->dweights.shape[1];
    double sum = 0, dot = 0, own = 0;
    bool chosen = false;
    for (int64_t i = 0; i < k; i++) {
        int32_t expert = ((const int32_t *)ax_tensor_row(&a->experts, t))[i];
        double p = ax_ref_get(&a->probs, t, expert), dw = ax_ref_get(&a->dweights, t, i);
        sum += p;
        dot += dw * p;
        own = expert == e ? dw : own;
        chosen = chosen || expert == e;
    }
    if (!chosen)
        return 0;
    return a->routing.scale * (a->routing.renormalize ? (own - dot / sum) / sum : own);
}

static void router_row(const struct ax_router_backward *a, int64_t t) {
    int64_t experts = a->probs.shape[1];
    double mean = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t e = 0; e < experts; e++) {
            double p = ax_ref_get(&a->probs, t, e), dp = through_weights(a, t, e);
            dp += ax_ref_given(&a->slope) ? ax_ref_get(&a->slope, e, 0) : 0;
            dp += ax_ref_given(&a->slopes) ? ax_ref_get(&a->slopes, t, e) : 0;
            if (pass == 0)
                mean += p * dp;
            else
                ax_ref_set(&a->dlogits, t, e,
                           a->routing.sigmoid ? p * (1 - p) * dp : p * (dp - mean));
        }
    }
}

enum ax_status ax_ref_router_backward(struct ax_queue *q, const struct ax_router_backward *a,
                                      void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->probs.shape[0]; t++) {
        if (((const int32_t *)ax_tensor_row(&a->experts, t))[0] >= 0) {
            router_row(a, t);
            continue;
        }
        for (int64_t e = 0; e < a->probs.shape[1]; e++)
            ax_ref_set(&a->dlogits, t, e, 0);
    }
    return AX_OK;
}
