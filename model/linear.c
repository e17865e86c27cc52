/* Forward and backward of y = x·Wᵀ + b:  dx = dy·W,  dW = dyᵀ·x,  db = Σ_t dy. */
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

/* Parts [first, end) that lie behind each other: one GEMM that makes columns [at, at + out). */
struct run {
    int first, end;
    int64_t at, out;
};

static bool behind(const struct ax_param *a, const struct ax_param *b) {
    return a->segment == b->segment && b->offset == a->offset + ax_param_local_numel(a);
}

/* The run after `r`, or the first one where r->end = 0; false: there is none. */
static bool next_run(const struct ax_linear *l, struct run *r) {
    if (r->end == l->n_parts)
        return false;
    const int first = r->end;
    int end = first + 1;
    int64_t out = l->weight[first]->local_shape[0];
    while (end < l->n_parts && behind(l->weight[end - 1], l->weight[end]) &&
           (!l->bias[0] || behind(l->bias[end - 1], l->bias[end])))
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
    return ax_tensor_nd(first.dtype, first.data, ndim, shape);
}

static struct ax_tensor weight_of(const struct ax_linear *l, const struct run *r) {
    return joined(l, r, ax_unit_weight(l->unit, l->weight[r->first]), 2);
}

enum ax_status ax_linear_forward(struct ax_runtime *rt, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const bool inputs = l->split == AX_SPLIT_INPUTS;
    struct ax_tensor in = *x;
    const struct ax_tensor out = inputs ? ax_split_partial(rt, y) : *y;
    if (!inputs)
        AX_TRY(ax_split_gather(rt, x, &in));
    for (struct run r = {0}; next_run(l, &r);) {
        struct ax_gemm g = {.a = in, .b = weight_of(l, &r), .trans_b = true, .alpha = 1};
        g.c = ax_tensor_cols(&out, r.at, r.out);
        if (l->bias[0] && (!inputs || ax_split_adds(rt)))
            g.bias = joined(l, &r, ax_unit_weight(l->unit, l->bias[r.first]), 1);
        if (addend && out.data == y->data)
            g.addend = ax_tensor_cols(addend, r.at, r.out);
        AX_TRY(ax_run_gemm(rt->q, &g));
    }
    if (inputs)
        AX_TRY(ax_split_reduce(rt, &out, addend, y));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* Parameter gradients of one run; `own` is dy before any gather: each row once over tp. */
static enum ax_status run_gradients(struct ax_runtime *rt, const struct ax_linear *l,
                                    const struct run *r, const struct ax_tensor *x,
                                    const struct ax_tensor *dy, const struct ax_tensor *own) {
    const struct ax_tensor dw = joined(l, r, ax_unit_grad(l->unit, l->weight[r->first]), 2);
    if (dw.data) {
        const struct ax_gemm g = {.a = ax_tensor_cols(dy, r->at, r->out),
                                  .b = *x,
                                  .c = dw,
                                  .trans_a = true,
                                  .accumulate = true,
                                  .alpha = 1};
        AX_TRY(ax_run_gemm(rt->q, &g));
    }
    if (!l->bias[0])
        return AX_OK;
    const struct ax_tensor db = joined(l, r, ax_unit_grad(l->unit, l->bias[r->first]), 1);
    if (!db.data)
        return AX_OK;
    return ax_run_colsum(rt->q,
                         &(struct ax_colsum){.x = ax_tensor_cols(own, r->at, r->out), .out = db});
}

enum ax_status ax_linear_backward(struct ax_runtime *rt, const struct ax_linear *l,
                                  const struct ax_tensor *x, const struct ax_tensor *dy,
                                  const struct ax_tensor *dx) {
    struct ax_stack *scratch = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const bool inputs = l->split == AX_SPLIT_INPUTS;
    struct ax_tensor in = *x, d_out = *dy;
    AX_TRY(inputs ? ax_split_gather(rt, dy, &d_out) : ax_split_gather(rt, x, &in));
    for (struct run r = {0}; next_run(l, &r);)
        AX_TRY(run_gradients(rt, l, &r, &in, &d_out, dy));
    if (dx) {
        const struct ax_tensor d_in = inputs ? *dx : ax_split_partial(rt, dx);
        for (struct run r = {0}; next_run(l, &r);) {
            const struct ax_gemm g = {.a = ax_tensor_cols(&d_out, r.at, r.out),
                                      .b = weight_of(l, &r),
                                      .c = d_in,
                                      .accumulate = r.first > 0,
                                      .alpha = 1};
            AX_TRY(ax_run_gemm(rt->q, &g));
        }
        if (!inputs)
            AX_TRY(ax_split_reduce(rt, &d_in, NULL, dx));
    }
    ax_stack_release(scratch, mark);
    return AX_OK;
}
