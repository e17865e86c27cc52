/* Views of memory: creating, measuring and slicing them. Nothing here reads what they point to, so
 * it also works on the made-up addresses of a planning arena. */
#include "kernels/tensor.h"

#include "kernels/panels.h"

struct ax_tensor ax_tensor_nd(enum ax_dtype dtype, void *data, int ndim, const int64_t *shape) {
    AX_ASSERT(ndim >= 1 && ndim <= AX_MAX_DIMS);
    struct ax_tensor t = {.dtype = dtype, .ndim = ndim, .row_stride = 1, .data = data};
    for (int i = 0; i < ndim; i++) {
        AX_ASSERT(shape[i] >= 0);
        t.shape[i] = shape[i];
        t.row_stride *= i > 0 ? shape[i] : 1;
    }
    return t;
}

struct ax_tensor ax_tensor_1d(enum ax_dtype dtype, void *data, int64_t n) {
    return ax_tensor_nd(dtype, data, 1, &n);
}

struct ax_tensor ax_tensor_2d(enum ax_dtype dtype, void *data, int64_t rows, int64_t cols) {
    return ax_tensor_nd(dtype, data, 2, (const int64_t[]){rows, cols});
}

struct ax_tensor ax_tensor_3d(enum ax_dtype dtype, void *data, int64_t a, int64_t b, int64_t c) {
    return ax_tensor_nd(dtype, data, 3, (const int64_t[]){a, b, c});
}

int64_t ax_tensor_row_len(const struct ax_tensor *t) {
    int64_t n = 1;
    for (int i = 1; i < t->ndim; i++)
        n *= t->shape[i];
    return n;
}

int64_t ax_tensor_numel(const struct ax_tensor *t) {
    return t->ndim == 0 ? 0 : t->shape[0] * ax_tensor_row_len(t);
}

size_t ax_tensor_bytes(const struct ax_tensor *t) {
    return (size_t)ax_tensor_numel(t) * ax_dtype_size(t->dtype);
}

bool ax_tensor_is_dense(const struct ax_tensor *t) {
    return t->shape[0] <= 1 || t->row_stride == ax_tensor_row_len(t);
}

/* Any slice of a missing tensor (data NULL) is missing. */
static void *advance(const struct ax_tensor *t, int64_t elements) {
    if (t->data == NULL)
        return NULL;
    return (char *)t->data + elements * (int64_t)ax_dtype_size(t->dtype);
}

void *ax_tensor_row(const struct ax_tensor *t, int64_t i) {
    return advance(t, i * t->row_stride);
}

struct ax_tensor ax_tensor_rows(const struct ax_tensor *t, int64_t first, int64_t n) {
    AX_ASSERT(first >= 0 && n >= 0 && first + n <= t->shape[0]);
    AX_ASSERT(!t->panels || (first % AX_PANEL_ROWS == 0 && n % AX_PANEL_ROWS == 0));
    struct ax_tensor view = *t;
    view.shape[0] = n;
    view.data = ax_tensor_row(t, first);
    view.range = NULL;
    return view;
}

struct ax_tensor ax_tensor_cols(const struct ax_tensor *t, int64_t first, int64_t n) {
    AX_ASSERT(t->ndim == 2 && first >= 0 && n >= 0 && first + n <= t->shape[1] && !t->panels);
    struct ax_tensor view = *t;
    view.shape[1] = n;
    view.data = advance(t, first);
    view.range = NULL;
    return view;
}

struct ax_tensor ax_tensor_over(const struct ax_tensor *t, enum ax_dtype dtype) {
    const size_t from = ax_dtype_size(t->dtype), to = ax_dtype_size(dtype);
    AX_ASSERT(to <= from && from % to == 0 && !t->panels);
    struct ax_tensor view = *t;
    view.dtype = dtype;
    view.row_stride *= (int64_t)(from / to);
    return view;
}

struct ax_tensor ax_tensor_heads(const struct ax_tensor *t, int64_t heads, int64_t head_dim) {
    AX_ASSERT(t->ndim == 2 && heads * head_dim == t->shape[1]);
    struct ax_tensor view = *t;
    view.ndim = 3;
    view.shape[1] = heads;
    view.shape[2] = head_dim;
    view.range = NULL;
    return view;
}
