/* The text operations of jinja_text.h. */
#include "data/jinja_text.h"

#include <string.h>

#include "data/jinja_unicode.h"

/* ---- case ---- */

static bool is_cased(uint32_t c) {
    return ax_python_is_lower(c) || ax_python_is_upper(c) || ax_python_is_title(c);
}

/* Maps the character at s[p]; `in_word` tells title() whether a letter came just before. */
static size_t map_char(enum ax_jcase how, const struct ax_jstr *s, size_t p, bool in_word,
                       uint32_t out[AX_UNICODE_MAP_MAX]) {
    size_t next = p;
    uint32_t c = ax_python_next(s->data, &next);
    switch (how) {
    case AX_JCASE_UPPER:
        return ax_python_to_upper(c, out);
    case AX_JCASE_FOLD:
        return ax_python_to_folded(c, out);
    case AX_JCASE_CAPITALIZE:
        return p == 0 ? ax_python_to_title(c, out) : ax_python_to_lower(s->data, s->len, p, out);
    case AX_JCASE_TITLE:
        return !in_word ? ax_python_to_title(c, out) : ax_python_to_lower(s->data, s->len, p, out);
    case AX_JCASE_SWAP:
        if (ax_python_is_upper(c)) {
            return ax_python_to_lower(s->data, s->len, p, out);
        }
        if (ax_python_is_lower(c)) {
            return ax_python_to_upper(c, out);
        }
        out[0] = c;
        return 1;
    default:
        return ax_python_to_lower(s->data, s->len, p, out);
    }
}

enum ax_status ax_jtext_case(struct ax_jvm *vm, enum ax_jcase how, struct ax_jstr *s,
                             struct ax_jstr **out) {
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    bool in_word = false;
    for (size_t p = 0; p < s->len;) {
        uint32_t mapped[AX_UNICODE_MAP_MAX];
        size_t n = map_char(how, s, p, in_word, mapped);
        for (size_t i = 0; i < n; i++) {
            AX_TRY(ax_jvm_put_char(vm, mapped[i]));
        }
        in_word = is_cased(ax_python_next(s->data, &p));
    }
    AX_TRY(ax_jvm_take(vm, c, out));
    (*out)->markup = s->markup;
    return AX_OK;
}

/* ---- strip ---- */

static bool is_stripped(const struct ax_jstr *chars, uint32_t c) {
    if (chars == NULL) {
        return ax_python_is_space(c);
    }
    for (size_t p = 0; p < chars->len;) {
        if (ax_python_next(chars->data, &p) == c) {
            return true;
        }
    }
    return false;
}

enum ax_status ax_jtext_strip(struct ax_jvm *vm, enum ax_jsides sides, struct ax_jstr *s,
                              const struct ax_jstr *chars, struct ax_jstr **out) {
    size_t start = 0, end = s->len, cost = 1 + (chars != NULL ? chars->len / 2 : 0);
    while ((sides & AX_JLEFT) != 0 && start < end) {
        size_t p = start;
        if (!is_stripped(chars, ax_python_next(s->data, &p))) {
            break;
        }
        AX_TRY(ax_jvm_charge(vm, cost));
        start = p;
    }
    while ((sides & AX_JRIGHT) != 0 && end > start) {
        size_t p = end;
        if (!is_stripped(chars, ax_python_prev(s->data, &p))) {
            break;
        }
        AX_TRY(ax_jvm_charge(vm, cost));
        end = p;
    }
    if (start == 0 && end == s->len) {
        *out = s;
        return AX_OK;
    }
    return ax_jstr_slice(&vm->arena, out, s, start, end);
}

/* ---- replace ---- */

/* An empty `old` is found before each character and at the end. */
static enum ax_status replace_empty(struct ax_jvm *vm, struct ax_jstr *s,
                                    const struct ax_jstr *with, int64_t count) {
    size_t p = 0;
    for (; count != 0; count--) {
        AX_TRY(ax_jvm_put(vm, with->data, with->len));
        size_t next = p;
        if (p == s->len) {
            return AX_OK;
        }
        ax_python_next(s->data, &next);
        AX_TRY(ax_jvm_put(vm, s->data + p, next - p));
        p = next;
    }
    return ax_jvm_put(vm, s->data + p, s->len - p);
}

enum ax_status ax_jtext_replace(struct ax_jvm *vm, struct ax_jstr *s, struct ax_jstr *old,
                                struct ax_jstr *with, int64_t count, struct ax_jstr **out) {
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
    AX_TRY(ax_jvm_take(vm, c, out));
    (*out)->markup = s->markup;
    return AX_OK;
}

/* ---- split ---- */

static enum ax_status add_piece(struct ax_jvm *vm, struct ax_jstr *s, size_t start, size_t end,
                                struct ax_jitems *items) {
    struct ax_jval v = {.kind = AX_JSTR};
    AX_TRY(ax_jvm_charge(vm, 1));
    AX_TRY(ax_jstr_slice(&vm->arena, &v.str, s, start, end));
    return ax_jitems_add(&vm->arena, items, v);
}

static void reverse(struct ax_jitems *items) {
    for (size_t i = 0, k = items->n; i + 1 < k; i++) {
        k--;
        struct ax_jval v = items->items[i];
        items->items[i] = items->items[k];
        items->items[k] = v;
    }
}

