/* How a GEMM is divided. The plan never affects the result's bits (gemm.h says why), so it may
 * depend on the number of threads, and only time matters. */
#include "kernels/cpu/vec/gemm/gemm.h"

#include "kernels/cpu/vec/split.h"

#define MR    AX_GEMM_MR
#define NR    AX_GEMM_NR
#define STRIP AX_GEMM_STRIP

/* The staying part: at most this many floats, so that a 1 MiB L2 cache holds it and what streams
 * past it; and at most this many rows of op(a) or columns of op(b). */
#define STAY_FLOATS (576 * 288)
#define STAY_ROWS   384
#define STAY_COLS   576
#define STREAM      3072
/* Units of k packed together. Packing an element takes as long as PACK multiply-adds. With tiles, a
 * group that streams stays in the L1 cache, and products are fast. (No machine with AMX has measured
 * these.) */
#ifdef AX_TILES
#define BLOCK 288
#define PACK  48.0
#else
#define BLOCK 384
#define PACK  12.0
#endif
/* Few rows finish a panel long before the next one arrives from memory; with small panels memory is
 * never idle. */
#define FEW_ROWS  16
#define FEW_BLOCK 64
/* Below this many multiply-adds one thread is faster than waking the others. */
#define ALONE (1 << 17)

static int64_t round_up(int64_t n, int64_t to) {
    return ceil_div(n, to) * to;
}

static struct ax_gemm_operand operand(const struct ax_tensor *t, bool k_inside) {
    return (struct ax_gemm_operand){.data = t->data,
                                    .stride = t->row_stride * (int64_t)ax_dtype_size(t->dtype),
                                    .k = t->shape[k_inside ? 1 : 0],
                                    .dtype = t->dtype,
                                    .k_inside = k_inside,
                                    .panels = t->panels};
}

static void set_tiles(struct ax_gemm_plan *p, int64_t parts_m, int64_t parts_n) {
    p->tile_m = round_up(ceil_div(p->m, parts_m), STRIP);
    p->tile_n = round_up(ceil_div(p->n, parts_n), NR);
    p->tiles_m = ceil_div(p->m, p->tile_m);
    p->tiles_n = ceil_div(p->n, p->tile_n);
    p->stays = p->a_stays ? p->tile_m : p->tile_n;
    p->streams = p->a_stays ? p->tile_n : p->tile_m;
    p->keep = p->stays * p->units <= STAY_FLOATS;
}

/* Time until the last thread finishes, in multiply-adds per unit of k. Packing takes twice PACK if a group of rows of op(a) is gathered across k, half a
 * cache line from each row of the tensor. Threads differ by SPREAD of a tile because machines also
 * do other work. */
static double cost(const struct ax_gemm_plan *p) {
    const double SPREAD = p->threads > 1 ? 0.05 : 0;
    const double pack_stream = !p->a_stays && !p->a.k_inside ? 2 * PACK : PACK;
    const double stays = (double)p->stays, streams = (double)p->streams;
    const int64_t turns = ceil_div(p->tiles_m * p->tiles_n, p->threads);
    const int64_t row = p->a_stays ? p->tiles_n : p->tiles_m; /* tiles that share the kept part */
    const int64_t packs = p->keep ? least(turns, ceil_div(turns, row) + 1) : turns;
    return ((double)turns + SPREAD) * (stays + pack_stream) * streams +
           (double)packs * PACK * stays;
}

static void choose_tiles(struct ax_gemm_plan *p) {
    struct ax_gemm_plan best = *p;
    double best_cost = -1;
    for (int a_stays = 0; a_stays < 2; a_stays++) {
        p->a_stays = a_stays != 0;
        const int64_t parts_m = ceil_div(p->m, p->a_stays ? STAY_ROWS : STREAM);
        const int64_t parts_n = ceil_div(p->n, p->a_stays ? STREAM : STAY_COLS);
        p->tile_m = INT64_MAX;
        for (int i = 1; i <= 8 && p->tile_m > STRIP; i++) {
            p->tile_n = INT64_MAX;
            for (int j = 1; j <= 12 && p->tile_n > NR; j++) {
                set_tiles(p, i * parts_m, j * parts_n);
                if (best_cost < 0 || cost(p) < best_cost) {
                    best = *p;
                    best_cost = cost(p);
                }
            }
        }
    }
    *p = best;
}

static int64_t choose_block(const struct ax_gemm_plan *p) {
    int64_t most = least(BLOCK, STAY_FLOATS / p->stays);
    if (p->keep && p->tile_m <= FEW_ROWS)
        most = FEW_BLOCK;
    int64_t blocks = ceil_div(p->units, most);
    return blocks > 0 ? round_up(ceil_div(p->units, blocks), AX_LANES) : 0;
}

int AX_VEC(ax_gemm_threads)(const struct ax_gemm *g, int threads) {
    const double k = (double)g->a.shape[g->trans_a ? 0 : 1];
    return (double)g->c.shape[0] * (double)g->c.shape[1] * k < ALONE ? 1 : threads;
}

void AX_VEC(ax_gemm_make_plan)(struct ax_gemm_plan *p, const struct ax_gemm *g, int threads) {
    *p = (struct ax_gemm_plan){.a = operand(&g->a, !g->trans_a),
                               .b = operand(&g->b, g->trans_b),
                               .m = g->c.shape[0],
                               .n = g->c.shape[1]};
    p->units = ax_gemm_units(g->a.dtype, p->a.k);
    p->threads = AX_VEC(ax_gemm_threads)(g, threads);
    choose_tiles(p);
    AX_ASSERT(p->stays > 0);
    p->block = choose_block(p);
    p->group = p->a_stays ? NR : STRIP;
    p->stay_floats = p->stays * (p->keep ? p->units : p->block);
    p->stream_floats = p->group * p->block;
    p->acc_floats = p->units <= p->block ? MR * NR : p->stays * (p->keep ? p->group : p->streams);
}

size_t AX_VEC(ax_gemm_room)(const struct ax_gemm_plan *p) {
    return (size_t)(p->threads * (p->stay_floats + p->stream_floats + p->acc_floats)) *
           sizeof(float);
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* What stays is at most STAY_ROWS or STAY_COLS rounded up, what streams STREAM rounded up, and
 * neither more than the full size rounded up; a block is rounded up by less than LANES. */
size_t AX_VEC(ax_gemm_most_room)(enum ax_dtype dtype, int64_t m, int64_t n, int64_t k,
                                 int threads) {
    const int64_t units = round_up(ax_gemm_units(dtype, k), AX_LANES);
    const int64_t all_m = round_up(m, STRIP), all_n = round_up(n, NR);
    const int64_t stay_m = least(all_m, round_up(STAY_ROWS, STRIP));
    const int64_t stay_n = least(all_n, round_up(STAY_COLS, NR));
    const int64_t stays = most(stay_m, stay_n), group = most(NR, STRIP);
    const int64_t block = least(units, BLOCK + AX_LANES);
    const int64_t stay = least(stays * units, STAY_FLOATS + stays * AX_LANES);
    const int64_t tile = most(stay_m * least(all_n, round_up(STREAM, NR)),
                              stay_n * least(all_m, round_up(STREAM, STRIP)));
    const bool keeps = stays * units <= STAY_FLOATS; /* for either operand; then no tile of sums
                                                        is stored */
    const int64_t acc = most(MR * NR, keeps ? stays * group : most(stays * group, tile));
    return (size_t)(threads * (stay + group * block + acc)) * sizeof(float);
}
