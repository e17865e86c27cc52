/* Documents of a batch that share a prefix: the first one has its tokens, the others only theirs
 * after it. A layer then computes the shared tokens once; only attention sees them several
 * times:
 *
 *   keys[n_keys]       row of the batch of each key, document by document: those of the prefix that
 *                      document d shares, then its own; document d's are [cu_k[d], cu_k[d + 1])
 *   users[T][most]     the places in `keys` that refer to each row; −1 for none
 *
 * So queries attend to the same numbers in the same order as without sharing, and get the same
 * bits; the gradient of a shared key is the sum over the documents, in order.
 *
 * Not with context parallelism, and not where a token's result depends on more than the tokens
 * before it: dropout, noise, a loss of the routers. */
#ifndef AX_MODEL_CORE_SHARED_PREFIX_H
#define AX_MODEL_CORE_SHARED_PREFIX_H

#include "data/records/pipeline/sequence.h"
#include "parallel/runtime.h"

struct ax_shared_prefix {
    /* the most documents that share a prefix; 0: the batch has no memory for sharing */
    int64_t most;
    int64_t cap; /* capacity: keys */
    bool any;    /* the batch contains documents that share a prefix */
    struct ax_tensor keys, users, cu_k;
};

/* For batches of T tokens and n_cap documents, with at most n_keys keys. */
void ax_shared_prefix_allocate(struct ax_shared_prefix *s, struct ax_stack *stack, int64_t T,
                               int64_t n_cap, int64_t n_keys, int64_t most);
/* While planning: as many keys as there is memory for. */
void ax_shared_prefix_plan(struct ax_shared_prefix *s, int64_t T);
/* Fills the tables for T rows and n documents, document d from row first[d] on; n_docs: number of
 * documents in cu_seqlens, which repeats its end. AX_ERR_DATA if the keys do not fit. */
enum ax_status ax_shared_prefix_fill(struct ax_shared_prefix *s, struct ax_queue *q, int64_t T,
                                     int64_t n_docs, int64_t n, const struct ax_document *docs,
                                     const int32_t *first);

/* *keys [n_keys][H][hd], in scratch, from own [T][H][hd]; own itself if no documents share a
 * prefix. */
enum ax_status ax_shared_prefix_gather(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                       const struct ax_tensor *own, struct ax_tensor *keys);
/* _gradient: a tensor for the gradient of keys. _sum: own = the sum of that gradient over the users
 * of each row. */
struct ax_tensor ax_shared_prefix_gradient(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                           const struct ax_tensor *own);
enum ax_status ax_shared_prefix_sum(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                    const struct ax_tensor *keys, const struct ax_tensor *own);

#endif
