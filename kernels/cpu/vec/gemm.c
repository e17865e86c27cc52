/* Matrix products: how c is cut into tiles, and the loops around the micro-kernel.
 *
 * A thread takes a tile of c. It packs the tile's rows of op(a), which then stay in the
 * second-level cache, and one panel of op(b) at a time, which it multiplies with all of them.
 * Packing an element of op(b) is thus shared by tile_m multiply-adds and one of op(a) by tile_n,
 * and threads never wait for each other. gemm.h says why no bit depends on any of this. */
#include "kernels/cpu/vec/gemm.h"

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"

#define MR AX_GEMM_MR
#define NR AX_GEMM_NR

/* With this many units of k in a block, a tile's rows of op(a) fit the second-level cache. */
#define MAX_BLOCK  384
#define MAX_TILE_M 384
#define MAX_TILE_N 3072
/* Few rows are done with a panel long before the next one has come from memory. With small panels
 * the memory never rests. */
#define FEW_ROWS  16
#define FEW_BLOCK 32
/* Below this many multiply-adds one thread is faster than waking the others. */
#define ALONE (1 << 17)

struct plan {
    struct ax_gemm_operand a, b;
    int64_t m, n, units;      /* of c, and of k */
    int64_t tile_m, tile_n;   /* of a tile: multiples of 2·MR and of NR */
    int64_t tiles_m, tiles_n; /* tiles in c */
    int64_t block;            /* units of k packed at once */
    bool keep_a;              /* but a tile's rows of op(a) are packed along all of k, and kept */
    int threads;
    int64_t a_floats, b_floats, acc_floats; /* workspace of a thread */
};

static struct ax_gemm_operand operand(const struct ax_tensor *t, bool k_inside) {
    return (struct ax_gemm_operand){.data = t->data,
                                    .stride = t->row_stride * (int64_t)ax_dtype_size(t->dtype),
                                    .k = t->shape[k_inside ? 1 : 0],
                                    .dtype = t->dtype,
                                    .k_inside = k_inside};
}

static int64_t round_up(int64_t n, int64_t to) {
    return ceil_div(n, to) * to;
}

static void set_tiles(struct plan *p, int64_t parts_m, int64_t parts_n) {
    p->tile_m = round_up(ceil_div(p->m, parts_m), 2 * MR);
    p->tile_n = round_up(ceil_div(p->n, parts_n), NR);
    p->tiles_m = ceil_div(p->m, p->tile_m);
    p->tiles_n = ceil_div(p->n, p->tile_n);
    p->keep_a = p->tile_m * p->units <= MAX_TILE_M * MAX_BLOCK;
}

/* Time until the last thread is done, in multiply-adds per unit of k: packing an element takes as
 * long as PACK of them, and threads differ by SPREAD of a tile because machines do other things
 * too. */
static double tiles_cost(const struct plan *p) {
    const double PACK = 12, SPREAD = p->threads > 1 ? 0.05 : 0;
    double tile_m = (double)p->tile_m, tile_n = (double)p->tile_n;
    double tile = tile_m * tile_n + PACK * tile_n;
    int64_t turns = ceil_div(p->tiles_m * p->tiles_n, p->threads);
    int64_t packs = p->keep_a ? least(turns, ceil_div(turns, p->tiles_n) + 1) : turns;
    return ((double)turns + SPREAD) * tile + (double)packs * PACK * tile_m;
}

static void choose_tiles(struct plan *p) {
    const int64_t min_m = ceil_div(p->m, MAX_TILE_M), min_n = ceil_div(p->n, MAX_TILE_N);
    struct plan best = *p;
    double best_cost = 0;
    p->tile_m = INT64_MAX;
    for (int64_t i = 1; i <= 6 && p->tile_m > 2 * MR; i++) {
        p->tile_n = INT64_MAX;
        for (int64_t j = 1; j <= 12 && p->tile_n > NR; j++) {
            set_tiles(p, i * min_m, j * min_n);
            double cost = tiles_cost(p);
            if (best_cost == 0 || cost < best_cost) {
                best = *p;
                best_cost = cost;
            }
        }
    }
    *p = best;
}

static struct plan make_plan(const struct ax_gemm *g, int threads) {
    struct plan p = {.a = operand(&g->a, !g->trans_a),
                     .b = operand(&g->b, g->trans_b),
                     .m = g->c.shape[0],
                     .n = g->c.shape[1]};
    p.units = ax_gemm_pairs(g->a.dtype) ? ceil_div(p.a.k, 2) : p.a.k;
    p.threads = (double)p.m * (double)p.n * (double)p.a.k < ALONE ? 1 : threads;
    choose_tiles(&p);
    int64_t most = p.keep_a && p.tile_m <= FEW_ROWS ? FEW_BLOCK : MAX_BLOCK;
    int64_t blocks = ceil_div(p.units, most);
    p.block = blocks > 0 ? round_up(ceil_div(p.units, blocks), AX_LANES) : 0;
    p.a_floats = p.tile_m * (p.keep_a ? p.units : p.block);
    p.b_floats = NR * p.block;
    p.acc_floats = p.units <= p.block ? MR * NR : p.tile_m * (p.keep_a ? NR : p.tile_n);
    return p;
}

/* A thread's workspace. */
struct work {
    float *a, *b, *acc;
    int64_t kept; /* first row of the tile whose op(a) is in `a`; −1: none */
};

/* Cuts one off at *next. */
static struct work take_work(const struct plan *p, float **next) {
    struct work w = {.a = *next, .kept = -1};
    w.b = w.a + p->a_floats;
    w.acc = w.b + p->b_floats;
    *next = w.acc + p->acc_floats;
    return w;
}

