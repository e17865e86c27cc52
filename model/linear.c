/* Forward and backward of y = x·Wᵀ + b:  dx = dy·W,  dW = dyᵀ·x,  db = Σ_t dy. Adapters add theirs
 * in adapter.c; operands of products become their values in fake_quant.c. */
#include "model/linear.h"

int64_t ax_linear_in(const struct ax_linear *l) {
    return l->weight[0]->local_shape[1];
}

int64_t ax_linear_out(const struct ax_linear *l) {
    int64_t out = 0;
    for (int i = 0; i < l->n_parts; i++)
        out += l->weight[i]->local_shape[0];
    return out;
}

/* Parts [first, end) that run as one GEMM, which computes columns [at, at + out). */
struct run {
    int first, end;
    int64_t at, out;
};

static bool behind(const struct ax_param *a, const struct ax_param *b) {
    return a->segment == b->segment && b->offset == a->offset + ax_param_local_numel(a);
}

/* Packed parts are unpacked contiguously; others must be stored contiguously. */
static bool joins(const struct ax_linear *l, int part) {
    const struct ax_param *w = l->weight[part], *before = l->weight[part - 1];
    const bool packed = ax_unit_is_packed(l->unit, w);
    if (packed != ax_unit_is_packed(l->unit, before) || (!packed && !behind(before, w)) ||
        w->panels != before->panels)
        return false;
    return !l->bias[0] || behind(l->bias[part - 1], l->bias[part]);
}

/* Advances to the run after `r`, or to the first if r->end = 0; false if there is none. */
static bool next_run(const struct ax_linear *l, struct run *r) {
    if (r->end == l->n_parts)
        return false;
    const int first = r->end;
    int end = first + 1;
    int64_t out = l->weight[first]->local_shape[0];
    while (end < l->n_parts && joins(l, end))
        out += l->weight[end++]->local_shape[0];
    *r = (struct run){first, end, r->at + r->out, out};
    return true;
}

/* The run's matrices (or, ndim 1, biases) as one tensor, from the first one's address. */
static struct ax_tensor joined(const struct ax_linear *l, const struct run *r,
                               struct ax_tensor first, int ndim) {
    if (!first.data)
        return first;
    const int64_t shape[] = {r->out, ax_linear_in(l)};
    struct ax_tensor all = ax_tensor_nd(first.dtype, first.data, ndim, shape);
    all.panels = first.panels;
    return all;
}

/* The run's weights; packed ones are unpacked into scratch. */
static enum ax_status weight_of(struct ax_runtime *rt, const struct ax_linear *l,
                                const struct run *r, struct ax_tensor *out) {
    const struct ax_param *first = l->weight[r->first];
    if (!ax_unit_is_packed(l->unit, first)) {
        *out = joined(l, r, ax_unit_weight(l->unit, first), 2);
        return AX_OK;
    }
    *out = ax_tensor_2d(l->unit->segments[first->segment].compute, NULL, r->out, ax_linear_in(l));
    out->data = ax_stack_push(&rt->arena.scratch, "unpacked weights", ax_tensor_bytes(out));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t rows = l->weight[i]->local_shape[0];
        const struct ax_tensor part = ax_tensor_rows(out, at, rows);
        const struct ax_packed packed = ax_unit_packed(l->unit, l->weight[i]);
        AX_TRY(ax_packed_read(rt->q, &packed, &part));
        at += rows;
    }
    return AX_OK;
}

/* How operands are quantized in this pass; NULL: they are not. */
static const struct ax_fake_quant *quant_of(const struct ax_linear *l) {
    return l->quant && (l->quant->on || !l->quant->scheme.quantizes_grad) ? l->quant : NULL;
}

/* True if the adapters are in the weights that the products see. */
static bool merges(const struct ax_linear *l) {
    return quant_of(l) && ax_fake_quant_merges(l->quant);
}

static bool is_fp8(const struct ax_linear *l) {
    return quant_of(l) && l->quant->scheme.quantizes_grad;
}

