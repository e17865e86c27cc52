/* Transposing matrices of floats, in squares of a vector's size. */
#ifndef AX_KERNELS_CPU_VEC_DELTA_TRANSPOSE_H
#define AX_KERNELS_CPU_VEC_DELTA_TRANSPOSE_H

#include "kernels/cpu/vec/simd.h"

/* Lanes of a and b in turn, a0 b0 a1 b1 …: those of the first halves, and of the second. */
AX_INLINE v_float zip_low(v_float a, v_float b) {
#ifdef __AVX512F__
    const __m512i lanes = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, lanes, b);
#elif defined(__AVX2__)
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
#else
    return vzip1q_f32(a, b);
#endif
}
AX_INLINE v_float zip_high(v_float a, v_float b) {
#ifdef __AVX512F__
    const __m512i lanes =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, lanes, b);
#elif defined(__AVX2__)
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
#else
    return vzip2q_f32(a, b);
#endif
}

/* A square: each round zips the rows of the first half with those of the second. */
AX_INLINE void transpose_square(const float *x, int64_t x_row, float *out, int64_t out_row) {
    v_float row[AX_LANES], next[AX_LANES];
    for (int i = 0; i < AX_LANES; i++)
        row[i] = v_load_f32(x + i * x_row, AX_LANES);
    for (int round = 1; round < AX_LANES; round *= 2) {
        for (int i = 0; i < AX_LANES / 2; i++) {
            next[2 * i] = zip_low(row[i], row[i + AX_LANES / 2]);
            next[2 * i + 1] = zip_high(row[i], row[i + AX_LANES / 2]);
        }
        for (int i = 0; i < AX_LANES; i++)
            row[i] = next[i];
    }
    for (int i = 0; i < AX_LANES; i++)
        v_store_f32(out + i * out_row, AX_LANES, row[i]);
}

/* out [cols][out_row] = x [rows][x_row] transposed. */
static inline void transpose(const float *x, int64_t x_row, int64_t rows, int64_t cols, float *out,
                             int64_t out_row) {
    const int64_t full_rows = rows / AX_LANES * AX_LANES, full_cols = cols / AX_LANES * AX_LANES;
    for (int64_t i = 0; i < full_rows; i += AX_LANES)
        for (int64_t j = 0; j < full_cols; j += AX_LANES)
            transpose_square(x + i * x_row + j, x_row, out + j * out_row + i, out_row);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i < full_rows ? full_cols : 0; j < cols; j++)
            out[j * out_row + i] = x[i * x_row + j];
}

#endif
