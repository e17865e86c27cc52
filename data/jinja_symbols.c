/* Symbol tables of jinja_scope.h: who is a parameter, who comes from outside, who starts unset. */
#include <string.h>

#include "data/jinja_scope.h"

enum ax_status ax_jsymbols_open(struct ax_jsymbols *s, struct ax_jtree *t,
                                struct ax_jsymbols *parent, struct ax_jfunction_scope *fn) {
    *s = (struct ax_jsymbols){.tree = t, .parent = parent, .fn = fn};
    if (parent != NULL) {
        s->level = parent->level + 1;
        s->context = parent->context;
    } else {
        AX_TRY(ax_jdict_new(t->arena, &s->context));
    }
    return ax_jdict_new(t->arena, &s->index);
}

static struct ax_jsymbol *own(const struct ax_jsymbols *s, struct ax_jstr *name) {
    const struct ax_jval *at = ax_jdict_get_str(s->index, name);
    if (at == NULL) {
        return NULL;
    }
    AX_ASSERT(s->list != NULL); /* index holds the numbers of what is listed */
    return &s->list[at->integer];
}

/* The innermost table that knows the name, from s outwards. */
static struct ax_jsymbol *find(const struct ax_jsymbols *s, struct ax_jstr *name,
                               const struct ax_jsymbols **where) {
    for (; s != NULL; s = s->parent) {
        struct ax_jsymbol *symbol = own(s, name);
        if (symbol != NULL) {
            *where = s;
            return symbol;
        }
    }
    return NULL;
}

static enum ax_status slot_for(struct ax_jsymbols *s, struct ax_jstr *name, uint32_t *slot) {
    struct ax_jfunction_scope *fn = s->fn;
    struct ax_jarena *a = s->tree->arena;
    if (s->level >= fn->n_levels) {
        int n = s->level + 8;
        struct ax_jdict **levels;
        AX_TRY(ax_jarena_alloc(a, &levels, (size_t)n, sizeof(struct ax_jdict *)));
        if (fn->n_levels > 0) {
            memcpy(levels, fn->levels, (size_t)fn->n_levels * sizeof(struct ax_jdict *));
        }
        fn->levels = levels;
        fn->n_levels = n;
    }
    struct ax_jdict **names = &fn->levels[s->level];
    if (*names == NULL) {
        AX_TRY(ax_jdict_new(a, names));
    }
    const struct ax_jval *known = ax_jdict_get_str(*names, name);
    if (known != NULL) {
        *slot = (uint32_t)known->integer;
        return AX_OK;
    }
    *slot = fn->n_slots++;
    return ax_jdict_set(a, *names, ax_jstring(name), ax_jint(*slot));
}

static enum ax_status context_number(struct ax_jsymbols *s, struct ax_jstr *name,
                                     uint32_t *number) {
    const struct ax_jval *known = ax_jdict_get_str(s->context, name);
    if (known != NULL) {
        *number = (uint32_t)known->integer;
        return AX_OK;
    }
    *number = (uint32_t)s->context->n;
    return ax_jdict_set(s->tree->arena, s->context, ax_jstring(name), ax_jint(*number));
}

/* Sets what a symbol starts as: the value of the outer variable, or of the template's. */
static enum ax_status start_from_outside(struct ax_jsymbols *s, struct ax_jsymbol *symbol) {
    const struct ax_jsymbols *where = NULL;
    const struct ax_jsymbol *outer =
        s->parent != NULL ? find(s->parent, symbol->name, &where) : NULL;
    if (outer != NULL) {
        symbol->load.action = AX_JLOAD_ALIAS;
        symbol->load.from = (struct ax_jref){s->fn->depth - where->fn->depth, outer->load.slot};
        return AX_OK;
    }
    symbol->load.action = AX_JLOAD_CONTEXT;
    return context_number(s, symbol->name, &symbol->load.context);
}

