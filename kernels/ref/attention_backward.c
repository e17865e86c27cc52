/* attention_backward: dq per query, then dk and dv per key, so that each output is one sum. */
#include <math.h>

#include "kernels/ref/attention.h"

/* Six rows of one head. */
struct rows {
    double *query, *key, *sum_k;  /* [hd]; the sum is of dq or dk */
    double *value, *dout, *sum_v; /* [vd] */
};

static struct rows rows_in(double *work, int64_t hd, int64_t vd) {
    double *v = work + 3 * hd;
    return (struct rows){work, work + hd, work + 2 * hd, v, v + vd, v + 2 * vd};
}

static void clear(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = 0;
}

static void add_scaled(double *x, double factor, const double *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] += factor * y[i];
}

/* δ = Σ out·dout of one query and head. */
static double delta(const struct ax_attention_backward *b, int64_t row, int64_t head) {
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
    double s = ax_ref_logit(&b->a, ax_ref_dot(r->query, r->key, hd));
    double capped = b->a.softcap > 0 ? s / b->a.softcap : 0;
    *p = exp(s - lse);
    *ds = *p * (ax_ref_dot(r->dout, r->value, vd) - delta_i) * (1 - capped * capped) * b->a.scale;
}

static void backward_query(const struct ax_attention_backward *b, const struct ax_ref_document *d,
                           int64_t i, int64_t head, const struct rows *r) {
    const struct ax_attention *a = &b->a;
    int64_t hd = a->q.shape[2];
    int64_t kv_head = head * a->k.shape[1] / a->q.shape[1];
    int64_t row = d->q_first + i;
    double lse = ax_ref_get(&a->lse, row, head);
    double delta_i = delta(b, row, head);
    int64_t from, to;
    ax_ref_visible(a, d, i, &from, &to);
    ax_ref_load_head(&a->q, row, head, r->query);
    ax_ref_load_head(&b->dout, row, head, r->dout);
    clear(r->sum_k, hd);
    for (int64_t j = from; j < to; j++) {
        ax_ref_load_head(&a->k, d->k_first + j, kv_head, r->key);
        ax_ref_load_head(&a->v, d->k_first + j, kv_head, r->value);
        double p, ds;
        pair_gradient(b, r, lse, delta_i, &p, &ds);
        add_scaled(r->sum_k, ds, r->key, hd);
    }
    ax_ref_store_row(&b->dq, row, head * hd, hd, r->sum_k);
}

/* Sums over every query of every head that reads this key. */
static void backward_key(const struct ax_attention_backward *b, const struct ax_ref_document *d,
                         int64_t j, int64_t kv_head, const struct rows *r) {
    const struct ax_attention *a = &b->a;
    int64_t hd = a->q.shape[2], vd = a->v.shape[2];
    int64_t group = a->q.shape[1] / a->k.shape[1];
    int64_t row = d->k_first + j;
    ax_ref_load_head(&a->k, row, kv_head, r->key);
    ax_ref_load_head(&a->v, row, kv_head, r->value);
    clear(r->sum_k, hd);
    clear(r->sum_v, vd);
    for (int64_t n = 0; n < d->nq * group; n++) {
        int64_t i = n / group;
        int64_t head = kv_head * group + n % group;
        int64_t from, to;
        ax_ref_visible(a, d, i, &from, &to);
        if (j < from || j >= to)
            continue;
        ax_ref_load_head(&a->q, d->q_first + i, head, r->query);
        ax_ref_load_head(&b->dout, d->q_first + i, head, r->dout);
        double p, ds;
        pair_gradient(b, r, ax_ref_get(&a->lse, d->q_first + i, head),
                      delta(b, d->q_first + i, head), &p, &ds);
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
        struct ax_ref_document d = ax_ref_document(a, n);
        for (int64_t row = d.q_first; row < d.q_first + d.nq; row++)
            sum -= exp(sink - ax_ref_get(&a->lse, row, head)) * delta(b, row, head);
    }
    ax_ref_set(&b->dsink, head, 0, ax_ref_get(&b->dsink, head, 0) + sum);
}

static void zero(const struct ax_tensor *t) {
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
    zero(&b->dq);
    zero(&b->dk);
    zero(&b->dv);
    for (int64_t n = 0; n + 1 < a->cu_q.shape[0]; n++) {
        struct ax_ref_document d = ax_ref_document(a, n);
        for (int64_t i = 0; i < d.nq * a->q.shape[1]; i++)
            backward_query(b, &d, i / a->q.shape[1], i % a->q.shape[1], &r);
        for (int64_t j = 0; j < d.nk * a->k.shape[1]; j++)
            backward_key(b, &d, j / a->k.shape[1], j % a->k.shape[1], &r);
    }
    for (int64_t h = 0; h < a->q.shape[1] && ax_ref_given(&b->dsink); h++)
        backward_sink(b, h);
    return AX_OK;
}
