/* Calls: arguments of a call node, what can be called, and macros. */
#include <stdio.h>
#include <string.h>

#include "data/jinja_builtin.h"

/* ---- arguments ---- */

static enum ax_status add_star(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *star,
                               struct ax_jitems *items) {
    struct ax_jval v;
    AX_TRY(ax_jvm_eval(vm, f, star, &v));
    return ax_jval_add_items(vm, v, items);
}

static enum ax_status add_star_star(struct ax_jvm *vm, struct ax_jframe *f,
                                    const struct ax_jargs *args, struct ax_jcall *call) {
    struct ax_jval v;
    AX_TRY(ax_jvm_eval(vm, f, args->star_star, &v));
    if (v.kind != AX_JDICT) {
        return ax_jvm_error(vm, "** needs a dict, not a %s", ax_jval_type(v));
    }
    struct ax_jkwarg *kwargs;
    AX_TRY(ax_jvm_charge(vm, v.dict->n));
    AX_TRY(ax_jarena_alloc(&vm->arena, &kwargs, call->n_kwargs + v.dict->n, sizeof *kwargs));
    if (call->n_kwargs > 0) {
        memcpy(kwargs, call->kwargs, call->n_kwargs * sizeof *kwargs);
    }
    size_t n = call->n_kwargs;
    for (size_t i = 0; i < v.dict->n; i++) {
        struct ax_jval key = v.dict->pairs[i].key;
        if (key.kind != AX_JSTR) {
            return ax_jvm_error(vm, "the keys of **arguments must be strings");
        }
        for (size_t k = 0; k < call->n_kwargs; k++) {
            if (ax_jstr_equal(kwargs[k].key, key.str)) {
                return ax_jvm_error(vm, "the argument %.*s is given twice", (int)key.str->len,
                                    key.str->data);
            }
        }
        kwargs[n++] = (struct ax_jkwarg){key.str, v.dict->pairs[i].value};
    }
    call->kwargs = kwargs;
    call->n_kwargs = n;
    return AX_OK;
}

enum ax_status ax_jvm_arguments(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jargs *args,
                                struct ax_jcall *call) {
    struct ax_jitems items = {0};
    if (args->positional.n > 0) {
        items.n = items.cap = args->positional.n;
        AX_TRY(ax_jarena_alloc(&vm->arena, &items.items, items.n, sizeof *items.items));
    }
    for (size_t i = 0; i < args->positional.n; i++) {
        AX_TRY(ax_jvm_eval(vm, f, args->positional.items[i], &items.items[i]));
    }
    if (args->star != NULL) {
        AX_TRY(add_star(vm, f, args->star, &items));
    }
    struct ax_jkwarg *kwargs = NULL;
    if (args->keyword.n > 0) {
        AX_TRY(ax_jarena_alloc(&vm->arena, &kwargs, args->keyword.n, sizeof *kwargs));
    }
    for (size_t i = 0; i < args->keyword.n; i++) {
        kwargs[i].key = args->keys[i];
        AX_TRY(ax_jvm_eval(vm, f, args->keyword.items[i], &kwargs[i].value));
    }
    call->args = items.items;
    call->n_args = items.n;
    call->kwargs = kwargs;
    call->n_kwargs = args->keyword.n;
    return args->star_star != NULL ? add_star_star(vm, f, args, call) : AX_OK;
}

/* ---- arguments of built-ins ---- */

enum ax_status ax_jcall_bind(struct ax_jvm *vm, const struct ax_jcall *call,
                             const char *const *params, size_t n, size_t required,
                             struct ax_jval *out) {
    if (call->n_args > n) {
        return ax_jvm_error(vm, "%s takes at most %zu arguments, not %zu", call->name, n,
                            call->n_args);
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = i < call->n_args ? call->args[i] : (struct ax_jval){.kind = AX_JMISSING};
    }
    for (size_t k = 0; k < call->n_kwargs; k++) {
        const struct ax_jstr *key = call->kwargs[k].key;
        size_t i = 0;
        while (i < n && !ax_jstr_is(key, params[i])) {
            i++;
        }
        if (i == n || out[i].kind != AX_JMISSING) {
            return ax_jvm_error(vm, "%s %s the argument %.*s", call->name,
                                i == n ? "does not know" : "got twice", (int)key->len, key->data);
        }
        out[i] = call->kwargs[k].value;
    }
    for (size_t i = 0; i < required; i++) {
        if (out[i].kind == AX_JMISSING) {
            return ax_jvm_error(vm, "%s needs the argument %s", call->name, params[i]);
        }
    }
    return AX_OK;
}

