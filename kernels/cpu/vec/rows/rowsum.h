/* Sums over rows (bias and norm weight gradients): rows are summed in blocks whose size depends
 * only on the number of rows; then the blocks' partial sums are added in order. So the result is
 * the same for any number of threads. */
#ifndef AX_KERNELS_CPU_VEC_ROWS_ROWSUM_H
#define AX_KERNELS_CPU_VEC_ROWS_ROWSUM_H

#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

#define MAX_BLOCKS     64
#define MIN_BLOCK_ROWS 16

/* Rows per block, and blocks. Block b's sums are row b of the workspace [count][cols] (F32). */
struct row_blocks {
    int64_t rows, count;
};

static inline struct row_blocks block_rows(int64_t rows) {
    const int64_t most = ceil_div(rows, MAX_BLOCKS);
    const int64_t per_block = most < MIN_BLOCK_ROWS ? MIN_BLOCK_ROWS : most;
    return (struct row_blocks){per_block, ceil_div(rows, per_block)};
}

/* Enough for this many rows or fewer. */
static inline size_t block_sums_bytes(int64_t rows, int64_t cols) {
    return (size_t)least(MAX_BLOCKS, ceil_div(rows, MIN_BLOCK_ROWS)) * (size_t)cols * sizeof(float);
}

AX_INLINE void add_blocks_vector(float *out, const float *sums, int64_t blocks, int64_t cols,
                                 int64_t i, int64_t n) {
    v_float total = v_load_f32(sums + i, n);
    for (int64_t b = 1; b < blocks; b++)
        total += v_load_f32(sums + b * cols + i, n);
    v_store_f32(out + i, n, v_load_f32(out + i, n) + total);
}

/* out[cols] += the sum of all blocks' sums. */
static inline void add_blocks(const struct ax_queue *q, float *out, const float *sums,
                              int64_t blocks, int64_t cols) {
    if (blocks == 0)
        return;
    int64_t tile = 16 * AX_LANES, tiles = ceil_div(cols, tile);
    AX_PARALLEL_FOR (team(q, blocks * cols), t, tiles) {
        int64_t first = t * tile;
        AX_EACH_VECTOR(least(tile, cols - first), add_blocks_vector, out + first, sums + first,
                       blocks, cols);
    }
}

#endif
