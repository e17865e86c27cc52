/* Operations on text (text.h); filters that return text, which convert any value to a string first; the methods
 * of str. */
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/text.h"
#include "data/text/jinja/unicode.h"

/* ---- case ---- */

static bool ends_word(uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || ax_python_is_space(c);
}

/* Does a letter follow at s[p], or behind marks? It decides the form of a lower-case sigma. */
static bool letter_at(const struct ax_jstr *s, size_t p) {
    while (p < s->len) {
        const uint32_t c = ax_python_next(s->data, &p);
        if (!ax_python_is_case_ignorable(c))
            return ax_python_is_cased(c);
    }
    return false;
}

enum ax_status ax_jtext_case(struct ax_jvm *vm, enum ax_jletters how, struct ax_jstr *s,
                             struct ax_jval *out) {
    struct ax_jcapture capture = ax_jvm_capture(vm);
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    bool in_word = false, letter_before = false;
    for (size_t p = 0; p < s->len;) {
        const bool first = how == AX_JLETTERS_CAPITALIZE ? p == 0 : !in_word;
        const uint32_t c = ax_python_next(s->data, &p);
        enum ax_jcase to = AX_JCASE_LOWER;
        if (how == AX_JLETTERS_UPPER || (how == AX_JLETTERS_WORDS && first))
            to = AX_JCASE_UPPER;
        else if (how != AX_JLETTERS_LOWER && first)
            to = AX_JCASE_TITLE;
        uint32_t mapped[2];
        const size_t n = ax_python_map(to, c, mapped);
        if (n == 0)
            return ax_jvm_error(vm, "the other case of U+%04X is not supported", (unsigned)c);
        if (c == 0x3a3 && to == AX_JCASE_LOWER && letter_before && !letter_at(s, p))
            mapped[0] = 0x3c2; /* the sigma at the end of a word */
        for (size_t i = 0; i < n; i++)
            AX_TRY(ax_jvm_put_char(vm, mapped[i]));
        in_word = how == AX_JLETTERS_WORDS ? !ends_word(c) : ax_python_is_cased(c);
        if (how == AX_JLETTERS_WORDS && first)
            letter_before = false;
        else if (!ax_python_is_case_ignorable(c))
            letter_before = ax_python_is_cased(c);
    }
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, capture, &out->str));
    out->str->safe = s->safe;
    return AX_OK;
}

/* ---- strip ---- */

static bool is_stripped(const struct ax_jstr *chars, uint32_t c) {
    if (chars == NULL)
        return ax_python_is_space(c);
    for (size_t p = 0; p < chars->len;)
        if (ax_python_next(chars->data, &p) == c)
            return true;
    return false;
}

/* Strips the characters of `chars`, or white space if it is NULL. */
static enum ax_status strip_text(struct ax_jvm *vm, enum ax_jsides sides, struct ax_jstr *s,
                                 const struct ax_jstr *chars, struct ax_jval *out) {
    size_t start = 0, end = s->len, cost = 1 + (chars != NULL ? chars->len / 2 : 0);
    while ((sides & AX_JLEFT) != 0 && start < end) {
        size_t p = start;
        if (!is_stripped(chars, ax_python_next(s->data, &p)))
            break;
        AX_TRY(ax_jvm_charge(vm, cost));
        start = p;
    }
    while ((sides & AX_JRIGHT) != 0 && end > start) {
        size_t p = end;
        if (!is_stripped(chars, ax_python_prev(s->data, &p)))
            break;
        AX_TRY(ax_jvm_charge(vm, cost));
        end = p;
    }
    *out = ax_jstring(s);
    return start == 0 && end == s->len ? AX_OK
                                       : ax_jstr_slice(&vm->arena, &out->str, s, start, end);
}

/* ---- replace ---- */

/* An empty `old` matches before each character and at the end. */
static enum ax_status replace_empty(struct ax_jvm *vm, struct ax_jstr *s,
                                    const struct ax_jstr *with, int64_t count) {
    size_t p = 0;
    for (; count != 0; count--) {
        AX_TRY(ax_jvm_put(vm, with->data, with->len));
        size_t next = p;
        if (p == s->len)
            return AX_OK;
        ax_python_next(s->data, &next);
        AX_TRY(ax_jvm_put(vm, s->data + p, next - p));
        p = next;
    }
    return ax_jvm_put(vm, s->data + p, s->len - p);
}