/* What one packed panel of op(b) contributes to: `rows` rows from m0, NR columns from n0, `units`
 * units from u0. a: the panels of op(a), at u0; a_panel: floats from one to the next. */
struct slab {
    int64_t m0, rows, n0, u0, units;
    const float *a;
    int64_t a_panel;
};

/* Asks for a tile of c, which will be read or at least written when the micro-kernel is done. */
AX_INLINE void prefetch_c(const struct ax_tensor *c, int64_t row, int64_t col, int64_t rows,
                          int64_t cols) {
    const int64_t size = (int64_t)ax_dtype_size(c->dtype);
    for (int64_t r = row; r < row + rows; r++) {
        const char *at = (const char *)c->data + (r * c->row_stride + col) * size;
        for (int64_t i = 0; i < cols * size; i += 64) {
            __builtin_prefetch(at + i, 1);
        }
        __builtin_prefetch(at + cols * size - 1, 1);
    }
}

static void multiply(const struct ax_gemm *g, const struct plan *p, const struct slab *s, float *b,
                     float *acc) {
    const bool pairs = ax_gemm_pairs(g->a.dtype);
    const bool first = s->u0 == 0, last = s->u0 + s->units >= p->units;
    const int64_t width = least(p->n - s->n0, NR);
    const float *a = s->a;
    AX_VEC(ax_gemm_pack_b)(b, &p->b, s->n0, width, s->u0, s->units);
    for (int64_t i = 0; i < s->rows; i += MR, a += s->a_panel) {
        const int64_t height = least(s->rows - i, MR);
        if (last) {
            prefetch_c(&g->c, s->m0 + i, s->n0, height, width);
        }
        AX_VEC(ax_gemm_kernel)(pairs, height, width, s->units, a, b, acc, first);
        if (last) {
            AX_VEC(ax_gemm_store)(g, acc, s->m0 + i, s->n0, height, width);
        }
        if (!(first && last)) {
            acc += MR * NR;
        }
    }
}

/* op(a) is packed: panel of op(b) by panel, each along all of k. */
static void run_kept(const struct ax_gemm *g, const struct plan *p, struct work *w, struct slab s,
                     int64_t cols) {
    if (w->kept != s.m0) {
        AX_VEC(ax_gemm_pack_a)(w->a, &p->a, s.m0, s.rows, 0, p->units);
        w->kept = s.m0;
    }
    s.a_panel = p->units * MR;
    for (int64_t end = s.n0 + cols; s.n0 < end; s.n0 += NR) {
        s.u0 = 0;
        do {
            s.units = least(p->units - s.u0, p->block);
            s.a = w->a + s.u0 * MR;
            multiply(g, p, &s, w->b, w->acc);
            s.u0 += s.units;
        } while (s.u0 < p->units);
    }
}

/* op(a) is too long: block by block along k, each for all panels of op(b). */
static void run_blocks(const struct ax_gemm *g, const struct plan *p, struct work *w, struct slab s,
                       int64_t cols) {
    const int64_t n0 = s.n0;
    s.a = w->a;
    for (; s.u0 < p->units; s.u0 += s.units) {
        s.units = least(p->units - s.u0, p->block);
        s.a_panel = s.units * MR;
        AX_VEC(ax_gemm_pack_a)(w->a, &p->a, s.m0, s.rows, s.u0, s.units);
        float *acc = w->acc;
        for (s.n0 = n0; s.n0 < n0 + cols; s.n0 += NR) {
            multiply(g, p, &s, w->b, acc);
            acc += p->tile_m * NR;
        }
    }
}

static void run_tile(const struct ax_gemm *g, const struct plan *p, struct work *w, int64_t tile) {
    struct slab s = {.m0 = tile / p->tiles_n * p->tile_m, .n0 = tile % p->tiles_n * p->tile_n};
    int64_t cols = least(p->n - s.n0, p->tile_n);
    s.rows = least(p->m - s.m0, p->tile_m);
    if (p->keep_a) {
        run_kept(g, p, w, s, cols);
    } else {
        run_blocks(g, p, w, s, cols);
    }
}

bool AX_VEC(ax_cpu_gemm_supports)(const struct ax_queue *q, const struct ax_gemm *g) {
    (void)q;
    return (g->a.dtype == AX_F32 || g->a.dtype == AX_BF16) && g->b.dtype == g->a.dtype &&
           (g->c.dtype == AX_F32 || g->c.dtype == g->a.dtype);
}

size_t AX_VEC(ax_cpu_gemm_workspace)(struct ax_queue *q, const struct ax_gemm *g) {
    if (ax_tensor_numel(&g->c) == 0) {
        return 0;
    }
    struct plan p = make_plan(g, q->threads);
    return (size_t)(p.threads * (p.a_floats + p.b_floats + p.acc_floats)) * sizeof(float);
}

enum ax_status AX_VEC(ax_cpu_gemm)(struct ax_queue *q, const struct ax_gemm *g, void *work) {
    if (ax_tensor_numel(&g->c) == 0) {
        return AX_OK;
    }
    const struct plan p = make_plan(g, q->threads);
    const int64_t tiles = p.tiles_m * p.tiles_n;
    float *next = work;
#pragma omp parallel num_threads(p.threads)
    {
        struct work w;
#pragma omp critical
        w = take_work(&p, &next);
#pragma omp for schedule(dynamic, 1)
        for (int64_t tile = 0; tile < tiles; tile++) {
            run_tile(g, &p, &w, tile);
        }
    }
    return AX_OK;
}
