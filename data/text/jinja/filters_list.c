/* Filters over the items of a value. */
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/text.h"

/* The path that sort and dictsort compare by: caseless unless the first argument is true. */
static enum ax_status make_key(struct ax_jvm *vm, struct ax_jval case_sensitive,
                               struct ax_jval attribute, struct ax_jpath *out) {
    if (attribute.kind == AX_JSTR && memchr(attribute.str->data, ',', attribute.str->len) != NULL)
        return ax_jvm_error(vm, "sorting by more than one attribute is not supported");
    AX_TRY(ax_jpath_make(vm, attribute, out));
    out->fold = !ax_jarg_truth(case_sensitive, false);
    return AX_OK;
}

/* ---- one item, or how many ---- */

static enum ax_status filter_length(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    size_t n;
    AX_TRY(ax_jval_length(vm, call->self, &n));
    *out = ax_jint((int64_t)n);
    return AX_OK;
}

static enum ax_status filter_first(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jitems items;
    AX_TRY(ax_jval_items(vm, call->self, &items));
    if (items.n == 0)
        return ax_jval_make_undefined(vm, "an empty sequence has no first item", NULL, NULL, out);
    *out = items.items[0];
    if (call->self.kind == AX_JITER) { /* the iterator keeps the other items */
        call->self.list->items = items.items + 1;
        call->self.list->n = items.n - 1;
    }
    return AX_OK;
}

static enum ax_status filter_last(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jitems items;
    if (call->self.kind == AX_JITER)
        return ax_jvm_error(vm, "last: a generator cannot be reversed: apply |list first");
    AX_TRY(ax_jval_items(vm, call->self, &items));
    if (items.n == 0)
        return ax_jval_make_undefined(vm, "an empty sequence has no last item", NULL, NULL, out);
    *out = items.items[items.n - 1];
    return AX_OK;
}

static enum ax_status filter_join(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jval items = call->self;
    struct ax_jstr empty = {.data = ""}, *sep = &empty;
    if (call->v[1].kind != AX_JMISSING && call->v[1].kind != AX_JNONE) {
        struct ax_jpath path;
        struct ax_jitems from, parts = {0};
        AX_TRY(ax_jpath_make(vm, call->v[1], &path));
        AX_TRY(ax_jval_items(vm, items, &from));
        for (size_t i = 0; i < from.n; i++) {
            struct ax_jval part;
            AX_TRY(ax_jpath_get(vm, &path, from.items[i], &part));
            AX_TRY(ax_jitems_add(&vm->arena, &parts, part));
        }
        AX_TRY(ax_jitems_done(&vm->arena, &parts, AX_JLIST, &items));
    }
    if (call->v[0].kind != AX_JMISSING)
        AX_TRY(ax_jval_to_str(vm, call->v[0], &sep));
    return ax_jtext_join(vm, sep, items, true, out);
}

/* ---- lists ---- */

static enum ax_status filter_list(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jitems items;
    AX_TRY(ax_jval_items(vm, call->self, &items));
    return ax_jitems_done(&vm->arena, &items, AX_JLIST, out);
}

/* A copy that may be reordered. */
static enum ax_status own_items(struct ax_jvm *vm, struct ax_jval v, struct ax_jitems *out) {
    struct ax_jitems from;
    AX_TRY(ax_jval_items(vm, v, &from));
    *out = (struct ax_jitems){.n = from.n, .cap = from.n};
    AX_TRY(ax_jvm_charge(vm, from.n));
    AX_TRY(ax_jarena_alloc(&vm->arena, &out->items, from.n, sizeof *out->items));
    if (from.n > 0)
        memcpy(out->items, from.items, from.n * sizeof *out->items);
    return AX_OK;
}

static enum ax_status sort_by(struct ax_jvm *vm, const struct ax_jpath *path,
                              struct ax_jitems *items, bool reverse, struct ax_jval *out) {
    struct ax_jval *keys;
    AX_TRY(ax_jarena_alloc(&vm->arena, &keys, items->n, sizeof *keys));
    for (size_t i = 0; i < items->n; i++)
        AX_TRY(ax_jpath_get(vm, path, items->items[i], &keys[i]));
    AX_TRY(ax_jsort(vm, items->items, keys, items->n, reverse));
    return ax_jitems_done(&vm->arena, items, AX_JLIST, out);
}

static enum ax_status filter_sort(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jitems items;
    struct ax_jpath path;
    AX_TRY(make_key(vm, call->v[1], call->v[2], &path));
    AX_TRY(own_items(vm, call->self, &items));
    return sort_by(vm, &path, &items, ax_jarg_truth(call->v[0], false), out);
}

static enum ax_status filter_dictsort(struct ax_jvm *vm, const struct ax_jcall *call,
                                      struct ax_jval *out) {
    const struct ax_jval by = call->v[1];
    const bool by_value = by.kind == AX_JSTR && ax_jstr_is(by.str, "value");
    struct ax_jitems items;
    struct ax_jpath path;
    if (by.kind != AX_JMISSING && !by_value && !(by.kind == AX_JSTR && ax_jstr_is(by.str, "key")))
        return ax_jvm_error(vm, "dictsort sorts by 'key' or 'value'");
    AX_TRY(make_key(vm, call->v[0], ax_jint(by_value), &path));
    AX_TRY(ax_jcall_pairs(vm, call, &items));
    return sort_by(vm, &path, &items, ax_jarg_truth(call->v[2], false), out);
}

/* ---- iterators ---- */

static enum ax_status filter_reverse(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    if (call->self.kind == AX_JSTR) {
        const struct ax_jval backwards[3] = {
            {.kind = AX_JMISSING}, {.kind = AX_JMISSING}, ax_jint(-1)};
        return ax_jval_slice(vm, call->self, backwards, out);
    }
    struct ax_jitems items;
    AX_TRY(own_items(vm, call->self, &items));
    for (size_t i = 0, k = items.n; i + 1 < k; i++) {
        struct ax_jval v = items.items[i];
        items.items[i] = items.items[--k];
        items.items[k] = v;
    }
    if (call->self.kind == AX_JITER) /* like Python, makes a list of an iterator first */
        return ax_jitems_done(&vm->arena, &items, AX_JLIST, out);
    return ax_jiter_give(vm, &items, out);
}

const struct ax_jbuiltin ax_jfilters_list[] = {
    {"length", filter_length, ""},
    {"count", filter_length, ""},
    {"first", filter_first, ""},
    {"last", filter_last, ""},
    {"join", filter_join, "d= attribute="},
    {"list", filter_list, ""},
    {"sort", filter_sort, "reverse= case_sensitive= attribute="},
    {"dictsort", filter_dictsort, "case_sensitive= by= reverse="},
    {"reverse", filter_reverse, ""},
    {NULL, NULL, NULL},
};

/* ---- methods ---- */

/* index(value) and count(value) */
static enum ax_status list_index(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const struct ax_jlist *l = call->self.list;
    const bool count = call->name[0] == 'c';
    int64_t hits = 0;
    for (size_t i = 0; i < l->n; i++) {
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->v[0])));
        if (!ax_jval_equal(l->items[i], call->v[0]))
            continue;
        if (!count) {
            *out = ax_jint((int64_t)i);
            return AX_OK;
        }
        hits++;
    }
    if (!count)
        return ax_jvm_error(vm, "index: the value is not in the list");
    *out = ax_jint(hits);
    return AX_OK;
}

const struct ax_jbuiltin ax_jlist_methods[] = {
    {"index", list_index, "/value"},
    {"count", list_index, "/value"},
    {NULL, NULL, NULL},
};
