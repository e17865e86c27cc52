/* Padding, signs, digit groups: jinja_spec.h. */
#include "data/jinja_spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/jinja_big.h"
#include "data/jinja_unicode.h"

enum ax_status ax_jspec_read_number(struct ax_jvm *vm, const struct ax_jstr *s, size_t *p,
                                    int64_t *out) {
    *out = 0;
    while (*p < s->len && s->data[*p] >= '0' && s->data[*p] <= '9') {
        *out = *out * 10 + (s->data[(*p)++] - '0');
        if (*out > AX_JSPEC_MAX) {
            return ax_jspec_too_wide(vm);
        }
    }
    return AX_OK;
}

static enum ax_status put_fill(struct ax_jvm *vm, uint32_t fill, int64_t n) {
    AX_TRY(ax_jvm_charge(vm, n > 0 ? (size_t)n : 0));
    for (int64_t i = 0; i < n; i++) {
        AX_TRY(ax_jvm_put_char(vm, fill != 0 ? fill : ' '));
    }
    return AX_OK;
}

/* The sign and prefix, then the body, in a field. `chars` counts the code points of both. */
static enum ax_status put_field(struct ax_jvm *vm, const struct ax_jspec *f, const char *prefix,
                                const char *body, size_t len, int64_t chars, char align) {
    int64_t pad = f->width > chars ? f->width - chars : 0;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    AX_TRY(put_fill(vm, f->fill, left));
    AX_TRY(ax_jvm_puts(vm, prefix));
    AX_TRY(put_fill(vm, f->fill, align == '=' ? pad : 0));
    AX_TRY(ax_jvm_put(vm, body, len));
    return put_fill(vm, f->fill, align == '<' ? pad : align == '^' ? pad - left : 0);
}

enum ax_status ax_jspec_put_str(struct ax_jvm *vm, const struct ax_jspec *f, struct ax_jstr *s) {
    int64_t chars = (int64_t)ax_jstr_chars(s);
    size_t len = s->len;
    if (f->precision >= 0 && f->precision < chars) {
        chars = f->precision;
        len = ax_jstr_offset(s, (size_t)chars);
    }
    return put_field(vm, f, "", s->data, len, chars, f->align != 0 ? f->align : '<');
}

static const char *sign_text(const struct ax_jspec *f, bool negative) {
    return negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
}

/* Digits with a separator every three (four for x, o, b) places from the right, in the arena.
 * Zeros of a zero-padded field are grouped too, so they are put in here. */
static enum ax_status grouped(struct ax_jvm *vm, const struct ax_jspec *f, const char *digits,
                              size_t n, int64_t min_width, struct ax_jstr **out) {
    size_t every = f->type == 'x' || f->type == 'X' || f->type == 'o' || f->type == 'b' ? 4 : 3;
    size_t room = 2 * (n + (size_t)min_width) + 2, at = room, count = 0, taken = 0;
    char *text;
    AX_TRY(ax_jarena_alloc(&vm->arena, &text, room, 1));
    while (taken < n || (int64_t)(room - at) < min_width) {
        if (f->group != 0 && count == every) {
            text[--at] = f->group;
            count = 0;
            if (taken >= n && (int64_t)(room - at) >= min_width) {
                text[--at] = '0'; /* no field begins with a separator */
                break;
            }
        }
        text[--at] = taken < n ? digits[n - 1 - taken] : '0';
        taken++;
        count++;
    }
    return ax_jstr_borrow(&vm->arena, out, text + at, room - at);
}

/* sign + prefix + whole digits (grouped) + the rest, padded. */
static enum ax_status put_number(struct ax_jvm *vm, const struct ax_jspec *f, const char *prefix,
                                 const char *whole, size_t n_whole, const char *rest) {
    bool zeros = f->align == '=' && f->fill == '0';
    int64_t around = (int64_t)strlen(prefix) + (int64_t)strlen(rest);
    int64_t min = zeros && f->group != 0 ? f->width - around : 0;
    struct ax_jstr *digits;
    AX_TRY(grouped(vm, f, whole, n_whole, min > 0 ? min : 0, &digits));
    struct ax_jcapture c = ax_jvm_capture(vm);
    struct ax_jstr *body;
    AX_TRY(ax_jvm_put(vm, digits->data, digits->len));
    AX_TRY(ax_jvm_puts(vm, rest));
    AX_TRY(ax_jvm_take(vm, c, &body));
    return put_field(vm, f, prefix, body->data, body->len,
                     (int64_t)strlen(prefix) + (int64_t)body->len, f->align != 0 ? f->align : '>');
}