/* The run's weights as a product sees them: w, or in scratch its values with merged adapters. */
static enum ax_status used_weight(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct run *r, enum ax_fake_sum sum,
                                  const struct ax_tensor *w, struct ax_tensor *out) {
    *out = *w;
    if (!quant_of(l))
        return AX_OK;
    *out = ax_tensor_2d(w->dtype, NULL, r->out, w->shape[1]);
    out->data = ax_stack_push(&rt->arena.scratch, "quantized weights", ax_tensor_bytes(out));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        struct ax_tensor from = ax_tensor_rows(w, at, n);
        const struct ax_tensor to = ax_tensor_rows(out, at, n);
        if (merges(l) && ax_adapter_is_on(&l->adapter[i])) {
            AX_TRY(ax_adapter_merge(&l->adapter[i], &from, &to));
            from = to;
        }
        AX_TRY(ax_fake_quant_weight(rt, l->quant, l->weight[i], sum, &from, &to));
        at += n;
    }
    return AX_OK;
}

enum ax_status ax_linear_weights(struct ax_runtime *rt, const struct ax_linear *l,
                                 struct ax_tensor *out) {
    struct run all = {0};
    struct ax_tensor w;
    const bool one = next_run(l, &all) && all.end == l->n_parts;
    AX_ASSERT(one);
    AX_TRY(weight_of(rt, l, &all, &w));
    return used_weight(rt, l, &all, AX_SUM_COLUMNS, &w, out);
}

static struct ax_tensor bias_of(const struct ax_linear *l, const struct run *r) {
    if (!l->bias[0])
        return (struct ax_tensor){0};
    return joined(l, r, ax_unit_weight(l->unit, l->bias[r->first]), 1);
}

/* True if a part of the run scales its output, so that bias and addend come after it. */
static bool scales(const struct ax_linear *l, const struct run *r) {
    bool any = false;
    for (int i = r->first; i < r->end; i++)
        any = any || ax_adapter_scales(&l->adapter[i]);
    return any;
}

/* Columns [at, at + n), or rows of a vector; an absent tensor stays absent. */
static struct ax_tensor part_of(const struct ax_tensor *t, int64_t at, int64_t n) {
    if (!t->data)
        return *t;
    return t->ndim == 1 ? ax_tensor_rows(t, at, n) : ax_tensor_cols(t, at, n);
}

/* Finishes the run's parts after its GEMM: adapters, and deferred bias and addend. */
static enum ax_status adapt(struct ax_runtime *rt, const struct ax_linear *l, const struct run *r,
                            const struct ax_tensor *x, const struct ax_tensor *w,
                            const struct ax_tensor *bias, const struct ax_tensor *addend,
                            const struct ax_tensor *y) {
    const bool late = scales(l, r);
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_adapter *a = &l->adapter[i];
        const struct ax_adapter_forward f = {.x = *x,
                                             .w = ax_tensor_rows(w, at, n),
                                             .y = part_of(y, at, n),
                                             .bias = part_of(bias, at, n),
                                             .addend = part_of(addend, at, n)};
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

/* What this rank has of the rows that are split by columns under `columns`. */
static enum ax_fake_part share_of(const struct ax_linear *l, enum ax_linear_split columns) {
    return l->split == columns         ? AX_FAKE_COLUMNS
           : l->split == AX_SPLIT_NONE ? AX_FAKE_ROWS
                                       : AX_FAKE_ALL;
}

/* What a run reads: x, and its values if they differ. */
struct inputs {
    struct ax_tensor x, values;
};

/* Forward of one run into its columns `out`; bias and addend are absent if they are added later or
 * on another rank. */
static enum ax_status run_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct run *r, const struct inputs *in,
                                  const struct ax_tensor *bias, const struct ax_tensor *addend,
                                  const struct ax_tensor *out) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_gemm g = {.a = in->values, .c = *out, .trans_b = true, .alpha = 1};
    struct ax_tensor w;
    AX_TRY(weight_of(rt, l, r, &w));
    AX_TRY(used_weight(rt, l, r, AX_SUM_COLUMNS, &w, &g.b));
    if (!scales(l, r)) {
        g.bias = *bias;
        g.addend = *addend;
    }
    AX_TRY(ax_run_gemm(rt->q, &g));
    if (!merges(l))
        AX_TRY(adapt(rt, l, r, &in->x, &w, bias, addend, out));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const bool inputs = l->split == AX_SPLIT_INPUTS;
    struct inputs in = {.x = *x};
    const struct ax_tensor out = inputs ? ax_tp_partial(rt, y) : *y;
    if (l->split == AX_SPLIT_OUTPUTS)
        AX_TRY(ax_tp_gather(rt, x, &in.x));
    if (l->watch)
        AX_TRY(l->watch->see(l->watch->ctx, l, &in.x));
    in.values = in.x;
    if (quant_of(l))
        AX_TRY(ax_fake_quant_input(rt, l->quant, share_of(l, AX_SPLIT_INPUTS), AX_SUM_COLUMNS,
                                   &in.values));
    for (struct run r = {0}; next_run(l, &r);) {
        const struct ax_tensor columns = ax_tensor_cols(&out, r.at, r.out);
        struct ax_tensor bias = {0}, add = {0};
        if (!inputs || ax_tp_adds(rt))
            bias = bias_of(l, &r);
        if (addend && out.data == y->data)
            add = ax_tensor_cols(addend, r.at, r.out);
        AX_TRY(run_forward(rt, l, &r, &in, &bias, &add, &columns));
    }
    if (inputs)
        AX_TRY(ax_tp_reduce(rt, &out, addend, y));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* dy as a product of backward sees it: itself, or in scratch the values of each part. */