enum ax_status ax_jcall_count(struct ax_jvm *vm, const struct ax_jcall *call, size_t min,
                              size_t max) {
    if (call->n_kwargs > 0) {
        return ax_jvm_error(vm, "%s takes no keyword arguments", call->name);
    }
    if (call->n_args < min || call->n_args > max) {
        return ax_jvm_error(vm, "%s takes %zu to %zu arguments, not %zu", call->name, min, max,
                            call->n_args);
    }
    return AX_OK;
}

enum ax_status ax_jarg_int(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, int64_t *out) {
    if (v.kind == AX_JMISSING) {
        return AX_OK;
    }
    if (!ax_jval_is_int(v)) {
        return ax_jvm_error(vm, "%s: %s must be an integer, not a %s", call->name, what,
                            ax_jval_type(v));
    }
    *out = ax_jval_int(v);
    return AX_OK;
}

enum ax_status ax_jarg_str(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, struct ax_jstr **out) {
    if (v.kind == AX_JMISSING) {
        return AX_OK;
    }
    if (v.kind != AX_JSTR) {
        return ax_jvm_error(vm, "%s: %s must be a str, not a %s", call->name, what,
                            ax_jval_type(v));
    }
    *out = v.str;
    return AX_OK;
}

bool ax_jarg_truth(struct ax_jval v, bool otherwise) {
    return v.kind == AX_JMISSING ? otherwise : ax_jval_truth(v);
}

/* ---- macros ---- */

/* Takes the keyword argument `name` out of kwargs[*n]; MISSING where there is none. */
static struct ax_jval pop_keyword(struct ax_jkwarg *kwargs, size_t *n, const struct ax_jstr *name) {
    for (size_t i = 0; i < *n; i++) {
        if (ax_jstr_equal(kwargs[i].key, name)) {
            struct ax_jval v = kwargs[i].value;
            memmove(kwargs + i, kwargs + i + 1, (*n - i - 1) * sizeof *kwargs);
            --*n;
            return v;
        }
    }
    return (struct ax_jval){.kind = AX_JMISSING};
}

