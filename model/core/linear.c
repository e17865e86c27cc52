/* Forward and backward of y = x·Wᵀ + b:  dx = dy·W,  dW = dyᵀ·x,  db = Σ_t dy. Adapters add theirs
 * in adapter.c; operands of products become their values, or codes of those, in fake_quant.c. */
#include "model/core/later.h"
#include "model/core/linear_codes.h"
#include "model/core/linear_operands.h"
#include "model/core/pass.h"
#include "model/parallel/tp_hops.h"

/* ---- products of a run with rows that are here: packed storage, adapters, quantized operands ---- */

/* A run's operands other than rows, in scratch, for any number of products. */
struct made {
    struct ax_linear_run run;
    bool by_codes; /* products are of codes: of w in place of `used`, and backward of dy */
    bool projects; /* x·Aᵀ of adapters is yet to be computed */
    struct ax_linear_codes w_codes, dy_codes;
    /* weights as they are, for adapters; and as products read them; data NULL: not needed */
    struct ax_tensor w, used;
    struct ax_adapter_shared adapter[AX_LINEAR_MAX_PARTS];
    struct ax_tensor dv; /* backward: [T][out] gradient before DoRA's scales; data NULL: it is dy */
};

/* A product's rows of x, from row `first` on, and their quantized values if they differ, or codes. */
struct inputs {
    struct ax_tensor x, values;
    struct ax_fake_codes codes;
    int64_t first;
};

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

/* Adding costs the products of adapters, which wait for memory, more time than those of weights. So where
 * all columns have an adapter, these write y first; not if the product reads an addend anyway, or is scaled. */
static bool adapters_write(const struct ax_linear *l, const struct ax_linear_run *r,
                           const struct ax_tensor *addend) {
    bool all = !addend->data && !ax_linear_merges(l);
    for (int i = r->first; i < r->end; i++)
        all = all && ax_adapter_is_on(&l->adapter[i]) && !l->adapter[i].magnitude;
    return all;
}

/* The run's parts before its GEMM, if adapters write y, or after it: adapters, and deferred bias and addend. */
static enum ax_status adapt(struct ax_runtime *rt, const struct ax_linear *l, const struct made *m,
                            const struct inputs *in, const struct ax_tensor *bias,
                            const struct ax_tensor *addend, const struct ax_tensor *y) {
    struct ax_adapter_part parts[AX_LINEAR_MAX_PARTS];
    const int n = m->run.end - m->run.first;
    const bool late = scales(l, &m->run);
    const struct ax_adapter_part all = {.w = m->w, .y = *y, .bias = *bias, .addend = *addend};
    ax_linear_list(l, &m->run, &all, m->adapter, parts);
    AX_TRY(
        ax_adapters_forward(&(struct ax_adapter_call){.n = n,
                                                      .parts = parts,
                                                      .x = in->x,
                                                      .writes = adapters_write(l, &m->run, addend),
                                                      .first = in->first,
                                                      .projects = m->projects}));
    for (int i = 0; i < n; i++) {
        const struct ax_adapter_part *p = &parts[i];
        if (late && !ax_adapter_scales(p->adapter) && (p->bias.data || p->addend.data))
            AX_TRY(ax_run_colscale(
                rt->q,
                &(struct ax_colscale){.x = p->y, .bias = p->bias, .addend = p->addend, .y = p->y}));
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
                                   enum ax_fake_sum sum, struct made *m) {
    int64_t at = 0;
    AX_TRY(ax_linear_run_weight(rt, l, &m->run, &m->w));
    AX_TRY(m->by_codes ? ax_linear_weight_codes(
                             rt, l, &m->run, sum == AX_SUM_ROWS ? AX_CODES_COLUMNS : AX_CODES_ROWS,
                             &m->w, &m->w_codes)
                       : ax_linear_used_weight(rt, l, &m->run, sum, &m->w, &m->used));
    for (int i = m->run.first; i < m->run.end; i++) {
        const int64_t n = l->weight[i]->local_shape[0];
        const struct ax_tensor rows = ax_tensor_rows(&m->w, at, n);
        if (m->adapter[i].scale.data)
            AX_TRY(ax_adapter_measure(&l->adapter[i], &rows, &m->adapter[i]));
        at += n;
    }
    return AX_OK;
}

/* Make the operands of out->run for T rows: for forward; and for backward, with dx if `inputs`. */
static enum ax_status make_run(struct ax_runtime *rt, const struct ax_linear *l, int64_t T,
                               struct made *out) {
    const struct ax_linear_run *r = &out->run;
    if (reads_codes(l, r))
        return AX_OK;
    if (adapts(l, r) && !ax_linear_merges(l))
        ax_linear_take_shared(rt, l, r, T, false, out->adapter);
    return make_weights(rt, l, AX_SUM_COLUMNS, out);
}

/* The run's columns of out = x·Wᵀ (+ b if `biased`) (+ addend, or NULL). */
static enum ax_status run_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct made *m, const struct inputs *in, bool biased,
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
    const bool adapted = adapts(l, r) && !ax_linear_merges(l);
    const bool first = adapters_write(l, r, &add);
    if (first)
        AX_TRY(adapt(rt, l, m, in, &bias, &add, &columns));
    struct ax_gemm g = {.a = in->values,
                        .b = m->used,
                        .c = columns,
                        .trans_b = true,
                        .accumulate = first,
                        .alpha = 1};
    if (!scales(l, r) || ax_linear_merges(l)) {
        g.bias = bias;
        g.addend = add;
    }
    const struct ax_linear_product p = {.r = r,
                                        .x = &in->codes,
                                        .w = &m->w_codes,
                                        .c = columns,
                                        .bias = g.bias,
                                        .addend = g.addend,
                                        .adds = first};
    AX_TRY(m->by_codes ? ax_linear_outputs_of_codes(rt, &p) : ax_run_gemm(rt->q, &g));
    return adapted && !first ? adapt(rt, l, m, in, &bias, &add, &columns) : AX_OK;
}

