/* The micro-kernel: one outer product per unit of k, summed in registers. There is one for every
 * height and width of tile, so that edges and single rows cost no more than their size. */
#include "kernels/cpu/vec/gemm/gemm.h"

#define MR AX_GEMM_MR
#define NV AX_GEMM_NV
#define NR AX_GEMM_NR

/* pairs, rows and nv are constants after inlining: the loops unroll and sum stays in registers. */
AX_INLINE void tile(bool pairs, int rows, int nv, int64_t units, const float *a, const float *b,
                    float *acc, bool first) {
    v_float sum[MR][NV];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int v = 0; v < nv; v++)
            sum[r][v] = first ? v_set(0) : v_load_f32(acc + r * NR + v * AX_LANES, AX_LANES);
    }
    for (int64_t u = 0; u < units; u++) {
        v_float row[NV];
#pragma GCC unroll 3
        for (int v = 0; v < nv; v++)
            row[v] = v_load_f32(b + v * AX_LANES, AX_LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            v_float x = v_set(a[r]);
#pragma GCC unroll 3
            for (int v = 0; v < nv; v++)
                sum[r][v] = v_multiply_add(pairs, x, row[v], sum[r][v]);
        }
        a += MR;
        b += NR;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int v = 0; v < nv; v++)
            v_store_f32(acc + r * NR + v * AX_LANES, AX_LANES, sum[r][v]);
    }
}

typedef void kernel_fn(int64_t units, const float *a, const float *b, float *acc, bool first);

#define DEFINE(kind, pairs, rows, nv)                                                              \
    static void kind##_##rows##x##nv(int64_t units, const float *a, const float *b, float *acc,    \
                                     bool first) {                                                 \
        tile(pairs, rows, nv, units, a, b, acc, first);                                            \
    }
#define DEFINE_ROWS(kind, pairs, rows)                                                             \
    DEFINE(kind, pairs, rows, 1)                                                                   \
    DEFINE(kind, pairs, rows, 2)                                                                   \
    DEFINE(kind, pairs, rows, 3)
#define NAMES(kind, rows) {kind##_##rows##x1, kind##_##rows##x2, kind##_##rows##x3},

#if AX_GEMM_MR == 8
#define FOR_ROWS_ABOVE_4(X, ...)                                                                   \
    X(__VA_ARGS__, 5) X(__VA_ARGS__, 6) X(__VA_ARGS__, 7) X(__VA_ARGS__, 8)
#else
#define FOR_ROWS_ABOVE_4(X, ...)
#endif
#define FOR_ROWS(X, ...)                                                                           \
    X(__VA_ARGS__, 1)                                                                              \
    X(__VA_ARGS__, 2)                                                                              \
    X(__VA_ARGS__, 3)                                                                              \
    X(__VA_ARGS__, 4)                                                                              \
    FOR_ROWS_ABOVE_4(X, __VA_ARGS__)

FOR_ROWS(DEFINE_ROWS, f32, false)
static kernel_fn *const f32_kernels[MR][NV] = {FOR_ROWS(NAMES, f32)};

#ifdef __AVX512BF16__
FOR_ROWS(DEFINE_ROWS, pairs, true)
static kernel_fn *const pairs_kernels[MR][NV] = {FOR_ROWS(NAMES, pairs)};
#endif

/* The vectors' products take so long that all lines arrive in time. */
static void fetch(const struct ax_gemm_ahead *w) {
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t i = 0; i < w->lines; i++)
            __builtin_prefetch(w->first + r * w->stride + 64 * i, 1);
}

void AX_VEC(ax_gemm_kernel)(bool pairs, int64_t rows, int64_t cols, int64_t units, const float *a,
                            const float *b, float *acc, bool first, struct ax_gemm_caches *caches) {
    if (caches != NULL)
        fetch(&caches->c);
    int64_t nv = (cols + AX_LANES - 1) / AX_LANES;
#ifdef __AVX512BF16__
    if (pairs) {
        pairs_kernels[rows - 1][nv - 1](units, a, b, acc, first);
        return;
    }
#endif
    AX_ASSERT(!pairs);
    f32_kernels[rows - 1][nv - 1](units, a, b, acc, first);
}
