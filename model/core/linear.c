/* Forward and backward of y = x·Wᵀ + b:  dx = dy·W,  dW = dyᵀ·x,  db = Σ_t dy. Adapters add theirs
 * in adapter.c; operands of products become their values in fake_quant.c. */
#include "model/core/later.h"
#include "model/core/linear_products.h"
#include "model/core/pass.h"
#include "model/parallel/tp_hops.h"

int64_t ax_linear_in(const struct ax_linear *l) {
    return l->weight[0]->local_shape[1];
}

int64_t ax_linear_out(const struct ax_linear *l) {
    int64_t out = 0;
    for (int i = 0; i < l->n_parts; i++)
        out += l->weight[i]->local_shape[0];
    return out;
}

/* ---- runs ---- */

struct runs {
    int n;
    struct ax_linear_made list[AX_LINEAR_MAX_PARTS];
};

static enum ax_status make_all(struct ax_runtime *rt, const struct ax_linear *l,
                               struct runs *runs) {
    runs->n = 0;
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);)
        AX_TRY(ax_linear_make(rt, l, &r, &runs->list[runs->n++]));
    return AX_OK;
}

static enum ax_status make_all_backward(struct ax_runtime *rt, const struct ax_linear *l, int64_t T,
                                        bool inputs, struct runs *runs) {
    runs->n = 0;
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);)
        AX_TRY(ax_linear_make_backward(rt, l, &r, T, inputs, &runs->list[runs->n++]));
    return AX_OK;
}

static enum ax_status all_outputs(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct runs *runs, const struct ax_linear_inputs *in,
                                  bool biased, const struct ax_tensor *addend,
                                  const struct ax_tensor *out) {
    for (int i = 0; i < runs->n; i++) {
        const size_t mark = ax_stack_mark(&rt->arena.scratch);
        AX_TRY(ax_linear_run_outputs(rt, l, &runs->list[i], in, biased, addend, out));
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
        AX_TRY(ax_linear_run_inputs(rt, l, &runs->list[i], first, &d, dx));
    }
    return AX_OK;
}

