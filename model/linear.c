/* Forward and backward of y = x·Wᵀ + b:  dx = dy·W,  dW = dyᵀ·x,  db = Σ_t dy. Adapters add theirs
 * in adapter.c; operands of products become their values in fake_quant.c. */
#include "model/later.h"
#include "model/linear_products.h"
#include "model/tp_hops.h"

int64_t ax_linear_in(const struct ax_linear *l) {
    return l->weight[0]->local_shape[1];
}

int64_t ax_linear_out(const struct ax_linear *l) {
    int64_t out = 0;
    for (int i = 0; i < l->n_parts; i++)
        out += l->weight[i]->local_shape[0];
    return out;
}

/* ---- behind each other ---- */

/* Products that depend on nothing but x, dy and W. */
static bool is_plain(const struct ax_linear *l) {
    bool plain = !ax_linear_quant(l) && !l->watch && !ax_unit_is_packed(l->unit, l->weight[0]);
    for (int i = 0; i < l->n_parts; i++)
        plain = plain && !l->adapter[i].a;
    return plain;
}

/* Plain products of rows that travel over tp. What is quantized, adapted or watched reads all rows. */
static bool overlaps(const struct ax_runtime *rt, const struct ax_linear *l) {
    return l->overlaps && l->split != AX_SPLIT_NONE && rt->mesh.size[AX_ROLE_TP] > 1 && is_plain(l);
}

/* Split over outputs: a rank's rows are multiplied while the next one's arrive. */
static enum ax_status forward_gathering(struct ax_runtime *rt, const struct ax_linear *l,
                                        const struct ax_tensor *x, const struct ax_tensor *addend,
                                        const struct ax_tensor *y) {
    struct ax_tp_hops hops;
    AX_TRY(ax_tp_hops_gather(&hops, rt, x, false));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        int rank;
        struct ax_tensor rows;
        AX_TRY(ax_tp_hops_next(&hops, &rank, &rows));
        const struct ax_tensor out = ax_tp_hops_rows(&hops, y, rank);
        struct ax_tensor add = {0};
        if (addend)
            add = ax_tp_hops_rows(&hops, addend, rank);
        AX_TRY(ax_linear_outputs(rt, l, &(struct ax_linear_inputs){rows, rows}, true,
                                 addend ? &add : NULL, &out));
    }
    return AX_OK;
}

/* Split over inputs: a rank's parts of sums travel while the next one's are computed. */
static enum ax_status forward_summing(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_tensor *x, const struct ax_tensor *addend,
                                      const struct ax_tensor *y) {
    struct ax_tp_hops hops;
    AX_TRY(ax_tp_hops_sum(&hops, rt, y));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        const int rank = ax_tp_hops_due(&hops);
        const struct ax_tensor rows = ax_tp_hops_rows(&hops, x, rank),
                               out = ax_tp_hops_rows(&hops, &hops.all, rank);
        AX_TRY(ax_linear_outputs(rt, l, &(struct ax_linear_inputs){rows, rows}, ax_tp_adds(rt),
                                 NULL, &out));
        AX_TRY(ax_tp_hops_send(&hops));
    }
    return ax_tp_hops_finish(&hops, addend);
}

enum ax_status ax_linear_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const bool inputs = l->split == AX_SPLIT_INPUTS;
    struct ax_linear_inputs in = {.x = *x};
    if (overlaps(rt, l)) {
        AX_TRY(inputs ? forward_summing(rt, l, x, addend, y)
                      : forward_gathering(rt, l, x, addend, y));
        ax_stack_release(&rt->arena.scratch, mark);
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
    AX_TRY(ax_linear_outputs(rt, l, &in, !inputs || ax_tp_adds(rt),
                             out.data == y->data ? addend : NULL, &out));
    if (inputs)
        AX_TRY(ax_tp_reduce(rt, &out, addend, y));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

static enum ax_status all_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_tensor *x, const struct ax_tensor *dy,
                                    const struct ax_tensor *own) {
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const struct ax_tensor d = ax_tensor_cols(dy, r.at, r.out);
        const struct ax_tensor own_d = ax_tensor_cols(own, r.at, r.out);
        AX_TRY(ax_linear_run_gradients(rt, l, &r, x, &d, &own_d));
    }
    return AX_OK;
}

static enum ax_status all_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_tensor *dy, const struct ax_tensor *dx) {
    const struct ax_tensor unread = {0}; /* without adapters */
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const struct ax_tensor d = ax_tensor_cols(dy, r.at, r.out);
        AX_TRY(ax_linear_run_inputs(rt, l, &r, &unread, &d, dx));
    }
    return AX_OK;
}

/* Split over outputs: the rows of x arrive behind dx's product, and dx is summed behind dW's. */
static enum ax_status backward_summing(struct ax_runtime *rt, const struct ax_linear *l,
                                       const struct ax_tensor *x, const struct ax_tensor *dy,
                                       const struct ax_tensor *dx) {
    struct ax_tensor all;
    struct ax_ticket gather, sum;
    AX_ASSERT(!dx || dx->data != x->data);
    AX_TRY(ax_tp_start_gather(rt, x, &all, &gather));
    if (dx) {
        const struct ax_tensor partial = ax_tp_partial(rt, dx);
        AX_TRY(all_inputs(rt, l, dy, &partial));
        AX_TRY(ax_tp_start_reduce(rt, &partial, dx, &sum));
    }
    AX_TRY(ax_tp_arrive(rt, gather));
    AX_TRY(all_gradients(rt, l, &all, dy, dy));
    return dx ? ax_tp_arrive(rt, sum) : AX_OK;
}

