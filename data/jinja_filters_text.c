/* Filters that make text. Most take any value and turn it into a string first. */
#include "data/jinja_builtin.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

static enum ax_status in_case(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jcase how,
                              struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    out->kind = AX_JSTR;
    return ax_jtext_case(vm, how, s, &out->str);
}

static enum ax_status filter_upper(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_UPPER, out);
}

static enum ax_status filter_lower(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_LOWER, out);
}

static enum ax_status filter_capitalize(struct ax_jvm *vm, const struct ax_jcall *c,
                                        struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_CAPITALIZE, out);
}

static bool ends_word(uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || ax_python_is_space(c);
}

/* Jinja's own rule: words begin behind white space, hyphens and opening brackets only. Each piece
 * is mapped by itself, upper first, the rest lower. */
static enum ax_status filter_title(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    for (size_t start = 0; start < s->len;) {
        size_t first = start, end, next;
        bool gap = ends_word(ax_python_next(s->data, &first));
        for (end = next = first; end < s->len; end = next) {
            if (ends_word(ax_python_next(s->data, &next)) != gap) {
                break;
            }
        }
        for (size_t p = start; p < end;) {
            uint32_t mapped[AX_UNICODE_MAP_MAX];
            size_t at = p, n;
            uint32_t ch = ax_python_next(s->data, &p);
            if (at == start) {
                n = ax_python_to_upper(ch, mapped);
            } else { /* lower() of the piece behind its first character */
                n = ax_python_to_lower(s->data + first, end - first, at - first, mapped);
            }
            for (size_t i = 0; i < n; i++) {
                AX_TRY(ax_jvm_put_char(vm, mapped[i]));
            }
        }
        start = end;
    }
    out->kind = AX_JSTR;
    return ax_jvm_take(vm, c, &out->str);
}

static enum ax_status filter_trim(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    static const char *const params[] = {"chars"};
    struct ax_jval v;
    struct ax_jstr *s, *chars = NULL;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 0, &v));
    if (v.kind != AX_JNONE) {
        AX_TRY(ax_jarg_str(vm, call, "the characters", v, &chars));
    }
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    out->kind = AX_JSTR;
    return ax_jtext_strip(vm, AX_JBOTH, s, chars, &out->str);
}

static enum ax_status filter_string(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    *out = ax_jstring(s);
    return AX_OK;
}

static enum ax_status filter_replace(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    static const char *const params[] = {"old", "new", "count"};
    struct ax_jval v[3];
    struct ax_jstr *s, *old, *with;
    int64_t count = -1;
    AX_TRY(ax_jcall_bind(vm, call, params, 3, 2, v));
    if (v[2].kind != AX_JNONE) {
        AX_TRY(ax_jarg_int(vm, call, "the count", v[2], &count));
    }
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    AX_TRY(ax_jval_to_str(vm, v[0], &old));
    AX_TRY(ax_jval_to_str(vm, v[1], &with));
    out->kind = AX_JSTR;
    return ax_jtext_replace(vm, s, old, with, count, &out->str);
}

/* The unit of indentation: a string, or a number of spaces. */
static enum ax_status indentation(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval v,
                                  struct ax_jstr **out) {
    if (v.kind == AX_JSTR) {
        *out = v.str;
        return AX_OK;
    }
    struct ax_jstr space = {.data = " ", .len = 1};
    struct ax_jval text;
    int64_t width = 4;
    AX_TRY(ax_jarg_int(vm, call, "the width", v, &width));
    AX_TRY(ax_jop_binary(vm, AX_JOP_MUL, ax_jstring(&space), ax_jint(width), &text));
    *out = text.str;
    return AX_OK;
}

static enum ax_status filter_indent(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    static const char *const params[] = {"width", "first", "blank"};
    struct ax_jval v[3];
    struct ax_jstr *unit;
    struct ax_jitems lines = {0};
    AX_TRY(ax_jcall_bind(vm, call, params, 3, 0, v));
    AX_TRY(indentation(vm, call, v[0], &unit));
    if (call->self.kind != AX_JSTR) {
        return ax_jvm_error(vm, "indent needs a str, not a %s", ax_jval_type(call->self));
    }
    /* The added newline makes the last line count even when it is empty. */
    struct ax_jstr newline = {.data = "\n", .len = 1}, *s;
    AX_TRY(ax_jstr_concat(&vm->arena, &s, call->self.str, &newline));
    AX_TRY(ax_jtext_lines(vm, s, false, &lines));
    struct ax_jcapture c = ax_jvm_capture(vm);
    if (ax_jarg_truth(v[1], false)) {
        AX_TRY(ax_jvm_put(vm, unit->data, unit->len));
    }
    for (size_t i = 0; i < lines.n; i++) {
        const struct ax_jstr *line = lines.items[i].str;
        if (i > 0) {
            AX_TRY(ax_jvm_puts(vm, "\n"));
            if (line->len > 0 || ax_jarg_truth(v[2], false)) {
                AX_TRY(ax_jvm_put(vm, unit->data, unit->len));
            }
        }
        AX_TRY(ax_jvm_put(vm, line->data, line->len));
    }
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->markup = call->self.str->markup;
    return AX_OK;
}

