/* base/rng.h's numbers, several registers of counter blocks at a time. */
#ifndef AX_KERNELS_CPU_VEC_PHILOX_H
#define AX_KERNELS_CPU_VEC_PHILOX_H

#include "base/rng.h"
#include "kernels/cpu/vec/simd_int.h"

/* A block uses a 64-bit lane, whose upper half is ignored. */
#ifdef __AVX512F__
#define BLOCKS_PER_VECTOR 8
typedef __m512i v_wide;

AX_INLINE v_wide wide_set(uint64_t x) {
    return _mm512_set1_epi64((long long)x);
}
AX_INLINE v_wide wide_from(uint64_t first) { /* first, first + 1, and so on */
    return _mm512_add_epi64(wide_set(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
}
AX_INLINE v_wide wide_mul(v_wide a, v_wide b) { /* products of the lower halves */
    return _mm512_mul_epu32(a, b);
}
AX_INLINE v_wide wide_upper(v_wide a) {
    return _mm512_srli_epi64(a, 32);
}
AX_INLINE v_wide wide_xor(v_wide a, v_wide b, v_wide c) {
    return _mm512_ternarylogic_epi64(a, b, c, 0x96);
}
/* The lower halves of the four words of each block, contiguous. */
AX_INLINE void wide_store(uint32_t *words, v_wide c0, v_wide c1, v_wide c2, v_wide c3) {
    v_wide a = _mm512_mask_blend_epi32(0xaaaa, c0, _mm512_slli_epi64(c1, 32));
    v_wide b = _mm512_mask_blend_epi32(0xaaaa, c2, _mm512_slli_epi64(c3, 32));
    v_wide first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    v_wide last = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64(a, first, b));
    _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(a, last, b));
}

#elif defined(__AVX2__)
#define BLOCKS_PER_VECTOR 4
typedef __m256i v_wide;

AX_INLINE v_wide wide_set(uint64_t x) {
    return _mm256_set1_epi64x((long long)x);
}
AX_INLINE v_wide wide_from(uint64_t first) {
    return _mm256_add_epi64(wide_set(first), _mm256_setr_epi64x(0, 1, 2, 3));
}
AX_INLINE v_wide wide_mul(v_wide a, v_wide b) {
    return _mm256_mul_epu32(a, b);
}
AX_INLINE v_wide wide_upper(v_wide a) {
    return _mm256_srli_epi64(a, 32);
}
AX_INLINE v_wide wide_xor(v_wide a, v_wide b, v_wide c) {
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
AX_INLINE void wide_store(uint32_t *words, v_wide c0, v_wide c1, v_wide c2, v_wide c3) {
    v_wide a = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xaa);
    v_wide b = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xaa);
    v_wide even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
    _mm256_storeu_si256((void *)words, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((void *)(words + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}
#endif

/* Vectors of blocks in flight: the ten rounds of one depend on each other. */
#define STREAMS        4
#define WORDS_PER_CALL (4 * BLOCKS_PER_VECTOR * STREAMS)

/* Buffer size for the words of n numbers, wherever they start. */
#define RANDOM_ROOM(n) ((n) + 4 + WORDS_PER_CALL)

/* The words of WORDS_PER_CALL / 4 blocks from `block` on, in the order of the numbers. */
AX_INLINE void random_blocks(struct ax_rng_key key, uint64_t block, uint32_t *words) {
    v_wide c0[STREAMS], c1[STREAMS], c2[STREAMS], c3[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        c0[i] = wide_from(block + (uint64_t)(i * BLOCKS_PER_VECTOR));
        c1[i] = wide_upper(c0[i]);
        c2[i] = wide_set(key.step);
        c3[i] = wide_set(key.tensor);
    }
    const v_wide mul0 = wide_set(0xD2511F53u), mul1 = wide_set(0xCD9E8D57u);
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < STREAMS; i++) {
            v_wide p0 = wide_mul(c0[i], mul0), p1 = wide_mul(c2[i], mul1);
            c0[i] = wide_xor(wide_upper(p1), c1[i], wide_set(k0));
            c2[i] = wide_xor(wide_upper(p0), c3[i], wide_set(k1));
            c1[i] = p1;
            c3[i] = p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < STREAMS; i++)
        wide_store(words + 4 * BLOCKS_PER_VECTOR * i, c0[i], c1[i], c2[i], c3[i]);
}

/* Fills words[RANDOM_ROOM(n)] and returns the address of random number `first`; the next numbers
 * follow. */
static __attribute__((noinline, unused)) const uint32_t *
random_words(struct ax_rng_key key, int64_t first, int64_t n, uint32_t *words) {
    int64_t skip = first % 4;
    for (int64_t done = 0; done < n + skip; done += WORDS_PER_CALL)
        random_blocks(key, (uint64_t)((first + done) / 4), words + done);
    return words + skip;
}

#endif
