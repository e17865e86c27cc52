/* Filters on single values: default, tojson, numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "data/text/jinja/builtin.h"

static enum ax_status filter_default(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    if (call->self.kind != AX_JUNDEFINED &&
        (!ax_jarg_truth(call->v[1], false) || ax_jval_truth(call->self))) {
        *out = call->self;
        return AX_OK;
    }
    *out = call->v[0];
    return out->kind == AX_JMISSING ? ax_jval_new_str(vm, "", 0, out) : AX_OK;
}

/* ---- tojson ---- */

static enum ax_status json_indent(struct ax_jvm *vm, struct ax_jval v, struct ax_jjson *how) {
    if (v.kind == AX_JMISSING || v.kind == AX_JNONE)
        return AX_OK;
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
    if (v.kind == AX_JMISSING || v.kind == AX_JNONE)
        return AX_OK;
    struct ax_jitems items;
    AX_TRY(ax_jval_items(vm, v, &items));
    if (items.n != 2 || items.items[0].kind != AX_JSTR || items.items[1].kind != AX_JSTR)
        return ax_jvm_error(vm, "tojson: separators must be two strings");
    how->item_separator = items.items[0].str;
    how->key_separator = items.items[1].str;
    return AX_OK;
}

static enum ax_status filter_tojson(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    const struct ax_jstr comma = {.data = ",", .len = 1}, spaced = {.data = ", ", .len = 2};
    const struct ax_jstr colon = {.data = ": ", .len = 2};
    struct ax_jjson how = {.ascii = ax_jarg_truth(call->v[0], false),
                           .sort_keys = ax_jarg_truth(call->v[3], false)};
    AX_TRY(json_indent(vm, call->v[1], &how));
    how.item_separator = how.pretty ? &comma : &spaced;
    how.key_separator = &colon;
    AX_TRY(json_separators(vm, call->v[2], &how));
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jval_put_json(vm, &how, call->self));
    out->kind = AX_JSTR;
    return ax_jvm_take(vm, c, &out->str);
}

/* Not Jinja's: what tojson gives of the value that is written as JSON in a string, or of a string that is
 * none, as it is. */
static enum ax_status filter_json_text(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    const struct ax_jstr spaced = {.data = ", ", .len = 2}, colon = {.data = ": ", .len = 2};
    struct ax_jjson how = {.item_separator = &spaced, .key_separator = &colon};
    struct ax_jval v = call->self;
    json_t *parsed = NULL;
    if (v.kind == AX_JSTR)
        parsed = json_loadb(v.str->data, v.str->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    enum ax_status st = parsed ? ax_jval_from_json(vm, parsed, &v) : AX_OK;
    struct ax_jcapture c = ax_jvm_capture(vm);
    if (st == AX_OK)
        st = ax_jval_put_json(vm, &how, v);
    out->kind = AX_JSTR;
    if (st == AX_OK)
        st = ax_jvm_take(vm, c, &out->str);
    json_decref(parsed); /* what was borrowed from it is not used again */
    return st;
}

/* ---- numbers ---- */

static enum ax_status filter_int(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const struct ax_jval v = call->self;
    out->kind = AX_JMISSING;
    if (v.kind == AX_JUNDEFINED)
        return ax_jvm_undefined(vm, v);
    if (ax_jval_is_int(v)) {
        *out = ax_jint(ax_jval_int(v));
    } else if (v.kind == AX_JFLOAT && !isnan(v.real)) {
        return ax_jnumber_from_double(vm, v.real, out);
    } else if (v.kind == AX_JSTR) {
        AX_TRY(ax_jnumber_parse(vm, v.str, false, out));
        struct ax_jval real = {.kind = AX_JMISSING};
        if (out->kind == AX_JMISSING) /* "3.9" is 3 */
            AX_TRY(ax_jnumber_parse(vm, v.str, true, &real));
        if (real.kind == AX_JFLOAT && isfinite(real.real))
            return ax_jnumber_from_double(vm, real.real, out);
    }
    if (out->kind == AX_JMISSING)
        *out = call->v[0].kind != AX_JMISSING ? call->v[0] : ax_jint(0);
    return AX_OK;
}

static enum ax_status filter_float(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    out->kind = AX_JMISSING;
    if (call->self.kind == AX_JUNDEFINED)
        return ax_jvm_undefined(vm, call->self);
    if (call->self.kind == AX_JSTR)
        AX_TRY(ax_jnumber_parse(vm, call->self.str, true, out));
    else if (ax_jval_is_number(call->self))
        *out = ax_jreal(ax_jnumber_to_double(call->self));
    if (out->kind == AX_JMISSING)
        *out = call->v[0].kind != AX_JMISSING ? call->v[0] : ax_jreal(0);
    return AX_OK;
}

static enum ax_status filter_round(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    const struct ax_jval v = call->self, method = call->v[1];
    int64_t digits = 0;
    AX_TRY(ax_jarg_int(vm, call, "the precision", call->v[0], &digits));
    if (!ax_jval_is_number(v))
        return ax_jvm_error(vm, "round needs a number, not a %s", ax_jval_type(v));
    if (digits < 0 || digits > 300)
        return ax_jvm_error(vm, "round to %lld digits is not supported", (long long)digits);
    const double d = ax_jnumber_to_double(v), unit = pow(10, (double)digits);
    if (method.kind == AX_JMISSING ||
        (method.kind == AX_JSTR && ax_jstr_is(method.str, "common"))) {
        char text[768]; /* printf rounds the exact binary value half to even, as Python does */
        snprintf(text, sizeof text, "%.*f", (int)digits, d);
        *out = v.kind == AX_JFLOAT ? ax_jreal(strtod(text, NULL)) : ax_jint(ax_jval_int(v));
    } else if (method.kind == AX_JSTR && ax_jstr_is(method.str, "ceil")) {
        *out = ax_jreal(ceil(d * unit) / unit);
    } else if (method.kind == AX_JSTR && ax_jstr_is(method.str, "floor")) {
        *out = ax_jreal(floor(d * unit) / unit);
    } else {
        return ax_jvm_error(vm, "round: the method must be common, ceil or floor");
    }
    return AX_OK;
}

const struct ax_jbuiltin ax_jfilters_value[] = {
    {"tojson", filter_tojson, "ensure_ascii= indent= separators= sort_keys="},
    {"json_text", filter_json_text, ""},
    {"default", filter_default, "default_value= boolean="},
    {"d", filter_default, "default_value= boolean="},
    {"int", filter_int, "default="},
    {"float", filter_float, "default="},
    {"round", filter_round, "precision= method="},
    {NULL, NULL, NULL},
};
