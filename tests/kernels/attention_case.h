/* What the attention tests share: a case with its memory, the naive computation in double, and the
 * instruction sets of this machine. Include after cmocka.h. */
#ifndef AX_TESTS_KERNELS_ATTENTION_CASE_H
#define AX_TESTS_KERNELS_ATTENTION_CASE_H

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/isa.h"
#include "kernels/queue.h"

#define MAX_DOCS   8
#define ROW_MARGIN 3 /* elements between rows, NaN, so that reading them shows */
#define SPARE_ROWS 5 /* rows that belong to no document, NaN too */

struct spec {
    const char *name;
    int docs;
    int32_t n_q[MAX_DOCS], n_k[MAX_DOCS];
    int q_heads, kv_heads, head_dim;
    int value_dim; /* 0: as head_dim */
    int64_t window;
    int64_t ahead; /* > 0: of the queries, the first sees the last key so far back */
    bool not_causal;
    int64_t block_size; /* > 0: paged keys and values */
    double scale;       /* 0 = 1/√hd */
    double gain;        /* of q; 0 = 1 */
};

#define HEADS(q, kv, hd) .q_heads = (q), .kv_heads = (kv), .head_dim = (hd)

struct attention_case {
    struct spec spec;
    struct ax_attention_backward args; /* .a are forward's */
    int32_t cu_q[MAX_DOCS + 1], cu_k[MAX_DOCS + 1];
    int32_t *blocks;
};

/* [rows][heads][hd] in the middle of longer rows; numbers where `fill`, NaN elsewhere. */
static inline struct ax_tensor make_tensor(enum ax_dtype dtype, int64_t rows, int64_t heads,
                                           int64_t head_dim, uint32_t stream, double gain,
                                           int64_t fill) {
    struct ax_tensor t = ax_tensor_3d(dtype, NULL, rows, heads, head_dim);
    t.row_stride += ROW_MARGIN;
    int64_t n = rows * t.row_stride;
    assert_int_equal(ax_alloc(&t.data, (size_t)n, ax_dtype_size(dtype)), AX_OK);
    for (int64_t i = 0; i < n; i++) {
        bool inside = i / t.row_stride < fill && i % t.row_stride < heads * head_dim;
        struct ax_rng_key key = {.seed = 7, .tensor = stream};
        double x = gain * (double)ax_rng_normal(key, (uint64_t)i);
        ax_store(dtype, t.data, i, inside ? x : (double)NAN);
    }
    return t;
}

static inline int64_t key_row(const struct ax_attention *a, int64_t doc, int64_t j) {
    if (a->block_table.data == NULL)
        return ((const int32_t *)a->cu_k.data)[doc] + j;
    const int32_t *blocks = a->block_table.data;
    return blocks[doc * a->block_table.row_stride + j / a->block_size] * a->block_size +
           j % a->block_size;
}

/* Moves the keys and values to blocks in a scrambled order. */
static inline void make_paged(struct attention_case *c) {
    struct ax_attention *a = &c->args.a;
    int64_t per_doc = (a->max_k + a->block_size - 1) / a->block_size + 1;
    int64_t count = per_doc * c->spec.docs + 1;
    assert_int_equal(ax_alloc(&c->blocks, (size_t)(per_doc * c->spec.docs), sizeof(int32_t)),
                     AX_OK);
    for (int64_t i = 0; i < per_doc * c->spec.docs; i++)
        c->blocks[i] = (int32_t)(count - 1 - i);
    struct ax_tensor *both[] = {&a->k, &a->v};
    struct ax_attention packed = *a;
    a->block_table = ax_tensor_2d(AX_I32, c->blocks, c->spec.docs, per_doc);
    for (int which = 0; which < 2; which++) {
        struct ax_tensor from = *both[which];
        struct ax_tensor to =
            make_tensor(from.dtype, count * a->block_size, from.shape[1], from.shape[2], 0, 1, 0);
        for (int d = 0; d < c->spec.docs; d++) {
            for (int64_t j = 0; j < c->spec.n_k[d]; j++) {
                memcpy(ax_tensor_row(&to, key_row(a, d, j)),
                       ax_tensor_row(&from, key_row(&packed, d, j)),
                       (size_t)ax_tensor_row_len(&to) * ax_dtype_size(to.dtype));
            }
        }
        ax_free(from.data);
        *both[which] = to;
    }
}

