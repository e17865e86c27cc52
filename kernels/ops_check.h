/* Conditions on operands in the words of the contract (kernels/ops.h): what ops_check*.c share. */
#ifndef AX_KERNELS_OPS_CHECK_H
#define AX_KERNELS_OPS_CHECK_H

#include "kernels/operands.h"

#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return #condition;                                                                     \
        }                                                                                          \
    } while (0)

typedef const struct ax_tensor *tensor;

static inline bool given(tensor t) {
    return t->data != NULL;
}

static inline bool real(tensor t) {
    return t->dtype == AX_F64 || t->dtype == AX_F32 || t->dtype == AX_BF16;
}

static inline bool rows_apart(tensor t) {
    return t->shape[0] <= 1 || t->row_stride >= ax_tensor_row_len(t);
}

static inline bool is_1d(tensor t, enum ax_dtype dtype, int64_t n) {
    return given(t) && t->ndim == 1 && t->dtype == dtype && t->shape[0] == n &&
           ax_tensor_is_dense(t);
}

static inline bool is_2d(tensor t, enum ax_dtype dtype, int64_t rows, int64_t cols) {
    return given(t) && t->ndim == 2 && t->dtype == dtype && t->shape[0] == rows &&
           t->shape[1] == cols && rows_apart(t);
}

static inline bool is_3d(tensor t, enum ax_dtype dtype, int64_t a, int64_t b, int64_t c) {
    return given(t) && t->ndim == 3 && t->dtype == dtype && t->shape[0] == a && t->shape[1] == b &&
           t->shape[2] == c && rows_apart(t);
}

static inline bool same_shape(tensor a, tensor b) {
    bool same = given(a) && given(b) && a->ndim == b->ndim && rows_apart(a) && rows_apart(b);
    for (int i = 0; i < a->ndim && same; i++) {
        same = a->shape[i] == b->shape[i];
    }
    return same;
}

static inline enum ax_dtype accum(tensor t) {
    return ax_dtype_accum(t->dtype);
}

/* Same values kept as the op's dtype or in what it accumulates. */
static inline bool real_or_accum(tensor t, tensor other) {
    return real(t) && real(other) &&
           (t->dtype == other->dtype || t->dtype == accum(other) || other->dtype == accum(t));
}

/* "stream" of ops.h, for operands of dtype `of`. */
static inline bool is_stream(tensor t, enum ax_dtype of) {
    return t->dtype == of || t->dtype == ax_dtype_accum(of);
}

/* i32 [rows] or [rows][k]. */
static inline bool is_index(tensor t, int64_t rows) {
    return given(t) && (t->ndim == 1 || t->ndim == 2) && t->dtype == AX_I32 &&
           t->shape[0] == rows && ax_tensor_is_dense(t);
}

static inline bool sums(tensor t) {
    return t->dtype == AX_F32 || t->dtype == AX_F64;
}

static inline bool is_dense_2d(tensor t, enum ax_dtype dtype, int64_t rows, int64_t cols) {
    return is_2d(t, dtype, rows, cols) && ax_tensor_is_dense(t);
}

/* The first condition that these arguments break (its text), or NULL: one function per op. */
#define AX_OP_CHECK(op) const char *ax_check_##op(const struct ax_##op *args);
AX_OP_LIST(AX_OP_CHECK)
#undef AX_OP_CHECK

#endif
