/* Python's numbers: bool, int (64 bits here), float. Operators on all types that Python allows:
 * arithmetic, ordering, membership, length. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/unicode.h"
#include "data/text/jinja/vm.h"

/* ---- arithmetic, ordering and parsing of numbers ---- */

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

/* + - * / // % of two numbers. Ints over 64 bits are an error. */
static enum ax_status number_op(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a,
                                struct ax_jval b, struct ax_jval *out) {
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
        if (c >= 0x80 && ax_python_is_decimal(c))
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

static enum ax_status bad_operands(struct ax_jvm *vm, const char *op, struct ax_jval a,
                                   struct ax_jval b) {
    if (a.kind == AX_JUNDEFINED || b.kind == AX_JUNDEFINED)
        return ax_jvm_undefined(vm, a.kind == AX_JUNDEFINED ? a : b);
    return ax_jvm_error(vm, "'%s' does not work between a %s and a %s", op, ax_jval_type(a),
                        ax_jval_type(b));
}

/* ---- + of any type ---- */

static enum ax_status add_strings(struct ax_jvm *vm, struct ax_jstr *a, struct ax_jstr *b,
                                  struct ax_jval *out) {
    if (a->safe != b->safe) { /* Jinja would escape < in the other string as &lt; */
        return ax_jvm_error(
            vm, "'+' between the result of |safe and a str is not supported: remove |safe");
    }
    AX_TRY(ax_jvm_charge(vm, (a->len + b->len) / 64));
    out->kind = AX_JSTR;
    AX_TRY(ax_jstr_concat(&vm->arena, &out->str, a, b));
    out->str->safe = a->safe;
    return AX_OK;
}

static enum ax_status add_lists(struct ax_jvm *vm, struct ax_jval a, struct ax_jval b,
                                struct ax_jval *out) {
    size_t n = a.list->n + b.list->n;
    struct ax_jval *items;
    AX_TRY(ax_jvm_charge(vm, n));
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, n, sizeof *items));
    if (a.list->n > 0)
        memcpy(items, a.list->items, a.list->n * sizeof *items);
    if (b.list->n > 0)
        memcpy(items + a.list->n, b.list->items, b.list->n * sizeof *items);
    return ax_jlist_wrap(&vm->arena, a.kind, items, n, out);
}

/* ---- * of any type ---- */

static enum ax_status repeat(struct ax_jvm *vm, struct ax_jval v, int64_t times,
                             struct ax_jval *out) {
    size_t unit = v.kind == AX_JSTR ? v.str->len : v.list->n;
    size_t n = times > 0 ? (size_t)times : 0, total;
    if (unit == 0)
        n = 0;
    if (ax_mul_overflow(n, unit, &total))
        total = SIZE_MAX;
    AX_TRY(ax_jvm_charge(vm, v.kind == AX_JSTR ? total / 64 : total));
    if (v.kind == AX_JSTR) {
        char *data;
        AX_TRY(ax_jarena_alloc(&vm->arena, &data, total, 1));
        for (size_t i = 0; i < n; i++)
            memcpy(data + i * unit, v.str->data, unit);
        out->kind = AX_JSTR;
        AX_TRY(ax_jstr_borrow(&vm->arena, &out->str, data, total));
        out->str->safe = v.str->safe;
        return AX_OK;
    }
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, total, sizeof *items));
    for (size_t i = 0; i < n; i++)
        memcpy(items + i * unit, v.list->items, unit * sizeof *items);
    return ax_jlist_wrap(&vm->arena, v.kind, items, total, out);
}

static bool is_sequence(struct ax_jval v) {
    return v.kind == AX_JSTR || v.kind == AX_JLIST || v.kind == AX_JTUPLE;
}

enum ax_status ax_jop_binary(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                             struct ax_jval *out) {
    if (op == AX_JOP_TILDE) {
        struct ax_jstr *left, *right;
        AX_TRY(ax_jval_to_str(vm, a, &left));
        AX_TRY(ax_jval_to_str(vm, b, &right));
        AX_TRY(ax_jvm_charge(vm, (left->len + right->len) / 64));
        out->kind = AX_JSTR;
        return ax_jstr_concat(&vm->arena, &out->str, left, right);
    }
    if (ax_jval_is_number(a) && ax_jval_is_number(b))
        return number_op(vm, op, a, b, out);
    if (op == AX_JOP_ADD && a.kind == b.kind) {
        if (a.kind == AX_JSTR)
            return add_strings(vm, a.str, b.str, out);
        if (a.kind == AX_JLIST || a.kind == AX_JTUPLE)
            return add_lists(vm, a, b, out);
    }
    if (op == AX_JOP_MUL) {
        if (is_sequence(a) && ax_jval_is_int(b))
            return repeat(vm, a, ax_jval_int(b), out);
        if (is_sequence(b) && ax_jval_is_int(a))
            return repeat(vm, b, ax_jval_int(a), out);
    }
    if (op == AX_JOP_MOD && a.kind == AX_JSTR)
        return ax_jvm_error(vm, "%% on a str is not supported: use ~ to concatenate text");
    return bad_operands(vm, ax_jop_text(op), a, b);
}

