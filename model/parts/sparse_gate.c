#include "model/parts/sparse_gate.h"

#include "model/parallel/tensor_parallel.h"

static bool split(const struct ax_pass *p) {
    return p->model->rt->mesh.size[AX_ROLE_TP] > 1;
}

/* Own rows of all columns, of x [T][F / tp]. */
static enum ax_status take_rows(const struct ax_layer *l, const struct ax_pass *p,
                                const struct ax_tensor *x, struct ax_tensor *rows) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_tensor shape = ax_tensor_2d(x->dtype, NULL, ax_tp_rows(rt, p->batch->T),
                                                ax_spec_width(&p->model->arch, &l->spec));
    *rows = ax_stack_take(&rt->arena.scratch, "rows of gates", shape);
    return ax_tp_to_rows(rt, x, rows);
}

enum ax_status ax_sparse_gate_forward(const struct ax_layer *l, struct ax_pass *p,
                                      const struct ax_tensor *gate, const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_sparsify_forward s = {.x = *gate, .y = *out, .z = l->spec.cut};
    if (!split(p))
        return ax_run_sparsify_forward(rt->q, &s);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(take_rows(l, p, gate, &s.x));
    s.y = s.x;
    AX_TRY(ax_run_sparsify_forward(rt->q, &s));
    AX_TRY(ax_tp_to_columns(rt, &s.y, out));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_sparse_gate_backward(const struct ax_layer *l, struct ax_pass *p,
                                       const struct ax_tensor *gate, const struct ax_tensor *d) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_sparsify_backward s = {.dy = *d, .x = *gate, .dx = *d, .z = l->spec.cut};
    if (!split(p))
        return ax_run_sparsify_backward(rt->q, &s);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(take_rows(l, p, gate, &s.x));
    AX_TRY(take_rows(l, p, d, &s.dy));
    s.dx = s.dy;
    AX_TRY(ax_run_sparsify_backward(rt->q, &s));
    AX_TRY(ax_tp_to_columns(rt, &s.dx, d));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
