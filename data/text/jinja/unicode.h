/* Unicode as Python's str sees it: UTF-8 stepping, character classes, case mapping.
 *
 * Categories and one-to-one case mappings come from utf8proc; of the one-to-many mappings, only the
 * German sharp s is supported. */
#ifndef AX_DATA_TEXT_JINJA_UNICODE_H
#define AX_DATA_TEXT_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text/unicode.h"

/* Decodes the code point at s[*pos] of valid UTF-8 and moves *pos past it. */
static inline uint32_t ax_python_next(const char *s, size_t *pos) {
    size_t len;
    const uint32_t c = ax_utf8_decode((const unsigned char *)s + *pos, &len);
    *pos += len;
    return c;
}
/* The same backwards: *pos > 0 is the end of the code point and becomes its start. */
static inline uint32_t ax_python_prev(const char *s, size_t *pos) {
    size_t len;
    const uint32_t c = ax_utf8_decode_before((const unsigned char *)s + *pos, &len);
    *pos -= len;
    return c;
}
size_t ax_python_count(const char *s, size_t len);
/* Byte offset of code point n (n ≤ count; len at the end). */
size_t ax_python_offset(const char *s, size_t len, size_t n);

bool ax_python_is_space(uint32_t c); /* str.isspace and \s of re */
bool ax_python_is_printable(uint32_t c);
bool ax_python_is_digit(uint32_t c);          /* str.isdigit */
bool ax_python_is_decimal(uint32_t c);        /* str.isdecimal: what int() and float() read */
bool ax_python_is_cased(uint32_t c);          /* begins or continues a word of str.title */
bool ax_python_is_case_ignorable(uint32_t c); /* the rule of the final sigma skips it */

enum ax_jcase { AX_JCASE_LOWER, AX_JCASE_UPPER, AX_JCASE_TITLE };
/* Writes one or two code points to out and returns how many; 0: the mapping is not supported. */
size_t ax_python_map(enum ax_jcase to, uint32_t c, uint32_t out[2]);

#endif
