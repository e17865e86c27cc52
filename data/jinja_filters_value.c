/* Filters on single values: default, tojson, numbers, attr. */
#include <math.h>

#include "data/jinja_big.h"
#include "data/jinja_builtin.h"
#include "data/jinja_number.h"

static enum ax_status filter_default(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    static const char *const params[] = {"default_value", "boolean"};
    struct ax_jval v[2];
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    if (call->self.kind != AX_JUNDEFINED &&
        (!ax_jarg_truth(v[1], false) || ax_jval_truth(call->self))) {
        *out = call->self;
        return AX_OK;
    }
    *out = v[0];
    return v[0].kind == AX_JMISSING ? ax_jval_new_str(vm, "", 0, out) : AX_OK;
}

/* ---- tojson ---- */

static enum ax_status json_indent(struct ax_jvm *vm, struct ax_jval v, struct ax_jjson *how) {
    if (v.kind == AX_JMISSING || v.kind == AX_JNONE) {
        return AX_OK;
    }
    how->pretty = true;
    if (v.kind == AX_JSTR) {
        how->indent = v.str;
        return AX_OK;
    }
    struct ax_jstr space = {.data = " ", .len = 1};
    struct ax_jval text;
    if (!ax_jval_is_int(v)) {
        return ax_jvm_error(vm, "tojson: indent must be an integer or a str, not a %s",
                            ax_jval_type(v));
    }
    AX_TRY(ax_jop_binary(vm, AX_JOP_MUL, ax_jstring(&space), v, &text));
    how->indent = text.str;
    return AX_OK;
}

static enum ax_status json_separators(struct ax_jvm *vm, struct ax_jval v, struct ax_jjson *how) {
    if (v.kind == AX_JMISSING || v.kind == AX_JNONE) {
        return AX_OK;
    }
    struct ax_jitems items;
    AX_TRY(ax_jval_items(vm, v, &items));
    if (items.n != 2 || items.items[0].kind != AX_JSTR || items.items[1].kind != AX_JSTR) {
        return ax_jvm_error(vm, "tojson: separators must be two strings");
    }
    how->item_separator = items.items[0].str;
    how->key_separator = items.items[1].str;
    return AX_OK;
}

static enum ax_status filter_tojson(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    static const char *const params[] = {"ensure_ascii", "indent", "separators", "sort_keys"};
    const struct ax_jstr comma = {.data = ",", .len = 1}, spaced = {.data = ", ", .len = 2};
    const struct ax_jstr colon = {.data = ": ", .len = 2};
    struct ax_jval v[4];
    AX_TRY(ax_jcall_bind(vm, call, params, 4, 0, v));
    struct ax_jjson how = {.ascii = ax_jarg_truth(v[0], false),
                           .sort_keys = ax_jarg_truth(v[3], false)};
    AX_TRY(json_indent(vm, v[1], &how));
    how.item_separator = how.pretty ? &comma : &spaced;
    how.key_separator = &colon;
    AX_TRY(json_separators(vm, v[2], &how));
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jval_put_json(vm, &how, call->self));
    out->kind = AX_JSTR;
    return ax_jvm_take(vm, c, &out->str);
}

/* ---- numbers ---- */

/* int(value) of Python. *valid = false where it raises TypeError or ValueError. */
static enum ax_status to_int(struct ax_jvm *vm, struct ax_jval v, int64_t base, struct ax_jval *out,
                             bool *valid) {
    *valid = true;
    switch (v.kind) {
    case AX_JBOOL:
        *out = ax_jint(v.boolean);
        return AX_OK;
    case AX_JINT:
    case AX_JBIG:
        *out = v;
        return AX_OK;
    case AX_JFLOAT:
        if (isinf(v.real)) {
            return ax_jvm_error(vm, "int: infinity is no integer");
        }
        *valid = !isnan(v.real);
        return *valid ? ax_jbig_from_double(&vm->arena, v.real, out) : AX_OK;
    case AX_JSTR:
        return ax_jnumber_parse_int(vm, v.str, base, out, valid);
    case AX_JUNDEFINED:
        return ax_jvm_undefined(vm, v);
    default:
        *valid = false;
        return AX_OK;
    }
}

static enum ax_status filter_int(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    static const char *const params[] = {"default", "base"};
    struct ax_jval v[2];
    int64_t base = 10;
    bool valid;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    AX_TRY(ax_jarg_int(vm, call, "the base", v[1], &base));
    AX_TRY(to_int(vm, call->self, base, out, &valid));
    if (!valid && call->self.kind == AX_JSTR) { /* "3.9" is 3 */
        double d;
        AX_TRY(ax_jnumber_parse_float(vm, call->self.str, &d, &valid));
        valid = valid && isfinite(d);
        if (valid) {
            return ax_jbig_from_double(&vm->arena, d, out);
        }
    }
    if (!valid) {
        *out = v[0].kind != AX_JMISSING ? v[0] : ax_jint(0);
    }
    return AX_OK;
}

