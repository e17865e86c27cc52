/* GEMM: the loops around the micro-kernel, as planned in gemm_plan.c. */
#include "kernels/cpu/vec/gemm/gemm.h"

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"

#define MR AX_GEMM_MR
#define NR AX_GEMM_NR

/* A thread's workspace. */
struct work {
    float *stay, *stream, *acc;
    int64_t kept; /* first row or column kept in `stay`; −1: none */
};

/* Takes one from *next. */
static struct work take_work(const struct ax_gemm_plan *p, float **next) {
    struct work w = {.stay = *next, .kept = -1};
    w.stream = w.stay + p->stay_floats;
    w.acc = w.stream + p->stream_floats;
    *next = w.acc + p->acc_floats;
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

/* Prefetches a tile of c, which is read or at least written after the micro-kernel. */
AX_INLINE void prefetch_c(const struct ax_tensor *c, int64_t row, int64_t col, int64_t rows,
                          int64_t cols) {
    const int64_t size = (int64_t)ax_dtype_size(c->dtype);
    for (int64_t r = row; r < row + rows; r++) {
        const char *at = (const char *)c->data + (r * c->row_stride + col) * size;
        for (int64_t i = 0; i < cols * size; i += 64)
            __builtin_prefetch(at + i, 1);
        __builtin_prefetch(at + cols * size - 1, 1);
    }
}

/* acc: [⌈cols / NR⌉][⌈rows / MR⌉][MR][NR], or one tile if there is only one block of k. */
static void multiply(const struct ax_gemm *g, const struct ax_gemm_plan *p, struct slab s,
                     struct panels a, struct panels b, float *acc) {
    const bool pairs = ax_gemm_pairs(g->a.dtype);
    const bool first = s.u0 == 0, last = s.u0 + s.units >= p->units;
    for (int64_t j = 0; j < s.cols; j += NR, b.at += b.step) {
        const int64_t width = least(s.cols - j, NR);
        const float *rows = a.at;
        for (int64_t i = 0; i < s.rows; i += MR, rows += a.step) {
            const int64_t height = least(s.rows - i, MR);
            if (last)
                prefetch_c(&g->c, s.m0 + i, s.n0 + j, height, width);
            AX_VEC(ax_gemm_kernel)(pairs, height, width, s.units, rows, b.at, acc, first);
            if (last)
                AX_VEC(ax_gemm_store)(g, acc, s.m0 + i, s.n0 + j, height, width);
            if (!(first && last))
                acc += MR * NR;
        }
    }
}

/* Packs the tile's part that stays, at s.u0. */
static void pack_stay(const struct ax_gemm_plan *p, float *dst, const struct slab *s) {
    if (p->a_stays)
        AX_VEC(ax_gemm_pack_a)(dst, &p->a, s->m0, s->rows, s->u0, s->units);
    else
        AX_VEC(ax_gemm_pack_b)(dst, &p->b, s->n0, s->cols, s->u0, s->units);
}

/* Packs the group that starts `at` rows or columns into the slab, and multiplies it with what
 * stays. Of that, `units` units are packed, and s.u0 is the u-th of them. */
static void run_group(const struct ax_gemm *g, const struct ax_gemm_plan *p, const struct work *w,
                      struct slab s, int64_t at, int64_t u, int64_t units, float *acc) {
    if (p->a_stays) {
        s.n0 += at;
        s.cols = least(s.cols - at, p->group);
        AX_VEC(ax_gemm_pack_b)(w->stream, &p->b, s.n0, s.cols, s.u0, s.units);
        multiply(g, p, s, (struct panels){w->stay + u * MR, units * MR},
                 (struct panels){w->stream, s.units * NR}, acc);
    } else {
        s.m0 += at;
        s.rows = least(s.rows - at, p->group);
        AX_VEC(ax_gemm_pack_a)(w->stream, &p->a, s.m0, s.rows, s.u0, s.units);
        multiply(g, p, s, (struct panels){w->stream, s.units * MR},
                 (struct panels){w->stay + u * NR, units * NR}, acc);
    }
}

/* Group by group, each along all of k. */
static void run_kept(const struct ax_gemm *g, const struct ax_gemm_plan *p, struct work *w,
                     struct slab s, int64_t length) {
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
static void run_blocks(const struct ax_gemm *g, const struct ax_gemm_plan *p, struct work *w,
                       struct slab s, int64_t length) {
    for (; s.u0 < p->units; s.u0 += s.units) {
        s.units = least(p->units - s.u0, p->block);
        pack_stay(p, w->stay, &s);
        for (int64_t at = 0; at < length; at += p->group)
            run_group(g, p, w, s, at, 0, s.units, w->acc + at * p->stays);
    }
}

/* Tiles that share what stays have consecutive numbers. */
static void run_tile(const struct ax_gemm *g, const struct ax_gemm_plan *p, struct work *w,
                     int64_t tile) {
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
    const size_t many =
        AX_VEC(ax_gemm_most_room)(g->a.dtype, g->c.shape[0], g->c.shape[1], k, q->threads);
    return few > many ? few : many;
}

void AX_VEC(ax_gemm_run)(const struct ax_gemm *g, int threads, void *work, size_t room) {
    if (ax_tensor_numel(&g->c) == 0)
        return;
    struct ax_gemm_plan p;
    AX_VEC(ax_gemm_make_plan)(&p, g, threads);
    AX_ASSERT(AX_VEC(ax_gemm_room)(&p) <= room);
    struct ax_turns turns;
    ax_turns_start(&turns, p.tiles_m * p.tiles_n, p.threads);
    float *next = work;
#pragma omp parallel num_threads(p.threads)
    {
        struct work w;
#pragma omp critical
        w = take_work(&p, &next);
        ax_tiles_begin();
        AX_TURNS_FOR (&turns, omp_get_thread_num(), tile)
            run_tile(g, &p, &w, tile);
        ax_tiles_end();
    }
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
        AX_VEC(ax_gemm_run)(g, q->threads, work, AX_VEC(ax_cpu_gemm_workspace)(q, g));
    return AX_OK;
}