static enum ax_status define(struct ax_jsymbols *s, struct ax_jstr *name, struct ax_jsymbol **out) {
    struct ax_jarena *a = s->tree->arena;
    if (s->n == s->cap) {
        size_t cap = s->cap > 0 ? 2 * s->cap : 8;
        struct ax_jsymbol *list;
        AX_TRY(ax_jarena_alloc(a, &list, cap, sizeof *list));
        if (s->n > 0) {
            memcpy(list, s->list, s->n * sizeof *list);
        }
        s->list = list;
        s->cap = cap;
    }
    struct ax_jsymbol *symbol = &s->list[s->n];
    symbol->name = name;
    AX_TRY(slot_for(s, name, &symbol->load.slot));
    AX_TRY(ax_jdict_set(a, s->index, ax_jstring(name), ax_jint((int64_t)s->n)));
    s->n++;
    *out = symbol;
    return AX_OK;
}

enum ax_status ax_jsymbols_param(struct ax_jsymbols *s, struct ax_jstr *name) {
    struct ax_jsymbol *symbol = own(s, name);
    if (symbol == NULL) {
        AX_TRY(define(s, name, &symbol));
    }
    symbol->load.action = AX_JLOAD_PARAM;
    symbol->stored = true;
    return AX_OK;
}

enum ax_status ax_jsymbols_load(struct ax_jsymbols *s, struct ax_jstr *name) {
    const struct ax_jsymbols *where;
    if (find(s, name, &where) != NULL) {
        return AX_OK;
    }
    struct ax_jsymbol *symbol;
    AX_TRY(define(s, name, &symbol));
    return start_from_outside(s, symbol);
}

static enum ax_status remember_store(struct ax_jsymbols *s, struct ax_jsymbol *symbol) {
    symbol->stored = true;
    if (s->n_stores == s->cap_stores) {
        size_t cap = s->cap_stores > 0 ? 2 * s->cap_stores : 8;
        uint32_t *stores;
        AX_TRY(ax_jarena_alloc(s->tree->arena, &stores, cap, sizeof *stores));
        if (s->n_stores > 0) {
            memcpy(stores, s->stores, s->n_stores * sizeof *stores);
        }
        s->stores = stores;
        s->cap_stores = cap;
    }
    s->stores[s->n_stores++] = (uint32_t)(symbol - s->list);
    return AX_OK;
}

enum ax_status ax_jsymbols_store(struct ax_jsymbols *s, struct ax_jstr *name) {
    struct ax_jsymbol *symbol = own(s, name);
    if (symbol == NULL) {
        const struct ax_jsymbols *where;
        bool outer = s->parent != NULL && find(s->parent, name, &where) != NULL;
        AX_TRY(define(s, name, &symbol));
        if (outer) {
            AX_TRY(start_from_outside(s, symbol));
        } else {
            symbol->load.action = AX_JLOAD_UNSET;
        }
    }
    return symbol->stored ? AX_OK : remember_store(s, symbol);
}

enum ax_status ax_jsymbols_conditional(struct ax_jsymbols *s, size_t mark) {
    for (size_t i = mark; i < s->n_stores; i++) {
        AX_TRY(start_from_outside(s, &s->list[s->stores[i]]));
    }
    return AX_OK;
}

enum ax_status ax_jsymbols_ref(struct ax_jsymbols *s, struct ax_jstr *name, struct ax_jref *out) {
    const struct ax_jsymbols *where = s;
    AX_TRY(ax_jsymbols_load(s, name));
    const struct ax_jsymbol *symbol = find(s, name, &where);
    AX_ASSERT(symbol != NULL);
    *out = (struct ax_jref){s->fn->depth - where->fn->depth, symbol->load.slot};
    return AX_OK;
}

enum ax_status ax_jsymbols_close(struct ax_jsymbols *s, struct ax_jscope *out) {
    AX_TRY(ax_jarena_alloc(s->tree->arena, &out->loads, s->n, sizeof *out->loads));
    for (size_t i = 0; i < s->n; i++) {
        out->loads[i] = s->list[i].load;
    }
    out->n = s->n;
    return AX_OK;
}

