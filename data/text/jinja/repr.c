/* str() and repr() of values, as Python writes them. */
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "data/text/jinja/builtin.h"
#include "data/text/jinja/unicode.h"

/* ---- strings ---- */

static enum ax_status put_repr_char(struct ax_jvm *vm, uint32_t c, char quote) {
    switch (c) {
    case '\n':
        return ax_jvm_puts(vm, "\\n");
    case '\r':
        return ax_jvm_puts(vm, "\\r");
    case '\t':
        return ax_jvm_puts(vm, "\\t");
    case '\\':
        return ax_jvm_puts(vm, "\\\\");
    default:
        break;
    }
    if (c == (unsigned char)quote)
        return ax_jvm_putf(vm, "\\%c", quote);
    if (ax_python_is_printable(c))
        return ax_jvm_put_char(vm, c);
    return ax_jvm_putf(vm,
                       c < 0x100     ? "\\x%02x"
                       : c < 0x10000 ? "\\u%04x"
                                     : "\\U%08x",
                       (unsigned)c);
}

static enum ax_status put_str_repr(struct ax_jvm *vm, const struct ax_jstr *s) {
    bool single = s->len > 0 && memchr(s->data, '\'', s->len) != NULL;
    bool twice = s->len > 0 && memchr(s->data, '"', s->len) != NULL;
    char quote = single && !twice ? '"' : '\'';
    AX_TRY(ax_jvm_puts(vm, s->safe ? "Markup(" : ""));
    AX_TRY(ax_jvm_put(vm, &quote, 1));
    size_t plain = 0, p = 0; /* runs of ordinary ASCII are written in one piece */
    while (p < s->len) {
        unsigned char c = (unsigned char)s->data[p];
        if (c >= 0x20 && c < 0x7f && c != '\\' && c != (unsigned char)quote) {
            p++;
            continue;
        }
        AX_TRY(ax_jvm_put(vm, s->data + plain, p - plain));
        AX_TRY(put_repr_char(vm, ax_python_next(s->data, &p), quote));
        plain = p;
    }
    AX_TRY(ax_jvm_put(vm, s->data + plain, p - plain));
    AX_TRY(ax_jvm_put(vm, &quote, 1));
    return ax_jvm_puts(vm, s->safe ? ")" : "");
}

/* ---- containers ---- */

static enum ax_status put_items(struct ax_jvm *vm, const struct ax_jval *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            AX_TRY(ax_jvm_puts(vm, ", "));
        AX_TRY(ax_jval_put_repr(vm, items[i]));
    }
    return AX_OK;
}

static enum ax_status put_list(struct ax_jvm *vm, struct ax_jval v) {
    bool tuple = v.kind == AX_JTUPLE;
    AX_TRY(ax_jvm_puts(vm, tuple ? "(" : "["));
    AX_TRY(put_items(vm, v.list->items, v.list->n));
    return ax_jvm_puts(vm, !tuple ? "]" : v.list->n == 1 ? ",)" : ")");
}

static enum ax_status put_dict(struct ax_jvm *vm, struct ax_jdict *d) {
    AX_TRY(ax_jvm_puts(vm, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            AX_TRY(ax_jvm_puts(vm, ", "));
        AX_TRY(ax_jval_put_repr(vm, d->pairs[i].key));
        AX_TRY(ax_jvm_puts(vm, ": "));
        AX_TRY(ax_jval_put_repr(vm, d->pairs[i].value));
    }
    return ax_jvm_puts(vm, "}");
}

static enum ax_status put_view(struct ax_jvm *vm, const struct ax_jlist *view) {
    AX_TRY(ax_jvm_putf(vm, "%s([", view->type));
    AX_TRY(put_items(vm, view->items, view->n));
    return ax_jvm_puts(vm, "])");
}

static enum ax_status put_repr(struct ax_jvm *vm, struct ax_jval v) {
    char text[AX_REAL_TEXT];
    switch (v.kind) {
    case AX_JMISSING:
    case AX_JUNDEFINED:
        return ax_jvm_puts(vm, "Undefined");
    case AX_JNONE:
        return ax_jvm_puts(vm, "None");
    case AX_JBOOL:
        return ax_jvm_puts(vm, v.boolean ? "True" : "False");
    case AX_JINT:
        return ax_jvm_putf(vm, "%lld", (long long)v.integer);
    case AX_JFLOAT:
        return ax_jvm_puts(vm, ax_real_repr(v.real, text));
    case AX_JSTR:
        return put_str_repr(vm, v.str);
    case AX_JLIST:
    case AX_JTUPLE:
        return put_list(vm, v);
    case AX_JDICT:
        return put_dict(vm, v.dict);
    case AX_JVIEW:
        return put_view(vm, v.list);
    default:
        return ax_jvm_error(vm, "a %s cannot be printed%s", ax_jval_type(v),
                            v.kind == AX_JITER ? ": apply |list first" : "");
    }
}

enum ax_status ax_jval_put_repr(struct ax_jvm *vm, struct ax_jval v) {
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(put_repr(vm, v));
    vm->depth--;
    return AX_OK;
}

enum ax_status ax_jval_put_str(struct ax_jvm *vm, struct ax_jval v) {
    if (v.kind == AX_JSTR)
        return ax_jvm_put(vm, v.str->data, v.str->len);
    return v.kind == AX_JUNDEFINED ? ax_jvm_check_defined(vm, v) : ax_jval_put_repr(vm, v);
}

enum ax_status ax_jval_to_str(struct ax_jvm *vm, struct ax_jval v, struct ax_jstr **out) {
    if (v.kind == AX_JSTR) {
        *out = v.str;
        return AX_OK;
    }
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jval_put_str(vm, v));
    return ax_jvm_take(vm, c, out);
}

enum ax_status ax_jval_new_str(struct ax_jvm *vm, const char *data, size_t len,
                               struct ax_jval *out) {
    out->kind = AX_JSTR;
    return ax_jstr_copy(&vm->arena, &out->str, data, len);
}