/* ---- the same, backward ---- */

static bool has_norms(const struct ax_linear *l, const struct ax_linear_run *r) {
    bool any = false;
    for (int i = r->first; i < r->end; i++)
        any = any || l->adapter[i].magnitude;
    return any;
}

/* True if a part has an adapter, in use or not. */
static bool is_adapted(const struct ax_linear *l) {
    bool any = false;
    for (int i = 0; i < l->n_parts; i++)
        any = any || l->adapter[i].a;
    return any;
}

/* True if _gradients reads the weights. */
static bool gradients_read(const struct ax_linear *l, const struct made *m) {
    return has_norms(l, &m->run);
}

/* What stays until the gradients are there. */
static void take_run_backward(struct ax_runtime *rt, const struct ax_linear *l, int64_t T,
                              struct made *out) {
    const struct ax_linear_run *r = &out->run;
    ax_linear_take_shared(rt, l, r, T, true, out->adapter);
    if (has_norms(l, r)) {
        out->dv = ax_stack_take(&rt->arena.scratch, "adapter gradient",
                                ax_tensor_2d(ax_linear_compute(l), NULL, T, r->out));
    }
}

static enum ax_status make_run_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                        bool inputs, struct made *out) {
    return inputs || gradients_read(l, out) ? make_weights(rt, l, AX_SUM_ROWS, out) : AX_OK;
}

