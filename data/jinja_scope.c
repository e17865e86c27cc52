/* Gives every name of a template its place, exactly as Jinja's compiler does when it turns a
 * template into Python functions and local variables.
 *
 * A scope (for body, macro, with, call, set and filter block, generation) has a symbol table. A
 * name that the scope assigns is its own variable: it starts as a copy of the outer one (alias), of
 * the template's variable, or unset. A name that it only reads is the outer variable itself, or, if
 * no scope around knows it, the template's variable. Macros, call blocks, generation blocks, tests
 * of a for tag and recursive loops are functions: they see the variables of the function around
 * them as they are when the function runs. Read resolve_all first. */
#include "data/jinja_scope.h"

/* Where we are while the tree is walked. */
struct place {
    struct ax_jtree *tree;
    struct ax_jsymbols *symbols;
    bool soft;    /* inside if or inline if: unknown filters fail only when reached */
    bool in_loop; /* break and continue are possible */
};

static enum ax_status resolve(struct place *at, struct ax_jnode *n);

static enum ax_status resolve_all(struct place *at, const struct ax_jnodes *list) {
    for (size_t i = 0; i < list->n; i++) {
        AX_TRY(resolve(at, list->items[i]));
    }
    return AX_OK;
}

static enum ax_status open_function(struct place *at, struct ax_jfunction_scope *parent,
                                    struct ax_jfunction_scope **out) {
    AX_TRY(ax_jarena_alloc(at->tree->arena, out, 1, sizeof **out));
    (*out)->parent = parent;
    (*out)->depth = parent->depth + 1;
    return AX_OK;
}

/* ---- expressions ---- */

struct walk {
    struct place *at;
    enum ax_status st;
};

static bool resolve_child(void *arg, struct ax_jnode *child) {
    struct walk *w = arg;
    w->st = resolve(w->at, child);
    return w->st == AX_OK;
}

static enum ax_status resolve_children(struct place *at, struct ax_jnode *n) {
    struct walk w = {at, AX_OK};
    ax_jexpr_each(n, resolve_child, &w);
    return w.st;
}

static enum ax_status resolve_cond(struct place *at, struct ax_jnode *n) {
    struct place soft = *at;
    soft.soft = true;
    return resolve_children(&soft, n);
}

static enum ax_status resolve_filter(struct place *at, struct ax_jnode *n) {
    if (n->call.fn == NULL && !at->soft) {
        return ax_jtree_error(at->tree, n->line, "no %s named '%.*s'",
                              n->kind == AX_JN_FILTER ? "filter" : "test", (int)n->call.name->len,
                              n->call.name->data);
    }
    return resolve_children(at, n);
}

/* ---- for ---- */

static enum ax_status clone_target(struct place *at, const struct ax_jnode *n,
                                   struct ax_jnode **out) {
    struct ax_jnode *copy;
    AX_TRY(ax_jarena_alloc(at->tree->arena, &copy, 1, sizeof *copy));
    *copy = *n;
    if (n->kind == AX_JN_TUPLE) {
        AX_TRY(ax_jarena_alloc(at->tree->arena, &copy->items.items, n->items.n,
                               sizeof(struct ax_jnode *)));
        for (size_t i = 0; i < n->items.n; i++) {
            AX_TRY(clone_target(at, n->items.items[i], &copy->items.items[i]));
        }
    }
    *out = copy;
    return AX_OK;
}

/* `for … if test`: the test is a generator function over the items. */
static enum ax_status resolve_loop_test(struct place *at, struct ax_jnode *n) {
    struct ax_jfunction_scope *fn;
    struct ax_jsymbols symbols;
    AX_TRY(open_function(at, at->symbols->fn, &fn));
    AX_TRY(ax_jsymbols_open(&symbols, at->tree, at->symbols, fn));
    AX_TRY(clone_target(at, n->loop.target, &n->loop.test_target));
    AX_TRY(ax_jsymbols_note_params(&symbols, n->loop.test_target));
    AX_TRY(ax_jsymbols_note(&symbols, n->loop.test));
    struct place in = {.tree = at->tree, .symbols = &symbols};
    AX_TRY(resolve(&in, n->loop.test_target));
    AX_TRY(resolve(&in, n->loop.test));
    AX_TRY(ax_jsymbols_close(&symbols, &n->loop.test_scope));
    n->loop.test_fn.n_slots = fn->n_slots;
    return AX_OK;
}

static enum ax_status resolve_for(struct place *at, struct ax_jnode *n) {
    static const char *const loop_name[] = {"loop"};
    struct ax_jfunction_scope *fn = at->symbols->fn;
    n->loop.uses_loop = ax_jnodes_undeclared(&n->loop.body, loop_name, 1) != 0 || n->loop.recursive;
    if (n->loop.test != NULL) {
        AX_TRY(resolve_loop_test(at, n));
    }
    if (n->loop.recursive) {
        AX_TRY(open_function(at, fn, &fn));
    }
    AX_TRY(resolve(at, n->loop.iter));

