/* Products of a few rows with a weight whose rows run along k, or in panels, on tiles: the weight is
 * read where it is, once, as the left operand if its tiles in memory are rows of units (the sums are
 * then transposed), as the right one if it is in panels. Only the edges are copied first. x is packed
 * as the other operand. Sums are in the order of all other products on tiles: same bits.
 *
 * Each thread has one contiguous range of the weight, and prefetches what it reads next: reading from
 * memory is what takes the time. */
#include "kernels/cpu/vec/gemm/gemm_tiles.h"
#include "kernels/cpu/vec/split.h"

#define MOST 64 /* rows: as many tiles of sums as there is room for beside the operands */

bool AX_VEC(ax_gemm_is_few)(const struct ax_gemm *g) {
    return g->c.shape[0] <= MOST && g->trans_b && !g->trans_a && g->a.shape[1] > 0;
}

/* x in tiles: [⌈rows / 16⌉][units / 16]. */
size_t AX_VEC(ax_gemm_few_workspace)(const struct ax_gemm *g) {
    if (!g->trans_b || g->trans_a)
        return 0;
    const int64_t tiles = ceil_div(least(g->c.shape[0], MOST), AX_TILE_ROWS);
    const int64_t units = ax_gemm_units(g->a.dtype, g->a.shape[1]);
    return (size_t)(tiles * AX_TILE_ROWS * units) * sizeof(float);
}

/* A tile where it is in memory or, if it is not full, in a copy. */
struct place {
    const void *at;
    int64_t stride;
};

static struct place weight_tile(const struct ax_gemm_operand *w, int64_t col, int64_t cols,
                                int64_t unit, float *copy) {
    if (cols < AX_TILE_ROWS || w->k - 2 * unit < 2 * AX_TILE_UNITS) {
        ax_gemm_pack_tile(copy, w, w->panels, col, cols, unit);
        return (struct place){copy, 64};
    }
    const struct place p = {ax_gemm_tile_at(w, col, unit), w->panels ? 64 : w->stride};
    const char *next = (const char *)p.at + AX_TILE_ROWS * w->stride; /* a tile's rows further */
    for (int64_t i = 0; i < AX_TILE_ROWS; i++)
        __builtin_prefetch(next + i * p.stride, 0, 2);
    return p;
}

/* One tile of the weight with up to four of x, as left or right operands. */
static void add_left(struct place w, const float *x, int64_t step, int64_t tiles) {
    AX_TILE_LOAD(4, w.at, w.stride);
    AX_TILE_LOAD(5, x, 64);
    AX_TILE_DOT(0, 4, 5);
    if (tiles > 1) {
        AX_TILE_LOAD(6, x + step, 64);
        AX_TILE_DOT(1, 4, 6);
    }
    if (tiles > 2) {
        AX_TILE_LOAD(7, x + 2 * step, 64);
        AX_TILE_DOT(2, 4, 7);
    }
    if (tiles > 3) {
        AX_TILE_LOAD(5, x + 3 * step, 64);
        AX_TILE_DOT(3, 4, 5);
    }
}

static void add_right(struct place w, const float *x, int64_t step, int64_t tiles) {
    AX_TILE_LOAD(4, w.at, w.stride);
    AX_TILE_LOAD(5, x, 64);
    AX_TILE_DOT(0, 5, 4);
    if (tiles > 1) {
        AX_TILE_LOAD(6, x + step, 64);
        AX_TILE_DOT(1, 6, 4);
    }
    if (tiles > 2) {
        AX_TILE_LOAD(7, x + 2 * step, 64);
        AX_TILE_DOT(2, 7, 4);
    }
    if (tiles > 3) {
        AX_TILE_LOAD(5, x + 3 * step, 64);
        AX_TILE_DOT(3, 5, 4);
    }
}

/* sums: [rows][16], or its transpose [16][rows] in tiles. */
static void store_columns(const struct ax_gemm *g, float *sums, bool transposed, int64_t col,
                          int64_t cols) {
    float acc[AX_TILE_ROWS * AX_GEMM_NR];
    for (int64_t r = 0; r < g->c.shape[0]; r += AX_TILE_ROWS, sums += AX_TILE_SIZE) {
        v_float x[AX_LANES];
        for (int i = 0; i < AX_LANES; i++)
            x[i] = v_load_f32(sums + i * AX_LANES, AX_LANES);
        if (transposed)
            transpose(x);
        for (int i = 0; i < AX_LANES; i++)
            v_store_f32(acc + i * AX_GEMM_NR, AX_LANES, x[i]);
        AX_VEC(ax_gemm_store)(g, acc, r, col, least(g->c.shape[0] - r, AX_TILE_ROWS), cols);
    }
}

/* Columns [col, col + cols) of c; x is packed. */
static void run_columns(const struct ax_gemm *g, const struct ax_gemm_operand *w, const float *x,
                        int64_t col, int64_t cols) {
    const int64_t units = ax_gemm_units(g->a.dtype, w->k);
    const int64_t tiles = ceil_div(g->c.shape[0], AX_TILE_ROWS), step = AX_TILE_ROWS * units;
    float copy[AX_TILE_SIZE], sums[4 * AX_TILE_SIZE];
    AX_TILE_ZERO(0);
    AX_TILE_ZERO(1);
    AX_TILE_ZERO(2);
    AX_TILE_ZERO(3);
    for (int64_t u = 0; u < units; u += AX_TILE_UNITS) {
        const struct place tile = weight_tile(w, col, cols, u, copy);
        if (w->panels)
            add_right(tile, x + u * AX_TILE_ROWS, step, tiles);
        else
            add_left(tile, x + u * AX_TILE_ROWS, step, tiles);
    }
    AX_TILE_STORE(0, sums, 64);
    AX_TILE_STORE(1, sums + AX_TILE_SIZE, 64);
    AX_TILE_STORE(2, sums + 2 * AX_TILE_SIZE, 64);
    AX_TILE_STORE(3, sums + 3 * AX_TILE_SIZE, 64);
    store_columns(g, sums, !w->panels, col, cols);
}

void AX_VEC(ax_gemm_few)(const struct ax_gemm *g, int threads, float *work) {
    const struct ax_gemm_operand x = ax_gemm_rows_along_k(&g->a), w = ax_gemm_rows_along_k(&g->b);
    const int64_t n = g->c.shape[1], units = ax_gemm_units(g->a.dtype, x.k);
    float *to = work;
    for (int64_t r = 0; r < g->c.shape[0]; r += AX_TILE_ROWS)
        for (int64_t u = 0; u < units; u += AX_TILE_UNITS, to += AX_TILE_SIZE)
            ax_gemm_pack_tile(to, &x, !w.panels, r, g->c.shape[0] - r, u);
    struct ax_turns turns;
    ax_turns_start(&turns, ceil_div(n, AX_TILE_ROWS), threads);
#pragma omp parallel num_threads(threads)
    {
        ax_tiles_begin();
        AX_TURNS_FOR (&turns, omp_get_thread_num(), i) {
            const int64_t col = i * AX_TILE_ROWS;
            run_columns(g, &w, work, col, least(AX_TILE_ROWS, n - col));
        }
        ax_tiles_end();
    }
}
