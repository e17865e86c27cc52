/* Python's numbers: bool, int (64 bits here), float. Arithmetic, ordering, parsing. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/text/jinja/unicode.h"
#include "data/text/jinja/vm.h"

#define too_large(vm) ax_jvm_error((vm), "an integer of more than 64 bits is not supported")

double ax_jnumber_to_double(struct ax_jval v) {
    return v.kind == AX_JFLOAT ? v.real : (double)ax_jval_int(v);
}

/* Compares an int with a float that is not NaN, exactly even if a double cannot hold the int. */
static int compare_int_float(int64_t i, double d) {
    if (d >= 0x1p63 || d < -0x1p63)
        return d > 0 ? -1 : 1;
    const int64_t whole = (int64_t)d; /* toward zero */
    const double rest = d - (double)whole;
    return i != whole ? (i > whole) - (i < whole) : (rest < 0) - (rest > 0);
}

bool ax_jnumber_compare(struct ax_jval a, struct ax_jval b, int *order) {
    *order = 0;
    if ((a.kind == AX_JFLOAT && isnan(a.real)) || (b.kind == AX_JFLOAT && isnan(b.real)))
        return false;
    if (a.kind == AX_JFLOAT && b.kind == AX_JFLOAT) {
        *order = (a.real > b.real) - (a.real < b.real);
    } else if (a.kind == AX_JFLOAT) {
        *order = -compare_int_float(ax_jval_int(b), a.real);
    } else if (b.kind == AX_JFLOAT) {
        *order = compare_int_float(ax_jval_int(a), b.real);
    } else {
        const int64_t x = ax_jval_int(a), y = ax_jval_int(b);
        *order = (x > y) - (x < y);
    }
    return true;
}

static double float_op(enum ax_jop op, double x, double y) {
    switch (op) {
    case AX_JOP_ADD:
        return x + y;
    case AX_JOP_SUB:
        return x - y;
    case AX_JOP_MUL:
        return x * y;
    default:
        return x / y;
    }
}

static enum ax_status int_op(struct ax_jvm *vm, enum ax_jop op, int64_t x, int64_t y,
                             struct ax_jval *out) {
    int64_t r = 0;
    bool overflow = false;
    switch (op) {
    case AX_JOP_ADD:
        overflow = __builtin_add_overflow(x, y, &r);
        break;
    case AX_JOP_SUB:
        overflow = __builtin_sub_overflow(x, y, &r);
        break;
    case AX_JOP_MUL:
        overflow = __builtin_mul_overflow(x, y, &r);
        break;
    case AX_JOP_DIV:
        *out = ax_jreal((double)((long double)x / (long double)y));
        return AX_OK;
    default: /* // and % round down */
        overflow = x == INT64_MIN && y == -1 && op == AX_JOP_FLOORDIV;
        if (!overflow && y != -1) {
            const bool down = x % y != 0 && (x % y < 0) != (y < 0);
            r = op == AX_JOP_MOD ? x % y + (down ? y : 0) : x / y - down;
        } else if (op == AX_JOP_FLOORDIV) {
            r = overflow ? 0 : -x;
        }
    }
    *out = ax_jint(r);
    return overflow ? too_large(vm) : AX_OK;
}

enum ax_status ax_jnumber_op(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                             struct ax_jval *out) {
    if ((op == AX_JOP_DIV || op == AX_JOP_FLOORDIV || op == AX_JOP_MOD) &&
        ax_jnumber_to_double(b) == 0) {
        return ax_jvm_error(vm, "division by zero");
    }
    if (a.kind != AX_JFLOAT && b.kind != AX_JFLOAT)
        return int_op(vm, op, ax_jval_int(a), ax_jval_int(b), out);
    if (op == AX_JOP_FLOORDIV || op == AX_JOP_MOD)
        return ax_jvm_error(vm, "'%s' of floats is not supported", ax_jop_text(op));
    *out = ax_jreal(float_op(op, ax_jnumber_to_double(a), ax_jnumber_to_double(b)));
    return AX_OK;
}

enum ax_status ax_jnumber_from_double(struct ax_jvm *vm, double d, struct ax_jval *out) {
    if (!(d < 0x1p63 && d >= -0x1p63))
        return isfinite(d) ? too_large(vm) : ax_jvm_error(vm, "%g is not an integer", d);
    *out = ax_jint((int64_t)d);
    return AX_OK;
}

/* True for a number in Python's spelling: an optional sign and the characters in `chars`, with
 * single underscores between digits. Copies it to `text` without the underscores. */
static bool plain_number(const char *s, size_t len, const char *chars, char *text) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        const bool between = i > 0 && i + 1 < len && s[i - 1] >= '0' && s[i - 1] <= '9' &&
                             s[i + 1] >= '0' && s[i + 1] <= '9';
        if (s[i] == '\0' || (s[i] == '_' ? !between : strchr(chars, s[i]) == NULL))
            return false;
        if (s[i] != '_')
            text[n++] = s[i];
    }
    text[n] = '\0';
    return n > 0;
}

enum ax_status ax_jnumber_parse(struct ax_jvm *vm, struct ax_jstr *s, bool real,
                                struct ax_jval *out) {
    char *text, *end;
    size_t start = 0, stop = s->len, p = 0;
    out->kind = AX_JMISSING;
    AX_TRY(ax_jvm_charge(vm, s->len));
    for (size_t at = 0; at < s->len; at = p) {
        const uint32_t c = ax_python_next(s->data, &p);
        if (c >= 0x80 && ax_python_is_digit(c))
            return ax_jvm_error(vm, "a number with non-ASCII digits is not supported");
        if (!ax_python_is_space(c))
            stop = p;
        else if (at == start)
            start = p;
    }
    AX_TRY(ax_jarena_alloc(&vm->arena, &text, s->len + 1, 1));
    if (start >= stop ||
        !plain_number(s->data + start, stop - start,
                      real ? "+-.0123456789eEinfatyINFATY" : "+-0123456789", text)) {
        return AX_OK;
    }
    if (real) {
        const double d = strtod(text, &end);
        *out = *end == '\0' ? ax_jreal(d) : *out;
        return AX_OK;
    }
    int64_t value = 0;
    const bool negative = text[0] == '-';
    const char *digit = text + (negative || text[0] == '+');
    if (*digit == '\0' || strspn(digit, "0123456789") != strlen(digit))
        return AX_OK;
    for (; *digit != '\0'; digit++) {
        const int64_t d = negative ? '0' - *digit : *digit - '0';
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, d, &value))
            return too_large(vm);
    }
    *out = ax_jint(value);
    return AX_OK;
}
