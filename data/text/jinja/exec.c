/* Expressions, loops and statements. Each kind of node has a small function; ax_jvm_exec_all and
 * eval select it. A body stops early if vm->flow says that break or continue was reached. */
#include <string.h>

#include "base/mem.h"
#include "data/text/jinja/builtin.h"
#include "data/text/jinja/unicode.h"

static enum ax_status eval(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                           struct ax_jval *out);

/* ---- calls ---- */

/* The arguments of a call node, ready for a call. */
static enum ax_status arguments(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jargs *args,
                                struct ax_jcall *call) {
    struct ax_jitems items = {0};
    for (size_t i = 0; i < args->positional.n; i++) {
        struct ax_jval v;
        AX_TRY(eval(vm, s, args->positional.items[i], &v));
        AX_TRY(ax_jitems_add(&vm->arena, &items, v));
    }
    if (args->star != NULL) {
        struct ax_jval star;
        struct ax_jitems more;
        AX_TRY(eval(vm, s, args->star, &star));
        AX_TRY(ax_jval_items(vm, star, &more));
        for (size_t i = 0; i < more.n; i++)
            AX_TRY(ax_jitems_add(&vm->arena, &items, more.items[i]));
    }
    struct ax_jkwarg *kwargs;
    const size_t n = args->keyword.n / 2;
    AX_TRY(ax_jarena_alloc(&vm->arena, &kwargs, n, sizeof *kwargs));
    for (size_t i = 0; i < n; i++) {
        kwargs[i].key = args->keyword.items[2 * i]->value.str;
        AX_TRY(eval(vm, s, args->keyword.items[2 * i + 1], &kwargs[i].value));
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
            AX_TRY(eval(vm, s, n->macro.defaults.items[i - without], &v));
            AX_TRY(ax_jscope_set(vm, s, name, v));
        }
    }
    return AX_OK;
}

static enum ax_status call_macro(struct ax_jvm *vm, const struct ax_jmacro *m,
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
        return call_macro(vm, fn.macro, call, out);
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
        AX_TRY(eval(vm, s, list->items[i], &(*items)[i]));
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
    AX_TRY(eval(vm, s, n->cond.test, out));
    if (ax_jval_truth(*out))
        return eval(vm, s, n->cond.yes, out);
    if (n->cond.no != NULL)
        return eval(vm, s, n->cond.no, out);
    return ax_jval_make_undefined(vm, "the inline if is false and has no else", NULL, NULL, out);
}

/* `and`, `or`: the operand that decides. */
static enum ax_status eval_logic(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                 struct ax_jval *out) {
    AX_TRY(eval(vm, s, n->binary.left, out));
    if (ax_jval_truth(*out) == (n->kind == AX_JN_AND))
        return eval(vm, s, n->binary.right, out);
    return AX_OK;
}

static enum ax_status eval_unary(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                 struct ax_jval *out) {
    struct ax_jval v;
    AX_TRY(eval(vm, s, n->binary.left, &v));
    vm->line = n->line;
    if (n->kind == AX_JN_NOT) {
        *out = ax_jbool(!ax_jval_truth(v));
        return AX_OK;
    }
    return ax_jop_unary(vm, n->kind == AX_JN_NEG, v, out);
}

static enum ax_status eval_binary(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                  struct ax_jval *out) {
    struct ax_jval a, b;
    AX_TRY(eval(vm, s, n->binary.left, &a));
    AX_TRY(eval(vm, s, n->binary.right, &b));
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
    AX_TRY(eval(vm, s, n->get.of, &of));
    if (n->kind == AX_JN_GETATTR) {
        vm->line = n->line;
        return ax_jval_getattr(vm, of, n->get.attr, out);
    }
    AX_TRY(eval(vm, s, n->get.key, &key));
    vm->line = n->line;
    return ax_jval_getitem(vm, of, key, out);
}

static enum ax_status eval_slice(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                 struct ax_jval *out) {
    struct ax_jval of, bounds[3] = {{.kind = AX_JMISSING}};
    const struct ax_jnode *nodes[] = {n->get.start, n->get.stop, n->get.step};
    AX_TRY(eval(vm, s, n->get.of, &of));
    for (size_t i = 0; i < 3; i++)
        if (nodes[i] != NULL)
            AX_TRY(eval(vm, s, nodes[i], &bounds[i]));
    vm->line = n->line;
    return ax_jval_slice(vm, of, bounds, out);
}