/* dv: of each part dy, or with DoRA g∘dy. */
static enum ax_status before_scales(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct made *m, const struct ax_tensor *dy,
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

/* For rows of dy from `first` on: dx (+)= dv·W, with adapters, which write it first (dx NULL: skipped), and
 * whatever _gradients needs of these rows. */
static enum ax_status run_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct made *m, int64_t first, const struct ax_tensor *dy,
                                 const struct ax_tensor *dx) {
    const struct ax_linear_run *r = &m->run;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    /* merged ones are in the weights */
    const bool adapted = dx && adapts(l, r) && !ax_linear_merges(l);
    const bool adds = adapted || r->first > 0;
    struct ax_adapter_part parts[AX_LINEAR_MAX_PARTS];
    struct ax_adapter_call call = {
        .n = r->end - r->first, .parts = parts, .writes = r->first == 0, .first = first};
    struct ax_tensor dv = *dy;
    if (m->dv.data) {
        dv = ax_tensor_rows(&m->dv, first, dy->shape[0]);
        AX_TRY(before_scales(rt, l, m, dy, &dv));
    }
    if (adapted)
        call.dx = *dx;
    const struct ax_adapter_part all = {.w = m->w, .dy = *dy, .dv = dv};
    ax_linear_list(l, r, &all, m->adapter, parts);
    AX_TRY(ax_adapters_backward_inputs(&call));
    if (dx && m->by_codes) {
        AX_TRY(ax_linear_inputs_of_codes(
            rt, &(struct ax_linear_product){
                    .r = r, .w = &m->w_codes, .dy = &m->dy_codes, .c = *dx, .adds = adds}));
    } else if (dx) {
        struct ax_gemm g = {.b = m->used, .c = *dx, .accumulate = adds, .alpha = 1};
        AX_TRY(ax_linear_used_grad(rt, l, r, AX_SUM_COLUMNS,
                                   scales(l, r) && !ax_linear_merges(l) ? &dv : dy, &g.a));
        AX_TRY(ax_run_gemm(rt->q, &g));
    }
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* dW (+)= dyᵀ·x. Where rounding clips, the product is first that of the values, in scratch. */
static enum ax_status weight_gradient(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_linear_run *r, const struct ax_tensor *x,
                                      const struct ax_tensor *dy, const struct ax_tensor *dw,
                                      bool adds) {
    const bool clips = ax_linear_quant(l) && ax_fake_quant_clips(l->quant);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_gemm g = {
        .b = *x, .c = *dw, .trans_a = true, .accumulate = adds && !clips, .alpha = 1};
    AX_TRY(ax_linear_used_grad(rt, l, r, AX_SUM_ROWS, dy, &g.a));
    if (clips)
        g.c.data = ax_stack_push(&rt->arena.scratch, "gradient of values", ax_tensor_bytes(dw));
    AX_TRY(ax_run_gemm(rt->q, &g));
    if (clips && !adds)
        AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){*dw, 0}));
    if (clips)
        AX_TRY(ax_linear_values_grad(rt, l, r, &g.c, dw));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* Afterwards, for all rows: gradients of all trainable parameters. `own` is dy before any gather,
 * so that each row counts once over tp. Products read in->values, adapters in->x. */
static enum ax_status run_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct made *m, const struct inputs *in,
                                    const struct ax_tensor *dy, const struct ax_tensor *own) {
    const struct ax_linear_run *r = &m->run;
    const bool adds = !ax_linear_run_begins(l, r);
    const struct ax_tensor dw =
        ax_linear_joined(l, r, ax_unit_grad(l->unit, l->weight[r->first]), 2);
    struct ax_tensor db = {0};
    const struct ax_linear_product p = {
        .r = r, .x = &in->codes, .dy = &m->dy_codes, .c = dw, .adds = adds};
    if (dw.data)
        AX_TRY(m->by_codes ? ax_linear_gradients_of_codes(rt, &p)
                           : weight_gradient(rt, l, r, &in->values, dy, &dw, adds));
    if (l->bias[0])
        db = ax_linear_joined(l, r, ax_unit_grad(l->unit, l->bias[r->first]), 1);
    if (db.data)
        AX_TRY(ax_run_colsum(rt->q, &(struct ax_colsum){.x = *own, .out = db}));
    struct ax_adapter_part parts[AX_LINEAR_MAX_PARTS];
    const struct ax_adapter_part all = {.w = m->w, .dy = *dy, .dv = m->dv.data ? m->dv : *dy};
    ax_linear_list(l, r, &all, m->adapter, parts);
    return ax_adapters_backward_weights(&(struct ax_adapter_call){
        .n = r->end - r->first, .parts = parts, .x = in->x, .projects = m->projects});
}

/* ---- all runs of a linear ---- */

struct runs {
    int n;
    struct made list[AX_LINEAR_MAX_PARTS];
};

static enum ax_status make_all(struct ax_runtime *rt, const struct ax_linear *l, int64_t T,
                               struct runs *runs) {
    const bool projects = ax_linear_projects(l);
    runs->n = 0;
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        runs->list[runs->n] = (struct made){.run = r, .projects = projects};
        AX_TRY(make_run(rt, l, T, &runs->list[runs->n++]));
    }
    return AX_OK;
}

