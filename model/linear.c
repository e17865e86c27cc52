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

/* The parts as one tensor: the first one's address, all parts' rows. */
static struct ax_tensor joined(const struct ax_linear *l, struct ax_tensor first, int ndim) {
    if (!first.data)
        return first;
    for (int i = 1; i < l->n_parts; i++)
        AX_ASSERT(l->weight[i]->offset ==
                  l->weight[i - 1]->offset + ax_param_local_numel(l->weight[i - 1]));
    const int64_t shape[] = {ax_linear_out(l), ax_linear_in(l)};
    return ax_tensor_nd(first.dtype, first.data, ndim, shape);
}

enum ax_status ax_linear_forward(struct ax_queue *q, const struct ax_linear *l,
                                 const struct ax_tensor *x, const struct ax_tensor *addend,
                                 const struct ax_tensor *y) {
    struct ax_gemm g = {.a = *x, .c = *y, .trans_b = true, .alpha = 1};
    g.b = joined(l, ax_unit_weight(l->unit, l->weight[0]), 2);
    if (l->bias[0])
        g.bias = joined(l, ax_unit_weight(l->unit, l->bias[0]), 1);
    if (addend)
        g.addend = *addend;
    return ax_run_gemm(q, &g);
}

enum ax_status ax_linear_backward(struct ax_queue *q, const struct ax_linear *l,
                                  const struct ax_tensor *x, const struct ax_tensor *dy,
                                  const struct ax_tensor *dx) {
    struct ax_tensor dw = joined(l, ax_unit_grad(l->unit, l->weight[0]), 2);
    if (dw.data)
        AX_TRY(ax_run_gemm(
            q, &(struct ax_gemm){
                   .a = *dy, .b = *x, .c = dw, .trans_a = true, .accumulate = true, .alpha = 1}));
    if (l->bias[0]) {
        struct ax_tensor db = joined(l, ax_unit_grad(l->unit, l->bias[0]), 1);
        if (db.data)
            AX_TRY(ax_run_colsum(q, &(struct ax_colsum){.x = *dy, .out = db}));
    }
    if (!dx)
        return AX_OK;
    const struct ax_tensor w = joined(l, ax_unit_weight(l->unit, l->weight[0]), 2);
    return ax_run_gemm(q, &(struct ax_gemm){.a = *dy, .b = w, .c = *dx, .alpha = 1});
}
