/* gemm: c = alpha · op(a)·op(b) + …, a few rows of c at a time, so that a row of b is read once
 * for all of them. */
#include "kernels/ref/ref.h"

enum { ROWS = AX_REF_GEMM_ROWS };

/* Rows m … of op(a), in columns of `out` [k_len][ROWS]; zeros beyond the last. `room` holds a row. */
static void load_a(const struct ax_gemm *g, int64_t m, int64_t k_len, double *room, double *out) {
    const int64_t rows = g->c.shape[0] - m < ROWS ? g->c.shape[0] - m : ROWS;
    if (rows < ROWS)
        memset(out, 0, (size_t)(k_len * ROWS) * sizeof *out);
    for (int64_t k = 0; k < k_len && g->trans_a; k++)
        ax_ref_load_row(&g->a, k, m, rows, out + k * ROWS);
    for (int64_t r = 0; r < rows && !g->trans_a; r++) {
        const double *row = ax_ref_row(&g->a, m + r, k_len, room);
        for (int64_t k = 0; k < k_len; k++)
            out[k * ROWS + r] = row[k];
    }
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

/* Adds row m of `t`, or zeros, to each ROWS-th of `sums`. */
static void add_row(const struct ax_tensor *t, bool given, int64_t m, int64_t n_len, double *room,
                    double *sums) {
    const double *row = given ? ax_ref_row(t, m, n_len, room) : NULL;
    for (int64_t n = 0; n < n_len; n++)
        sums[n * ROWS] += row != NULL ? row[n] : 0;
}

static void store_row(const struct ax_gemm *g, int64_t m, int64_t n_len, double *room,
                      double *sums) {
    for (int64_t n = 0; n < n_len; n++)
        sums[n * ROWS] =
            g->alpha * sums[n * ROWS] + (ax_ref_given(&g->bias) ? ax_ref_get(&g->bias, n, 0) : 0);
    add_row(&g->addend, ax_ref_given(&g->addend), m, n_len, room, sums);
    add_row(&g->c, g->accumulate, m, n_len, room, sums);
    for (int64_t n = 0; n < n_len; n++)
        room[n] = sums[n * ROWS];
    ax_ref_store_row(&g->c, m, 0, n_len, room);
}

enum ax_status ax_ref_gemm(struct ax_queue *q, const struct ax_gemm *g, void *work) {
    (void)q;
    const int64_t k_len = g->trans_a ? g->a.shape[0] : g->a.shape[1];
    const int64_t m_len = g->c.shape[0], n_len = g->c.shape[1];
    double *a = work;
    double *sums = a + k_len * ROWS;
    double *room = sums + n_len * ROWS;
    for (int64_t m = 0; m < m_len; m += ROWS) {
        load_a(g, m, k_len, room, a);
        multiply(g, a, k_len, n_len, room, sums);
        for (int64_t r = 0; r < ROWS && m + r < m_len; r++)
            store_row(g, m + r, n_len, room, sums + r);
    }
    return AX_OK;
}