/* At most `count` occurrences; negative: no limit. */
static enum ax_status replace_text(struct ax_jvm *vm, struct ax_jstr *s, struct ax_jstr *old,
                                   struct ax_jstr *with, int64_t count, struct ax_jval *out) {
    struct ax_jcapture c = ax_jvm_capture(vm);
    if (old->len == 0) {
        AX_TRY(ax_jvm_charge(vm, s->len));
        AX_TRY(replace_empty(vm, s, with, count));
    } else {
        size_t p = 0, hit;
        while (count-- != 0 && (hit = ax_jstr_find(s, old, p)) != SIZE_MAX) {
            AX_TRY(ax_jvm_charge(vm, 1));
            AX_TRY(ax_jvm_put(vm, s->data + p, hit - p));
            AX_TRY(ax_jvm_put(vm, with->data, with->len));
            p = hit + old->len;
        }
        AX_TRY(ax_jvm_put(vm, s->data + p, s->len - p));
    }
    out->kind = AX_JSTR;
    return ax_jvm_take(vm, c, &out->str);
}

/* ---- split ---- */

static enum ax_status add_piece(struct ax_jvm *vm, struct ax_jstr *s, size_t start, size_t end,
                                struct ax_jitems *items) {
    struct ax_jval v = {.kind = AX_JSTR};
    AX_TRY(ax_jvm_charge(vm, 1));
    AX_TRY(ax_jstr_slice(&vm->arena, &v.str, s, start, end));
    return ax_jitems_add(&vm->arena, items, v);
}

static enum ax_status split_spaces(struct ax_jvm *vm, struct ax_jstr *s, int64_t max,
                                   struct ax_jitems *items) {
    size_t p = 0;
    for (;;) {
        size_t start = p, next = p;
        while (start < s->len && ax_python_is_space(ax_python_next(s->data, &next)))
            start = next;
        if (start == s->len)
            return AX_OK;
        if (max-- == 0) /* the rest, unsplit */
            return add_piece(vm, s, start, s->len, items);
        p = start;
        next = p;
        while (p < s->len && !ax_python_is_space(ax_python_next(s->data, &next)))
            p = next;
        AX_TRY(add_piece(vm, s, start, p, items));
    }
}

static enum ax_status split_at(struct ax_jvm *vm, struct ax_jstr *s, const struct ax_jstr *sep,
                               int64_t max, struct ax_jitems *items) {
    size_t p = 0, hit;
    while (max-- != 0 && (hit = ax_jstr_find(s, sep, p)) != SIZE_MAX) {
        AX_TRY(add_piece(vm, s, p, hit, items));
        p = hit + sep->len;
    }
    return add_piece(vm, s, p, s->len, items);
}

enum ax_status ax_jtext_split(struct ax_jvm *vm, struct ax_jstr *s, const struct ax_jstr *sep,
                              int64_t max, struct ax_jval *out) {
    struct ax_jitems items = {0};
    AX_TRY(ax_jvm_charge(vm, s->len / 64));
    if (sep != NULL && sep->len == 0)
        return ax_jvm_error(vm, "split: the separator is empty");
    AX_TRY(sep == NULL ? split_spaces(vm, s, max, &items) : split_at(vm, s, sep, max, &items));
    return ax_jitems_done(&vm->arena, &items, AX_JLIST, out);
}

