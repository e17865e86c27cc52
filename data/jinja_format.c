/* "…%s…" % args, as Python does it. str.format is in jinja_format_braces.c. */
#include <math.h>
#include <string.h>

#include "data/jinja_big.h"
#include "data/jinja_number.h"
#include "data/jinja_spec.h"

struct percent {
    const struct ax_jstr *format;
    size_t p;
    struct ax_jval args;   /* as given */
    struct ax_jval single; /* value of %(key)s, or the only argument; MISSING when used up */
    size_t next;           /* of a tuple */
    bool escape;
};

static enum ax_status next_argument(struct ax_jvm *vm, struct percent *x, struct ax_jval *out) {
    if (x->single.kind != AX_JMISSING) {
        *out = x->single;
        x->single.kind = AX_JMISSING;
        return AX_OK;
    }
    if (x->args.kind != AX_JTUPLE || x->next == x->args.list->n) {
        return ax_jvm_error(vm, "not enough arguments for the format string");
    }
    *out = x->args.list->items[x->next++];
    return AX_OK;
}

/* %(key)…: p stands behind the parenthesis. */
static enum ax_status read_key(struct ax_jvm *vm, struct percent *x) {
    const struct ax_jstr *s = x->format;
    size_t start = x->p, depth = 1;
    while (x->p < s->len && depth > 0) {
        depth += (s->data[x->p] == '(') - (size_t)(s->data[x->p] == ')');
        x->p++;
    }
    if (depth > 0 || x->args.kind != AX_JDICT) {
        return ax_jvm_error(vm, depth > 0 ? "the format string has an open parenthesis"
                                          : "%%(name) in a format string needs a dict");
    }
    struct ax_jstr *key;
    AX_TRY(ax_jstr_slice(&vm->arena, &key, s, start, x->p - 1));
    const struct ax_jval *v = ax_jdict_get_str(x->args.dict, key);
    if (v == NULL) {
        return ax_jvm_error(vm, "the format string names '%.*s', which the dict lacks",
                            (int)key->len, key->data);
    }
    x->single = *v;
    return AX_OK;
}

static enum ax_status read_star_or_number(struct ax_jvm *vm, struct percent *x, int64_t *out) {
    if (x->p >= x->format->len || x->format->data[x->p] != '*') {
        return ax_jspec_read_number(vm, x->format, &x->p, out);
    }
    struct ax_jval v;
    x->p++;
    AX_TRY(next_argument(vm, x, &v));
    if (!ax_jval_is_int(v)) {
        return ax_jvm_error(vm, "* in a format string needs an integer");
    }
    *out = ax_jval_int(v);
    return *out > AX_JSPEC_MAX || *out < -AX_JSPEC_MAX ? ax_jspec_too_wide(vm) : AX_OK;
}

/* Flags, width, precision and type of one field. */
static enum ax_status read_percent(struct ax_jvm *vm, struct percent *x, struct ax_jspec *f) {
    const struct ax_jstr *s = x->format;
    bool left = false, zero = false;
    *f = (struct ax_jspec){.precision = -1, .digits = true};
    for (; x->p < s->len && s->data[x->p] != '\0' && strchr("-+ #0", s->data[x->p]) != NULL;
         x->p++) {
        char c = s->data[x->p];
        left = left || c == '-';
        zero = zero || c == '0';
        f->alternate = f->alternate || c == '#';
        f->sign = c == '+' ? '+' : c == ' ' && f->sign == 0 ? ' ' : f->sign;
    }
    AX_TRY(read_star_or_number(vm, x, &f->width));
    if (f->width < 0) {
        left = true;
        f->width = -f->width;
    }
    if (x->p < s->len && s->data[x->p] == '.') {
        x->p++;
        AX_TRY(read_star_or_number(vm, x, &f->precision));
        f->precision = f->precision < 0 ? 0 : f->precision;
    }
    while (x->p < s->len &&
           (s->data[x->p] == 'h' || s->data[x->p] == 'l' || s->data[x->p] == 'L')) {
        x->p++;
    }
    if (x->p == s->len) {
        return ax_jvm_error(vm, "the format string ends inside a field");
    }
    f->type = s->data[x->p++];
    bool numeric = strchr("diuoxXeEfFgG", f->type) != NULL && f->type != '\0';
    f->align = left ? '<' : numeric && zero ? '=' : '>';
    f->fill = f->align == '=' ? '0' : ' ';
    return AX_OK;
}

