/* Which tensors an op's arguments hold, by name: what cost counting, error texts and tests need to
 * handle all ops alike. A tensor whose data is NULL (an optional one left out) is not an operand of
 * that call. */
#ifndef AX_KERNELS_OPERANDS_H
#define AX_KERNELS_OPERANDS_H

#include "kernels/ops.h"

#define AX_MAX_OPERANDS 14

enum ax_operand_use { AX_OPERAND_IN = 1, AX_OPERAND_OUT = 2, AX_OPERAND_INOUT = 3 };

enum ax_operand_flag {
    AX_OPERAND_ROWS = 1,  /* row t of the results needs no other row of it: rows may run alone */
    AX_OPERAND_SOME = 2,  /* an output of which only some rows are written */
    AX_OPERAND_PANELS = 4 /* may be a weight in panels (kernels/panels.h) */
};

struct ax_operand {
    const char *name; /* NULL ends the list */
    size_t offset;    /* of the struct ax_tensor within the argument struct */
    /* OUT: overwritten. INOUT: read and written. An output that an `accumulate` flag makes both is
     * listed as OUT. */
    enum ax_operand_use use;
    unsigned flags;
};

/* Ends with a row whose name is NULL. */
const struct ax_operand *ax_op_operands(enum ax_op op);
struct ax_tensor *ax_operand_tensor(const struct ax_operand *operand, void *args);
size_t ax_op_args_size(enum ax_op op);

/* The first condition of the contract in kernels/ops.h that these arguments break (its text), or
 * NULL. Looks at shapes, dtypes and options, never at data. */
const char *ax_op_broken_rule(enum ax_op op, const void *args);

/* The product of group g of a grouped_gemm, which has rows: what a backend may run in its place. */
struct ax_gemm ax_grouped_gemm_of(const struct ax_grouped_gemm *a, int64_t group);

/* "a bfloat16 [4][576], b …" written to buf, cut to size, returned. */
const char *ax_op_describe(enum ax_op op, const void *args, char *buf, size_t size);

#endif