enum ax_status ax_jop_unary(struct ax_jvm *vm, bool minus, struct ax_jval v, struct ax_jval *out) {
    if (v.kind == AX_JUNDEFINED)
        return ax_jvm_undefined(vm, v);
    if (!ax_jval_is_number(v))
        return ax_jvm_error(vm, "'%s' does not work on a %s", minus ? "-" : "+", ax_jval_type(v));
    if (minus) {
        return number_op(vm, v.kind == AX_JFLOAT ? AX_JOP_MUL : AX_JOP_SUB,
                         v.kind == AX_JFLOAT ? ax_jreal(-1) : ax_jint(0), v, out);
    }
    *out = v.kind == AX_JBOOL ? ax_jint(v.boolean) : v;
    return AX_OK;
}

/* ---- order ---- */

static bool holds(enum ax_jop op, int order) {
    switch (op) {
    case AX_JOP_LT:
        return order < 0;
    case AX_JOP_LE:
        return order <= 0;
    case AX_JOP_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

/* By code point. */
static int compare_strings(const struct ax_jstr *a, const struct ax_jstr *b) {
    size_t n = a->len < b->len ? a->len : b->len;
    int c = n > 0 ? memcmp(a->data, b->data, n) : 0; /* UTF-8 keeps the order of code points */
    return c != 0 ? c : (a->len > b->len) - (a->len < b->len);
}

/* Bytes of the texts in a list or dict, which its weight leaves out as they may grow. */
static size_t bytes_in(struct ax_jval v) {
    size_t n = 0;
    for (size_t i = 0; ax_jval_is_list(v) && i < v.list->n; i++) {
        const struct ax_jval item = v.list->items[i];
        n += item.kind == AX_JSTR ? item.str->len : bytes_in(item);
    }
    for (size_t i = 0; v.kind == AX_JDICT && i < v.dict->n; i++) {
        const struct ax_jpair *p = &v.dict->pairs[i];
        n += p->value.kind == AX_JSTR ? p->value.str->len : bytes_in(p->value);
    }
    return n;
}

enum ax_status ax_jop_equal(struct ax_jvm *vm, struct ax_jval a, struct ax_jval b, bool *out) {
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(a)));
    AX_TRY(ax_jvm_charge(vm, bytes_in(a) / 64));
    *out = ax_jval_equal(a, b);
    return AX_OK;
}

/* Lists compare by their first unequal items, else by length. */
static enum ax_status compare_lists(struct ax_jvm *vm, enum ax_jop op, const struct ax_jlist *a,
                                    const struct ax_jlist *b, bool *out) {
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        AX_TRY(ax_jop_equal(vm, a->items[i], b->items[i], &same));
        if (!same)
            return ax_jop_compare(vm, op, a->items[i], b->items[i], out);
    }
    *out = holds(op, (a->n > b->n) - (a->n < b->n));
    return AX_OK;
}

enum ax_status ax_jop_compare(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                              bool *out) {
    if (op == AX_JOP_IN || op == AX_JOP_NOT_IN) {
        AX_TRY(ax_jop_in(vm, a, b, out));
        *out = *out == (op == AX_JOP_IN);
        return AX_OK;
    }
    if (op == AX_JOP_EQ || op == AX_JOP_NE) {
        AX_TRY(ax_jop_equal(vm, a, b, out));
        *out = *out == (op == AX_JOP_EQ);
        return AX_OK;
    }
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(a)));
    if (ax_jval_is_number(a) && ax_jval_is_number(b)) {
        int order;
        *out = ax_jnumber_compare(a, b, &order) && holds(op, order);
        return AX_OK;
    }
    if (a.kind == b.kind && a.kind == AX_JSTR) {
        *out = holds(op, compare_strings(a.str, b.str));
        return AX_OK;
    }
    if (a.kind == b.kind && (a.kind == AX_JLIST || a.kind == AX_JTUPLE))
        return compare_lists(vm, op, a.list, b.list, out);
    return bad_operands(vm, ax_jop_text(op), a, b);
}

/* ---- membership ---- */