static enum ax_status eval_call(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                struct ax_jval *out) {
    struct ax_jval fn;
    struct ax_jcall call = {0};
    AX_TRY(eval(vm, s, n->call.of, &fn));
    AX_TRY(arguments(vm, s, &n->call.args, &call));
    vm->line = n->line;
    return call_value(vm, fn, &call, out);
}

/* `piped` is the input of a block's innermost filter; MISSING in expressions. */
static enum ax_status apply_filter(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                   struct ax_jval piped, struct ax_jval *out) {
    struct ax_jcall call = {.self = piped};
    if (n->call.of != NULL) {
        bool inner = piped.kind != AX_JMISSING; /* a chain of filters on a block's text */
        AX_TRY(inner ? apply_filter(vm, s, n->call.of, piped, &call.self)
                     : eval(vm, s, n->call.of, &call.self));
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

static enum ax_status eval_kind(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
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
        return apply_filter(vm, s, n, (struct ax_jval){.kind = AX_JMISSING}, out);
    }
}

static enum ax_status eval(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                           struct ax_jval *out) {
    vm->line = n->line;
    AX_TRY(ax_jvm_enter(vm));
    AX_TRY(eval_kind(vm, s, n, out));
    vm->depth--;
    return AX_OK;
}

/* ---- the items of any value ---- */

bool ax_jval_is_iterable(struct ax_jval v) {
    return v.kind == AX_JUNDEFINED || v.kind == AX_JSTR || v.kind == AX_JDICT ||
           v.kind == AX_JRANGE || ax_jval_is_list(v);
}

static enum ax_status characters(struct ax_jvm *vm, struct ax_jstr *s, struct ax_jitems *out) {
    AX_TRY(ax_jvm_charge(vm, s->len));
    for (size_t p = 0; p < s->len;) {
        struct ax_jval v = {.kind = AX_JSTR};
        size_t start = p;
        ax_python_next(s->data, &p);
        AX_TRY(ax_jstr_slice(&vm->arena, &v.str, s, start, p));
        v.str->chars = 1;
        AX_TRY(ax_jitems_add(&vm->arena, out, v));
    }
    return AX_OK;
}

enum ax_status ax_jval_items(struct ax_jvm *vm, struct ax_jval v, struct ax_jitems *out) {
    *out = (struct ax_jitems){0};
    if (ax_jval_is_list(v)) { /* shared; cap = n makes an append copy the items */
        const struct ax_jlist *l = v.list;
        out->items = (struct ax_jval *)(uintptr_t)l->items;
        out->n = out->cap = l->n;
        if (v.kind == AX_JITER)
            *v.list = (struct ax_jlist){.type = l->type, .weight = 1, .nest = 1};
        return AX_OK;
    }
    switch (v.kind) {
    case AX_JUNDEFINED:
        return AX_OK;
    case AX_JSTR:
        return characters(vm, v.str, out);
    case AX_JDICT:
        AX_TRY(ax_jvm_charge(vm, v.dict->n));
        for (size_t i = 0; i < v.dict->n; i++)
            AX_TRY(ax_jitems_add(&vm->arena, out, v.dict->pairs[i].key));
        return AX_OK;
    case AX_JRANGE:
        AX_TRY(ax_jvm_charge(vm, (size_t)v.range->n));
        for (int64_t i = 0; i < v.range->n; i++)
            AX_TRY(ax_jitems_add(&vm->arena, out, ax_jint(v.range->start + i * v.range->step)));
        return AX_OK;
    default:
        return ax_jvm_error(vm, "a %s cannot be iterated over", ax_jval_type(v));
    }
}

/* ---- names that get values ---- */

static enum ax_status assign_name(struct ax_jvm *vm, struct ax_jscope *s,
                                  const struct ax_jnode *target, struct ax_jval v) {
    if (target->kind == AX_JN_NAME)
        return ax_jscope_set(vm, s, target->name.number, v);
    const struct ax_jval ns = ax_jscope_get(vm, s, target->name.number);
    if (ns.kind != AX_JNAMESPACE) {
        const struct ax_jstr *name = vm->tree->names->pairs[target->name.number].key.str;
        return ax_jvm_error(vm, "cannot set %.*s.%.*s: only attributes of a namespace can be set",
                            (int)name->len, name->data, (int)target->name.attr->len,
                            target->name.attr->data);
    }
    if (target->name.attr->data[0] == '_')
        return ax_jvm_error(vm, "a namespace does not accept names that begin with an underscore");
    return ax_jdict_set(&vm->arena, ns.dict, ax_jstring(target->name.attr), v);
}

static enum ax_status assign(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *target,
                             struct ax_jval v) {
    if (target->kind != AX_JN_TUPLE)
        return assign_name(vm, s, target, v);
    struct ax_jitems items;
    if (!ax_jval_is_iterable(v))
        return ax_jvm_error(vm, "a %s cannot be unpacked", ax_jval_type(v));
    AX_TRY(ax_jval_items(vm, v, &items));
    if (items.n != target->items.n)
        return ax_jvm_error(vm, "%zu values for %zu names", items.n, target->items.n);
    for (size_t i = 0; i < items.n; i++)
        AX_TRY(assign(vm, s, target->items.items[i], items.items[i]));
    return AX_OK;
}

/* ---- the items of a for tag ---- */

/* The next item that passes the tag's test, or MISSING. Tests run as late as possible, because
 * they may read a namespace that the body changes. */
static enum ax_status next_passing(struct ax_jvm *vm, struct ax_jloop *l, struct ax_jval *out) {
    const size_t n = l->range != NULL ? (size_t)l->range->n : l->items.n;
    while (l->pos < n) {
        const size_t i = l->pos++;
        struct ax_jval passes;
        struct ax_jscope inner = {.parent = l->scope};
        *out = l->range != NULL ? ax_jint(l->range->start + (int64_t)i * l->range->step)
                                : l->items.items[i];
        if (l->node->loop.test == NULL)
            return AX_OK;
        AX_TRY(assign(vm, &inner, l->node->loop.target, *out));
        AX_TRY(eval(vm, &inner, l->node->loop.test, &passes));
        if (ax_jval_truth(passes))
            return AX_OK;
    }
    out->kind = AX_JMISSING;
    return AX_OK;
}

static enum ax_status peek(struct ax_jvm *vm, struct ax_jloop *l) {
    if (!l->peeked) {
        AX_TRY(next_passing(vm, l, &l->after));
        l->peeked = true;
    }
    return AX_OK;
}

/* The number of items that pass the test: those already visited, and the rest by the current
 * state. */
static enum ax_status count(struct ax_jvm *vm, struct ax_jloop *l) {
    if (l->length < 0) {
        struct ax_jloop rest = *l;
        rest.after.kind = l->peeked ? l->after.kind : AX_JNONE;
        for (l->length = l->index0; rest.after.kind != AX_JMISSING; l->length++)
            AX_TRY(next_passing(vm, &rest, &rest.after));
        l->length += l->peeked;
    }
    return AX_OK;
}

static enum ax_status run_loop(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                               struct ax_jval items) {
    struct ax_jloop *l; /* in the arena, because a namespace may keep `loop` */
    struct ax_jscope *inner;
    AX_TRY(ax_jarena_alloc(&vm->arena, &l, 1, sizeof *l));
    AX_TRY(ax_jarena_alloc(&vm->arena, &inner, 1, sizeof *inner));
    inner->parent = s;
    *l = (struct ax_jloop){.node = n, .scope = s, .index0 = -1, .length = -1};
    if (items.kind == AX_JRANGE)
        l->range = items.range;
    else
        AX_TRY(ax_jval_items(vm, items, &l->items));
    bool whole = false;
    for (bool on = true; on;) {
        vm->line = n->line;
        AX_TRY(peek(vm, l));
        l->peeked = false;
        if (l->after.kind == AX_JMISSING)
            break;
        l->before = l->current;
        l->current = l->after;
        l->index0++;
        inner->n = 0;
        AX_TRY(ax_jvm_charge(vm, 1));
        AX_TRY(ax_jscope_set(vm, inner, vm->tree->loop,
                             (struct ax_jval){.kind = AX_JLOOP, .loop = l}));
        AX_TRY(assign(vm, inner, n->loop.target, l->current));
        AX_TRY(ax_jvm_exec_all(vm, inner, &n->loop.body));
        on = vm->flow != AX_JFLOW_BREAK;
        whole = whole || vm->flow == AX_JFLOW_ON;
        vm->flow = AX_JFLOW_ON;
    }
    if (!whole && n->loop.otherwise.n > 0) { /* also if every pass ended in break or continue */
        *inner = (struct ax_jscope){.parent = s};
        AX_TRY(ax_jvm_exec_all(vm, inner, &n->loop.otherwise));
    }
    return AX_OK;
}

/* ---- `loop` in a for tag ---- */

static enum ax_status previous_item(struct ax_jvm *vm, struct ax_jloop *l, struct ax_jval *out) {
    *out = l->before;
    return l->index0 > 0 ? AX_OK
                         : ax_jval_make_undefined(vm, "there is no previous item", NULL, NULL, out);
}

static enum ax_status next_item(struct ax_jvm *vm, struct ax_jloop *l, struct ax_jval *out) {
    AX_TRY(peek(vm, l));
    *out = l->after;
    return l->after.kind != AX_JMISSING
               ? AX_OK
               : ax_jval_make_undefined(vm, "there is no next item", NULL, NULL, out);
}

enum ax_status ax_jloop_get(struct ax_jvm *vm, struct ax_jloop *l, const struct ax_jstr *name,
                            struct ax_jval *out, bool *known) {
    *known = true;
    if (ax_jstr_is(name, "index0")) {
        *out = ax_jint(l->index0);
    } else if (ax_jstr_is(name, "index")) {
        *out = ax_jint(l->index0 + 1);
    } else if (ax_jstr_is(name, "first")) {
        *out = ax_jbool(l->index0 == 0);
    } else if (ax_jstr_is(name, "last")) {
        AX_TRY(peek(vm, l));
        *out = ax_jbool(l->after.kind == AX_JMISSING);
    } else if (ax_jstr_is(name, "length")) {
        AX_TRY(count(vm, l));
        *out = ax_jint(l->length);
    } else if (ax_jstr_is(name, "revindex")) {
        AX_TRY(count(vm, l));
        *out = ax_jint(l->length - l->index0);
    } else if (ax_jstr_is(name, "revindex0")) {
        AX_TRY(count(vm, l));
        *out = ax_jint(l->length - l->index0 - 1);
    } else if (ax_jstr_is(name, "previtem")) {
        return previous_item(vm, l, out);
    } else if (ax_jstr_is(name, "nextitem")) {
        return next_item(vm, l, out);
    } else {
        *known = false;
    }
    return AX_OK;
}

/* ---- assignment ---- */

static enum ax_status exec_assign(struct ax_jvm *vm, struct ax_jscope *s,
                                  const struct ax_jnode *n) {
    struct ax_jval v;
    AX_TRY(eval(vm, s, n->assign.value, &v));
    vm->line = n->line;
    return assign(vm, s, n->assign.target, v);
}

/* ---- captured blocks ---- */

/* Runs a block's body in its own scope and passes its text through the block's filters. */
static enum ax_status capture_body(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
                                   struct ax_jval *out) {
    struct ax_jcapture c = ax_jvm_capture(vm);
    struct ax_jscope *inner;
    AX_TRY(ax_jarena_alloc(&vm->arena, &inner, 1, sizeof *inner));
    inner->parent = s;
    AX_TRY(ax_jvm_exec_all(vm, inner, &n->assign.body));
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    if (vm->flow == AX_JFLOW_ON && n->assign.filter != NULL)
        AX_TRY(apply_filter(vm, inner, n->assign.filter, *out, out));
    return AX_OK;
}

static enum ax_status exec_set_block(struct ax_jvm *vm, struct ax_jscope *s,
                                     const struct ax_jnode *n) {
    struct ax_jval v;
    AX_TRY(capture_body(vm, s, n, &v));
    if (vm->flow == AX_JFLOW_ON) {
        vm->line = n->line;
        AX_TRY(assign(vm, s, n->assign.target, v));
    }
    return AX_OK;
}

static enum ax_status exec_filter_block(struct ax_jvm *vm, struct ax_jscope *s,
                                        const struct ax_jnode *n) {
    struct ax_jval v;
    AX_TRY(capture_body(vm, s, n, &v));
    if (vm->flow == AX_JFLOW_ON)
        AX_TRY(ax_jval_put_str(vm, v));
    return AX_OK;
}

/* ---- generation blocks ---- */

/* The text printed inside is what the model said. Positions are those of the finished text even
 * if the block is inside a captured one, as in transformers. */
static enum ax_status exec_generation(struct ax_jvm *vm, struct ax_jscope *s,
                                      const struct ax_jnode *n) {
    size_t start = ax_jvm_chars(vm), from = vm->out.len;
    const struct ax_jmacro macro = {n, s};
    const struct ax_jcall call = {.name = "generation"};
    struct ax_jval text;
    AX_TRY(call_macro(vm, &macro, &call, &text));
    AX_ASSERT(vm->out.len == from);
    AX_TRY(ax_grow(&vm->spans, vm->n_spans, &vm->cap_spans, sizeof *vm->spans));
    vm->spans[vm->n_spans++] = (struct ax_span){start, start + ax_jstr_chars(text.str)};
    return ax_jval_put_str(vm, text);
}

/* ---- the other statements ---- */

static enum ax_status exec_if(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n) {
    for (; n != NULL; n = n->branch.next) {
        struct ax_jval v = ax_jbool(true);
        if (n->branch.test != NULL)
            AX_TRY(eval(vm, s, n->branch.test, &v));
        if (ax_jval_truth(v))
            return ax_jvm_exec_all(vm, s, &n->branch.body);
    }
    return AX_OK;
}

static enum ax_status exec_macro(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n) {
    struct ax_jmacro *m;
    AX_TRY(ax_jarena_alloc(&vm->arena, &m, 1, sizeof *m));
    *m = (struct ax_jmacro){n, s};
    return ax_jscope_set(vm, s, n->macro.name->name.number,
                         (struct ax_jval){.kind = AX_JMACRO, .macro = m});
}

static enum ax_status exec_print(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n) {
    struct ax_jval v;
    AX_TRY(eval(vm, s, n->print, &v));
    vm->line = n->line;
    return ax_jval_put_str(vm, v);
}

static enum ax_status exec_for(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n) {
    struct ax_jval items;
    AX_TRY(eval(vm, s, n->loop.iter, &items));
    vm->line = n->line;
    return run_loop(vm, s, n, items);
}

static enum ax_status exec(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n) {
    switch (n->kind) {
    case AX_JN_DATA:
        return ax_jvm_put(vm, n->text->data, n->text->len);
    case AX_JN_PRINT:
        return exec_print(vm, s, n);
    case AX_JN_IF:
        return exec_if(vm, s, n);
    case AX_JN_FOR:
        return exec_for(vm, s, n);
    case AX_JN_ASSIGN:
        return exec_assign(vm, s, n);
    case AX_JN_SET_BLOCK:
        return exec_set_block(vm, s, n);
    case AX_JN_FILTER_BLOCK:
        return exec_filter_block(vm, s, n);
    case AX_JN_MACRO:
        return exec_macro(vm, s, n);
    case AX_JN_GENERATION:
        return exec_generation(vm, s, n);
    default:
        AX_ASSERT(n->kind == AX_JN_BREAK || n->kind == AX_JN_CONTINUE);
        vm->flow = n->kind == AX_JN_BREAK ? AX_JFLOW_BREAK : AX_JFLOW_CONTINUE;
        return AX_OK;
    }
}

enum ax_status ax_jvm_exec_all(struct ax_jvm *vm, struct ax_jscope *s,
                               const struct ax_jnodes *list) {
    AX_TRY(ax_jvm_enter(vm));
    for (size_t i = 0; i < list->n && vm->flow == AX_JFLOW_ON; i++) {
        vm->line = list->items[i]->line;
        AX_TRY(ax_jvm_charge(vm, 1));
        AX_TRY(exec(vm, s, list->items[i]));
    }
    vm->depth--;
    return AX_OK;
}
