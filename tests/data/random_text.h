/* Random UTF-8 text that is hard on tokenizers: words in several scripts, blanks and line ends,
 * digits, contractions, marks, and now and then any code point at all. */
#ifndef AX_TESTS_DATA_RANDOM_TEXT_H
#define AX_TESTS_DATA_RANDOM_TEXT_H

#include <string.h>

#include "base/rng.h"
#include "base/text/unicode.h"

struct text_rng {
    struct ax_rng_key key;
    uint64_t i;
};

static inline uint32_t below(struct text_rng *r, uint32_t n) {
    return (uint32_t)ax_rng_below(r->key, r->i++, n);
}

static inline uint32_t random_code_point(struct text_rng *r) {
    static const uint32_t ranges[][2] = {
        {0x20, 0x7e},       {'a', 'z'},         {'A', 'Z'},         {'0', '9'},
        {0xa0, 0x24f},      {0x300, 0x36f},     {0x370, 0x52f},     {0x5d0, 0x6ff},
        {0x900, 0x97f},     {0xe00, 0xe5b},     {0x1100, 0x11ff},   {0xac00, 0xd7a3},
        {0x1e00, 0x206f},   {0x2070, 0x218b},   {0x2460, 0x24ff},   {0x2c00, 0x2c7f},
        {0x3000, 0x30ff},   {0x4e00, 0x9fff},   {0xa640, 0xa69f},   {0xfb00, 0xfb06},
        {0x10400, 0x104ff}, {0x1d400, 0x1d7ff}, {0x1f100, 0x1f6ff}, {0x31350, 0x323af},
        {0x10d40, 0x10d8f}, {0x16d40, 0x16d7f}, {0, 0x10ffff},
    };
    const uint32_t *range = ranges[below(r, sizeof ranges / sizeof ranges[0])];
    uint32_t cp = range[0] + below(r, range[1] - range[0] + 1);
    return cp >= 0xd800 && cp <= 0xdfff ? 'x' : cp;
}

/* Writes up to `size` − 1 bytes of valid UTF-8 and a NUL; returns the length. */
static inline size_t random_text(struct text_rng *r, char *out, size_t size) {
    static const char *const parts[] = {
        " ",         "  ",           "\n",           "\r\n", "\t",  " \n ",
        "\xc2\xa0",  "\xe3\x80\x80", "\xc2\x85",     "'s",   "'LL", "'\xc5\xbf",
        "'re",       "'Ve",          "'d",           "''",   "...", "//",
        "HTML",      "Word",         "the",          "of",   "123", "4567890",
        "e\xcc\x81", "\xe2\x96\x81", "\xe1\xa0\x8e", "<|x|>"};
    size_t len = 0, steps = 1 + below(r, 40);
    for (size_t i = 0; i < steps; i++) {
        char cp[4];
        const char *s = parts[below(r, sizeof parts / sizeof parts[0])];
        size_t n = strlen(s);
        if (below(r, 2) == 0) {
            n = ax_utf8_encode(random_code_point(r), cp);
            s = cp;
        }
        for (uint32_t again = below(r, 8) == 0 ? below(r, 6) + 1 : 1; again > 0; again--) {
            if (len + n >= size)
                break;
            memcpy(out + len, s, n);
            len += n;
        }
    }
    out[len] = '\0';
    return len;
}

#endif
