/* Values as text: str() and repr() as Python writes them. JSON in (the caller's jansson tree) and out
 * (tojson, as Python's json.dumps). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "data/text/jinja/builtin.h"
#include "data/text/jinja/unicode.h"

/* ---- repr() of strings ---- */

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

/* ---- repr() of containers ---- */

static enum ax_status put_repr(struct ax_jvm *vm, struct ax_jval v);

static enum ax_status put_items(struct ax_jvm *vm, const struct ax_jval *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            AX_TRY(ax_jvm_puts(vm, ", "));
        AX_TRY(put_repr(vm, items[i]));
    }
    return AX_OK;
}

static enum ax_status put_list_repr(struct ax_jvm *vm, struct ax_jval v) {
    bool tuple = v.kind == AX_JTUPLE;
    AX_TRY(ax_jvm_puts(vm, tuple ? "(" : "["));
    AX_TRY(put_items(vm, v.list->items, v.list->n));
    return ax_jvm_puts(vm, !tuple ? "]" : v.list->n == 1 ? ",)" : ")");
}

static enum ax_status put_dict_repr(struct ax_jvm *vm, struct ax_jdict *d) {
    AX_TRY(ax_jvm_puts(vm, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            AX_TRY(ax_jvm_puts(vm, ", "));
        AX_TRY(put_repr(vm, d->pairs[i].key));
        AX_TRY(ax_jvm_puts(vm, ": "));
        AX_TRY(put_repr(vm, d->pairs[i].value));
    }
    return ax_jvm_puts(vm, "}");
}

static enum ax_status put_view(struct ax_jvm *vm, const struct ax_jlist *view) {
    AX_TRY(ax_jvm_putf(vm, "%s([", view->type));
    AX_TRY(put_items(vm, view->items, view->n));
    return ax_jvm_puts(vm, "])");
}

static enum ax_status put_kind_repr(struct ax_jvm *vm, struct ax_jval v) {
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
        return put_list_repr(vm, v);
    case AX_JDICT:
        return put_dict_repr(vm, v.dict);
    case AX_JVIEW:
        return put_view(vm, v.list);
    default:
        return ax_jvm_error(vm, "a %s cannot be printed%s", ax_jval_type(v),
                            v.kind == AX_JITER ? ": apply |list first" : "");
    }
}

static enum ax_status put_repr(struct ax_jvm *vm, struct ax_jval v) {
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(put_kind_repr(vm, v));
    vm->depth--;
    return AX_OK;
}

enum ax_status ax_jval_put_str(struct ax_jvm *vm, struct ax_jval v) {
    if (v.kind == AX_JSTR)
        return ax_jvm_put(vm, v.str->data, v.str->len);
    return v.kind == AX_JUNDEFINED ? AX_OK : put_repr(vm, v);
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

/* ---- JSON in ---- */

static enum ax_status from_array(struct ax_jvm *vm, const json_t *j, struct ax_jval *out) {
    size_t n = json_array_size(j);
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, n, sizeof *items));
    for (size_t i = 0; i < n; i++)
        AX_TRY(ax_jval_from_json(vm, json_array_get(j, i), &items[i]));
    return ax_jlist_wrap(&vm->arena, AX_JLIST, items, n, out);
}

static enum ax_status from_object(struct ax_jvm *vm, const json_t *j, struct ax_jval *out) {
    struct ax_jdict *d;
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    json_t *object =
        (json_t *)(uintptr_t)j; /* jansson's iterators are not const, but do not write */
    for (void *it = json_object_iter(object); it != NULL; it = json_object_iter_next(object, it)) {
        struct ax_jstr *key;
        struct ax_jval v;
        AX_TRY(ax_jstr_borrow(&vm->arena, &key, json_object_iter_key(it),
                              json_object_iter_key_len(it)));
        AX_TRY(ax_jval_from_json(vm, json_object_iter_value(it), &v));
        AX_TRY(ax_jdict_set(&vm->arena, d, ax_jstring(key), v));
    }
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

static enum ax_status from_json(struct ax_jvm *vm, const json_t *j, struct ax_jval *out) {
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return from_object(vm, j, out);
    case JSON_ARRAY:
        return from_array(vm, j, out);
    case JSON_STRING:
        out->kind = AX_JSTR;
        return ax_jstr_borrow(&vm->arena, &out->str, json_string_value(j), json_string_length(j));
    case JSON_INTEGER:
        *out = ax_jint(json_integer_value(j));
        return AX_OK;
    case JSON_REAL:
        *out = ax_jreal(json_real_value(j));
        return AX_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = ax_jbool(json_is_true(j));
        return AX_OK;
    default:
        *out = ax_jnone();
        return AX_OK;
    }
}