static enum ax_status in_items(struct ax_jvm *vm, struct ax_jval item, struct ax_jval in,
                               bool *out) {
    struct ax_jitems items;
    AX_TRY(ax_jval_items(vm, in, &items));
    *out = false;
    for (size_t i = 0; i < items.n && !*out; i++) {
        AX_TRY(ax_jop_equal(vm, item, items.items[i], out));
        if (*out && in.kind == AX_JITER) { /* the iterator keeps the items after the match */
            in.list->items = items.items + i + 1;
            in.list->n = items.n - i - 1;
        }
    }
    return AX_OK;
}

static enum ax_status in_dict(struct ax_jvm *vm, struct ax_jval key, const struct ax_jdict *d,
                              bool *out) {
    uint32_t h;
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(key)));
    if (!ax_jval_hash(key, &h))
        return ax_jvm_error(vm, "a %s cannot be a key", ax_jval_type(key));
    *out = ax_jdict_get(d, key) != NULL;
    return AX_OK;
}

enum ax_status ax_jop_in(struct ax_jvm *vm, struct ax_jval item, struct ax_jval in, bool *out) {
    switch (in.kind) {
    case AX_JSTR:
        if (item.kind != AX_JSTR) {
            return ax_jvm_error(vm, "'in' with a str needs a str on its left, not a %s",
                                ax_jval_type(item));
        }
        AX_TRY(ax_jvm_charge(vm, in.str->len / 64));
        *out = ax_jstr_find(in.str, item.str, 0) != SIZE_MAX;
        return AX_OK;
    case AX_JDICT:
        return in_dict(vm, item, in.dict, out);
    default:
        if (!ax_jval_is_iterable(in))
            return ax_jvm_error(vm, "'in' does not work on a %s", ax_jval_type(in));
        return in_items(vm, item, in, out);
    }
}

/* ---- length ---- */

enum ax_status ax_jval_length(struct ax_jvm *vm, struct ax_jval v, size_t *n) {
    switch (v.kind) {
    case AX_JUNDEFINED:
        *n = 0;
        return AX_OK;
    case AX_JSTR:
        AX_TRY(ax_jvm_charge(vm, v.str->chars == AX_JUNCOUNTED ? v.str->len / 64 : 0));
        *n = ax_jstr_chars(v.str);
        return AX_OK;
    case AX_JLIST:
    case AX_JTUPLE:
    case AX_JVIEW:
        *n = v.list->n;
        return AX_OK;
    case AX_JDICT:
        *n = v.dict->n;
        return AX_OK;
    case AX_JRANGE:
        *n = (size_t)v.range->n;
        return AX_OK;
    default:
        return ax_jvm_error(vm, "a %s has no length%s", ax_jval_type(v),
                            v.kind == AX_JITER ? ": apply |list first" : "");
    }
}

/* ---- sorting ---- */

/* Python compares lists with ==, so equal keys need no order. */
static enum ax_status is_less(struct ax_jvm *vm, struct ax_jval a, struct ax_jval b, bool *out) {
    bool same;
    AX_TRY(ax_jop_equal(vm, a, b, &same));
    *out = false;
    return same ? AX_OK : ax_jop_compare(vm, AX_JOP_LT, a, b, out);
}

/* Merges the sorted halves of order[0..n) through `spare`. */
static enum ax_status merge(struct ax_jvm *vm, const struct ax_jval *keys, size_t *order,
                            size_t *spare, size_t half, size_t n) {
    size_t i = 0, k = half, at = 0;
    memcpy(spare, order, n * sizeof *order);
    while (i < half && k < n) {
        bool less;
        AX_TRY(is_less(vm, keys[spare[k]], keys[spare[i]], &less));
        order[at++] = less ? spare[k++] : spare[i++];
    }
    while (i < half)
        order[at++] = spare[i++];
    while (k < n)
        order[at++] = spare[k++];
    return AX_OK;
}

enum ax_status ax_jsort(struct ax_jvm *vm, struct ax_jval *items, struct ax_jval *keys, size_t n,
                        bool reverse) {
    size_t *order, *spare;
    struct ax_jval *sorted;
    AX_TRY(ax_jarena_alloc(&vm->arena, &order, n, sizeof *order));
    AX_TRY(ax_jarena_alloc(&vm->arena, &spare, n, sizeof *spare));
    AX_TRY(ax_jarena_alloc(&vm->arena, &sorted, n, sizeof *sorted));
    for (size_t i = 0; i < n; i++) /* reversed twice, equal items keep their order */
        order[i] = reverse ? n - 1 - i : i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t i = 0; i + width < n; i += 2 * width) {
            size_t m = n - i < 2 * width ? n - i : 2 * width;
            AX_TRY(merge(vm, keys, order + i, spare, width, m));
        }
    }
    for (size_t i = 0; i < n; i++)
        sorted[i] = items[order[reverse ? n - 1 - i : i]];
    if (n > 0)
        memcpy(items, sorted, n * sizeof *items);
    return AX_OK;
}
