/* SHA-1 (FIPS 180-4), for git object names. Not for anything that must resist forgery. */
#include <string.h>

#include "base/hash/hash.h"

static uint32_t rotl(uint32_t x, int r) {
    return x << r | x >> (32 - r);
}

static void compress(uint32_t h[5], const unsigned char *block) {
    uint32_t w[80];
    for (int i = 0; i < 16; i++) {
        const unsigned char *p = block + (ptrdiff_t)4 * i;
        w[i] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }
    for (int i = 16; i < 80; i++)
        w[i] = rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 80; i++) {
        const uint32_t f = i < 20   ? (b & c) | (~b & d)
                           : i < 40 ? b ^ c ^ d
                           : i < 60 ? (b & c) | (b & d) | (c & d)
                                    : b ^ c ^ d;
        static const uint32_t k[4] = {0x5A827999, 0x6ED9EBA1, 0x8F1BBCDC, 0xCA62C1D6};
        const uint32_t t = rotl(a, 5) + f + e + k[i / 20] + w[i];
        e = d;
        d = c;
        c = rotl(b, 30);
        b = a;
        a = t;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

void ax_sha1_init(struct ax_sha1 *s) {
    *s = (struct ax_sha1){.h = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}};
}

void ax_sha1_update(struct ax_sha1 *s, const void *data, size_t n) {
    const unsigned char *p = data;
    while (n > 0) {
        const size_t used = (size_t)(s->len % 64);
        const size_t take = n < 64 - used ? n : 64 - used;
        memcpy(s->block + used, p, take);
        s->len += take;
        p += take;
        n -= take;
        if (used + take == 64)
            compress(s->h, s->block);
    }
}

void ax_sha1_final(struct ax_sha1 *s, unsigned char out[20]) {
    const uint64_t bits = s->len * 8;
    static const unsigned char pad[64] = {0x80};
    unsigned char length[8];
    ax_sha1_update(s, pad, 1 + (size_t)(119 - s->len % 64) % 64);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    ax_sha1_update(s, length, 8);
    for (int i = 0; i < 20; i++)
        out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
