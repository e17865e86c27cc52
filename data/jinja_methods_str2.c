/* Methods of str that ask about characters, pad, and format. */
#include <string.h>

#include "data/jinja_builtin.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

/* ---- questions ---- */

/* Is the text not empty and every character of the class? */
static enum ax_status all(struct ax_jvm *vm, const struct ax_jcall *call, bool (*is)(uint32_t c),
                          bool of_empty, struct ax_jval *out) {
    const struct ax_jstr *s = call->self.str;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    bool holds = s->len > 0 || of_empty;
    for (size_t p = 0; p < s->len && holds;) {
        holds = is(ax_python_next(s->data, &p));
    }
    *out = ax_jbool(holds);
    return AX_OK;
}

static bool is_ascii(uint32_t c) {
    return c < 0x80;
}

#define QUESTION(method, is, of_empty)                                                             \
    static enum ax_status method(struct ax_jvm *vm, const struct ax_jcall *c,                      \
                                 struct ax_jval *out) {                                            \
        return all(vm, c, is, of_empty, out);                                                      \
    }

QUESTION(str_isalpha, ax_python_is_alpha, false)
QUESTION(str_isalnum, ax_python_is_alnum, false)
QUESTION(str_isdecimal, ax_python_is_decimal, false)
QUESTION(str_isdigit, ax_python_is_digit, false)
QUESTION(str_isnumeric, ax_python_is_numeric, false)
QUESTION(str_isspace, ax_python_is_space, false)
QUESTION(str_isprintable, ax_python_is_printable, true)
QUESTION(str_isascii, is_ascii, true)

/* Letters of one case and none of the other. */
bool ax_jtext_is_case(const struct ax_jstr *s, bool upper) {
    bool any = false;
    for (size_t p = 0; p < s->len;) {
        uint32_t c = ax_python_next(s->data, &p);
        if (ax_python_is_title(c) || (upper ? ax_python_is_lower(c) : ax_python_is_upper(c))) {
            return false;
        }
        any = any || (upper ? ax_python_is_upper(c) : ax_python_is_lower(c));
    }
    return any;
}

static enum ax_status str_islower(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    *out = ax_jbool(ax_jtext_is_case(call->self.str, false));
    return ax_jvm_charge(vm, call->self.str->len / 16);
}

static enum ax_status str_isupper(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    *out = ax_jbool(ax_jtext_is_case(call->self.str, true));
    return ax_jvm_charge(vm, call->self.str->len / 16);
}

static enum ax_status str_istitle(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    const struct ax_jstr *s = call->self.str;
    bool any = false, in_word = false, holds = true;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    for (size_t p = 0; p < s->len && holds;) {
        uint32_t c = ax_python_next(s->data, &p);
        if (ax_python_is_upper(c) || ax_python_is_title(c)) {
            holds = !in_word;
            any = in_word = true;
        } else if (ax_python_is_lower(c)) {
            holds = in_word;
            any = true;
        } else {
            in_word = false;
        }
    }
    *out = ax_jbool(holds && any);
    return ax_jvm_charge(vm, s->len / 16);
}

static enum ax_status str_isidentifier(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    const struct ax_jstr *s = call->self.str;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    bool holds = s->len > 0;
    for (size_t p = 0; p < s->len && holds;) {
        bool first = p == 0;
        uint32_t c = ax_python_next(s->data, &p);
        holds = first ? ax_python_is_id_start(c) : ax_python_is_id_part(c);
    }
    *out = ax_jbool(holds);
    return ax_jvm_charge(vm, s->len / 16);
}

/* ---- padding ---- */

static enum ax_status pad(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jsides sides,
                          struct ax_jval *out) {
    struct ax_jstr space = {.data = " ", .len = 1, .chars = 1}, *fill = &space, *s = NULL;
    int64_t width = 0;
    AX_TRY(ax_jcall_count(vm, call, 1, 2));
    AX_TRY(ax_jarg_int(vm, call, "the width", call->args[0], &width));
    if (call->n_args == 2) {
        AX_TRY(ax_jarg_str(vm, call, "the fill character", call->args[1], &fill));
        if (ax_jstr_chars(fill) != 1) {
            return ax_jvm_error(vm, "%s: the fill must be one character", call->name);
        }
    }
    AX_TRY(ax_jtext_center(vm, call->self.str, width, fill, sides, &s));
    *out = ax_jstring(s);
    return AX_OK;
}