    struct ax_jsymbols symbols;
    AX_TRY(ax_jsymbols_open(&symbols, at->tree, at->symbols, fn));
    struct ax_jstr *loop;
    AX_TRY(ax_jstr_borrow(at->tree->arena, &loop, "loop", 4));
    if (n->loop.uses_loop) {
        AX_TRY(ax_jsymbols_param(&symbols, loop));
    }
    AX_TRY(ax_jsymbols_note_params(&symbols, n->loop.target));
    AX_TRY(ax_jsymbols_note_all(&symbols, &n->loop.body));
    struct place in = {.tree = at->tree, .symbols = &symbols, .in_loop = true};
    AX_TRY(resolve(&in, n->loop.target));
    if (n->loop.uses_loop) {
        AX_TRY(ax_jsymbols_ref(&symbols, loop, &n->loop.loop));
    }
    AX_TRY(resolve_all(&in, &n->loop.body));
    AX_TRY(ax_jsymbols_close(&symbols, &n->loop.body_scope));

    AX_TRY(ax_jsymbols_open(&symbols, at->tree, at->symbols, fn));
    AX_TRY(ax_jsymbols_note_all(&symbols, &n->loop.otherwise));
    in.in_loop = at->in_loop && !n->loop.recursive;
    AX_TRY(resolve_all(&in, &n->loop.otherwise));
    AX_TRY(ax_jsymbols_close(&symbols, &n->loop.otherwise_scope));
    if (n->loop.recursive) {
        n->loop.fn.n_slots = fn->n_slots;
    }
    return AX_OK;
}

/* ---- macros, call blocks, generation blocks ---- */

enum { CALLER, KWARGS, VARARGS };
static const char *const special_names[] = {"caller", "kwargs", "varargs"};

static struct ax_jnode *find_param(const struct ax_jnode *n, const char *name, size_t *position) {
    for (size_t i = 0; i < n->macro.params.n; i++) {
        if (ax_jstr_is(n->macro.params.items[i]->name.name, name)) {
            *position = i;
            return n->macro.params.items[i];
        }
    }
    return NULL;
}

/* Declares caller, kwargs and varargs where the body reads them and no parameter has the name. */
static enum ax_status declare_specials(struct place *at, struct ax_jsymbols *symbols,
                                       struct ax_jnode *n) {
    bool *has[] = {&n->macro.has_caller, &n->macro.has_kwargs, &n->macro.has_varargs};
    struct ax_jref *refs[] = {&n->macro.caller, &n->macro.kwargs, &n->macro.varargs};
    unsigned read = ax_jnodes_undeclared(&n->macro.body, special_names, 3);
    for (size_t i = 0; i < 3; i++) {
        size_t position;
        const struct ax_jnode *param = find_param(n, special_names[i], &position);
        if ((read >> i & 1) == 0) {
            continue;
        }
        if (param != NULL) {
            if (i == CALLER && position + n->macro.defaults.n < n->macro.params.n) {
                return ax_jtree_error(at->tree, n->line, "the parameter caller needs a default");
            }
            continue;
        }
        struct ax_jstr *name;
        AX_TRY(ax_jstr_copy(at->tree->arena, &name, special_names[i],
                            i == CALLER || i == KWARGS ? 6 : 7));
        AX_TRY(ax_jsymbols_param(symbols, name));
        AX_TRY(ax_jsymbols_ref(symbols, name, refs[i]));
        *has[i] = true;
    }
    return AX_OK;
}

static enum ax_status resolve_macro(struct place *at, struct ax_jnode *n) {
    struct ax_jfunction_scope *fn;
    struct ax_jsymbols symbols;
    AX_TRY(open_function(at, at->symbols->fn, &fn));
    AX_TRY(ax_jsymbols_open(&symbols, at->tree, at->symbols, fn));
    AX_TRY(ax_jsymbols_note_all(&symbols, &n->macro.params));
    AX_TRY(ax_jsymbols_note_all(&symbols, &n->macro.defaults));
    AX_TRY(ax_jsymbols_note_all(&symbols, &n->macro.body));
    AX_TRY(declare_specials(at, &symbols, n));
    struct place in = {.tree = at->tree, .symbols = &symbols};
    AX_TRY(resolve_all(&in, &n->macro.params));
    AX_TRY(resolve_all(&in, &n->macro.defaults));
    AX_TRY(resolve_all(&in, &n->macro.body));
    AX_TRY(ax_jsymbols_close(&symbols, &n->macro.scope));
    n->macro.fn.n_slots = fn->n_slots;
    if (n->kind == AX_JN_MACRO) {
        return ax_jsymbols_ref(at->symbols, n->macro.name, &n->macro.ref);
    }
    return n->kind == AX_JN_CALL_BLOCK ? resolve(at, n->macro.call) : AX_OK;
}