static enum ax_status make_all_backward(struct ax_runtime *rt, const struct ax_linear *l, int64_t T,
                                        bool inputs, struct runs *runs) {
    const bool projects = ax_linear_projects(l);
    runs->n = 0;
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        runs->list[runs->n] = (struct made){.run = r, .projects = projects};
        take_run_backward(rt, l, T, &runs->list[runs->n]);
        AX_TRY(make_run_backward(rt, l, inputs, &runs->list[runs->n++]));
    }
    return AX_OK;
}

static enum ax_status all_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct runs *runs, const struct inputs *in, bool biased,
                                  const struct ax_tensor *addend, const struct ax_tensor *out) {
    for (int i = 0; i < runs->n; i++) {
        const size_t mark = ax_stack_mark(&rt->arena.scratch);
        AX_TRY(run_outputs(rt, l, &runs->list[i], in, biased, addend, out));
        ax_stack_release(&rt->arena.scratch, mark);
    }
    return AX_OK;
}

static enum ax_status all_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct runs *runs, int64_t first, const struct ax_tensor *dy,
                                 const struct ax_tensor *dx) {
    for (int i = 0; i < runs->n; i++) {
        const struct ax_linear_run *r = &runs->list[i].run;
        const struct ax_tensor d = ax_tensor_cols(dy, r->at, r->out);
        AX_TRY(run_inputs(rt, l, &runs->list[i], first, &d, dx));
    }
    return AX_OK;
}

static enum ax_status all_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct runs *runs, const struct inputs *in,
                                    const struct ax_tensor *dy, const struct ax_tensor *own) {
    for (int i = 0; i < runs->n; i++) {
        const struct ax_linear_run *r = &runs->list[i].run;
        const struct ax_tensor d = ax_tensor_cols(dy, r->at, r->out);
        const struct ax_tensor own_d = ax_tensor_cols(own, r->at, r->out);
        AX_TRY(run_gradients(rt, l, &runs->list[i], in, &d, &own_d));
    }
    return AX_OK;
}

/* ---- transfers over tp overlapped with products ---- */

/* Do rows travel over tp while others are multiplied? Quantized and watched inputs need all rows
 * first. */
static bool overlaps(const struct ax_runtime *rt, const struct ax_linear *l) {
    return l->overlaps && l->split != AX_SPLIT_NONE && rt->mesh.size[AX_ROLE_TP] > 1 &&
           !ax_linear_quant(l) && !l->watch;
}

static struct inputs rows_of(const struct ax_tp_hops *h, const struct ax_tensor *rows, int rank) {
    return (struct inputs){.x = *rows, .values = *rows, .first = rank * h->own.shape[0]};
}

/* Split over outputs: a rank's rows are multiplied while the next one's arrive. */
static enum ax_status forward_gathering(struct ax_runtime *rt, const struct ax_linear *l,
                                        const struct ax_tensor *x, const struct ax_tensor *addend,
                                        const struct ax_tensor *y) {
    struct ax_tp_hops hops;
    struct runs runs;
    AX_TRY(ax_tp_hops_gather(&hops, rt, x, false));
    AX_TRY(make_all(rt, l, y->shape[0], &runs));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        int rank;
        struct ax_tensor rows;
        AX_TRY(ax_tp_hops_next(&hops, &rank, &rows));
        const struct inputs in = rows_of(&hops, &rows, rank);
        const struct ax_tensor out = ax_tp_hops_rows(&hops, y, rank);
        struct ax_tensor add = {0};
        if (addend)
            add = ax_tp_hops_rows(&hops, addend, rank);
        AX_TRY(all_outputs(rt, l, &runs, &in, true, addend ? &add : NULL, &out));
    }
    return AX_OK;
}

/* Split over inputs: a rank's parts of sums travel while the next one's are computed. */
static enum ax_status forward_summing(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_tensor *x, const struct ax_tensor *addend,
                                      const struct ax_tensor *y) {
    struct ax_tp_hops hops;
    struct runs runs;
    AX_TRY(ax_tp_hops_sum(&hops, rt, y));
    AX_TRY(make_all(rt, l, x->shape[0], &runs));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        const int rank = ax_tp_hops_due(&hops);
        const struct ax_tensor rows = ax_tp_hops_rows(&hops, x, rank),
                               out = ax_tp_hops_rows(&hops, &hops.all, rank);
        const struct inputs in = rows_of(&hops, &rows, rank);
        AX_TRY(all_outputs(rt, l, &runs, &in, ax_tp_adds(rt), NULL, &out));
        AX_TRY(ax_tp_hops_send(&hops));
    }
    return ax_tp_hops_finish(&hops, addend);
}

