/* Products of a few rows with a matrix whose rows run along k, as in decoding: y = x·Wᵀ must read
 * all of W for one or a few rows of x, and reading dominates.
 *
 * Each thread has one contiguous range of W's rows and goes through it in order, so that packing
 * prefetches what the same thread needs next; tiles that threads take alternately would bring half
 * of it into the wrong cache. A panel of W is packed a TURN at a time, multiplied with all rows of
 * x while it is in the L1 cache, and dropped.
 *
 * An element's sum adds the units in ascending order from 0, as everywhere: same bits. */
#include "kernels/cpu/vec/gemm/gemm.h"
#include "kernels/cpu/vec/split.h"

#define MR   AX_GEMM_MR
#define NR   AX_GEMM_NR
#define TURN 96 /* units */
#define MOST (4 * MR)

bool AX_VEC(ax_gemm_is_few)(const struct ax_gemm *g) {
    return g->c.shape[0] <= MOST && g->trans_b && !g->trans_a && g->a.shape[1] > 0;
}

static int64_t units_of(const struct ax_gemm *g) {
    return ax_gemm_pairs(g->a.dtype) ? ceil_div(g->a.shape[1], 2) : g->a.shape[1];
}

/* x in panels of MR rows. */
size_t AX_VEC(ax_gemm_few_workspace)(const struct ax_gemm *g) {
    if (!g->trans_b || g->trans_a)
        return 0;
    const int64_t rows = ceil_div(least(g->c.shape[0], MOST), AX_GEMM_STRIP) * AX_GEMM_STRIP;
    return (size_t)(rows * units_of(g)) * sizeof(float);
}

/* Columns [col, col + cols) of c; x is fully packed. */
static void run_panel(const struct ax_gemm *g, struct ax_gemm_operand w, const float *x,
                      int64_t col, int64_t cols) {
    const bool pairs = ax_gemm_pairs(g->a.dtype);
    const int64_t rows = g->c.shape[0], units = units_of(g);
    const int64_t unit_bytes = (pairs ? 2 : 1) * (int64_t)ax_dtype_size(w.dtype);
    float panel[NR * TURN], acc[MOST * NR];
    for (int64_t u = 0; u < units; u += TURN) {
        const int64_t n = least(TURN, units - u);
        const bool last = u + TURN >= units;
        w.ahead = last ? NR * w.stride - u * unit_bytes : TURN * unit_bytes;
        AX_VEC(ax_gemm_pack_b)(panel, &w, col, cols, u, n);
        for (int64_t r = 0; r < rows; r += MR) {
            AX_VEC(ax_gemm_kernel)
            (pairs, least(MR, rows - r), cols, n, x + r * units + u * MR, panel, acc + r * NR,
             u == 0, NULL);
        }
    }
    for (int64_t r = 0; r < rows; r += MR)
        AX_VEC(ax_gemm_store)(g, acc + r * NR, r, col, least(MR, rows - r), cols);
}

void AX_VEC(ax_gemm_few)(const struct ax_gemm *g, int threads, float *work) {
    const struct ax_gemm_operand x = ax_gemm_rows_along_k(&g->a), w = ax_gemm_rows_along_k(&g->b);
    const int64_t n = g->c.shape[1], panels = ceil_div(n, NR);
    AX_VEC(ax_gemm_pack_a)(work, &x, 0, g->c.shape[0], 0, units_of(g));
    AX_PARALLEL_FOR (threads, i, panels)
        run_panel(g, w, work, i * NR, least(NR, n - i * NR));
}
