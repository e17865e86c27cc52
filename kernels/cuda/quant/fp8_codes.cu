/* fp8_codes: operands of products of 8-bit floats. Reads x once, by tiles of 64 × 64, of which each thread has 4 × 4
 * numbers: a word of codes of each row goes to `rows`, and a word of each column through shared memory to
 * `columns`. */
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

/* What all numbers are divided by. */
struct divisor {
    float scale, inverse;
};

/* v/scale, rounded once, without a division for each number: two corrections by the exact remainder (Markstein 1990),
 * since v times the rounded inverse is up to two last places off. Infinite and NaN quotients stay, and zeros keep
 * their sign. */
__device__ static inline float divided(float v, divisor by) {
    const float near = v * by.inverse;
    float q = fmaf(fmaf(-by.scale, near, v), by.inverse, near);
    q = fmaf(fmaf(-by.scale, q, v), by.inverse, q);
    return fabsf(near) < 0x1p100f ? copysignf(q, v) : near;
}

/* Four codes, the first in the lowest byte. */
template <bool e5m2> __device__ static inline uint32_t code_word(const four &v, divisor by) {
    return code_pair<e5m2>(divided(v.x[0], by), divided(v.x[1], by)) |
           code_pair<e5m2>(divided(v.x[2], by), divided(v.x[3], by)) << 16;
}

__device__ static inline uint32_t byte_of(uint32_t word, int i) {
    return word >> 8 * i & 255u;
}

struct code_outputs {
    uint8_t *rows, *columns; /* or NULL */
    int64_t column;          /* codes of a column, with the zeros after x's */
    float *scale;
};

template <class E, bool e5m2>
__global__ void __launch_bounds__(QUANT_THREADS)
    fp8_code_tiles(rows_of<const E> x, int64_t rows, int64_t cols, const float *range,
                   code_outputs out) {
    AX_SHARED(uint32_t, column, [TILE][ACROSS + 1]);             /* words of rows' codes */
    const unsigned tiles = (unsigned)((cols + TILE - 1) / TILE); /* of a row */
    const int64_t row = (int64_t)(blockIdx.x / tiles) * TILE;
    const int64_t col = (int64_t)(blockIdx.x % tiles) * TILE;
    const int down = threadIdx.x / ACROSS * SIDE, right = threadIdx.x % ACROSS * SIDE;
    const float scale =
        ax_quant_block_of(e5m2 ? AX_QUANT_E5M2 : AX_QUANT_FP8, -range[0], range[1], 0).scale;
    const divisor by = {scale, 1 / scale};
    const enum ax_dtype dtype = sizeof(E) == 2 ? AX_BF16 : AX_F32;
    raw_four v[SIDE] = {};
    uint32_t word[SIDE];
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *out.scale = scale;
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

extern "C" enum ax_status ax_cuda_fp8_codes(struct ax_queue *q, const struct ax_fp8_codes *a,
                                            void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    const code_outputs out = {(uint8_t *)a->rows.data, (uint8_t *)a->columns.data,
                              ax_fp8_round_up(rows), (float *)a->scale.data};
    const float *range = (const float *)a->range.data;
    const unsigned tiles = blocks_of(rows > 0 ? rows : 1, TILE) * blocks_of(cols, TILE);
    return by_real(a->x.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        if (a->kind == AX_QUANT_E5M2)
            return AX_LAUNCH(q, (fp8_code_tiles<E, true>), tiles, QUANT_THREADS, 0,
                             as_rows<const E>(&a->x), rows, cols, range, out);
        return AX_LAUNCH(q, (fp8_code_tiles<E, false>), tiles, QUANT_THREADS, 0,
                         as_rows<const E>(&a->x), rows, cols, range, out);
    });
}
