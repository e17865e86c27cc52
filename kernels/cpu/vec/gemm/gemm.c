/* GEMM: how a product is divided, and the loops around the micro-kernel. The plan never affects the result's
 * bits (gemm.h says why), so it may depend on the number of threads, and only time matters. */
#include "kernels/cpu/vec/gemm/gemm.h"

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/operands.h"

#define MR    AX_GEMM_MR
#define NR    AX_GEMM_NR
#define STRIP AX_GEMM_STRIP

/* ---- the plan ---- */

/* The staying part: at most this many floats, so that a 1 MiB L2 cache holds it and what streams
 * past it; and at most this many rows of op(a) or columns of op(b). */
#define STAY_FLOATS (576 * 288)
#define STAY_ROWS   384
#define STAY_COLS   576
#define STREAM      3072
/* Units of k packed together. Packing an element takes as long as PACK multiply-adds. With tiles, a
 * group that streams stays in the L1 cache, and products are fast. */
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

/* c is divided into tiles, which threads take one by one. In a tile, one operand's part *stays*
 * packed in the L2 cache (rows of op(a), or columns of op(b)), and the other's *streams* through:
 * it is packed a group of panels at a time, multiplied with everything that stays, and dropped.
 * Both are packed in blocks along k, unless what stays is small enough to keep in full. */
struct plan {
    struct ax_gemm_operand a, b;
    int64_t m, n, units; /* rows and columns of c; units of k */
    int threads;
    bool a_stays;             /* else b stays */
    int64_t tile_m, tile_n;   /* multiples of STRIP and of NR */
    int64_t tiles_m, tiles_n; /* tiles in c */
    /* tile_m and tile_n: of the operand that stays; of the one that streams */
    int64_t stays, streams;
    int64_t group; /* rows or columns that stream together */
    /* the staying part is packed along all of k and kept for the next tile */
    bool keep;
    int64_t block;                                  /* units of k packed together, otherwise */
    int64_t stay_floats, stream_floats, acc_floats; /* sizes of a thread's workspace */
};

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

static void set_tiles(struct plan *p, int64_t parts_m, int64_t parts_n) {
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
static double plan_cost(const struct plan *p) {
    const double SPREAD = p->threads > 1 ? 0.05 : 0;
    const double pack_stream = !p->a_stays && !p->a.k_inside ? 2 * PACK : PACK;
    const double stays = (double)p->stays, streams = (double)p->streams;
    const int64_t turns = ceil_div(p->tiles_m * p->tiles_n, p->threads);
    const int64_t row = p->a_stays ? p->tiles_n : p->tiles_m; /* tiles that share the kept part */
    const int64_t packs = p->keep ? least(turns, ceil_div(turns, row) + 1) : turns;
    return ((double)turns + SPREAD) * (stays + pack_stream) * streams +
           (double)packs * PACK * stays;
}

static void choose_tiles(struct plan *p) {
    struct plan best = *p;
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
                if (best_cost < 0 || plan_cost(p) < best_cost) {
                    best = *p;
                    best_cost = plan_cost(p);
                }
            }
        }
    }
    *p = best;
}