/* Whether products are of codes, which are written to c, too, or nowhere else (c->data NULL). */
static bool takes_codes(const struct ax_runtime *rt, const struct ax_linear *l,
                        const struct ax_tensor *c) {
    return ax_linear_takes_codes(rt, l, NULL) && ax_fp8_gemm_aligned(c);
}

/* in->values or in->codes of in->x, as products read them. */
static enum ax_status quantize_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                      bool by_codes, enum ax_fake_sum sum, struct inputs *in) {
    const struct ax_fake_part part = ax_linear_share(l, AX_SPLIT_INPUTS);
    in->values = in->x;
    if (by_codes)
        return ax_fake_quant_input_codes(rt, l->quant, part,
                                         sum == AX_SUM_ROWS ? AX_CODES_COLUMNS : AX_CODES_ROWS,
                                         &in->x, &in->codes);
    return ax_linear_quant(l) ? ax_fake_quant_input(rt, l->quant, part, sum, &in->values) : AX_OK;
}

enum ax_status ax_linear_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const bool inputs = l->split == AX_SPLIT_INPUTS;
    struct inputs in = {.x = *x};
    if (overlaps(rt, l)) {
        AX_TRY(inputs ? forward_summing(rt, l, x, addend, y)
                      : forward_gathering(rt, l, x, addend, y));
        ax_stack_release(scratch, mark);
        return AX_OK;
    }
    const struct ax_tensor out = inputs ? ax_tp_partial(rt, y) : *y;
    if (l->split == AX_SPLIT_OUTPUTS)
        AX_TRY(ax_tp_gather(rt, x, &in.x));
    if (l->watch)
        AX_TRY(l->watch->see(l->watch->ctx, l, &in.x));
    const bool by_codes = takes_codes(rt, l, &out) && (!addend || ax_fp8_gemm_aligned(addend));
    AX_TRY(quantize_inputs(rt, l, by_codes, AX_SUM_COLUMNS, &in));
    const bool projects = ax_linear_projects(l);
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const size_t inner = ax_stack_mark(scratch);
        struct made made = {.run = r, .by_codes = by_codes, .projects = projects};
        AX_TRY(make_run(rt, l, out.shape[0], &made));
        AX_TRY(run_outputs(rt, l, &made, &in, !inputs || ax_tp_adds(rt),
                           out.data == y->data ? addend : NULL, &out));
        ax_stack_release(scratch, inner);
    }
    if (inputs)
        AX_TRY(ax_tp_reduce(rt, &out, addend, y));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

static bool has_gradients(const struct ax_linear *l) {
    bool any = false;
    for (int i = 0; i < l->n_parts; i++)
        any = any || ax_unit_trains(l->unit, l->weight[i]) ||
              (l->bias[i] && ax_unit_trains(l->unit, l->bias[i]));
    return any;
}

/* dx of all rows, behind which the sums of a rank's rows travel. */
static enum ax_status inputs_summing(struct ax_runtime *rt, const struct ax_linear *l,
                                     const struct runs *runs, const struct ax_tensor *dy,
                                     struct ax_tp_hops *hops) {
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        const int rank = ax_tp_hops_due(hops);
        const struct ax_tensor d = ax_tp_hops_rows(hops, dy, rank),
                               out = ax_tp_hops_rows(hops, &hops->all, rank);
        AX_TRY(all_inputs(rt, l, runs, rank * hops->own.shape[0], &d, &out));
        AX_TRY(ax_tp_hops_send(hops));
    }
    return AX_OK;
}