static enum ax_status put_percent_text(struct ax_jvm *vm, const struct percent *x,
                                       const struct ax_jspec *f, struct ax_jval v) {
    struct ax_jstr *s;
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(f->type == 'r'   ? ax_jval_put_repr(vm, v)
           : f->type == 'a' ? ax_jval_put_ascii(vm, v)
                            : ax_jval_put_str(vm, v));
    AX_TRY(ax_jvm_take(vm, c, &s));
    if (x->escape) {
        s->markup = f->type == 's' && v.kind == AX_JSTR && v.str->markup;
        AX_TRY(ax_jval_escape(vm, ax_jstring(s), &s));
    }
    return ax_jspec_put_str(vm, f, s);
}

static enum ax_status put_percent_number(struct ax_jvm *vm, struct ax_jspec *f, struct ax_jval v) {
    if (v.kind == AX_JUNDEFINED) {
        return ax_jvm_undefined(vm, v);
    }
    if (!ax_jval_is_number(v)) {
        return ax_jvm_error(vm, "%%%c needs a number, not a %s", f->type, ax_jval_type(v));
    }
    if (strchr("eEfFgG", f->type) != NULL) {
        return ax_jspec_put_float(vm, f, ax_jnumber_to_double(v));
    }
    if (v.kind == AX_JFLOAT) {
        if (f->type == 'o' || f->type == 'x' || f->type == 'X' || !isfinite(v.real)) {
            return ax_jvm_error(vm, "%%%c needs an integer, not a float", f->type);
        }
        AX_TRY(ax_jbig_from_double(&vm->arena, v.real, &v));
    }
    f->type = f->type == 'i' || f->type == 'u' ? 'd' : f->type;
    return ax_jspec_put_int(vm, f, v);
}

static enum ax_status put_percent(struct ax_jvm *vm, struct percent *x) {
    struct ax_jspec f;
    struct ax_jval v;
    AX_TRY(read_percent(vm, x, &f));
    if (f.type == '%') {
        return ax_jvm_puts(vm, "%");
    }
    AX_TRY(next_argument(vm, x, &v));
    switch (f.type) {
    case 's':
    case 'r':
    case 'a':
        return put_percent_text(vm, x, &f, v);
    case 'c':
        if (v.kind == AX_JSTR && ax_jstr_chars(v.str) == 1) {
            f.precision = -1;
            return ax_jspec_put_str(vm, &f, v.str);
        }
        if (!ax_jval_is_int(v)) {
            return ax_jvm_error(vm, "%%c needs an integer or one character");
        }
        return ax_jspec_put_int(vm, &f, v);
    default:
        if (f.type == '\0' || strchr("diuoxXeEfFgG", f.type) == NULL) {
            return ax_jvm_error(vm, "unknown format character '%c'", f.type);
        }
        return put_percent_number(vm, &f, v);
    }
}

enum ax_status ax_jformat_percent(struct ax_jvm *vm, const struct ax_jstr *format,
                                  struct ax_jval args, struct ax_jval *out) {
    struct percent x = {.format = format, .args = args, .escape = format->markup};
    x.single = args.kind == AX_JTUPLE ? (struct ax_jval){.kind = AX_JMISSING} : args;
    struct ax_jcapture c = ax_jvm_capture(vm);
    while (x.p < format->len) {
        const char *hit = memchr(format->data + x.p, '%', format->len - x.p);
        size_t end = hit != NULL ? (size_t)(hit - format->data) : format->len;
        AX_TRY(ax_jvm_put(vm, format->data + x.p, end - x.p));
        x.p = end + 1;
        if (hit == NULL) {
            break;
        }
        if (x.p < format->len && format->data[x.p] == '(') {
            x.p++;
            AX_TRY(read_key(vm, &x));
        }
        AX_TRY(put_percent(vm, &x));
    }
    bool mapping = args.kind == AX_JDICT || args.kind == AX_JLIST || args.kind == AX_JRANGE ||
                   args.kind == AX_JUNDEFINED;
    bool left = args.kind == AX_JTUPLE ? x.next < args.list->n : x.single.kind != AX_JMISSING;
    if (left && !mapping) {
        return ax_jvm_error(vm, "the format string does not use all its arguments");
    }
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->markup = format->markup;
    return AX_OK;
}