/* ---- noting a scope's statements ---- */

struct noting {
    struct ax_jsymbols *symbols;
    enum ax_status st;
};

static bool note_child(void *arg, struct ax_jnode *child) {
    struct noting *n = arg;
    n->st = ax_jsymbols_note(n->symbols, child);
    return n->st == AX_OK;
}

static enum ax_status note_if(struct ax_jsymbols *s, struct ax_jnode *n) {
    size_t mark = s->n_stores;
    for (; n != NULL; n = n->branch.next) {
        if (n->branch.test != NULL) {
            AX_TRY(ax_jsymbols_note(s, n->branch.test));
        }
        AX_TRY(ax_jsymbols_note_all(s, &n->branch.body));
    }
    return ax_jsymbols_conditional(s, mark);
}

enum ax_status ax_jsymbols_note_all(struct ax_jsymbols *s, const struct ax_jnodes *list) {
    for (size_t i = 0; i < list->n; i++) {
        AX_TRY(ax_jsymbols_note(s, list->items[i]));
    }
    return AX_OK;
}

enum ax_status ax_jsymbols_note(struct ax_jsymbols *s, struct ax_jnode *n) {
    switch (n->kind) {
    case AX_JN_NAME:
        return n->name.use == AX_JLOADED  ? ax_jsymbols_load(s, n->name.name)
               : n->name.use == AX_JPARAM ? ax_jsymbols_param(s, n->name.name)
                                          : ax_jsymbols_store(s, n->name.name);
    case AX_JN_NSREF:
        return ax_jsymbols_load(s, n->name.name);
    case AX_JN_PRINT:
        return ax_jsymbols_note(s, n->print);
    case AX_JN_FOR:
        return ax_jsymbols_note(s, n->loop.iter);
    case AX_JN_IF:
        return note_if(s, n);
    case AX_JN_ASSIGN:
        AX_TRY(ax_jsymbols_note(s, n->assign.value));
        return ax_jsymbols_note(s, n->assign.target);
    case AX_JN_SET_BLOCK:
        return ax_jsymbols_note(s, n->assign.target);
    case AX_JN_WITH:
        return ax_jsymbols_note_all(s, &n->with.values);
    case AX_JN_MACRO:
        return ax_jsymbols_store(s, n->macro.name);
    case AX_JN_CALL_BLOCK:
        return ax_jsymbols_note(s, n->macro.call);
    case AX_JN_FILTER_BLOCK:
        return ax_jsymbols_note(s, n->assign.filter);
    case AX_JN_DATA:
    case AX_JN_GENERATION:
    case AX_JN_BREAK:
    case AX_JN_CONTINUE:
        return AX_OK;
    default: {
        struct noting noting = {s, AX_OK};
        ax_jexpr_each(n, note_child, &noting);
        return noting.st;
    }
    }
}

enum ax_status ax_jsymbols_note_params(struct ax_jsymbols *s, struct ax_jnode *target) {
    if (target->kind == AX_JN_TUPLE) {
        for (size_t i = 0; i < target->items.n; i++) {
            AX_TRY(ax_jsymbols_note_params(s, target->items.items[i]));
        }
        return AX_OK;
    }
    return ax_jsymbols_param(s, target->name.name);
}

/* ---- children of expressions ---- */

static bool each(const struct ax_jnodes *list, bool (*visit)(void *, struct ax_jnode *),
                 void *arg) {
    for (size_t i = 0; i < list->n; i++) {
        if (!visit(arg, list->items[i])) {
            return false;
        }
    }
    return true;
}

static bool maybe(struct ax_jnode *n, bool (*visit)(void *, struct ax_jnode *), void *arg) {
    return n == NULL || visit(arg, n);
}

