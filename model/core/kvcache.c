/* A paged KV cache over the attention op's block table. */
#include "model/core/kvcache.h"

#include <string.h>

#include "base/mem.h"

#define BLOCK AX_KV_BLOCK

static size_t host_ints(const struct ax_kvcache *c) {
    return (size_t)(c->T + c->n_seqs * c->columns + c->n_seqs + 1);
}

static enum ax_status create_host(struct ax_kvcache *c) {
    const size_t n = (size_t)c->n_seqs, blocks = (size_t)c->n_blocks;
    AX_TRY(ax_alloc(&c->k, (size_t)c->n_layers, sizeof *c->k));
    AX_TRY(ax_alloc(&c->v, (size_t)c->n_layers, sizeof *c->v));
    AX_TRY(ax_alloc(&c->length, n, sizeof *c->length));
    AX_TRY(ax_alloc(&c->table, n * (size_t)c->columns, sizeof *c->table));
    AX_TRY(ax_alloc(&c->users, blocks, sizeof *c->users));
    AX_TRY(ax_alloc(&c->free, blocks, sizeof *c->free));
    return ax_alloc(&c->host, host_ints(c), sizeof *c->host);
}

/* What no sequence has written is a number where it may be read. Elsewhere its pages are left alone. */
static enum ax_status clear(struct ax_queue *q, const struct ax_tensor *t) {
    return q->model->whole_blocks ? ax_run_fill(q, &(struct ax_fill){*t, 0}) : AX_OK;
}

static enum ax_status create_layer(struct ax_kvcache *c, struct ax_stack *stack, struct ax_queue *q,
                                   const struct ax_kvcache_options *o, int64_t i) {
    const struct ax_kv_row *row = &o->rows[i];
    struct ax_tensor *k = &c->k[i], *v = &c->v[i];
    *k = ax_tensor_3d(o->dtype, NULL, c->n_blocks * BLOCK, row->n_heads, row->key_dim);
    *v = ax_tensor_3d(o->dtype, NULL, c->n_blocks * BLOCK, row->n_heads, row->value_dim);
    *k = ax_stack_take(stack, "kv cache", *k);
    AX_TRY(clear(q, k));
    if (!row->values_in_keys) {
        *v = ax_stack_take(stack, "kv cache", *v);
        return clear(q, v);
    }
    AX_ASSERT(row->n_heads == 1 && row->value_dim <= row->key_dim);
    v->data = k->data;
    v->row_stride = k->row_stride;
    return AX_OK;
}

static enum ax_status create(struct ax_kvcache *c, struct ax_stack *stack, struct ax_queue *q,
                             const struct ax_kvcache_options *o) {
    AX_TRY(create_host(c));
    for (int64_t i = 0; i < o->n_layers; i++)
        AX_TRY(create_layer(c, stack, q, o, i));
    const struct ax_states_options so = {.dtype = o->dtype,
                                         .n_seqs = o->n_seqs,
                                         .n_layers = o->n_state_layers,
                                         .size = o->state,
                                         .T = o->T,
                                         .planning = o->planning};
    return ax_states_create(&c->states, stack, &so);
}

enum ax_status ax_kvcache_create(struct ax_kvcache *c, struct ax_stack *stack, struct ax_queue *q,
                                 const struct ax_kvcache_options *o) {
    *c = (struct ax_kvcache){.n_seqs = o->n_seqs,
                             .cap = o->cap,
                             .n_layers = o->n_layers,
                             .columns = ax_kvcache_blocks(o->cap),
                             .n_blocks = o->n_blocks,
                             .planning = o->planning,
                             .values_in_keys = o->n_layers > 0 && o->rows[0].values_in_keys,
                             .T = o->T};
    AX_ASSERT(c->n_blocks >= c->columns);
    enum ax_status st = create(c, stack, q, o);
    if (st != AX_OK) {
        ax_kvcache_free(c);
        return st;
    }
    int32_t AX_DEVICE *ints = ax_stack_push(stack, "kv cache index", host_ints(c) * sizeof *ints);
    c->rows = ax_tensor_1d(AX_I32, ints, o->T);
    c->block_table = ax_tensor_2d(AX_I32, ints + o->T, o->n_seqs, c->columns);
    c->cu_k = ax_tensor_1d(AX_I32, ints + o->T + o->n_seqs * c->columns, o->n_seqs + 1);
    ax_kvcache_clear(c);
    st = ax_kv_chunks_create(&c->chunks, stack, o->chunk, BLOCK, o->n_seqs, o->cap, o->T);
    if (st != AX_OK)
        ax_kvcache_free(c);
    return st;
}

