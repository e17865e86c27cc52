/* attention_forward: softmax over the visible keys, one query and head at a time; attention_merge. */
#include "kernels/ref/attention.h"

#include <math.h>

struct ax_ref_document ax_ref_document(const struct ax_attention *a, int64_t index) {
    struct ax_ref_document d = {.index = index,
                                .q_first = ax_ref_i32(&a->cu_q, index),
                                .k_first = ax_ref_i32(&a->cu_k, index)};
    d.nq = ax_ref_i32(&a->cu_q, index + 1) - d.q_first;
    d.nk = ax_ref_i32(&a->cu_k, index + 1) - d.k_first;
    AX_ASSERT(d.nq >= 0 && d.nk >= 0 && d.nq <= a->max_q && d.nk <= a->max_k);
    return d;
}

void ax_ref_visible(const struct ax_attention *a, const struct ax_ref_document *d, int64_t i,
                    int64_t *from, int64_t *to) {
    int64_t diagonal = a->ahead > 0 ? i + d->nk - 1 + a->ahead : i + d->nk - d->nq;
    *from = 0;
    *to = d->nk;
    if (a->causal && diagonal + 1 < d->nk)
        *to = diagonal + 1 < 0 ? 0 : diagonal + 1;
    if (a->window > 0 && diagonal - a->window + 1 > 0)
        *from = diagonal - a->window + 1;
    *from = *from < *to ? *from : *to;
}

int64_t ax_ref_key_row(const struct ax_attention *a, const struct ax_ref_document *d, int64_t j) {
    if (!ax_ref_given(&a->block_table))
        return d->k_first + j;
    int64_t entry = d->index * a->block_table.row_stride + j / a->block_size;
    int64_t row = ax_ref_i32(&a->block_table, entry) * a->block_size + j % a->block_size;
    AX_ASSERT(row >= 0 && row < a->k.shape[0]);
    return row;
}

void ax_ref_load_head(const struct ax_tensor *t, int64_t row, int64_t head, double *out) {
    ax_ref_load_row(t, row, head * t->shape[2], t->shape[2], out);
}

double ax_ref_dot(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

double ax_ref_logit(const struct ax_attention *a, double product) {
    double s = a->scale * product;
    return a->softcap > 0 ? a->softcap * tanh(s / a->softcap) : s;
}

/* One query of one head: the largest score and Σ exp(s − max), then the weighted values. */
static void attend(const struct ax_attention *a, const struct ax_ref_document *d, int64_t i,
                   int64_t head, double *rows) {
    int64_t hd = a->q.shape[2], vd = a->v.shape[2];
    int64_t kv_head = head * a->k.shape[1] / a->q.shape[1];
    double *query = rows, *key = query + hd, *value = key + hd, *out = value + vd;
    bool sink = ax_ref_given(&a->sink);
    double max = sink ? ax_ref_get(&a->sink, head, 0) : -INFINITY;
    double sum = sink ? 1 : 0;
    int64_t from, to;
    ax_ref_visible(a, d, i, &from, &to);
    ax_ref_load_head(&a->q, d->q_first + i, head, query);
    for (int64_t j = from; j < to; j++) {
        ax_ref_load_head(&a->k, ax_ref_key_row(a, d, j), kv_head, key);
        double s = ax_ref_logit(a, ax_ref_dot(query, key, hd));
        double grown = s > max ? s : max;
        sum = (sum > 0 ? sum * exp(max - grown) : 0) + exp(s - grown);
        max = grown;
    }
    for (int64_t c = 0; c < vd; c++)
        out[c] = 0;
    for (int64_t j = from; j < to; j++) {
        int64_t row = ax_ref_key_row(a, d, j);
        ax_ref_load_head(&a->k, row, kv_head, key);
        ax_ref_load_head(&a->v, row, kv_head, value);
        double s = ax_ref_logit(a, ax_ref_dot(query, key, hd));
        double p = exp(s - max) / sum;
        for (int64_t c = 0; c < vd; c++)
            out[c] += p * value[c];
    }
    ax_ref_store_row(&a->out, d->q_first + i, head * vd, vd, out);
    ax_ref_set(&a->lse, d->q_first + i, head, sum > 0 ? max + log(sum) : -INFINITY);
}

enum ax_status ax_ref_attention_forward(struct ax_queue *q, const struct ax_attention_forward *f,
                                        void *work) {
    (void)q;
    const struct ax_attention *a = &f->a;
    AX_ASSERT(a->window == 0 || a->causal);
    for (int64_t t = 0; t < a->q.shape[0]; t++) { /* rows of no document keep these values */
        for (int64_t c = 0; c < ax_tensor_row_len(&a->out); c++)
            ax_ref_set(&a->out, t, c, 0);
        for (int64_t h = 0; h < a->q.shape[1]; h++)
            ax_ref_set(&a->lse, t, h, -INFINITY);
    }
    for (int64_t n = 0; n + 1 < a->cu_q.shape[0]; n++) {
        struct ax_ref_document d = ax_ref_document(a, n);
        for (int64_t i = 0; i < d.nq; i++)
            for (int64_t h = 0; h < a->q.shape[1]; h++)
                attend(a, &d, i, h, work);
    }
    return AX_OK;
}

enum ax_status ax_ref_attention_merge(struct ax_queue *q, const struct ax_attention_merge *m,
                                      void *work) {
    (void)q;
    (void)work;
    const int64_t heads = m->part.shape[1], vd = m->part.shape[2];
    for (int64_t i = 0; i < m->part.shape[0] * heads; i++) {
        const int64_t t = i / heads, h = i % heads;
        const double a = ax_ref_get(&m->lse, t, h), b = ax_ref_get(&m->part_lse, t, h);
        const double max = a > b ? a : b;
        const bool none = isinf(max) && max < 0;
        const double all = none ? max : max + log(exp(a - max) + exp(b - max));
        for (int64_t c = h * vd; c < (h + 1) * vd; c++)
            ax_ref_set(&m->out, t, c,
                       none ? 0
                            : ax_ref_get(&m->out, t, c) * exp(a - all) +
                                  ax_ref_get(&m->part, t, c) * exp(b - all));
        ax_ref_set(&m->lse, t, h, all);
    }
    return AX_OK;
}