bool ax_jexpr_each(struct ax_jnode *n, bool (*visit)(void *arg, struct ax_jnode *child),
                   void *arg) {
    switch (n->kind) {
    case AX_JN_TUPLE:
    case AX_JN_LIST:
    case AX_JN_DICT:
    case AX_JN_CONCAT:
        return each(&n->items, visit, arg);
    case AX_JN_COND:
        return visit(arg, n->cond.test) && visit(arg, n->cond.yes) && maybe(n->cond.no, visit, arg);
    case AX_JN_OR:
    case AX_JN_AND:
    case AX_JN_NOT:
    case AX_JN_NEG:
    case AX_JN_POS:
    case AX_JN_BINARY:
        return visit(arg, n->binary.left) && maybe(n->binary.right, visit, arg);
    case AX_JN_COMPARE:
        return visit(arg, n->compare.first) && each(&n->compare.rest, visit, arg);
    case AX_JN_GETATTR:
    case AX_JN_GETITEM:
    case AX_JN_SLICE:
        return visit(arg, n->get.of) && maybe(n->get.key, visit, arg) &&
               maybe(n->get.start, visit, arg) && maybe(n->get.stop, visit, arg) &&
               maybe(n->get.step, visit, arg);
    case AX_JN_CALL:
    case AX_JN_FILTER:
    case AX_JN_TEST:
        return maybe(n->call.of, visit, arg) && each(&n->call.args.positional, visit, arg) &&
               each(&n->call.args.keyword, visit, arg) && maybe(n->call.args.star, visit, arg) &&
               maybe(n->call.args.star_star, visit, arg);
    default:
        return true;
    }
}

/* ---- special names ---- */

struct undeclared {
    const char *const *names;
    size_t n;
    unsigned wanted, found;
};

static bool search(void *arg, struct ax_jnode *n);

static bool search_name(struct undeclared *u, const struct ax_jnode *n) {
    for (size_t i = 0; i < u->n; i++) {
        if (ax_jstr_is(n->name.name, u->names[i])) {
            if (n->name.use == AX_JLOADED && (u->wanted >> i & 1) != 0) {
                u->found |= 1U << i;
                return u->found != u->wanted;
            }
            u->wanted &= ~(1U << i);
        }
    }
    return true;
}

static bool search_all(struct undeclared *u, const struct ax_jnodes *list) {
    return each(list, search, u);
}

static bool search(void *arg, struct ax_jnode *n) {
    struct undeclared *u = arg;
    switch (n->kind) {
    case AX_JN_NAME:
        return search_name(u, n);
    case AX_JN_PRINT:
        return search(u, n->print);
    case AX_JN_FOR:
        return search(u, n->loop.target) && search(u, n->loop.iter) &&
               search_all(u, &n->loop.body) && search_all(u, &n->loop.otherwise) &&
               maybe(n->loop.test, search, u);
    case AX_JN_IF:
        for (; n != NULL; n = n->branch.next) {
            if (!maybe(n->branch.test, search, u) || !search_all(u, &n->branch.body)) {
                return false;
            }
        }
        return true;
    case AX_JN_ASSIGN:
        return search(u, n->assign.target) && search(u, n->assign.value);
    case AX_JN_SET_BLOCK:
        return search(u, n->assign.target) && maybe(n->assign.filter, search, u) &&
               search_all(u, &n->assign.body);
    case AX_JN_WITH:
        return search_all(u, &n->with.targets) && search_all(u, &n->with.values) &&
               search_all(u, &n->with.body);
    case AX_JN_MACRO:
    case AX_JN_CALL_BLOCK:
    case AX_JN_GENERATION:
        return maybe(n->macro.call, search, u) && search_all(u, &n->macro.params) &&
               search_all(u, &n->macro.defaults) && search_all(u, &n->macro.body);
    case AX_JN_FILTER_BLOCK:
        return search_all(u, &n->assign.body) && search(u, n->assign.filter);
    default:
        return ax_jexpr_each(n, search, u);
    }
}

unsigned ax_jnodes_undeclared(const struct ax_jnodes *list, const char *const *names, size_t n) {
    struct undeclared u = {.names = names, .n = n, .wanted = (1U << n) - 1};
    search_all(&u, list);
    return u.found;
}
