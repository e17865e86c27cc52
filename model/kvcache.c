/* Contiguous KV cache over the attention op's block table: one block per sequence. */
#include "model/kvcache.h"

#include "base/mem.h"

enum ax_status ax_kvcache_create(struct ax_kvcache *c, struct ax_stack *stack,
                                 const struct ax_kvcache_options *o) {
    *c =
        (struct ax_kvcache){.n_seqs = o->n_seqs, .cap = o->cap, .n_layers = o->n_layers, .T = o->T};
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&c->k, (size_t)o->n_layers, sizeof *c->k), st, fail);
    AX_TRY_GOTO(ax_alloc(&c->v, (size_t)o->n_layers, sizeof *c->v), st, fail);
    AX_TRY_GOTO(ax_alloc(&c->length, (size_t)o->n_seqs, sizeof *c->length), st, fail);
    AX_TRY_GOTO(ax_alloc(&c->host, (size_t)(o->T + 2 * o->n_seqs + 1), sizeof *c->host), st, fail);
    for (int64_t i = 0; i < o->n_layers; i++) {
        const int64_t rows = o->n_seqs * o->cap;
        c->k[i] = ax_tensor_3d(o->dtype, NULL, rows, o->n_kv_heads, o->key_dim);
        c->v[i] = ax_tensor_3d(o->dtype, NULL, rows, o->n_kv_heads, o->value_dim);
        c->k[i].data = ax_stack_push(stack, "kv cache", ax_tensor_bytes(&c->k[i]));
        c->v[i].data = ax_stack_push(stack, "kv cache", ax_tensor_bytes(&c->v[i]));
    }
    int32_t AX_DEVICE *ints =
        ax_stack_push(stack, "kv cache index", (size_t)(o->T + 2 * o->n_seqs + 1) * sizeof *ints);
    c->rows = ax_tensor_1d(AX_I32, ints, o->T);
    c->block_table = ax_tensor_2d(AX_I32, ints + o->T, o->n_seqs, 1);
    c->cu_k = ax_tensor_1d(AX_I32, ints + o->T + o->n_seqs, o->n_seqs + 1);
    return AX_OK;
fail:
    ax_kvcache_free(c);
    return st;
}

void ax_kvcache_free(struct ax_kvcache *c) {
    ax_free(c->k);
    ax_free(c->v);
    ax_free(c->length);
    ax_free(c->host);
    *c = (struct ax_kvcache){0};
}

enum ax_status ax_kvcache_advance(struct ax_kvcache *c, struct ax_queue *q, int64_t T,
                                  int64_t n_docs, const int32_t *seqs, const int64_t *n_new) {
    AX_ASSERT(n_docs <= c->n_seqs && T <= c->T);
    int32_t *rows = c->host, *table = rows + c->T, *cu_k = table + c->n_seqs;
    int64_t t = 0;
    cu_k[0] = 0;
    for (int64_t d = 0; d < n_docs; d++) {
        const int64_t s = seqs[d];
        if (c->length[s] + n_new[d] > c->cap)
            return ax_error(
                AX_ERR_DATA,
                "generation: sequence %lld needs %lld positions, but the KV cache has %lld",
                (long long)s, (long long)(c->length[s] + n_new[d]), (long long)c->cap);
        AX_ASSERT(t + n_new[d] <= T);
        for (int64_t i = 0; i < n_new[d]; i++)
            rows[t++] = (int32_t)(s * c->cap + c->length[s] + i);
        c->length[s] += n_new[d];
        table[d] = (int32_t)s;
        cu_k[d + 1] = cu_k[d] + (int32_t)c->length[s];
    }
    while (t < T)
        rows[t++] = -1; /* padding is not kept */
    c->block_table.shape[0] = n_docs;
    c->cu_k.shape[0] = n_docs + 1;
    AX_TRY(ax_queue_write(q, c->rows.data, rows, (size_t)t * sizeof *rows));
    AX_TRY(ax_queue_write(q, c->block_table.data, table, (size_t)n_docs * sizeof *table));
    return ax_queue_write(q, c->cu_k.data, cu_k, (size_t)(n_docs + 1) * sizeof *cu_k);
}

enum ax_status ax_kvcache_fork(struct ax_kvcache *c, struct ax_queue *q, int64_t from, int64_t to,
                               int64_t n) {
    AX_ASSERT(n <= c->length[from]);
    c->length[to] = n;
    for (int64_t i = 0; from != to && n > 0 && i < c->n_layers; i++) {
        const struct ax_tensor *both[] = {&c->k[i], &c->v[i]};
        for (int which = 0; which < 2; which++) {
            const struct ax_copy copy = {.dst = ax_tensor_rows(both[which], to * c->cap, n),
                                         .src = ax_tensor_rows(both[which], from * c->cap, n)};
            AX_TRY(ax_run_copy(q, &copy));
        }
    }
    return AX_OK;
}

enum ax_status ax_kvcache_write(struct ax_kvcache *c, struct ax_queue *q, int layer,
                                const struct ax_tensor *k, const struct ax_tensor *v) {
    struct ax_tensor rows = ax_tensor_rows(&c->rows, 0, k->shape[0]);
    AX_TRY(ax_run_scatter_rows(q, &(struct ax_scatter_rows){c->k[layer], *k, rows}));
    return ax_run_scatter_rows(q, &(struct ax_scatter_rows){c->v[layer], *v, rows});
}

void ax_kvcache_describe(const struct ax_kvcache *c, int layer, struct ax_attention *a) {
    a->k = c->k[layer];
    a->v = c->v[layer];
    a->cu_k = c->cu_k;
    a->block_table = c->block_table;
    a->block_size = c->cap;
    a->max_k = c->cap;
}
