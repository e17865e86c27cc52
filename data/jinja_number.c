/* Arithmetic of jinja_number.h. Small ints first; what overflows goes to jinja_big.c. */
#include "data/jinja_number.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/jinja_big.h"

double ax_jnumber_to_double(struct ax_jval v) {
    return v.kind == AX_JFLOAT ? v.real
           : v.kind == AX_JBIG ? ax_jbig_to_double(v)
                               : (double)ax_jval_int(v);
}

/* Compares an int with a float that is not NaN. */
static int compare_int_float(struct ax_jval i, double d) {
    if (isinf(d)) {
        return d < 0 ? 1 : -1;
    }
    return ax_jbig_compare_double(i, d);
}

bool ax_jnumber_compare(struct ax_jval a, struct ax_jval b, int *order) {
    if (a.kind == AX_JFLOAT && b.kind == AX_JFLOAT) {
        *order = (a.real > b.real) - (a.real < b.real);
        return !isnan(a.real) && !isnan(b.real);
    }
    if (a.kind == AX_JFLOAT) {
        *order = isnan(a.real) ? 0 : -compare_int_float(b, a.real);
        return !isnan(a.real);
    }
    if (b.kind == AX_JFLOAT) {
        *order = isnan(b.real) ? 0 : compare_int_float(a, b.real);
        return !isnan(b.real);
    }
    if (a.kind == AX_JBIG || b.kind == AX_JBIG) {
        *order = ax_jbig_compare(a, b);
        return true;
    }
    int64_t x = ax_jval_int(a), y = ax_jval_int(b);
    *order = (x > y) - (x < y);
    return true;
}

static bool is_zero(struct ax_jval v) {
    return v.kind == AX_JFLOAT ? v.real == 0 : v.kind != AX_JBIG && ax_jval_int(v) == 0;
}

/* An operand as a double; an int beyond the range is an error, as in Python. */
static enum ax_status as_double(struct ax_jvm *vm, struct ax_jval v, double *out) {
    *out = ax_jnumber_to_double(v);
    if (v.kind == AX_JBIG && isinf(*out)) {
        return ax_jvm_error(vm, "an int is too large for a float");
    }
    return AX_OK;
}

static double float_mod(double x, double y) {
    double m = fmod(x, y);
    if (m == 0) {
        return copysign(0, y);
    }
    return (m < 0) != (y < 0) ? m + y : m;
}

static double float_floordiv(double x, double y) {
    double m = fmod(x, y);
    double q = (x - m) / y;
    if (m != 0 && (m < 0) != (y < 0)) {
        q -= 1;
    }
    if (q == 0) {
        return copysign(0, x / y);
    }
    double f = floor(q);
    return q - f > 0.5 ? f + 1 : f;
}

static enum ax_status float_pow(struct ax_jvm *vm, double x, double y, struct ax_jval *out) {
    if (x == 0 && y < 0) {
        return ax_jvm_error(vm, "0.0 to a negative power");
    }
    if (x < 0 && isfinite(x) && isfinite(y) && y != floor(y)) {
        return ax_jvm_error(vm, "a negative number to a fractional power is complex");
    }
    double r = pow(x, y);
    if (isinf(r) && isfinite(x) && isfinite(y)) {
        return ax_jvm_error(vm, "the power is too large for a float");
    }
    *out = ax_jreal(r);
    return AX_OK;
}

static enum ax_status float_op(struct ax_jvm *vm, enum ax_jop op, double x, double y,
                               struct ax_jval *out) {
    switch (op) {
    case AX_JOP_ADD:
        *out = ax_jreal(x + y);
        return AX_OK;
    case AX_JOP_SUB:
        *out = ax_jreal(x - y);
        return AX_OK;
    case AX_JOP_MUL:
        *out = ax_jreal(x * y);
        return AX_OK;
    case AX_JOP_DIV:
        *out = ax_jreal(x / y);
        return AX_OK;
    case AX_JOP_FLOORDIV:
        *out = ax_jreal(float_floordiv(x, y));
        return AX_OK;
    case AX_JOP_MOD:
        *out = ax_jreal(float_mod(x, y));
        return AX_OK;
    default:
        return float_pow(vm, x, y, out);
    }
}

