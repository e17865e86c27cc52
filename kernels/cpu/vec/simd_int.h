/* Integers to match simd.h's floats: as many 32-bit lanes as a register of floats has; halves and
 * bytes widened to them, and lookups in small tables. */
#ifndef AX_KERNELS_CPU_VEC_SIMD_INT_H
#define AX_KERNELS_CPU_VEC_SIMD_INT_H

#include "kernels/cpu/vec/simd.h"

#ifdef __AVX512F__

typedef __m512i v_int;

AX_INLINE v_int v_set_int(uint32_t x) {
    return _mm512_set1_epi32((int)x);
}
AX_INLINE v_int v_add(v_int a, v_int b) {
    return _mm512_add_epi32(a, b);
}
AX_INLINE v_int v_sub(v_int a, v_int b) {
    return _mm512_sub_epi32(a, b);
}
AX_INLINE v_int v_and(v_int a, v_int b) {
    return _mm512_and_si512(a, b);
}
AX_INLINE v_int v_or(v_int a, v_int b) {
    return _mm512_or_si512(a, b);
}
AX_INLINE v_int v_xor(v_int a, v_int b) {
    return _mm512_xor_si512(a, b);
}
#define v_shift_left(a, bits)  _mm512_slli_epi32(a, bits)
#define v_shift_right(a, bits) _mm512_srli_epi32(a, bits)

AX_INLINE v_int v_bits(v_float x) {
    return _mm512_castps_si512(x);
}
AX_INLINE v_float v_from_bits(v_int x) {
    return _mm512_castsi512_ps(x);
}
/* Float to integer, truncated; and back. */
AX_INLINE v_int v_truncate(v_float x) {
    return _mm512_cvttps_epi32(x);
}
AX_INLINE v_float v_to_float(v_int x) {
    return _mm512_cvtepi32_ps(x);
}

AX_INLINE v_int v_load_int(const uint32_t *p) {
    return _mm512_loadu_si512(p);
}
/* n ≤ AX_LANES halves or bytes; lanes beyond n are 0 and not accessed. */
AX_INLINE v_int v_load_u16(const uint16_t *p, int64_t n) {
    return _mm512_cvtepu16_epi32(n >= AX_LANES ? _mm256_loadu_si256((const void *)p)
                                               : _mm256_maskz_loadu_epi16(v_first(n), p));
}
AX_INLINE void v_store_u16(uint16_t *p, int64_t n, v_int x) {
    if (n >= AX_LANES)
        _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(x));
    else
        _mm256_mask_storeu_epi16(p, v_first(n), _mm512_cvtepi32_epi16(x));
}
AX_INLINE v_int v_load_u8(const uint8_t *p, int64_t n) {
    return _mm512_cvtepu8_epi32(n >= AX_LANES ? _mm_loadu_si128((const void *)p)
                                              : _mm_maskz_loadu_epi8(v_first(n), p));
}
AX_INLINE void v_store_u8(uint8_t *p, int64_t n, v_int x) {
    if (n >= AX_LANES)
        _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(x));
    else
        _mm_mask_storeu_epi8(p, v_first(n), _mm512_cvtepi32_epi8(x));
}

AX_INLINE v_float v_lookup(const float *table, v_int index) {
    return _mm512_i32gather_ps(index, table, 4);
}
/* Lookup in a table of 8 floats, kept in a register. */
typedef __m512 v_eight;
AX_INLINE v_eight v_eight_of(const float *table) {
    return _mm512_castps256_ps512(_mm256_loadu_ps(table));
}
AX_INLINE v_float v_pick(v_eight table, v_int index) {
    return _mm512_permutexvar_ps(index, table);
}

/* n + 1 in lanes where a ≥ b, else n. */
AX_INLINE v_int v_count(v_int n, v_float a, v_float b) {
    return _mm512_mask_add_epi32(n, _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ), n, _mm512_set1_epi32(1));
}
AX_INLINE bool v_any_less(v_float a, v_float b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ) != 0;
}
/* −1 in lanes that are negative numbers or −0, else 0. */
AX_INLINE v_int v_negative(v_float x) {
    return _mm512_srai_epi32(v_bits(x), 31);
}
AX_INLINE v_int v_is_nan(v_float x) {
    return _mm512_movm_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q));
}
/* b where the mask is −1, else a. */
AX_INLINE v_int v_choose(v_int mask, v_int a, v_int b) {
    return _mm512_mask_blend_epi32(_mm512_movepi32_mask(mask), a, b);
}

