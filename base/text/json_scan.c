#include "base/text/json_scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* Longest integer that a double can hold: DBL_MAX has 309 digits. */
#define MAX_DIGITS 309

enum ax_status ax_json_error_at(const char *name, const char *text, size_t offset,
                                const char *message) {
    size_t line = 1;
    size_t column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xC0U) != 0x80U) {
            column++;
        }
    }
    return ax_error(AX_ERR_DATA, "%s:%zu:%zu: %s", name, line, column, message);
}

static size_t span_string(const char *s, size_t n) {
    size_t i = 1;
    while (i < n && s[i] != '"')
        i += s[i] == '\\' ? 2 : 1;
    return i < n ? i + 1 : n;
}

static size_t span_number(const char *s, size_t n) {
    size_t i = 1;
    while (i < n && s[i] != '\0' && strchr("0123456789+-.eE", s[i]) != NULL)
        i++;
    return i;
}

/* True if the number token is an integer that fits a double but not int64. */
static bool is_big_integer(const char *s, size_t n) {
    size_t sign = s[0] == '-';
    size_t digits = n - sign;
    if (digits < 19 || digits > MAX_DIGITS || s[sign] == '0')
        return false;
    char copy[MAX_DIGITS + 2];
    for (size_t i = sign; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    memcpy(copy, s, n);
    copy[n] = '\0';
    errno = 0;
    (void)strtoll(copy, NULL, 10);
    return errno == ERANGE && strtod(copy, NULL) - strtod(copy, NULL) == 0.0;
}

/* Writes the integer as 17 digits and an exponent: exact for a double, and never longer than the
 * original 19 or more digits. Padded with blanks, so later columns stay correct. */
static void rewrite_integer(char *s, size_t n) {
    char copy[MAX_DIGITS + 2];
    char text[32];
    memcpy(copy, s, n);
    copy[n] = '\0';
    snprintf(text, sizeof text, "%.16e", strtod(copy, NULL)); /* d.dddddddddddddddde+XX */
    size_t sign = text[0] == '-';
    memmove(text + sign + 1, text + sign + 2, 16);
    int exponent = (int)strtol(text + sign + 19, NULL, 10) - 16;
    int m = snprintf(copy, sizeof copy, "%.*se%d", (int)(sign + 17), text, exponent);
    memcpy(s, copy, (size_t)m);
    memset(s + m, ' ', n - (size_t)m);
}

static bool is_word(const char *s, size_t n, const char *word) {
    size_t len = strlen(word);
    return n >= len && memcmp(s, word, len) == 0;
}

/* Checks one bracket or word; *depth tracks the nesting. Returns NULL or the error. */
static const char *complaint(const char *s, size_t n, int *depth) {
    if (*s == '[' || *s == '{') {
        ++*depth;
        return *depth > AX_JSON_DEPTH_MAX ? "nested deeper than 512 levels" : NULL;
    }
    if (*s == ']' || *s == '}')
        --*depth;
    if (is_word(s, n, "NaN") || is_word(s, n, "Infinity")) {
        return "NaN and Infinity are not JSON numbers, though Python writes them; put null or a "
               "number in its place";
    }
    return NULL;
}

enum ax_status ax_json_scan(const char *name, const char *text, size_t len, char **rewritten) {
    char *copy = NULL;
    int depth = 0;
    size_t span;
    for (size_t i = 0; i < len; i += span) {
        const char *s = text + i;
        span = 1;
        if (*s == '"') {
            span = span_string(s, len - i);
        } else if ((*s >= '0' && *s <= '9') || *s == '-') {
            span = span_number(s, len - i);
            if (is_big_integer(s, span)) {
                if (copy == NULL) {
                    AX_TRY(ax_alloc(&copy, len + 1, 1));
                    memcpy(copy, text, len);
                }
                rewrite_integer(copy + i, span);
            }
        } else {
            const char *message = complaint(s, len - i, &depth);
            if (message != NULL) {
                ax_free(copy);
                return ax_json_error_at(name, text, i, message);
            }
        }
    }
    *rewritten = copy;
    return AX_OK;
}
