/* Codes in panels: 16 rows of W at a time, in the order in which the pairs of a sum are made of them. A
 * code becomes a pair's number without its scale (code_numbers.h). The sum of a block is multiplied with the
 * scales of its rows.
 *
 * A block's sum adds the pairs in ascending order from 0, and the blocks' sums are added in ascending
 * order: whatever the number of rows, the same bits. Three panels at a time, because a sum waits for its last
 * product, and products of few rows have few sums; the same place of the next ones is prefetched. */
#include "kernels/cpu/vec/gemm/packed_panels.h"

#include "kernels/cpu/vec/quant/code_numbers.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/panels.h"
#include "kernels/quant/scheme.h"

#ifdef __AVX512BF16__

#define MOST  8 /* rows of x at a time */
#define FEW   4 /* rows of x, at most, whose sums leave enough registers for look-ups of bytes */
#define WIDTH 3 /* panels, most */
#define PAIRS 4 /* of 8 columns */

/* Two codes in a byte; else how integers become numbers. */
enum kind { NIBBLES, CONVERTED, LOOKED_UP };

bool AX_VEC(ax_packed_panels_supports)(const struct ax_packed_gemm *a) {
    return a->a.dtype == AX_BF16;
}

/* Some panels: `stride` bytes of codes and `scales` scales apart; 8 columns have `step` bytes. */
struct codes {
    const unsigned char *at;
    const float *scale, *values;                  /* [16], of codes two in a byte */
    const struct byte_tables *bytes;              /* of LOOKED_UP */
    int64_t stride, scales, step, blocks, groups; /* of 8 columns in a block */
};

static struct codes codes_at(const struct ax_packed_gemm *a, int64_t panel,
                             const struct byte_tables *bytes) {
    const int64_t k = a->a.shape[1], blocks = k / a->block;
    const float *values = ax_quant_info(a->kind)->values;
    const int64_t step = 8 * AX_PANEL_ROWS / (values ? 2 : 1);
    const int64_t stride = k / 8 * step, scales = blocks * AX_PANEL_ROWS;
    return (struct codes){.at = (const unsigned char *)a->codes.data + panel * stride,
                          .scale = (const float *)a->scale.data + panel * scales,
                          .stride = stride,
                          .scales = scales,
                          .step = step,
                          .values = values,
                          .bytes = bytes,
                          .blocks = blocks,
                          .groups = a->block / 8};
}

/* Multiplies the sums of block b of `width` panels with its scales: the first block sets acc [rows][NR], others add to
 * it. */
AX_INLINE void add_block(int rows, int width, v_float sum[MOST][WIDTH], const struct codes *w,
                         int64_t b, float *acc) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int v = 0; v < width; v++) {
            float *to = acc + r * AX_GEMM_NR + v * AX_PANEL_ROWS;
            const v_float scale = _mm512_loadu_ps(w->scale + v * w->scales + b * AX_PANEL_ROWS);
            const v_float before = b > 0 ? _mm512_loadu_ps(to) : v_set(0);
            _mm512_storeu_ps(to, _mm512_fmadd_ps(sum[r][v], scale, before));
        }
}

/* Pair p of 8 columns at c, of 16 rows. `looked` keeps the halves of pair p + 1 where p is even. */
AX_INLINE __m512bh numbers(enum kind kind, const struct codes *w, const unsigned char *c,
                           __m512i table, int p, struct halves *looked) {
    if (kind == NIBBLES)
        return nibble_numbers(table, c, p);
    if (kind == CONVERTED)
        return converted_numbers(c + 32 * p);
    if (p % 2 == 0)
        *looked = look_up(w->bytes, c + 32 * p);
    return join(w->bytes, *looked, p % 2);
}

/* acc [rows][NR] of `width` panels and rows of x, `stride` elements apart. kind, rows and width are
 * constants after inlining. */
