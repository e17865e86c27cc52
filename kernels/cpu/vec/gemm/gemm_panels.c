/* Few rows times a weight in panels (kernels/panels.h), with BF16 instructions: panels are already
 * in the order of the sum, so each byte of the weight is read from memory once.
 *
 * A tile is up to HEIGHT rows of x by up to WIDTH panels: as many sums as the registers hold. If
 * there are more rows, all their tiles process a BLOCK of units while it is in the cache, and each
 * prefetches a part of the next one, so that memory is never idle.
 *
 * An element's sum adds the units in ascending order from 0, as everywhere: same bits. */
#include "kernels/cpu/vec/gemm/gemm.h"
#include "kernels/cpu/vec/split.h"

#ifdef __AVX512BF16__

#define ROWS   AX_LANES /* of a panel */
#define HEIGHT AX_GEMM_MR
#define WIDTH  AX_GEMM_NV
#define MOST   64
#define BLOCK  768 /* units */

bool AX_VEC(ax_gemm_is_panels)(const struct ax_gemm *g) {
    return g->b.panels && g->c.shape[0] <= MOST && g->a.shape[1] > 0;
}

/* Units of `width` panels with stride `stride` floats; while they are read, `n` lines of each panel
 * are prefetched from `next` on, evenly over the units. */
struct weights {
    const float *at;
    int64_t units, stride;
    const char *next;
    int64_t step; /* bytes; a fraction of a line if other tiles prefetch the rest */
};

/* Some rows of x, at the first unit. */
struct x_rows {
    const uint16_t *at;
    int64_t stride;
};

/* acc [rows][NR], which starts from 0 if `first`. rows and width are constants after inlining. */
AX_INLINE void tile(int rows, int width, struct weights w, struct x_rows x, float *acc,
                    bool first) {
    v_float sum[HEIGHT][WIDTH];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int v = 0; v < width; v++)
            sum[r][v] = first ? v_set(0) : v_load_f32(acc + r * AX_GEMM_NR + v * ROWS, ROWS);
    }
    for (int64_t u = 0; u < w.units; u++) {
        v_float unit[WIDTH];
#pragma GCC unroll 3
        for (int v = 0; v < width; v++) {
            unit[v] = v_load_f32(w.at + v * w.stride, ROWS);
            __builtin_prefetch(w.next + v * w.stride * 4, 0, 2);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const v_float one = ax_pair_at(x.at + r * x.stride);
#pragma GCC unroll 3
            for (int v = 0; v < width; v++)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)one, (__m512bh)unit[v]);
        }
        x.at += 2;
        w.at += ROWS;
        w.next += w.step;
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#pragma GCC unroll 3
        for (int v = 0; v < width; v++)
            v_store_f32(acc + r * AX_GEMM_NR + v * ROWS, ROWS, sum[r][v]);
    }
}

typedef void tile_fn(struct weights w, struct x_rows x, float *acc, bool first);

#define DEFINE(rows, width)                                                                        \
    static void tile_##rows##x##width(struct weights w, struct x_rows x, float *acc, bool first) { \
        tile(rows, width, w, x, acc, first);                                                       \
    }
#define DEFINE_ROWS(rows) DEFINE(rows, 1) DEFINE(rows, 2) DEFINE(rows, 3)
#define NAMES(rows)       {tile_##rows##x1, tile_##rows##x2, tile_##rows##x3},
#define FOR_ROWS(X)       X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
FOR_ROWS(DEFINE_ROWS)
static tile_fn *const tiles[HEIGHT][WIDTH] = {FOR_ROWS(NAMES)};

/* n panels from `panel` on. */
static void run_panels(const struct ax_gemm *g, int64_t panel, int64_t n) {
    const int64_t units = g->a.shape[1] / 2, rows = g->c.shape[0];
    const int64_t count = ceil_div(rows, HEIGHT), line = ROWS * (int64_t)sizeof(float);
    const float *all = (const float *)g->b.data + panel * ROWS * units;
    float acc[MOST * AX_GEMM_NR];
    for (int64_t u = 0; u < units; u += BLOCK) {
        struct weights w = {.at = all + u * ROWS,
                            .units = least(BLOCK, units - u),
                            .stride = units * ROWS,
                            .step = line / count};
        const char *next =
            (const char *)(u + BLOCK < units ? w.at + w.units * ROWS : all + n * units * ROWS);
        for (int64_t i = 0; i < count; i++) {
            const int64_t row = i * HEIGHT, stride = g->a.row_stride;
            const uint16_t *x = (const uint16_t *)g->a.data + row * stride + 2 * u;
            w.next = next + i * w.units * w.step;
            tiles[least(HEIGHT, rows - row) - 1][n - 1](w, (struct x_rows){x, stride},
                                                        acc + row * AX_GEMM_NR, u == 0);
        }
    }
    AX_VEC(ax_gemm_store)(g, acc, 0, panel * ROWS, rows, n * ROWS);
}

void AX_VEC(ax_gemm_panels)(const struct ax_gemm *g, int threads) {
    const int64_t panels = g->c.shape[1] / ROWS;
    AX_PARALLEL_FOR (threads, i, ceil_div(panels, WIDTH))
        run_panels(g, i * WIDTH, least(WIDTH, panels - i * WIDTH));
}

#else

/* Without BF16 instructions, panels are packed like rows. */
bool AX_VEC(ax_gemm_is_panels)(const struct ax_gemm *g) {
    (void)g;
    return false;
}

void AX_VEC(ax_gemm_panels)(const struct ax_gemm *g, int threads) {
    (void)g;
    (void)threads;
}

#endif
