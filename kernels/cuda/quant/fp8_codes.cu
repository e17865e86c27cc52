/* fp8_codes: operands of products of 8-bit floats. Reads x once, by tiles of 64 × 64, of which each thread has 4 × 4
 * numbers: a word of codes of each row goes to `rows`, and a word of each column through shared memory to
 * `columns`. Where each row has a scale, a block has a row, and reads it twice if it looks for the scale. */
#include "kernels/cuda/quant/quant.cuh"

#define TILE   64
#define SIDE   4             /* rows and columns of a thread */
#define ACROSS (TILE / SIDE) /* threads, and words of codes, of a row */

/* Codes of two numbers that are divided already, the first in the low byte, with ax_fp8_code's bits. */
template <bool e5m2> __device__ static inline uint32_t code_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t pair;
    if (e5m2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
#else
    ax_quant_block one = {};
    one.scale = 1;
    const enum ax_quant kind = e5m2 ? AX_QUANT_E5M2 : AX_QUANT_FP8;
    return ax_fp8_code(kind, low, &one) | ax_fp8_code(kind, high, &one) << 8;
#endif
}

/* What numbers are divided by. */
struct divisor {
    float scale, inverse;
};
template <bool e5m2> __device__ static inline divisor divisor_of(float less, float more) {
    const float scale =
        ax_quant_block_of(e5m2 ? AX_QUANT_E5M2 : AX_QUANT_FP8, -less, more, 0).scale;
    return {scale, 1 / scale};
}

/* v/scale, rounded once, without a division for each number: two corrections by the exact remainder (Markstein 1990),
 * since v times the rounded inverse is up to two last places off. Infinite and NaN quotients stay, zeros keep their
 * sign, and of an infinite scale, whose corrections are NaN, the first quotient is right. */
__device__ static inline float divided(float v, divisor by) {
    const float near = v * by.inverse;
    float q = fmaf(fmaf(-by.scale, near, v), by.inverse, near);
    q = fmaf(fmaf(-by.scale, q, v), by.inverse, q);
    return fabsf(near) < 0x1p100f && q == q ? copysignf(q, v) : near;
}

/* Four codes, the first in the lowest byte. */
template <bool e5m2>
__device__ static inline uint32_t code_word(const four &v, const divisor (&by)[4]) {
    return code_pair<e5m2>(divided(v.x[0], by[0]), divided(v.x[1], by[1])) |
           code_pair<e5m2>(divided(v.x[2], by[2]), divided(v.x[3], by[3])) << 16;
}

__device__ static inline uint32_t byte_of(uint32_t word, int i) {
    return word >> 8 * i & 255u;
}

struct code_outputs {
    uint8_t *rows, *columns; /* or NULL */
    int64_t column;          /* codes of a column, with the zeros after x's */
    float *scale;
};

/* by_column: each column has a scale. */
template <class E, bool e5m2, bool by_column>
__global__ void __launch_bounds__(QUANT_THREADS)
    fp8_code_tiles(rows_of<const E> x, int64_t rows, int64_t cols, const float *range,
                   code_outputs out) {
    AX_SHARED(uint32_t, column, [TILE][ACROSS + 1]); /* words of rows' codes */
    AX_SHARED(divisor, of_column, [by_column ? TILE : 1]);
    const unsigned tiles = (unsigned)((cols + TILE - 1) / TILE); /* of a row */
    const int64_t row = (int64_t)(blockIdx.x / tiles) * TILE;
    const int64_t col = (int64_t)(blockIdx.x % tiles) * TILE;
    const int down = threadIdx.x / ACROSS * SIDE, right = threadIdx.x % ACROSS * SIDE;
    const enum ax_dtype dtype = sizeof(E) == 2 ? AX_BF16 : AX_F32;
    const int64_t own = col + threadIdx.x; /* a column whose scale this thread finds */
    divisor by[SIDE];
    raw_four v[SIDE] = {};
    uint32_t word[SIDE];
    if (by_column && threadIdx.x < TILE && own < cols) {
        of_column[threadIdx.x] = divisor_of<e5m2>(range[2 * own], range[2 * own + 1]);
        if (row == 0)
            out.scale[own] = of_column[threadIdx.x].scale;
    }
    if (by_column)
        __syncthreads();
    AX_UNROLL
    for (int j = 0; j < SIDE; j++)
        by[j] = by_column ? of_column[right + j] : divisor_of<e5m2>(range[0], range[1]);
    if (!by_column && blockIdx.x == 0 && threadIdx.x == 0)
        *out.scale = by[0].scale;
    AX_UNROLL
    for (int i = 0; i < SIDE; i++)
        if (row + down + i < rows)
            v[i] = load_raw(dtype, &x.at(row + down + i, 0), col + right, cols);
    AX_UNROLL
    for (int i = 0; i < SIDE; i++)
        word[i] = code_word<e5m2>(values_of(dtype, v[i]), by);
    AX_UNROLL
    for (int i = 0; i < SIDE; i++)
        if (out.rows != nullptr && row + down + i < rows && col + right < cols)
            *(uint32_t *)(out.rows + (row + down + i) * cols + col + right) = word[i];
    if (out.columns == nullptr)
        return;
    AX_UNROLL
    for (int j = 0; j < SIDE; j++)
        column[right + j][down / SIDE] = byte_of(word[0], j) | byte_of(word[1], j) << 8 |
                                         byte_of(word[2], j) << 16 | byte_of(word[3], j) << 24;
    __syncthreads();
    const int at = threadIdx.x / 4, part = threadIdx.x % 4; /* a column, and 16 of its rows */
    const uint32_t *from = &column[at][4 * part];
    if (col + at < cols && row + 16 * part < out.column)
        *(uint4 *)(out.columns + (col + at) * out.column + row + 16 * part) = {from[0], from[1],
                                                                               from[2], from[3]};
}