AX_INLINE void tile(enum kind kind, int rows, int width, struct codes w, const uint16_t *x,
                    int64_t stride, float *acc) {
    const __m512i table = kind == NIBBLES ? nibble_table(w.values) : _mm512_setzero_si512();
    for (int64_t b = 0; b < w.blocks; b++) {
        v_float sum[MOST][WIDTH];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
            for (int v = 0; v < width; v++)
                sum[r][v] = v_set(0);
#pragma GCC unroll 3
        for (int v = 0; v < width; v++)
            __builtin_prefetch(w.scale + (v + width) * w.scales + b * AX_PANEL_ROWS, 0, 2);
        for (int64_t g = 0; g < w.groups; g++, w.at += w.step, x += 2 * PAIRS) {
            struct halves looked[WIDTH];
#pragma GCC unroll 3
            for (int v = 0; v < width; v++)
                for (int64_t i = 0; i < (kind == NIBBLES ? 1 : 2); i++)
                    __builtin_prefetch(w.at + (v + width) * w.stride + 64 * i, 0, 2);
#pragma GCC unroll 4
            for (int p = 0; p < PAIRS; p++) {
                __m512bh unit[WIDTH];
#pragma GCC unroll 3
                for (int v = 0; v < width; v++)
                    unit[v] = numbers(kind, &w, w.at + v * w.stride, table, p, &looked[v]);
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const v_float one = ax_pair_at(x + r * stride + 2 * p);
#pragma GCC unroll 3
                    for (int v = 0; v < width; v++)
                        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)one, unit[v]);
                }
            }
        }
        add_block(rows, width, sum, &w, b, acc);
    }
}

typedef void tile_fn(struct codes w, const uint16_t *x, int64_t stride, float *acc);

#define DEFINE(kind, rows, width)                                                                  \
    static void kind##_##rows##x##width(struct codes w, const uint16_t *x, int64_t stride,         \
                                        float *acc) {                                              \
        tile(kind, rows, width, w, x, stride, acc);                                                \
    }
#define DEFINE_ROWS(kind, rows) DEFINE(kind, rows, 1) DEFINE(kind, rows, 2) DEFINE(kind, rows, 3)
#define NAMES(kind, rows)       {kind##_##rows##x1, kind##_##rows##x2, kind##_##rows##x3},
#define FOR_FEW(X, kind)        X(kind, 1) X(kind, 2) X(kind, 3) X(kind, 4)
#define FOR_MOST(X, kind)       FOR_FEW(X, kind) X(kind, 5) X(kind, 6) X(kind, 7) X(kind, 8)
FOR_MOST(DEFINE_ROWS, NIBBLES)
FOR_MOST(DEFINE_ROWS, CONVERTED)
FOR_FEW(DEFINE_ROWS, LOOKED_UP)
static tile_fn *const tiles[][MOST][WIDTH] = {
    [NIBBLES] = {FOR_MOST(NAMES, NIBBLES)},
    [CONVERTED] = {FOR_MOST(NAMES, CONVERTED)},
    [LOOKED_UP] = {FOR_FEW(NAMES, LOOKED_UP)},
};

void AX_VEC(ax_packed_panels)(const struct ax_packed_gemm *a, const struct ax_gemm *g, bool vbmi,
                              int threads) {
    const int64_t panels = a->c.shape[1] / AX_PANEL_ROWS, stride = a->a.row_stride;
    const bool nibbles = ax_quant_info(a->kind)->values != NULL;
    struct byte_tables bytes;
    make_byte_tables(&bytes);
    AX_PARALLEL_FOR (threads, i, ceil_div(panels, WIDTH)) {
        const int64_t first = i * WIDTH, n = least(WIDTH, panels - first);
        for (int64_t r = 0; r < a->a.shape[0]; r += MOST) {
            const int64_t rows = least(MOST, a->a.shape[0] - r);
            float acc[MOST * AX_GEMM_NR];
            const enum kind kind = nibbles ? NIBBLES : vbmi && rows <= FEW ? LOOKED_UP : CONVERTED;
            tiles[kind][rows - 1][n - 1](codes_at(a, first, &bytes),
                                         (const uint16_t *)a->a.data + r * stride, stride, acc);
            AX_VEC(ax_gemm_store)(g, acc, r, first * AX_PANEL_ROWS, rows, n * AX_PANEL_ROWS);
        }
    }
}

#else

bool AX_VEC(ax_packed_panels_supports)(const struct ax_packed_gemm *a) {
    (void)a;
    return false;
}

void AX_VEC(ax_packed_panels)(const struct ax_packed_gemm *a, const struct ax_gemm *g, bool vbmi,
                              int threads) {
    (void)a;
    (void)g;
    (void)vbmi;
    (void)threads;
}

#endif
