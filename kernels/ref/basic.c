/* fill, copy, transpose, colsum, scatter_rows, and the ops that are formulas of elements. */
#include <math.h>
#include <string.h>

#include "kernels/pointwise.h"
#include "kernels/ref/ref.h"

enum ax_status ax_ref_fill(struct ax_queue *q, const struct ax_fill *a, void *work) {
    (void)q;
    (void)work;
    int64_t n = ax_tensor_row_len(&a->dst);
    for (int64_t r = 0; r < a->dst.shape[0]; r++)
        for (int64_t c = 0; c < n; c++)
            ax_ref_set(&a->dst, r, c, a->value);
    return AX_OK;
}

enum ax_status ax_ref_copy(struct ax_queue *q, const struct ax_copy *a, void *work) {
    (void)q;
    (void)work;
    int64_t n = ax_tensor_row_len(&a->dst);
    for (int64_t r = 0; r < a->dst.shape[0]; r++) {
        ax_convert(a->dst.dtype, ax_tensor_row(&a->dst, r), a->src.dtype, ax_tensor_row(&a->src, r),
                   n);
    }
    return AX_OK;
}

#define AX_EACH(p)       (p)
#define AX_FMA(a, b, c)  ((a) * (b) + (c))
#define AX_FNMA(a, b, c) ((c) - (a) * (b))
#define AX_OVER_R(x)     ((x) / r)
#define AX_CAP(x)        (r * tanh(p * (x) / r))
#define AX_POSITIVE(x)   fmax(0, x)

#define DEFINE_POINTWISE(op, Z, X, Y, INPUTS, P, R, FORMULA)                                       \
    enum ax_status ax_ref_##op(struct ax_queue *q, const struct ax_##op *a, void *work) {          \
        const int64_t n = ax_tensor_row_len(&a->Z);                                                \
        const double p = P, r = R;                                                                 \
        (void)q;                                                                                   \
        (void)work;                                                                                \
        (void)p;                                                                                   \
        (void)r;                                                                                   \
        for (int64_t t = 0; t < a->Z.shape[0]; t++)                                                \
            for (int64_t c = 0; c < n; c++) {                                                      \
                const double x = ax_ref_get(&a->X, t, c);                                          \
                const double y = INPUTS > 1 ? ax_ref_get(&a->Y, t, c) : 0;                         \
                (void)y;                                                                           \
                ax_ref_set(&a->Z, t, c, FORMULA);                                                  \
            }                                                                                      \
        return AX_OK;                                                                              \
    }
AX_POINTWISE(DEFINE_POINTWISE)

enum ax_status ax_ref_transpose(struct ax_queue *q, const struct ax_transpose *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t r = 0; r < a->dst.shape[0]; r++)
        for (int64_t c = 0; c < a->dst.shape[1]; c++) {
            const double x = ax_ref_get(&a->src, c, r);
            ax_ref_set(&a->dst, r, c,
                       a->accumulate ? AX_FMA(a->alpha, x, ax_ref_get(&a->dst, r, c))
                                     : a->alpha * x);
        }
    return AX_OK;
}

enum ax_status ax_ref_colsum(struct ax_queue *q, const struct ax_colsum *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < a->x.shape[1]; n++) {
        double sum = 0;
        for (int64_t t = 0; t < a->x.shape[0]; t++)
            sum += ax_ref_get(&a->x, t, n);
        ax_ref_set(&a->out, n, 0, ax_ref_get(&a->out, n, 0) + sum);
    }
    return AX_OK;
}

enum ax_status ax_ref_scatter_rows(struct ax_queue *q, const struct ax_scatter_rows *a,
                                   void *work) {
    (void)q;
    (void)work;
    size_t bytes = (size_t)ax_tensor_row_len(&a->src) * ax_dtype_size(a->src.dtype);
    int64_t copies = ax_tensor_row_len(&a->rows);
    for (int64_t i = 0; i < a->src.shape[0] * copies; i++) {
        int32_t to = ax_ref_i32(&a->rows, i);
        AX_ASSERT(to >= -1 && to < a->dst.shape[0]);
        if (to >= 0)
            memcpy(ax_tensor_row(&a->dst, to), ax_tensor_row(&a->src, i / copies), bytes);
    }
    return AX_OK;
}
