#include "model/core/linear_products.h"

static enum ax_dtype compute_of(const struct ax_linear *l) {
    return l->unit->segments[l->weight[0]->segment].compute;
}

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
                            const struct ax_linear_made *m, const struct ax_linear_inputs *in,
                            const struct ax_tensor *bias, const struct ax_tensor *addend,
                            const struct ax_tensor *y) {
    const bool late = scales(l, &m->run);
    int64_t at = 0;
    for (int i = m->run.first; i < m->run.end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_adapter *a = &l->adapter[i];
        const struct ax_adapter_forward f = {.shared = &m->adapter[i],
                                             .x = in->x,
                                             .w = ax_tensor_rows(&m->w, at, n),
                                             .y = ax_linear_columns(y, at, n),
                                             .bias = ax_linear_columns(bias, at, n),
                                             .addend = ax_linear_columns(addend, at, n),
                                             .first = in->first};
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

/* True if an adapter of the run is in use. */
static bool adapts(const struct ax_linear *l, const struct ax_linear_run *r) {
    bool any = false;
    for (int i = r->first; i < r->end; i++)
        any = any || ax_adapter_is_on(&l->adapter[i]);
    return any;
}

/* True if nothing but the product reads the run's packed weights. */
static bool reads_codes(const struct ax_linear *l, const struct ax_linear_run *r) {
    return ax_unit_is_packed(l->unit, l->weight[r->first]) && !adapts(l, r) &&
           !ax_linear_merges(l) && !(ax_linear_quant(l) && l->quant->scheme.quantizes_grad);
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

/* The run's weights, and what its adapters' norms are with them. */
static enum ax_status make_weights(struct ax_runtime *rt, const struct ax_linear *l,
                                   enum ax_fake_sum sum, struct ax_linear_made *m) {
    int64_t at = 0;
    m->mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(ax_linear_run_weight(rt, l, &m->run, &m->w));
    AX_TRY(ax_linear_used_weight(rt, l, &m->run, sum, &m->w, &m->used));
    for (int i = m->run.first; i < m->run.end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor rows = ax_tensor_rows(&m->w, at, n);
        if (m->adapter[i].scale.data)
            AX_TRY(ax_adapter_measure(&l->adapter[i], &rows, &m->adapter[i]));
        at += n;
    }
    return AX_OK;
}

enum ax_status ax_linear_make(struct ax_runtime *rt, const struct ax_linear *l,
                              const struct ax_linear_run *r, struct ax_linear_made *out) {
    *out = (struct ax_linear_made){.run = *r};
    if (reads_codes(l, r))
        return AX_OK;
    for (int i = r->first; i < r->end; i++)
        if (ax_adapter_is_on(&l->adapter[i]) && !ax_linear_merges(l))
            ax_adapter_share(&l->adapter[i], compute_of(l), -1, &out->adapter[i]);
    return make_weights(rt, l, AX_SUM_COLUMNS, out);
}

enum ax_status ax_linear_run_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct ax_linear_made *m,
                                     const struct ax_linear_inputs *in, bool biased,
                                     const struct ax_tensor *addend, const struct ax_tensor *out) {
    const struct ax_linear_run *r = &m->run;
    const struct ax_tensor columns = ax_tensor_cols(out, r->at, r->out);
    struct ax_tensor bias = {0}, add = {0};
    if (biased)
        bias = bias_of(l, r);
    if (addend)
        add = ax_tensor_cols(addend, r->at, r->out);
    if (reads_codes(l, r))
        return multiply_codes(rt, l, r,
                              &(struct ax_packed_product){in->values, columns, bias, add});
    struct ax_gemm g = {.a = in->values, .b = m->used, .c = columns, .trans_b = true, .alpha = 1};
    if (!scales(l, r) || ax_linear_merges(l)) {
        g.bias = bias;
        g.addend = add;
    }
    AX_TRY(ax_run_gemm(rt->q, &g));
    return ax_linear_merges(l) ? AX_OK : adapt(rt, l, m, in, &bias, &add, &columns);
}

/* ---- backward ---- */

static bool has_norms(const struct ax_linear *l, const struct ax_linear_run *r) {
    bool any = false;
    for (int i = r->first; i < r->end; i++)
        any = any || l->adapter[i].magnitude;
    return any;
}

bool ax_linear_is_adapted(const struct ax_linear *l) {
    bool any = false;
    for (int i = 0; i < l->n_parts; i++)
        any = any || l->adapter[i].a;
    return any;
}

bool ax_linear_gradients_read(const struct ax_linear *l, const struct ax_linear_made *m) {
    return has_norms(l, &m->run);
}

enum ax_status ax_linear_make_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_linear_run *r, int64_t T, bool inputs,
                                       struct ax_linear_made *out) {
    const enum ax_dtype dtype = compute_of(l);
    *out = (struct ax_linear_made){.run = *r};
    for (int i = r->first; i < r->end; i++)
        if (l->adapter[i].a)
            ax_adapter_share(&l->adapter[i], dtype, T, &out->adapter[i]);
    if (has_norms(l, r)) {
        out->dv = ax_tensor_2d(dtype, NULL, T, r->out);
        out->dv.data =
            ax_stack_push(&rt->arena.scratch, "adapter gradient", ax_tensor_bytes(&out->dv));
    }
    out->mark = ax_stack_mark(&rt->arena.scratch);
    return inputs || has_norms(l, r) ? make_weights(rt, l, AX_SUM_ROWS, out) : AX_OK;
}

/* dv: of each part dy, or with DoRA g∘dy. */
static enum ax_status before_scales(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_made *m, const struct ax_tensor *dy,
                                    const struct ax_tensor *dv) {
    int64_t at = 0;
    for (int i = m->run.first; i < m->run.end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor from = ax_linear_columns(dy, at, n),
                               to = ax_linear_columns(dv, at, n);
        AX_TRY(l->adapter[i].magnitude
                   ? ax_adapter_scale(&l->adapter[i], &m->adapter[i], &from, &to)
                   : ax_run_copy(rt->q, &(struct ax_copy){to, from}));
        at += n;
    }
    return AX_OK;
}

/* Of part i of the run, at columns `at`. */
static struct ax_adapter_backward adapter_backward(const struct ax_linear *l,
                                                   const struct ax_linear_made *m, int i,
                                                   int64_t at, const struct ax_tensor *dy,
                                                   const struct ax_tensor *dv) {
    const int64_t n = l->weight[i]->local_shape[0];
    struct ax_adapter_backward b = {.shared = &m->adapter[i],
                                    .dy = ax_linear_columns(dy, at, n),
                                    .dv = ax_linear_columns(dv, at, n)};
    if (m->w.data)
        b.w = ax_tensor_rows(&m->w, at, n);
    return b;
}

enum ax_status ax_linear_run_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_linear_made *m, int64_t first,
                                    const struct ax_tensor *dy, const struct ax_tensor *dx) {
    const struct ax_linear_run *r = &m->run;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor dv = *dy;
    if (m->dv.data) {
        dv = ax_tensor_rows(&m->dv, first, dy->shape[0]);
        AX_TRY(before_scales(rt, l, m, dy, &dv));
    }
    if (dx) {
        struct ax_gemm g = {.b = m->used, .c = *dx, .accumulate = r->first > 0, .alpha = 1};
        AX_TRY(ax_linear_used_grad(rt, l, r, AX_SUM_COLUMNS,
                                   scales(l, r) && !ax_linear_merges(l) ? &dv : dy, &g.a));
        AX_TRY(ax_run_gemm(rt->q, &g));
    }
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        struct ax_adapter_backward b = adapter_backward(l, m, i, at, dy, &dv);
        b.first = first;
        if (dx && !ax_linear_merges(l)) /* else it has gone through the merged weights */
            b.dx = *dx;
        if (l->adapter[i].a)
            AX_TRY(ax_adapter_backward_inputs(&l->adapter[i], &b));
        at += l->weight[i]->local_shape[0];
    }
    ax_stack_release(&rt->arena.scratch, mark);
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
                                       const struct ax_linear_made *m,
                                       const struct ax_linear_inputs *in,
                                       const struct ax_tensor *dy, const struct ax_tensor *own) {
    const struct ax_linear_run *r = &m->run;
    const struct ax_tensor dw =
        ax_linear_joined(l, r, ax_unit_grad(l->unit, l->weight[r->first]), 2);
    struct ax_tensor db = {0};
    if (dw.data)
        AX_TRY(weight_gradient(rt, l, r, &in->values, dy, &dw));
    if (l->bias[0])
        db = ax_linear_joined(l, r, ax_unit_grad(l->unit, l->bias[r->first]), 1);
    if (db.data)
        AX_TRY(ax_run_colsum(rt->q, &(struct ax_colsum){.x = *own, .out = db}));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        struct ax_adapter_backward b = adapter_backward(l, m, i, at, dy, m->dv.data ? &m->dv : dy);
        b.x = in->x;
        if (l->adapter[i].a)
            AX_TRY(ax_adapter_backward_weights(&l->adapter[i], &b));
        at += l->weight[i]->local_shape[0];
    }
    return AX_OK;
}
