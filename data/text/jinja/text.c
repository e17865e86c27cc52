/* The text operations of text.h. */
#include "data/text/jinja/text.h"

#include <string.h>

#include "data/text/jinja/unicode.h"

/* ---- case ---- */

static bool ends_word(uint32_t c) {
    return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || ax_python_is_space(c);
}

/* Does a letter follow at s[p]? It decides the form of a lower-case sigma. */
static bool letter_at(const struct ax_jstr *s, size_t p) {
    return p < s->len && ax_python_is_cased(ax_python_next(s->data, &p));
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
        letter_before = ax_python_is_cased(c) && !(how == AX_JLETTERS_WORDS && first);
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

enum ax_status ax_jtext_strip(struct ax_jvm *vm, enum ax_jsides sides, struct ax_jstr *s,
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

enum ax_status ax_jtext_replace(struct ax_jvm *vm, struct ax_jstr *s, struct ax_jstr *old,
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

enum ax_status ax_jtext_lines(struct ax_jvm *vm, struct ax_jstr *s, bool keep_ends,
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
