/* A small vector layer: as many floats as one register of the instruction set holds.
 *
 * Elements are read and written through v_load and v_store, which take the dtype (F32 or BF16) and
 * the number of active lanes, so a kernel is written once: as a function of (i, n) that is called
 * with n = AX_LANES for full vectors and with the remainder for the tail. The functions are inlined
 * and dtype and n are constants in the hot loop, so neither costs a branch there. A lane's result
 * does not depend on its position or on n: a tail gives the same bits as the middle of a vector.
 *
 * Every instruction set rounds to bf16 the same way (to nearest even, denormals kept, NaN stays
 * NaN). */
#ifndef AX_KERNELS_CPU_VEC_SIMD_H
#define AX_KERNELS_CPU_VEC_SIMD_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/dtype.h"

#define AX_INLINE static inline __attribute__((always_inline))

/* Calls function(dtype, …) with the dtype as a constant; function(b, a, …) for two. */
#define AX_BY_DTYPE(dtype, function, ...)                                                          \
    ((dtype) == AX_BF16 ? function(AX_BF16, __VA_ARGS__) : function(AX_F32, __VA_ARGS__))

#define AX_BY_DTYPES(a, b, function, ...)                                                          \
    ((a) == AX_BF16 ? AX_BY_DTYPE(b, function, AX_BF16, __VA_ARGS__)                               \
                    : AX_BY_DTYPE(b, function, AX_F32, __VA_ARGS__))

/* Calls function(…, i, n) for each vector of the elements 0 … len − 1. */
#define AX_EACH_VECTOR(len, function, ...)                                                         \
    do {                                                                                           \
        int64_t each_len = (len), each_i = 0;                                                      \
        for (; each_i + AX_LANES <= each_len; each_i += AX_LANES) {                                \
            function(__VA_ARGS__, each_i, AX_LANES);                                               \
        }                                                                                          \
        if (each_i < each_len) {                                                                   \
            function(__VA_ARGS__, each_i, each_len - each_i);                                      \
        }                                                                                          \
    } while (0)

#ifdef __AVX512F__

#define AX_LANES 16
typedef __m512 v_float;

AX_INLINE __mmask16 v_first(int64_t n) {
    return (__mmask16)((1u << n) - 1u);
}

AX_INLINE v_float v_set(float x) {
    return _mm512_set1_ps(x);
}

/* a·b + c and c − a·b, rounded once. */
AX_INLINE v_float v_fma(v_float a, v_float b, v_float c) {
    return _mm512_fmadd_ps(a, b, c);
}
AX_INLINE v_float v_fnma(v_float a, v_float b, v_float c) {
    return _mm512_fnmadd_ps(a, b, c);
}

/* b if either is NaN. */
AX_INLINE v_float v_max(v_float a, v_float b) {
    return _mm512_max_ps(a, b);
}
AX_INLINE v_float v_min(v_float a, v_float b) {
    return _mm512_min_ps(a, b);
}

AX_INLINE v_float v_sqrt(v_float x) {
    return _mm512_sqrt_ps(x);
}

/* x where a > b, else 0. */
AX_INLINE v_float v_above(v_float a, v_float b, v_float x) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), x);
}

/* x in the first n lanes, `fill` in the others. */
AX_INLINE v_float v_keep(int64_t n, v_float x, float fill) {
    return n >= AX_LANES ? x : _mm512_mask_blend_ps(v_first(n), _mm512_set1_ps(fill), x);
}

/* p·2^k for integer k, also if the result is denormal or overflows. */
AX_INLINE v_float v_scale(v_float p, v_float k) {
    return _mm512_scalef_ps(p, k);
}

AX_INLINE v_float v_load_f32(const float *p, int64_t n) {
    return n >= AX_LANES ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(v_first(n), p);
}

AX_INLINE void v_store_f32(float *p, int64_t n, v_float x) {
    if (n >= AX_LANES)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, v_first(n), x);
}