enum ax_status ax_jval_from_json(struct ax_jvm *vm, const json_t *j, struct ax_jval *out) {
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(from_json(vm, j, out));
    vm->depth--;
    return AX_OK;
}

/* ---- JSON out ---- */

static enum ax_status put_escape(struct ax_jvm *vm, uint32_t c) {
    switch (c) {
    case '"':
        return ax_jvm_puts(vm, "\\\"");
    case '\\':
        return ax_jvm_puts(vm, "\\\\");
    case '\b':
        return ax_jvm_puts(vm, "\\b");
    case '\f':
        return ax_jvm_puts(vm, "\\f");
    case '\n':
        return ax_jvm_puts(vm, "\\n");
    case '\r':
        return ax_jvm_puts(vm, "\\r");
    case '\t':
        return ax_jvm_puts(vm, "\\t");
    default:
        break;
    }
    if (c < 0x10000)
        return ax_jvm_putf(vm, "\\u%04x", (unsigned)c);
    c -= 0x10000;
    return ax_jvm_putf(vm, "\\u%04x\\u%04x", (unsigned)(0xd800 | c >> 10),
                       (unsigned)(0xdc00 | (c & 0x3ff)));
}

static enum ax_status put_string(struct ax_jvm *vm, const struct ax_jjson *how,
                                 const struct ax_jstr *s) {
    AX_TRY(ax_jvm_puts(vm, "\""));
    size_t plain = 0, p = 0;
    while (p < s->len) {
        unsigned char c = (unsigned char)s->data[p];
        if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !how->ascii)) {
            p++;
            continue;
        }
        AX_TRY(ax_jvm_put(vm, s->data + plain, p - plain));
        AX_TRY(put_escape(vm, ax_python_next(s->data, &p)));
        plain = p;
    }
    AX_TRY(ax_jvm_put(vm, s->data + plain, p - plain));
    return ax_jvm_puts(vm, "\"");
}

static enum ax_status put_float(struct ax_jvm *vm, double d) {
    char text[AX_REAL_TEXT];
    return ax_jvm_puts(vm, isnan(d)   ? "NaN"
                           : isinf(d) ? (d < 0 ? "-Infinity" : "Infinity")
                                      : ax_real_repr(d, text));
}

static enum ax_status put_newline(struct ax_jvm *vm, const struct ax_jjson *how, int level) {
    if (!how->pretty)
        return AX_OK;
    AX_TRY(ax_jvm_puts(vm, "\n"));
    for (int i = 0; i < level; i++)
        AX_TRY(ax_jvm_put(vm, how->indent->data, how->indent->len));
    return AX_OK;
}

static enum ax_status put_value(struct ax_jvm *vm, const struct ax_jjson *how, struct ax_jval v,
                                int level);

static enum ax_status put_list(struct ax_jvm *vm, const struct ax_jjson *how,
                               const struct ax_jlist *l, int level) {
    AX_TRY(ax_jvm_puts(vm, "["));
    for (size_t i = 0; i < l->n; i++) {
        if (i > 0)
            AX_TRY(ax_jvm_put(vm, how->item_separator->data, how->item_separator->len));
        AX_TRY(put_newline(vm, how, level + 1));
        AX_TRY(put_value(vm, how, l->items[i], level + 1));
    }
    if (l->n > 0)
        AX_TRY(put_newline(vm, how, level));
    return ax_jvm_puts(vm, "]");
}

