/* The contracts of the ops of packed weights and adapters. */
#include "kernels/ops_check.h"

static int64_t blocks_of(tensor values, int64_t block) {
    return (ax_tensor_numel(values) + block - 1) / block;
}

/* Codes, scales and offsets that belong to these values. */
static const char *check_packed(tensor values, tensor codes, tensor scale, tensor offset,
                                int64_t block, enum ax_quant kind) {
    NEED(given(values) && real(values) && ax_tensor_is_dense(values) && block >= 1);
    int64_t n = ax_tensor_numel(values);
    enum ax_dtype dtype = kind == AX_QUANT_INT8 ? AX_I8 : AX_U8;
    NEED(is_1d(codes, dtype, kind == AX_QUANT_NF4 ? (n + 1) / 2 : n));
    NEED(is_1d(scale, AX_F32, blocks_of(values, block)));
    NEED(given(offset) == (kind == AX_QUANT_MAP8));
    NEED(!given(offset) || is_1d(offset, AX_F32, blocks_of(values, block)));
    return NULL;
}

const char *ax_check_quantize(const struct ax_quantize *a) {
    return check_packed(&a->x, &a->codes, &a->scale, &a->offset, a->block, a->kind);
}

const char *ax_check_dequantize(const struct ax_dequantize *a) {
    return check_packed(&a->out, &a->codes, &a->scale, &a->offset, a->block, a->kind);
}

const char *ax_check_dropout(const struct ax_dropout *a) {
    NEED(a->x.ndim == 2 && real(&a->x));
    NEED(same_shape(&a->x, &a->y) && a->y.dtype == a->x.dtype);
    NEED(a->p >= 0 && a->p < 1 && a->scalars != NULL);
    NEED(a->first_row >= 0 && a->first_col >= 0 && a->first_col + a->x.shape[1] <= a->cols);
    NEED(!a->accumulate || a->x.data != a->y.data);
    NEED(!given(&a->rows) || is_1d(&a->rows, AX_I32, a->x.shape[0]));
    return NULL;
}

const char *ax_check_colscale(const struct ax_colscale *a) {
    NEED(a->x.ndim == 2 && real(&a->x));
    NEED(same_shape(&a->x, &a->y) && a->y.dtype == a->x.dtype);
    NEED(!given(&a->scale) || is_1d(&a->scale, accum(&a->x), a->x.shape[1]));
    NEED(!given(&a->bias) || is_1d(&a->bias, a->bias.dtype, a->x.shape[1]));
    NEED(!given(&a->bias) || (real(&a->bias) && is_stream(&a->x, a->bias.dtype)));
    NEED(!given(&a->addend) || (same_shape(&a->addend, &a->x) && a->addend.dtype == a->x.dtype));
    return NULL;
}

const char *ax_check_coldot(const struct ax_coldot *a) {
    NEED(a->a.ndim == 2 && real(&a->a));
    NEED(same_shape(&a->a, &a->b) && a->b.dtype == a->a.dtype);
    NEED(is_1d(&a->out, accum(&a->a), a->a.shape[1]));
    return NULL;
}

const char *ax_check_dora_norm(const struct ax_dora_norm *a) {
    NEED(a->weight.ndim == 2 && real(&a->weight));
    int64_t rows = a->weight.shape[0], r = a->b.shape[1];
    NEED(is_2d(&a->weight, a->weight.dtype, rows, a->weight.shape[1]));
    NEED(is_2d(&a->b, a->weight.dtype, rows, r));
    NEED(is_2d(&a->p, accum(&a->weight), rows, r));
    NEED(is_1d(&a->out, accum(&a->weight), rows));
    return NULL;
}

const char *ax_check_dora_scale(const struct ax_dora_scale *a) {
    int64_t n = a->magnitude.shape[0];
    enum ax_dtype dtype = accum(&a->magnitude);
    NEED(real(&a->magnitude) && is_1d(&a->magnitude, a->magnitude.dtype, n));
    NEED(is_1d(&a->sumsq, dtype, n) && is_1d(&a->scale, dtype, n) && is_1d(&a->inverse, dtype, n));
    return NULL;
}
