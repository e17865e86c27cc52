/* "…{}…".format(…), as Python does it: fields, conversions, format specs. */
#include <string.h>

#include "data/jinja_builtin.h"
#include "data/jinja_number.h"
#include "data/jinja_spec.h"
#include "data/jinja_unicode.h"

struct braces {
    const struct ax_jcall *call;
    int64_t automatic; /* number of the next {}; -1: fields are numbered by hand */
    bool by_hand, escape;
};

/* The first part of a field name: a position, a keyword, or nothing for the next position. */
static enum ax_status first_value(struct ax_jvm *vm, struct braces *b, const struct ax_jstr *s,
                                  size_t start, size_t end, struct ax_jval *out) {
    int64_t index = -1;
    size_t p = start;
    if (start == end) {
        if (b->by_hand) {
            return ax_jvm_error(vm, "format: {} and {0} cannot be mixed");
        }
        index = b->automatic++;
    } else if (s->data[start] >= '0' && s->data[start] <= '9') {
        AX_TRY(ax_jspec_read_number(vm, s, &p, &index));
        if (p == end && b->automatic > 0) {
            return ax_jvm_error(vm, "format: {} and {0} cannot be mixed");
        }
        b->by_hand = b->by_hand || p == end;
        index = p == end ? index : -1;
    }
    if (index >= 0) {
        if ((size_t)index >= b->call->n_args) {
            return ax_jvm_error(vm, "format: there is no argument number %lld", (long long)index);
        }
        *out = b->call->args[index];
        return AX_OK;
    }
    for (size_t i = 0; i < b->call->n_kwargs; i++) {
        const struct ax_jstr *key = b->call->kwargs[i].key;
        if (key->len == end - start && memcmp(key->data, s->data + start, key->len) == 0) {
            *out = b->call->kwargs[i].value;
            return AX_OK;
        }
    }
    return ax_jvm_error(vm, "format: there is no argument '%.*s'", (int)(end - start),
                        s->data + start);
}

/* .name and [key] behind it. */
static enum ax_status field_value(struct ax_jvm *vm, struct braces *b, struct ax_jstr *s,
                                  size_t start, size_t end, struct ax_jval *out) {
    size_t p = start;
    while (p < end && s->data[p] != '.' && s->data[p] != '[') {
        p++;
    }
    AX_TRY(first_value(vm, b, s, start, p, out));
    while (p < end) {
        bool dot = s->data[p] == '.';
        size_t from = ++p;
        while (p < end && (dot ? s->data[p] != '.' && s->data[p] != '[' : s->data[p] != ']')) {
            p++;
        }
        if (p == from || (!dot && p == end)) {
            return ax_jvm_error(vm, "format: an empty name in a field");
        }
        struct ax_jstr *name;
        AX_TRY(ax_jstr_slice(&vm->arena, &name, s, from, p));
        if (dot) {
            AX_TRY(ax_jval_getattr(vm, *out, name, out));
            continue;
        }
        struct ax_jpath path; /* a key of digits is a number */
        struct ax_jval key = ax_jstring(name);
        if (name->len > 0 && strspn(s->data + from, "0123456789") >= name->len) {
            AX_TRY(ax_jpath_make(vm, key, &path));
            key = path.parts[0];
        }
        AX_TRY(ax_jval_getitem(vm, *out, key, out));
        p++;
        if (p < end && s->data[p] != '.' && s->data[p] != '[') {
            return ax_jvm_error(vm, "format: only . or [ may follow ]");
        }
    }
    return AX_OK;
}

static bool is_align(uint32_t c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][,_][.precision][type] */
static enum ax_status read_spec(struct ax_jvm *vm, const struct ax_jstr *s, struct ax_jspec *f) {
    size_t p = 0, q = 0;
    *f = (struct ax_jspec){.precision = -1};
    if (s->len > 0) {
        uint32_t first = ax_python_next(s->data, &q);
        if (q < s->len && is_align((unsigned char)s->data[q])) {
            f->fill = first;
            f->align = s->data[q];
            p = q + 1;
        } else if (is_align(first)) {
            f->align = (char)first;
            p = 1;
        }
    }
    if (p < s->len && (s->data[p] == '+' || s->data[p] == '-' || s->data[p] == ' ')) {
        f->sign = s->data[p++];
    }
    if (p < s->len && s->data[p] == '#') {
        f->alternate = true;
        p++;
    }
    if (p < s->len && s->data[p] == '0') {
        f->fill = f->fill != 0 ? f->fill : '0';
        f->align = f->align != 0 ? f->align : '=';
        p++;
    }
    AX_TRY(ax_jspec_read_number(vm, s, &p, &f->width));
    if (p < s->len && (s->data[p] == ',' || s->data[p] == '_')) {
        f->group = s->data[p++];
    }
    if (p < s->len && s->data[p] == '.') {
        q = ++p;
        AX_TRY(ax_jspec_read_number(vm, s, &p, &f->precision));
        if (p == q) {
            return ax_jvm_error(vm, "format: the precision is missing");
        }
    }
    if (p < s->len) {
        f->type = s->data[p++];
    }
    return p == s->len ? AX_OK
                       : ax_jvm_error(vm, "format: '%.*s' is not a format", (int)s->len, s->data);
}

