/* Filters of the web: HTML entities, markup, URLs. Output is never escaped by itself here, but
 * markup keeps its meaning: it escapes what is added to it. */
#include <string.h>

#include "data/jinja_builtin.h"

static enum ax_status filter_escape(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    out->kind = AX_JSTR;
    return ax_jval_escape(vm, call->self, &out->str);
}

static enum ax_status filter_forceescape(struct ax_jvm *vm, const struct ax_jcall *call,
                                         struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    out->kind = AX_JSTR;
    return ax_jval_escape(vm, ax_jstring(s), &out->str);
}

static enum ax_status filter_safe(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    out->kind = AX_JSTR;
    AX_TRY(ax_jstr_borrow(&vm->arena, &out->str, s->data, s->len));
    out->str->markup = true;
    return AX_OK;
}

/* Percent-encoding of UTF-8: all but letters, digits and _ . - ~ are written in hex. In a query
 * blanks are + and slashes are encoded too. */
static enum ax_status put_quoted(struct ax_jvm *vm, struct ax_jval v, bool query) {
    struct ax_jstr *s;
    AX_TRY(ax_jval_to_str(vm, v, &s));
    for (size_t i = 0; i < s->len; i++) {
        unsigned char b = (unsigned char)s->data[i];
        bool plain = (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z') ||
                     (b != 0 && strchr("_.-~", b) != NULL) || (b == '/' && !query);
        AX_TRY(plain               ? ax_jvm_put(vm, s->data + i, 1)
               : b == ' ' && query ? ax_jvm_puts(vm, "+")
                                   : ax_jvm_putf(vm, "%%%02X", b));
    }
    return AX_OK;
}

/* key=value&… of a dict or of pairs. */
static enum ax_status put_query(struct ax_jvm *vm, struct ax_jval of) {
    const struct ax_jview view = {AX_JITEMS, of.kind == AX_JDICT ? of.dict : NULL};
    if (of.kind == AX_JDICT) {
        of = (struct ax_jval){.kind = AX_JVIEW, .view = &view};
    }
    struct ax_jitems pairs, pair;
    AX_TRY(ax_jval_items(vm, of, &pairs));
    for (size_t i = 0; i < pairs.n; i++) {
        AX_TRY(ax_jval_items(vm, pairs.items[i], &pair));
        if (pair.n != 2) {
            return ax_jvm_error(vm, "urlencode needs pairs of a key and a value");
        }
        AX_TRY(ax_jvm_puts(vm, i > 0 ? "&" : ""));
        AX_TRY(put_quoted(vm, pair.items[0], true));
        AX_TRY(ax_jvm_puts(vm, "="));
        AX_TRY(put_quoted(vm, pair.items[1], true));
    }
    return AX_OK;
}

static enum ax_status filter_urlencode(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    bool single = call->self.kind == AX_JSTR || !ax_jval_is_iterable(call->self);
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(single ? put_quoted(vm, call->self, false) : put_query(vm, call->self));
    out->kind = AX_JSTR;
    return ax_jvm_take(vm, c, &out->str);
}

const struct ax_jbuiltin ax_jfilters_web[] = {
    {"safe", filter_safe},
    {"escape", filter_escape},
    {"e", filter_escape},
    {"forceescape", filter_forceescape},
    {"urlencode", filter_urlencode},
    {NULL, NULL},
};