static enum ax_status filter_float(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    static const char *const params[] = {"default"};
    struct ax_jval v;
    bool valid = true;
    double d = 0;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 0, &v));
    if (call->self.kind == AX_JUNDEFINED) {
        return ax_jvm_undefined(vm, call->self);
    }
    if (call->self.kind == AX_JSTR) {
        AX_TRY(ax_jnumber_parse_float(vm, call->self.str, &d, &valid));
    } else if (ax_jval_is_number(call->self)) {
        d = ax_jnumber_to_double(call->self);
        if (call->self.kind == AX_JBIG && isinf(d)) {
            return ax_jvm_error(vm, "float: the integer is too large");
        }
    } else {
        valid = false;
    }
    *out = valid ? ax_jreal(d) : v.kind != AX_JMISSING ? v : ax_jreal(0);
    return AX_OK;
}

static enum ax_status filter_abs(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    if (!ax_jval_is_number(call->self)) {
        return ax_jvm_error(vm, "abs needs a number, not a %s", ax_jval_type(call->self));
    }
    int order;
    bool negative = call->self.kind == AX_JFLOAT
                        ? signbit(call->self.real) != 0
                        : ax_jnumber_compare(call->self, ax_jint(0), &order) && order < 0;
    return ax_jop_unary(vm, negative, call->self, out);
}

static enum ax_status round_up_or_down(struct ax_jvm *vm, struct ax_jval v, int64_t digits, bool up,
                                       struct ax_jval *out) {
    struct ax_jval unit, scaled;
    AX_TRY(ax_jnumber_op(vm, AX_JOP_POW, ax_jint(10), ax_jint(digits), &unit));
    AX_TRY(ax_jnumber_op(vm, AX_JOP_MUL, v, unit, &scaled));
    if (scaled.kind == AX_JFLOAT) {
        if (!isfinite(scaled.real)) {
            return ax_jvm_error(vm, "round: the value has no integer part");
        }
        double d = up ? ceil(scaled.real) : floor(scaled.real);
        AX_TRY(ax_jbig_from_double(&vm->arena, d, &scaled));
    }
    return ax_jnumber_op(vm, AX_JOP_DIV, scaled, unit, out);
}

static enum ax_status filter_round(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    static const char *const params[] = {"precision", "method"};
    struct ax_jval v[2];
    int64_t digits = 0;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    bool to_integer = v[0].kind == AX_JNONE; /* round(x, None) */
    if (!to_integer) {
        AX_TRY(ax_jarg_int(vm, call, "the precision", v[0], &digits));
    }
    if (!ax_jval_is_number(call->self)) {
        return ax_jvm_error(vm, "round needs a number, not a %s", ax_jval_type(call->self));
    }
    if (v[1].kind == AX_JMISSING || (v[1].kind == AX_JSTR && ax_jstr_is(v[1].str, "common"))) {
        AX_TRY(ax_jnumber_round(vm, call->self, digits, out));
        if (!to_integer || out->kind != AX_JFLOAT) {
            return AX_OK;
        }
        if (!isfinite(out->real)) {
            return ax_jvm_error(vm, "round: the value has no integer part");
        }
        return ax_jbig_from_double(&vm->arena, out->real, out);
    }
    if (v[1].kind == AX_JSTR && (ax_jstr_is(v[1].str, "ceil") || ax_jstr_is(v[1].str, "floor"))) {
        return round_up_or_down(vm, call->self, digits, ax_jstr_is(v[1].str, "ceil"), out);
    }
    return ax_jvm_error(vm, "round: the method must be common, ceil or floor");
}

/* ---- attr ---- */

/* x.name without the fall back to keys. */
static enum ax_status filter_attr(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    static const char *const params[] = {"name"};
    struct ax_jval v;
    struct ax_jstr *name = NULL;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 1, &v));
    AX_TRY(ax_jarg_str(vm, call, "the name", v, &name));
    struct ax_jval of = call->self;
    struct ax_jdict *empty;
    AX_TRY(ax_jdict_new(&vm->arena, &empty));
    if (of.kind == AX_JDICT) { /* an empty dict has the attributes of every dict, and no keys */
        struct ax_jval bare = {.kind = AX_JDICT, .dict = empty};
        AX_TRY(ax_jval_getattr(vm, bare, name, out));
        return out->kind == AX_JUNDEFINED ? AX_OK : ax_jval_getattr(vm, of, name, out);
    }
    return ax_jval_getattr(vm, of, name, out);
}

const struct ax_jbuiltin ax_jfilters_value[] = {
    {"tojson", filter_tojson}, {"default", filter_default}, {"d", filter_default},
    {"int", filter_int},       {"float", filter_float},     {"abs", filter_abs},
    {"round", filter_round},   {"attr", filter_attr},       {NULL, NULL},
};