static enum ax_status split_spaces(struct ax_jvm *vm, struct ax_jstr *s, int64_t max,
                                   struct ax_jitems *items) {
    size_t p = 0;
    for (;;) {
        size_t start = p, next = p;
        while (start < s->len && ax_python_is_space(ax_python_next(s->data, &next))) {
            start = next;
        }
        if (start == s->len) {
            return AX_OK;
        }
        if (max-- == 0) { /* the rest as it is */
            return add_piece(vm, s, start, s->len, items);
        }
        p = start;
        next = p;
        while (p < s->len && !ax_python_is_space(ax_python_next(s->data, &next))) {
            p = next;
        }
        AX_TRY(add_piece(vm, s, start, p, items));
    }
}

static enum ax_status split_spaces_right(struct ax_jvm *vm, struct ax_jstr *s, int64_t max,
                                         struct ax_jitems *items) {
    size_t end = s->len;
    for (;;) {
        size_t p = end;
        while (end > 0 && ax_python_is_space(ax_python_prev(s->data, &p))) {
            end = p;
        }
        if (end == 0) {
            break;
        }
        if (max-- == 0) {
            AX_TRY(add_piece(vm, s, 0, end, items));
            break;
        }
        size_t start = end;
        p = end;
        while (start > 0 && !ax_python_is_space(ax_python_prev(s->data, &p))) {
            start = p;
        }
        AX_TRY(add_piece(vm, s, start, end, items));
        end = start;
    }
    reverse(items);
    return AX_OK;
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

static enum ax_status split_at_right(struct ax_jvm *vm, struct ax_jstr *s,
                                     const struct ax_jstr *sep, int64_t max,
                                     struct ax_jitems *items) {
    size_t end = s->len, at = s->len;
    AX_TRY(ax_jvm_charge(vm, (1 + s->len / 64) * (1 + sep->len / 64)));
    while (max != 0 && at >= sep->len) {
        if (memcmp(s->data + at - sep->len, sep->data, sep->len) == 0) {
            AX_TRY(add_piece(vm, s, at, end, items));
            end = at -= sep->len;
            max--;
        } else {
            at--;
        }
    }
    AX_TRY(add_piece(vm, s, 0, end, items));
    reverse(items);
    return AX_OK;
}

enum ax_status ax_jtext_split(struct ax_jvm *vm, struct ax_jstr *s, const struct ax_jstr *sep,
                              int64_t max, bool from_right, struct ax_jval *out) {
    struct ax_jitems items = {0};
    AX_TRY(ax_jvm_charge(vm, s->len / 64));
    if (sep != NULL && sep->len == 0) {
        return ax_jvm_error(vm, "split: the separator is empty");
    }
    if (sep == NULL) {
        AX_TRY(from_right ? split_spaces_right(vm, s, max, &items)
                          : split_spaces(vm, s, max, &items));
    } else {
        AX_TRY(from_right ? split_at_right(vm, s, sep, max, &items)
                          : split_at(vm, s, sep, max, &items));
    }
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
        if (!is_line_end(c)) {
            continue;
        }
        p += c == '\r' && p < s->len && s->data[p] == '\n';
        AX_TRY(add_piece(vm, s, start, keep_ends ? p : end, out));
        start = p;
    }
    return start < s->len ? add_piece(vm, s, start, s->len, out) : AX_OK;
}

/* ---- join and pad ---- */

enum ax_status ax_jtext_join(struct ax_jvm *vm, const struct ax_jstr *sep, struct ax_jval items,
                             bool any, struct ax_jstr **out) {
    struct ax_jitems list;
    AX_TRY(ax_jval_items(vm, items, &list));
    struct ax_jcapture c = ax_jvm_capture(vm);
    for (size_t i = 0; i < list.n; i++) {
        if (!any && list.items[i].kind != AX_JSTR) {
            return ax_jvm_error(vm, "join: item %zu is a %s, not a str", i,
                                ax_jval_type(list.items[i]));
        }
        if (i > 0) {
            AX_TRY(ax_jvm_put(vm, sep->data, sep->len));
        }
        AX_TRY(ax_jval_put_str(vm, list.items[i]));
    }
    return ax_jvm_take(vm, c, out);
}

static enum ax_status put_fill(struct ax_jvm *vm, const struct ax_jstr *fill, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        AX_TRY(ax_jvm_charge(vm, 1));
        AX_TRY(ax_jvm_put(vm, fill->data, fill->len));
    }
    return AX_OK;
}

enum ax_status ax_jtext_center(struct ax_jvm *vm, struct ax_jstr *s, int64_t width,
                               const struct ax_jstr *fill, enum ax_jsides pad,
                               struct ax_jstr **out) {
    int64_t missing = width - (int64_t)ax_jstr_chars(s);
    if (missing <= 0) {
        *out = s;
        return AX_OK;
    }
    int64_t left = pad == AX_JLEFT ? missing : pad == AX_JRIGHT ? 0 : missing / 2;
    if (pad == AX_JBOTH) { /* Python puts the odd one on the left when the width is odd */
        left += missing & width & 1;
    }
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(put_fill(vm, fill, left));
    AX_TRY(ax_jvm_put(vm, s->data, s->len));
    AX_TRY(put_fill(vm, fill, missing - left));
    AX_TRY(ax_jvm_take(vm, c, out));
    (*out)->markup = s->markup;
    return AX_OK;
}