/* x / y of two ints. What a double holds exactly is divided as doubles. */
static enum ax_status true_divide(struct ax_jvm *vm, struct ax_jval a, struct ax_jval b,
                                  struct ax_jval *out) {
    const int64_t exact = (int64_t)1 << 53;
    if (a.kind != AX_JBIG && b.kind != AX_JBIG && llabs(ax_jval_int(a) / 2) < exact / 2 &&
        llabs(ax_jval_int(b) / 2) < exact / 2) {
        *out = ax_jreal((double)ax_jval_int(a) / (double)ax_jval_int(b));
        return AX_OK;
    }
    double d;
    AX_TRY(ax_jvm_charge(vm, 4096));
    AX_TRY(ax_jbig_divide(&vm->arena, a, b, &d));
    *out = ax_jreal(d);
    return isinf(d) ? ax_jvm_error(vm, "the quotient is too large for a float") : AX_OK;
}

static enum ax_status int_pow(struct ax_jvm *vm, struct ax_jval base, struct ax_jval exponent,
                              struct ax_jval *out) {
    int order;
    ax_jnumber_compare(exponent, ax_jint(0), &order);
    if (order < 0) {
        double x, y;
        AX_TRY(as_double(vm, base, &x));
        AX_TRY(as_double(vm, exponent, &y));
        return float_pow(vm, x, y, out);
    }
    struct ax_jval r = ax_jint(1);
    if (exponent.kind == AX_JBIG) {
        return ax_jvm_error(vm, "the power is too large");
    }
    uint64_t e = (uint64_t)ax_jval_int(exponent);
    if (base.kind != AX_JBIG && ax_jval_int(base) >= -1 && ax_jval_int(base) <= 1) {
        e = e == 0 ? 0 : 2 - (e & 1); /* only the parity matters */
    }
    while (e > 0) {
        AX_TRY(ax_jvm_charge(vm, 1 + (r.kind == AX_JBIG ? r.big->n : 0)));
        if ((e & 1) != 0) {
            AX_TRY(ax_jbig_mul(&vm->arena, r, base, &r));
        }
        e >>= 1;
        if (e > 0) {
            AX_TRY(ax_jbig_mul(&vm->arena, base, base, &base));
        }
    }
    *out = r;
    return AX_OK;
}

static enum ax_status int_divide(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a,
                                 struct ax_jval b, struct ax_jval *out) {
    int64_t x = a.kind == AX_JBIG ? 0 : ax_jval_int(a), y = b.kind == AX_JBIG ? 0 : ax_jval_int(b);
    if (a.kind == AX_JBIG || b.kind == AX_JBIG || (x == INT64_MIN && y == -1)) {
        struct ax_jval q, r;
        AX_TRY(ax_jvm_charge(vm, 64 + (a.kind == AX_JBIG ? a.big->n * a.big->n : 0)));
        AX_TRY(ax_jbig_divmod(&vm->arena, a, b, &q, &r));
        *out = op == AX_JOP_MOD ? r : q;
        return AX_OK;
    }
    int64_t q = x / y, r = x % y;
    if (r != 0 && (r < 0) != (y < 0)) {
        q--;
        r += y;
    }
    *out = ax_jint(op == AX_JOP_MOD ? r : q);
    return AX_OK;
}

