/* Rows as doubles. */
#include "kernels/ref/ref.h"

void ax_ref_load_row(const struct ax_tensor *t, int64_t row, int64_t col, int64_t n, double *out) {
    for (int64_t i = 0; i < n && t->panels; i++)
        out[i] = ax_ref_get(t, row, col + i);
    if (t->panels)
        return;
    const char *from = (const char *)ax_tensor_row(t, row) + (size_t)col * ax_dtype_size(t->dtype);
    ax_convert(AX_F64, out, t->dtype, from, n);
}

const double *ax_ref_row(const struct ax_tensor *t, int64_t row, int64_t n, double *room) {
    if (t->dtype == AX_F64 && !t->panels)
        return ax_tensor_row(t, row);
    ax_ref_load_row(t, row, 0, n, room);
    return room;
}

void ax_ref_store_row(const struct ax_tensor *t, int64_t row, int64_t col, int64_t n,
                      const double *values) {
    char *to = (char *)ax_tensor_row(t, row) + (size_t)col * ax_dtype_size(t->dtype);
    ax_convert(t->dtype, to, AX_F64, values, n);
}

double ax_ref_round(enum ax_dtype dtype, double value) {
    double room; /* large enough for any element */
    ax_store(dtype, &room, 0, value);
    return ax_load(dtype, &room, 0);
}
