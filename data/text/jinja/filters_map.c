/* Attribute paths; filters that return iterators: items, map, select and their variants; methods of
 * dict and loop. */
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/text.h"

/* ---- attribute paths ---- */

enum ax_status ax_jpath_make(struct ax_jvm *vm, struct ax_jval attribute, struct ax_jpath *out) {
    struct ax_jitems parts = {0};
    const struct ax_jstr dot = {.data = ".", .len = 1};
    *out = (struct ax_jpath){.otherwise.kind = AX_JMISSING};
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

enum ax_status ax_jpath_get(struct ax_jvm *vm, const struct ax_jpath *path, struct ax_jval item,
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
enum ax_status ax_jcall_pairs(struct ax_jvm *vm, const struct ax_jcall *call,
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

/* ---- iterators ---- */

enum ax_status ax_jiter_give(struct ax_jvm *vm, const struct ax_jitems *items,
                             struct ax_jval *out) {
    AX_TRY(ax_jitems_done(&vm->arena, items, AX_JITER, out));
    out->list->type = "generator";
    return AX_OK;
}

static enum ax_status filter_items(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jitems items = {0};
    if (call->self.kind != AX_JUNDEFINED)
        AX_TRY(ax_jcall_pairs(vm, call, &items));
    return ax_jiter_give(vm, &items, out);
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
    struct ax_jpath path = {.parts.kind = AX_JMISSING};
    if (call->n_args > 0) {
        const struct ax_jval name = call->args[0];
        fn = name.kind == AX_JSTR ? ax_jfilter_find(name.str, vm->tree->plain) : NULL;
        if (fn == NULL) {
            char text[160];
            return ax_jvm_error(vm, "map: %s",
                                name.kind != AX_JSTR
                                    ? "the name of the filter must be a str"
                                    : ax_junknown(text, sizeof text, AX_JN_FILTER, name.str));
        }
    } else {
        AX_TRY(ax_jbuiltin_run(vm, &by_attribute, &bound, out));
        AX_TRY(ax_jpath_make(vm, bound.v[0], &path));
        path.otherwise =
            bound.v[1].kind == AX_JNONE ? (struct ax_jval){.kind = AX_JMISSING} : bound.v[1];
    }
    if (ax_jval_truth(call->self)) /* none and undefined are empty */
        AX_TRY(ax_jval_items(vm, call->self, &items));
    for (size_t i = 0; i < items.n; i++) {
        struct ax_jval v;
        AX_TRY(fn != NULL ? run_inner(vm, fn, call, 1, items.items[i], &v)
                          : ax_jpath_get(vm, &path, items.items[i], &v));
        AX_TRY(ax_jitems_add(&vm->arena, &mapped, v));
    }
    return ax_jiter_give(vm, &mapped, out);
}

/* select, reject, selectattr, rejectattr: by a test, or by truth if none is named. */
static enum ax_status filter_select(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    const bool by_attribute = strstr(call->name, "attr") != NULL, reject = call->name[0] == 'r';
    const size_t skip = by_attribute;
    const struct ax_jbuiltin *test = NULL;
    struct ax_jitems items = {0}, chosen = {0};
    struct ax_jpath path;
    if (call->n_args < skip)
        return ax_jvm_error(vm, "%s needs the name of an attribute", call->name);
    AX_TRY(ax_jpath_make(vm, by_attribute ? call->args[0] : ax_jnone(), &path));
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
        AX_TRY(ax_jpath_get(vm, &path, items.items[i], &v));
        if (test != NULL)
            AX_TRY(run_inner(vm, test, call, skip + 1, v, &v));
        AX_TRY(ax_jvm_charge(vm, 1));
        if (ax_jval_truth(v) != reject)
            AX_TRY(ax_jitems_add(&vm->arena, &chosen, items.items[i]));
    }
    return ax_jiter_give(vm, &chosen, out);
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

/* ---- methods ---- */

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
