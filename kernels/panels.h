/* Weights in panels: the order in which GEMMs of few rows read a weight sequentially.
 *
 * A bf16 matrix [N][K] with N a multiple of 16 and K even, stored as [N/16][K/2][16][2]: for 16
 * rows at a time, all pairs of neighbors along k. Panels take the same memory as rows, and a range
 * of panels is itself a matrix in panels. gemm takes it as b with trans_b, embedding_forward as
 * weight; ax_op_broken_rule rejects it for all other ops. Values, and all results, stay the same to
 * the bit.
 *
 * The codes of a packed matrix [N][K] of NF4, INT8, INT4 or INT4X2 with N a multiple of 16 and blocks of a multiple
 * of 8 columns, likewise, for packed_gemm: codes of a byte in the order of the elements above; two codes
 * in a byte [N/16][K/8][32][4], of 8 columns four neighboring pairs: 32 words of 16 bits, for the elements
 * of a pair, each with the codes of pair 0, 1, 2, 3 from its lowest bits on; scales [N/16][K/block][16]. */
#ifndef AX_KERNELS_PANELS_H
#define AX_KERNELS_PANELS_H

#include "kernels/quant/scheme.h"

struct ax_queue;

#define AX_PANEL_ROWS 16

/* True if the matrix can be stored in panels. */
static inline bool ax_panels_fit(const struct ax_tensor *t) {
    return t->dtype == AX_BF16 && t->ndim == 2 && t->shape[0] % AX_PANEL_ROWS == 0 &&
           t->shape[1] % 2 == 0;
}

/* True if the matrix can be stored in panels and the queue's backend multiplies with panels. */
bool ax_panels_wanted(const struct ax_queue *q, const struct ax_tensor *t);

/* Converts rows to panels, in place. Skipped on a meta queue. */
enum ax_status ax_panels_make(struct ax_queue *q, struct ax_tensor *t);

/* Element [row][col] of a matrix of `cols` columns. */
static inline int64_t ax_panels_at(int64_t cols, int64_t row, int64_t col) {
    const int64_t panel = row / AX_PANEL_ROWS * AX_PANEL_ROWS * cols;
    return panel + (col / 2 * AX_PANEL_ROWS + row % AX_PANEL_ROWS) * 2 + col % 2;
}

/* The same for codes and scales of a matrix [N][K] without nested scales. */
struct ax_code_panels {
    struct ax_tensor codes, scale;
    int64_t rows, cols, block;
    enum ax_quant kind;
};
static inline bool ax_code_panels_fit(enum ax_quant kind, int64_t rows, int64_t cols,
                                      int64_t block) {
    const bool known =
        ax_quant_info(kind)->values || kind == AX_QUANT_INT8 || kind == AX_QUANT_INT4;
    return known && rows % AX_PANEL_ROWS == 0 && block > 0 && block % 8 == 0 && cols % block == 0;
}
bool ax_code_panels_wanted(const struct ax_queue *q, const struct ax_code_panels *p);
enum ax_status ax_code_panels_make(struct ax_queue *q, struct ax_code_panels *p);

/* Position of a 4-bit code, two in a byte: the byte · 2, plus 1 for its high half. */
static inline int64_t ax_panels_nibble_at(int64_t cols, int64_t row, int64_t col) {
    const int64_t group = row / AX_PANEL_ROWS * (cols / 8) + col / 8, r = row % AX_PANEL_ROWS;
    return (group * 2 * AX_PANEL_ROWS + 2 * r + col % 2) * 4 + col % 8 / 2;
}

static inline int64_t ax_panels_scale_at(int64_t cols, int64_t block, int64_t row, int64_t col) {
    const int64_t blocks = cols / block;
    return (row / AX_PANEL_ROWS * blocks + col / block) * AX_PANEL_ROWS + row % AX_PANEL_ROWS;
}

#endif