#elif defined(__AVX2__)

typedef __m256i v_int;

AX_INLINE v_int v_set_int(uint32_t x) {
    return _mm256_set1_epi32((int)x);
}
AX_INLINE v_int v_add(v_int a, v_int b) {
    return _mm256_add_epi32(a, b);
}
AX_INLINE v_int v_sub(v_int a, v_int b) {
    return _mm256_sub_epi32(a, b);
}
AX_INLINE v_int v_and(v_int a, v_int b) {
    return _mm256_and_si256(a, b);
}
AX_INLINE v_int v_or(v_int a, v_int b) {
    return _mm256_or_si256(a, b);
}
AX_INLINE v_int v_xor(v_int a, v_int b) {
    return _mm256_xor_si256(a, b);
}
#define v_shift_left(a, bits)  _mm256_slli_epi32(a, bits)
#define v_shift_right(a, bits) _mm256_srli_epi32(a, bits)

AX_INLINE v_int v_bits(v_float x) {
    return _mm256_castps_si256(x);
}
AX_INLINE v_float v_from_bits(v_int x) {
    return _mm256_castsi256_ps(x);
}
AX_INLINE v_int v_truncate(v_float x) {
    return _mm256_cvttps_epi32(x);
}
AX_INLINE v_float v_to_float(v_int x) {
    return _mm256_cvtepi32_ps(x);
}

AX_INLINE v_int v_load_int(const uint32_t *p) {
    return _mm256_loadu_si256((const void *)p);
}
AX_INLINE v_int v_load_u16(const uint16_t *p, int64_t n) {
    uint16_t all[AX_LANES] = {0};
    memcpy(all, p, (size_t)(n < AX_LANES ? n : AX_LANES) * sizeof(*p));
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)all));
}
AX_INLINE void v_store_u16(uint16_t *p, int64_t n, v_int x) {
    __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
    uint16_t all[AX_LANES];
    _mm_storeu_si128((void *)all, _mm_packus_epi32(_mm256_castsi256_si128(low),
                                                   _mm256_extracti128_si256(low, 1)));
    memcpy(p, all, (size_t)(n < AX_LANES ? n : AX_LANES) * sizeof(*p));
}
AX_INLINE v_int v_load_u8(const uint8_t *p, int64_t n) {
    uint8_t all[16] = {0};
    memcpy(all, p, (size_t)(n < AX_LANES ? n : AX_LANES));
    return _mm256_cvtepu8_epi32(_mm_loadu_si128((const void *)all));
}
/* Lanes hold 0 … 255. */
AX_INLINE void v_store_u8(uint8_t *p, int64_t n, v_int x) {
    __m128i halves = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    uint8_t all[16];
    _mm_storeu_si128((void *)all, _mm_packus_epi16(halves, halves));
    memcpy(p, all, (size_t)(n < AX_LANES ? n : AX_LANES));
}

AX_INLINE v_float v_lookup(const float *table, v_int index) {
    return _mm256_i32gather_ps(table, index, 4);
}
typedef __m256 v_eight;
AX_INLINE v_eight v_eight_of(const float *table) {
    return _mm256_loadu_ps(table);
}
AX_INLINE v_float v_pick(v_eight table, v_int index) {
    return _mm256_permutevar8x32_ps(table, index);
}

AX_INLINE v_int v_count(v_int n, v_float a, v_float b) {
    return _mm256_sub_epi32(n, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
}
AX_INLINE bool v_any_less(v_float a, v_float b) {
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)) != 0;
}
AX_INLINE v_int v_negative(v_float x) {
    return _mm256_srai_epi32(v_bits(x), 31);
}
AX_INLINE v_int v_is_nan(v_float x) {
    return _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
AX_INLINE v_int v_choose(v_int mask, v_int a, v_int b) {
    return _mm256_blendv_epi8(a, b, mask);
}

#endif

AX_INLINE v_float v_abs(v_float x) {
    return v_from_bits(v_and(v_bits(x), v_set_int(0x7fffffffu)));
}

#endif
