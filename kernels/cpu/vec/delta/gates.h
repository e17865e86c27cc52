/* What delta_gates.c and ssd_gates.c share, private to this folder: elements of rows, and softplus. */
#ifndef AX_KERNELS_CPU_VEC_DELTA_GATES_H
#define AX_KERNELS_CPU_VEC_DELTA_GATES_H

#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"

/* ln(1 + e^x). */
static inline float softplus(float x) {
    return x > 0 ? x + log1pf(exp_one(-x)) : log1pf(exp_one(x));
}

static inline float at(const struct ax_tensor *t, int64_t row, int64_t col) {
    return (float)ax_load(t->dtype, t->data, row * t->row_stride + col);
}
static inline void put(const struct ax_tensor *t, int64_t row, int64_t col, float x) {
    ax_store(t->dtype, t->data, row * t->row_stride + col, (double)x);
}
static inline float of_head(const struct ax_tensor *t, int64_t h) {
    return (float)ax_load(t->dtype, t->data, h);
}

#endif
