/* Iteration: the items of any value; the for tag with its test; `loop`. */
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/unicode.h"

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
        return ax_jvm_check_defined(vm, v);
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

/* ---- the items of a for tag ---- */

/* The next item that passes the tag's test, or MISSING. Tests run as late as possible, because
 * they may read a namespace that the body changes. */
static enum ax_status next_passing(struct ax_jvm *vm, struct ax_jloop *l, struct ax_jval *out) {
    const size_t n = l->range != NULL ? (size_t)l->range->n : l->items.n;
    while (l->pos < n) {
        const size_t i = l->pos++;
        struct ax_jval passes;
        bool holds;
        struct ax_jscope inner = {.parent = l->scope};
        *out = l->range != NULL ? ax_jint(l->range->start + (int64_t)i * l->range->step)
                                : l->items.items[i];
        if (l->node->loop.test == NULL)
            return AX_OK;
        AX_TRY(ax_jvm_charge(vm, 1));
        AX_TRY(ax_jvm_assign(vm, &inner, l->node->loop.target, *out));
        AX_TRY(ax_jvm_eval(vm, &inner, l->node->loop.test, &passes));
        AX_TRY(ax_jvm_truth(vm, passes, &holds));
        if (holds)
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

enum ax_status ax_jloop_run(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n,
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
        AX_TRY(ax_jvm_assign(vm, inner, n->loop.target, l->current));
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

/* ---- loop ---- */

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
