/* Context parallelism: the one place in model/ that knows the role cp.
 *
 * Each rank has a run of the row's tokens (model/batch.h) and attends from it to the keys
 * and values of the whole row, which are gathered before attention (Llama 3, Dubey et al. 2024) and
 * whose gradients are summed and cut into runs after it. In a group of one nothing is copied. */
#ifndef AX_MODEL_CONTEXT_PARALLEL_H
#define AX_MODEL_CONTEXT_PARALLEL_H

#include "parallel/runtime.h"

/* all [cp·T][H][hd] (scratch) from own [T][H][hd] (row stride free). */
enum ax_status ax_cp_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                            struct ax_tensor *all);
/* Scratch for the gradient of what ax_cp_gather gave. */
struct ax_tensor ax_cp_partial(struct ax_runtime *rt, const struct ax_tensor *own);
/* own = this rank's rows of Σ partial. */
enum ax_status ax_cp_reduce(struct ax_runtime *rt, const struct ax_tensor *partial,
                            const struct ax_tensor *own);
/* t = Σ over the ranks, in place (t dense). */
enum ax_status ax_cp_sum(struct ax_runtime *rt, const struct ax_tensor *t);
/* Is this the rank that adds what is added once? */
bool ax_cp_adds(const struct ax_runtime *rt);

#endif
