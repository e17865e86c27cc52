/* Methods of dict and loop; those of str are in jinja_filters_text.c. Those that would
 * change a list or dict do not exist; jinja_attr.c refuses them. */
#include "data/jinja_builtin.h"

static enum ax_status dict_get(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    uint32_t h;
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->v[0])));
    if (!ax_jval_hash(call->v[0], &h)) {
        return ax_jvm_error(vm, "get: a %s cannot be a key", ax_jval_type(call->v[0]));
    }
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
        if (call->name[0] == 'i') {
            AX_TRY(ax_jdict_pair(&vm->arena, &d->pairs[i], &v));
        }
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
    if (call->n_args == 0) {
        return ax_jvm_error(vm, "cycle needs something to choose from");
    }
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
    case AX_JDICT:
        return ax_jbuiltin_in(of_dict, name);
    case AX_JLOOP:
        return ax_jbuiltin_in(of_loop, name);
    default:
        return NULL;
    }
}
