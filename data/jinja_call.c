/* Calls: arguments of a call node, macros, and what else can be called. */
#include <string.h>

#include "data/jinja_builtin.h"

enum ax_status ax_jvm_arguments(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jargs *args,
                                struct ax_jcall *call) {
    struct ax_jitems items = {0};
    for (size_t i = 0; i < args->positional.n; i++) {
        struct ax_jval v;
        AX_TRY(ax_jvm_eval(vm, s, args->positional.items[i], &v));
        AX_TRY(ax_jitems_add(&vm->arena, &items, v));
    }
    if (args->star != NULL) {
        struct ax_jval star;
        struct ax_jitems more;
        AX_TRY(ax_jvm_eval(vm, s, args->star, &star));
        AX_TRY(ax_jval_items(vm, star, &more));
        for (size_t i = 0; i < more.n; i++) {
            AX_TRY(ax_jitems_add(&vm->arena, &items, more.items[i]));
        }
    }
    struct ax_jkwarg *kwargs;
    const size_t n = args->keyword.n / 2;
    AX_TRY(ax_jarena_alloc(&vm->arena, &kwargs, n, sizeof *kwargs));
    for (size_t i = 0; i < n; i++) {
        kwargs[i].key = args->keyword.items[2 * i]->value.str;
        AX_TRY(ax_jvm_eval(vm, s, args->keyword.items[2 * i + 1], &kwargs[i].value));
    }
    call->args = items.items;
    call->n_args = items.n;
    call->kwargs = kwargs;
    call->n_kwargs = n;
    return AX_OK;
}

/* ---- macros ---- */

static struct ax_jstr *name_of(const struct ax_jvm *vm, const struct ax_jnode *name) {
    return vm->tree->names->pairs[name->name.number].key.str;
}

/* The value of keyword argument `name`, which is marked as used; MISSING where there is none. */
static struct ax_jval take_keyword(const struct ax_jcall *call, bool *used,
                                   const struct ax_jstr *name) {
    for (size_t i = 0; i < call->n_kwargs; i++) {
        if (!used[i] && ax_jstr_equal(call->kwargs[i].key, name)) {
            used[i] = true;
            return call->kwargs[i].value;
        }
    }
    return (struct ax_jval){.kind = AX_JMISSING};
}

/* The arguments into the macro's scope. */
static enum ax_status bind_parameters(struct ax_jvm *vm, const struct ax_jnode *n,
                                      struct ax_jscope *s, const struct ax_jcall *call) {
    struct ax_jstr block = {.data = "of this block", .len = 13};
    const struct ax_jstr *name = n->macro.name != NULL ? name_of(vm, n->macro.name) : &block;
    bool *used;
    AX_TRY(ax_jarena_alloc(&vm->arena, &used, call->n_kwargs + 1, sizeof *used));
    for (size_t i = 0; i < n->macro.params.n; i++) {
        const struct ax_jnode *param = n->macro.params.items[i];
        AX_TRY(ax_jscope_set(vm, s, param->name.number,
                             i < call->n_args ? call->args[i]
                                              : take_keyword(call, used, name_of(vm, param))));
    }
    for (size_t i = 0; i < call->n_kwargs; i++) {
        if (!used[i]) {
            return ax_jvm_error(vm, "the macro %.*s takes no argument %.*s", (int)name->len,
                                name->data, (int)call->kwargs[i].key->len,
                                call->kwargs[i].key->data);
        }
    }
    if (call->n_args > n->macro.params.n) {
        return ax_jvm_error(vm, "the macro %.*s takes at most %zu arguments, not %zu",
                            (int)name->len, name->data, n->macro.params.n, call->n_args);
    }
    return AX_OK;
}

static enum ax_status fill_defaults(struct ax_jvm *vm, const struct ax_jnode *n,
                                    struct ax_jscope *s) {
    size_t without = n->macro.params.n - n->macro.defaults.n;
    for (size_t i = without; i < n->macro.params.n; i++) {
        const uint32_t name = n->macro.params.items[i]->name.number;
        struct ax_jval v = ax_jscope_get(vm, s, name);
        if (v.kind == AX_JMISSING) {
            AX_TRY(ax_jvm_eval(vm, s, n->macro.defaults.items[i - without], &v));
            AX_TRY(ax_jscope_set(vm, s, name, v));
        }
    }
    return AX_OK;
}

enum ax_status ax_jmacro_call(struct ax_jvm *vm, const struct ax_jmacro *m,
                              const struct ax_jcall *call, struct ax_jval *out) {
    struct ax_jscope *s; /* in the arena: macros inside may outlive the call */
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(ax_jarena_alloc(&vm->arena, &s, 1, sizeof *s));
    s->parent = m->closure;
    AX_TRY(bind_parameters(vm, m->node, s, call));
    AX_TRY(fill_defaults(vm, m->node, s));
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jvm_exec_all(vm, s, &m->node->macro.body));
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    vm->depth--;
    return AX_OK;
}

enum ax_status ax_jvm_call(struct ax_jvm *vm, struct ax_jval fn, struct ax_jcall *call,
                           struct ax_jval *out) {
    switch (fn.kind) {
    case AX_JMACRO:
        return ax_jmacro_call(vm, fn.macro, call, out);
    case AX_JFUNCTION:
        call->self = fn.function->self;
        return ax_jbuiltin_run(vm, fn.function->builtin, call, out);
    case AX_JUNDEFINED:
        return ax_jvm_undefined(vm, fn);
    default:
        return ax_jvm_error(vm, "a %s cannot be called", ax_jval_type(fn));
    }
}