/* A block per row, four neighbors at a time; range NULL: it is x's own. */
template <class E, bool e5m2>
__global__ void __launch_bounds__(QUANT_THREADS)
    fp8_code_rows(rows_of<const E> x, int64_t cols, const float *range, code_outputs out) {
    const enum ax_dtype dtype = sizeof(E) == 2 ? AX_BF16 : AX_F32;
    const int64_t row = blockIdx.x, first = 4 * (int64_t)threadIdx.x;
    float most = 0;
    for (int64_t c = first; c < cols && range == nullptr; c += 4 * QUANT_THREADS) {
        const four v = values_of(dtype, load_raw(dtype, &x.at(row, 0), c, cols));
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            most = fmaxf(most, fabsf(v.x[k]));
    }
    most = range == nullptr ? block_reduce<max_op>(most, 0.0f)
                            : ax_greater(range[2 * row], range[2 * row + 1]);
    const divisor by = divisor_of<e5m2>(most, most), four_by[4] = {by, by, by, by};
    if (threadIdx.x == 0)
        out.scale[row] = by.scale;
    for (int64_t c = first; c < cols; c += 4 * QUANT_THREADS) {
        const four v = values_of(dtype, load_raw(dtype, &x.at(row, 0), c, cols));
        *(uint32_t *)(out.rows + row * cols + c) = code_word<e5m2>(v, four_by);
    }
}

template <class E, bool e5m2>
static enum ax_status run_codes(struct ax_queue *q, const struct ax_fp8_codes *a) {
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    const code_outputs out = {(uint8_t *)a->rows.data, (uint8_t *)a->columns.data,
                              ax_fp8_round_up(rows), (float *)a->scale.data};
    const rows_of<const E> x = as_rows<const E>(&a->x);
    const float *range = (const float *)a->range.data;
    const unsigned tiles = blocks_of(rows > 0 ? rows : 1, TILE) * blocks_of(cols, TILE);
    if (ax_fp8_codes_by_row(a))
        return rows == 0 ? AX_OK
                         : AX_LAUNCH(q, (fp8_code_rows<E, e5m2>), (unsigned)rows, QUANT_THREADS, 0,
                                     x, cols, range, out);
    if (ax_fp8_codes_by_column(a))
        return AX_LAUNCH(q, (fp8_code_tiles<E, e5m2, true>), tiles, QUANT_THREADS, 0, x, rows, cols,
                         range, out);
    return AX_LAUNCH(q, (fp8_code_tiles<E, e5m2, false>), tiles, QUANT_THREADS, 0, x, rows, cols,
                     range, out);
}

extern "C" enum ax_status ax_cuda_fp8_codes(struct ax_queue *q, const struct ax_fp8_codes *a,
                                            void *work) {
    (void)work;
    return by_real(a->x.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        return a->kind == AX_QUANT_E5M2 ? run_codes<E, true>(q, a) : run_codes<E, false>(q, a);
    });
}
