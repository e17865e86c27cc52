/* KV cache: keys and values of the tokens processed so far, per layer and sequence.
 *
 * Sequence s owns rows [s·cap, (s+1)·cap) of each layer's tensors: one block of the attention op's
 * block table. A pass with a cache appends the new tokens of each document of the batch to its
 * sequence and attends to all cached tokens. */
#ifndef AX_MODEL_KVCACHE_H
#define AX_MODEL_KVCACHE_H

#include "kernels/queue.h"

struct ax_kvcache {
    int64_t n_seqs, cap, n_layers;
    struct ax_tensor *k, *v; /* [n_layers] of compute [n_seqs·cap][Hk][key_dim], [..][value_dim] */
    int64_t *length;         /* [n_seqs], host: tokens in the cache */
    struct ax_tensor rows;   /* i32 [T]: where this pass's tokens are written */
    struct ax_tensor block_table; /* i32 [documents of this pass][1] */
    struct ax_tensor cu_k;        /* i32 [documents + 1]: Σ lengths, this pass's tokens included */
    int32_t *host;                /* staging for the three above */
    int64_t T;                    /* capacity of rows */
};

struct ax_kvcache_options {
    enum ax_dtype dtype;
    int64_t n_seqs, cap, n_layers, key_dim, value_dim;
    int64_t n_kv_heads; /* that this rank's queries attend to */
    int64_t T;          /* maximum tokens per pass */
};
/* Allocates the tensors from `stack`. */
enum ax_status ax_kvcache_create(struct ax_kvcache *c, struct ax_stack *stack,
                                 const struct ax_kvcache_options *o);
void ax_kvcache_free(struct ax_kvcache *c);
/* Before a pass of T tokens, those of n_docs documents and padding: n_new[d] tokens follow for
 * sequence seqs[d], in batch order. AX_ERR_DATA if full. */
enum ax_status ax_kvcache_advance(struct ax_kvcache *c, struct ax_queue *q, int64_t T,
                                  int64_t n_docs, const int32_t *seqs, const int64_t *n_new);
/* Makes sequence `to` the first n tokens of sequence `from`; both may be the same. */
enum ax_status ax_kvcache_fork(struct ax_kvcache *c, struct ax_queue *q, int64_t from, int64_t to,
                               int64_t n);

/* Per layer within a pass: writes k, v [T][Hk][…], then points attention at the cache. */
enum ax_status ax_kvcache_write(struct ax_kvcache *c, struct ax_queue *q, int layer,
                                const struct ax_tensor *k, const struct ax_tensor *v);
struct ax_attention;
void ax_kvcache_describe(const struct ax_kvcache *c, int layer, struct ax_attention *a);

#endif