static enum ax_status str_center(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return pad(vm, c, AX_JBOTH, out);
}

static enum ax_status str_ljust(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return pad(vm, c, AX_JRIGHT, out);
}

static enum ax_status str_rjust(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return pad(vm, c, AX_JLEFT, out);
}

static enum ax_status str_zfill(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    struct ax_jstr zero = {.data = "0", .len = 1, .chars = 1}, *s = call->self.str, *sign, *rest;
    int64_t width = 0;
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    AX_TRY(ax_jarg_int(vm, call, "the width", call->args[0], &width));
    size_t n = s->len > 0 && (s->data[0] == '-' || s->data[0] == '+');
    AX_TRY(ax_jstr_slice(&vm->arena, &sign, s, 0, n));
    AX_TRY(ax_jstr_slice(&vm->arena, &rest, s, n, s->len));
    AX_TRY(ax_jtext_center(vm, rest, width - (int64_t)n, &zero, AX_JLEFT, &rest));
    out->kind = AX_JSTR;
    AX_TRY(ax_jstr_concat(&vm->arena, &out->str, sign, rest));
    out->str->markup = s->markup;
    return AX_OK;
}

static enum ax_status str_expandtabs(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    static const char *const params[] = {"tabsize"};
    struct ax_jval v;
    const struct ax_jstr *s = call->self.str;
    int64_t size = 8, column = 0;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 0, &v));
    AX_TRY(ax_jarg_int(vm, call, "tabsize", v, &size));
    struct ax_jcapture c = ax_jvm_capture(vm);
    for (size_t p = 0; p < s->len;) {
        size_t start = p;
        uint32_t ch = ax_python_next(s->data, &p);
        AX_TRY(ax_jvm_charge(vm, 1));
        if (ch != '\t') {
            AX_TRY(ax_jvm_put(vm, s->data + start, p - start));
            column = ch == '\n' || ch == '\r' ? 0 : column + 1;
            continue;
        }
        for (int64_t n = size > 0 ? size - column % size : 0; n > 0; n--, column++) {
            AX_TRY(ax_jvm_charge(vm, 1));
            AX_TRY(ax_jvm_puts(vm, " "));
        }
    }
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->markup = s->markup;
    return AX_OK;
}

/* ---- formatting ---- */

static enum ax_status str_format(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    return ax_jformat_braces(vm, call->self.str, call, out);
}

static enum ax_status str_format_map(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    if (call->args[0].kind != AX_JDICT) {
        return ax_jvm_error(vm, "format_map needs a dict, not a %s", ax_jval_type(call->args[0]));
    }
    const struct ax_jdict *d = call->args[0].dict;
    struct ax_jkwarg *kwargs;
    struct ax_jcall inner = {.name = call->name, .self = call->self};
    AX_TRY(ax_jarena_alloc(&vm->arena, &kwargs, d->n, sizeof *kwargs));
    for (size_t i = 0; i < d->n; i++) {
        if (d->pairs[i].key.kind == AX_JSTR) {
            kwargs[inner.n_kwargs++] = (struct ax_jkwarg){d->pairs[i].key.str, d->pairs[i].value};
        }
    }
    inner.kwargs = kwargs;
    return ax_jformat_braces(vm, call->self.str, &inner, out);
}

const struct ax_jbuiltin ax_jstr_more_methods[] = {
    {"format", str_format},
    {"format_map", str_format_map},
    {"isdigit", str_isdigit},
    {"isalpha", str_isalpha},
    {"isalnum", str_isalnum},
    {"isdecimal", str_isdecimal},
    {"isnumeric", str_isnumeric},
    {"isspace", str_isspace},
    {"isprintable", str_isprintable},
    {"isascii", str_isascii},
    {"islower", str_islower},
    {"isupper", str_isupper},
    {"istitle", str_istitle},
    {"isidentifier", str_isidentifier},
    {"center", str_center},
    {"ljust", str_ljust},
    {"rjust", str_rjust},
    {"zfill", str_zfill},
    {"expandtabs", str_expandtabs},
    {NULL, NULL},
};
