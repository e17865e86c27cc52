/* The literals of lex_literal.h, in Python's syntax. */
#include "data/text/jinja/lex_literal.h"

#include <stdlib.h>
#include <string.h>

#include "data/text/jinja/unicode.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_digit_of(char c, int base) {
    if (base <= 10)
        return c >= '0' && c < '0' + base;
    return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) < 'a' + base - 10);
}

/* Reads digits with single underscores between them; returns the position after the last one. */
static size_t digits_end(const char *s, size_t len, size_t p, int base) {
    while (p < len && (is_digit_of(s[p], base) ||
                       (s[p] == '_' && p + 1 < len && is_digit_of(s[p + 1], base)))) {
        p++;
    }
    return p;
}

/* The end of a float whose digits before the point end at `whole`; returns `whole` for an
 * integer. */
static size_t float_end(const char *s, size_t len, size_t whole) {
    size_t p = whole;
    if (p + 1 < len && s[p] == '.' && is_digit(s[p + 1]))
        p = digits_end(s, len, p + 1, 10);
    if (p < len && (s[p] == 'e' || s[p] == 'E')) {
        size_t e = p + 1;
        e += e < len && (s[e] == '+' || s[e] == '-');
        if (e < len && is_digit(s[e]))
            return digits_end(s, len, e, 10);
    }
    return p;
}

static enum ax_status read_float(struct ax_jtree *t, const char *s, size_t n, struct ax_jval *out) {
    char *text;
    AX_TRY(ax_jarena_alloc(t->arena, &text, n + 1, 1));
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (s[i] != '_')
            text[k++] = s[i];
    text[k] = '\0';
    *out = ax_jreal(strtod(text, NULL));
    return AX_OK;
}

enum ax_status ax_jlex_number(struct ax_jtree *t, int line, const char *s, size_t len, size_t pos,
                              struct ax_jtoken *out, size_t *end) {
    size_t whole = digits_end(s, len, pos, 10);
    bool after_dot = pos > 0 && s[pos - 1] == '.'; /* x.0.1 is x[0][1] */
    *end = after_dot ? whole : float_end(s, len, whole);
    if (*end > whole) {
        out->kind = AX_JT_NUMBER;
        return read_float(t, s + pos, *end - pos, &out->value);
    }
    out->kind = AX_JT_INTEGER;
    if (s[pos] == '0') {
        if (pos + 1 < len && strchr("xXoObB", s[pos + 1]) != NULL && s[pos + 1] != '\0')
            return ax_jtree_error(t, line, "an integer in base 2, 8 or 16 is not supported");
        *end = digits_end(s, len, pos, 1); /* 012 is read as 0 and 12, which is a syntax error */
    }
    int64_t value = 0;
    for (size_t i = pos; i < *end; i++) {
        if (s[i] != '_' && (__builtin_mul_overflow(value, 10, &value) ||
                            __builtin_add_overflow(value, s[i] - '0', &value))) {
            return ax_jtree_error(t, line, "an integer of more than 64 bits is not supported");
        }
    }
    out->value = ax_jint(value);
    return AX_OK;
}

enum ax_status ax_jlex_name(struct ax_jtree *t, const char *s, size_t len, size_t pos,
                            struct ax_jtoken *out, size_t *end) {
    size_t p = pos;
    for (size_t next = p; p < len; p = next) {
        const uint32_t c = ax_python_next(s, &next);
        if (c != '_' && !ax_unicode_is_word(c))
            break;
    }
    *end = p;
    if (p == pos)
        return AX_OK;
    out->kind = AX_JT_NAME;
    out->value.kind = AX_JSTR;
    return ax_jstr_borrow(t->arena, &out->value.str, s + pos, p - pos);
}

size_t ax_jlex_string_end(const char *s, size_t len, size_t pos) {
    for (size_t p = pos + 1; p < len; p++) {
        if (s[p] == s[pos])
            return p + 1;
        p += s[p] == '\\';
    }
    return 0;
}

/* ---- escapes ---- */

/* \xHH, \uHHHH, \UHHHHHHHH; *p moves from the letter to the last digit. */
static enum ax_status hex_escape(struct ax_jtree *t, int line, const char *s, size_t len, size_t *p,
                                 uint32_t *c) {
    const size_t n = s[*p] == 'x' ? 2 : s[*p] == 'u' ? 4 : 8;
    const char letter = s[*p];
    *c = 0;
    for (size_t i = 0; i < n; i++) {
        ++*p;
        if (*p >= len || !is_digit_of(s[*p], 16))
            return ax_jtree_error(t, line, "\\%c needs %zu hexadecimal digits", letter, n);
        *c = *c << 4 | (uint32_t)(is_digit(s[*p]) ? s[*p] - '0' : (s[*p] | 0x20) - 'a' + 10);
    }
    if (*c > 0x10ffff || (*c >= 0xd800 && *c <= 0xdfff))
        return ax_jtree_error(t, line, "\\%c%0*X is not a character", letter, (int)n, (unsigned)*c);
    return AX_OK;
}

/* The escape at s[*p], after its backslash; *p moves to its last byte. Writes *n bytes to buf. */
static enum ax_status escape(struct ax_jtree *t, int line, const char *s, size_t len, size_t *p,
                             char buf[4], size_t *n) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = s[*p];
    const char *k = c != '\0' ? strchr(from, c) : NULL;
    uint32_t code = 0;
    *n = 0;
    if (c == '\n')
        return AX_OK; /* a line continuation */
    if (k != NULL) {
        buf[(*n)++] = to[k - from];
        return AX_OK;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        AX_TRY(hex_escape(t, line, s, len, p, &code));
        *n = ax_utf8_encode(code, buf);
        return AX_OK;
    }
    if (c == 'N' || is_digit(c) || (unsigned char)c >= 0x80) {
        return ax_jtree_error(t, line,
                              "a backslash before N, a digit or a non-ASCII letter is not "
                              "supported: use \\u and the code point");
    }
    buf[(*n)++] = '\\';
    buf[(*n)++] = c;
    return AX_OK;
}

enum ax_status ax_jlex_string(struct ax_jtree *t, int line, const char *s, size_t len,
                              struct ax_jstr **out) {
    char *text;
    AX_TRY(ax_jarena_alloc(t->arena, &text, len + 4, 1)); /* escapes never grow */
    size_t n = 0;
    for (size_t p = 0; p < len; p++) {
        if (s[p] != '\\') {
            text[n++] = s[p];
            continue;
        }
        size_t k;
        p++;
        AX_TRY(escape(t, line, s, len, &p, text + n, &k));
        n += k;
    }
    return ax_jstr_borrow(t->arena, out, text, n);
}
