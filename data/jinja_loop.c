/* The for tag: items, its test, `loop`, else, and recursion. */
#include "data/jinja_builtin.h"

/* ---- for … if test ---- */

struct test_state {
    const struct ax_jnode *node;
    struct ax_jframe *frame; /* of the test's own function */
};

/* The items as the target took them: a tuple for several names. */
static enum ax_status repack(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *target,
                             struct ax_jval *out) {
    if (target->kind != AX_JN_TUPLE) {
        *out = *ax_jref_slot(f, target->name.ref);
        return AX_OK;
    }
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, target->items.n, sizeof *items));
    for (size_t i = 0; i < target->items.n; i++) {
        AX_TRY(repack(vm, f, target->items.items[i], &items[i]));
    }
    return ax_jlist_wrap(&vm->arena, AX_JTUPLE, items, target->items.n, out);
}

static enum ax_status next_passing(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                   bool *more) {
    const struct test_state *s = it->state;
    if (!it->started) { /* the generator's first lines: its iterator, its scope */
        it->started = true;
        AX_TRY(ax_jval_iterate(vm, it->source, &it->inner));
        ax_jscope_enter(vm, s->frame, &s->node->loop.test_scope);
    }
    for (;;) {
        struct ax_jval item, passes;
        AX_TRY(ax_jiter_next(vm, it->inner, &item, more));
        if (!*more) {
            return AX_OK;
        }
        AX_TRY(ax_jvm_assign(vm, s->frame, s->node->loop.test_target, item));
        AX_TRY(ax_jvm_eval(vm, s->frame, s->node->loop.test, &passes));
        if (ax_jval_truth(passes)) {
            return repack(vm, s->frame, s->node->loop.test_target, out);
        }
    }
}

static enum ax_status add_test(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *n,
                               struct ax_jval *items) {
    struct test_state *s;
    struct ax_jiter *it;
    AX_TRY(ax_jarena_alloc(&vm->arena, &s, 1, sizeof *s));
    s->node = n;
    AX_TRY(ax_jframe_new(vm, &n->loop.test_fn, f, &s->frame));
    AX_TRY(ax_jiter_new(vm, *items, "generator", next_passing, &it));
    it->state = s;
    *items = (struct ax_jval){.kind = AX_JITER, .iter = it};
    return AX_OK;
}

/* ---- the loop ---- */

/* One pass: target, loop variable, scope, body. *on = false at the end and after break; *whole is
 * set when the body ran to its end. */
static enum ax_status run_body(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *n,
                               struct ax_jloop *l, bool *on, bool *whole) {
    struct ax_jval item;
    bool more;
    vm->line = n->line;
    if (n->loop.uses_loop) {
        AX_TRY(ax_jloop_next(vm, l, &item, &more));
    } else {
        AX_TRY(ax_jiter_next(vm, l->iter, &item, &more));
    }
    *on = more;
    if (!more) {
        return AX_OK;
    }
    AX_TRY(ax_jvm_charge(vm, 1));
    AX_TRY(ax_jvm_assign(vm, f, n->loop.target, item));
    if (n->loop.uses_loop) {
        *ax_jref_slot(f, n->loop.loop) = (struct ax_jval){.kind = AX_JLOOP, .loop = l};
    }
    ax_jscope_enter(vm, f, &n->loop.body_scope);
    AX_TRY(ax_jvm_exec_all(vm, f, &n->loop.body));
    *on = vm->flow != AX_JFLOW_BREAK;
    *whole = *whole || vm->flow == AX_JFLOW_ON;
    vm->flow = AX_JFLOW_ON;
    return AX_OK;
}

enum ax_status ax_jloop_run(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *n,
                            struct ax_jval items, const struct ax_jloop *outer) {
    struct ax_jframe *around = f;
    if (n->loop.recursive) {
        AX_TRY(ax_jframe_new(vm, &n->loop.fn, f, &f));
    }
    if (n->loop.test != NULL) {
        AX_TRY(add_test(vm, around, n, &items));
    }
    struct ax_jloop *l; /* in the arena: `loop` may be kept in a namespace */
    AX_TRY(ax_jarena_alloc(&vm->arena, &l, 1, sizeof *l));
    l->source = items;
    l->index0 = -1;
    l->length = -1;
    l->depth0 = outer != NULL ? outer->depth0 + 1 : 0;
    l->node = n->loop.recursive ? n : NULL;
    l->frame = around;
    AX_TRY(ax_jval_iterate(vm, items, &l->iter));
    bool on = true, whole = false;
    while (on) {
        AX_TRY(run_body(vm, f, n, l, &on, &whole));
    }
    ax_jscope_leave(f, &n->loop.body_scope);
    if (!whole && n->loop.otherwise.n > 0) { /* Jinja: also if break or continue ended every pass */
        ax_jscope_enter(vm, f, &n->loop.otherwise_scope);
        AX_TRY(ax_jvm_exec_all(vm, f, &n->loop.otherwise));
        ax_jscope_leave(f, &n->loop.otherwise_scope);
    }
    return AX_OK;
}
