/* A small cache of words and their tokens: direct-mapped, fixed size, one cache line per entry.
 *
 * A new entry replaces the old one, so memory is bounded and no text can make it slow. Words of up
 * to 23 bytes and 7 tokens fit. */
#ifndef AX_DATA_TEXT_TOKENIZER_WORD_CACHE_H
#define AX_DATA_TEXT_TOKENIZER_WORD_CACHE_H

#include <stdint.h>
#include <string.h>

enum { AX_WORD_MAX = 23, AX_WORD_TOKENS = 7, AX_WORD_BITS = 15, AX_WORD_SLOTS = 1 << AX_WORD_BITS };

struct ax_word {
    uint64_t w[3]; /* the bytes, zero padded; the last byte is the length */
};

struct ax_word_entry {
    struct ax_word key;
    int32_t ids[AX_WORD_TOKENS];
    uint8_t lens[AX_WORD_TOKENS]; /* bytes of each token; their sum is the word's */
    uint8_t n;
};

struct ax_word_cache {
    struct ax_word_entry slots[AX_WORD_SLOTS];
};

/* n < 8 bytes as a little-endian number, without reading beyond them. */
static inline uint64_t ax_word_load(const unsigned char *p, size_t n) {
    if (n >= 4) {
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + n - 4, 4);
        return a | (uint64_t)b << (8 * (n - 4));
    }
    if (n == 0)
        return 0;
    return p[0] | (uint64_t)p[n / 2] << (8 * (n / 2)) | (uint64_t)p[n - 1] << (8 * (n - 1));
}

/* 0 < len ≤ AX_WORD_MAX */
static inline struct ax_word ax_word_key(const char *s, size_t len) {
    const unsigned char *p = (const unsigned char *)s;
    struct ax_word k = {{0, 0, (uint64_t)len << 56}};
    if (len < 8) {
        k.w[0] = ax_word_load(p, len);
    } else {
        memcpy(&k.w[0], p, 8);
        if (len < 16) {
            k.w[1] = ax_word_load(p + 8, len - 8);
        } else {
            memcpy(&k.w[1], p + 8, 8);
            k.w[2] |= ax_word_load(p + 16, len - 16);
        }
    }
    return k;
}

static inline struct ax_word_entry *ax_word_slot(struct ax_word_cache *c, struct ax_word k) {
    uint64_t h = (k.w[0] ^ (k.w[1] << 29 | k.w[1] >> 35)) * 0x9e3779b97f4a7c15U;
    h = (h ^ h >> 32 ^ k.w[2]) * 0xd6e8feb86659fd93U;
    return &c->slots[h >> (64 - AX_WORD_BITS)];
}

static inline int ax_word_equal(struct ax_word a, struct ax_word b) {
    return ((a.w[0] ^ b.w[0]) | (a.w[1] ^ b.w[1]) | (a.w[2] ^ b.w[2])) == 0;
}

#endif
