/* Methods of lists, tuples, dicts, ranges, loops and cyclers. Those that would change a list or
 * dict do not exist here; jinja_attr.c refuses them. */
#include "data/jinja_builtin.h"

/* ---- lists and tuples ---- */

static enum ax_status list_index(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const struct ax_jlist *l = call->self.list;
    int64_t n = (int64_t)l->n, start = 0, end = n;
    AX_TRY(ax_jcall_count(vm, call, 1, 3));
    if (call->n_args > 1) {
        AX_TRY(ax_jarg_int(vm, call, "the start", call->args[1], &start));
    }
    if (call->n_args > 2) {
        AX_TRY(ax_jarg_int(vm, call, "the end", call->args[2], &end));
    }
    start = start < 0 ? (start + n < 0 ? 0 : start + n) : start;
    end = end < 0 ? end + n : end > n ? n : end;
    for (int64_t i = start; i < end; i++) {
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->args[0])));
        if (ax_jval_equal(l->items[i], call->args[0])) {
            *out = ax_jint(i);
            return AX_OK;
        }
    }
    return ax_jvm_error(vm, "index: the item is not in the %s", ax_jval_type(call->self));
}

static enum ax_status list_count(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const struct ax_jlist *l = call->self.list;
    int64_t n = 0;
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    for (size_t i = 0; i < l->n; i++) {
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->args[0])));
        n += ax_jval_equal(l->items[i], call->args[0]);
    }
    *out = ax_jint(n);
    return AX_OK;
}

static enum ax_status itself(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    *out = call->self; /* a copy of what never changes */
    return AX_OK;
}

const struct ax_jbuiltin *ax_jlist_method(const struct ax_jstr *name) {
    static const struct ax_jbuiltin methods[] = {
        {"index", list_index}, {"count", list_count}, {"copy", itself}, {NULL, NULL}};
    return ax_jbuiltin_in(methods, name);
}

/* ---- dicts ---- */

static enum ax_status dict_get(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    uint32_t h;
    AX_TRY(ax_jcall_count(vm, call, 1, 2));
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->args[0])));
    if (!ax_jval_hash(call->args[0], &h)) {
        return ax_jvm_error(vm, "get: a %s cannot be a key", ax_jval_type(call->args[0]));
    }
    const struct ax_jval *v = ax_jdict_get(call->self.dict, call->args[0]);
    *out = v != NULL ? *v : call->n_args == 2 ? call->args[1] : ax_jnone();
    return AX_OK;
}

static enum ax_status dict_view(struct ax_jvm *vm, const struct ax_jcall *call,
                                enum ax_jview_kind kind, struct ax_jval *out) {
    struct ax_jview *view;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jarena_alloc(&vm->arena, &view, 1, sizeof *view));
    *view = (struct ax_jview){kind, call->self.dict};
    *out = (struct ax_jval){.kind = AX_JVIEW, .view = view};
    return AX_OK;
}

static enum ax_status dict_items(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return dict_view(vm, c, AX_JITEMS, out);
}

static enum ax_status dict_keys(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return dict_view(vm, c, AX_JKEYS, out);
}

static enum ax_status dict_values(struct ax_jvm *vm, const struct ax_jcall *c,
                                  struct ax_jval *out) {
    return dict_view(vm, c, AX_JVALUES, out);
}

/* dict.fromkeys(keys, value) */
static enum ax_status dict_fromkeys(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    struct ax_jitems keys;
    struct ax_jdict *d;
    AX_TRY(ax_jcall_count(vm, call, 1, 2));
    AX_TRY(ax_jval_items(vm, call->args[0], &keys));
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    for (size_t i = 0; i < keys.n; i++) {
        uint32_t h;
        if (!ax_jval_hash(keys.items[i], &h)) {
            return ax_jvm_error(vm, "fromkeys: a %s cannot be a key", ax_jval_type(keys.items[i]));
        }
        AX_TRY(ax_jdict_set(&vm->arena, d, keys.items[i],
                            call->n_args == 2 ? call->args[1] : ax_jnone()));
    }
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

const struct ax_jbuiltin *ax_jdict_method(const struct ax_jstr *name) {
    static const struct ax_jbuiltin methods[] = {{"items", dict_items}, {"get", dict_get},
                                                 {"keys", dict_keys},   {"values", dict_values},
                                                 {"copy", itself},      {"fromkeys", dict_fromkeys},
                                                 {NULL, NULL}};
    return ax_jbuiltin_in(methods, name);
}

/* ---- ranges ---- */

static enum ax_status range_as_list(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jcall *inner) {
    struct ax_jitems items;
    *inner = *call;
    AX_TRY(ax_jval_items(vm, call->self, &items));
    return ax_jitems_done(&vm->arena, &items, AX_JLIST, &inner->self);
}

static enum ax_status range_index(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jcall inner;
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    AX_TRY(range_as_list(vm, call, &inner));
    return list_index(vm, &inner, out);
}

static enum ax_status range_count(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jcall inner;
    AX_TRY(range_as_list(vm, call, &inner));
    return list_count(vm, &inner, out);
}

const struct ax_jbuiltin *ax_jrange_method(const struct ax_jstr *name) {
    static const struct ax_jbuiltin methods[] = {
        {"index", range_index}, {"count", range_count}, {NULL, NULL}};
    return ax_jbuiltin_in(methods, name);
}

/* ---- loops and cyclers ---- */

static enum ax_status loop_cycle(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 1, SIZE_MAX));
    *out = call->args[(size_t)call->self.loop->index0 % call->n_args];
    return AX_OK;
}

static enum ax_status loop_changed(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jloop *l = call->self.loop;
    struct ax_jval now;
    AX_TRY(ax_jcall_count(vm, call, 0, SIZE_MAX));
    AX_TRY(ax_jlist_wrap(&vm->arena, AX_JTUPLE, call->args, call->n_args, &now));
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(now)));
    bool changed = l->changed.kind != AX_JTUPLE || !ax_jval_equal(l->changed, now);
    l->changed = now;
    *out = ax_jbool(changed);
    return AX_OK;
}

const struct ax_jbuiltin *ax_jloop_method(const struct ax_jstr *name) {
    static const struct ax_jbuiltin methods[] = {
        {"cycle", loop_cycle}, {"changed", loop_changed}, {NULL, NULL}};
    return ax_jbuiltin_in(methods, name);
}

static enum ax_status cycler_next(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jcycler *c = call->self.cycler;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    *out = c->items->items[c->pos];
    c->pos = (c->pos + 1) % c->items->n;
    return AX_OK;
}

static enum ax_status cycler_reset(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    call->self.cycler->pos = 0;
    *out = ax_jnone();
    return AX_OK;
}

const struct ax_jbuiltin *ax_jcycler_method(const struct ax_jstr *name) {
    static const struct ax_jbuiltin methods[] = {
        {"next", cycler_next}, {"reset", cycler_reset}, {NULL, NULL}};
    return ax_jbuiltin_in(methods, name);
}