/* ---- blocks with a scope in the same function ---- */

static enum ax_status resolve_capture(struct place *at, struct ax_jnode *n) {
    struct ax_jsymbols symbols;
    AX_TRY(ax_jsymbols_open(&symbols, at->tree, at->symbols, at->symbols->fn));
    AX_TRY(ax_jsymbols_note_all(&symbols, &n->assign.body));
    if (n->kind == AX_JN_FILTER_BLOCK) {
        AX_TRY(ax_jsymbols_note(&symbols, n->assign.filter));
    } else {
        AX_TRY(resolve(at, n->assign.target));
    }
    struct place in = {.tree = at->tree, .symbols = &symbols, .in_loop = at->in_loop};
    AX_TRY(resolve_all(&in, &n->assign.body));
    if (n->assign.filter != NULL) {
        AX_TRY(resolve(&in, n->assign.filter));
    }
    return ax_jsymbols_close(&symbols, &n->assign.scope);
}

static enum ax_status resolve_with(struct place *at, struct ax_jnode *n) {
    struct ax_jsymbols symbols;
    AX_TRY(ax_jsymbols_open(&symbols, at->tree, at->symbols, at->symbols->fn));
    for (size_t i = 0; i < n->with.targets.n; i++) {
        AX_TRY(ax_jsymbols_note_params(&symbols, n->with.targets.items[i]));
    }
    AX_TRY(ax_jsymbols_note_all(&symbols, &n->with.body));
    struct place in = {.tree = at->tree, .symbols = &symbols, .in_loop = at->in_loop};
    AX_TRY(resolve_all(at, &n->with.values));
    AX_TRY(resolve_all(&in, &n->with.targets));
    AX_TRY(resolve_all(&in, &n->with.body));
    return ax_jsymbols_close(&symbols, &n->with.scope);
}

static enum ax_status resolve_if(struct place *at, struct ax_jnode *n) {
    struct place soft = *at;
    soft.soft = true;
    for (; n != NULL; n = n->branch.next) {
        if (n->branch.test != NULL) {
            AX_TRY(resolve(&soft, n->branch.test));
        }
        AX_TRY(resolve_all(&soft, &n->branch.body));
    }
    return AX_OK;
}

static enum ax_status resolve(struct place *at, struct ax_jnode *n) {
    switch (n->kind) {
    case AX_JN_NAME:
    case AX_JN_NSREF:
        return ax_jsymbols_ref(at->symbols, n->name.name, &n->name.ref);
    case AX_JN_COND:
        return resolve_cond(at, n);
    case AX_JN_FILTER:
    case AX_JN_TEST:
        return resolve_filter(at, n);
    case AX_JN_DATA:
        return AX_OK;
    case AX_JN_PRINT:
        return resolve(at, n->print);
    case AX_JN_FOR:
        return resolve_for(at, n);
    case AX_JN_IF:
        return resolve_if(at, n);
    case AX_JN_ASSIGN:
        AX_TRY(resolve(at, n->assign.value));
        return resolve(at, n->assign.target);
    case AX_JN_SET_BLOCK:
    case AX_JN_FILTER_BLOCK:
        return resolve_capture(at, n);
    case AX_JN_WITH:
        return resolve_with(at, n);
    case AX_JN_MACRO:
    case AX_JN_CALL_BLOCK:
    case AX_JN_GENERATION:
        return resolve_macro(at, n);
    case AX_JN_BREAK:
    case AX_JN_CONTINUE:
        return at->in_loop ? AX_OK
                           : ax_jtree_error(at->tree, n->line, "{%% %s %%} outside of a for tag",
                                            n->kind == AX_JN_BREAK ? "break" : "continue");
    default:
        return resolve_children(at, n);
    }
}

enum ax_status ax_jscope_resolve(struct ax_jtree *t) {
    struct ax_jfunction_scope fn = {0};
    struct ax_jsymbols symbols;
    AX_TRY(ax_jsymbols_open(&symbols, t, NULL, &fn));
    AX_TRY(ax_jsymbols_note_all(&symbols, &t->body));
    struct place at = {.tree = t, .symbols = &symbols};
    AX_TRY(resolve_all(&at, &t->body));
    AX_TRY(ax_jsymbols_close(&symbols, &t->scope));
    t->fn.n_slots = fn.n_slots;
    t->n_context = symbols.context->n;
    AX_TRY(ax_jarena_alloc(t->arena, &t->context, t->n_context, sizeof(struct ax_jstr *)));
    for (size_t i = 0; i < t->n_context; i++) {
        t->context[i] = symbols.context->pairs[i].key.str;
    }
    return AX_OK;
}
