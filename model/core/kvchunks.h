/* What layers that attend within chunks of a document read of a KV cache: a pass's tokens of one chunk are a
 * document of their own, whose keys are those of the sequence from the chunk's first on. A block of its table has
 * gcd(whole, size) tokens, so that every chunk begins at one; it divides the cache's blocks. */
#ifndef AX_MODEL_CORE_KVCHUNKS_H
#define AX_MODEL_CORE_KVCHUNKS_H

#include "kernels/arena.h"
#include "kernels/queue.h"

struct ax_kv_chunks {
    int64_t size;                /* tokens of a chunk; 0: no layer attends within chunks */
    int64_t whole, block;        /* tokens of the cache's blocks, and of the table's */
    int64_t cap, columns, n;     /* documents of a pass, at most; blocks of one; those so far */
    struct ax_tensor cu_q, cu_k; /* i32 [documents + 1] */
    struct ax_tensor table;      /* i32 [documents][columns] */
    int32_t *host;               /* staging for the three above */
};

/* Allocates the tables for passes of T tokens of n_seqs sequences of at most `longest` tokens, in a cache with blocks
 * of `whole` tokens. Does nothing if size is 0. */
enum ax_status ax_kv_chunks_create(struct ax_kv_chunks *c, struct ax_stack *stack, int64_t size,
                                   int64_t whole, int64_t n_seqs, int64_t longest, int64_t T);
void ax_kv_chunks_free(struct ax_kv_chunks *c);
/* A pass: _begin, _add for each sequence's new tokens [from, end), with its blocks, and _send; `planning`: as many
 * documents as there can be. */
void ax_kv_chunks_begin(struct ax_kv_chunks *c);
void ax_kv_chunks_add(struct ax_kv_chunks *c, const int32_t *blocks, int64_t from, int64_t end);
enum ax_status ax_kv_chunks_send(struct ax_kv_chunks *c, struct ax_queue *q, bool planning);

#endif