static enum ax_status used_grad(struct ax_runtime *rt, const struct ax_linear *l,
                                const struct run *r, enum ax_fake_sum sum,
                                const struct ax_tensor *dy, struct ax_tensor *out) {
    *out = *dy;
    if (!is_fp8(l))
        return AX_OK;
    *out = ax_tensor_2d(dy->dtype, NULL, dy->shape[0], dy->shape[1]);
    out->data = ax_stack_push(&rt->arena.scratch, "quantized gradients", ax_tensor_bytes(out));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor from = part_of(dy, at, n), to = part_of(out, at, n);
        AX_TRY(ax_fake_quant_grad(rt, l->quant, share_of(l, AX_SPLIT_OUTPUTS), sum, &from, &to));
        at += n;
    }
    return AX_OK;
}

/* dW += dyᵀ·x. Where rounding clips, the product is first that of the values, in scratch. */
static enum ax_status weight_gradient(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct run *r, const struct ax_tensor *x,
                                      const struct ax_tensor *dy, const struct ax_tensor *dw) {
    const bool clips = quant_of(l) && ax_fake_quant_clips(l->quant);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_gemm g = {.b = *x, .c = *dw, .trans_a = true, .accumulate = !clips, .alpha = 1};
    AX_TRY(used_grad(rt, l, r, AX_SUM_ROWS, dy, &g.a));
    if (!clips) {
        AX_TRY(ax_run_gemm(rt->q, &g));
        ax_stack_release(&rt->arena.scratch, mark);
        return AX_OK;
    }
    g.c.data = ax_stack_push(&rt->arena.scratch, "gradient of values", ax_tensor_bytes(dw));
    AX_TRY(ax_run_gemm(rt->q, &g));
    struct ax_tensor w;
    AX_TRY(weight_of(rt, l, r, &w));
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

/* Gradients of a run's trainable matrices and biases; `own` is dy before any gather, each row once
 * over tp. */
static enum ax_status run_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct run *r, const struct ax_tensor *x,
                                    const struct ax_tensor *dy, const struct ax_tensor *own) {
    const struct ax_tensor dw = joined(l, r, ax_unit_grad(l->unit, l->weight[r->first]), 2);
    if (dw.data)
        AX_TRY(weight_gradient(rt, l, r, x, dy, &dw));
    if (!l->bias[0])
        return AX_OK;
    const struct ax_tensor db = joined(l, r, ax_unit_grad(l->unit, l->bias[r->first]), 1);
    return db.data ? ax_run_colsum(rt->q, &(struct ax_colsum){.x = *own, .out = db}) : AX_OK;
}

/* The gradient at the input of the parts' scaling: dy itself if none scales. */
static enum ax_status before_scales(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct run *r, const struct ax_tensor *w,
                                    const struct ax_tensor *dy, struct ax_tensor *out) {
    *out = *dy;
    if (!scales(l, r))
        return AX_OK;
    *out = ax_tensor_2d(dy->dtype, NULL, dy->shape[0], dy->shape[1]);
    out->data = ax_stack_push(&rt->arena.scratch, "adapter gradient", ax_tensor_bytes(out));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor from = part_of(dy, at, n), to = part_of(out, at, n);
        const struct ax_tensor rows = ax_tensor_rows(w, at, n);
        AX_TRY(ax_adapter_scales(&l->adapter[i])
                   ? ax_adapter_scale(&l->adapter[i], &rows, &from, &to)
                   : ax_run_copy(rt->q, &(struct ax_copy){to, from}));
        at += n;
    }
    return AX_OK;
}

