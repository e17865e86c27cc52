/* A case: one op with arguments made up for a shape and a dtype, ready to run on any queue.
 *
 * The same (op, shape, dtype, seed) always gives the same bits, so one case run on two backends is
 * a comparison. Values are of order one. Everything an op must not write (its inputs, the gaps
 * between rows and between operands) can be checked afterwards: gaps hold NaN patterns, and outputs
 * do too before the op runs. */
#ifndef AX_KERNELS_CASES_H
#define AX_KERNELS_CASES_H

#include "kernels/queue.h"
#include "kernels/shapes.h"

struct ax_case {
    enum ax_op op;
    const struct ax_shape *shape;
    enum ax_dtype dtype; /* "real" of the contract: AX_F64, AX_F32 or AX_BF16 */
    void *args;          /* struct ax_<op> */
    char *memory;        /* all operands, and `scalars` */
    size_t bytes;
    struct ax_step_scalars *scalars;
};

/* AX_ERR_NOMEM only. */
enum ax_status ax_case_create(struct ax_case *c, enum ax_op op, const struct ax_shape *shape,
                              enum ax_dtype dtype, uint64_t seed);
/* Runs on q the forward whose results this op reads: out and lse of attention_backward. Nothing for
 * other ops. */
enum ax_status ax_case_prepare(const struct ax_case *c, struct ax_queue *q);
void ax_case_free(struct ax_case *c); /* safe on a zeroed one */

enum ax_status ax_case_run(const struct ax_case *c, struct ax_queue *q);
/* ax_run_<op>, the op given by number and its arguments untyped. */
enum ax_status ax_run_op(struct ax_queue *q, enum ax_op op, const void *args);

#endif
