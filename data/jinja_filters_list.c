/* Filters that look at all items at once, and give an item, a list or a number. */
#include "data/jinja_builtin.h"
#include "data/jinja_text.h"

static enum ax_status filter_length(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    size_t n;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_length(vm, call->self, &n));
    *out = ax_jint((int64_t)n);
    return AX_OK;
}

static enum ax_status filter_list(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jitems items;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_items(vm, call->self, &items));
    return ax_jitems_done(&vm->arena, &items, AX_JLIST, out);
}

static enum ax_status filter_first(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jiter *it;
    bool more;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_iterate(vm, call->self, &it));
    AX_TRY(ax_jiter_next(vm, it, out, &more));
    return more ? AX_OK
                : ax_jval_make_undefined(vm, "there is no first item in an empty sequence", NULL,
                                         NULL, out);
}

static enum ax_status filter_last(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jitems items;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    if (call->self.kind == AX_JITER || call->self.kind == AX_JLOOP) {
        return ax_jvm_error(vm, "last: a %s cannot be reversed: apply |list first",
                            ax_jval_type(call->self));
    }
    AX_TRY(ax_jval_items(vm, call->self, &items));
    if (items.n == 0) {
        return ax_jval_make_undefined(vm, "there is no last item in an empty sequence", NULL, NULL,
                                      out);
    }
    *out = items.items[items.n - 1];
    return AX_OK;
}

/* ---- order ---- */

/* The paths of "a,b.c"; one empty path (the item itself) for none. */
static enum ax_status make_paths(struct ax_jvm *vm, struct ax_jval attribute, bool fold,
                                 struct ax_jpath **paths, size_t *n) {
    struct ax_jval parts = {.kind = AX_JMISSING};
    *n = 1;
    if (attribute.kind == AX_JSTR) {
        struct ax_jstr comma = {.data = ",", .len = 1};
        AX_TRY(ax_jtext_split(vm, attribute.str, &comma, -1, false, &parts));
        *n = parts.list->n;
    }
    AX_TRY(ax_jarena_alloc(&vm->arena, paths, *n, sizeof **paths));
    for (size_t i = 0; i < *n; i++) {
        struct ax_jval part = parts.kind == AX_JMISSING ? attribute : parts.list->items[i];
        AX_TRY(ax_jpath_make(vm, part, &(*paths)[i]));
        (*paths)[i].fold = fold;
    }
    return AX_OK;
}

static enum ax_status filter_sort(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    static const char *const params[] = {"reverse", "case_sensitive", "attribute"};
    struct ax_jval v[3], *keys;
    struct ax_jitems items;
    struct ax_jpath *paths;
    size_t n_paths;
    AX_TRY(ax_jcall_bind(vm, call, params, 3, 0, v));
    AX_TRY(make_paths(vm, v[2], !ax_jarg_truth(v[1], false), &paths, &n_paths));
    AX_TRY(ax_jval_items(vm, call->self, &items));
    AX_TRY(ax_jarena_alloc(&vm->arena, &keys, items.n, n_paths * sizeof *keys));
    for (size_t i = 0; i < items.n; i++) {
        for (size_t k = 0; k < n_paths; k++) {
            AX_TRY(ax_jpath_get(vm, &paths[k], items.items[i], &keys[i * n_paths + k]));
        }
    }
    AX_TRY(ax_jsort(vm, items.items, keys, items.n, n_paths, ax_jarg_truth(v[0], false)));
    return ax_jitems_done(&vm->arena, &items, AX_JLIST, out);
}

static enum ax_status filter_dictsort(struct ax_jvm *vm, const struct ax_jcall *call,
                                      struct ax_jval *out) {
    static const char *const params[] = {"case_sensitive", "by", "reverse"};
    struct ax_jval v[3], *keys;
    AX_TRY(ax_jcall_bind(vm, call, params, 3, 0, v));
    bool by_value = v[1].kind == AX_JSTR && ax_jstr_is(v[1].str, "value");
    if (v[1].kind != AX_JMISSING && !by_value &&
        !(v[1].kind == AX_JSTR && ax_jstr_is(v[1].str, "key"))) {
        return ax_jvm_error(vm, "dictsort sorts by 'key' or 'value'");
    }
    if (call->self.kind == AX_JUNDEFINED) {
        return ax_jvm_undefined(vm, call->self);
    }
    if (call->self.kind != AX_JDICT) {
        return ax_jvm_error(vm, "dictsort needs a dict, not a %s", ax_jval_type(call->self));
    }
    const struct ax_jdict *d = call->self.dict;
    const struct ax_jview view = {AX_JITEMS, d};
    const struct ax_jpath fold = {.fold = !ax_jarg_truth(v[0], false)};
    struct ax_jitems items;
    AX_TRY(ax_jval_items(vm, (struct ax_jval){.kind = AX_JVIEW, .view = &view}, &items));
    AX_TRY(ax_jarena_alloc(&vm->arena, &keys, d->n, sizeof *keys));
    for (size_t i = 0; i < d->n; i++) {
        AX_TRY(ax_jpath_get(vm, &fold, by_value ? d->pairs[i].value : d->pairs[i].key, &keys[i]));
    }
    AX_TRY(ax_jsort(vm, items.items, keys, d->n, 0, ax_jarg_truth(v[2], false)));
    return ax_jitems_done(&vm->arena, &items, AX_JLIST, out);
}

