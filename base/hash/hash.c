/* XXH64 (Y. Collet, xxHash specification 0.1.1). */
#include "base/hash/hash.h"

#include <string.h>

#define P1 0x9E3779B185EBCA87U
#define P2 0xC2B2AE3D27D4EB4FU
#define P3 0x165667B19E3779F9U
#define P4 0x85EBCA77C2B2AE63U
#define P5 0x27D4EB2F165667C5U

static uint64_t rotl(uint64_t x, int r) {
    return x << r | x >> (64 - r);
}

/* Little-endian loads: the digest is the same on every machine. */
static uint64_t load64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap64(v) : v;
}

static uint32_t load32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? __builtin_bswap32(v) : v;
}

static uint64_t mix(uint64_t acc, uint64_t lane) {
    return rotl(acc + lane * P2, 31) * P1;
}

static uint64_t merge(uint64_t h, uint64_t acc) {
    return (h ^ mix(0, acc)) * P1 + P4;
}

uint64_t ax_hash64(const void *data, size_t n, uint64_t seed) {
    const unsigned char *p = data;
    size_t left = n;
    uint64_t h = seed + P5;
    if (left >= 32) {
        uint64_t a = seed + P1 + P2;
        uint64_t b = seed + P2;
        uint64_t c = seed;
        uint64_t d = seed - P1;
        for (; left >= 32; left -= 32, p += 32) {
            a = mix(a, load64(p));
            b = mix(b, load64(p + 8));
            c = mix(c, load64(p + 16));
            d = mix(d, load64(p + 24));
        }
        h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
        h = merge(merge(merge(merge(h, a), b), c), d);
    }
    h += n;
    for (; left >= 8; left -= 8, p += 8)
        h = rotl(h ^ mix(0, load64(p)), 27) * P1 + P4;
    if (left >= 4) {
        h = rotl(h ^ load32(p) * P1, 23) * P2 + P3;
        left -= 4;
        p += 4;
    }
    for (; left > 0; left--, p++)
        h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint32_t ax_hash32(const char *s) {
    return (uint32_t)ax_hash64(s, strlen(s), 0);
}

void ax_hex(char *out, const unsigned char *data, size_t n) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        *out++ = digits[data[i] >> 4];
        *out++ = digits[data[i] & 15];
    }
    *out = '\0';
}