/* Split over outputs, of frozen weights, whose gradient hides nothing: dx in chunks. */
static enum ax_status backward_frozen(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_tensor *x, const struct ax_tensor *dy,
                                      const struct ax_tensor *dx) {
    struct inputs in = {0};
    struct ax_ticket gather = {0};
    struct ax_tp_hops hops;
    struct runs runs;
    const bool adapted = is_adapted(l);
    if (adapted)
        AX_TRY(ax_tp_start_gather(rt, x, &in.x, &gather));
    if (dx)
        AX_TRY(ax_tp_hops_sum(&hops, rt, dx));
    AX_TRY(make_all_backward(rt, l, dy->shape[0], dx != NULL, &runs));
    AX_TRY(dx ? inputs_summing(rt, l, &runs, dy, &hops) : all_inputs(rt, l, &runs, 0, dy, NULL));
    if (adapted) {
        AX_TRY(ax_tp_arrive(rt, gather));
        AX_TRY(all_gradients(rt, l, &runs, &in, dy, dy));
    }
    return dx ? ax_tp_hops_finish(&hops, NULL) : AX_OK;
}

/* Split over outputs: the rows of x arrive behind dx's product, and dx is summed behind dW's. */
static enum ax_status backward_summing(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_tensor *x, const struct ax_tensor *dy,
                                       const struct ax_tensor *dx) {
    struct inputs in = {0};
    struct ax_ticket gather, sum;
    struct runs runs;
    AX_TRY(ax_tp_start_gather(rt, x, &in.x, &gather));
    struct ax_tensor partial = {0};
    if (dx)
        partial = ax_tp_partial(rt, dx);
    AX_TRY(make_all_backward(rt, l, dy->shape[0], dx != NULL, &runs));
    AX_TRY(all_inputs(rt, l, &runs, 0, dy, dx ? &partial : NULL));
    if (dx)
        AX_TRY(ax_tp_start_reduce(rt, &partial, dx, &sum));
    AX_TRY(ax_tp_arrive(rt, gather));
    in.values = in.x;
    AX_TRY(all_gradients(rt, l, &runs, &in, dy, dy));
    return dx ? ax_tp_arrive(rt, sum) : AX_OK;
}

/* Split over inputs: a rank's rows of dx are computed while the next one's rows of dy arrive. x NULL: no
 * gradients. */
static enum ax_status backward_gathering(struct ax_runtime *rt, const struct ax_linear *l,
                                         const struct ax_tensor *x, const struct ax_tensor *dy,
                                         const struct ax_tensor *dx) {
    struct ax_tp_hops hops;
    struct runs runs;
    AX_TRY(ax_tp_hops_gather(&hops, rt, dy, true));
    AX_TRY(make_all_backward(rt, l, hops.all.shape[0], dx != NULL, &runs));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        int rank;
        struct ax_tensor rows, out = {0};
        AX_TRY(ax_tp_hops_next(&hops, &rank, &rows));
        if (dx)
            out = ax_tp_hops_rows(&hops, dx, rank);
        AX_TRY(all_inputs(rt, l, &runs, rank * hops.own.shape[0], &rows, dx ? &out : NULL));
    }
    return x ? all_gradients(rt, l, &runs, &(struct inputs){.x = *x, .values = *x}, &hops.all, dy)
             : AX_OK;
}

/* ---- in line, and in halves ---- */

