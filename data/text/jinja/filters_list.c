/* Filters over the items of a value, many of which return iterators; attribute paths, by which they
 * reach into items; methods of dict, list and loop. */
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/text.h"

/* ---- attribute paths ---- */

/* item.a.b by an attribute path: "a.b", a number, or a single key. */
struct path {
    struct ax_jval parts;     /* a list */
    struct ax_jval otherwise; /* replaces undefined parts; MISSING: no replacement */
    bool fold;                /* converts strings to lower case at the end */
};

static enum ax_status make_path(struct ax_jvm *vm, struct ax_jval attribute, struct path *out) {
    struct ax_jitems parts = {0};
    const struct ax_jstr dot = {.data = ".", .len = 1};
    *out = (struct path){.otherwise.kind = AX_JMISSING};
    if (attribute.kind == AX_JSTR) {
        struct ax_jval names;
        AX_TRY(ax_jtext_split(vm, attribute.str, &dot, -1, &names));
        for (size_t i = 0; i < names.list->n; i++) {
            struct ax_jval part = names.list->items[i], number;
            if (part.str->len > 0 && part.str->data[0] >= '0' && part.str->data[0] <= '9') {
                AX_TRY(ax_jnumber_parse(vm, part.str, false, &number));
                part = number.kind == AX_JINT ? number : part;
            }
            AX_TRY(ax_jitems_add(&vm->arena, &parts, part));
        }
    } else if (attribute.kind != AX_JNONE && attribute.kind != AX_JMISSING) {
        AX_TRY(ax_jitems_add(&vm->arena, &parts, attribute));
    }
    return ax_jitems_done(&vm->arena, &parts, AX_JLIST, &out->parts);
}

static enum ax_status get_by_path(struct ax_jvm *vm, const struct path *path, struct ax_jval item,
                                  struct ax_jval *out) {
    for (size_t i = 0; i < path->parts.list->n; i++) {
        AX_TRY(ax_jval_getitem(vm, item, path->parts.list->items[i], &item));
        if (item.kind == AX_JUNDEFINED && path->otherwise.kind != AX_JMISSING)
            item = path->otherwise;
    }
    *out = item;
    return path->fold && item.kind == AX_JSTR ? ax_jtext_case(vm, AX_JLETTERS_LOWER, item.str, out)
                                              : AX_OK;
}

/* The pairs of a dict as tuples. */
static enum ax_status pairs_of(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jitems *out) {
    *out = (struct ax_jitems){0};
    if (call->self.kind != AX_JDICT)
        return ax_jvm_error(vm, "%s needs a dict, not a %s", call->name, ax_jval_type(call->self));
    for (size_t i = 0; i < call->self.dict->n; i++) {
        struct ax_jval pair;
        AX_TRY(ax_jdict_pair(&vm->arena, &call->self.dict->pairs[i], &pair));
        AX_TRY(ax_jitems_add(&vm->arena, out, pair));
    }
    return ax_jvm_charge(vm, out->n);
}

/* ---- items, map, select and their variants ---- */

static enum ax_status give_iterator(struct ax_jvm *vm, const struct ax_jitems *items,
                                    struct ax_jval *out) {
    AX_TRY(ax_jitems_done(&vm->arena, items, AX_JITER, out));
    out->list->type = "generator";
    return AX_OK;
}

static enum ax_status filter_items(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jitems items = {0};
    if (call->self.kind != AX_JUNDEFINED)
        AX_TRY(pairs_of(vm, call, &items));
    return give_iterator(vm, &items, out);
}

/* The arguments after the first `skip`, for an inner filter or test. */
static enum ax_status run_inner(struct ax_jvm *vm, const struct ax_jbuiltin *b,
                                const struct ax_jcall *call, size_t skip, struct ax_jval self,
                                struct ax_jval *out) {
    struct ax_jcall inner = *call;
    inner.self = self;
    inner.args = call->n_args > skip ? call->args + skip : NULL;
    inner.n_args = call->n_args - skip;
    return ax_jbuiltin_run(vm, b, &inner, out);
}

/* For functions that bind their arguments and use them in place. */
static enum ax_status bound_only(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    (void)vm;
    *out = call->self;
    return AX_OK;
}

