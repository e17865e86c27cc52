/* gemm: c = alpha · op(a)·op(b) + …, one row of c at a time. */
#include "kernels/ref/ref.h"

/* Row m of op(a): contiguous, or a column of a. */
static void load_a(const struct ax_gemm *g, int64_t m, int64_t k_len, double *out) {
    if (!g->trans_a) {
        ax_ref_load_row(&g->a, m, 0, k_len, out);
        return;
    }
    for (int64_t k = 0; k < k_len; k++)
        out[k] = ax_ref_get(&g->a, k, m);
}

/* sums[n] = Σ_k a_row[k] · op(b)[k][n], in order of k. `row` holds one row of b. */
static void multiply_row(const struct ax_gemm *g, const double *a_row, int64_t k_len, int64_t n_len,
                         double *row, double *sums) {
    for (int64_t n = 0; n < n_len && g->trans_b; n++) {
        ax_ref_load_row(&g->b, n, 0, k_len, row);
        double sum = 0;
        for (int64_t k = 0; k < k_len; k++)
            sum += a_row[k] * row[k];
        sums[n] = sum;
    }
    if (g->trans_b)
        return;
    for (int64_t n = 0; n < n_len; n++)
        sums[n] = 0;
    for (int64_t k = 0; k < k_len; k++)
        for (int64_t n = 0; n < n_len; n++)
            sums[n] += a_row[k] * ax_ref_get(&g->b, k, n);
}

enum ax_status ax_ref_gemm(struct ax_queue *q, const struct ax_gemm *g, void *work) {
    (void)q;
    int64_t k_len = g->trans_a ? g->a.shape[0] : g->a.shape[1];
    int64_t n_len = g->c.shape[1];
    double *a_row = work;
    double *b_row = a_row + k_len;
    double *sums = b_row + k_len;
    for (int64_t m = 0; m < g->c.shape[0]; m++) {
        load_a(g, m, k_len, a_row);
        multiply_row(g, a_row, k_len, n_len, b_row, sums);
        for (int64_t n = 0; n < n_len; n++) {
            double value = g->alpha * sums[n];
            value += ax_ref_given(&g->bias) ? ax_ref_get(&g->bias, n, 0) : 0;
            value += ax_ref_given(&g->addend) ? ax_ref_get(&g->addend, m, n) : 0;
            value += g->accumulate ? ax_ref_get(&g->c, m, n) : 0;
            ax_ref_set(&g->c, m, n, value);
        }
    }
    return AX_OK;
}
