/* The arithmetic of one adapter, forward and backward; see adapter.h for the formulas. */
#include "model/lora/adapter.h"

#include "model/parallel/tensor_parallel.h"

static struct ax_tensor take(const struct ax_adapter *a, const char *name, enum ax_dtype dtype,
                             int64_t rows, int64_t cols) {
    return ax_stack_take(&a->run->rt->arena.scratch, name, ax_tensor_2d(dtype, NULL, rows, cols));
}

static struct ax_tensor take_column(const struct ax_adapter *a, enum ax_dtype dtype, int64_t n) {
    const struct ax_tensor t = take(a, "dora norms", dtype, n, 1);
    return ax_tensor_1d(dtype, t.data, n);
}

static struct ax_tensor weight_of(const struct ax_adapter *a, const struct ax_param *p) {
    return ax_unit_weight(a->unit, p);
}

static bool drops(const struct ax_adapter *a) {
    return a->run->training && a->dropout > 0;
}

bool ax_adapter_scales(const struct ax_adapter *a) {
    return ax_adapter_is_on(a) && a->magnitude && !drops(a);
}

void ax_adapter_share(const struct ax_adapter *a, enum ax_dtype dtype, int64_t T,
                      struct ax_adapter_shared *out) {
    *out = (struct ax_adapter_shared){0};
    if (a->magnitude) {
        const int64_t rows = a->weight->local_shape[0];
        out->scale = take_column(a, ax_dtype_accum(dtype), rows);
        out->inverse = take_column(a, ax_dtype_accum(dtype), rows);
    }
    if (T >= 0)
        out->up = take(a, "adapter projection", dtype, T, weight_of(a, a->b).shape[1]);
}

