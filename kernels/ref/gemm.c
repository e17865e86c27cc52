/* gemm: c = alpha · op(a)·op(b) + …, a few rows of c at a time, so that a row of b is read once
 * for all of them. */
#include "kernels/ref/ref.h"

enum { ROWS = AX_REF_GEMM_ROWS };

/* Rows m … of op(a), in columns of `out` [k_len][ROWS]; zeros beyond the last. */
static void load_a(const struct ax_gemm *g, int64_t m, int64_t k_len, double *out) {
    const int64_t rows = g->c.shape[0] - m < ROWS ? g->c.shape[0] - m : ROWS;
    for (int64_t k = 0; k < k_len; k++)
        for (int64_t r = 0; r < ROWS; r++)
            out[k * ROWS + r] = r >= rows    ? 0
                                : g->trans_a ? ax_ref_get(&g->a, k, m + r)
                                             : ax_ref_get(&g->a, m + r, k);
}

static inline void add(double *restrict sums, const double *restrict a, double b) {
#pragma GCC unroll 8 /* so that sums stay in registers */
    for (int r = 0; r < ROWS; r++)
        sums[r] += a[r] * b;
}

/* No bit depends on it. GCC's choice of a clone runs before its thread sanitizer does. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define WITH_AVX2
#endif

/* sums[n][r] = Σ_k a[k][r] · op(b)[k][n], each in order of k. `room` holds one row of b. */
WITH_AVX2 static void multiply(const struct ax_gemm *g, const double *a, int64_t k_len,
                               int64_t n_len, double *room, double *sums) {
    memset(sums, 0, (size_t)(n_len * ROWS) * sizeof *sums);
    for (int64_t n = 0; n < n_len && g->trans_b; n++) {
        const double *row = ax_ref_row(&g->b, n, k_len, room);
        double sum[ROWS] = {0};
        for (int64_t k = 0; k < k_len; k++)
            add(sum, a + k * ROWS, row[k]);
        memcpy(sums + n * ROWS, sum, sizeof sum);
    }
    for (int64_t k = 0; k < k_len && !g->trans_b; k++) {
        const double *row = ax_ref_row(&g->b, k, n_len, room);
        for (int64_t n = 0; n < n_len; n++)
            add(sums + n * ROWS, a + k * ROWS, row[n]);
    }
}

static void store_row(const struct ax_gemm *g, int64_t m, int64_t n_len, const double *sums) {
    for (int64_t n = 0; n < n_len; n++) {
        double value = g->alpha * sums[n * ROWS];
        value += ax_ref_given(&g->bias) ? ax_ref_get(&g->bias, n, 0) : 0;
        value += ax_ref_given(&g->addend) ? ax_ref_get(&g->addend, m, n) : 0;
        value += g->accumulate ? ax_ref_get(&g->c, m, n) : 0;
        ax_ref_set(&g->c, m, n, value);
    }
}

enum ax_status ax_ref_gemm(struct ax_queue *q, const struct ax_gemm *g, void *work) {
    (void)q;
    const int64_t k_len = g->trans_a ? g->a.shape[0] : g->a.shape[1];
    const int64_t m_len = g->c.shape[0], n_len = g->c.shape[1];
    double *a = work;
    double *sums = a + k_len * ROWS;
    double *room = sums + n_len * ROWS;
    for (int64_t m = 0; m < m_len; m += ROWS) {
        load_a(g, m, k_len, a);
        multiply(g, a, k_len, n_len, room, sums);
        for (int64_t r = 0; r < ROWS && m + r < m_len; r++)
            store_row(g, m + r, n_len, sums + r);
    }
    return AX_OK;
}
