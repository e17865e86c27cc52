/* Documents of a batch that begin with the same tokens: the first one has them, the others go on from
 * there. A layer then computes the shared tokens once; only attention sees them several times:
 *
 *   keys[n_keys]       row of the batch of each key, document by document: those that document d
 *                      shares, then its own; document d's are [cu_k[d], cu_k[d + 1])
 *   users[T][most]     the places in `keys` that a row has; −1 for none
 *
 * So queries attend to the same numbers in the same order as alone, and get the same bits; the
 * gradient of a shared key is the sum over the documents, in order.
 *
 * Not with context parallelism, and not where a token's result depends on more than the tokens
 * before it: dropout, noise, a loss of the routers. */
#ifndef AX_MODEL_CORE_SHARED_PREFIX_H
#define AX_MODEL_CORE_SHARED_PREFIX_H

#include "data/records/pipeline/sequence.h"
#include "parallel/runtime.h"

struct ax_shared_prefix {
    int64_t most; /* documents that begin alike, at most; 0: the batch has no memory for this */
    int64_t cap;  /* of keys */
    bool any;     /* documents of the batch as it is filled begin alike */
    struct ax_tensor keys, users, cu_k;
};

/* For batches of T tokens and n_cap documents, with at most n_keys keys. */
void ax_shared_prefix_allocate(struct ax_shared_prefix *s, struct ax_stack *stack, int64_t T,
                               int64_t n_cap, int64_t n_keys, int64_t most);
/* While planning: all that there is room for. */
void ax_shared_prefix_plan(struct ax_shared_prefix *s, int64_t T);
/* Of T rows and n documents, document d from row first[d] on; n_docs: of cu_seqlens, which repeats
 * its end. AX_ERR_DATA if the keys do not fit. */
enum ax_status ax_shared_prefix_fill(struct ax_shared_prefix *s, struct ax_queue *q, int64_t T,
                                     int64_t n_docs, int64_t n, const struct ax_document *docs,
                                     const int32_t *first);

/* own [T][H][hd] as keys [n_keys][H][hd], in scratch, or own itself if no documents begin alike. */
enum ax_status ax_shared_prefix_gather(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                       const struct ax_tensor *own, struct ax_tensor *keys);
/* Where the gradient of keys goes, and then from there into own, which is overwritten. */
struct ax_tensor ax_shared_prefix_gradient(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                           const struct ax_tensor *own);
enum ax_status ax_shared_prefix_sum(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                    const struct ax_tensor *keys, const struct ax_tensor *own);

#endif
