/* Blocks of every input are widened, combined in rank order and narrowed. */
#include "parallel/fabric/reduce.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 }; /* elements; three such buffers fit the L1 cache */

#define COMBINE(type)                                                                              \
    static void combine_##type(enum ax_reduction reduction, type *restrict acc,                    \
                               const type *restrict x, int64_t n) {                                \
        if (reduction == AX_SUM) {                                                                 \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] += x[i];                                                                    \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                acc[i] = acc[i] >= x[i] || isnan(acc[i]) ? acc[i] : x[i];                          \
        }                                                                                          \
    }
COMBINE(double)
COMBINE(float)

static void reduce_float(enum ax_reduction reduction, enum ax_dtype dtype, char *out,
                         const void *const *in, int n, int64_t at, int64_t m) {
    const size_t offset = (size_t)at * ax_dtype_size(dtype);
    if (ax_dtype_accum(dtype) == AX_F64) {
        double acc[BLOCK], x[BLOCK];
        ax_convert(AX_F64, acc, dtype, (const char *)in[0] + offset, m);
        for (int r = 1; r < n; r++) {
            ax_convert(AX_F64, x, dtype, (const char *)in[r] + offset, m);
            combine_double(reduction, acc, x, m);
        }
        ax_convert(dtype, out + offset, AX_F64, acc, m);
        return;
    }
    float acc[BLOCK], x[BLOCK];
    ax_convert(AX_F32, acc, dtype, (const char *)in[0] + offset, m);
    for (int r = 1; r < n; r++) {
        ax_convert(AX_F32, x, dtype, (const char *)in[r] + offset, m);
        combine_float(reduction, acc, x, m);
    }
    ax_convert(dtype, out + offset, AX_F32, acc, m);
}

/* Widened to 64 bits with wrapping sums; the low bytes are the wrapped narrow sum. */
static int64_t load_integer(enum ax_dtype dtype, const void *data, int64_t i) {
    int64_t wide;
    int32_t narrow;
    int16_t half;
    switch (dtype) {
    case AX_I64:
        memcpy(&wide, (const char *)data + 8 * i, sizeof wide);
        return wide;
    case AX_I32:
        memcpy(&narrow, (const char *)data + 4 * i, sizeof narrow);
        return narrow;
    case AX_I16:
        memcpy(&half, (const char *)data + 2 * i, sizeof half);
        return half;
    case AX_I8:
        return ((const int8_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

static void reduce_integer(enum ax_reduction reduction, enum ax_dtype dtype, char *out,
                           const void *const *in, int n, int64_t at) {
    const size_t size = ax_dtype_size(dtype);
    int64_t acc = load_integer(dtype, in[0], at);
    for (int r = 1; r < n; r++) {
        const int64_t x = load_integer(dtype, in[r], at);
        if (reduction == AX_SUM)
            acc = (int64_t)((uint64_t)acc + (uint64_t)x);
        else if (x > acc)
            acc = x;
    }
    memcpy(out + (size_t)at * size, &acc, size); /* little endian: the low bytes come first */
}

void ax_reduce_ordered(enum ax_reduction reduction, enum ax_dtype dtype, void *out,
                       const void *const *in, int n, int64_t count) {
    AX_ASSERT(n > 0);
    if (!ax_dtype_info(dtype)->is_float) {
        for (int64_t i = 0; i < count; i++)
            reduce_integer(reduction, dtype, out, in, n, i);
        return;
    }
    for (int64_t at = 0; at < count; at += BLOCK)
        reduce_float(reduction, dtype, out, in, n, at, count - at < BLOCK ? count - at : BLOCK);
}
