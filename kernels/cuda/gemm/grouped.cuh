/* What grouped products share, by mma.sync (grouped.cu) and by wgmma (grouped_wgmma.cu). */
#ifndef AX_KERNELS_CUDA_GEMM_GROUPED_CUH
#define AX_KERNELS_CUDA_GEMM_GROUPED_CUH

#include "kernels/cuda/gemm/grouped.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/numbers.cuh"

/* What is computed: y = x·Wᵀ, dx = dy·W, dW += dyᵀ·x. */
enum form { Y, DX, DW };

/* The part of a tensor that a block multiplies, from `at` on: `rows` of `cols` elements. */
struct window {
    const bf16 *at;
    int stride, rows, cols;
};
struct grouped_args {
    const bf16 *a, *b, *bias;
    void *c;
    const int32_t *offsets;
    int groups;
    int width, cols;                  /* columns of a and of c */
    int stride_a, stride_b, stride_c; /* from a row to the next */
    int64_t matrix, bias_stride;      /* from a group's matrix, or biases, to the next */
    float alpha;
    bool accumulate; /* y or dx adds to what c has; dW always does */
};

/* Rows of a group: [first, end). */
struct place {
    int group, first, end;
};

/* Tile number `tile` of all groups' rows; group −1: there are not as many. All lanes of the warp. */
template <int Rows>
__device__ static inline place find_rows(const int32_t *offsets, int groups, int tile) {
    const int lane = threadIdx.x % 32;
    for (int base = 0; base < groups; base += 32) {
        const int from = offsets[min(base + lane, groups)],
                  to = offsets[min(base + lane + 1, groups)];
        const int own = (to - from + Rows - 1) / Rows;
        int upto = own; /* tiles of this lane's group and of those before it */
        for (int d = 1; d < 32; d *= 2) {
            const int others = __shfl_up_sync(0xffffffffu, upto, d);
            upto += lane >= d ? others : 0;
        }
        const unsigned beyond = __ballot_sync(0xffffffffu, tile < upto);
        if (beyond != 0) {
            const int holder = __ffs((int)beyond) - 1;
            const int first = from + (tile - (upto - own)) * Rows;
            return {base + holder, __shfl_sync(0xffffffffu, first, holder),
                    __shfl_sync(0xffffffffu, to, holder)};
        }
        tile -= __shfl_sync(0xffffffffu, upto, 31);
    }
    return {-1, 0, 0};
}

/* As many tiles as the rows of all groups can need: each group that is not empty may have one that is not
 * full. */
static int64_t most_row_tiles(int64_t rows, int64_t groups, int tile) {
    const int64_t begun = rows < groups ? rows : groups;
    return begun + (rows - begun) / tile;
}

/* ---- sums of a warp ---- */

/* Row 2·m + half of a thread, and the first column of its pair n, from the warp's `first` on. */
__device__ static inline int row_of(int first, int m, int half) {
    return first + 16 * m + 8 * half + (int)(threadIdx.x % 32 / 4);
}
__device__ static inline int col_of(int first, int n) {
    return first + 8 * n + 2 * (int)(threadIdx.x % 4);
}

/* Where alpha times sums are stored, or added: rows of c in bf16, from a tile's first one on, and their bias, which
 * may be NULL. */
struct result {
    bf16 *to;
    int stride, rows, cols;
    const bf16 *bias;
    float alpha;
    bool accumulate;
};

__device__ static inline result result_of(const grouped_args &a, const place &at) {
    return {(bf16 *)a.c + (int64_t)at.first * a.stride_c,
            a.stride_c,
            at.end - at.first,
            a.cols,
            a.bias == nullptr ? nullptr : a.bias + at.group * a.bias_stride,
            a.alpha,
            a.accumulate};
}

/* Stores 16·M rows and 8·Blocks columns from there on. */
template <int M, int Blocks>
__device__ static inline void store_sums(const float (&sums)[M][Blocks][4], const result &c,
                                         int row, int col) {
    float added[Blocks][2] = {};
    AX_UNROLL
    for (int i = 0; i < 2 * Blocks && c.bias != nullptr; i++)
        if (col_of(col, i / 2) < c.cols)
            added[i / 2][i % 2] = (float)c.bias[col_of(col, i / 2) + i % 2];
    AX_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        const int r = row_of(row, i / 2, i % 2);
        if (r >= c.rows)
            continue;
        bf16 *const at = c.to + (int64_t)r * c.stride;
        uint32_t old[Blocks] = {}; /* all reads are on their way before any is written */
        AX_UNROLL
        for (int n = 0; n < Blocks && c.accumulate; n++)
            if (col_of(col, n) < c.cols)
                old[n] = *(const uint32_t *)(at + col_of(col, n));
        AX_UNROLL
        for (int n = 0; n < Blocks; n++) {
            const float *const pair = sums[i / 2][n] + 2 * (i % 2);
            float2 was;
            bf16_pair_to_f32(old[n], was.x, was.y);
            if (col_of(col, n) < c.cols)
                *(uint32_t *)(at + col_of(col, n)) =
                    round_pair(c.alpha * pair[0] + added[n][0] + was.x,
                               c.alpha * pair[1] + added[n][1] + was.y);
        }
    }
}

/* ---- by wgmma ---- */

/* y and dx, where ax_cuda_has_wgmma. */
enum ax_status ax_grouped_wgmma(struct ax_queue *q, form of, const grouped_args &a, int64_t rows);

#endif
