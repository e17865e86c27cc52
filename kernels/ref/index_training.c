/* index_target, index_scores, index_loss, index_backward: what trains the indexer of sparse attention. */
#include <math.h>

#include "kernels/ref/ref.h"

enum ax_status ax_ref_index_target(struct ax_queue *q, const struct ax_index_target *a,
                                   void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->s.shape[0]; t++)
        for (int64_t c = 0; c < a->s.shape[1]; c++) {
            const double p = a->share * exp(ax_ref_get(&a->s, t, c) - ax_ref_get(&a->lse, t, 0));
            ax_ref_set(&a->p, t, c, a->accumulate ? ax_ref_get(&a->p, t, c) + p : p);
        }
    return AX_OK;
}

enum ax_status ax_ref_index_scores(struct ax_queue *q, const struct ax_index_scores *a,
                                   void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->z.shape[0]; t++)
        for (int64_t c = 0; c < a->z.shape[1]; c++) {
            const double x = ax_ref_get(&a->w, t, 0) * fmax(0, ax_ref_get(&a->z, t, c));
            ax_ref_set(&a->x, t, c, a->accumulate ? ax_ref_get(&a->x, t, c) + x : x);
        }
    return AX_OK;
}

/* The document of row t: its first key as a column, and how many keys the row's query sees of it; 0 without one. */
static int64_t seen_by(const struct ax_index_loss *a, int64_t t, int64_t *column) {
    const int64_t query = a->first + t;
    for (int64_t d = 0; d + 1 < a->cu_q.shape[0]; d++) {
        const int64_t end = ax_ref_i32(&a->cu_q, d + 1);
        if (query < ax_ref_i32(&a->cu_q, d) || query >= end)
            continue;
        const int64_t keys_end = ax_ref_i32(&a->cu_k, d + 1), seen = keys_end - (end - query) + 1;
        *column = ax_ref_i32(&a->cu_k, d) - a->first_key;
        AX_ASSERT(*column >= 0 && seen - a->first_key <= a->p.shape[1]);
        return seen - ax_ref_i32(&a->cu_k, d);
    }
    return 0;
}

static bool sees(const struct ax_index_loss *a, int64_t t, int64_t j) {
    return !ax_ref_given(&a->chosen) ||
           (((uint32_t *)a->chosen.data)[t * a->chosen.row_stride + j / 32] >> j % 32 & 1) != 0;
}

/* log Σ e^x over the keys that row t sees, of n from `from` on. */
static double log_sum(const struct ax_index_loss *a, int64_t t, int64_t from, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        if (sees(a, t, j))
            max = fmax(max, ax_ref_get(&a->x, t, from + j));
    for (int64_t j = 0; j < n; j++)
        if (sees(a, t, j))
            sum += exp(ax_ref_get(&a->x, t, from + j) - max);
    return max + log(sum);
}

/* A token's part of the step's mean. */
static double share_of(const struct ax_index_loss *a) {
    return a->scalars->tokens > 0 ? 1 / a->scalars->tokens : 0;
}

/* Returns the divergence of row t, and makes its gradient of p. */
static double loss_of_row(const struct ax_index_loss *a, int64_t t) {
    const double factor = a->coef * share_of(a);
    int64_t from = 0;
    const int64_t n = seen_by(a, t, &from);
    const double all = log_sum(a, t, from, n);
    double kl = 0;
    for (int64_t c = 0; c < a->p.shape[1]; c++) {
        const bool seen = c >= from && c < from + n && sees(a, t, c - from);
        const double p = ax_ref_get(&a->p, t, c), log_r = ax_ref_get(&a->x, t, c) - all;
        if (seen && p > 0)
            kl += p * (log(p) - log_r);
        ax_ref_set(&a->p, t, c, seen ? factor * (exp(log_r) - p) : 0);
    }
    return kl;
}

enum ax_status ax_ref_index_loss(struct ax_queue *q, const struct ax_index_loss *a, void *work) {
    (void)q;
    (void)work;
    double sum = 0;
    for (int64_t t = 0; t < a->p.shape[0]; t++) {
        const double kl = loss_of_row(a, t);
        ax_ref_set(&a->kl, t, 0, kl);
        sum += kl;
    }
    a->scalars->index_loss += sum * share_of(a);
    return AX_OK;
}

enum ax_status ax_ref_index_backward(struct ax_queue *q, const struct ax_index_backward *a,
                                     void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->z.shape[0]; t++) {
        double dw = 0;
        for (int64_t c = 0; c < a->z.shape[1]; c++) {
            const double z = ax_ref_get(&a->z, t, c), dx = ax_ref_get(&a->dx, t, c);
            ax_ref_set(&a->dz, t, c, z > 0 ? dx * ax_ref_get(&a->w, t, 0) : 0);
            dw += dx * fmax(0, z);
        }
        ax_ref_set(&a->dw, t, 0, dw);
    }
    return AX_OK;
}
