/* Weights in panels: the order in which GEMMs of few rows read a weight sequentially.
 *
 * A bf16 matrix [N][K] with N a multiple of 16 and K even, stored as [N/16][K/2][16][2]: for 16
 * rows at a time, all pairs of neighbors along k. Panels take the same memory as rows, and a range
 * of panels is itself a matrix in panels. gemm takes it as b with trans_b, embedding_forward as
 * weight; ax_op_broken_rule rejects it for all other ops. Values, and all results, stay the same to
 * the bit. */
#ifndef AX_KERNELS_PANELS_H
#define AX_KERNELS_PANELS_H

#include "kernels/tensor.h"

struct ax_queue;

#define AX_PANEL_ROWS 16

/* True if the matrix can be stored in panels. */
bool ax_panels_fit(const struct ax_tensor *t);

/* True if it can, and the queue's backend multiplies with panels. */
bool ax_panels_wanted(const struct ax_queue *q, const struct ax_tensor *t);

/* Converts rows to panels, in place. Skipped on a meta queue. */
enum ax_status ax_panels_make(struct ax_queue *q, struct ax_tensor *t);

/* Element [row][col] of a matrix of `cols` columns. */
static inline int64_t ax_panels_at(int64_t cols, int64_t row, int64_t col) {
    const int64_t panel = row / AX_PANEL_ROWS * AX_PANEL_ROWS * cols;
    return panel + (col / 2 * AX_PANEL_ROWS + row % AX_PANEL_ROWS) * 2 + col % 2;
}

#endif