/* Lanes rounded to bf16. The instruction flushes denormals to zero, so those take a slower path. */
AX_INLINE __m256i v_to_bf16(v_float x) {
#ifdef __AVX512BF16__
    if (__builtin_expect(_mm512_fpclass_ps_mask(x, 0x20) == 0, 1))
        return (__m256i)_mm512_cvtneps_pbh(x);
#endif
    __m512i bits = _mm512_castps_si512(x), half = _mm512_set1_epi32(0x7fff);
    __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
    __m512i up =
        _mm512_add_epi32(bits, _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i rounded = _mm512_mask_or_epi32(up, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

AX_INLINE v_float v_from_bf16(__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

AX_INLINE v_float v_load_bf16(const uint16_t *p, int64_t n) {
    return v_from_bf16(n >= AX_LANES ? _mm256_loadu_si256((const void *)p)
                                     : _mm256_maskz_loadu_epi16(v_first(n), p));
}

AX_INLINE void v_store_bf16(uint16_t *p, int64_t n, v_float x) {
    if (n >= AX_LANES)
        _mm256_storeu_si256((void *)p, v_to_bf16(x));
    else
        _mm256_mask_storeu_epi16(p, v_first(n), v_to_bf16(x));
}

/* Eight doubles each: the lower and the upper lanes. */
typedef __m512d v_double;
AX_INLINE v_double v_low(v_float x) {
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
AX_INLINE v_double v_high(v_float x) {
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
AX_INLINE v_double v_zero_double(void) {
    return _mm512_setzero_pd();
}
AX_INLINE double v_sum_double(v_double x) {
    __m256d four = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd(four, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

/* The largest lane; lanes may not be NaN. */
AX_INLINE float v_max_lane(v_float x) {
    return _mm512_reduce_max_ps(x);
}

/* Index of the first lane equal to value, or −1. */
AX_INLINE int v_find(v_float x, float value) {
    unsigned equal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(value), _CMP_EQ_OQ);
    return equal == 0 ? -1 : __builtin_ctz(equal);
}

/* Lanes 1 0 3 2 …; and 0 0 1 1 2 2 … of the lower half. */
AX_INLINE v_float v_swap(v_float x) {
    return _mm512_permute_ps(x, 0xb1);
}
AX_INLINE v_float v_twice(v_float x) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                 x);
}

#elif defined(__AVX2__)

#define AX_LANES 8
typedef __m256 v_float;

AX_INLINE __m256i v_first(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

AX_INLINE v_float v_set(float x) {
    return _mm256_set1_ps(x);
}

AX_INLINE v_float v_fma(v_float a, v_float b, v_float c) {
    return _mm256_fmadd_ps(a, b, c);
}
AX_INLINE v_float v_fnma(v_float a, v_float b, v_float c) {
    return _mm256_fnmadd_ps(a, b, c);
}

AX_INLINE v_float v_max(v_float a, v_float b) {
    return _mm256_max_ps(a, b);
}
AX_INLINE v_float v_min(v_float a, v_float b) {
    return _mm256_min_ps(a, b);
}

AX_INLINE v_float v_sqrt(v_float x) {
    return _mm256_sqrt_ps(x);
}

AX_INLINE v_float v_above(v_float a, v_float b, v_float x) {
    return _mm256_and_ps(x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}

AX_INLINE v_float v_keep(int64_t n, v_float x, float fill) {
    return n >= AX_LANES
               ? x
               : _mm256_blendv_ps(_mm256_set1_ps(fill), x, _mm256_castsi256_ps(v_first(n)));
}

/* Two steps, because 2^k alone may be denormal or overflow when p·2^k is or does not. */
AX_INLINE v_float v_scale(v_float p, v_float k) {
    __m256i whole = _mm256_cvtps_epi32(k);
    __m256i half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half);
    __m256i bias = _mm256_set1_epi32(127);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return p * a * b;
}

AX_INLINE v_float v_load_f32(const float *p, int64_t n) {
    return n >= AX_LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, v_first(n));
}

AX_INLINE void v_store_f32(float *p, int64_t n, v_float x) {
    if (n >= AX_LANES)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, v_first(n), x);
}

AX_INLINE __m128i v_to_bf16(v_float x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i wide = _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet, nan), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}

AX_INLINE v_float v_from_bf16(__m128i half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

AX_INLINE v_float v_load_bf16(const uint16_t *p, int64_t n) {
    if (n >= AX_LANES)
        return v_from_bf16(_mm_loadu_si128((const void *)p));
    uint16_t tail[AX_LANES] = {0};
    memcpy(tail, p, (size_t)n * sizeof(*p));
    return v_from_bf16(_mm_loadu_si128((const void *)tail));
}

AX_INLINE void v_store_bf16(uint16_t *p, int64_t n, v_float x) {
    if (n >= AX_LANES) {
        _mm_storeu_si128((void *)p, v_to_bf16(x));
    } else {
        uint16_t tail[AX_LANES];
        _mm_storeu_si128((void *)tail, v_to_bf16(x));
        memcpy(p, tail, (size_t)n * sizeof(*p));
    }
}

/* Four doubles each: the lower and the upper lanes. */
typedef __m256d v_double;
AX_INLINE v_double v_low(v_float x) {
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
AX_INLINE v_double v_high(v_float x) {
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
AX_INLINE v_double v_zero_double(void) {
    return _mm256_setzero_pd();
}
AX_INLINE double v_sum_double(v_double x) {
    __m128d two = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)));
}

AX_INLINE float v_max_lane(v_float x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

AX_INLINE int v_find(v_float x, float value) {
    __m256 same = _mm256_cmp_ps(x, _mm256_set1_ps(value), _CMP_EQ_OQ);
    unsigned equal = (unsigned)_mm256_movemask_ps(same);
    return equal == 0 ? -1 : __builtin_ctz(equal);
}

AX_INLINE v_float v_swap(v_float x) {
    return _mm256_permute_ps(x, 0xb1);
}
AX_INLINE v_float v_twice(v_float x) {
    return _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

#else
#include "kernels/cpu/vec/simd_neon.h"
#endif

/* Elements base[i] … base[i + n − 1], n ≤ AX_LANES; the other lanes are 0 and not accessed. */
AX_INLINE v_float v_load(enum ax_dtype dtype, const void *base, int64_t i, int64_t n) {
    return dtype == AX_BF16 ? v_load_bf16((const uint16_t *)base + i, n)
                            : v_load_f32((const float *)base + i, n);
}

AX_INLINE void v_store(enum ax_dtype dtype, void *base, int64_t i, int64_t n, v_float x) {
    if (dtype == AX_BF16)
        v_store_bf16((uint16_t *)base + i, n, x);
    else
        v_store_f32((float *)base + i, n, x);
}

/* x after a store and a load. */
AX_INLINE v_float v_round(enum ax_dtype dtype, v_float x) {
    return dtype == AX_BF16 ? v_from_bf16(v_to_bf16(x)) : x;
}

/* Sum of all lanes in double, in a fixed order. */
AX_INLINE double v_sum(v_float x) {
    return v_sum_double(v_low(x) + v_high(x));
}

AX_INLINE float v_lane0(v_float x) {
    return x[0];
}

/* sum + a·b, of floats or, with `pairs`, of two bf16 neighbors per float (if the instructions
 * exist): the step of every matrix product. `pairs` is a constant at every call. */
AX_INLINE v_float v_multiply_add(bool pairs, v_float a, v_float b, v_float sum) {
#ifdef __AVX512BF16__
    if (pairs) {
#ifdef __clang__
        __asm__("" : "+v"(a)); /* clang 16 crashes when it sees that a is a broadcast */
#endif
        return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }
#endif
    (void)pairs;
    return v_fma(a, b, sum);
}

/* x = k·ln 2 + r with an integer k and |r| ≤ ln 2 / 2; returns e^r − 1 by a polynomial of degree 6
 * fitted for least relative error of e^r (3e-9) on that interval. */
AX_INLINE v_float v_exp_rest(v_float x, v_float *integer) {
    v_float magic = v_set(0x1.8p23f); /* adding it rounds to integers */
    v_float k = v_fma(x, v_set(0x1.715476p0f), magic) - magic;
    v_float r = v_fnma(k, v_set(0x1.62e430p-1f), x); /* ln 2 in two parts */
    r = v_fnma(k, v_set(-0x1.05c610p-29f), r);
    v_float q = v_set(0x1.6a2434p-10f);
    q = v_fma(q, r, v_set(0x1.1239e2p-7f));
    q = v_fma(q, r, v_set(0x1.5558f2p-5f));
    q = v_fma(q, r, v_set(0x1.555492p-3f));
    q = v_fma(q, r, v_set(0x1.fffffcp-2f));
    *integer = k;
    return v_fma(q, r * r, r);
}

/* e^x to about 1 ulp for every float. Arguments beyond the bounds give 0 or inf. */
AX_INLINE v_float v_exp(v_float x) {
    v_float k, rest = v_exp_rest(v_min(v_set(89.0f), v_max(v_set(-105.0f), x)), &k);
    return v_scale(rest + v_set(1.0f), k);
}

/* tanh x = m / (m + 2) with m = e^2x − 1, which near 0 is the polynomial alone, to about 3 ulp. */
AX_INLINE v_float v_tanh(v_float x) {
    v_float k, one = v_set(1.0f);
    v_float rest = v_exp_rest(v_min(v_set(20.0f), v_max(v_set(-20.0f), x + x)), &k);
    v_float power = v_scale(one, k), m = v_fma(rest, power, power - one);
    return m / (m + v_set(2.0f));
}

/* e^x of one float, with v_exp's bits. */
AX_INLINE float exp_one(float x) {
    return v_lane0(v_exp(v_set(x)));
}

#endif