static enum ax_status put_formatted_str(struct ax_jvm *vm, struct ax_jspec *f, struct ax_jstr *s) {
    if ((f->type != 0 && f->type != 's') || f->sign != 0 || f->alternate || f->group != 0) {
        return ax_jvm_error(vm, "format: not a format for a str");
    }
    if (f->align == '=') {
        if (f->fill != '0') {
            return ax_jvm_error(vm, "format: '=' is not for a str");
        }
        f->align = '<';
    }
    return ax_jspec_put_str(vm, f, s);
}

static enum ax_status put_formatted(struct ax_jvm *vm, struct ax_jval v,
                                    const struct ax_jstr *spec) {
    struct ax_jspec f;
    if (spec->len == 0) {
        return ax_jval_put_str(vm, v);
    }
    AX_TRY(read_spec(vm, spec, &f));
    if (v.kind == AX_JSTR) {
        return put_formatted_str(vm, &f, v.str);
    }
    bool to_float = f.type != 0 && strchr("eEfFgG%", f.type) != NULL;
    if (v.kind == AX_JFLOAT ? f.type == 0 || to_float : ax_jval_is_number(v) && to_float) {
        return ax_jspec_put_float(vm, &f, ax_jnumber_to_double(v));
    }
    if (ax_jval_is_number(v) && v.kind != AX_JFLOAT && f.precision < 0 &&
        (f.type == 0 || strchr("dxXobcn", f.type) != NULL)) {
        f.type = f.type == 0 || f.type == 'n' ? 'd' : f.type;
        return ax_jspec_put_int(vm, &f, v);
    }
    return ax_jvm_error(vm, "format: '%.*s' is not a format for a %s", (int)spec->len, spec->data,
                        ax_jval_type(v));
}

static enum ax_status put_braces(struct ax_jvm *vm, struct braces *b, struct ax_jstr *s, int depth);

/* One field s[start, end) without its braces: name, !conversion, :spec. */
static enum ax_status put_field(struct ax_jvm *vm, struct braces *b, struct ax_jstr *s,
                                size_t start, size_t end, int depth) {
    size_t name_end = start, bracket = 0;
    for (; name_end < end; name_end++) {
        char c = s->data[name_end];
        bracket += (c == '[') - (size_t)(c == ']' && bracket > 0);
        if (bracket == 0 && (c == '!' || c == ':')) {
            break;
        }
    }
    struct ax_jval v;
    AX_TRY(field_value(vm, b, s, start, name_end, &v));
    size_t p = name_end;
    if (p < end && s->data[p] == '!') {
        char how = p + 1 < end ? s->data[p + 1] : 0;
        struct ax_jcapture c = ax_jvm_capture(vm);
        if (how != 's' && how != 'r' && how != 'a') {
            return ax_jvm_error(vm, "format: only !s, !r and !a are conversions");
        }
        AX_TRY(how == 's'   ? ax_jval_put_str(vm, v)
               : how == 'r' ? ax_jval_put_repr(vm, v)
                            : ax_jval_put_ascii(vm, v));
        v.kind = AX_JSTR;
        AX_TRY(ax_jvm_take(vm, c, &v.str));
        p += 2;
    }
    if (p < end && s->data[p] != ':') {
        return ax_jvm_error(vm, "format: expected ':' behind the conversion");
    }
    struct ax_jstr *spec;
    AX_TRY(ax_jstr_slice(&vm->arena, &spec, s, p < end ? p + 1 : end, end));
    struct ax_jcapture c = ax_jvm_capture(vm);
    bool escape = b->escape;
    b->escape = false;
    AX_TRY(put_braces(vm, b, spec, depth + 1)); /* fields inside the spec */
    b->escape = escape;
    AX_TRY(ax_jvm_take(vm, c, &spec));
    c = ax_jvm_capture(vm);
    AX_TRY(put_formatted(vm, v, spec));
    struct ax_jstr *text;
    AX_TRY(ax_jvm_take(vm, c, &text));
    text->markup = v.kind == AX_JSTR && v.str->markup;
    if (b->escape) {
        AX_TRY(ax_jval_escape(vm, ax_jstring(text), &text));
    }
    return ax_jvm_put(vm, text->data, text->len);
}

static enum ax_status put_braces(struct ax_jvm *vm, struct braces *b, struct ax_jstr *s,
                                 int depth) {
    if (depth > 2) {
        return ax_jvm_error(vm, "format: fields nested too deep");
    }
    for (size_t p = 0; p < s->len;) {
        char c = s->data[p];
        if (c != '{' && c != '}') {
            AX_TRY(ax_jvm_put(vm, &c, 1));
            p++;
            continue;
        }
        if (p + 1 < s->len && s->data[p + 1] == c) {
            AX_TRY(ax_jvm_put(vm, &c, 1));
            p += 2;
            continue;
        }
        size_t end = p + 1, open = 1;
        while (c == '{' && end < s->len && open > 0) {
            open += (s->data[end] == '{') - (size_t)(s->data[end] == '}');
            end++;
        }
        if (c == '}' || open > 0) {
            return ax_jvm_error(vm, "format: a single '%c'", c);
        }
        AX_TRY(put_field(vm, b, s, p + 1, end - 1, depth));
        p = end;
    }
    return AX_OK;
}

enum ax_status ax_jformat_braces(struct ax_jvm *vm, const struct ax_jstr *format,
                                 const struct ax_jcall *call, struct ax_jval *out) {
    struct braces b = {.call = call, .escape = format->markup};
    struct ax_jstr *s;
    AX_TRY(ax_jstr_borrow(&vm->arena, &s, format->data, format->len));
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(put_braces(vm, &b, s, 0));
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->markup = format->markup;
    return AX_OK;
}