/* min and max: the first of those that no other beats. */
static enum ax_status extreme(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jop beats,
                              struct ax_jval *out) {
    static const char *const params[] = {"case_sensitive", "attribute"};
    struct ax_jval v[2], best, key;
    struct ax_jitems items;
    struct ax_jpath path;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    AX_TRY(ax_jpath_make(vm, v[1], &path));
    path.fold = !ax_jarg_truth(v[0], false);
    AX_TRY(ax_jval_items(vm, call->self, &items));
    if (items.n == 0) {
        return ax_jval_make_undefined(vm, "an empty sequence has no smallest or largest item", NULL,
                                      NULL, out);
    }
    for (size_t i = 0; i < items.n; i++) {
        bool better = i == 0;
        AX_TRY(ax_jpath_get(vm, &path, items.items[i], &key));
        if (i > 0) {
            AX_TRY(ax_jop_compare(vm, beats, key, best, &better));
        }
        if (better) {
            best = key;
            *out = items.items[i];
        }
    }
    return AX_OK;
}

static enum ax_status filter_min(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return extreme(vm, c, AX_JOP_LT, out);
}

static enum ax_status filter_max(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return extreme(vm, c, AX_JOP_GT, out);
}

static enum ax_status filter_sum(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    static const char *const params[] = {"attribute", "start"};
    struct ax_jval v[2], total;
    struct ax_jitems items;
    struct ax_jpath path;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    AX_TRY(ax_jpath_make(vm, v[0], &path));
    AX_TRY(ax_jval_items(vm, call->self, &items));
    total = v[1].kind != AX_JMISSING ? v[1] : ax_jint(0);
    if (total.kind == AX_JSTR) {
        return ax_jvm_error(vm, "sum cannot add strings: use join");
    }
    for (size_t i = 0; i < items.n; i++) {
        struct ax_jval item;
        AX_TRY(ax_jpath_get(vm, &path, items.items[i], &item));
        AX_TRY(ax_jop_binary(vm, AX_JOP_ADD, total, item, &total));
    }
    *out = total;
    return AX_OK;
}

/* ---- groups ---- */

static enum ax_status add_group(struct ax_jvm *vm, struct ax_jitems *groups, struct ax_jval key,
                                const struct ax_jval *items, size_t n) {
    struct ax_jval *pair, group;
    AX_TRY(ax_jarena_alloc(&vm->arena, &pair, 2, sizeof *pair));
    pair[0] = key;
    AX_TRY(ax_jlist_wrap(&vm->arena, AX_JLIST, items, n, &pair[1]));
    AX_TRY(ax_jlist_wrap(&vm->arena, AX_JTUPLE, pair, 2, &group));
    group.list->group = true;
    return ax_jitems_add(&vm->arena, groups, group);
}

static enum ax_status filter_groupby(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    static const char *const params[] = {"attribute", "default", "case_sensitive"};
    struct ax_jval v[3], *keys;
    struct ax_jitems items, groups = {0};
    struct ax_jpath path;
    AX_TRY(ax_jcall_bind(vm, call, params, 3, 1, v));
    AX_TRY(ax_jpath_make(vm, v[0], &path));
    path.otherwise = v[1].kind == AX_JNONE ? (struct ax_jval){.kind = AX_JMISSING} : v[1];
    path.fold = !ax_jarg_truth(v[2], false);
    AX_TRY(ax_jval_items(vm, call->self, &items));
    AX_TRY(ax_jarena_alloc(&vm->arena, &keys, items.n, sizeof *keys));
    for (size_t i = 0; i < items.n; i++) {
        AX_TRY(ax_jpath_get(vm, &path, items.items[i], &keys[i]));
    }
    AX_TRY(ax_jsort(vm, items.items, keys, items.n, 0, false));
    for (size_t i = 0; i < items.n; i++) {
        AX_TRY(ax_jpath_get(vm, &path, items.items[i], &keys[i]));
    }
    struct ax_jpath plain = path; /* the group shows the first item's own spelling */
    plain.fold = false;
    for (size_t i = 0, k; i < items.n; i = k) {
        struct ax_jval name;
        for (k = i + 1; k < items.n && ax_jval_equal(keys[i], keys[k]); k++) {
            AX_TRY(ax_jvm_charge(vm, ax_jval_weight(keys[i])));
        }
        AX_TRY(ax_jpath_get(vm, &plain, items.items[i], &name));
        AX_TRY(add_group(vm, &groups, name, items.items + i, k - i));
    }
    return ax_jitems_done(&vm->arena, &groups, AX_JLIST, out);
}

const struct ax_jbuiltin ax_jfilters_list[] = {
    {"length", filter_length},     {"count", filter_length},    {"list", filter_list},
    {"first", filter_first},       {"last", filter_last},       {"sort", filter_sort},
    {"dictsort", filter_dictsort}, {"min", filter_min},         {"max", filter_max},
    {"sum", filter_sum},           {"groupby", filter_groupby}, {NULL, NULL},
};
