/* Expressions and calls. Each kind of node has a small function; ax_jvm_eval selects it. */
#include "data/text/jinja/builtin.h"

/* ---- calls ---- */

/* The arguments of a call node, ready for a call. */
static enum ax_status arguments(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jargs *args,
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
        for (size_t i = 0; i < more.n; i++)
            AX_TRY(ax_jitems_add(&vm->arena, &items, more.items[i]));
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

/* The value of keyword argument `name`, which is marked as used; MISSING if there is none. */
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

/* Stores the arguments in the macro's scope. */
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
    struct ax_jscope *s; /* in the arena, because macros defined inside may outlive the call */
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

static enum ax_status call_value(struct ax_jvm *vm, struct ax_jval fn, struct ax_jcall *call,
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

/* ---- expressions ---- */

static enum ax_status eval_name(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                struct ax_jval *out) {
    *out = ax_jscope_get(vm, s, n->name.number);
    if (out->kind == AX_JMISSING) {
        const struct ax_jstr *name = vm->tree->names->pairs[n->name.number].key.str;
        return ax_jval_make_undefined(vm, NULL, name, NULL, out);
    }
    return AX_OK;
}

static enum ax_status eval_items(struct ax_jvm *vm, struct ax_jscope *s,
                                 const struct ax_jnodes *list, struct ax_jval **items) {
    AX_TRY(ax_jarena_alloc(&vm->arena, items, list->n, sizeof **items));
    for (size_t i = 0; i < list->n; i++)
        AX_TRY(ax_jvm_eval(vm, s, list->items[i], &(*items)[i]));
    return AX_OK;
}

static enum ax_status eval_list(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                struct ax_jval *out) {
    struct ax_jval *items;
    AX_TRY(eval_items(vm, s, &n->items, &items));
    return ax_jlist_wrap(&vm->arena, n->kind == AX_JN_TUPLE ? AX_JTUPLE : AX_JLIST, items,
                         n->items.n, out);
}

static enum ax_status eval_dict(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                struct ax_jval *out) {
    struct ax_jval *items;
    struct ax_jdict *d;
    AX_TRY(eval_items(vm, s, &n->items, &items));
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    for (size_t i = 0; i < n->items.n; i += 2) {
        uint32_t h;
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(items[i])));
        if (!ax_jval_hash(items[i], &h))
            return ax_jvm_error(vm, "a %s cannot be a key", ax_jval_type(items[i]));
        AX_TRY(ax_jdict_set(&vm->arena, d, items[i], items[i + 1]));
    }
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

static enum ax_status eval_cond(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                struct ax_jval *out) {
    bool holds;
    AX_TRY(ax_jvm_eval(vm, s, n->cond.test, out));
    AX_TRY(ax_jvm_truth(vm, *out, &holds));
    if (holds)
        return ax_jvm_eval(vm, s, n->cond.yes, out);
    if (n->cond.no != NULL)
        return ax_jvm_eval(vm, s, n->cond.no, out);
    return ax_jval_make_undefined(vm, "the inline if is false and has no else", NULL, NULL, out);
}

/* `and`, `or`: the operand that decides. */
static enum ax_status eval_logic(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                 struct ax_jval *out) {
    bool holds;
    AX_TRY(ax_jvm_eval(vm, s, n->binary.left, out));
    AX_TRY(ax_jvm_truth(vm, *out, &holds));
    if (holds == (n->kind == AX_JN_AND))
        return ax_jvm_eval(vm, s, n->binary.right, out);
    return AX_OK;
}

static enum ax_status eval_unary(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                 struct ax_jval *out) {
    struct ax_jval v;
    AX_TRY(ax_jvm_eval(vm, s, n->binary.left, &v));
    vm->line = n->line;
    if (n->kind == AX_JN_NOT) {
        bool holds;
        AX_TRY(ax_jvm_truth(vm, v, &holds));
        *out = ax_jbool(!holds);
        return AX_OK;
    }
    return ax_jop_unary(vm, n->kind == AX_JN_NEG, v, out);
}

static enum ax_status eval_binary(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                  struct ax_jval *out) {
    struct ax_jval a, b;
    AX_TRY(ax_jvm_eval(vm, s, n->binary.left, &a));
    AX_TRY(ax_jvm_eval(vm, s, n->binary.right, &b));
    vm->line = n->line;
    if (n->kind == AX_JN_COMPARE) {
        bool holds;
        AX_TRY(ax_jop_compare(vm, n->binary.op, a, b, &holds));
        *out = ax_jbool(holds);
        return AX_OK;
    }
    return ax_jop_binary(vm, n->binary.op, a, b, out);
}

static enum ax_status eval_get(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                               struct ax_jval *out) {
    struct ax_jval of, key;
    AX_TRY(ax_jvm_eval(vm, s, n->get.of, &of));
    if (n->kind == AX_JN_GETATTR) {
        vm->line = n->line;
        return ax_jval_getattr(vm, of, n->get.attr, out);
    }
    AX_TRY(ax_jvm_eval(vm, s, n->get.key, &key));
    vm->line = n->line;
    return ax_jval_getitem(vm, of, key, out);
}

static enum ax_status eval_slice(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                 struct ax_jval *out) {
    struct ax_jval of, bounds[3] = {{.kind = AX_JMISSING}};
    const struct ax_jnode *nodes[] = {n->get.start, n->get.stop, n->get.step};
    AX_TRY(ax_jvm_eval(vm, s, n->get.of, &of));
    for (size_t i = 0; i < 3; i++)
        if (nodes[i] != NULL)
            AX_TRY(ax_jvm_eval(vm, s, nodes[i], &bounds[i]));
    vm->line = n->line;
    return ax_jval_slice(vm, of, bounds, out);
}

static enum ax_status eval_call(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                struct ax_jval *out) {
    struct ax_jval fn;
    struct ax_jcall call = {0};
    AX_TRY(ax_jvm_eval(vm, s, n->call.of, &fn));
    AX_TRY(arguments(vm, s, &n->call.args, &call));
    vm->line = n->line;
    return call_value(vm, fn, &call, out);
}

enum ax_status ax_jvm_filter(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                             struct ax_jval piped, struct ax_jval *out) {
    struct ax_jcall call = {.self = piped};
    if (n->call.of != NULL) {
        bool inner = piped.kind != AX_JMISSING; /* a chain of filters on a block's text */
        AX_TRY(inner ? ax_jvm_filter(vm, s, n->call.of, piped, &call.self)
                     : ax_jvm_eval(vm, s, n->call.of, &call.self));
    }
    vm->line = n->line;
    if (n->call.fn == NULL) {
        char text[160];
        return ax_jvm_error(vm, "%s", ax_junknown(text, sizeof text, n->kind, n->call.name));
    }
    AX_TRY(arguments(vm, s, &n->call.args, &call));
    vm->line = n->line;
    return ax_jbuiltin_run(vm, n->call.fn, &call, out);
}

static enum ax_status eval(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                           struct ax_jval *out) {
    switch (n->kind) {
    case AX_JN_CONST:
        *out = n->value;
        return AX_OK;
    case AX_JN_NAME:
        return eval_name(vm, s, n, out);
    case AX_JN_TUPLE:
    case AX_JN_LIST:
        return eval_list(vm, s, n, out);
    case AX_JN_DICT:
        return eval_dict(vm, s, n, out);
    case AX_JN_COND:
        return eval_cond(vm, s, n, out);
    case AX_JN_OR:
    case AX_JN_AND:
        return eval_logic(vm, s, n, out);
    case AX_JN_NOT:
    case AX_JN_NEG:
    case AX_JN_POS:
        return eval_unary(vm, s, n, out);
    case AX_JN_BINARY:
    case AX_JN_COMPARE:
        return eval_binary(vm, s, n, out);
    case AX_JN_GETATTR:
    case AX_JN_GETITEM:
        return eval_get(vm, s, n, out);
    case AX_JN_SLICE:
        return eval_slice(vm, s, n, out);
    case AX_JN_CALL:
        return eval_call(vm, s, n, out);
    default:
        AX_ASSERT(n->kind == AX_JN_FILTER || n->kind == AX_JN_TEST);
        return ax_jvm_filter(vm, s, n, (struct ax_jval){.kind = AX_JMISSING}, out);
    }
}

enum ax_status ax_jvm_eval(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                           struct ax_jval *out) {
    vm->line = n->line;
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(eval(vm, s, n, out));
    vm->depth--;
    return AX_OK;
}
