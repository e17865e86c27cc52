/* Context parallelism: the only file in model/ that knows the role cp.
 *
 * Each rank has a contiguous range of the sequence's tokens (model/batch.h) and attends from it to
 * the keys and values of the full sequence, which are gathered before attention (Llama 3, Dubey et
 * al. 2024) and whose gradients are reduce-scattered afterwards. A group of one copies nothing. */
#ifndef AX_MODEL_CONTEXT_PARALLEL_H
#define AX_MODEL_CONTEXT_PARALLEL_H

#include "parallel/runtime.h"

/* all [cp·T][H][hd] (scratch) from own [T][H][hd] (any row stride). */
enum ax_status ax_cp_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                            struct ax_tensor *all);
/* Scratch for the gradient of ax_cp_gather's result. */
struct ax_tensor ax_cp_partial(struct ax_runtime *rt, const struct ax_tensor *own);
/* own = this rank's rows of Σ partial. */
enum ax_status ax_cp_reduce(struct ax_runtime *rt, const struct ax_tensor *partial,
                            const struct ax_tensor *own);
/* t = Σ over the ranks, in place (t dense). */
enum ax_status ax_cp_sum(struct ax_runtime *rt, const struct ax_tensor *t);
/* True on the one rank that adds what must be added once. */
bool ax_cp_adds(const struct ax_runtime *rt);

#endif