/* Without travel behind products. `weights`: gradients of what trains; else dx alone. */
static enum ax_status backward_in_line(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_tensor *x, const struct ax_tensor *dy,
                                       const struct ax_tensor *dx, bool weights) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const bool outputs = l->split == AX_SPLIT_OUTPUTS;
    struct inputs in = {.x = *x};
    struct ax_tensor d_out = *dy, d_in = {0};
    if (outputs && weights)
        AX_TRY(ax_tp_gather(rt, x, &in.x));
    if (l->split == AX_SPLIT_INPUTS)
        AX_TRY(ax_tp_gather(rt, dy, &d_out));
    in.values = in.x;
    if (dx)
        d_in = outputs ? ax_tp_partial(rt, dx) : *dx;
    const bool by_codes = takes_codes(rt, l, &d_in);
    const bool trains = weights && has_gradients(l);
    if (by_codes ? trains : weights)
        AX_TRY(quantize_inputs(rt, l, by_codes, AX_SUM_ROWS, &in));
    if (ax_linear_merges(l))
        in.x = in.values;
    const bool projects = ax_linear_projects(l);
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const size_t mark = ax_stack_mark(scratch);
        const struct ax_tensor d = ax_linear_grad_part(&d_out, r.first, r.at, r.out);
        const struct ax_tensor own = ax_tensor_cols(dy, r.at, r.out);
        struct made made = {.run = r, .by_codes = by_codes, .projects = projects};
        if (by_codes && (dx || trains))
            AX_TRY(ax_linear_grad_codes(rt, l, &r,
                                        (dx ? AX_CODES_ROWS : 0) | (trains ? AX_CODES_COLUMNS : 0),
                                        &d, &made.dy_codes));
        take_run_backward(rt, l, d.shape[0], &made);
        const size_t inner = ax_stack_mark(scratch); /* weights, which gradients may need, too */
        AX_TRY(make_run_backward(rt, l, dx != NULL, &made));
        AX_TRY(run_inputs(rt, l, &made, 0, &d, dx ? &d_in : NULL));
        const bool read = gradients_read(l, &made);
        if (!read)
            ax_stack_release(scratch, inner);
        if (weights)
            AX_TRY(run_gradients(rt, l, &made, &in, &d, &own));
        if (read)
            ax_stack_release(scratch, inner);
        ax_stack_release(scratch, mark);
    }
    if (dx && outputs)
        AX_TRY(ax_tp_reduce(rt, &d_in, NULL, dx));
    if (dx && ax_linear_quant(l))
        AX_TRY(ax_fake_quant_input_grad(rt, l->quant, x, ax_linear_share(l, AX_SPLIT_INPUTS), dx));
    return AX_OK;
}

/* True if a pass in halves leaves its matrices' gradients for later: these are products of x and dy alone,
 * and large ones. */
static bool waits(const struct ax_linear *l) {
    const struct ax_fake_quant *quant = ax_linear_quant(l);
    return l->later && *l->later && has_gradients(l) && !is_adapted(l) && !l->watch &&
           !(quant && ax_fake_quant_clips(quant));
}

static enum ax_status weights_later(struct ax_pass *p, const struct ax_later_product *a) {
    struct ax_runtime *rt = p->model->rt;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(backward_in_line(rt, a->of, &a->kept[0], &a->kept[1], NULL, true));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status put_off(struct ax_runtime *rt, const struct ax_linear *l,
                              const struct ax_tensor *x, const struct ax_tensor *dy) {
    struct ax_later *later = *l->later;
    const struct ax_later_product product = {
        .unit = l->unit,
        .run = weights_later,
        .of = l,
        .kept = {ax_later_take(later, x), ax_later_take(later, dy)}};
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){product.kept[0], *x}));
    AX_TRY(ax_run_copy(rt->q, &(struct ax_copy){product.kept[1], *dy}));
    return ax_later_add(later, &product);
}

static enum ax_status backward(struct ax_runtime *rt, const struct ax_linear *l,
                               const struct ax_tensor *x, const struct ax_tensor *dy,
                               const struct ax_tensor *dx) {
    const bool outputs = l->split == AX_SPLIT_OUTPUTS;
    if (waits(l)) {
        AX_TRY(put_off(rt, l, x, dy));
        if (!dx)
            return AX_OK;
        return overlaps(rt, l) && !outputs ? backward_gathering(rt, l, NULL, dy, dx)
                                           : backward_in_line(rt, l, x, dy, dx, false);
    }
    if (!overlaps(rt, l))
        return backward_in_line(rt, l, x, dy, dx, true);
    if (!outputs)
        return backward_gathering(rt, l, x, dy, dx);
    return has_gradients(l) ? backward_summing(rt, l, x, dy, dx)
                            : backward_frozen(rt, l, x, dy, dx);
}

enum ax_status ax_linear_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct ax_tensor *x, const struct ax_tensor *dy,
                                  const struct ax_tensor *dx) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(backward(rt, l, x, dy, dx));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_backward_more(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_tensor *x, const struct ax_tensor *dy,
                                       const struct ax_tensor *dx) {
    if (!dx)
        return ax_linear_backward(rt, l, x, dy, NULL);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor more =
        ax_stack_take(&rt->arena.scratch, "gradient of branch input",
                      ax_tensor_2d(dx->dtype, NULL, dx->shape[0], dx->shape[1]));
    AX_TRY(ax_linear_backward(rt, l, x, dy, &more));
    AX_TRY(ax_run_add(rt->q, &(struct ax_add){.dst = *dx, .src = more, .alpha = 1}));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
