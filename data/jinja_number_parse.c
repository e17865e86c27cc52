/* int(text, base) and float(text) of Python: jinja_number.h. */
#include <stdlib.h>
#include <string.h>

#include "data/jinja_big.h"
#include "data/jinja_number.h"
#include "data/jinja_unicode.h"

/* The text without white space around it; decimal digits of any script become ASCII.
 * NULL where another character is not ASCII or an underscore stands badly. */
static enum ax_status number_text(struct ax_jvm *vm, const struct ax_jstr *s, char **text) {
    size_t start = 0, end = s->len;
    AX_TRY(ax_jvm_charge(vm, s->len));
    while (start < end) {
        size_t p = start;
        if (!ax_python_is_space(ax_python_next(s->data, &p))) {
            break;
        }
        start = p;
    }
    while (end > start) {
        size_t p = end;
        if (!ax_python_is_space(ax_python_prev(s->data, &p))) {
            break;
        }
        end = p;
    }
    AX_TRY(ax_jarena_alloc(&vm->arena, text, end - start + 1, 1));
    size_t n = 0;
    for (size_t i = start; i < end;) {
        size_t at = i;
        uint32_t c = ax_python_next(s->data, &i);
        int digit = ax_python_decimal_value(c);
        if ((c >= 0x80 && digit < 0) || c == '\0' ||
            (c == '_' && (at == start || i == end || s->data[at - 1] == '_'))) {
            *text = NULL;
            return AX_OK;
        }
        (*text)[n++] = digit >= 0 ? (char)('0' + digit) : (char)c;
    }
    return AX_OK;
}

static bool is_digit_of(char c, int64_t base) {
    int64_t d = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                         : 99;
    return d < base;
}

enum ax_status ax_jnumber_parse_int(struct ax_jvm *vm, const struct ax_jstr *s, int64_t base,
                                    struct ax_jval *out, bool *valid) {
    char *text;
    AX_TRY(number_text(vm, s, &text));
    *valid = false;
    if (text == NULL) {
        return AX_OK;
    }
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    char kind = text[0] == '0' ? (char)(text[1] | 0x20) : 0;
    int64_t prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix != 0 && (base == 0 || base == prefix)) {
        base = prefix;
        text += 2;
        text += *text == '_';
    } else if (base == 0) {
        base = 10;
        if (text[0] == '0' && strspn(text, "0_") != strlen(text)) {
            return AX_OK; /* 012 */
        }
    }
    size_t n = strlen(text);
    if (n == 0 || n > 4300 || base < 2 || base > 36) {
        return AX_OK;
    }
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '_' ? i == 0 : !is_digit_of(text[i], base)) {
            return AX_OK;
        }
    }
    *valid = true;
    return ax_jbig_parse(&vm->arena, text, n, (uint32_t)base, negative, out);
}

enum ax_status ax_jnumber_parse_float(struct ax_jvm *vm, const struct ax_jstr *s, double *out,
                                      bool *valid) {
    char *text;
    AX_TRY(number_text(vm, s, &text));
    *valid = false;
    if (text == NULL || *text == '\0') {
        return AX_OK;
    }
    size_t n = 0;
    for (size_t i = 0; text[i] != '\0'; i++) {
        bool between = i > 0 && is_digit_of(text[i - 1], 10) && is_digit_of(text[i + 1], 10);
        if (text[i] == '_' ? !between : strchr("xXpP(", text[i]) != NULL) {
            return AX_OK; /* spellings that only C knows */
        }
        if (text[i] != '_') {
            text[n++] = text[i];
        }
    }
    text[n] = '\0';
    char *end;
    if (strchr(" \t\n\v\f\r", text[0]) != NULL) {
        return AX_OK;
    }
    *out = strtod(text, &end);
    *valid = *end == '\0';
    return AX_OK;
}
