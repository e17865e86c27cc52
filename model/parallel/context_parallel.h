/* Context parallelism: with model/parts/attend.c, the only file in model/ that knows the role cp.
 *
 * Each rank has two runs of the sequence's tokens, one from its head and one from its tail
 * (model/core/batch.h), and attends from each to the keys and values of the full sequence, which are
 * gathered before attention (Llama 3, Dubey et al. 2024) and whose gradients are reduce-scattered
 * afterwards. Between ranks' order and the sequence's they are copied run by run. A group of one copies
 * nothing. */
#ifndef AX_MODEL_PARALLEL_CONTEXT_PARALLEL_H
#define AX_MODEL_PARALLEL_CONTEXT_PARALLEL_H

#include "parallel/runtime.h"

/* How queries meet the keys of other ranks: GATHER as described above, RING as in
 * model/parts/attend.c. AUTO gathers, unless a plan has chosen (optim/plan/choose.h). */
enum ax_cp_method { AX_CP_AUTO, AX_CP_GATHER, AX_CP_RING, AX_CP_METHODS };
const char *ax_cp_method_name(enum ax_cp_method method);
/* AX_ERR_CONFIG if a ring would have more than AX_REACH_RUNS / 2 ranks; names the nearest
 * choice. */
enum ax_status ax_cp_check(enum ax_cp_method method, const struct ax_mesh *mesh);

/* all [cp·T][H][hd] (scratch), in the sequence's order, from own [T][H][hd] (any row stride). */
enum ax_status ax_cp_gather(struct ax_runtime *rt, const struct ax_tensor *own,
                            struct ax_tensor *all);

/* Gradients of ax_cp_gather's results, summed over a rank's runs and then over ranks. */
struct ax_cp_gradient {
    struct ax_tensor own; /* this rank's rows of the sum */
    struct ax_tensor run; /* output of the op: gradients of all rows, from one run */
    /* the sum over the runs, in ranks' order; data NULL: there is one run, and nothing to sum */
    struct ax_tensor ranked;
};
/* Allocates the tensors in scratch. */
struct ax_cp_gradient ax_cp_gradient(struct ax_runtime *rt, const struct ax_tensor *own);
/* Adds the gradients in g->run, which came from another run of queries; `first`: from the first
 * one. */
enum ax_status ax_cp_add(struct ax_runtime *rt, const struct ax_cp_gradient *g, bool first);
/* own = this rank's rows of the sum over ranks. */
enum ax_status ax_cp_reduce(struct ax_runtime *rt, const struct ax_cp_gradient *g);
/* t = Σ over the ranks, in place (t dense). */
enum ax_status ax_cp_sum(struct ax_runtime *rt, const struct ax_tensor *t);
/* True on the one rank that adds what must be added once. */
bool ax_cp_adds(const struct ax_runtime *rt);

#endif
