/* A paged KV cache over the attention op's block table. */
#include "model/core/kvcache.h"

#include <string.h>

#include "base/mem.h"

#define BLOCK AX_KV_BLOCK

static size_t host_ints(const struct ax_kvcache *c) {
    const int64_t of_tokens = c->n_index > 0 ? 2 * (c->T + 1) : 0;
    return (size_t)(c->T + c->n_seqs * c->columns + c->n_seqs + 1 + of_tokens);
}

static enum ax_status create_host(struct ax_kvcache *c) {
    const size_t n = (size_t)c->n_seqs, blocks = (size_t)c->n_blocks;
    AX_TRY(ax_alloc(&c->k, (size_t)c->n_layers, sizeof *c->k));
    AX_TRY(ax_alloc(&c->v, (size_t)c->n_layers, sizeof *c->v));
    AX_TRY(ax_alloc(&c->index, (size_t)c->n_index, sizeof *c->index));
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
    for (int64_t i = 0; i < o->n_index; i++) {
        c->index[i] = ax_stack_take(
            stack, "kv cache", ax_tensor_3d(o->dtype, NULL, c->n_blocks * BLOCK, 1, o->index_dim));
        AX_TRY(clear(q, &c->index[i]));
    }
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
                             .n_index = o->n_index,
                             .top = o->top,
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
    int32_t AX_DEVICE *each = ints + o->T + o->n_seqs * c->columns + o->n_seqs + 1;
    if (c->n_index > 0) {
        c->each_q = ax_tensor_1d(AX_I32, each, o->T + 1);
        c->each_k = ax_tensor_1d(AX_I32, each + o->T + 1, o->T + 1);
    }
    ax_kvcache_clear(c);
    st = ax_kv_chunks_create(&c->chunks, stack, o->chunk, BLOCK, o->n_seqs, o->cap, o->T);
    if (st != AX_OK)
        ax_kvcache_free(c);
    return st;
}

void ax_kvcache_free(struct ax_kvcache *c) {
    ax_free(c->k);
    ax_free(c->v);
    ax_free(c->index);
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
    for (int64_t i = 0; i < c->n_index; i++) {
        const struct ax_copy copy = {.dst = ax_tensor_rows(&c->index[i], to * BLOCK, n),
                                     .src = ax_tensor_rows(&c->index[i], from * BLOCK, n)};
        AX_TRY(ax_run_copy(q, &copy));
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

/* A pass of T tokens, of which n_docs documents have the first: each token by itself, with the keys that it
 * chooses from those up to it. */
static enum ax_status list_tokens(struct ax_kvcache *c, struct ax_queue *q, int64_t T,
                                  int64_t n_docs, const int32_t *seqs, const int64_t *n_new) {
    int32_t *each_q = c->host + c->T + c->n_seqs * c->columns + c->n_seqs + 1;
    int32_t *each_k = each_q + c->T + 1;
    int64_t t = 0;
    each_q[0] = each_k[0] = 0;
    for (int64_t d = 0; d < n_docs; d++)
        for (int64_t i = 0; i < n_new[d]; i++, t++) {
            const int64_t keys = c->length[seqs[d]] - n_new[d] + i + 1;
            each_q[t + 1] = each_q[t] + 1;
            each_k[t + 1] = each_k[t] + (int32_t)(keys < c->top ? keys : c->top);
        }
    for (; t < T; t++) { /* padding is no token */
        each_q[t + 1] = each_q[t];
        each_k[t + 1] = each_k[t];
    }
    c->each_q.shape[0] = c->each_k.shape[0] = T + 1;
    const size_t bytes = (size_t)(T + 1) * sizeof *each_q;
    AX_TRY(ax_queue_write(q, c->each_q.data, each_q, bytes));
    return ax_queue_write(q, c->each_k.data, each_k, bytes);
}

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
    if (c->n_index > 0)
        AX_TRY(list_tokens(c, q, T, n_docs, seqs, n_new));
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
    if (a->chosen.data) {
        a->cu_q = c->each_q;
        a->cu_k = c->each_k;
        a->block_table = a->chosen;
        a->chosen = (struct ax_tensor){0};
        a->block_size = 1;
        a->max_q = 1;
        a->max_k = c->top;
        return;
    }
    a->cu_k = chunked ? k->cu_k : c->cu_k;
    a->block_table = chunked ? k->table : c->block_table;
    a->block_size = chunked ? k->block : BLOCK;
    a->max_k = chunked && k->size < c->cap ? k->size : c->cap;
    if (!chunked)
        return;
    a->cu_q = k->cu_q;
    a->max_q = a->max_q < k->size ? a->max_q : k->size;
}

enum ax_status ax_kvcache_index(struct ax_kvcache *c, struct ax_queue *q, int nth,
                                struct ax_top_keys *t) {
    const struct ax_tensor rows = ax_tensor_rows(&c->rows, 0, t->k.shape[0]);
    AX_TRY(ax_run_scatter_rows(q, &(struct ax_scatter_rows){c->index[nth], t->k, rows}));
    t->k = c->index[nth];
    t->cu_k = c->cu_k;
    t->block_table = c->block_table;
    t->block_size = BLOCK;
    t->max_k = c->cap;
    return AX_OK;
}
