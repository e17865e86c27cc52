/* Codes in panels (kernels/panels.h) → pairs of their numbers in bf16, of 16 rows, without scales. Integers are
 * exact, so how they are made does not matter to the bits. */
#ifndef AX_KERNELS_CPU_VEC_QUANT_CODE_NUMBERS_H
#define AX_KERNELS_CPU_VEC_QUANT_CODE_NUMBERS_H

#include "kernels/cpu/vec/simd.h"

#ifdef __AVX512BF16__

/* ---- two in a byte: a look-up for a pair ---- */

typedef uint16_t v_words __attribute__((vector_size(64)));

/* The values of codes in bf16, twice: a look-up reads five bits, of which the highest is of the next code. */
AX_INLINE __m512i nibble_table(const float *values) {
    const v_float all = _mm512_loadu_ps(values);
    return (__m512i)_mm512_cvtne2ps_pbh(all, all);
}

/* Pair p of 8 columns at c. */
AX_INLINE __m512bh nibble_numbers(__m512i table, const unsigned char *c, int p) {
    const v_words words = (v_words)_mm512_loadu_si512((const void *)c) >> 4 * p;
    return (__m512bh)_mm512_permutexvar_epi16((__m512i)words, table);
}

/* ---- integers of a byte: conversion ---- */

AX_INLINE v_float sixteen(const unsigned char *c) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)c)));
}

/* The pair at c. */
AX_INLINE __m512bh converted_numbers(const unsigned char *c) {
    return _mm512_cvtne2ps_pbh(sixteen(c + 16), sixteen(c));
}

/* ---- or look-ups of bytes (AVX-512 VBMI): for two pairs one of the lower halves and one of the upper ones, and
 * for each pair one that joins them ---- */

/* Tables by m = |code| ≤ 128; an index has 7 bits. */
struct byte_tables {
    unsigned char lower[128]; /* [m] of m; of 128, [0], where it is the same */
    unsigned char upper[128]; /* [m / 2] of m, but for 0 */
    unsigned char join[128];  /* indices that join two pairs; + 64: upper halves */
};

/* Stores, for each of 16 integers converted to float, the byte that begins at `bit`. */
AX_INLINE void store_bytes(unsigned char *to, __m512i x, unsigned bit) {
    const __m512i bits = (__m512i)_mm512_cvtepi32_ps(x);
    _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(_mm512_srli_epi32(bits, bit)));
}

static inline void make_byte_tables(struct byte_tables *t) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int i = 0; i < 128; i += 16) {
        const __m512i m = _mm512_add_epi32(lanes, _mm512_set1_epi32(i)),
                      twice = _mm512_slli_epi32(m, 1);
        store_bytes(t->lower + i, m, 16);
        store_bytes(t->upper + i, _mm512_max_epi32(twice, _mm512_set1_epi32(1)), 24);
    }
    for (unsigned i = 0; i < 128; i++)
        t->join[i] = (unsigned char)(i / 2 + i % 2 * 64);
}

/* Bytes of a table of 128. An instruction of VBMI, for which this folder is not compiled. */
AX_INLINE __m512i pick(__m512i index, __m512i low, __m512i high) {
    __asm__("vpermi2b %2, %1, %0" : "+v"(index) : "v"(low), "v"(high));
    return index;
}

/* 0 where `only` is 0. */
AX_INLINE __m512i pick_only(__mmask64 only, __m512i index, __m512i low, __m512i high) {
    __asm__("vpermi2b %3, %2, %0%{%1%}%{z%}" : "+v"(index) : "Yk"(only), "v"(low), "v"(high));
    return index;
}

struct halves {
    __m512i lower, upper;
};

/* Looks up the two pairs of codes at c. */
AX_INLINE struct halves look_up(const struct byte_tables *t, const unsigned char *c) {
    const __m512i codes = _mm512_loadu_si512((const void *)c), sign = _mm512_set1_epi8(-128);
    const __m512i m = _mm512_abs_epi8(codes), half = _mm512_srli_epi16(m, 1);
    const __m512i *lower = (const void *)t->lower, *upper = (const void *)t->upper;
    const __m512i bits = pick_only(_mm512_test_epi8_mask(codes, codes), half,
                                   _mm512_loadu_si512(upper), _mm512_loadu_si512(upper + 1));
    return (struct halves){
        pick(m, _mm512_loadu_si512(lower), _mm512_loadu_si512(lower + 1)),
        _mm512_ternarylogic_epi32(bits, codes, sign, 0xf8), /* bits | codes & sign */
    };
}

/* Pair p of two. */
AX_INLINE __m512bh join(const struct byte_tables *t, struct halves h, int p) {
    return (__m512bh)pick(_mm512_loadu_si512((const void *)(t->join + 64 * p)), h.lower, h.upper);
}

#endif

#endif
