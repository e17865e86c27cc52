#include "model/lora/experts.h"

static struct ax_tensor take(const struct ax_expert_adapter *a, const char *name,
                             enum ax_dtype dtype, int64_t rows, int64_t cols) {
    return ax_stack_take(&a->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

/* [n_local·rows][cols] as [n_local][rows][cols]. */
static struct ax_tensor stacked(const struct ax_expert_adapter *a, const struct ax_tensor *t) {
    return ax_tensor_3d(t->dtype, t->data, a->n_local, t->shape[0] / a->n_local, t->shape[1]);
}

/* The rows of A, or of its gradient, for the experts here. */
static struct ax_tensor here(const struct ax_expert_adapter *a, const struct ax_tensor *t) {
    return ax_tensor_rows(t, a->first * a->r, a->n_local * a->r);
}

/* B, or its gradient, as [out·r][E], of which the experts here have neighboring columns; and
 * [n_local·out][r] as [n_local][out·r], which is the transpose of these. */
static struct ax_tensor columns_here(const struct ax_expert_adapter *a, const struct ax_tensor *b) {
    const struct ax_tensor all =
        ax_tensor_2d(b->dtype, b->data, ax_tensor_numel(b) / a->n_experts, a->n_experts);
    return ax_tensor_cols(&all, a->first, a->n_local);
}
static struct ax_tensor by_expert(const struct ax_expert_adapter *a, const struct ax_tensor *b) {
    return ax_tensor_2d(b->dtype, b->data, a->n_local, ax_tensor_numel(b) / a->n_local);
}

/* B as [n_local][out][r]. */
static enum ax_status gather_b(const struct ax_expert_adapter *a, struct ax_tensor *out) {
    const struct ax_tensor b = ax_unit_weight(a->unit, a->b);
    const struct ax_tensor t =
        take(a, "adapter of experts", b.dtype, a->n_local * b.shape[0], a->r);
    AX_TRY(ax_run_transpose(
        a->rt->q,
        &(struct ax_transpose){.dst = by_expert(a, &t), .src = columns_here(a, &b), .alpha = 1}));
    *out = stacked(a, &t);
    return AX_OK;
}

/* out = x·w of each expert's rows; `adds`: out += scale·x·w. */
static enum ax_status product(const struct ax_expert_adapter *a, const struct ax_expert_rows *rows,
                              const struct ax_tensor *x, const struct ax_tensor *w, bool trans_b,
                              bool adds, const struct ax_tensor *out) {
    return ax_run_grouped_gemm(a->rt->q,
                               &(struct ax_grouped_gemm){.a = *x,
                                                         .b = *w,
                                                         .c = *out,
                                                         .offsets = rows->offsets,
                                                         .mirror = rows->mirror,
                                                         .trans_b = trans_b,
                                                         .accumulate = adds,
                                                         .alpha = adds ? a->scale : 1,
                                                         .expected_rows = rows->part.expected});
}

static struct ax_tensor take_rows(const struct ax_expert_adapter *a, const struct ax_tensor *x,
                                  int64_t cols) {
    return take(a, "adapter rows of experts", x->dtype, x->shape[0], cols);
}

/* out += α·Σ dyᵀ·x of each expert's rows: [n_local·out][in]. */
static enum ax_status outer(const struct ax_expert_adapter *a, const struct ax_expert_rows *rows,
                            const struct ax_tensor *dy, const struct ax_tensor *x, double alpha,
                            const struct ax_tensor *out) {
    return ax_run_grouped_gemm(a->rt->q,
                               &(struct ax_grouped_gemm){.a = *dy,
                                                         .b = *x,
                                                         .c = stacked(a, out),
                                                         .offsets = rows->offsets,
                                                         .mirror = rows->mirror,
                                                         .trans_a = true,
                                                         .alpha = alpha,
                                                         .expected_rows = rows->part.expected});
}

static enum ax_status project(const struct ax_expert_adapter *a, const struct ax_expert_rows *rows,
                              struct ax_tensor *low) {
    const struct ax_tensor all = ax_unit_weight(a->unit, a->a), A = here(a, &all);
    const struct ax_tensor experts = stacked(a, &A);
    *low = take_rows(a, &rows->x, a->r);
    return product(a, rows, &rows->x, &experts, true, false, low);
}

/* The adapters of a part's experts. */
static struct ax_expert_adapter of_part(const struct ax_expert_adapter *all,
                                        const struct ax_expert_part *part) {
    struct ax_expert_adapter a = *all;
    a.first += part->first;
    a.n_local = part->n;
    return a;
}

enum ax_status ax_adapter_experts_forward(const struct ax_expert_adapter *all,
                                          const struct ax_expert_rows *rows) {
    struct ax_tensor low, b;
    if (!all->a || all->run->off)
        return AX_OK;
    const struct ax_expert_adapter one = of_part(all, &rows->part), *a = &one;
    struct ax_stack *scratch = &a->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    AX_TRY(project(a, rows, &low));
    AX_TRY(gather_b(a, &b));
    AX_TRY(product(a, rows, &low, &b, true, true, &rows->y));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_experts_backward(const struct ax_expert_adapter *all_here,
                                           const struct ax_expert_rows *rows,
                                           const struct ax_tensor *dx) {
    struct ax_tensor low, b, up, db;
    if (!all_here->a)
        return AX_OK;
    const struct ax_expert_adapter one = of_part(all_here, &rows->part), *a = &one;
    struct ax_queue *q = a->rt->q;
    struct ax_stack *scratch = &a->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor all = ax_unit_weight(a->unit, a->a), A = here(a, &all);
    const struct ax_tensor d_all = ax_unit_grad(a->unit, a->a), dA = here(a, &d_all);
    const struct ax_tensor experts = stacked(a, &A), dB = ax_unit_grad(a->unit, a->b);
    AX_TRY(project(a, rows, &low));
    AX_TRY(gather_b(a, &b));
    db = take(a, "adapter gradient of experts", dB.dtype, a->n_local * rows->y.shape[1], a->r);
    AX_TRY(ax_run_fill(q, &(struct ax_fill){db, 0}));
    AX_TRY(outer(a, rows, &rows->y, &low, 1, &db));
    AX_TRY(ax_run_transpose(q, &(struct ax_transpose){.dst = columns_here(a, &dB),
                                                      .src = by_expert(a, &db),
                                                      .alpha = a->scale,
                                                      .accumulate = true}));
    up = take_rows(a, &rows->x, a->r);
    AX_TRY(product(a, rows, &rows->y, &b, false, false, &up));
    AX_TRY(outer(a, rows, &up, &rows->x, a->scale, &dA));
    AX_TRY(product(a, rows, &up, &experts, false, true, dx));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
