/* attention_forward, one query and head at a time; attention_backward, dq per query, then dk and dv per key, so that
 * each output is one sum; attention_merge. */
#include <math.h>

#include "kernels/ref/ref.h"

/* ---- which keys a query sees, and its scores ---- */

/* One document: its queries and keys, [first, first + n). */
struct document {
    int64_t index, q_first, nq, k_first, nk;
};

static struct document find_document(const struct ax_attention *a, int64_t index) {
    struct document d = {.index = index,
                         .q_first = ax_ref_i32(&a->cu_q, index),
                         .k_first = ax_ref_i32(&a->cu_k, index)};
    d.nq = ax_ref_i32(&a->cu_q, index + 1) - d.q_first;
    d.nk = ax_ref_i32(&a->cu_k, index + 1) - d.k_first;
    AX_ASSERT(d.nq >= 0 && d.nk >= 0 && d.nq <= a->max_q && d.nk <= a->max_k);
    return d;
}

/* Keys [*from, *to) that query i of the document sees. */
static void visible_keys(const struct ax_attention *a, const struct document *d, int64_t i,
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

/* True if query i of the document chose key j, which it sees otherwise. */
static bool chose(const struct ax_attention *a, const struct document *d, int64_t i, int64_t j) {
    if (!ax_ref_given(&a->chosen))
        return true;
    const int32_t word = ax_ref_i32(&a->chosen, (d->q_first + i) * a->chosen.row_stride + j / 32);
    return (uint32_t)word >> j % 32 & 1;
}

/* Row of k and v that holds key j of the document. */
static int64_t key_row(const struct ax_attention *a, const struct document *d, int64_t j) {
    if (!ax_ref_given(&a->block_table))
        return d->k_first + j;
    int64_t entry = d->index * a->block_table.row_stride + j / a->block_size;
    int64_t row = ax_ref_i32(&a->block_table, entry) * a->block_size + j % a->block_size;
    AX_ASSERT(row >= 0 && row < a->k.shape[0]);
    return row;
}

/* Head `head` of row `row` as doubles. */
static void load_head(const struct ax_tensor *t, int64_t row, int64_t head, double *out) {
    ax_ref_load_row(t, row, head * t->shape[2], t->shape[2], out);
}

static double dot(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* The logit of a raw q·k product, soft cap included. */
static double logit_of(const struct ax_attention *a, double product) {
    double s = a->scale * product;
    return a->softcap > 0 ? a->softcap * tanh(s / a->softcap) : s;
}

/* ---- forward ---- */

/* One query of one head: the largest score and Σ exp(s − max), then the weighted values. */
static void attend(const struct ax_attention *a, const struct document *d, int64_t i, int64_t head,
                   double *rows) {
    int64_t hd = a->q.shape[2], vd = a->v.shape[2];
    int64_t kv_head = head * a->k.shape[1] / a->q.shape[1];
    double *query = rows, *key = query + hd, *value = key + hd, *out = value + vd;
    bool sink = ax_ref_given(&a->sink);
    double max = sink ? ax_ref_get(&a->sink, head, 0) : -INFINITY;
    double sum = sink ? 1 : 0;
    int64_t from, to;
    visible_keys(a, d, i, &from, &to);
    load_head(&a->q, d->q_first + i, head, query);
    for (int64_t j = from; j < to; j++) {
        if (!chose(a, d, i, j))
            continue;
        load_head(&a->k, key_row(a, d, j), kv_head, key);
        double s = logit_of(a, dot(query, key, hd));
        double grown = s > max ? s : max;
        sum = (sum > 0 ? sum * exp(max - grown) : 0) + exp(s - grown);
        max = grown;
    }
    for (int64_t c = 0; c < vd; c++)
        out[c] = 0;
    for (int64_t j = from; j < to; j++) {
        if (!chose(a, d, i, j))
            continue;
        int64_t row = key_row(a, d, j);
        load_head(&a->k, row, kv_head, key);
        load_head(&a->v, row, kv_head, value);
        double s = logit_of(a, dot(query, key, hd));
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
        struct document d = find_document(a, n);
        for (int64_t i = 0; i < d.nq; i++)
            for (int64_t h = 0; h < a->q.shape[1]; h++)
                attend(a, &d, i, h, work);
    }
    return AX_OK;
}

/* ---- backward ---- */

/* Six rows of one head. */
struct rows {
    double *query, *key, *sum_k;  /* [hd]; the sum is of dq or dk */
    double *value, *dout, *sum_v; /* [vd] */
};

static struct rows rows_in(double *work, int64_t hd, int64_t vd) {
    double *v = work + 3 * hd;
    return (struct rows){work, work + hd, work + 2 * hd, v, v + vd, v + 2 * vd};
}

static void clear_row(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = 0;
}

static void add_scaled(double *x, double factor, const double *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] += factor * y[i];
}

/* δ = Σ out·dout of one query and head. */
static double delta_of(const struct ax_attention_backward *b, int64_t row, int64_t head) {
    int64_t vd = b->a.v.shape[2];
    double sum = 0;
    for (int64_t c = head * vd; c < (head + 1) * vd; c++)
        sum += ax_ref_get(&b->a.out, row, c) * ax_ref_get(&b->dout, row, c);
    return sum;
}

/* p and scale·ds of the pair whose rows are loaded. The soft cap's slope is 1 − tanh². */
static void pair_gradient(const struct ax_attention_backward *b, const struct rows *r, double lse,
                          double delta_i, double *p, double *ds) {
    int64_t hd = b->a.q.shape[2], vd = b->a.v.shape[2];
    double s = logit_of(&b->a, dot(r->query, r->key, hd));
    double capped = b->a.softcap > 0 ? s / b->a.softcap : 0;
    *p = exp(s - lse);
    *ds = *p * (dot(r->dout, r->value, vd) - delta_i) * (1 - capped * capped) * b->a.scale;
}

static void backward_query(const struct ax_attention_backward *b, const struct document *d,
                           int64_t i, int64_t head, const struct rows *r) {
    const struct ax_attention *a = &b->a;
    int64_t hd = a->q.shape[2];
    int64_t kv_head = head * a->k.shape[1] / a->q.shape[1];
    int64_t row = d->q_first + i;
    double lse = ax_ref_get(&a->lse, row, head);
    double delta_i = delta_of(b, row, head);
    int64_t from, to;
    visible_keys(a, d, i, &from, &to);
    load_head(&a->q, row, head, r->query);
    load_head(&b->dout, row, head, r->dout);
    clear_row(r->sum_k, hd);
    for (int64_t j = from; j < to; j++) {
        if (!chose(a, d, i, j))
            continue;
        load_head(&a->k, d->k_first + j, kv_head, r->key);
        load_head(&a->v, d->k_first + j, kv_head, r->value);
        double p, ds;
        pair_gradient(b, r, lse, delta_i, &p, &ds);
        add_scaled(r->sum_k, ds, r->key, hd);
    }
    ax_ref_store_row(&b->dq, row, head * hd, hd, r->sum_k);
}

/* Sums over every query of every head that reads this key. */
static void backward_key(const struct ax_attention_backward *b, const struct document *d, int64_t j,
                         int64_t kv_head, const struct rows *r) {
    const struct ax_attention *a = &b->a;
    int64_t hd = a->q.shape[2], vd = a->v.shape[2];
    int64_t group = a->q.shape[1] / a->k.shape[1];
    int64_t row = d->k_first + j;
    load_head(&a->k, row, kv_head, r->key);
    load_head(&a->v, row, kv_head, r->value);
    clear_row(r->sum_k, hd);
    clear_row(r->sum_v, vd);
    for (int64_t n = 0; n < d->nq * group; n++) {
        int64_t i = n / group;
        int64_t head = kv_head * group + n % group;
        int64_t from, to;
        visible_keys(a, d, i, &from, &to);
        if (j < from || j >= to || !chose(a, d, i, j))
            continue;
        load_head(&a->q, d->q_first + i, head, r->query);
        load_head(&b->dout, d->q_first + i, head, r->dout);
        double p, ds;
        pair_gradient(b, r, ax_ref_get(&a->lse, d->q_first + i, head),
                      delta_of(b, d->q_first + i, head), &p, &ds);
        add_scaled(r->sum_k, ds, r->query, hd);
        add_scaled(r->sum_v, p, r->dout, vd);
    }
    ax_ref_store_row(&b->dk, row, kv_head * hd, hd, r->sum_k);
    ax_ref_store_row(&b->dv, row, kv_head * vd, vd, r->sum_v);
}

/* The sink is a logit without a value: ds = p·(0 − δ), summed over its head's queries. */
static void backward_sink(const struct ax_attention_backward *b, int64_t head) {
    const struct ax_attention *a = &b->a;
    double sink = ax_ref_get(&a->sink, head, 0);
    double sum = 0;
    for (int64_t n = 0; n + 1 < a->cu_q.shape[0]; n++) {
        struct document d = find_document(a, n);
        for (int64_t row = d.q_first; row < d.q_first + d.nq; row++)
            sum -= exp(sink - ax_ref_get(&a->lse, row, head)) * delta_of(b, row, head);
    }
    ax_ref_set(&b->dsink, head, 0, ax_ref_get(&b->dsink, head, 0) + sum);
}

static void zero_tensor(const struct ax_tensor *t) {
    for (int64_t r = 0; r < t->shape[0]; r++)
        for (int64_t c = 0; c < ax_tensor_row_len(t); c++)
            ax_ref_set(t, r, c, 0);
}

enum ax_status ax_ref_attention_backward(struct ax_queue *q, const struct ax_attention_backward *b,
                                         void *work) {
    (void)q;
    const struct ax_attention *a = &b->a;
    AX_ASSERT((a->window == 0 || a->causal) && !ax_ref_given(&a->block_table));
    struct rows r = rows_in(work, a->q.shape[2], a->v.shape[2]);
    zero_tensor(&b->dq);
    zero_tensor(&b->dk);
    zero_tensor(&b->dv);
    for (int64_t n = 0; n + 1 < a->cu_q.shape[0]; n++) {
        struct document d = find_document(a, n);
        for (int64_t i = 0; i < d.nq * a->q.shape[1]; i++)
            backward_query(b, &d, i / a->q.shape[1], i % a->q.shape[1], &r);
        for (int64_t j = 0; j < d.nk * a->k.shape[1]; j++)
            backward_key(b, &d, j / a->k.shape[1], j % a->k.shape[1], &r);
    }
    for (int64_t h = 0; h < a->q.shape[1] && ax_ref_given(&b->dsink); h++)
        backward_sink(b, h);
    return AX_OK;
}

/* ---- merge ---- */

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