/* map('filter', …) and map(attribute=…, default=…). */
static enum ax_status filter_map(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    static const struct ax_jbuiltin by_attribute = {"map", bound_only, "attribute default="};
    const struct ax_jbuiltin *fn = NULL;
    struct ax_jitems items = {0}, mapped = {0};
    struct ax_jcall bound = *call;
    struct path path = {.parts.kind = AX_JMISSING};
    if (call->n_args > 0) {
        const struct ax_jval name = call->args[0];
        fn = name.kind == AX_JSTR ? ax_jfilter_find(name.str) : NULL;
        if (fn == NULL) {
            char text[160];
            return ax_jvm_error(vm, "map: %s",
                                name.kind != AX_JSTR
                                    ? "the name of the filter must be a str"
                                    : ax_junknown(text, sizeof text, AX_JN_FILTER, name.str));
        }
    } else {
        AX_TRY(ax_jbuiltin_run(vm, &by_attribute, &bound, out));
        AX_TRY(make_path(vm, bound.v[0], &path));
        path.otherwise =
            bound.v[1].kind == AX_JNONE ? (struct ax_jval){.kind = AX_JMISSING} : bound.v[1];
    }
    if (ax_jval_truth(call->self)) /* none and undefined are empty */
        AX_TRY(ax_jval_items(vm, call->self, &items));
    for (size_t i = 0; i < items.n; i++) {
        struct ax_jval v;
        AX_TRY(fn != NULL ? run_inner(vm, fn, call, 1, items.items[i], &v)
                          : get_by_path(vm, &path, items.items[i], &v));
        AX_TRY(ax_jitems_add(&vm->arena, &mapped, v));
    }
    return give_iterator(vm, &mapped, out);
}

/* select, reject, selectattr, rejectattr: by a test, or by truth if none is named. */
static enum ax_status filter_select(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    const bool by_attribute = strstr(call->name, "attr") != NULL, reject = call->name[0] == 'r';
    const size_t skip = by_attribute;
    const struct ax_jbuiltin *test = NULL;
    struct ax_jitems items = {0}, chosen = {0};
    struct path path;
    if (call->n_args < skip)
        return ax_jvm_error(vm, "%s needs the name of an attribute", call->name);
    AX_TRY(make_path(vm, by_attribute ? call->args[0] : ax_jnone(), &path));
    if (call->n_args > skip) {
        const struct ax_jval name = call->args[skip];
        test = name.kind == AX_JSTR ? ax_jtest_find(name.str) : NULL;
        if (test == NULL) {
            char text[160];
            return ax_jvm_error(vm, "%s: %s", call->name,
                                name.kind != AX_JSTR
                                    ? "the name of the test must be a str"
                                    : ax_junknown(text, sizeof text, AX_JN_TEST, name.str));
        }
    }
    if (ax_jval_truth(call->self))
        AX_TRY(ax_jval_items(vm, call->self, &items));
    for (size_t i = 0; i < items.n; i++) {
        struct ax_jval v;
        AX_TRY(get_by_path(vm, &path, items.items[i], &v));
        if (test != NULL)
            AX_TRY(run_inner(vm, test, call, skip + 1, v, &v));
        AX_TRY(ax_jvm_charge(vm, 1));
        if (ax_jval_truth(v) != reject)
            AX_TRY(ax_jitems_add(&vm->arena, &chosen, items.items[i]));
    }
    return give_iterator(vm, &chosen, out);
}

const struct ax_jbuiltin ax_jfilters_map[] = {
    {"items", filter_items, ""},
    {"map", filter_map, NULL},
    {"select", filter_select, NULL},
    {"reject", filter_select, NULL},
    {"selectattr", filter_select, NULL},
    {"rejectattr", filter_select, NULL},
    {NULL, NULL, NULL},
};

/* ---- methods of dict and loop ---- */

static enum ax_status dict_get(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    uint32_t h;
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->v[0])));
    if (!ax_jval_hash(call->v[0], &h))
        return ax_jvm_error(vm, "get: a %s cannot be a key", ax_jval_type(call->v[0]));
    const struct ax_jval *v = ax_jdict_get(call->self.dict, call->v[0]);
    *out = v != NULL ? *v : call->v[1].kind != AX_JMISSING ? call->v[1] : ax_jnone();
    return AX_OK;
}

/* items, keys, values */
static enum ax_status dict_view(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    const struct ax_jdict *d = call->self.dict;
    struct ax_jitems items = {0};
    AX_TRY(ax_jvm_charge(vm, d->n));
    for (size_t i = 0; i < d->n; i++) {
        struct ax_jval v = call->name[0] == 'k' ? d->pairs[i].key : d->pairs[i].value;
        if (call->name[0] == 'i')
            AX_TRY(ax_jdict_pair(&vm->arena, &d->pairs[i], &v));
        AX_TRY(ax_jitems_add(&vm->arena, &items, v));
    }
    AX_TRY(ax_jitems_done(&vm->arena, &items, AX_JVIEW, out));
    out->list->type = call->name[0] == 'k'   ? "dict_keys"
                      : call->name[0] == 'v' ? "dict_values"
                                             : "dict_items";
    return AX_OK;
}

