#include "model/core/kvchunks.h"

#include "base/mem.h"

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

/* n tokens of a sequence are of at most 2 + n / size chunks, and of no more than n. */
static int64_t most_chunks(int64_t size, int64_t n_seqs, int64_t T) {
    return least(T, 2 * n_seqs + T / size);
}

enum ax_status ax_kv_chunks_create(struct ax_kv_chunks *c, struct ax_stack *stack, int64_t size,
                                   int64_t whole, int64_t n_seqs, int64_t longest, int64_t T) {
    *c = (struct ax_kv_chunks){.size = size, .whole = whole};
    if (size == 0)
        return AX_OK;
    c->block = common_divisor(whole, size);
    c->cap = most_chunks(size, n_seqs, T);
    c->columns = (least(size, longest) + c->block - 1) / c->block;
    const size_t n = (size_t)(c->cap * c->columns + 2 * (c->cap + 1));
    int32_t AX_DEVICE *ints = ax_stack_push(stack, "kv cache index", n * sizeof *ints);
    c->table = ax_tensor_2d(AX_I32, ints, c->cap, c->columns);
    c->cu_q = ax_tensor_1d(AX_I32, ints + c->cap * c->columns, c->cap + 1);
    c->cu_k = ax_tensor_1d(AX_I32, ints + c->cap * c->columns + c->cap + 1, c->cap + 1);
    return ax_alloc(&c->host, n, sizeof *c->host);
}

void ax_kv_chunks_free(struct ax_kv_chunks *c) {
    ax_free(c->host);
    *c = (struct ax_kv_chunks){0};
}

static int32_t *host_q(const struct ax_kv_chunks *c) {
    return c->host + c->cap * c->columns;
}
static int32_t *host_k(const struct ax_kv_chunks *c) {
    return host_q(c) + c->cap + 1;
}

void ax_kv_chunks_begin(struct ax_kv_chunks *c) {
    c->n = 0;
}

void ax_kv_chunks_add(struct ax_kv_chunks *c, const int32_t *blocks, int64_t from, int64_t end) {
    if (c->size == 0)
        return;
    const int64_t per = c->whole / c->block;
    for (int64_t first = from / c->size * c->size; first < end; first += c->size) {
        const int64_t to = least(end, first + c->size), begin = first > from ? first : from;
        int32_t *row = c->host + c->n * c->columns;
        AX_ASSERT(c->n < c->cap);
        for (int64_t at = first; at < to; at += c->block)
            *row++ = blocks[at / c->whole] * (int32_t)per + (int32_t)(at % c->whole / c->block);
        host_q(c)[c->n + 1] = host_q(c)[c->n] + (int32_t)(to - begin);
        host_k(c)[c->n + 1] = host_k(c)[c->n] + (int32_t)(to - first);
        c->n++;
    }
}

enum ax_status ax_kv_chunks_send(struct ax_kv_chunks *c, struct ax_queue *q, bool planning) {
    if (c->size == 0)
        return AX_OK;
    c->n = planning ? c->cap : c->n;
    c->table.shape[0] = c->n;
    c->cu_q.shape[0] = c->cu_k.shape[0] = c->n + 1;
    AX_TRY(ax_queue_write(q, c->table.data, c->host, ax_tensor_bytes(&c->table)));
    AX_TRY(ax_queue_write(q, c->cu_q.data, host_q(c), ax_tensor_bytes(&c->cu_q)));
    return ax_queue_write(q, c->cu_k.data, host_k(c), ax_tensor_bytes(&c->cu_k));
}