/* ‖V‖² per row is a sum over the inputs, so ranks that share them add their parts. */
enum ax_status ax_adapter_measure(const struct ax_adapter *a, const struct ax_tensor *w,
                                  const struct ax_adapter_shared *shared) {
    struct ax_runtime *rt = a->run->rt;
    const struct ax_tensor A = weight_of(a, a->a), B = weight_of(a, a->b);
    const int64_t rows = w->shape[0], r = A.shape[0];
    const enum ax_dtype accum = ax_dtype_accum(w->dtype);
    if (!a->magnitude)
        return AX_OK;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor p = take(a, "dora norms", accum, rows, r);
    const struct ax_tensor aa = take(a, "dora norms", w->dtype, r, r);
    const struct ax_tensor sumsq = take_column(a, accum, rows);
    AX_TRY(ax_run_gemm(
        rt->q, &(struct ax_gemm){.a = *w, .b = A, .c = p, .trans_b = true, .alpha = 2 * a->scale}));
    AX_TRY(ax_run_gemm(rt->q,
                       &(struct ax_gemm){.a = A, .b = A, .c = aa, .trans_b = true, .alpha = 1}));
    AX_TRY(ax_run_gemm(
        rt->q, &(struct ax_gemm){
                   .a = B, .b = aa, .c = p, .accumulate = true, .alpha = a->scale * a->scale}));
    AX_TRY(ax_run_dora_norm(rt->q, &(struct ax_dora_norm){*w, B, p, sumsq}));
    if (a->weight->tp_dim == 1)
        AX_TRY(ax_tp_sum(rt, &sumsq));
    AX_TRY(ax_run_dora_scale(rt->q, &(struct ax_dora_scale){weight_of(a, a->magnitude), sumsq,
                                                            shared->scale, shared->inverse}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* dst (+)= drop(src), with the full activation's element numbers; src are rows from `from` on. */
static enum ax_status drop(const struct ax_adapter *a, int64_t from, const struct ax_tensor *src,
                           const struct ax_tensor *dst, bool accumulate) {
    int64_t run;
    const struct ax_param *A = a->a;
    const struct ax_runtime *rt = a->run->rt;
    const int64_t n = src->shape[0], first = a->own_rows ? ax_tp_first_own(rt, n) : from;
    struct ax_dropout d = {.x = *src,
                           .y = *dst,
                           .p = a->dropout,
                           .tensor = a->stream,
                           .first_row = a->run->first_row + first,
                           .first_col = ax_param_global_index(A, &rt->mesh, 0, &run),
                           .cols = A->shape[1],
                           .accumulate = accumulate,
                           .rows = a->run->rows,
                           .scalars = a->run->scalars};
    if (d.rows.data) {
        d.first_row = a->run->first_row;
        d.rows = ax_tensor_rows(&d.rows, first, n);
    }
    return ax_run_dropout(rt->q, &d);
}

/* x as the adapter sees it. */
static enum ax_status inputs(const struct ax_adapter *a, int64_t first, const struct ax_tensor *x,
                             struct ax_tensor *out) {
    *out = *x;
    if (!drops(a))
        return AX_OK;
    *out = take(a, "adapter input", x->dtype, x->shape[0], x->shape[1]);
    return drop(a, first, x, out, false);
}

/* x·Aᵀ [T][r]. */
static enum ax_status project(const struct ax_adapter *a, const struct ax_tensor *x,
                              struct ax_tensor *out) {
    const struct ax_tensor A = weight_of(a, a->a);
    *out = take(a, "adapter projection", x->dtype, x->shape[0], A.shape[0]);
    return ax_run_gemm(a->run->rt->q,
                       &(struct ax_gemm){.a = *x, .b = A, .c = *out, .trans_b = true, .alpha = 1});
}

/* y += s·low·Bᵀ. */
static enum ax_status expand(const struct ax_adapter *a, const struct ax_tensor *low,
                             const struct ax_tensor *y) {
    return ax_run_gemm(a->run->rt->q, &(struct ax_gemm){.a = *low,
                                                        .b = weight_of(a, a->b),
                                                        .c = *y,
                                                        .trans_b = true,
                                                        .accumulate = true,
                                                        .alpha = a->scale});
}

/* x·wᵀ in scratch. */
static enum ax_status base_output(const struct ax_adapter *a, const struct ax_tensor *x,
                                  const struct ax_tensor *w, enum ax_dtype dtype,
                                  struct ax_tensor *out) {
    *out = take(a, "adapter base output", dtype, x->shape[0], w->shape[0]);
    return ax_run_gemm(a->run->rt->q,
                       &(struct ax_gemm){.a = *x, .b = *w, .c = *out, .trans_b = true, .alpha = 1});
}

enum ax_status ax_adapter_merge(const struct ax_adapter *a, const struct ax_tensor *w,
                                const struct ax_tensor *out) {
    struct ax_runtime *rt = a->run->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_merge_low_rank m = {.weight = *w,
                                  .b = weight_of(a, a->b),
                                  .a = weight_of(a, a->a),
                                  .out = *out,
                                  .scale = a->scale};
    AX_ASSERT(!drops(a));
    if (a->magnitude) {
        m.magnitude = weight_of(a, a->magnitude);
        m.squares = take_column(a, AX_F64, w->shape[0]);
        AX_TRY(ax_run_merged_squares(
            rt->q, &(struct ax_merged_squares){*w, m.b, m.a, m.squares, a->scale}));
        if (a->weight->tp_dim == 1)
            AX_TRY(ax_tp_sum(rt, &m.squares));
    }
    AX_TRY(ax_run_merge_low_rank(rt->q, &m));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_forward(const struct ax_adapter *a, const struct ax_adapter_forward *f) {
    struct ax_queue *q = a->run->rt->q;
    struct ax_stack *scratch = &a->run->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor x, low;
    AX_TRY(inputs(a, f->first, &f->x, &x));
    AX_TRY(project(a, &x, &low));
    if (!a->magnitude) {
        AX_TRY(expand(a, &low, &f->y));
    } else if (drops(a)) {
        struct ax_tensor z;
        AX_TRY(base_output(a, &x, &f->w, f->y.dtype, &z));
        AX_TRY(ax_run_add(q, &(struct ax_add){f->y, z, -1}));
        AX_TRY(expand(a, &low, &z));
        AX_TRY(ax_run_colscale(
            q,
            &(struct ax_colscale){.x = z, .scale = f->shared->scale, .addend = f->y, .y = f->y}));
    } else {
        AX_TRY(expand(a, &low, &f->y));
        AX_TRY(ax_run_colscale(q, &(struct ax_colscale){.x = f->y,
                                                        .scale = f->shared->scale,
                                                        .bias = f->bias,
                                                        .addend = f->addend,
                                                        .y = f->y}));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_adapter_scale(const struct ax_adapter *a, const struct ax_adapter_shared *shared,
                                const struct ax_tensor *dy, const struct ax_tensor *dv) {
    return ax_run_colscale(a->run->rt->q,
                           &(struct ax_colscale){.x = *dy, .scale = shared->scale, .y = *dv});
}

/* dx += up·A; with dropout dx += drop(up·A + (dv − dy)·w), where dv = dy without DoRA. */
static enum ax_status input_gradient(const struct ax_adapter *a,
                                     const struct ax_adapter_backward *b,
                                     const struct ax_tensor *up) {
    struct ax_queue *q = a->run->rt->q;
    const struct ax_tensor A = weight_of(a, a->a);
    struct ax_gemm g = {.a = *up, .b = A, .c = b->dx, .accumulate = true, .alpha = 1};
    if (!drops(a))
        return ax_run_gemm(q, &g);
    g.c = take(a, "adapter input", b->dx.dtype, b->dx.shape[0], b->dx.shape[1]);
    g.accumulate = false;
    AX_TRY(ax_run_gemm(q, &g));
    if (a->magnitude) {
        const struct ax_tensor d =
            take(a, "adapter gradient", b->dy.dtype, b->dy.shape[0], b->dy.shape[1]);
        AX_TRY(ax_run_copy(q, &(struct ax_copy){d, b->dv}));
        AX_TRY(ax_run_add(q, &(struct ax_add){d, b->dy, -1}));
        AX_TRY(ax_run_gemm(
            q, &(struct ax_gemm){.a = d, .b = b->w, .c = g.c, .accumulate = true, .alpha = 1}));
    }
    return drop(a, b->first, &g.c, &b->dx, true);
}

enum ax_status ax_adapter_backward_inputs(const struct ax_adapter *a,
                                          const struct ax_adapter_backward *b) {
    struct ax_stack *scratch = &a->run->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_tensor up = ax_tensor_rows(&b->shared->up, b->first, b->dy.shape[0]);
    AX_TRY(ax_run_gemm(
        a->run->rt->q,
        &(struct ax_gemm){.a = b->dv, .b = weight_of(a, a->b), .c = up, .alpha = a->scale}));
    if (b->dx.data)
        AX_TRY(input_gradient(a, b, &up));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* dm += Σ_t dy·(x·Vᵀ)/‖V‖. */
static enum ax_status magnitude_gradient(const struct ax_adapter *a,
                                         const struct ax_adapter_backward *b,
                                         const struct ax_tensor *x, const struct ax_tensor *low) {
    struct ax_queue *q = a->run->rt->q;
    struct ax_tensor h;
    AX_TRY(base_output(a, x, &b->w, b->dy.dtype, &h));
    AX_TRY(expand(a, low, &h));
    AX_TRY(ax_run_colscale(q, &(struct ax_colscale){.x = h, .scale = b->shared->inverse, .y = h}));
    return ax_run_coldot(q, &(struct ax_coldot){b->dy, h, ax_unit_grad(a->unit, a->magnitude)});
}

/* dB += s·dvᵀ·low, dA += upᵀ·x. */
static enum ax_status matrix_gradients(const struct ax_adapter *a,
                                       const struct ax_adapter_backward *b,
                                       const struct ax_tensor *x, const struct ax_tensor *low) {
    struct ax_queue *q = a->run->rt->q;
    AX_TRY(ax_run_gemm(q, &(struct ax_gemm){.a = b->dv,
                                            .b = *low,
                                            .c = ax_unit_grad(a->unit, a->b),
                                            .trans_a = true,
                                            .accumulate = true,
                                            .alpha = a->scale}));
    return ax_run_gemm(q, &(struct ax_gemm){.a = b->shared->up,
                                            .b = *x,
                                            .c = ax_unit_grad(a->unit, a->a),
                                            .trans_a = true,
                                            .accumulate = true,
                                            .alpha = 1});
}

enum ax_status ax_adapter_backward_weights(const struct ax_adapter *a,
                                           const struct ax_adapter_backward *b) {
    struct ax_stack *scratch = &a->run->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_tensor x, low;
    AX_TRY(inputs(a, b->first, &b->x, &x));
    AX_TRY(project(a, &x, &low));
    if (a->magnitude)
        AX_TRY(magnitude_gradient(a, b, &x, &low));
    AX_TRY(matrix_gradients(a, b, &x, &low));
    ax_stack_release(scratch, mark);
    return AX_OK;
}
