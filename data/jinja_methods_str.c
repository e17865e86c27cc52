/* Methods of str. */
#include <string.h>

#include "data/jinja_builtin.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

/* ---- case ---- */

static enum ax_status in_case(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jcase how,
                              struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    out->kind = AX_JSTR;
    return ax_jtext_case(vm, how, call->self.str, &out->str);
}

static enum ax_status str_lower(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_LOWER, out);
}

static enum ax_status str_upper(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_UPPER, out);
}

static enum ax_status str_capitalize(struct ax_jvm *vm, const struct ax_jcall *c,
                                     struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_CAPITALIZE, out);
}

static enum ax_status str_title(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_TITLE, out);
}

static enum ax_status str_swapcase(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_SWAP, out);
}

static enum ax_status str_casefold(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return in_case(vm, c, AX_JCASE_FOLD, out);
}

/* ---- strip ---- */

static enum ax_status strip(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jsides sides,
                            struct ax_jval *out) {
    struct ax_jstr *chars = NULL;
    AX_TRY(ax_jcall_count(vm, call, 0, 1));
    if (call->n_args == 1 && call->args[0].kind != AX_JNONE) {
        AX_TRY(ax_jarg_str(vm, call, "the characters", call->args[0], &chars));
    }
    out->kind = AX_JSTR;
    return ax_jtext_strip(vm, sides, call->self.str, chars, &out->str);
}

static enum ax_status str_strip(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return strip(vm, c, AX_JBOTH, out);
}

static enum ax_status str_lstrip(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return strip(vm, c, AX_JLEFT, out);
}

static enum ax_status str_rstrip(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return strip(vm, c, AX_JRIGHT, out);
}

static enum ax_status remove_affix(struct ax_jvm *vm, const struct ax_jcall *call, bool prefix,
                                   struct ax_jval *out) {
    struct ax_jstr *affix = NULL, *s = call->self.str;
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    AX_TRY(ax_jarg_str(vm, call, "the argument", call->args[0], &affix));
    size_t rest = s->len - affix->len;
    if (affix->len > s->len ||
        memcmp(prefix ? s->data : s->data + rest, affix->data, affix->len) != 0) {
        *out = call->self;
        return AX_OK;
    }
    out->kind = AX_JSTR;
    return ax_jstr_slice(&vm->arena, &out->str, s, prefix ? affix->len : 0, prefix ? s->len : rest);
}

static enum ax_status str_removeprefix(struct ax_jvm *vm, const struct ax_jcall *c,
                                       struct ax_jval *out) {
    return remove_affix(vm, c, true, out);
}

static enum ax_status str_removesuffix(struct ax_jvm *vm, const struct ax_jcall *c,
                                       struct ax_jval *out) {
    return remove_affix(vm, c, false, out);
}

/* ---- split and join ---- */

static enum ax_status split(struct ax_jvm *vm, const struct ax_jcall *call, bool from_right,
                            struct ax_jval *out) {
    static const char *const params[] = {"sep", "maxsplit"};
    struct ax_jval v[2];
    struct ax_jstr *sep = NULL;
    int64_t max = -1;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    if (v[0].kind != AX_JNONE) {
        AX_TRY(ax_jarg_str(vm, call, "the separator", v[0], &sep));
    }
    AX_TRY(ax_jarg_int(vm, call, "maxsplit", v[1], &max));
    return ax_jtext_split(vm, call->self.str, sep, max, from_right, out);
}

static enum ax_status str_split(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return split(vm, c, false, out);
}

static enum ax_status str_rsplit(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return split(vm, c, true, out);
}

static enum ax_status str_splitlines(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    static const char *const params[] = {"keepends"};
    struct ax_jval keep;
    struct ax_jitems items = {0};
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 0, &keep));
    AX_TRY(ax_jtext_lines(vm, call->self.str, ax_jarg_truth(keep, false), &items));
    return ax_jitems_done(&vm->arena, &items, AX_JLIST, out);
}

/* (before, sep, after), at the first or last sep. */
static enum ax_status partition(struct ax_jvm *vm, const struct ax_jcall *call, bool last,
                                struct ax_jval *out) {
    struct ax_jstr *sep = NULL, *s = call->self.str;
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    AX_TRY(ax_jarg_str(vm, call, "the separator", call->args[0], &sep));
    struct ax_jval cut, *items;
    AX_TRY(ax_jtext_split(vm, s, sep, 1, last, &cut));
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, 3, sizeof *items));
    if (cut.list->n == 2) {
        items[0] = cut.list->items[0];
        items[1].kind = AX_JSTR;
        AX_TRY(ax_jstr_copy(&vm->arena, &items[1].str, sep->data, sep->len));
        items[1].str->markup = s->markup;
        items[2] = cut.list->items[1];
    } else {
        struct ax_jstr *empty;
        AX_TRY(ax_jstr_slice(&vm->arena, &empty, s, 0, 0));
        items[0] = items[1] = items[2] = ax_jstring(empty);
        items[last ? 2 : 0] = call->self;
    }
    return ax_jlist_wrap(&vm->arena, AX_JTUPLE, items, 3, out);
}