/* Split over inputs: a rank's rows of dx are computed while the next one's rows of dy arrive. */
static enum ax_status backward_gathering(struct ax_runtime *rt, const struct ax_linear *l,
                                         const struct ax_tensor *x, const struct ax_tensor *dy,
                                         const struct ax_tensor *dx) {
    struct ax_tp_hops hops;
    AX_TRY(ax_tp_hops_gather(&hops, rt, dy, true));
    for (int i = 0; i < rt->mesh.size[AX_ROLE_TP]; i++) {
        int rank;
        struct ax_tensor rows;
        AX_TRY(ax_tp_hops_next(&hops, &rank, &rows));
        if (!dx)
            continue;
        const struct ax_tensor out = ax_tp_hops_rows(&hops, dx, rank);
        AX_TRY(all_inputs(rt, l, &rows, &out));
    }
    return x ? all_gradients(rt, l, x, &hops.all, dy) : AX_OK;
}

/* ---- in halves ---- */

static bool has_gradients(const struct ax_linear *l) {
    bool any = false;
    for (int i = 0; i < l->n_parts; i++)
        any = any || ax_unit_grad(l->unit, l->weight[i]).data ||
              (l->bias[i] && ax_unit_grad(l->unit, l->bias[i]).data);
    return any;
}

static enum ax_status backward_inputs(struct ax_runtime *rt, const struct ax_linear *l,
                                      const struct ax_tensor *dy, const struct ax_tensor *dx) {
    struct ax_tensor d_out = *dy;
    if (overlaps(rt, l) && l->split == AX_SPLIT_INPUTS)
        return backward_gathering(rt, l, NULL, dy, dx);
    if (l->split == AX_SPLIT_INPUTS)
        AX_TRY(ax_tp_gather(rt, dy, &d_out));
    if (l->split != AX_SPLIT_OUTPUTS)
        return all_inputs(rt, l, &d_out, dx);
    const struct ax_tensor partial = ax_tp_partial(rt, dx);
    AX_TRY(all_inputs(rt, l, dy, &partial));
    return ax_tp_reduce(rt, &partial, NULL, dx);
}

enum ax_status ax_linear_backward_weights(struct ax_runtime *rt, const struct ax_linear *l,
                                          const struct ax_tensor *x, const struct ax_tensor *dy) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor in = *x, d_out = *dy;
    if (l->split == AX_SPLIT_OUTPUTS)
        AX_TRY(ax_tp_gather(rt, x, &in));
    if (l->split == AX_SPLIT_INPUTS)
        AX_TRY(ax_tp_gather(rt, dy, &d_out));
    AX_TRY(all_gradients(rt, l, &in, &d_out, dy));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* dx, with the rest put off. */
static enum ax_status backward_half(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct ax_tensor *x, const struct ax_tensor *dy,
                                    const struct ax_tensor *dx) {
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    AX_TRY(ax_later_add(*l->later, rt, l, x, dy));
    if (dx)
        AX_TRY(backward_inputs(rt, l, dy, dx));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_linear_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct ax_tensor *x, const struct ax_tensor *dy,
                                  const struct ax_tensor *dx) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const bool outputs = l->split == AX_SPLIT_OUTPUTS;
    struct ax_linear_inputs in = {.x = *x};
    struct ax_tensor d_out = *dy, d_in = {0};
    if (l->later && *l->later && is_plain(l) && has_gradients(l))
        return backward_half(rt, l, x, dy, dx);
    if (overlaps(rt, l)) {
        AX_TRY(outputs ? backward_summing(rt, l, x, dy, dx) : backward_gathering(rt, l, x, dy, dx));
        ax_stack_release(scratch, mark);
        return AX_OK;
    }
    if (l->split != AX_SPLIT_NONE)
        AX_TRY(outputs ? ax_tp_gather(rt, x, &in.x) : ax_tp_gather(rt, dy, &d_out));
    in.values = in.x;
    if (ax_linear_quant(l))
        AX_TRY(ax_fake_quant_input(rt, l->quant, ax_linear_share(l, AX_SPLIT_INPUTS), AX_SUM_ROWS,
                                   &in.values));
    const struct ax_tensor *adapted_x = ax_linear_merges(l) ? &in.values : &in.x;
    if (dx)
        d_in = outputs ? ax_tp_partial(rt, dx) : *dx;
    for (struct ax_linear_run r = {0}; ax_linear_next_run(l, &r);) {
        const size_t inner = ax_stack_mark(scratch);
        const struct ax_tensor d = ax_tensor_cols(&d_out, r.at, r.out);
        const struct ax_tensor own = ax_tensor_cols(dy, r.at, r.out);
        AX_TRY(ax_linear_run_gradients(rt, l, &r, &in.values, &d, &own));
        AX_TRY(ax_linear_run_inputs(rt, l, &r, adapted_x, &d, dx ? &d_in : NULL));
        ax_stack_release(scratch, inner);
    }
    if (dx && outputs)
        AX_TRY(ax_tp_reduce(rt, &d_in, NULL, dx));
    if (dx && ax_linear_quant(l))
        AX_TRY(ax_fake_quant_input_grad(rt, l->quant, x, ax_linear_share(l, AX_SPLIT_INPUTS), dx));
    ax_stack_release(scratch, mark);
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