static bool is_line_end(uint32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

/* Splits lines as str.splitlines does. */
static enum ax_status split_lines(struct ax_jvm *vm, struct ax_jstr *s, bool keep_ends,
                                  struct ax_jitems *out) {
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    size_t start = 0, p = 0;
    while (p < s->len) {
        size_t end = p;
        uint32_t c = ax_python_next(s->data, &p);
        if (!is_line_end(c))
            continue;
        p += c == '\r' && p < s->len && s->data[p] == '\n';
        AX_TRY(add_piece(vm, s, start, keep_ends ? p : end, out));
        start = p;
    }
    return start < s->len ? add_piece(vm, s, start, s->len, out) : AX_OK;
}

/* ---- join ---- */

enum ax_status ax_jtext_join(struct ax_jvm *vm, const struct ax_jstr *sep, struct ax_jval items,
                             bool any, struct ax_jval *out) {
    struct ax_jitems list;
    AX_TRY(ax_jval_items(vm, items, &list));
    struct ax_jcapture c = ax_jvm_capture(vm);
    for (size_t i = 0; i < list.n; i++) {
        if (!any && list.items[i].kind != AX_JSTR) {
            return ax_jvm_error(vm, "join: item %zu is a %s, not a str", i,
                                ax_jval_type(list.items[i]));
        }
        if (i > 0)
            AX_TRY(ax_jvm_put(vm, sep->data, sep->len));
        AX_TRY(ax_jval_put_str(vm, list.items[i]));
    }
    out->kind = AX_JSTR;
    return ax_jvm_take(vm, c, &out->str);
}

/* ---- both ---- */

/* upper, lower, capitalize */
static enum ax_status text_case(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    return ax_jtext_case(vm,
                         call->name[0] == 'u'   ? AX_JLETTERS_UPPER
                         : call->name[0] == 'l' ? AX_JLETTERS_LOWER
                                                : AX_JLETTERS_CAPITALIZE,
                         s, out);
}

/* trim and strip, lstrip, rstrip */
static enum ax_status text_strip(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const enum ax_jsides sides = call->name[0] == 'l'   ? AX_JLEFT
                                 : call->name[0] == 'r' ? AX_JRIGHT
                                                        : AX_JBOTH;
    struct ax_jstr *s, *chars = NULL;
    if (call->v[0].kind != AX_JNONE)
        AX_TRY(ax_jarg_str(vm, call, "the characters", call->v[0], &chars));
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    return strip_text(vm, sides, s, chars, out);
}

/* ---- filters ---- */

static enum ax_status filter_title(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    return ax_jtext_case(vm, AX_JLETTERS_WORDS, s, out);
}

static enum ax_status filter_string(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    out->kind = AX_JSTR;
    return ax_jval_to_str(vm, call->self, &out->str);
}

/* The text itself, marked as safe, because Jinja escapes what is later added to it. */
static enum ax_status filter_safe(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    out->kind = AX_JSTR;
    AX_TRY(ax_jstr_slice(&vm->arena, &out->str, s, 0, s->len));
    out->str->safe = true;
    return AX_OK;
}

static enum ax_status filter_replace(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    struct ax_jstr *s, *old, *with;
    int64_t count = -1;
    if (call->v[2].kind != AX_JNONE)
        AX_TRY(ax_jarg_int(vm, call, "the count", call->v[2], &count));
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    AX_TRY(ax_jval_to_str(vm, call->v[0], &old));
    AX_TRY(ax_jval_to_str(vm, call->v[1], &with));
    return replace_text(vm, s, old, with, count, out);
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
    struct ax_jstr *unit;
    struct ax_jitems lines = {0};
    AX_TRY(indentation(vm, call, call->v[0], &unit));
    if (call->self.kind != AX_JSTR)
        return ax_jvm_error(vm, "indent needs a str, not a %s", ax_jval_type(call->self));
    /* The added newline makes an empty last line count. */
    struct ax_jstr newline = {.data = "\n", .len = 1}, *s;
    AX_TRY(ax_jstr_concat(&vm->arena, &s, call->self.str, &newline));
    AX_TRY(split_lines(vm, s, false, &lines));
    struct ax_jcapture c = ax_jvm_capture(vm);
    if (ax_jarg_truth(call->v[1], false))
        AX_TRY(ax_jvm_put(vm, unit->data, unit->len));
    for (size_t i = 0; i < lines.n; i++) {
        const struct ax_jstr *line = lines.items[i].str;
        if (i > 0) {
            AX_TRY(ax_jvm_puts(vm, "\n"));
            if (line->len > 0 || ax_jarg_truth(call->v[2], false))
                AX_TRY(ax_jvm_put(vm, unit->data, unit->len));
        }
        AX_TRY(ax_jvm_put(vm, line->data, line->len));
    }
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->safe = call->self.str->safe;
    return AX_OK;
}

const struct ax_jbuiltin ax_jfilters_text[] = {
    {"trim", text_strip, "chars="},
    {"string", filter_string, ""},
    {"safe", filter_safe, ""},
    {"lower", text_case, ""},
    {"upper", text_case, ""},
    {"capitalize", text_case, ""},
    {"title", filter_title, ""},
    {"replace", filter_replace, "old new count="},
    {"indent", filter_indent, "width= first= blank="},
    {NULL, NULL, NULL},
};

/* ---- methods ---- */

static enum ax_status str_title(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return ax_jtext_case(vm, AX_JLETTERS_TITLE, c->self.str, out);
}

static bool has_affix(const struct ax_jstr *s, const struct ax_jstr *affix, bool prefix) {
    return affix->len <= s->len &&
           memcmp(prefix ? s->data : s->data + s->len - affix->len, affix->data, affix->len) == 0;
}

/* startswith, endswith: a str, or a tuple of several */
static enum ax_status str_with(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    const struct ax_jval affix = call->v[0];
    const struct ax_jval *items = affix.kind == AX_JTUPLE ? affix.list->items : &affix;
    const size_t n = affix.kind == AX_JTUPLE ? affix.list->n : 1;
    bool hit = false;
    for (size_t i = 0; i < n && !hit; i++) {
        struct ax_jstr *text = NULL;
        AX_TRY(ax_jarg_str(vm, call, "the argument", items[i], &text));
        AX_TRY(ax_jvm_charge(vm, text->len / 64));
        hit = has_affix(call->self.str, text, call->name[0] == 's');
    }
    *out = ax_jbool(hit);
    return AX_OK;
}

/* ---- str: pieces ---- */

static enum ax_status str_split(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    struct ax_jstr *sep = NULL;
    int64_t max = -1;
    if (call->v[0].kind != AX_JNONE)
        AX_TRY(ax_jarg_str(vm, call, "the separator", call->v[0], &sep));
    AX_TRY(ax_jarg_int(vm, call, "maxsplit", call->v[1], &max));
    return ax_jtext_split(vm, call->self.str, sep, max, out);
}

static enum ax_status str_splitlines(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    struct ax_jitems lines = {0};
    AX_TRY(split_lines(vm, call->self.str, ax_jarg_truth(call->v[0], false), &lines));
    return ax_jitems_done(&vm->arena, &lines, AX_JLIST, out);
}

/* Jinja escapes what these two insert into the result of |safe. */
static enum ax_status refuse_safe(struct ax_jvm *vm, const struct ax_jcall *call) {
    return call->self.str->safe
               ? ax_jvm_error(vm, "%s on the result of |safe is not supported: remove |safe",
                              call->name)
               : AX_OK;
}

static enum ax_status str_join(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    AX_TRY(refuse_safe(vm, call));
    return ax_jtext_join(vm, call->self.str, call->v[0], false, out);
}

static enum ax_status str_replace(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jstr *old = NULL, *with = NULL;
    int64_t count = -1;
    AX_TRY(refuse_safe(vm, call));
    AX_TRY(ax_jarg_str(vm, call, "the old text", call->v[0], &old));
    AX_TRY(ax_jarg_str(vm, call, "the new text", call->v[1], &with));
    AX_TRY(ax_jarg_int(vm, call, "the count", call->v[2], &count));
    return replace_text(vm, call->self.str, old, with, count, out);
}

/* ---- str: questions ---- */

/* The position in code points. */
static enum ax_status str_find(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    struct ax_jstr *needle = NULL, *s = call->self.str;
    AX_TRY(ax_jarg_str(vm, call, "the text to find", call->v[0], &needle));
    AX_TRY(ax_jvm_charge(vm, 1 + s->len / 16));
    const size_t hit = ax_jstr_find(s, needle, 0);
    *out = ax_jint(hit == SIZE_MAX ? -1 : (int64_t)ax_python_count(s->data, hit));
    return AX_OK;
}

static enum ax_status str_isdigit(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    const struct ax_jstr *s = call->self.str;
    bool holds = s->len > 0;
    for (size_t p = 0; p < s->len && holds;)
        holds = ax_python_is_digit(ax_python_next(s->data, &p));
    *out = ax_jbool(holds);
    return ax_jvm_charge(vm, s->len / 16);
}

const struct ax_jbuiltin ax_jstr_methods[] = {
    {"split", str_split, "sep= maxsplit="},
    {"strip", text_strip, "/chars="},
    {"lstrip", text_strip, "/chars="},
    {"rstrip", text_strip, "/chars="},
    {"startswith", str_with, "/prefix"},
    {"endswith", str_with, "/suffix"},
    {"replace", str_replace, "/old new count="},
    {"upper", text_case, ""},
    {"lower", text_case, ""},
    {"capitalize", text_case, ""},
    {"title", str_title, ""},
    {"find", str_find, "/sub"},
    {"join", str_join, "/iterable"},
    {"splitlines", str_splitlines, "keepends="},
    {"isdigit", str_isdigit, ""},
    {NULL, NULL, NULL},
};
