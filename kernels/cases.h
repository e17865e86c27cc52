/* A case: one op with generated arguments for a shape and a dtype, ready to run on any queue.
 *
 * The same (op, shape, dtype, seed) always gives the same bits, so running one case on two backends
 * compares them. Values are of order one. Everything an op must not write (its inputs, the gaps
 * between rows and between operands) can be checked afterwards: gaps hold NaN patterns, and so do
 * outputs before the op runs. */
#ifndef AX_KERNELS_CASES_H
#define AX_KERNELS_CASES_H

#include "kernels/queue.h"
#include "kernels/shapes.h"

/* What an op may change beside its operands. */
struct ax_case_step {
    struct ax_step_scalars scalars;
    struct ax_step_measures measures;
};

struct ax_case {
    enum ax_op op;
    const struct ax_shape *shape;
    enum ax_dtype dtype; /* the compute dtype: AX_F64, AX_F32 or AX_BF16 */
    void *args;          /* struct ax_<op> */
    char *memory;        /* `step`, and all operands */
    size_t bytes;
    struct ax_case_step *step;
    char AX_DEVICE *sent; /* the device's copy of the memory; NULL: none */
};

/* AX_ERR_NOMEM only. */
enum ax_status ax_case_create(struct ax_case *c, enum ax_op op, const struct ax_shape *shape,
                              enum ax_dtype dtype, uint64_t seed);
/* Runs on q the forward op whose results this op reads: out and lse for attention_backward. A no-op
 * for other ops. */
enum ax_status ax_case_prepare(const struct ax_case *c, struct ax_queue *q);
void ax_case_free(struct ax_case *c); /* safe on a zeroed one */

/* Copies the memory to q's device, on top of q's scratch stack, and lets the arguments point there: from
 * here on the case runs on q alone. Where the device's memory is the host's it stays, and on a meta queue
 * only the stack grows. The caller releases the stack. */
enum ax_status ax_case_send(struct ax_case *c, struct ax_queue *q);
/* Copies it back when all that is enqueued is done: the results are in `memory`, and the arguments point there. */
enum ax_status ax_case_fetch(struct ax_case *c, struct ax_queue *q);

enum ax_status ax_case_run(const struct ax_case *c, struct ax_queue *q);
/* ax_run_<op> with the op given by number and untyped arguments. */
enum ax_status ax_run_op(struct ax_queue *q, enum ax_op op, const void *args);

#endif
