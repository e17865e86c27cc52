/* Weights in panels: the order in which products of few rows read a weight from beginning to end.
 *
 * A bf16 matrix [N][K] with N a multiple of 16 and K even, as [N/16][K/2][16][2]: for 16 rows at a
 * time, all their pairs of neighbors along k. It takes the same room as rows do, and whole panels
 * of it are a matrix of their own. gemm takes it as b with trans_b, embedding_forward as weight;
 * ax_op_broken_rule keeps it from all other ops. The numbers are the same and so are all results,
 * to the bit. */
#ifndef AX_KERNELS_PANELS_H
#define AX_KERNELS_PANELS_H

#include "kernels/tensor.h"

#define AX_PANEL_ROWS 16

/* Can the matrix be in panels? */
bool ax_panels_fit(const struct ax_tensor *t);

/* Puts rows, in host memory, into panels, in place. */
enum ax_status ax_panels_make(struct ax_tensor *t);

/* Element [row][col] of a matrix of `cols` columns. */
static inline int64_t ax_panels_at(int64_t cols, int64_t row, int64_t col) {
    const int64_t panel = row / AX_PANEL_ROWS * AX_PANEL_ROWS * cols;
    return panel + (col / 2 * AX_PANEL_ROWS + row % AX_PANEL_ROWS) * 2 + col % 2;
}

#endif
