/* The contracts of the ops of a mixture of experts. */
#include "kernels/ops_check.h"

const char *ax_check_router_forward(const struct ax_router_forward *a) {
    NEED(a->logits.ndim == 2 && sums(&a->logits) && a->weights.ndim == 2);
    enum ax_dtype dtype = a->logits.dtype;
    int64_t rows = a->logits.shape[0], experts = a->logits.shape[1], k = a->weights.shape[1];
    NEED(k >= 1 && k <= experts);
    NEED(is_2d(&a->logits, dtype, rows, experts));
    NEED(is_dense_2d(&a->probs, dtype, rows, experts));
    NEED(is_dense_2d(&a->weights, dtype, rows, k) && is_dense_2d(&a->experts, AX_I32, rows, k));
    NEED(!given(&a->valid) || is_1d(&a->valid, AX_I32, 1));
    NEED(!given(&a->load) || is_dense_2d(&a->load, dtype, 2, experts));
    return NULL;
}

const char *ax_check_router_balance(const struct ax_router_balance *a) {
    NEED(a->load.ndim == 2 && sums(&a->load) && a->k >= 1);
    NEED(is_dense_2d(&a->load, a->load.dtype, 2, a->load.shape[1]));
    NEED(is_1d(&a->slope, a->load.dtype, a->load.shape[1]));
    NEED(a->scalars != NULL);
    return NULL;
}

const char *ax_check_router_backward(const struct ax_router_backward *a) {
    NEED(a->probs.ndim == 2 && a->dweights.ndim == 2 && real(&a->dlogits));
    enum ax_dtype dtype = accum(&a->dlogits);
    int64_t rows = a->probs.shape[0], experts = a->probs.shape[1], k = a->dweights.shape[1];
    NEED(is_dense_2d(&a->probs, dtype, rows, experts));
    NEED(is_dense_2d(&a->experts, AX_I32, rows, k) && is_dense_2d(&a->dweights, dtype, rows, k));
    NEED(!given(&a->slope) || is_1d(&a->slope, dtype, experts));
    NEED(is_2d(&a->dlogits, a->dlogits.dtype, rows, experts));
    return NULL;
}

const char *ax_check_group_rows(const struct ax_group_rows *a) {
    NEED(is_index(&a->keys, a->keys.shape[0]) && is_index(&a->places, a->keys.shape[0]));
    NEED(same_shape(&a->keys, &a->places));
    NEED(a->offsets.shape[0] >= 2 && is_1d(&a->offsets, AX_I32, a->offsets.shape[0]));
    NEED(!given(&a->counts) || is_1d(&a->counts, AX_I32, a->offsets.shape[0] - 1));
    return NULL;
}

const char *ax_check_combine_forward(const struct ax_combine_forward *a) {
    NEED(a->src.ndim == 2 && real(&a->src) && given(&a->src) && rows_apart(&a->src));
    enum ax_dtype dtype = a->out.dtype;
    int64_t rows = a->out.shape[0], cols = a->src.shape[1];
    NEED(is_stream(&a->out, a->src.dtype));
    NEED(is_2d(&a->out, dtype, rows, cols));
    NEED(!given(&a->addend) || is_2d(&a->addend, dtype, rows, cols));
    NEED(is_index(&a->rows, rows));
    NEED(!given(&a->weights) ||
         is_dense_2d(&a->weights, accum(&a->src), rows, ax_tensor_row_len(&a->rows)));
    return NULL;
}

const char *ax_check_combine_backward(const struct ax_combine_backward *a) {
    NEED(a->dout.ndim == 2 && real(&a->dout));
    enum ax_dtype dtype = a->dout.dtype;
    int64_t rows = a->dout.shape[0], cols = a->dout.shape[1], k = ax_tensor_row_len(&a->rows);
    NEED(is_2d(&a->dout, dtype, rows, cols));
    NEED(is_2d(&a->src, dtype, a->src.shape[0], cols));
    NEED(is_2d(&a->dsrc, dtype, a->src.shape[0], cols));
    NEED(is_index(&a->rows, rows));
    NEED(is_dense_2d(&a->weights, accum(&a->dout), rows, k));
    NEED(is_dense_2d(&a->dweights, accum(&a->dout), rows, k));
    return NULL;
}

const char *ax_check_grouped_gemm(const struct ax_grouped_gemm *a) {
    NEED(a->a.ndim == 2 && real(&a->a) && !(a->trans_a && a->trans_b));
    int64_t rows = a->a.shape[0], width = a->a.shape[1], groups = a->offsets.shape[0] - 1;
    enum ax_dtype dtype = a->a.dtype;
    tensor b = &a->b, c = &a->c;
    NEED(is_2d(&a->a, dtype, rows, width));
    NEED(groups >= 1 && is_1d(&a->offsets, AX_I32, groups + 1));
    if (a->trans_a) {
        NEED(b->ndim == 2 && is_2d(b, dtype, rows, b->shape[1]));
        NEED(is_3d(c, accum(&a->a), groups, width, b->shape[1]));
        return NULL;
    }
    NEED(b->ndim == 3 && b->shape[a->trans_b ? 2 : 1] == width);
    NEED(is_3d(b, dtype, groups, b->shape[1], b->shape[2]));
    NEED(is_2d(c, dtype, rows, b->shape[a->trans_b ? 1 : 2]));
    return NULL;
}
