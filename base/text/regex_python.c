/* The spelling of a regular expression for Python's re → PCRE2's. See regex.h.
 *
 * The two agree on most. What differs:
 *   \Z \v           end of the text, and one character
 *   \s \S           white space with \x1c-\x1f, without U+180E: spelled out
 *   \uHHHH \UH…     \x{HHHH}
 *   {,n} {,}        {0,n} {0,}
 *   [a[b]           a bracket inside a class is itself
 *   (?u)            is what PCRE2 does here
 * Escapes that Python does not know, (?a) and (?L) are rejected. */
#include <stdio.h>
#include <string.h>

#include "base/text/regex.h"

/* Appends n hexadecimal digits at s as a code point; AX_ERR_DATA if there are fewer. */
static enum ax_status add_code(struct ax_buf *out, const char *s, size_t len, size_t n) {
    if (len < n || strspn(s, "0123456789abcdefABCDEF") < n)
        return ax_error(AX_ERR_DATA, "regular expression: \\%c needs %zu hexadecimal digits",
                        n == 4 ? 'u' : 'U', n);
    return ax_buf_printf(out, "\\x{%.*s}", (int)n, s);
}

static const char space[] = "\\t-\\r\\x1c-\\x20\\x{85}\\p{Z}";
/* All others, for classes. */
static const char no_space[] =
    "\\x00-\\x08\\x0e-\\x1b\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"
    "10ffff}";

/* The escape at s, which begins with a backslash and is *used bytes long. */
static enum ax_status add_escape(struct ax_buf *out, const char *s, size_t len, bool in_class,
                                 size_t *used) {
    if (len < 2)
        return ax_error(AX_ERR_DATA, "regular expression: a backslash at the end");
    const char c = s[1];
    *used = 2;
    switch (c) {
    case 'Z':
        return ax_buf_puts(out, in_class ? "Z" : "\\z");
    case 'v':
        return ax_buf_puts(out, "\\x0b");
    case 's':
        return ax_buf_printf(out, in_class ? "%s" : "[%s]", space);
    case 'S':
        return in_class ? ax_buf_puts(out, no_space) : ax_buf_printf(out, "[^%s]", space);
    case 'u':
    case 'U':
        *used += c == 'u' ? 4 : 8;
        return add_code(out, s + 2, len - 2, c == 'u' ? 4 : 8);
    default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && strchr("AbBdDwWafnrtx", c) == NULL)
        return ax_error(AX_ERR_DATA, "regular expression: Python knows no escape \\%c", c);
    return ax_buf_append(out, s, 2);
}

/* The length of "{,5}" or "{,}"; 0 for any other text. */
static size_t open_bound(const char *s, size_t len) {
    if (len < 3 || s[0] != '{' || s[1] != ',')
        return 0;
    const size_t n = strspn(s + 2, "0123456789");
    return n + 2 < len && s[n + 2] == '}' ? n + 3 : 0;
}

/* "(?flags)" or "(?flags:": appends the letters that PCRE2 knows; *used = 0 if s starts with
 * neither. */
static enum ax_status add_flags(struct ax_buf *out, const char *s, size_t len, size_t *used) {
    *used = 0;
    if (len < 4 || s[0] != '(' || s[1] != '?')
        return AX_OK;
    const size_t n = strspn(s + 2, "aiLmsux-");
    if (n == 0 || n + 2 >= len || (s[n + 2] != ')' && s[n + 2] != ':'))
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "(?"));
    for (size_t i = 2; i < n + 2; i++) {
        if (s[i] == 'a' || s[i] == 'L')
            return ax_error(AX_ERR_UNSUPPORTED,
                            "regular expression: the flag (?%c) is not supported", s[i]);
        if (s[i] != 'u')
            AX_TRY(ax_buf_append(out, s + i, 1));
    }
    *used = n + 3;
    return ax_buf_append(out, s + n + 2, 1);
}

/* A class; at[0] is its "[". The first character in it may be "]". */
static enum ax_status add_class(struct ax_buf *out, const char *s, size_t len, size_t *at) {
    size_t i = *at + 1;
    AX_TRY(ax_buf_puts(out, "["));
    if (i < len && s[i] == '^') {
        AX_TRY(ax_buf_puts(out, "^"));
        i++;
    }
    for (bool first = true; i < len && (first || s[i] != ']'); first = false) {
        size_t used = 1;
        if (s[i] == '\\')
            AX_TRY(add_escape(out, s + i, len - i, true, &used));
        else if (s[i] == '[' || s[i] == ']')
            AX_TRY(ax_buf_printf(out, "\\%c", s[i]));
        else
            AX_TRY(ax_buf_append(out, s + i, 1));
        i += used;
    }
    if (i >= len)
        return ax_error(AX_ERR_DATA, "regular expression: a class [ at byte %zu is never closed",
                        *at);
    *at = i + 1;
    return ax_buf_puts(out, "]");
}

enum ax_status ax_regex_rewrite_python(struct ax_buf *out, const char *pattern, size_t len) {
    for (size_t i = 0; i < len;) {
        const char *s = pattern + i;
        const size_t left = len - i, bound = open_bound(s, left);
        size_t used = 1;
        if (*s == '[') {
            AX_TRY(add_class(out, pattern, len, &i));
            continue;
        }
        if (*s == '\\') {
            AX_TRY(add_escape(out, s, left, false, &used));
        } else if (bound > 0) {
            used = bound;
            AX_TRY(ax_buf_printf(out, "{0%.*s", (int)bound - 1, s + 1));
        } else {
            AX_TRY(add_flags(out, s, left, &used));
            if (used == 0) {
                used = 1;
                AX_TRY(ax_buf_append(out, s, 1));
            }
        }
        i += used;
    }
    return AX_OK;
}