static inline void case_open(struct attention_case *c, const struct spec *s, enum ax_dtype dtype) {
    *c = (struct attention_case){.spec = *s};
    c->spec.value_dim = s->value_dim > 0 ? s->value_dim : s->head_dim;
    int64_t max_q = 0, max_k = 0;
    for (int d = 0; d < s->docs; d++) {
        c->cu_q[d + 1] = c->cu_q[d] + s->n_q[d];
        c->cu_k[d + 1] = c->cu_k[d] + s->n_k[d];
        max_q = s->n_q[d] > max_q ? s->n_q[d] : max_q;
        max_k = s->n_k[d] > max_k ? s->n_k[d] : max_k;
    }
    int64_t n_q = c->cu_q[s->docs], n_k = c->cu_k[s->docs];
    int64_t hd = s->head_dim, vd = c->spec.value_dim, hq = s->q_heads, hk = s->kv_heads;
    double gain = s->gain > 0 ? s->gain : 1;
    struct ax_tensor lse = make_tensor(AX_F32, n_q + SPARE_ROWS, hq, 1, 0, 1, 0);
    struct ax_attention a = {
        .q = make_tensor(dtype, n_q + SPARE_ROWS, hq, hd, 1, gain, n_q),
        .k = make_tensor(dtype, n_k + SPARE_ROWS, hk, hd, 2, 1, n_k),
        .v = make_tensor(dtype, n_k + SPARE_ROWS, hk, vd, 3, 1, n_k),
        .out = make_tensor(dtype, n_q + SPARE_ROWS, hq, vd, 0, 1, 0),
        .lse = ax_tensor_2d(AX_F32, lse.data, n_q + SPARE_ROWS, hq),
        .cu_q = ax_tensor_1d(AX_I32, c->cu_q, s->docs + 1),
        .cu_k = ax_tensor_1d(AX_I32, c->cu_k, s->docs + 1),
        .block_size = s->block_size,
        .max_q = max_q,
        .max_k = max_k,
        .window = s->window,
        .ahead = s->ahead,
        .scale = s->scale > 0 ? s->scale : 1 / sqrt((double)hd),
        .causal = !s->not_causal,
    };
    a.lse.row_stride = lse.row_stride;
    c->args = (struct ax_attention_backward){
        .a = a,
        .dout = make_tensor(dtype, n_q + SPARE_ROWS, hq, vd, 4, 1, n_q),
        .dq = make_tensor(dtype, n_q + SPARE_ROWS, hq, hd, 0, 1, 0),
        .dk = make_tensor(dtype, n_k + SPARE_ROWS, hk, hd, 0, 1, 0),
        .dv = make_tensor(dtype, n_k + SPARE_ROWS, hk, vd, 0, 1, 0),
    };
    if (s->block_size > 0)
        make_paged(c);
}

static inline void case_close(struct attention_case *c) {
    struct ax_attention_backward *b = &c->args;
    struct ax_tensor *all[] = {&b->a.q,  &b->a.k, &b->a.v, &b->a.out, &b->a.lse,
                               &b->dout, &b->dq,  &b->dk,  &b->dv};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        ax_free(all[i]->data);
    ax_free(c->blocks);
}

