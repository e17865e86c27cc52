/* Statements. A body stops early if vm->flow says that break or continue was reached. */
#include "data/text/jinja/builtin.h"

/* ---- assignment ---- */

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

enum ax_status ax_jvm_assign(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *target,
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
        AX_TRY(ax_jvm_assign(vm, s, target->items.items[i], items.items[i]));
    return AX_OK;
}

static enum ax_status exec_assign(struct ax_jvm *vm, struct ax_jscope *s,
                                  const struct ax_jnode *n) {
    struct ax_jval v;
    AX_TRY(ax_jvm_eval(vm, s, n->assign.value, &v));
    vm->line = n->line;
    return ax_jvm_assign(vm, s, n->assign.target, v);
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
        AX_TRY(ax_jvm_filter(vm, inner, n->assign.filter, *out, out));
    return AX_OK;
}

static enum ax_status exec_set_block(struct ax_jvm *vm, struct ax_jscope *s,
                                     const struct ax_jnode *n) {
    struct ax_jval v;
    AX_TRY(capture_body(vm, s, n, &v));
    if (vm->flow == AX_JFLOW_ON) {
        vm->line = n->line;
        AX_TRY(ax_jvm_assign(vm, s, n->assign.target, v));
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
    AX_TRY(ax_jmacro_call(vm, &macro, &call, &text));
    AX_ASSERT(vm->out.len == from);
    if (vm->n_spans == vm->cap_spans) {
        size_t cap = vm->cap_spans > 0 ? 2 * vm->cap_spans : 16;
        AX_TRY(ax_regrow(&vm->spans, vm->cap_spans, cap, sizeof *vm->spans));
        vm->cap_spans = cap;
    }
    vm->spans[vm->n_spans++] = (struct ax_span){start, start + ax_jstr_chars(text.str)};
    return ax_jval_put_str(vm, text);
}

/* ---- the rest ---- */

static enum ax_status exec_if(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n) {
    for (; n != NULL; n = n->branch.next) {
        struct ax_jval v = ax_jbool(true);
        if (n->branch.test != NULL)
            AX_TRY(ax_jvm_eval(vm, s, n->branch.test, &v));
        bool holds;
        AX_TRY(ax_jvm_truth(vm, v, &holds));
        if (holds)
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
    AX_TRY(ax_jvm_eval(vm, s, n->print, &v));
    vm->line = n->line;
    return ax_jval_put_str(vm, v);
}

static enum ax_status exec_for(struct ax_jvm *vm, struct ax_jscope *s, const struct ax_jnode *n) {
    struct ax_jval items;
    AX_TRY(ax_jvm_eval(vm, s, n->loop.iter, &items));
    vm->line = n->line;
    return ax_jloop_run(vm, s, n, items);
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