void ax_kvcache_free(struct ax_kvcache *c) {
    ax_free(c->k);
    ax_free(c->v);
    ax_free(c->length);
    ax_free(c->table);
    ax_free(c->users);
    ax_free(c->free);
    ax_free(c->host);
    ax_kv_chunks_free(&c->chunks);
    ax_states_free(&c->states);
    *c = (struct ax_kvcache){0};
}

/* ---- blocks ---- */

static int32_t *blocks_of(const struct ax_kvcache *c, int64_t seq) {
    return c->table + seq * c->columns;
}

static int32_t take(struct ax_kvcache *c) {
    if (c->planning)
        return 0;
    AX_ASSERT(c->n_free > 0);
    const int32_t block = c->free[--c->n_free];
    c->users[block] = 1;
    return block;
}

static void give_back(struct ax_kvcache *c, int32_t block) {
    if (!c->planning && --c->users[block] == 0)
        c->free[c->n_free++] = block;
}

int64_t ax_kvcache_needs(const struct ax_kvcache *c, int64_t seq, int64_t n) {
    return ax_kvcache_blocks(c->length[seq] + n) - ax_kvcache_blocks(c->length[seq]);
}

void ax_kvcache_clear(struct ax_kvcache *c) {
    memset(c->length, 0, (size_t)c->n_seqs * sizeof *c->length);
    memset(c->users, 0, (size_t)c->n_blocks * sizeof *c->users);
    for (c->n_free = 0; c->n_free < c->n_blocks; c->n_free++)
        c->free[c->n_free] = (int32_t)(c->n_blocks - 1 - c->n_free);
    ax_states_clear(&c->states);
}

void ax_kvcache_shorten(struct ax_kvcache *c, int64_t seq) {
    AX_ASSERT(c->length[seq] > 0);
    const int64_t last = ax_kvcache_blocks(c->length[seq]) - 1;
    give_back(c, blocks_of(c, seq)[last]);
    c->length[seq] = last * BLOCK;
    ax_states_cut(&c->states, seq, c->length[seq]);
}

int64_t ax_kvcache_place(const struct ax_kvcache *c, int64_t seq, int64_t n) {
    return ax_states_place(&c->states, seq, n);
}

enum ax_status ax_kvcache_keep(struct ax_kvcache *c, struct ax_queue *q, int64_t seq) {
    return ax_states_keep(&c->states, q, seq);
}

/* The first n tokens of block `from`, in all layers. */
static enum ax_status copy_block(struct ax_kvcache *c, struct ax_queue *q, int32_t from, int32_t to,
                                 int64_t n) {
    for (int64_t i = 0; i < c->n_layers; i++) {
        const struct ax_tensor *both[] = {&c->k[i], &c->v[i]};
        for (int which = 0; which < (c->values_in_keys ? 1 : 2); which++) {
            const struct ax_copy copy = {.dst = ax_tensor_rows(both[which], to * BLOCK, n),
                                         .src = ax_tensor_rows(both[which], from * BLOCK, n)};
            AX_TRY(ax_run_copy(q, &copy));
        }
    }
    return AX_OK;
}

enum ax_status ax_kvcache_fork(struct ax_kvcache *c, struct ax_queue *q, int64_t from, int64_t to,
                               int64_t n) {
    AX_ASSERT(n <= c->length[from]);
    AX_TRY(ax_states_fork(&c->states, q, from, to, n));
    const int64_t blocks = ax_kvcache_blocks(n), rest = n % BLOCK;
    int32_t *own = blocks_of(c, to);
    for (int64_t i = 0; i < blocks; i++)
        c->users[blocks_of(c, from)[i]]++;
    for (int64_t i = 0; i < ax_kvcache_blocks(c->length[to]); i++)
        give_back(c, own[i]);
    memmove(own, blocks_of(c, from), (size_t)blocks * sizeof *own);
    c->length[to] = n;
    c->shared += from != to ? n / BLOCK : 0;
    if (rest == 0 || c->users[own[blocks - 1]] == 1)
        return AX_OK;
    const int32_t last = own[blocks - 1]; /* `to` will write to it, and others have it */
    own[blocks - 1] = take(c);
    give_back(c, last);
    return copy_block(c, q, last, own[blocks - 1], rest);
}