static enum ax_status int_op(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                             struct ax_jval *out) {
    bool small = a.kind != AX_JBIG && b.kind != AX_JBIG;
    int64_t x = small ? ax_jval_int(a) : 0, y = small ? ax_jval_int(b) : 0, r;
    switch (op) {
    case AX_JOP_ADD:
        if (small && !__builtin_add_overflow(x, y, &r)) {
            *out = ax_jint(r);
            return AX_OK;
        }
        AX_TRY(ax_jvm_charge(vm, 128));
        return ax_jbig_add(&vm->arena, a, b, out);
    case AX_JOP_SUB:
        if (small && !__builtin_sub_overflow(x, y, &r)) {
            *out = ax_jint(r);
            return AX_OK;
        }
        AX_TRY(ax_jvm_charge(vm, 128));
        return ax_jbig_sub(&vm->arena, a, b, out);
    case AX_JOP_MUL:
        if (small && !__builtin_mul_overflow(x, y, &r)) {
            *out = ax_jint(r);
            return AX_OK;
        }
        AX_TRY(ax_jvm_charge(vm, small ? 1 : 65536));
        return ax_jbig_mul(&vm->arena, a, b, out);
    case AX_JOP_DIV:
        return true_divide(vm, a, b, out);
    case AX_JOP_POW:
        return int_pow(vm, a, b, out);
    default:
        return int_divide(vm, op, a, b, out);
    }
}

enum ax_status ax_jnumber_op(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                             struct ax_jval *out) {
    if ((op == AX_JOP_DIV || op == AX_JOP_FLOORDIV || op == AX_JOP_MOD) && is_zero(b)) {
        return ax_jvm_error(vm, "division by zero");
    }
    if (a.kind != AX_JFLOAT && b.kind != AX_JFLOAT) {
        return int_op(vm, op, a, b, out);
    }
    double x, y;
    AX_TRY(as_double(vm, a, &x));
    AX_TRY(as_double(vm, b, &y));
    return float_op(vm, op, x, y, out);
}

enum ax_status ax_jnumber_negate(struct ax_jvm *vm, struct ax_jval v, struct ax_jval *out) {
    if (v.kind == AX_JFLOAT) {
        *out = ax_jreal(-v.real);
        return AX_OK;
    }
    return int_op(vm, AX_JOP_SUB, ax_jint(0), v, out);
}

/* ---- rounding ---- */

/* A float to `digits` decimals: printf rounds the exact binary value half to even. */
static enum ax_status round_float(struct ax_jvm *vm, double d, int64_t digits,
                                  struct ax_jval *out) {
    if (!isfinite(d) || d == 0 || digits > 330) {
        *out = ax_jreal(d);
        return AX_OK;
    }
    if (digits < -310) {
        *out = ax_jreal(copysign(0, d));
        return AX_OK;
    }
    char text[768];
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)digits, d);
        *out = ax_jreal(strtod(text, NULL));
        return AX_OK;
    }
    double unit = pow(10, (double)-digits);
    double scaled = d / unit; /* exact enough: |digits| decimals left of the point are integers */
    double r = nearbyint(scaled) * unit;
    if (isinf(r)) {
        return ax_jvm_error(vm, "the rounded value is too large");
    }
    *out = ax_jreal(r);
    return AX_OK;
}

enum ax_status ax_jnumber_round(struct ax_jvm *vm, struct ax_jval v, int64_t digits,
                                struct ax_jval *out) {
    if (v.kind == AX_JFLOAT) {
        return round_float(vm, v.real, digits, out);
    }
    *out = v.kind == AX_JBOOL ? ax_jint(v.boolean) : v;
    if (digits >= 0) {
        return AX_OK;
    }
    struct ax_jval unit, q, r, twice;
    AX_TRY(int_pow(vm, ax_jint(10), ax_jint(digits < -4000 ? 4000 : -digits), &unit));
    AX_TRY(ax_jbig_divmod(&vm->arena, *out, unit, &q, &r));
    AX_TRY(ax_jbig_add(&vm->arena, r, r, &twice));
    int order = ax_jbig_compare(twice, unit);
    struct ax_jval half, odd;
    AX_TRY(ax_jbig_divmod(&vm->arena, q, ax_jint(2), &half, &odd));
    if (order > 0 || (order == 0 && odd.integer != 0)) {
        AX_TRY(ax_jbig_add(&vm->arena, q, ax_jint(1), &q));
    }
    return ax_jbig_mul(&vm->arena, q, unit, out);
}
