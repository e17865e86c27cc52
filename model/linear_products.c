#include "model/linear_products.h"

static struct ax_tensor bias_of(const struct ax_linear *l, const struct ax_linear_run *r) {
    if (!l->bias[0])
        return (struct ax_tensor){0};
    return ax_linear_joined(l, r, ax_unit_weight(l->unit, l->bias[r->first]), 1);
}

/* True if a part of the run scales its output (of merged ones, its weights). */
static bool scales(const struct ax_linear *l, const struct ax_linear_run *r) {
    bool any = false;
    for (int i = r->first; i < r->end; i++)
        any = any || ax_adapter_scales(&l->adapter[i]);
    return any;
}

/* Finishes the run's parts after its GEMM: adapters, and deferred bias and addend. */
static enum ax_status adapt(struct ax_runtime *rt, const struct ax_linear *l,
                            const struct ax_linear_run *r, const struct ax_tensor *x,
                            const struct ax_tensor *w, const struct ax_tensor *bias,
                            const struct ax_tensor *addend, const struct ax_tensor *y) {
    const bool late = scales(l, r);
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_adapter *a = &l->adapter[i];
        const struct ax_adapter_forward f = {.x = *x,
                                             .w = ax_tensor_rows(w, at, n),
                                             .y = ax_linear_columns(y, at, n),
                                             .bias = ax_linear_columns(bias, at, n),
                                             .addend = ax_linear_columns(addend, at, n)};
        if (ax_adapter_is_on(a))
            AX_TRY(ax_adapter_forward(a, &f));
        if (late && !ax_adapter_scales(a) && (f.bias.data || f.addend.data))
            AX_TRY(ax_run_colscale(
                rt->q,
                &(struct ax_colscale){.x = f.y, .bias = f.bias, .addend = f.addend, .y = f.y}));
        at += n;
    }
    return AX_OK;
}

/* True if nothing but the product reads the run's packed weights. */
static bool reads_codes(const struct ax_linear *l, const struct ax_linear_run *r) {
    bool alone = ax_unit_is_packed(l->unit, l->weight[r->first]) && !ax_linear_merges(l) &&
                 !(ax_linear_quant(l) && l->quant->scheme.quantizes_grad);
    for (int i = r->first; i < r->end; i++)
        alone = alone && !ax_adapter_is_on(&l->adapter[i]);
    return alone;
}

static enum ax_status multiply_codes(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_run *r,
                                     const struct ax_packed_product *all) {
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_packed packed = ax_unit_packed(l->unit, l->weight[i]);
        const struct ax_packed_product part = {.x = all->x,
                                               .y = ax_linear_columns(&all->y, at, n),
                                               .bias = ax_linear_columns(&all->bias, at, n),
                                               .addend = ax_linear_columns(&all->addend, at, n)};
        AX_TRY(ax_packed_multiply(rt->q, &packed, &part));
        at += n;
    }
    return AX_OK;
}

/* Forward of one run into its columns `out`; bias and addend are absent if they are added later or
 * on another rank. */
static enum ax_status run_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct ax_linear_run *r, const struct ax_linear_inputs *in,
                                  const struct ax_tensor *bias, const struct ax_tensor *addend,
                                  const struct ax_tensor *out) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_gemm g = {.a = in->values, .c = *out, .trans_b = true, .alpha = 1};
    struct ax_tensor w;
    if (reads_codes(l, r))
        return multiply_codes(rt, l, r,
                              &(struct ax_packed_product){in->values, *out, *bias, *addend});
    AX_TRY(ax_linear_run_weight(rt, l, r, &w));
    AX_TRY(ax_linear_used_weight(rt, l, r, AX_SUM_COLUMNS, &w, &g.b));
    if (!scales(l, r) || ax_linear_merges(l)) {
        g.bias = *bias;
        g.addend = *addend;
    }
    AX_TRY(ax_run_gemm(rt->q, &g));
    if (!ax_linear_merges(l))
        AX_TRY(adapt(rt, l, r, &in->x, &w, bias, addend, out));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_linear_inputs *in, bool biased,
                                 const struct ax_tensor *addend, const struct ax_tensor *out) {
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const struct ax_tensor columns = ax_tensor_cols(out, r.at, r.out);
        struct ax_tensor bias = {0}, add = {0};
        if (biased)
            bias = bias_of(l, &r);
        if (addend)
            add = ax_tensor_cols(addend, r.at, r.out);
        AX_TRY(run_forward(rt, l, &r, in, &bias, &add, &columns));
    }
    return AX_OK;
}

