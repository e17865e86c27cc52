/* A view of memory: dtype, up to 4 dimensions, one row stride. It never owns its data.
 *
 * Dimension 0 counts rows, `row_stride` elements from one to the next; dimensions 1… are
 * contiguous. So q, k and v can be slices of one [T][(Hq+2Hk)·hd] buffer, and a weight may be a
 * slice of a flat segment. */
#ifndef AX_KERNELS_TENSOR_H
#define AX_KERNELS_TENSOR_H

#include "kernels/address.h"
#include "kernels/dtype.h"

#define AX_MAX_DIMS 4

struct ax_tensor {
    enum ax_dtype dtype;
    int ndim;
    int64_t shape[AX_MAX_DIMS];
    int64_t row_stride; /* elements from [i][…] to [i+1][…]; = row length if dense */
    bool panels;        /* a weight in the order of kernels/panels.h; few ops accept it */
    void AX_DEVICE *data;
    /* What an op left of numbers that products of 8-bit floats read (struct ax_range_of), or NULL. Views of a
     * tensor and other tensors of its shape have none. */
    float AX_DEVICE *range;
};

/* Dense views of `data`. */
struct ax_tensor ax_tensor_1d(enum ax_dtype dtype, void AX_DEVICE *data, int64_t n);
struct ax_tensor ax_tensor_2d(enum ax_dtype dtype, void AX_DEVICE *data, int64_t rows,
                              int64_t cols);
struct ax_tensor ax_tensor_3d(enum ax_dtype dtype, void AX_DEVICE *data, int64_t a, int64_t b,
                              int64_t c);
struct ax_tensor ax_tensor_nd(enum ax_dtype dtype, void AX_DEVICE *data, int ndim,
                              const int64_t *shape);

int64_t ax_tensor_numel(const struct ax_tensor *t);
int64_t ax_tensor_row_len(const struct ax_tensor *t); /* product of shape[1…]; 1 for 1-D */
size_t ax_tensor_bytes(const struct ax_tensor *t);    /* bytes of the elements, without gaps */
bool ax_tensor_is_dense(const struct ax_tensor *t);

/* Rows [first, first+n) of dimension 0; in panels, whole panels only. */
struct ax_tensor ax_tensor_rows(const struct ax_tensor *t, int64_t first, int64_t n);
/* Columns [first, first+n) of a 2-D tensor, keeping its row stride. Not of panels. */
struct ax_tensor ax_tensor_cols(const struct ax_tensor *t, int64_t first, int64_t n);
/* A 2-D tensor [T][H·hd] viewed as [T][H][hd]. */
struct ax_tensor ax_tensor_heads(const struct ax_tensor *t, int64_t heads, int64_t head_dim);
/* As many elements per row, of a dtype that is no larger, and each row where one of t begins: what may be written where t
 * is read for the last time. */
struct ax_tensor ax_tensor_over(const struct ax_tensor *t, enum ax_dtype dtype);
/* Address of row i. */
void AX_DEVICE *ax_tensor_row(const struct ax_tensor *t, int64_t i);

#endif
