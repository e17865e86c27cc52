/* KV cache: keys and values of the tokens processed so far, per layer and sequence.
 *
 * The cache is `n_blocks` blocks of AX_KV_BLOCK tokens, the blocks of the attention op's block table.
 * A sequence takes blocks as it grows and gives them back when it is shortened. Sequences that begin
 * alike share the full blocks of what they have in common; a block that one of them would write to is
 * copied first. A pass with a cache appends the new tokens of each document of the batch to its
 * sequence and attends to all cached tokens. Layers without keys and values have states (states.h). */
#ifndef AX_MODEL_CORE_KVCACHE_H
#define AX_MODEL_CORE_KVCACHE_H

#include "model/arch/kv_row.h"
#include "model/core/kvchunks.h"
#include "model/core/states.h"

#define AX_KV_BLOCK 16 /* tokens */

/* Blocks for n tokens of one sequence. */
static inline int64_t ax_kvcache_blocks(int64_t n) {
    return (n + AX_KV_BLOCK - 1) / AX_KV_BLOCK;
}

struct ax_kvcache {
    int64_t n_seqs, cap, n_layers; /* those that keep keys and values */
    int64_t columns;               /* blocks of a sequence of `cap` tokens */
    int64_t n_blocks, n_free;
    bool planning; /* all blocks are block 0 */
    struct ax_tensor *k,
        *v; /* [n_layers] of compute [n_blocks·AX_KV_BLOCK][Hk][key_dim], [..][value_dim] */
    bool values_in_keys;     /* v are the first elements of k */
    int64_t *length;         /* [n_seqs], host: tokens in the cache */
    int32_t *table;          /* [n_seqs][columns]: blocks of a sequence */
    int32_t *users;          /* [n_blocks]: how many sequences have each block that is not free */
    int32_t *free;           /* [n_blocks], the first n_free: blocks of no sequence */
    int64_t shared;          /* blocks shared with another sequence so far, in total */
    struct ax_tensor rows;   /* i32 [T]: where this pass's tokens are written */
    struct ax_tensor *index; /* [n_index] of compute [n_blocks·AX_KV_BLOCK][1][index_dim] */
    int64_t n_index, top;    /* layers that choose keys (indexer.h), and how many they choose */
    struct ax_tensor each_q,
        each_k;                   /* i32 [T + 1]: this pass's tokens as documents of one query, and
                                        Σ of the keys that they choose; only if there is an index */
    struct ax_tensor block_table; /* i32 [documents of this pass][columns] */
    struct ax_tensor cu_k;        /* i32 [documents + 1]: Σ lengths, this pass's tokens included */
    int32_t *host;                /* staging for those of i32 */
    int64_t T;                    /* capacity of rows */
    struct ax_kv_chunks chunks;
    struct ax_states states;
};

struct ax_kvcache_options {
    enum ax_dtype dtype;
    int64_t n_seqs, cap, n_layers;
    const struct ax_kv_row *rows; /* [n_layers]; borrowed by create */
    /* layers whose indexer chooses `top` keys, by keys of index_dim elements; 0: none */
    int64_t n_index, index_dim, top;
    int64_t n_state_layers; /* those that have states instead */
    struct ax_state_size state;
    int64_t n_blocks; /* at least the blocks of one sequence */
    int64_t T;        /* maximum tokens per pass */
    int64_t chunk;    /* tokens that some layers attend within, or 0 */
    bool planning;
};
/* Allocates the tensors from `stack`, keys and values as zeros where the backend reads whole
 * blocks. */
enum ax_status ax_kvcache_create(struct ax_kvcache *c, struct ax_stack *stack, struct ax_queue *q,
                                 const struct ax_kvcache_options *o);
void ax_kvcache_free(struct ax_kvcache *c);
/* How many free blocks a sequence needs for n more tokens. */
int64_t ax_kvcache_needs(const struct ax_kvcache *c, int64_t seq, int64_t n);
/* Before a pass of T tokens, those of n_docs documents and padding: n_new[d] tokens follow for
 * sequence seqs[d], in batch order. The blocks that they need must be free. AX_ERR_DATA if a sequence
 * is full. */
enum ax_status ax_kvcache_advance(struct ax_kvcache *c, struct ax_queue *q, int64_t T,
                                  int64_t n_docs, const int32_t *seqs, const int64_t *n_new);
/* The most tokens, of the first n of a sequence, with which another one, or itself, can go on: n, unless there
 * are states. */
int64_t ax_kvcache_place(const struct ax_kvcache *c, int64_t seq, int64_t n);
/* Makes sequence `to` the first n tokens of sequence `from`, such a place; both may be the same. Needs a free block
 * if n is not a multiple of AX_KV_BLOCK. */
enum ax_status ax_kvcache_fork(struct ax_kvcache *c, struct ax_queue *q, int64_t from, int64_t to,
                               int64_t n);
/* Makes the end of a sequence a place at which others can go on, also when it has grown. */
enum ax_status ax_kvcache_keep(struct ax_kvcache *c, struct ax_queue *q, int64_t seq);
/* Gives back the last block of a sequence that is not empty, with its tokens. */
void ax_kvcache_shorten(struct ax_kvcache *c, int64_t seq);
void ax_kvcache_clear(struct ax_kvcache *c); /* all sequences */

/* Per layer within a pass: writes k, v [T][Hk][…], or k alone if values are in keys, then points
 * attention at the cache, or, `chunked`, at the chunks' parts of it, with their queries. */
enum ax_status ax_kvcache_write(struct ax_kvcache *c, struct ax_queue *q, int layer,
                                const struct ax_tensor *k, const struct ax_tensor *v);
/* With `chosen`, which are rows of the cache, attention is of each token to its own. */
struct ax_attention;
void ax_kvcache_describe(const struct ax_kvcache *c, int layer, bool chunked,
                         struct ax_attention *a);
/* Writes t's keys [T][1][…] as those of the nth indexer, then points t at the cache. */
struct ax_top_keys;
enum ax_status ax_kvcache_index(struct ax_kvcache *c, struct ax_queue *q, int nth,
                                struct ax_top_keys *t);

#endif
