/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): by carry-less products if the CPU has them
 * on 512 bits, else by the crc32 instruction of SSE 4.2, else by a table.
 *
 * The instruction has a latency of three cycles and a throughput of one, so three lanes of a long
 * input run in parallel: CRC is linear, and a table of the effect of LANE zero bytes shifts a lane's
 * result over the following lanes.
 *
 * Products fold: 128 bits of a message, moved D bits toward its end, are congruent to their halves
 * times x^(D + 64) and x^D (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", Intel 2009). So FOLD bytes replace all before them, until only FOLD are
 * left. */
#include "base/hash/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/hash/hash.h"

#define LANE 2048 /* bytes */
#define FOLD 256  /* bytes: four registers */

static uint32_t table[256];
static uint32_t over_lane[4][256];   /* by byte of the register: its value after LANE zero bytes */
static uint64_t fold_low, fold_high; /* what the halves of 128 bits are multiplied with */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

/* x^n modulo the polynomial, reflected: x^0 is the highest bit. */
static uint64_t power(int n) {
    uint32_t c = 0x80000000U;
    while (n-- > 0)
        c = c >> 1 ^ (c & 1 ? 0x82F63B78U : 0);
    return c;
}

static void fill_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (c & 1 ? 0x82F63B78U : 0);
        table[i] = c;
    }
    for (int byte = 0; byte < 4; byte++)
        for (uint32_t i = 0; i < 256; i++) {
            const uint32_t rest = i & (i - 1), low = i ^ rest;
            uint32_t c = low << 8 * byte;
            for (int k = 0; rest == 0 && k < LANE; k++)
                c = c >> 8 ^ table[c & 0xFFU];
            over_lane[byte][i] = rest == 0 ? c : over_lane[byte][rest] ^ over_lane[byte][low];
        }
    /* a product of reflected factors has one bit too few: << 1; of 32 bits in 64: 32 powers less */
    fold_low = power(8 * FOLD + 32) << 1;
    fold_high = power(8 * FOLD - 32) << 1;
}

uint32_t ax_crc32c_portable(uint32_t crc, const void *data, size_t n) {
    pthread_once(&table_once, fill_table);
    const unsigned char *p = data;
    uint32_t c = ~crc;
    for (size_t i = 0; i < n; i++)
        c = c >> 8 ^ table[(c ^ p[i]) & 0xFFU];
    return ~c;
}

#if defined(__x86_64__)
#include <immintrin.h>

static uint32_t over(uint64_t c) {
    return over_lane[0][c & 0xFFU] ^ over_lane[1][c >> 8 & 0xFFU] ^ over_lane[2][c >> 16 & 0xFFU] ^
           over_lane[3][c >> 24 & 0xFFU];
}

__attribute__((target("sse4.2"))) static uint64_t three_lanes(uint64_t c, const unsigned char *p) {
    uint64_t second = 0, third = 0, word[3];
    for (size_t i = 0; i < LANE; i += sizeof *word) {
        memcpy(&word[0], p + i, sizeof *word);
        memcpy(&word[1], p + LANE + i, sizeof *word);
        memcpy(&word[2], p + 2 * LANE + i, sizeof *word);
        c = _mm_crc32_u64(c, word[0]);
        second = _mm_crc32_u64(second, word[1]);
        third = _mm_crc32_u64(third, word[2]);
    }
    return over(over(c) ^ second) ^ third;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data,
                                                               size_t n) {
    pthread_once(&table_once, fill_table);
    const unsigned char *p = data;
    uint64_t c = ~crc;
    for (; n >= 3 * LANE; n -= 3 * LANE, p += 3 * LANE)
        c = three_lanes(c, p);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        c = _mm_crc32_u64(c, word);
    }
    for (; n > 0; n--, p++)
        c = _mm_crc32_u8((uint32_t)c, *p);
    return ~(uint32_t)c;
}

#define WIDE "sse4.2,avx512f,vpclmulqdq"

__attribute__((target(WIDE))) static __m512i fold(__m512i v, __m512i by,
                                                  const unsigned char *next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(v, by, 0x00),
                                     _mm512_clmulepi64_epi128(v, by, 0x11),
                                     _mm512_loadu_si512(next), 0x96); /* xor of three */
}

/* n: FOLD or more. */
__attribute__((target(WIDE))) static uint32_t crc32c_wide(uint32_t crc, const void *data,
                                                          size_t n) {
    pthread_once(&table_once, fill_table);
    const unsigned char *p = data;
    const __m512i by =
        _mm512_broadcast_i32x4(_mm_set_epi64x((long long)fold_high, (long long)fold_low));
    unsigned char last[FOLD];
    __m512i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_loadu_si512(p + 64 * i);
    v[0] = _mm512_xor_si512(v[0], _mm512_castsi128_si512(_mm_cvtsi32_si128((int)~crc)));
    for (; n >= 2 * FOLD; n -= FOLD) {
        p += FOLD;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            v[i] = fold(v[i], by, p + 64 * i);
    }
    for (int i = 0; i < 4; i++)
        _mm512_storeu_si512(last + 64 * i, v[i]);
    crc = crc32c_sse42(~0U, last, FOLD); /* of what the start has been put into: it begins at 0 */
    return n == FOLD ? crc : crc32c_sse42(crc, p + FOLD, n - FOLD);
}

uint32_t ax_crc32c_instruction(uint32_t crc, const void *data, size_t n) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, data, n)
                                            : ax_crc32c_portable(crc, data, n);
}

uint32_t ax_crc32c(uint32_t crc, const void *data, size_t n) {
    return n >= FOLD && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq")
               ? crc32c_wide(crc, data, n)
               : ax_crc32c_instruction(crc, data, n);
}
#else
uint32_t ax_crc32c_instruction(uint32_t crc, const void *data, size_t n) {
    return ax_crc32c_portable(crc, data, n);
}

uint32_t ax_crc32c(uint32_t crc, const void *data, size_t n) {
    return ax_crc32c_portable(crc, data, n);
}
#endif