static int64_t choose_block(const struct plan *p) {
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

/* From shapes, dtypes and the number of threads only. c is not empty. */
static void make_plan(struct plan *p, const struct ax_gemm *g, int threads) {
    *p = (struct plan){.a = operand(&g->a, !g->trans_a),
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

/* Floats of a thread's workspace. */
static int64_t work_floats(const struct plan *p) {
    return p->stay_floats + p->stream_floats + p->acc_floats;
}

/* Bytes that a thread team needs for this plan. */
static size_t plan_room(const struct plan *p) {
    return (size_t)(p->threads * work_floats(p)) * sizeof(float);
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The most that a team could need for any product of up to m rows, n columns and k. What stays is at most STAY_ROWS or STAY_COLS rounded up, what streams STREAM rounded up, and
 * neither more than the full size rounded up; a block is rounded up by less than LANES. */
static size_t most_room(enum ax_dtype dtype, int64_t m, int64_t n, int64_t k, int threads) {
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

/* ---- the loops ---- */

/* A thread's workspace. */
struct work {
    float *stay, *stream, *acc;
    int64_t kept; /* first row or column kept in `stay`; −1: none */
};

/* The same for each product, so that it is in its core's cache. */
static struct work work_of(const struct plan *p, float *work, int thread) {
    struct work w = {.stay = work + thread * work_floats(p), .kept = -1};
    w.stream = w.stay + p->stay_floats;
    w.acc = w.stream + p->stream_floats;
    return w;
}

/* Some rows and columns of c and some units of k. */
struct slab {
    int64_t m0, rows, n0, cols, u0, units;
};

/* Packed panels at u0: the first, and the floats from one to the next. */
struct panels {
    const float *at;
    int64_t step;
};

/* The lines of a block of a tensor. */
static struct ax_gemm_ahead lines_of(const struct ax_tensor *t, int64_t row, int64_t col,
                                     int64_t rows, int64_t cols) {
    const int64_t size = (int64_t)ax_dtype_size(t->dtype);
    const char *at = (const char *)t->data + (row * t->row_stride + col) * size;
    const int64_t into = (int64_t)((uintptr_t)at % 64);
    return (struct ax_gemm_ahead){.first = at - into,
                                  .stride = t->row_stride * size,
                                  .rows = rows,
                                  .lines = ceil_div(into + cols * size, 64)};
}

/* All of w within `units` units. */
static void spread(struct ax_gemm_ahead *w, int64_t units) {
    w->each = units > 0 ? ceil_div(w->rows * w->lines * AX_LANES, units) : 0;
}

/* acc: [⌈cols / NR⌉][⌈rows / MR⌉][MR][NR], or one tile if there is only one block of k. */
static void multiply(const struct ax_gemm *g, const struct plan *p, struct slab s, struct panels a,
                     struct panels b, float *acc, struct ax_gemm_ahead next) {
    const bool pairs = ax_gemm_pairs(g->a.dtype);
    const bool first = s.u0 == 0, last = s.u0 + s.units >= p->units;
    struct ax_gemm_caches caches = {.a_passes = p->a_stays, .next = next};
    spread(&caches.next, ceil_div(s.rows, MR) * ceil_div(s.cols, NR) * s.units);
    for (int64_t j = 0; j < s.cols; j += NR, b.at += b.step) {
        const int64_t width = least(s.cols - j, NR);
        const float *rows = a.at;
        for (int64_t i = 0; i < s.rows; i += MR, rows += a.step) {
            const int64_t height = least(s.rows - i, MR);
            if (last) {
                caches.c = lines_of(&g->c, s.m0 + i, s.n0 + j, height, width);
                spread(&caches.c, s.units);
            }
            if (!(first && last)) {
                caches.sums = (struct ax_gemm_ahead){.first = (const char *)(acc + MR * NR),
                                                     .stride = 64,
                                                     .rows = MR * NR * 4 / 64,
                                                     .lines = 1};
                spread(&caches.sums, s.units);
            }
            AX_VEC(ax_gemm_kernel)(pairs, height, width, s.units, rows, b.at, acc, first, &caches);
            if (last)
                AX_VEC(ax_gemm_store)(g, acc, s.m0 + i, s.n0 + j, height, width);
            if (!(first && last))
                acc += MR * NR;
        }
    }
}

/* Where units [u0, u0 + units) of outer [first, first + n) are in memory. */
static struct ax_gemm_ahead operand_lines(const struct ax_gemm_operand *op, int64_t first,
                                          int64_t n, int64_t u0, int64_t units) {
    struct ax_gemm_ahead w = {.stride = op->stride};
    if (n <= 0 || op->panels)
        return w;
    const int64_t size = op->dtype == AX_F32 ? 4 : 2, per_unit = ax_gemm_pairs(op->dtype) ? 2 : 1;
    const int64_t k0 = u0 * per_unit, k = least(units * per_unit, op->k - k0);
    w.first =
        op->data + (op->k_inside ? first * op->stride + k0 * size : k0 * op->stride + first * size);
    w.rows = op->k_inside ? n : k;
    w.lines = ceil_div((op->k_inside ? k : n) * size, 64);
    return w;
}

/* Packs the tile's part that stays, at s.u0. */
static void pack_stay(const struct plan *p, float *dst, const struct slab *s) {
    if (p->a_stays)
        AX_VEC(ax_gemm_pack_a)(dst, &p->a, s->m0, s->rows, s->u0, s->units);
    else
        AX_VEC(ax_gemm_pack_b)(dst, &p->b, s->n0, s->cols, s->u0, s->units);
}

/* Packs the group that starts `at` rows or columns into the slab, and multiplies it with what
 * stays. Of that, `units` units are packed, and s.u0 is the u-th of them. */
static void run_group(const struct ax_gemm *g, const struct plan *p, const struct work *w,
                      struct slab s, int64_t at, int64_t u, int64_t units, float *acc) {
    if (p->a_stays) {
        s.n0 += at;
        s.cols = least(s.cols - at, p->group);
        AX_VEC(ax_gemm_pack_b)(w->stream, &p->b, s.n0, s.cols, s.u0, s.units);
        const int64_t after = s.n0 + s.cols;
        multiply(g, p, s, (struct panels){w->stay + u * MR, units * MR},
                 (struct panels){w->stream, s.units * NR}, acc,
                 operand_lines(&p->b, after, least(p->group, p->n - after), s.u0, s.units));
    } else {
        s.m0 += at;
        s.rows = least(s.rows - at, p->group);
        AX_VEC(ax_gemm_pack_a)(w->stream, &p->a, s.m0, s.rows, s.u0, s.units);
        const int64_t after = s.m0 + s.rows;
        multiply(g, p, s, (struct panels){w->stream, s.units * MR},
                 (struct panels){w->stay + u * NR, units * NR}, acc,
                 operand_lines(&p->a, after, least(p->group, p->m - after), s.u0, s.units));
    }
}

/* Group by group, each along all of k. */
static void run_kept(const struct ax_gemm *g, const struct plan *p, struct work *w, struct slab s,
                     int64_t length) {
    const int64_t first = p->a_stays ? s.m0 : s.n0;
    if (w->kept != first) {
        s.units = p->units;
        pack_stay(p, w->stay, &s);
        w->kept = first;
    }
    for (int64_t at = 0; at < length; at += p->group) {
        s.u0 = 0;
        do { /* once if there is no k at all */
            s.units = least(p->units - s.u0, p->block);
            run_group(g, p, w, s, at, s.u0, p->units, w->acc);
            s.u0 += s.units;
        } while (s.u0 < p->units);
    }
}

/* Block by block along k, each for all groups. */
static void run_blocks(const struct ax_gemm *g, const struct plan *p, struct work *w, struct slab s,
                       int64_t length) {
    for (; s.u0 < p->units; s.u0 += s.units) {
        s.units = least(p->units - s.u0, p->block);
        pack_stay(p, w->stay, &s);
        for (int64_t at = 0; at < length; at += p->group)
            run_group(g, p, w, s, at, 0, s.units, w->acc + at * p->stays);
    }
}

/* Tiles that share what stays have consecutive numbers. */
static void run_tile(const struct ax_gemm *g, const struct plan *p, struct work *w, int64_t tile) {
    const int64_t row = p->a_stays ? tile / p->tiles_n : tile % p->tiles_m;
    const int64_t col = p->a_stays ? tile % p->tiles_n : tile / p->tiles_m;
    struct slab s = {.m0 = row * p->tile_m, .n0 = col * p->tile_n};
    s.rows = least(p->m - s.m0, p->tile_m);
    s.cols = least(p->n - s.n0, p->tile_n);
    const int64_t length = p->a_stays ? s.cols : s.rows;
    if (p->keep)
        run_kept(g, p, w, s, length);
    else
        run_blocks(g, p, w, s, length);
}

/* The full product; `room` bytes of workspace. */
static void run_gemm(const struct ax_gemm *g, int threads, void *work, size_t room) {
    if (ax_tensor_numel(&g->c) == 0)
        return;
    struct plan p;
    make_plan(&p, g, threads);
    AX_ASSERT(plan_room(&p) <= room);
    struct ax_turns turns;
    ax_turns_start(&turns, p.tiles_m * p.tiles_n, p.threads);
#pragma omp parallel num_threads(p.threads)
    {
        const int thread = omp_get_thread_num();
        struct work w = work_of(&p, work, thread);
        ax_tiles_begin();
        AX_TURNS_FOR (&turns, thread, tile)
            run_tile(g, &p, &w, tile);
        ax_tiles_end();
    }
}

/* The full product, by the calling thread alone. */
static void run_alone(const struct ax_gemm *g, void *work, size_t room) {
    if (ax_tensor_numel(&g->c) == 0)
        return;
    struct plan p;
    make_plan(&p, g, 1);
    AX_ASSERT(plan_room(&p) <= room);
    struct work w = work_of(&p, work, 0);
    for (int64_t tile = 0; tile < p.tiles_m * p.tiles_n; tile++)
        run_tile(g, &p, &w, tile);
}

/* ---- the op gemm ---- */

bool AX_VEC(ax_cpu_gemm_supports)(const struct ax_queue *q, const struct ax_gemm *g) {
    (void)q;
    return (g->a.dtype == AX_F32 || g->a.dtype == AX_BF16) && g->b.dtype == g->a.dtype &&
           (g->c.dtype == AX_F32 || g->c.dtype == g->a.dtype);
}

/* The most that this product or any with fewer rows, columns or k needs, by any method:
 * micro-batches differ in length, and the longest one's workspace must be enough for all. */
size_t AX_VEC(ax_cpu_gemm_workspace)(struct ax_queue *q, const struct ax_gemm *g) {
    const int64_t k = g->a.shape[g->trans_a ? 0 : 1];
    const size_t few = AX_VEC(ax_gemm_few_workspace)(g);
    const size_t many = most_room(g->a.dtype, g->c.shape[0], g->c.shape[1], k, q->threads);
    return few > many ? few : many;
}

enum ax_status AX_VEC(ax_cpu_gemm)(struct ax_queue *q, const struct ax_gemm *g, void *work) {
    const bool any = ax_tensor_numel(&g->c) > 0;
#ifndef AX_TILES
    if (any && AX_VEC(ax_gemm_is_panels)(g)) {
        AX_VEC(ax_gemm_panels)(g, AX_VEC(ax_gemm_threads)(g, q->threads));
        return AX_OK;
    }
#endif
    if (any && AX_VEC(ax_gemm_is_few)(g))
        AX_VEC(ax_gemm_few)(g, AX_VEC(ax_gemm_threads)(g, q->threads), work);
    else
        run_gemm(g, q->threads, work, AX_VEC(ax_cpu_gemm_workspace)(q, g));
    return AX_OK;
}

/* ---- the op grouped_gemm ---- */

#define SMALL 4 /* a small group has at most 1 / SMALL of a thread's share of all rows */

bool AX_VEC(ax_cpu_grouped_gemm_supports)(const struct ax_queue *q,
                                          const struct ax_grouped_gemm *args) {
    (void)q;
    return args->a.dtype == AX_F32 || args->a.dtype == AX_BF16;
}

/* Enough for any number of rows in a group. */
size_t AX_VEC(ax_cpu_grouped_gemm_workspace)(struct ax_queue *q,
                                             const struct ax_grouped_gemm *args) {
    const int64_t rows = args->a.shape[0], width = args->a.shape[1];
    const enum ax_dtype dtype = args->a.dtype;
    if (args->trans_a)
        return most_room(dtype, width, args->b.shape[1], rows, q->threads);
    return most_room(dtype, rows, args->c.shape[1], width, q->threads);
}

/* Whether each group has few enough rows that nobody waits long for the thread that multiplies it alone. */
static bool are_small(const struct ax_grouped_gemm *args, int threads) {
    const int32_t *offsets = args->offsets.data;
    const int64_t groups = args->offsets.shape[0] - 1;
    const int64_t share = (offsets[groups] - offsets[0]) / (threads * SMALL);
    for (int64_t g = 0; g < groups; g++)
        if (offsets[g + 1] - offsets[g] > share)
            return false;
    return true;
}

/* Each group by one thread, so that both operands are packed once and nobody waits after each; `room` bytes of
 * workspace for a thread. */
static void run_small(const struct ax_grouped_gemm *args, int threads, char *work, size_t room) {
    const int32_t *offsets = args->offsets.data;
    struct ax_turns turns;
    ax_turns_start(&turns, args->offsets.shape[0] - 1, threads);
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num();
        ax_tiles_begin();
        AX_TURNS_FOR (&turns, thread, g) {
            if (offsets[g + 1] > offsets[g]) {
                const struct ax_gemm one = ax_grouped_gemm_of(args, g);
                run_alone(&one, work + (size_t)thread * room, room);
            }
        }
        ax_tiles_end();
    }
}

/* Large groups one after the other, each on all threads. A group's bits depend on its own rows only. */
enum ax_status AX_VEC(ax_cpu_grouped_gemm)(struct ax_queue *q, const struct ax_grouped_gemm *args,
                                           void *work) {
    const int32_t *offsets = args->offsets.data;
    const size_t room = AX_VEC(ax_cpu_grouped_gemm_workspace)(q, args);
    if (are_small(args, q->threads)) {
        run_small(args, q->threads, work, room / (size_t)q->threads);
        return AX_OK;
    }
    for (int64_t g = 0; g + 1 < args->offsets.shape[0]; g++) {
        if (offsets[g + 1] > offsets[g]) {
            const struct ax_gemm one = ax_grouped_gemm_of(args, g);
            run_gemm(&one, q->threads, work, room);
        }
    }
    return AX_OK;
}
