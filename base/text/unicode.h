/* UTF-8 and the character classes of tokenizers, as in the HF tokenizers library (its regexes
 * follow Unicode 16): libutf8proc's data plus the differences in unicode_tables.c. */
#ifndef AX_BASE_TEXT_UNICODE_H
#define AX_BASE_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* --- UTF-8 --- */

enum ax_utf8_kind {
    AX_UTF8_VALID,   /* one code point */
    AX_UTF8_INVALID, /* bytes that do not start a code point */
    AX_UTF8_CUT      /* a code point truncated by the end of the text */
};

/* Kind and length of what is at s (n ≥ 1 bytes left): a code point, or the longest prefix of one,
 * which counts as one error (Unicode's "maximal subpart"). */
enum ax_utf8_kind ax_utf8_next(const unsigned char *s, size_t n, size_t *len);
/* Offset of the first byte that is not UTF-8, or n. */
size_t ax_utf8_check(const char *s, size_t n);
/* Appends s to out with U+FFFD for each error, as Python's and Rust's lossy decoding do. */
enum ax_status ax_utf8_repair(struct ax_buf *out, const char *s, size_t n);
/* The same as a new text; free with ax_free. */
enum ax_status ax_utf8_repaired(char **out, const char *s, size_t n);
/* Bytes written to out. cp is a Unicode scalar value. */
size_t ax_utf8_encode(uint32_t cp, char out[4]);

/* Decodes one code point of text known to be valid. */
static inline uint32_t ax_utf8_decode(const unsigned char *s, size_t *len) {
    if (s[0] < 0x80) {
        *len = 1;
        return s[0];
    }
    if (s[0] < 0xe0) {
        *len = 2;
        return (uint32_t)(s[0] & 31) << 6 | (s[1] & 63U);
    }
    if (s[0] < 0xf0) {
        *len = 3;
        return (uint32_t)(s[0] & 15) << 12 | (uint32_t)(s[1] & 63) << 6 | (s[2] & 63U);
    }
    *len = 4;
    return (uint32_t)(s[0] & 7) << 18 | (uint32_t)(s[1] & 63) << 12 | (uint32_t)(s[2] & 63) << 6 |
           (s[3] & 63U);
}

/* Decodes the last code point before s (valid text, at least one code point there). */
static inline uint32_t ax_utf8_decode_before(const unsigned char *s, size_t *len) {
    size_t n = 1;
    while ((s[-(ptrdiff_t)n] & 0xc0) == 0x80)
        n++;
    return ax_utf8_decode(s - n, len);
}

/* --- classes --- */

enum ax_char_class { AX_CHAR_OTHER, AX_CHAR_LETTER, AX_CHAR_NUMBER, AX_CHAR_SPACE };

extern const unsigned char ax_ascii_class[128]; /* enum ax_char_class */

/* \p{L}, \p{N}, white space, or none of these. */
enum ax_char_class ax_unicode_class(uint32_t cp);
/* 1 for upper and title case letters, 2 for lower case ones, 3 for letters without case and marks,
 * 0 otherwise. */
unsigned ax_unicode_case(uint32_t cp);
bool ax_unicode_is_space(uint32_t cp);
bool ax_unicode_is_word(uint32_t cp);    /* \w: alphabetic, mark, decimal, connector, joiner */
bool ax_unicode_is_numeric(uint32_t cp); /* for the Digits step */
bool ax_unicode_is_punct(uint32_t cp);   /* for the Punctuation step */
bool ax_unicode_is_accent(uint32_t cp);  /* for the StripAccents normalizer */
/* Assigned after the Unicode version of HF's normalizers, which leave it unchanged. */
bool ax_unicode_is_inert(uint32_t cp);
/* Lower case: 1 or 2 code points to out. */
int ax_unicode_lower(uint32_t cp, uint32_t out[2]);

#endif