static bool adapted(const struct ax_linear *l, const struct run *r) {
    bool any = false;
    for (int i = r->first; i < r->end; i++)
        any = any || l->adapter[i].a;
    return any;
}

/* dx (+)= dv·W, and the adapters' gradients. */
static enum ax_status run_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct run *r, const struct ax_tensor *x,
                                 const struct ax_tensor *dy, const struct ax_tensor *dx) {
    struct ax_tensor w, used, dv, seen;
    if (!dx && !adapted(l, r))
        return AX_OK;
    AX_TRY(weight_of(rt, l, r, &w));
    AX_TRY(used_weight(rt, l, r, AX_SUM_ROWS, &w, &used));
    AX_TRY(before_scales(rt, l, r, &w, dy, &dv));
    AX_TRY(used_grad(rt, l, r, AX_SUM_COLUMNS, &dv, &seen));
    if (dx)
        AX_TRY(ax_run_gemm(
            rt->q, &(struct ax_gemm){
                       .a = seen, .b = used, .c = *dx, .accumulate = r->first > 0, .alpha = 1}));
    int64_t at = 0;
    for (int i = r->first; i < r->end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        struct ax_adapter_backward b = {.x = *x,
                                        .w = ax_tensor_rows(&w, at, n),
                                        .dy = part_of(dy, at, n),
                                        .dv = part_of(&dv, at, n)};
        if (dx && !merges(l)) /* else it has gone through the merged weights */
            b.dx = *dx;
        if (l->adapter[i].a)
            AX_TRY(ax_adapter_backward(&l->adapter[i], &b));
        at += n;
    }
    return AX_OK;
}

enum ax_status ax_linear_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct ax_tensor *x, const struct ax_tensor *dy,
                                  const struct ax_tensor *dx) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const bool outputs = l->split == AX_SPLIT_OUTPUTS;
    struct inputs in = {.x = *x};
    struct ax_tensor d_out = *dy, d_in = {0};
    if (l->split != AX_SPLIT_NONE)
        AX_TRY(outputs ? ax_tp_gather(rt, x, &in.x) : ax_tp_gather(rt, dy, &d_out));
    in.values = in.x;
    if (quant_of(l))
        AX_TRY(ax_fake_quant_input(rt, l->quant, share_of(l, AX_SPLIT_INPUTS), AX_SUM_ROWS,
                                   &in.values));
    const struct ax_tensor *adapted_x = merges(l) ? &in.values : &in.x;
    if (dx)
        d_in = outputs ? ax_tp_partial(rt, dx) : *dx;
    for (struct run r = {0}; next_run(l, &r);) {
        const size_t inner = ax_stack_mark(scratch);
        const struct ax_tensor d = ax_tensor_cols(&d_out, r.at, r.out);
        const struct ax_tensor own = ax_tensor_cols(dy, r.at, r.out);
        AX_TRY(run_gradients(rt, l, &r, &in.values, &d, &own));
        AX_TRY(run_inputs(rt, l, &r, adapted_x, &d, dx ? &d_in : NULL));
        ax_stack_release(scratch, inner);
    }
    if (dx && outputs)
        AX_TRY(ax_tp_reduce(rt, &d_in, NULL, dx));
    if (dx && quant_of(l))
        AX_TRY(ax_fake_quant_input_grad(rt, l->quant, x, share_of(l, AX_SPLIT_INPUTS), dx));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_row_squares(struct ax_runtime *rt, const struct ax_linear *l, int part,
                                     const struct ax_tensor *out) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor w;
    const struct run alone = {part, part + 1, 0, l->weight[part]->local_shape[0]};
    AX_TRY(weight_of(rt, l, &alone, &w));
    struct ax_tensor zero = ax_tensor_2d(out->dtype, NULL, alone.out, 1), b = zero;
    zero.data = ax_stack_push(&rt->arena.scratch, "dora norms", ax_tensor_bytes(&zero));
    b.dtype = w.dtype;
    b.data = ax_stack_push(&rt->arena.scratch, "dora norms", ax_tensor_bytes(&b));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){zero, 0}));
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){b, 0}));
    AX_TRY(ax_run_dora_norm(rt->q, &(struct ax_dora_norm){w, b, zero, *out}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
