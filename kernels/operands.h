/* The tensors in an op's arguments, by name: what cost counting, error messages and tests need to
 * handle all ops alike. A tensor whose data is NULL (an omitted optional one) is not an operand of
 * that call. */
#ifndef AX_KERNELS_OPERANDS_H
#define AX_KERNELS_OPERANDS_H

#include "kernels/ops.h"

#define AX_MAX_OPERANDS 20

enum ax_operand_use { AX_OPERAND_IN = 1, AX_OPERAND_OUT = 2, AX_OPERAND_INOUT = 3 };

enum ax_operand_flag {
    AX_OPERAND_ROWS = 1,  /* row t of the results needs no other row of it: rows can be computed
                             separately */
    AX_OPERAND_SOME = 2,  /* an output with only some rows written */
    AX_OPERAND_PANELS = 4 /* may be a weight in panels (kernels/panels.h) */
};

struct ax_operand {
    const char *name; /* NULL ends the list */
    size_t offset;    /* offset of the struct ax_tensor within the argument struct */
    /* OUT: overwritten. INOUT: read and written. With an `accumulate` flag, OUT is also read. */
    enum ax_operand_use use;
    unsigned flags;
};

/* Ends with a row whose name is NULL. */
const struct ax_operand *ax_op_operands(enum ax_op op);
struct ax_tensor *ax_operand_tensor(const struct ax_operand *operand, void *args);
size_t ax_op_args_size(enum ax_op op);

/* The op's family, which is the name of its file in kernels/ops/: "gemm". */
void ax_op_family(enum ax_op op, char *out, size_t size);

/* The text of the first condition of the contract in kernels/ops.h that these arguments break, or
 * NULL. Reads shapes, dtypes and options, never data. */
const char *ax_op_broken_rule(enum ax_op op, const void *args);

/* The GEMM of group g of a grouped_gemm, which must have rows: what a backend may run instead. */
struct ax_gemm ax_grouped_gemm_of(const struct ax_grouped_gemm *a, int64_t group);
/* Whether groups are so large that a GPU computes one after the other faster than all in one launch: evenly
 * loaded, each has a tile of 128 × 256 for every multiprocessor. The same for y, dx and dW. */
bool ax_grouped_gemm_is_large(const struct ax_grouped_gemm *a);

/* "a bfloat16 [4][576], b …" in buf, truncated to size; returns buf. */
const char *ax_op_describe(enum ax_op op, const void *args, char *buf, size_t size);

#endif
