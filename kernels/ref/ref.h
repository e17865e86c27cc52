/* The reference backend: every op exactly as its formula, one element at a time, sums in double.
 *
 * Plain on purpose: sums are in the order of their formula and nothing is threaded, so a wrong
 * index or mesh shows at 1e-11 in F64 instead of hiding in a fast kernel's rounding. */
#ifndef AX_KERNELS_REF_REF_H
#define AX_KERNELS_REF_REF_H

#include <string.h>

#include "kernels/panels.h"
#include "kernels/queue.h"

#define AX_REF_ENTRY(op)                                                                           \
    enum ax_status ax_ref_##op(struct ax_queue *q, const struct ax_##op *args, void *work);
AX_OP_LIST(AX_REF_ENTRY)
#undef AX_REF_ENTRY

#define AX_REF_GEMM_ROWS 8 /* rows of c that gemm computes together */

/* Elements [0, n) of row `row` from column `col` on, as doubles, and back (each rounded once). */
void ax_ref_load_row(const struct ax_tensor *t, int64_t row, int64_t col, int64_t n, double *out);
void ax_ref_store_row(const struct ax_tensor *t, int64_t row, int64_t col, int64_t n,
                      const double *values);

/* The first n elements of row `row` as doubles: where they are, if they are doubles, else a copy
 * in room[n]. */
const double *ax_ref_row(const struct ax_tensor *t, int64_t row, int64_t n, double *room);

/* `value` after being stored as dtype. */
double ax_ref_round(enum ax_dtype dtype, double value);

/* Element [row][col] of a tensor with flattened rows. Doubles are most of what is computed here, so
 * they cost no call. */
static inline double ax_ref_get(const struct ax_tensor *t, int64_t row, int64_t col) {
    const int64_t i = t->panels ? ax_panels_at(t->shape[1], row, col) : row * t->row_stride + col;
    double x;
    if (t->dtype != AX_F64)
        return ax_load(t->dtype, t->data, i);
    memcpy(&x, (const char *)t->data + (size_t)i * sizeof x, sizeof x);
    return x;
}

static inline void ax_ref_set(const struct ax_tensor *t, int64_t row, int64_t col, double value) {
    if (t->dtype == AX_F64)
        ((double *)t->data)[row * t->row_stride + col] = value;
    else
        ax_store(t->dtype, t->data, row * t->row_stride + col, value);
}

static inline int32_t ax_ref_i32(const struct ax_tensor *t, int64_t i) {
    return ((const int32_t *)t->data)[i];
}

static inline bool ax_ref_given(const struct ax_tensor *t) {
    return t->data != NULL;
}

/* Sets a range, if it is asked for, after y is written. */
static inline enum ax_status ax_ref_leave_range(struct ax_queue *q, const struct ax_range_of *range,
                                                const struct ax_tensor *y) {
    const int64_t rows = range->rows < y->shape[0] ? range->rows : y->shape[0];
    if (!ax_ref_given(&range->t))
        return AX_OK;
    return ax_ref_quant_range(
        q, &(struct ax_quant_range){.x = ax_tensor_rows(y, 0, rows), .range = range->t}, NULL);
}

#endif
