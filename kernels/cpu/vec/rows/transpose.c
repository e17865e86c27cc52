/* transpose: a task has a square, whose rows fill cache lines on both sides; AX_LANES × AX_LANES of it at a time are
 * transposed in registers. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/gemm/gemm_pack.h" /* transpose */
#include "kernels/cpu/vec/rows/rowsum.h"

#define SIDE 64

/* Elements [row, row + rows) × [col, col + cols) of src, at most AX_LANES each. */
AX_INLINE void turn(enum ax_dtype to, enum ax_dtype from, const struct ax_transpose *a, int64_t row,
                    int64_t rows, int64_t col, int64_t cols) {
    const v_float alpha = v_set((float)a->alpha);
    v_float x[AX_LANES];
    for (int64_t i = 0; i < AX_LANES; i++)
        x[i] = i < rows ? v_load(from, ax_tensor_row(&a->src, row + i), col, cols) : v_set(0);
    transpose(x);
    for (int64_t i = 0; i < cols; i++) {
        void *at = ax_tensor_row(&a->dst, col + i);
        v_float y = alpha * x[i];
        if (a->accumulate)
            y = v_fma(alpha, x[i], v_load(to, at, row, rows));
        v_store(to, at, row, rows, y);
    }
}

AX_INLINE void turn_square(enum ax_dtype from, enum ax_dtype to, const struct ax_transpose *a,
                           int64_t row, int64_t col) {
    const int64_t end = least(a->src.shape[0], row + SIDE),
                  last = least(a->src.shape[1], col + SIDE);
    for (int64_t c = col; c < last; c += AX_LANES)
        for (int64_t r = row; r < end; r += AX_LANES)
            turn(to, from, a, r, least(AX_LANES, end - r), c, least(AX_LANES, last - c));
}

enum ax_status AX_VEC(ax_cpu_transpose)(struct ax_queue *q, const struct ax_transpose *a,
                                        void *work) {
    const int64_t rows = a->src.shape[0], cols = a->src.shape[1];
    const int64_t down = (rows + SIDE - 1) / SIDE, across = (cols + SIDE - 1) / SIDE;
    (void)work;
    AX_PARALLEL_FOR (team(q, rows * cols), i, down * across) {
        const int64_t row = i / across * SIDE, col = i % across * SIDE;
        AX_BY_DTYPES(a->dst.dtype, a->src.dtype, turn_square, a, row, col);
    }
    return AX_OK;
}