/* ---- a pass ---- */

enum ax_status ax_kvcache_advance(struct ax_kvcache *c, struct ax_queue *q, int64_t T,
                                  int64_t n_docs, const int32_t *seqs, const int64_t *n_new) {
    AX_ASSERT(n_docs <= c->n_seqs && T <= c->T);
    int32_t *rows = c->host, *table = rows + c->T, *cu_k = table + c->n_seqs * c->columns;
    int64_t t = 0;
    AX_TRY(ax_states_advance(&c->states, q, T, n_docs, seqs, c->length, n_new));
    cu_k[0] = 0;
    ax_kv_chunks_begin(&c->chunks);
    for (int64_t d = 0; d < n_docs; d++) {
        const int64_t s = seqs[d], end = c->length[s] + n_new[d];
        int32_t *own = blocks_of(c, s);
        if (end > c->cap)
            return ax_error(
                AX_ERR_DATA,
                "generation: sequence %lld needs %lld positions, but the KV cache has %lld",
                (long long)s, (long long)end, (long long)c->cap);
        AX_ASSERT(t + n_new[d] <= T);
        for (int64_t i = ax_kvcache_blocks(c->length[s]); i < ax_kvcache_blocks(end); i++)
            own[i] = take(c);
        for (int64_t at = c->length[s]; at < end; at++)
            rows[t++] = own[at / BLOCK] * BLOCK + (int32_t)(at % BLOCK);
        ax_kv_chunks_add(&c->chunks, own, c->length[s], end);
        c->length[s] = end;
        memcpy(table + d * c->columns, own, (size_t)c->columns * sizeof *table);
        cu_k[d + 1] = cu_k[d] + (int32_t)end;
    }
    while (t < T)
        rows[t++] = -1; /* padding is not kept */
    c->block_table.shape[0] = n_docs;
    c->cu_k.shape[0] = n_docs + 1;
    AX_TRY(ax_queue_write(q, c->rows.data, rows, (size_t)t * sizeof *rows));
    AX_TRY(ax_queue_write(q, c->block_table.data, table,
                          (size_t)(n_docs * c->columns) * sizeof *table));
    AX_TRY(ax_queue_write(q, c->cu_k.data, cu_k, (size_t)(n_docs + 1) * sizeof *cu_k));
    return ax_kv_chunks_send(&c->chunks, q, c->planning);
}

enum ax_status ax_kvcache_write(struct ax_kvcache *c, struct ax_queue *q, int layer,
                                const struct ax_tensor *k, const struct ax_tensor *v) {
    struct ax_tensor rows = ax_tensor_rows(&c->rows, 0, k->shape[0]);
    AX_TRY(ax_run_scatter_rows(q, &(struct ax_scatter_rows){c->k[layer], *k, rows}));
    if (c->values_in_keys)
        return AX_OK;
    return ax_run_scatter_rows(q, &(struct ax_scatter_rows){c->v[layer], *v, rows});
}

void ax_kvcache_describe(const struct ax_kvcache *c, int layer, bool chunked,
                         struct ax_attention *a) {
    const struct ax_kv_chunks *k = &c->chunks;
    a->k = c->k[layer];
    a->v = c->v[layer];
    a->cu_k = chunked ? k->cu_k : c->cu_k;
    a->block_table = chunked ? k->table : c->block_table;
    a->block_size = chunked ? k->block : BLOCK;
    a->max_k = chunked && k->size < c->cap ? k->size : c->cap;
    if (!chunked)
        return;
    a->cu_q = k->cu_q;
    a->max_q = a->max_q < k->size ? a->max_q : k->size;
}
