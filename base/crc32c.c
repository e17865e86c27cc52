/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): the crc32 instruction of SSE 4.2 if the
 * CPU has it, else a table. The instruction has a latency of three cycles and a throughput of one,
 * so three lanes of a long input run in parallel: CRC is linear, and a table of the effect of LANE
 * zero bytes shifts a lane's result over the following lanes. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/hash.h"

#define LANE 2048 /* bytes */

static uint32_t table[256];
static uint32_t over_lane[4][256]; /* by byte of the register: its value after LANE zero bytes */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

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
#include <nmmintrin.h>

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

uint32_t ax_crc32c(uint32_t crc, const void *data, size_t n) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(crc, data, n)
                                            : ax_crc32c_portable(crc, data, n);
}
#else
uint32_t ax_crc32c(uint32_t crc, const void *data, size_t n) {
    return ax_crc32c_portable(crc, data, n);
}
#endif