static enum ax_status put_chr(struct ax_jvm *vm, const struct ax_jspec *f, struct ax_jval v) {
    char utf8[4];
    int64_t c = v.kind == AX_JBIG ? -1 : ax_jval_int(v);
    if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
        return ax_jvm_error(vm, "%%c needs the number of a character");
    }
    size_t n = ax_python_put(utf8, (uint32_t)c);
    return put_field(vm, f, "", utf8, n, 1, f->align != 0 ? f->align : '<');
}

enum ax_status ax_jspec_put_int(struct ax_jvm *vm, const struct ax_jspec *f, struct ax_jval v) {
    if (f->type == 'c') {
        return put_chr(vm, f, v);
    }
    uint32_t base = f->type == 'x' || f->type == 'X' ? 16
                    : f->type == 'o'                 ? 8
                    : f->type == 'b'                 ? 2
                                                     : 10;
    struct ax_jstr *text;
    AX_TRY(ax_jvm_charge(vm, v.kind == AX_JBIG ? v.big->n * v.big->n : 1));
    AX_TRY(ax_jbig_text(&vm->arena, v, base, &text));
    bool negative = text->data[0] == '-';
    const char *digits = text->data + negative;
    size_t n = text->len - negative;
    if (base == 10 && n > 4300) {
        return ax_jvm_error(vm, "an integer of more than 4300 digits cannot be printed");
    }
    char *body;
    size_t zeros = f->digits && f->precision > (int64_t)n ? (size_t)f->precision - n : 0;
    AX_TRY(ax_jarena_alloc(&vm->arena, &body, n + zeros, 1));
    memset(body, '0', zeros);
    for (size_t i = 0; i < n; i++) {
        char ch = digits[i];
        body[zeros + i] = f->type == 'X' && ch >= 'a' ? (char)(ch - 'a' + 'A') : ch;
    }
    char prefix[4];
    char letter[3] = {'0', f->type, '\0'};
    snprintf(prefix, sizeof prefix, "%s%s", sign_text(f, negative),
             f->alternate && base != 10 ? letter : "");
    return put_number(vm, f, prefix, body, n + zeros, "");
}

/* A whole number in %g form shows that it is a float: ".0" behind it, or an exponent where that
 * would be a digit too many. */
static void finish_plain(char *text, int len, int64_t precision, double value) {
    if (len < precision) {
        memcpy(text + len, ".0", 3);
        return;
    }
    char *end = text + snprintf(text, 400, "%.*e", (int)(precision > 0 ? precision - 1 : 0), value);
    char *e = strchr(text, 'e'), *last = e;
    while (last > text + 1 && (last[-1] == '0' || last[-1] == '.')) {
        last--;
        if (*last == '.') {
            break;
        }
    }
    memmove(last, e, (size_t)(end - e) + 1);
}

enum ax_status ax_jspec_put_float(struct ax_jvm *vm, const struct ax_jspec *f, double d) {
    char format[8] = "%", type = f->type, repr[AX_JREAL_TEXT];
    bool percent = type == '%', plain = type == 0;
    int64_t precision = f->precision >= 0 ? f->precision : 6;
    char *text = repr;
    double value = fabs(percent ? d * 100 : d);
    if (plain && f->precision < 0) {
        ax_jreal_repr(value, repr);
    } else {
        size_t n = 1;
        if (f->alternate) {
            format[n++] = '#';
        }
        format[n++] = '.';
        format[n++] = '*';
        format[n] = percent ? 'f' : plain ? 'g' : type;
        size_t room = 400 + (size_t)precision;
        AX_TRY(ax_jarena_alloc(&vm->arena, &text, room, 1));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int len = snprintf(text, room - 4, format, (int)precision, value);
#pragma GCC diagnostic pop
        if (plain && isfinite(value) && strpbrk(text, ".e") == NULL) {
            finish_plain(text, len, precision, value);
        } else if (percent) {
            memcpy(text + len, "%", 2);
        }
    }
    size_t whole = strspn(text, "0123456789");
    return put_number(vm, f, sign_text(f, signbit(d) != 0 && !isnan(d)), text, whole, text + whole);
}

enum ax_status ax_jval_put_ascii(struct ax_jvm *vm, struct ax_jval v) {
    struct ax_jcapture c = ax_jvm_capture(vm);
    struct ax_jstr *s;
    AX_TRY(ax_jval_put_repr(vm, v));
    AX_TRY(ax_jvm_take(vm, c, &s));
    for (size_t p = 0; p < s->len;) {
        uint32_t ch = ax_python_next(s->data, &p);
        AX_TRY(ch < 0x80 ? ax_jvm_put_char(vm, ch)
                         : ax_jvm_putf(vm,
                                       ch < 0x100     ? "\\x%02x"
                                       : ch < 0x10000 ? "\\u%04x"
                                                      : "\\U%08x",
                                       (unsigned)ch));
    }
    return AX_OK;
}