static enum ax_status keyword_dict(struct ax_jvm *vm, const struct ax_jkwarg *kwargs, size_t n,
                                   struct ax_jval *out) {
    struct ax_jdict *d;
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    for (size_t i = 0; i < n; i++) {
        struct ax_jstr *key; /* a copy of the header: names in the tree are shared */
        AX_TRY(ax_jstr_borrow(&vm->arena, &key, kwargs[i].key->data, kwargs[i].key->len));
        AX_TRY(ax_jdict_set(&vm->arena, d, ax_jstring(key), kwargs[i].value));
    }
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

/* Parameters and the special variables into the macro's frame, as jinja2.runtime.Macro does. */
static enum ax_status bind_parameters(struct ax_jvm *vm, const struct ax_jnode *n,
                                      struct ax_jframe *f, const struct ax_jcall *call,
                                      const char *name) {
    size_t n_params = n->macro.params.n, n_kwargs = call->n_kwargs;
    struct ax_jkwarg *kwargs = NULL;
    if (n_kwargs > 0) {
        AX_TRY(ax_jarena_alloc(&vm->arena, &kwargs, n_kwargs, sizeof *kwargs));
        memcpy(kwargs, call->kwargs, n_kwargs * sizeof *kwargs);
    }
    for (size_t i = 0; i < n_params; i++) {
        const struct ax_jnode *param = n->macro.params.items[i];
        *ax_jref_slot(f, param->name.ref) =
            i < call->n_args ? call->args[i] : pop_keyword(kwargs, &n_kwargs, param->name.name);
    }
    static const struct ax_jstr caller = {.data = "caller", .len = 6, .chars = 6};
    if (n->macro.has_caller) {
        struct ax_jval v = pop_keyword(kwargs, &n_kwargs, &caller);
        if (v.kind == AX_JMISSING || v.kind == AX_JNONE) {
            AX_TRY(ax_jval_make_undefined(vm, "no caller defined", NULL, NULL, &v));
        }
        *ax_jref_slot(f, n->macro.caller) = v;
    }
    if (n->macro.has_kwargs) {
        AX_TRY(keyword_dict(vm, kwargs, n_kwargs, ax_jref_slot(f, n->macro.kwargs)));
    } else if (kwargs != NULL && n_kwargs > 0) {
        return ax_jvm_error(vm, "the macro %s takes no argument %.*s", name,
                            (int)kwargs[0].key->len, kwargs[0].key->data);
    }
    size_t extra = call->n_args > n_params ? call->n_args - n_params : 0;
    if (n->macro.has_varargs) {
        return ax_jlist_wrap(&vm->arena, AX_JTUPLE, extra > 0 ? call->args + n_params : NULL, extra,
                             ax_jref_slot(f, n->macro.varargs));
    }
    if (extra > 0) {
        return ax_jvm_error(vm, "the macro %s takes at most %zu arguments, not %zu", name, n_params,
                            call->n_args);
    }
    return AX_OK;
}

static enum ax_status fill_defaults(struct ax_jvm *vm, const struct ax_jnode *n,
                                    struct ax_jframe *f) {
    size_t without = n->macro.params.n - n->macro.defaults.n;
    for (size_t i = 0; i < n->macro.params.n; i++) {
        const struct ax_jnode *param = n->macro.params.items[i];
        struct ax_jval *slot = ax_jref_slot(f, param->name.ref);
        if (slot->kind != AX_JMISSING) {
            continue;
        }
        struct ax_jval v;
        if (i < without) {
            AX_TRY(ax_jval_make_undefined(vm, NULL, param->name.name, NULL, &v));
        } else {
            AX_TRY(ax_jvm_eval(vm, f, n->macro.defaults.items[i - without], &v));
        }
        *slot = v;
    }
    return AX_OK;
}

enum ax_status ax_jmacro_call(struct ax_jvm *vm, const struct ax_jmacro *m,
                              const struct ax_jcall *call, struct ax_jval *out) {
    const struct ax_jnode *n = m->node;
    char name[64] = "of this block";
    if (n->macro.name != NULL) {
        snprintf(name, sizeof name, "%.*s", (int)n->macro.name->len, n->macro.name->data);
    }
    struct ax_jframe *f;
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(ax_jframe_new(vm, &n->macro.fn, m->closure, &f));
    AX_TRY(bind_parameters(vm, n, f, call, name));
    ax_jscope_enter(vm, f, &n->macro.scope);
    AX_TRY(fill_defaults(vm, n, f));
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jvm_exec_all(vm, f, &n->macro.body));
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    vm->depth--;
    return AX_OK;
}

/* ---- anything ---- */

/* loop(items) of a recursive loop: its text. */
static enum ax_status call_loop(struct ax_jvm *vm, const struct ax_jloop *l,
                                const struct ax_jcall *call, struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    if (l->node == NULL) {
        return ax_jvm_error(vm, "only a loop marked as recursive can be called");
    }
    AX_TRY(ax_jvm_enter(vm));
    struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY(ax_jloop_run(vm, l->frame, l->node, call->args[0], l));
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
        call->name = fn.function->builtin->name;
        call->self = fn.function->self;
        return fn.function->builtin->run(vm, call, out);
    case AX_JLOOP:
        call->name = "loop";
        return call_loop(vm, fn.loop, call, out);
    case AX_JJOINER:
        call->name = "joiner";
        AX_TRY(ax_jcall_count(vm, call, 0, 0));
        if (fn.cycler->pos++ > 0) {
            *out = fn.cycler->separator;
            return AX_OK;
        }
        return ax_jval_new_str(vm, "", 0, out);
    case AX_JUNDEFINED:
        return ax_jvm_undefined(vm, fn);
    default:
        return ax_jvm_error(vm, "a %s cannot be called", ax_jval_type(fn));
    }
}