static enum ax_status all_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct runs *runs, const struct ax_linear_inputs *in,
                                    const struct ax_tensor *dy, const struct ax_tensor *own) {
    for (int i = 0; i < runs->n; i++) {
        const struct ax_linear_run *r = &runs->list[i].run;
        const struct ax_tensor d = ax_tensor_cols(dy, r->at, r->out);
        const struct ax_tensor own_d = ax_tensor_cols(own, r->at, r->out);
        AX_TRY(ax_linear_run_gradients(rt, l, &runs->list[i], in, &d, &own_d));
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

static struct ax_linear_inputs rows_of(const struct ax_tp_hops *h, const struct ax_tensor *rows,
                                       int rank) {
    return (struct ax_linear_inputs){*rows, *rows, rank * h->own.shape[0]};
}

/* Split over outputs: a rank's rows are multiplied while the next one's arrive. */
static enum ax_status forward_gathering(struct ax_runtime *rt, const struct ax_linear *l,
                                        const struct ax_tensor *x, const struct ax_tensor *addend,
                                        const struct ax_tensor *y) {
    struct ax_tp_hops hops;
    struct runs runs;
    AX_TRY(ax_tp_hops_gather(&hops, rt, x, false));
    AX_TRY(make_all(rt, l, &runs));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        int rank;
        struct ax_tensor rows;
        AX_TRY(ax_tp_hops_next(&hops, &rank, &rows));
        const struct ax_linear_inputs in = rows_of(&hops, &rows, rank);
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
    AX_TRY(make_all(rt, l, &runs));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        const int rank = ax_tp_hops_due(&hops);
        const struct ax_tensor rows = ax_tp_hops_rows(&hops, x, rank),
                               out = ax_tp_hops_rows(&hops, &hops.all, rank);
        const struct ax_linear_inputs in = rows_of(&hops, &rows, rank);
        AX_TRY(all_outputs(rt, l, &runs, &in, ax_tp_adds(rt), NULL, &out));
        AX_TRY(ax_tp_hops_send(&hops));
    }
    return ax_tp_hops_finish(&hops, addend);
}

enum ax_status ax_linear_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const bool inputs = l->split == AX_SPLIT_INPUTS;
    struct ax_linear_inputs in = {.x = *x};
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
    in.values = in.x;
    if (ax_linear_quant(l))
        AX_TRY(ax_fake_quant_input(rt, l->quant, ax_linear_share(l, AX_SPLIT_INPUTS),
                                   AX_SUM_COLUMNS, &in.values));
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const size_t inner = ax_stack_mark(scratch);
        struct ax_linear_made made;
        AX_TRY(ax_linear_make(rt, l, &r, &made));
        AX_TRY(ax_linear_run_outputs(rt, l, &made, &in, !inputs || ax_tp_adds(rt),
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
        any = any || ax_unit_grad(l->unit, l->weight[i]).data ||
              (l->bias[i] && ax_unit_grad(l->unit, l->bias[i]).data);
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
    struct ax_linear_inputs in = {0};
    struct ax_ticket gather = {0};
    struct ax_tp_hops hops;
    struct runs runs;
    const bool adapted = ax_linear_is_adapted(l);
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
    struct ax_linear_inputs in = {0};
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
    return x ? all_gradients(rt, l, &runs, &(struct ax_linear_inputs){*x, *x, 0}, &hops.all, dy)
             : AX_OK;
}

/* ---- in line, and in halves ---- */

/* Without travel behind products. `weights`: gradients of what trains; else dx alone. */
static enum ax_status backward_in_line(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_tensor *x, const struct ax_tensor *dy,
                                       const struct ax_tensor *dx, bool weights) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const bool outputs = l->split == AX_SPLIT_OUTPUTS;
    struct ax_linear_inputs in = {.x = *x};
    struct ax_tensor d_out = *dy, d_in = {0};
    if (outputs && weights)
        AX_TRY(ax_tp_gather(rt, x, &in.x));
    if (l->split == AX_SPLIT_INPUTS)
        AX_TRY(ax_tp_gather(rt, dy, &d_out));
    in.values = in.x;
    if (ax_linear_quant(l) && weights)
        AX_TRY(ax_fake_quant_input(rt, l->quant, ax_linear_share(l, AX_SPLIT_INPUTS), AX_SUM_ROWS,
                                   &in.values));
    if (ax_linear_merges(l))
        in.x = in.values;
    if (dx)
        d_in = outputs ? ax_tp_partial(rt, dx) : *dx;
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const size_t mark = ax_stack_mark(scratch);
        const struct ax_tensor d = ax_tensor_cols(&d_out, r.at, r.out);
        const struct ax_tensor own = ax_tensor_cols(dy, r.at, r.out);
        struct ax_linear_made made;
        AX_TRY(ax_linear_make_backward(rt, l, &r, d.shape[0], dx != NULL, &made));
        AX_TRY(ax_linear_run_inputs(rt, l, &made, 0, &d, dx ? &d_in : NULL));
        if (!ax_linear_gradients_read(l, &made))
            ax_stack_release(scratch, made.mark);
        if (weights)
            AX_TRY(ax_linear_run_gradients(rt, l, &made, &in, &d, &own));
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
    return l->later && *l->later && has_gradients(l) && !ax_linear_is_adapted(l) && !l->watch &&
           !(quant && ax_fake_quant_clips(quant));
}

static enum ax_status weights_later(struct ax_pass *p, const struct ax_later_product *a) {
    return ax_linear_backward_weights(p->model->rt, a->of, &a->kept[0], &a->kept[1]);
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

enum ax_status ax_linear_backward_weights(struct ax_runtime *rt, const struct ax_linear *l,
                                          const struct ax_tensor *x, const struct ax_tensor *dy) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(backward_in_line(rt, l, x, dy, NULL, true));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_row_squares(struct ax_runtime *rt, const struct ax_linear *l, int part,
                                     const struct ax_tensor *out) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor w;
    const struct ax_linear_run alone = {part, part + 1, 0, l->weight[part]->local_shape[0]};
    AX_TRY(ax_linear_run_weight(rt, l, &alone, &w));
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