/* dW += dyᵀ·x. Where rounding clips, the product is first that of the values, in scratch. */
static enum ax_status weight_gradient(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_linear_run *r, const struct ax_tensor *x,
                                      const struct ax_tensor *dy, const struct ax_tensor *dw) {
    const bool clips = ax_linear_quant(l) && ax_fake_quant_clips(l->quant);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_gemm g = {.b = *x, .c = *dw, .trans_a = true, .accumulate = !clips, .alpha = 1};
    AX_TRY(ax_linear_used_grad(rt, l, r, AX_SUM_ROWS, dy, &g.a));
    if (!clips) {
        AX_TRY(ax_run_gemm(rt->q, &g));
        ax_stack_release(&rt->arena.scratch, mark);
        return AX_OK;
    }
    g.c.data = ax_stack_push(&rt->arena.scratch, "gradient of values", ax_tensor_bytes(dw));
    AX_TRY(ax_run_gemm(rt->q, &g));
    struct ax_tensor w;
    AX_TRY(ax_linear_run_weight(rt, l, r, &w));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor from = ax_tensor_rows(&w, at, n), d = ax_tensor_rows(&g.c, at, n);
        const struct ax_tensor to = ax_tensor_rows(dw, at, n);
        AX_TRY(ax_fake_quant_weight_grad(rt, l->quant, l->weight[i], &from, &d, &to));
        at += n;
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_run_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_linear_run *r, const struct ax_tensor *x,
                                       const struct ax_tensor *dy, const struct ax_tensor *own) {
    const struct ax_tensor dw =
        ax_linear_joined(l, r, ax_unit_grad(l->unit, l->weight[r->first]), 2);
    if (dw.data)
        AX_TRY(weight_gradient(rt, l, r, x, dy, &dw));
    if (!l->bias[0])
        return AX_OK;
    const struct ax_tensor db = ax_linear_joined(l, r, ax_unit_grad(l->unit, l->bias[r->first]), 1);
    return db.data ? ax_run_colsum(rt->q, &(struct ax_colsum){.x = *own, .out = db}) : AX_OK;
}

/* The gradient at the input of the parts' scaling: dy itself if none scales. */
static enum ax_status before_scales(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_run *r, const struct ax_tensor *w,
                                    const struct ax_tensor *dy, struct ax_tensor *out) {
    *out = *dy;
    if (!scales(l, r))
        return AX_OK;
    *out = ax_tensor_2d(dy->dtype, NULL, dy->shape[0], dy->shape[1]);
    out->data = ax_stack_push(&rt->arena.scratch, "adapter gradient", ax_tensor_bytes(out));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor from = ax_linear_columns(dy, at, n),
                               to = ax_linear_columns(out, at, n);
        const struct ax_tensor rows = ax_tensor_rows(w, at, n);
        AX_TRY(ax_adapter_scales(&l->adapter[i])
                   ? ax_adapter_scale(&l->adapter[i], &rows, &from, &to)
                   : ax_run_copy(rt->q, &(struct ax_copy){to, from}));
        at += n;
    }
    return AX_OK;
}

static bool adapted(const struct ax_linear *l, const struct ax_linear_run *r) {
    bool any = false;
    for (int i = r->first; i < r->end; i++)
        any = any || l->adapter[i].a;
    return any;
}

enum ax_status ax_linear_run_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_run *r, const struct ax_tensor *x,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx) {
    struct ax_tensor w, used, dv, seen;
    if (!dx && !adapted(l, r))
        return AX_OK;
    AX_TRY(ax_linear_run_weight(rt, l, r, &w));
    AX_TRY(ax_linear_used_weight(rt, l, r, AX_SUM_ROWS, &w, &used));
    AX_TRY(before_scales(rt, l, r, &w, dy, &dv));
    AX_TRY(ax_linear_used_grad(rt, l, r, AX_SUM_COLUMNS, ax_linear_merges(l) ? dy : &dv, &seen));
    if (dx)
        AX_TRY(ax_run_gemm(
            rt->q, &(struct ax_gemm){
                       .a = seen, .b = used, .c = *dx, .accumulate = r->first > 0, .alpha = 1}));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        struct ax_adapter_backward b = {.x = *x,
                                        .w = ax_tensor_rows(&w, at, n),
                                        .dy = ax_linear_columns(dy, at, n),
                                        .dv = ax_linear_columns(&dv, at, n)};
        if (dx && !ax_linear_merges(l)) /* else it has gone through the merged weights */
            b.dx = *dx;
        if (l->adapter[i].a)
            AX_TRY(ax_adapter_backward(&l->adapter[i], &b));
        at += n;
    }
    return AX_OK;
}
