/* Unicode as Python's str sees it: UTF-8 stepping, character classes, full case mapping.
 *
 * Categories and one-to-one case mappings come from utf8proc; what Python adds (multi-character
 * upper and title forms, Other_Lowercase, Numeric_Type) stands in small tables in the .c file. */
#ifndef AX_DATA_JINJA_UNICODE_H
#define AX_DATA_JINJA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the code point at s[*pos] and moves *pos behind it. The text is UTF-8 that
 * ax_python_check accepted (surrogates from template literals are three bytes each). */
uint32_t ax_python_next(const char *s, size_t *pos);
/* The same backwards: *pos > 0 is the end of the code point, and becomes its start. */
uint32_t ax_python_prev(const char *s, size_t *pos);
/* Writes 1 to 4 bytes to out and returns how many. */
size_t ax_python_put(char *out, uint32_t c);
size_t ax_python_count(const char *s, size_t len);
/* Byte offset of code point number n (n ≤ count gives len at most). */
size_t ax_python_offset(const char *s, size_t len, size_t n);
/* Offset of the first byte that is not valid UTF-8 (no overlong forms, no surrogates), or len. */
size_t ax_python_check(const char *s, size_t len);

bool ax_python_is_space(uint32_t c); /* str.isspace and \s of re */
bool ax_python_is_printable(uint32_t c);
bool ax_python_is_alpha(uint32_t c);
bool ax_python_is_decimal(uint32_t c);
int ax_python_decimal_value(uint32_t c); /* 0 to 9, or -1 */
bool ax_python_is_digit(uint32_t c);
bool ax_python_is_numeric(uint32_t c);
bool ax_python_is_alnum(uint32_t c);
bool ax_python_is_lower(uint32_t c);
bool ax_python_is_upper(uint32_t c);
bool ax_python_is_title(uint32_t c); /* titlecase letters such as U+01C5 */
bool ax_python_is_id_start(uint32_t c);
bool ax_python_is_id_part(uint32_t c);

/* Case mappings write at most three code points to out and return how many. */
#define AX_UNICODE_MAP_MAX 3
size_t ax_python_to_upper(uint32_t c, uint32_t out[AX_UNICODE_MAP_MAX]);
size_t ax_python_to_title(uint32_t c, uint32_t out[AX_UNICODE_MAP_MAX]);
/* Lower case of the code point at s[pos] of a text: capital sigma depends on its neighbours. */
size_t ax_python_to_lower(const char *s, size_t len, size_t pos, uint32_t out[AX_UNICODE_MAP_MAX]);
size_t ax_python_to_folded(uint32_t c, uint32_t out[AX_UNICODE_MAP_MAX]);

#endif
