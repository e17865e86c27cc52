/* Reading operands of the GEMM a vector of units at a time, and the transposition of LANES of them;
 * for packing, in whatever layout. */
#ifndef AX_KERNELS_CPU_VEC_GEMM_GEMM_PACK_H
#define AX_KERNELS_CPU_VEC_GEMM_GEMM_PACK_H

#include "kernels/cpu/vec/gemm/gemm.h"

/* Rows become lanes. */
#ifdef __AVX512F__

AX_INLINE void transpose(v_float x[AX_LANES]) {
    __m512 t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* x[i + j]: units j, j + 4, … of rows i … i + 3 */
        x[i] = _mm512_castpd_ps(
            _mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        x[i + 1] = _mm512_castpd_ps(
            _mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[i + 2])));
        x[i + 2] = _mm512_castpd_ps(
            _mm512_unpacklo_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
        x[i + 3] = _mm512_castpd_ps(
            _mm512_unpackhi_pd(_mm512_castps_pd(t[i + 1]), _mm512_castps_pd(t[i + 3])));
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_f32x4(x[j], x[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_f32x4(x[j], x[4 + j], 0xdd);
        t[8 + j] = _mm512_shuffle_f32x4(x[8 + j], x[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_f32x4(x[8 + j], x[12 + j], 0xdd);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        x[j] = _mm512_shuffle_f32x4(t[j], t[8 + j], 0x88);
        x[8 + j] = _mm512_shuffle_f32x4(t[j], t[8 + j], 0xdd);
        x[4 + j] = _mm512_shuffle_f32x4(t[4 + j], t[12 + j], 0x88);
        x[12 + j] = _mm512_shuffle_f32x4(t[4 + j], t[12 + j], 0xdd);
    }
}

#elif !defined(__AVX2__)

AX_INLINE void transpose(v_float x[AX_LANES]) {
    const v_float a = v_zip_low(x[0], x[1]), b = v_zip_high(x[0], x[1]);
    const v_float c = v_zip_low(x[2], x[3]), d = v_zip_high(x[2], x[3]);
    x[0] = v_low_halves(a, c);
    x[1] = v_high_halves(a, c);
    x[2] = v_low_halves(b, d);
    x[3] = v_high_halves(b, d);
}

#else

AX_INLINE void transpose(v_float x[AX_LANES]) {
    __m256 t[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* x[i + j]: units j, j + 4 of rows i … i + 3 */
        x[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        x[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        x[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        x[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
        t[j] = _mm256_permute2f128_ps(x[j], x[4 + j], 0x20);
        t[4 + j] = _mm256_permute2f128_ps(x[j], x[4 + j], 0x31);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; j++)
        x[j] = t[j];
}

#endif

/* AX_LANES units from `n` ≥ 1 elements along k; zeros beyond. */
AX_INLINE v_float load_along_k(enum ax_dtype dtype, const void *p, int64_t n) {
#ifdef __AVX512BF16__
    if (dtype == AX_BF16) {
        return _mm512_castsi512_ps(n >= 32
                                       ? _mm512_loadu_si512(p)
                                       : _mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), p));
    }
#endif
    return v_load(dtype, p, 0, n);
}

/* n ≤ AX_LANES neighbors of one unit; p: those of its first k, q: of its second (pairs; NULL: none).
 */
AX_INLINE v_float load_across_k(enum ax_dtype dtype, const void *p, const void *q, int64_t n) {
#ifdef __AVX512BF16__
    if (dtype == AX_BF16) {
        __m512i even = _mm512_castps_si512(v_load_bf16(p, n));
        __m512i odd = q != NULL ? _mm512_castps_si512(v_load_bf16(q, n)) : _mm512_setzero_si512();
        return _mm512_castsi512_ps(_mm512_or_si512(_mm512_srli_epi32(even, 16), odd));
    }
#endif
    (void)q;
    return v_load(dtype, p, 0, n);
}

AX_INLINE int64_t k_per_unit(enum ax_dtype dtype) {
    return ax_gemm_pairs(dtype) ? 2 : 1;
}
AX_INLINE int64_t element_size(enum ax_dtype dtype) {
    return dtype == AX_F32 ? 4 : 2;
}

#endif
