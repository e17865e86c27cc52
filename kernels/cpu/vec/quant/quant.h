/* What the ops of number formats share: pieces of rows go through a buffer of floats in the L1 cache,
 * and the arithmetic is in kernels/quant/quant_block.h, so bits are the same on every instruction set. */
#ifndef AX_KERNELS_CPU_VEC_QUANT_QUANT_H
#define AX_KERNELS_CPU_VEC_QUANT_QUANT_H

#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/quant/quant_block.h"
#include "kernels/quant/scheme.h"

#define BUFFER 2048 /* elements of a piece, even */

/* Before a call whose first argument is the kind, which it makes a constant. */
#define AX_BY_KIND(kind, function, ...)                                                            \
    do {                                                                                           \
        switch (kind) {                                                                            \
            AX_KIND_CASE(INT8, function, __VA_ARGS__)                                              \
            AX_KIND_CASE(INT4, function, __VA_ARGS__)                                              \
            AX_KIND_CASE(INT8_ASYM, function, __VA_ARGS__)                                         \
            AX_KIND_CASE(INT4_ASYM, function, __VA_ARGS__)                                         \
            AX_KIND_CASE(INT4_FP8, function, __VA_ARGS__)                                          \
            AX_KIND_CASE(FP8, function, __VA_ARGS__)                                               \
            AX_KIND_CASE(E5M2, function, __VA_ARGS__)                                              \
            AX_KIND_CASE(NVFP4, function, __VA_ARGS__)                                             \
            AX_KIND_CASE(NVFP4_ONE, function, __VA_ARGS__)                                         \
            AX_KIND_CASE(MXFP4, function, __VA_ARGS__)                                             \
            AX_KIND_CASE(MXFP4_UP, function, __VA_ARGS__)                                          \
            AX_KIND_CASE(MXFP8, function, __VA_ARGS__)                                             \
            AX_KIND_CASE(MXFP8_UP, function, __VA_ARGS__)                                          \
        case AX_QUANT_INT4X2:                                                                      \
        case AX_QUANT_NF4:                                                                         \
        case AX_QUANT_MAP8:                                                                        \
        case AX_QUANT_COUNT:                                                                       \
            break;                                                                                 \
        }                                                                                          \
    } while (0)
#define AX_KIND_CASE(name, function, ...)                                                          \
    case AX_QUANT_##name:                                                                          \
        function(AX_QUANT_##name, __VA_ARGS__);                                                    \
        break;

AX_INLINE void read_vector(enum ax_dtype real, const void *x, float *out, int64_t first, int64_t i,
                           int64_t n) {
    v_store_f32(out + i, n, v_load(real, x, first + i, n));
}

AX_INLINE void read_floats(enum ax_dtype real, const void *x, int64_t first, int64_t n,
                           float *out) {
    AX_EACH_VECTOR(n, read_vector, real, x, out, first);
}

AX_INLINE void write_vector(enum ax_dtype real, const float *x, void *out, int64_t first, int64_t i,
                            int64_t n) {
    v_store(real, out, first + i, n, v_load_f32(x + i, n));
}

AX_INLINE void write_floats(enum ax_dtype real, const float *x, void *out, int64_t first,
                            int64_t n) {
    AX_EACH_VECTOR(n, write_vector, real, x, out, first);
}

/* The largest −x and x of all seen. */
struct extremes {
    float less, more;
};

AX_INLINE void see(struct extremes *e, const float *x, int64_t n) {
    v_float less = v_set(-INFINITY), more = less;
    int64_t i = 0;
    for (; i + AX_LANES <= n; i += AX_LANES) {
        const v_float v = v_load_f32(x + i, AX_LANES);
        less = v_max(less, -v);
        more = v_max(more, v);
    }
    if (i > 0) {
        e->less = ax_greater(v_max_lane(less), e->less);
        e->more = ax_greater(v_max_lane(more), e->more);
    }
    for (; i < n; i++) {
        e->less = ax_greater(-x[i], e->less);
        e->more = ax_greater(x[i], e->more);
    }
}

/* Elements [first, first + n) of a row at `x`, read into `buffer` if they fit into it. */
AX_INLINE struct extremes extremes_of(enum ax_dtype dtype, const void *x, int64_t first, int64_t n,
                                      float *buffer) {
    struct extremes e = {-INFINITY, -INFINITY};
    for (int64_t i = 0; i < n; i += BUFFER) {
        const int64_t part = least(BUFFER, n - i);
        AX_BY_DTYPE(dtype, read_floats, x, first + i, part, buffer);
        see(&e, buffer, part);
    }
    return e;
}

/* The block with those extremes in row `row` of an op's x, whose `range` may say more. */
AX_INLINE struct ax_quant_block block_of(enum ax_quant kind, struct extremes e,
                                         const struct ax_tensor *range, int64_t row) {
    float outer = 0;
    if (range->data != NULL) {
        const float *r = (const float *)range->data + 2 * (range->shape[0] == 1 ? 0 : row);
        if (ax_quant_info(kind)->outer != 1)
            outer = ax_quant_outer(kind, ax_greater(r[0], r[1]));
        else
            e = (struct extremes){r[0], r[1]};
    }
    return ax_quant_block_of(kind, -e.less, e.more, outer);
}

#endif