static enum ax_status str_partition(struct ax_jvm *vm, const struct ax_jcall *c,
                                    struct ax_jval *out) {
    return partition(vm, c, false, out);
}

static enum ax_status str_rpartition(struct ax_jvm *vm, const struct ax_jcall *c,
                                     struct ax_jval *out) {
    return partition(vm, c, true, out);
}

static enum ax_status str_join(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    struct ax_jval items = call->args[0];
    if (call->self.str->markup) { /* Markup.join escapes what it joins */
        struct ax_jitems list;
        AX_TRY(ax_jval_items(vm, items, &list));
        for (size_t i = 0; i < list.n; i++) {
            struct ax_jstr *text;
            AX_TRY(ax_jval_escape(vm, list.items[i], &text));
            list.items[i] = ax_jstring(text);
        }
        AX_TRY(ax_jitems_done(&vm->arena, &list, AX_JLIST, &items));
    }
    out->kind = AX_JSTR;
    AX_TRY(ax_jtext_join(vm, call->self.str, items, false, &out->str));
    out->str->markup = call->self.str->markup;
    return AX_OK;
}

static enum ax_status str_replace(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jstr *old = NULL, *with = NULL;
    int64_t count = -1;
    AX_TRY(ax_jcall_count(vm, call, 2, 3));
    AX_TRY(ax_jarg_str(vm, call, "the text to find", call->args[0], &old));
    AX_TRY(ax_jarg_str(vm, call, "the replacement", call->args[1], &with));
    if (call->n_args == 3) {
        AX_TRY(ax_jarg_int(vm, call, "the count", call->args[2], &count));
    }
    if (call->self.str->markup) {
        AX_TRY(ax_jval_escape(vm, call->args[1], &with));
    }
    out->kind = AX_JSTR;
    return ax_jtext_replace(vm, call->self.str, old, with, count, &out->str);
}

/* ---- find ---- */

/* The part [start, end) of self that the arguments behind the first choose, in code points. */
static enum ax_status search_range(struct ax_jvm *vm, const struct ax_jcall *call, int64_t *start,
                                   int64_t *end) {
    int64_t n = (int64_t)ax_jstr_chars(call->self.str);
    *start = 0;
    *end = n;
    if (call->n_args > 1 && call->args[1].kind != AX_JNONE) {
        AX_TRY(ax_jarg_int(vm, call, "the start", call->args[1], start));
    }
    if (call->n_args > 2 && call->args[2].kind != AX_JNONE) {
        AX_TRY(ax_jarg_int(vm, call, "the end", call->args[2], end));
    }
    *start = *start < 0 ? (*start + n < 0 ? 0 : *start + n) : *start;
    *end = *end < 0 ? (*end + n < 0 ? 0 : *end + n) : *end > n ? n : *end;
    return AX_OK;
}

/* Position of the first (or last) occurrence in the range, in code points, or -1. */
static enum ax_status find(struct ax_jvm *vm, const struct ax_jcall *call, bool last,
                           int64_t *position) {
    struct ax_jstr *needle = NULL, *s = call->self.str;
    int64_t start, end;
    AX_TRY(ax_jcall_count(vm, call, 1, 3));
    AX_TRY(ax_jarg_str(vm, call, "the text to find", call->args[0], &needle));
    AX_TRY(search_range(vm, call, &start, &end));
    AX_TRY(ax_jvm_charge(vm, (1 + s->len / 16) * (last ? 1 + needle->len / 64 : 1)));
    *position = -1;
    if (start > end) {
        return AX_OK;
    }
    size_t from = ax_jstr_offset(s, (size_t)start), to = ax_jstr_offset(s, (size_t)end);
    struct ax_jstr part = {.data = s->data, .len = to, .chars = AX_JUNCOUNTED};
    size_t hit = SIZE_MAX;
    if (!last) {
        hit = ax_jstr_find(&part, needle, from);
    } else {
        for (size_t at = to; at >= from + needle->len; at--) {
            if (memcmp(s->data + at - needle->len, needle->data, needle->len) == 0) {
                hit = at - needle->len;
                break;
            }
            if (at == 0) {
                break;
            }
        }
    }
    if (hit != SIZE_MAX) {
        *position = (int64_t)ax_python_count(s->data, hit);
    }
    return AX_OK;
}

