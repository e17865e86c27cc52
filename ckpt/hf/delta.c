#include "ckpt/hf/delta.h"

#define PIECE 4096 /* elements changed at a time */

/* Elements [first, first + n) as `wanted`; n ≤ 1 Mi. */
static enum ax_status convert_live(const struct ax_live *s, enum ax_dtype wanted, int64_t first,
                                   int64_t n, void *out) {
    const size_t size = ax_dtype_size(s->dtype);
    const void *host;
    AX_TRY(ax_queue_begin_read(s->q,
                               (const char AX_DEVICE *)s->data + (size_t)(first - s->base) * size,
                               (size_t)n * size, &host));
    ax_convert(wanted, out, s->dtype, host, n);
    ax_queue_end_read(s->q, host);
    return AX_OK;
}

/* v += n elements of s·B·A, in one row from `column` on. */
static void add_change(const struct ax_delta *d, int64_t row, int64_t column, int64_t n,
                       double *v) {
    for (int64_t j = 0; j < d->r; j++) {
        const double s = d->scale * (double)d->b[row * d->r + j];
        const float *a = d->a + j * d->cols + column;
        for (int64_t k = 0; k < n; k++)
            v[k] += s * (double)a[k];
    }
}

enum ax_status ax_delta_convert(const struct ax_delta *d, const struct ax_live *s,
                                enum ax_dtype wanted, int64_t first, int64_t n, void *out) {
    double v[PIECE];
    if (d->r == 0)
        return convert_live(s, wanted, first, n, out);
    for (int64_t i = first, len; i < first + n; i += len) {
        const int64_t at = d->start + i, column = at % d->cols, left = first + n - i;
        len = d->cols - column < PIECE ? d->cols - column : PIECE;
        len = len < left ? len : left;
        AX_TRY(convert_live(s, AX_F64, i, len, v));
        add_change(d, at / d->cols, column, len, v);
        ax_convert(wanted, (char *)out + (size_t)(i - first) * ax_dtype_size(wanted), AX_F64, v,
                   len);
    }
    return AX_OK;
}