/* Runs forward or backward with exactly the workspace asked for, filled with NaN. */
#define RUN(ops, op, args, n_threads)                                                              \
    do {                                                                                           \
        struct ax_queue queue_ = {.ops = (ops), .model = (ops), .threads = (n_threads)};           \
        size_t bytes_ = (ops)->workspace(&queue_, AX_OP_##op, (args));                             \
        void *work_;                                                                               \
        assert_int_equal(ax_alloc(&work_, bytes_, 1), AX_OK);                                      \
        memset(work_, 0xff, bytes_);                                                               \
        assert_true((ops)->supports(&queue_, AX_OP_##op, (args)));                                 \
        assert_int_equal((ops)->op(&queue_, (args), work_), AX_OK);                                \
        ax_free(work_);                                                                            \
    } while (0)

static inline void run_forward(const struct ax_ops *ops, const struct attention_case *c,
                               int threads) {
    struct ax_attention_forward f = {.a = c->args.a};
    RUN(ops, attention_forward, &f, threads);
}

static inline void run_backward(const struct ax_ops *ops, const struct attention_case *c,
                                int threads) {
    RUN(ops, attention_backward, &c->args, threads);
}

static inline bool sees(const struct spec *s, int doc, int64_t i, int64_t j) {
    int64_t diagonal = i + s->n_k[doc] + (s->ahead > 0 ? s->ahead - 1 : -s->n_q[doc]);
    return (s->not_causal || j <= diagonal) && (s->window == 0 || j > diagonal - s->window);
}

/* Every row as doubles, dense; rows of no document are 0. */
static inline double *as_doubles(const struct ax_tensor *t, int64_t rows) {
    int64_t len = ax_tensor_row_len(t);
    double *x;
    assert_int_equal(ax_alloc(&x, (size_t)(t->shape[0] * len), sizeof(*x)), AX_OK);
    for (int64_t i = 0; i < rows * len; i++)
        x[i] = ax_load(t->dtype, t->data, i / len * t->row_stride + i % len);
    return x;
}

struct naive {
    double *q, *k, *v, *dout;         /* inputs */
    double *out, *lse, *dq, *dk, *dv; /* results; dense [rows][heads][hd] */
};

static inline void naive_open(struct naive *n, const struct attention_case *c) {
    const struct ax_attention_backward *b = &c->args;
    assert_null(b->a.block_table.data);
    int64_t n_q = c->cu_q[c->spec.docs], n_k = c->cu_k[c->spec.docs];
    *n = (struct naive){
        as_doubles(&b->a.q, n_q),  as_doubles(&b->a.k, n_k), as_doubles(&b->a.v, n_k),
        as_doubles(&b->dout, n_q), as_doubles(&b->a.out, 0), as_doubles(&b->a.lse, 0),
        as_doubles(&b->dq, 0),     as_doubles(&b->dk, 0),    as_doubles(&b->dv, 0)};
    for (int64_t i = n_q * c->spec.q_heads; i < b->a.q.shape[0] * c->spec.q_heads; i++)
        n->lse[i] = -INFINITY; /* rows of no document */
}

static inline void naive_close(struct naive *n) {
    double *all[] = {n->q, n->k, n->v, n->dout, n->out, n->lse, n->dq, n->dk, n->dv};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        ax_free(all[i]);
}

static inline double inner(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static inline void add_to(double *x, double factor, const double *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] += factor * y[i];
}

/* One query and head: forward, and with `backward` what it adds to the gradients. */
static inline void naive_query(struct naive *n, const struct attention_case *c, int doc, int64_t i,
                               int64_t head, double *p, bool backward) {
    const struct spec *s = &c->spec;
    int64_t hd = s->head_dim, vd = s->value_dim;
    int64_t row = (c->cu_q[doc] + i) * s->q_heads + head, query = row * hd, out = row * vd;
    int64_t kv = head * s->kv_heads / s->q_heads;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s->n_k[doc]; j++) {
        int64_t key = ((c->cu_k[doc] + j) * s->kv_heads + kv) * hd;
        p[j] =
            sees(s, doc, i, j) ? c->args.a.scale * inner(n->q + query, n->k + key, hd) : -INFINITY;
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j < s->n_k[doc]; j++) {
        p[j] = max == -INFINITY ? 0 : exp(p[j] - max);
        sum += p[j];
    }
    n->lse[row] = max + log(sum);
    for (int64_t e = 0; e < vd; e++)
        n->out[out + e] = 0;
    for (int64_t j = 0; j < s->n_k[doc] && sum > 0; j++) {
        if (p[j] == 0)
            continue;
        p[j] /= sum;
        add_to(n->out + out, p[j], n->v + ((c->cu_k[doc] + j) * s->kv_heads + kv) * vd, vd);
    }
    double delta = inner(n->out + out, n->dout + out, vd);
    for (int64_t j = 0; j < s->n_k[doc] && backward; j++) {
        if (p[j] == 0)
            continue;
        int64_t at = (c->cu_k[doc] + j) * s->kv_heads + kv, key = at * hd, value = at * vd;
        double ds = p[j] * (inner(n->dout + out, n->v + value, vd) - delta) * c->args.a.scale;
        add_to(n->dv + value, p[j], n->dout + out, vd);
        add_to(n->dk + key, ds, n->q + query, hd);
        add_to(n->dq + query, ds, n->k + key, hd);
    }
}

static inline void naive_run(struct naive *n, const struct attention_case *c, bool backward) {
    double *p;
    assert_int_equal(ax_alloc(&p, (size_t)c->args.a.max_k, sizeof(*p)), AX_OK);
    for (int doc = 0; doc < c->spec.docs; doc++)
        for (int64_t i = 0; i < (int64_t)c->spec.n_q[doc] * c->spec.q_heads; i++)
            naive_query(n, c, doc, i / c->spec.q_heads, i % c->spec.q_heads, p, backward);
    ax_free(p);
}

/* |got − want| ≤ relative·|want| + absolute·(the largest |want| of all). */
static inline void compare(const struct attention_case *c, const char *name,
                           const struct ax_tensor *got, const double *want, double relative,
                           double absolute) {
    int64_t len = ax_tensor_row_len(got);
    double largest = 1;
    for (int64_t i = 0; i < got->shape[0] * len; i++)
        largest = fmax(largest, isfinite(want[i]) ? fabs(want[i]) : 0);
    for (int64_t r = 0; r < got->shape[0]; r++) {
        for (int64_t i = 0; i < len; i++) {
            double g = ax_load(got->dtype, got->data, r * got->row_stride + i);
            double w = want[r * len + i];
            double allowed = relative * fabs(w) + absolute * largest;
            if (isfinite(w) ? !(fabs(g - w) <= allowed) : g != w) {
                fail_msg("%s %s: %s[%lld][%lld] is %.9g, expected %.9g ± %.2g", c->spec.name,
                         ax_dtype_info(c->args.a.q.dtype)->name, name, (long long)r, (long long)i,
                         g, w, allowed);
            }
        }
    }
}

static inline void assert_same_rows(const char *what, const struct ax_tensor *a, int64_t row_a,
                                    const struct ax_tensor *b, int64_t row_b, int64_t n) {
    size_t bytes = (size_t)ax_tensor_row_len(a) * ax_dtype_size(a->dtype);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(ax_tensor_row(a, row_a + i), ax_tensor_row(b, row_b + i), bytes) != 0)
            fail_msg("%s: row %lld differs", what, (long long)i);
}

#if defined(__x86_64__)
bool ax_tiles_exist_amx_emulated(void); /* kernels/cpu/vec/tiles.h */
#else
static inline bool ax_tiles_exist_amx_emulated(void) {
    return false;
}
#endif

/* Calls f(ops, context) for every instruction set that this machine has. */
static inline void for_each_isa(void (*f)(const struct ax_ops *ops, const void *context),
                                const void *context) {
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++)
        if (ax_cpu_has(isa))
            f(ax_cpu_ops(isa), context);
    assert_false(ax_tiles_exist_amx_emulated()); /* released */
}

#endif