static enum ax_status filter_join(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    static const char *const params[] = {"d", "attribute"};
    struct ax_jval v[2], items = call->self;
    struct ax_jstr *sep;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    if (v[1].kind != AX_JMISSING && v[1].kind != AX_JNONE) {
        struct ax_jpath path;
        struct ax_jitems list;
        AX_TRY(ax_jpath_make(vm, v[1], &path));
        AX_TRY(ax_jval_items(vm, items, &list));
        for (size_t i = 0; i < list.n; i++) {
            AX_TRY(ax_jpath_get(vm, &path, list.items[i], &list.items[i]));
        }
        AX_TRY(ax_jitems_done(&vm->arena, &list, AX_JLIST, &items));
    }
    if (v[0].kind == AX_JMISSING) {
        AX_TRY(ax_jval_new_str(vm, "", 0, &v[0]));
    }
    AX_TRY(ax_jval_to_str(vm, v[0], &sep));
    out->kind = AX_JSTR;
    return ax_jtext_join(vm, sep, items, true, &out->str);
}

static enum ax_status filter_center(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    static const char *const params[] = {"width"};
    const struct ax_jstr space = {.data = " ", .len = 1};
    struct ax_jval v;
    struct ax_jstr *s;
    int64_t width = 80;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 0, &v));
    AX_TRY(ax_jarg_int(vm, call, "the width", v, &width));
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    out->kind = AX_JSTR;
    return ax_jtext_center(vm, s, width, &space, AX_JBOTH, &out->str);
}

static enum ax_status filter_truncate(struct ax_jvm *vm, const struct ax_jcall *call,
                                      struct ax_jval *out) {
    static const char *const params[] = {"length", "killwords", "end", "leeway"};
    struct ax_jstr dots = {.data = "...", .len = 3, .chars = 3}, *end = &dots;
    struct ax_jval v[4];
    int64_t length = 255, leeway = 5;
    AX_TRY(ax_jcall_bind(vm, call, params, 4, 0, v));
    AX_TRY(ax_jarg_int(vm, call, "the length", v[0], &length));
    AX_TRY(ax_jarg_str(vm, call, "the end", v[2], &end));
    if (v[3].kind != AX_JNONE) {
        AX_TRY(ax_jarg_int(vm, call, "the leeway", v[3], &leeway));
    }
    int64_t tail = (int64_t)ax_jstr_chars(end);
    size_t n;
    if (length < tail || leeway < 0) {
        return ax_jvm_error(vm, "truncate needs a length of at least %lld", (long long)tail);
    }
    AX_TRY(ax_jval_length(vm, call->self, &n));
    *out = call->self;
    if (leeway > INT64_MAX - length || (int64_t)n <= length + leeway) {
        return AX_OK;
    }
    if (call->self.kind != AX_JSTR) {
        return ax_jvm_error(vm, "truncate needs a str, not a %s", ax_jval_type(call->self));
    }
    struct ax_jstr *s = call->self.str;
    size_t stop = ax_jstr_offset(s, (size_t)(length - tail));
    if (!ax_jarg_truth(v[1], false)) {
        size_t blank = stop;
        while (blank > 0 && s->data[blank - 1] != ' ') {
            blank--;
        }
        stop = blank > 0 ? blank - 1 : stop;
    }
    struct ax_jstr *part;
    AX_TRY(ax_jstr_slice(&vm->arena, &part, s, 0, stop));
    return ax_jop_binary(vm, AX_JOP_ADD, ax_jstring(part), ax_jstring(end), out);
}

static enum ax_status filter_wordcount(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    struct ax_jstr *s;
    int64_t n = 0;
    bool in_word = false;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    for (size_t p = 0; p < s->len;) {
        uint32_t c = ax_python_next(s->data, &p);
        bool word = c == '_' || ax_python_is_alnum(c);
        n += word && !in_word;
        in_word = word;
    }
    *out = ax_jint(n);
    return AX_OK;
}

static enum ax_status filter_format(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    struct ax_jstr *s;
    struct ax_jval args;
    if (call->n_args > 0 && call->n_kwargs > 0) {
        return ax_jvm_error(vm, "format takes positional or keyword arguments, not both");
    }
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    if (call->n_kwargs > 0) {
        struct ax_jdict *d;
        AX_TRY(ax_jdict_new(&vm->arena, &d));
        for (size_t i = 0; i < call->n_kwargs; i++) {
            struct ax_jstr *key;
            AX_TRY(ax_jstr_borrow(&vm->arena, &key, call->kwargs[i].key->data,
                                  call->kwargs[i].key->len));
            AX_TRY(ax_jdict_set(&vm->arena, d, ax_jstring(key), call->kwargs[i].value));
        }
        args = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    } else {
        AX_TRY(ax_jlist_wrap(&vm->arena, AX_JTUPLE, call->args, call->n_args, &args));
    }
    return ax_jformat_percent(vm, s, args, out);
}

const struct ax_jbuiltin ax_jfilters_text[] = {
    {"trim", filter_trim},           {"string", filter_string},
    {"join", filter_join},           {"lower", filter_lower},
    {"upper", filter_upper},         {"capitalize", filter_capitalize},
    {"replace", filter_replace},     {"indent", filter_indent},
    {"title", filter_title},         {"format", filter_format},
    {"center", filter_center},       {"truncate", filter_truncate},
    {"wordcount", filter_wordcount}, {NULL, NULL},
};