static enum ax_status str_find(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    int64_t position;
    AX_TRY(find(vm, call, false, &position));
    *out = ax_jint(position);
    return AX_OK;
}

static enum ax_status str_rfind(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    int64_t position;
    AX_TRY(find(vm, call, true, &position));
    *out = ax_jint(position);
    return AX_OK;
}

static enum ax_status found(struct ax_jvm *vm, const struct ax_jcall *call, int64_t position,
                            struct ax_jval *out) {
    if (position < 0) {
        return ax_jvm_error(vm, "%s: the text does not occur", call->name);
    }
    *out = ax_jint(position);
    return AX_OK;
}

static enum ax_status str_index(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    int64_t position;
    AX_TRY(find(vm, call, false, &position));
    return found(vm, call, position, out);
}

static enum ax_status str_rindex(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    int64_t position;
    AX_TRY(find(vm, call, true, &position));
    return found(vm, call, position, out);
}

static enum ax_status str_count(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    struct ax_jstr *needle = NULL, *s = call->self.str;
    int64_t start, end, n = 0;
    AX_TRY(ax_jcall_count(vm, call, 1, 3));
    AX_TRY(ax_jarg_str(vm, call, "the text to count", call->args[0], &needle));
    AX_TRY(search_range(vm, call, &start, &end));
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    if (start > end) {
        *out = ax_jint(0);
        return AX_OK;
    }
    if (needle->len == 0) {
        *out = ax_jint(end - start + 1);
        return AX_OK;
    }
    size_t p = ax_jstr_offset(s, (size_t)start);
    struct ax_jstr part = {.data = s->data, .len = ax_jstr_offset(s, (size_t)end)};
    while ((p = ax_jstr_find(&part, needle, p)) != SIZE_MAX) {
        p += needle->len;
        n++;
    }
    *out = ax_jint(n);
    return AX_OK;
}

/* Does self[start:end] begin (or end) with the affix? */
static bool has_affix(const struct ax_jstr *s, size_t from, size_t to, const struct ax_jstr *affix,
                      bool prefix) {
    return affix->len <= to - from && memcmp(prefix ? s->data + from : s->data + to - affix->len,
                                             affix->data, affix->len) == 0;
}

static enum ax_status with_affix(struct ax_jvm *vm, const struct ax_jcall *call, bool prefix,
                                 struct ax_jval *out) {
    struct ax_jstr *s = call->self.str;
    int64_t start, end;
    AX_TRY(ax_jcall_count(vm, call, 1, 3));
    AX_TRY(search_range(vm, call, &start, &end));
    AX_TRY(ax_jvm_charge(vm, call->n_args > 1 ? s->len / 64 : 0));
    struct ax_jval affix = call->args[0];
    const struct ax_jval *items = affix.kind == AX_JTUPLE ? affix.list->items : &affix;
    size_t n = affix.kind == AX_JTUPLE ? affix.list->n : 1;
    bool hit = false;
    for (size_t i = 0; i < n && !hit; i++) {
        struct ax_jstr *text = NULL;
        AX_TRY(ax_jarg_str(vm, call, "the argument", items[i], &text));
        hit = start <= end && has_affix(s, ax_jstr_offset(s, (size_t)start),
                                        ax_jstr_offset(s, (size_t)end), text, prefix);
    }
    *out = ax_jbool(hit);
    return AX_OK;
}

static enum ax_status str_startswith(struct ax_jvm *vm, const struct ax_jcall *c,
                                     struct ax_jval *out) {
    return with_affix(vm, c, true, out);
}

static enum ax_status str_endswith(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return with_affix(vm, c, false, out);
}

const struct ax_jbuiltin *ax_jstr_method(const struct ax_jstr *name) {
    static const struct ax_jbuiltin methods[] = {
        {"split", str_split},
        {"strip", str_strip},
        {"lstrip", str_lstrip},
        {"rstrip", str_rstrip},
        {"startswith", str_startswith},
        {"endswith", str_endswith},
        {"replace", str_replace},
        {"upper", str_upper},
        {"lower", str_lower},
        {"capitalize", str_capitalize},
        {"title", str_title},
        {"find", str_find},
        {"rfind", str_rfind},
        {"index", str_index},
        {"rindex", str_rindex},
        {"count", str_count},
        {"join", str_join},
        {"rsplit", str_rsplit},
        {"splitlines", str_splitlines},
        {"partition", str_partition},
        {"rpartition", str_rpartition},
        {"removeprefix", str_removeprefix},
        {"removesuffix", str_removesuffix},
        {"swapcase", str_swapcase},
        {"casefold", str_casefold},
        {NULL, NULL},
    };
    const struct ax_jbuiltin *b = ax_jbuiltin_in(methods, name);
    return b != NULL ? b : ax_jbuiltin_in(ax_jstr_more_methods, name);
}