static enum ax_status put_key(struct ax_jvm *vm, const struct ax_jjson *how, struct ax_jval key) {
    switch (key.kind) {
    case AX_JSTR:
        return put_string(vm, how, key.str);
    case AX_JBOOL:
    case AX_JINT:
    case AX_JFLOAT:
    case AX_JNONE:
        AX_TRY(ax_jvm_puts(vm, "\""));
        AX_TRY(put_value(vm, how, key, 0));
        return ax_jvm_puts(vm, "\"");
    default:
        return ax_jvm_error(vm, "tojson: a key cannot be a %s", ax_jval_type(key));
    }
}

static enum ax_status sorted_pairs(struct ax_jvm *vm, const struct ax_jdict *d,
                                   const struct ax_jpair **out) {
    struct ax_jval *numbers, *keys;
    struct ax_jpair *pairs;
    AX_TRY(ax_jarena_alloc(&vm->arena, &numbers, d->n, sizeof *numbers));
    AX_TRY(ax_jarena_alloc(&vm->arena, &keys, d->n, sizeof *keys));
    AX_TRY(ax_jarena_alloc(&vm->arena, &pairs, d->n, sizeof *pairs));
    for (size_t i = 0; i < d->n; i++) {
        numbers[i] = ax_jint((int64_t)i);
        keys[i] = d->pairs[i].key;
    }
    AX_TRY(ax_jsort(vm, numbers, keys, d->n, false));
    for (size_t i = 0; i < d->n; i++)
        pairs[i] = d->pairs[numbers[i].integer];
    *out = pairs;
    return AX_OK;
}

static enum ax_status put_dict(struct ax_jvm *vm, const struct ax_jjson *how,
                               const struct ax_jdict *d, int level) {
    const struct ax_jpair *pairs = d->pairs;
    if (how->sort_keys)
        AX_TRY(sorted_pairs(vm, d, &pairs));
    AX_TRY(ax_jvm_puts(vm, "{"));
    for (size_t i = 0; i < d->n; i++) {
        if (i > 0)
            AX_TRY(ax_jvm_put(vm, how->item_separator->data, how->item_separator->len));
        AX_TRY(put_newline(vm, how, level + 1));
        AX_TRY(put_key(vm, how, pairs[i].key));
        AX_TRY(ax_jvm_put(vm, how->key_separator->data, how->key_separator->len));
        AX_TRY(put_value(vm, how, pairs[i].value, level + 1));
    }
    if (d->n > 0)
        AX_TRY(put_newline(vm, how, level));
    return ax_jvm_puts(vm, "}");
}

static enum ax_status put_any(struct ax_jvm *vm, const struct ax_jjson *how, struct ax_jval v,
                              int level) {
    switch (v.kind) {
    case AX_JNONE:
        return ax_jvm_puts(vm, "null");
    case AX_JBOOL:
        return ax_jvm_puts(vm, v.boolean ? "true" : "false");
    case AX_JINT:
        return put_repr(vm, v);
    case AX_JFLOAT:
        return put_float(vm, v.real);
    case AX_JSTR:
        return put_string(vm, how, v.str);
    case AX_JLIST:
    case AX_JTUPLE:
        return put_list(vm, how, v.list, level);
    case AX_JDICT:
        return put_dict(vm, how, v.dict, level);
    default:
        return ax_jvm_error(vm, "tojson cannot write a %s%s", ax_jval_type(v),
                            v.kind == AX_JITER ? ": apply |list first" : "");
    }
}

static enum ax_status put_value(struct ax_jvm *vm, const struct ax_jjson *how, struct ax_jval v,
                                int level) {
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(put_any(vm, how, v, level));
    vm->depth--;
    return AX_OK;
}

enum ax_status ax_jval_put_json(struct ax_jvm *vm, const struct ax_jjson *how, struct ax_jval v) {
    return put_value(vm, how, v, 0);
}
