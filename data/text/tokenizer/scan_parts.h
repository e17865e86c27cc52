/* Shared by the hand-written split rules. Private to scan.c and scan_cased.c; see scan.h. */
#ifndef AX_DATA_TEXT_TOKENIZER_SCAN_PARTS_H
#define AX_DATA_TEXT_TOKENIZER_SCAN_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text/unicode.h"

/* Class of the character at s[at] and its length. */
static inline enum ax_char_class class_at(const unsigned char *s, size_t at, size_t *n) {
    if (s[at] < 0x80) {
        *n = 1;
        return (enum ax_char_class)ax_ascii_class[s[at]];
    }
    return ax_unicode_class(ax_utf8_decode(s + at, n));
}

/* End of the run of characters of one class that begins at `at`. */
static inline size_t run(const unsigned char *s, size_t at, size_t len, enum ax_char_class want) {
    size_t n;
    while (at < len && class_at(s, at, &n) == want)
        at += n;
    return at;
}

/* 's 't 're 've 'm 'll 'd at s[at] = '\'': its end, or `at`. With any_case, ſ is an s. */
static inline size_t contraction(const unsigned char *s, size_t at, size_t len, bool any_case) {
    size_t left = len - at;
    unsigned char a = left > 1 ? s[at + 1] : 0, b = left > 2 ? s[at + 2] : 0;
    if (any_case) {
        if (a == 0xc5 && b == 0xbf)
            return at + 3;
        a |= a >= 'A' && a <= 'Z' ? 0x20 : 0;
        b |= b >= 'A' && b <= 'Z' ? 0x20 : 0;
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return at + 3;
    return at;
}

/* \s+(?!\S)|\s+ over the white space from `at` to `end`: before another character, leaves the last
 * blank, unless it is the only one. */
static inline size_t blanks(const unsigned char *s, size_t at, size_t end, size_t len) {
    size_t n;
    if (end == len)
        return end;
    (void)ax_utf8_decode_before(s + end, &n);
    return end - n > at ? end - n : end;
}

/* \p{N}{1,max} at a number. */
static inline size_t digits(const unsigned char *s, size_t at, size_t len, int max) {
    size_t n;
    while (at < len && max-- > 0 && class_at(s, at, &n) == AX_CHAR_NUMBER)
        at += n;
    return at;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ at white space. */
static inline size_t line_ends_or_blanks(const unsigned char *s, size_t at, size_t len) {
    size_t end = run(s, at, len, AX_CHAR_SPACE);
    for (size_t i = end; i > at; i--)
        if (s[i - 1] == '\n' || s[i - 1] == '\r')
            return i;
    return blanks(s, at, end, len);
}

size_t ax_scan_gpt4o(const unsigned char *s, size_t at, size_t len);
size_t ax_scan_tekken(const unsigned char *s, size_t at, size_t len);

#endif