static enum ax_status loop_cycle(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    if (call->n_args == 0)
        return ax_jvm_error(vm, "cycle needs at least one value");
    *out = call->args[(size_t)call->self.loop->index0 % call->n_args];
    return AX_OK;
}

const struct ax_jbuiltin *ax_jmethod_find(enum ax_jkind of, const struct ax_jstr *name) {
    static const struct ax_jbuiltin of_dict[] = {{"items", dict_view, ""},
                                                 {"keys", dict_view, ""},
                                                 {"values", dict_view, ""},
                                                 {"get", dict_get, "/key default="},
                                                 {NULL, NULL, NULL}};
    static const struct ax_jbuiltin of_loop[] = {{"cycle", loop_cycle, NULL}, {NULL, NULL, NULL}};
    switch (of) {
    case AX_JSTR:
        return ax_jbuiltin_in(ax_jstr_methods, name);
    case AX_JLIST:
    case AX_JTUPLE:
        return ax_jbuiltin_in(ax_jlist_methods, name);
    case AX_JDICT:
        return ax_jbuiltin_in(of_dict, name);
    case AX_JLOOP:
        return ax_jbuiltin_in(of_loop, name);
    default:
        return NULL;
    }
}

/* The path that sort and dictsort compare by: caseless unless the first argument is true. */
static enum ax_status make_key(struct ax_jvm *vm, struct ax_jval case_sensitive,
                               struct ax_jval attribute, struct path *out) {
    if (attribute.kind == AX_JSTR && memchr(attribute.str->data, ',', attribute.str->len) != NULL)
        return ax_jvm_error(vm, "sorting by more than one attribute is not supported");
    AX_TRY(make_path(vm, attribute, out));
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
    struct ax_jstr empty = {.data = ""}, *sep = &empty;
    struct path path;
    struct ax_jitems from, parts = {0};
    struct ax_jval items;
    AX_TRY(make_path(vm, call->v[1], &path));
    AX_TRY(ax_jval_items(vm, call->self, &from));
    for (size_t i = 0; i < from.n; i++) {
        struct ax_jval part;
        AX_TRY(get_by_path(vm, &path, from.items[i], &part));
        AX_TRY(ax_jitems_add(&vm->arena, &parts, part));
    }
    AX_TRY(ax_jitems_done(&vm->arena, &parts, AX_JLIST, &items));
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

static enum ax_status sort_by(struct ax_jvm *vm, const struct path *path, struct ax_jitems *items,
                              bool reverse, struct ax_jval *out) {
    struct ax_jval *keys;
    AX_TRY(ax_jarena_alloc(&vm->arena, &keys, items->n, sizeof *keys));
    for (size_t i = 0; i < items->n; i++)
        AX_TRY(get_by_path(vm, path, items->items[i], &keys[i]));
    AX_TRY(ax_jsort(vm, items->items, keys, items->n, reverse));
    return ax_jitems_done(&vm->arena, items, AX_JLIST, out);
}

static enum ax_status filter_sort(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jitems items;
    struct path path;
    AX_TRY(make_key(vm, call->v[1], call->v[2], &path));
    AX_TRY(own_items(vm, call->self, &items));
    return sort_by(vm, &path, &items, ax_jarg_truth(call->v[0], false), out);
}

static enum ax_status filter_dictsort(struct ax_jvm *vm, const struct ax_jcall *call,
                                      struct ax_jval *out) {
    const struct ax_jval by = call->v[1];
    const bool by_value = by.kind == AX_JSTR && ax_jstr_is(by.str, "value");
    struct ax_jitems items;
    struct path path;
    if (by.kind != AX_JMISSING && !by_value && !(by.kind == AX_JSTR && ax_jstr_is(by.str, "key")))
        return ax_jvm_error(vm, "dictsort sorts by 'key' or 'value'");
    AX_TRY(make_key(vm, call->v[0], ax_jint(by_value), &path));
    AX_TRY(pairs_of(vm, call, &items));
    return sort_by(vm, &path, &items, ax_jarg_truth(call->v[2], false), out);
}

/* ---- reversal ---- */

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
    return give_iterator(vm, &items, out);
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

/* ---- methods of list ---- */

/* index(value) and count(value) */
static enum ax_status list_index(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const struct ax_jlist *l = call->self.list;
    const bool count = call->name[0] == 'c';
    int64_t hits = 0;
    for (size_t i = 0; i < l->n; i++) {
        bool same;
        AX_TRY(ax_jop_equal(vm, call->v[0], l->items[i], &same));
        if (!same)
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
