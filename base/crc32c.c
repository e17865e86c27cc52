/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78): the crc32 instruction of SSE 4.2 where the
 * processor has it, else a table. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base/hash.h"

static uint32_t table[256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void fill_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) {
            c = c >> 1 ^ (c & 1 ? 0x82F63B78U : 0);
        }
        table[i] = c;
    }
}

uint32_t ax_crc32c_portable(uint32_t crc, const void *data, size_t n) {
    pthread_once(&table_once, fill_table);
    const unsigned char *p = data;
    uint32_t c = ~crc;
    for (size_t i = 0; i < n; i++) {
        c = c >> 8 ^ table[(c ^ p[i]) & 0xFFU];
    }
    return ~c;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data,
                                                               size_t n) {
    const unsigned char *p = data;
    uint64_t c = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        c = _mm_crc32_u64(c, word);
    }
    for (; n > 0; n--, p++) {
        c = _mm_crc32_u8((uint32_t)c, *p);
    }
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
