/* Codes in panels: 16 rows of W at a time, in the order in which the pairs of a sum are made of them. A
 * code becomes a pair's number without its scale, which is exact for integers: two in a byte by one look-up
 * for 32 of them, of a byte by conversion. The sum of a block is multiplied with the scales of its rows.
 *
 * A block's sum adds the pairs in ascending order from 0, and the blocks' sums are added in ascending
 * order: whatever the number of rows, the same bits. Two panels at a time, or three of many
 * rows, which then load less of x; the same place of the next ones is prefetched. */
#include "kernels/cpu/vec/packed_panels.h"

#include "kernels/cpu/vec/split.h"
#include "kernels/panels.h"
#include "kernels/scheme.h"

#ifdef __AVX512BF16__

#define MOST  8 /* rows of x at a time */
#define WIDTH 3 /* panels, most */
#define PAIRS 4 /* of 8 columns */

typedef uint16_t v_words __attribute__((vector_size(64)));

bool AX_VEC(ax_packed_panels_supports)(const struct ax_packed_gemm *a) {
    return a->a.dtype == AX_BF16;
}

/* Some panels: `stride` bytes of codes and `scales` scales apart; 8 columns have `step` bytes. */
struct codes {
    const unsigned char *at;
    const float *scale, *values;                  /* [16], of codes two in a byte */
    int64_t stride, scales, step, blocks, groups; /* of 8 columns in a block */
};

static struct codes codes_at(const struct ax_packed_gemm *a, int64_t panel) {
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
                          .blocks = blocks,
                          .groups = a->block / 8};
}

/* The values of codes in bf16, twice: a look-up reads five bits, of which the highest is of the next code. */
AX_INLINE __m512i table_of(const float *values) {
    const v_float all = _mm512_loadu_ps(values);
    return (__m512i)_mm512_cvtne2ps_pbh(all, all);
}

AX_INLINE v_float sixteen(const unsigned char *c) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)c)));
}

/* Pair p of 8 columns at c, of 16 rows, without scales. */
AX_INLINE __m512bh numbers(bool nibbles, const unsigned char *c, __m512i table, int p) {
    if (!nibbles)
        return _mm512_cvtne2ps_pbh(sixteen(c + 32 * p + 16), sixteen(c + 32 * p));
    const v_words words = (v_words)_mm512_loadu_si512((const void *)c) >> 4 * p;
    return (__m512bh)_mm512_permutexvar_epi16((__m512i)words, table);
}

/* The sums of one block, [rows][NR] of `width` panels, times scales: are acc, or are added to it. */
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

/* acc [rows][NR] of `width` panels and rows of x, `stride` elements apart. nibbles, rows and width are
 * constants after inlining. */
AX_INLINE void tile(bool nibbles, int rows, int width, struct codes w, const uint16_t *x,
                    int64_t stride, float *acc) {
    const __m512i table = nibbles ? table_of(w.values) : _mm512_setzero_si512();
    for (int64_t b = 0; b < w.blocks; b++) {
        v_float sum[MOST][WIDTH];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 3
            for (int v = 0; v < width; v++)
                sum[r][v] = v_set(0);
        for (int64_t g = 0; g < w.groups; g++, w.at += w.step, x += 2 * PAIRS) {
#pragma GCC unroll 3
            for (int v = 0; v < width; v++)
                for (int64_t i = 0; i < (nibbles ? 1 : 2); i++)
                    __builtin_prefetch(w.at + (v + width) * w.stride + 64 * i, 0, 2);
#pragma GCC unroll 4
            for (int p = 0; p < PAIRS; p++) {
                __m512bh unit[WIDTH];
#pragma GCC unroll 3
                for (int v = 0; v < width; v++)
                    unit[v] = numbers(nibbles, w.at + v * w.stride, table, p);
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

#define DEFINE(kind, nibbles, rows, width)                                                         \
    static void kind##_##rows##x##width(struct codes w, const uint16_t *x, int64_t stride,         \
                                        float *acc) {                                              \
        tile(nibbles, rows, width, w, x, stride, acc);                                             \
    }
#define DEFINE_ROWS(kind, nibbles, rows)                                                           \
    DEFINE(kind, nibbles, rows, 1) DEFINE(kind, nibbles, rows, 2) DEFINE(kind, nibbles, rows, 3)
#define NAMES(kind, unused, rows) {kind##_##rows##x1, kind##_##rows##x2, kind##_##rows##x3},
#define FOR_ROWS(X, kind, nibbles)                                                                 \
    X(kind, nibbles, 1)                                                                            \
    X(kind, nibbles, 2)                                                                            \
    X(kind, nibbles, 3)                                                                            \
    X(kind, nibbles, 4)                                                                            \
    X(kind, nibbles, 5)                                                                            \
    X(kind, nibbles, 6)                                                                            \
    X(kind, nibbles, 7)                                                                            \
    X(kind, nibbles, 8)
FOR_ROWS(DEFINE_ROWS, nibbles, true)
FOR_ROWS(DEFINE_ROWS, bytes, false)
static tile_fn *const of_nibbles[MOST][WIDTH] = {FOR_ROWS(NAMES, nibbles, true)};
static tile_fn *const of_bytes[MOST][WIDTH] = {FOR_ROWS(NAMES, bytes, false)};

void AX_VEC(ax_packed_panels)(const struct ax_packed_gemm *a, const struct ax_gemm *g,
                              int threads) {
    const int64_t panels = a->c.shape[1] / AX_PANEL_ROWS, stride = a->a.row_stride;
    tile_fn *const(*tiles)[WIDTH] = ax_quant_info(a->kind)->values ? of_nibbles : of_bytes;
    const int64_t width = a->a.shape[0] < MOST ? 2 : WIDTH;
    AX_PARALLEL_FOR (threads, i, ceil_div(panels, width)) {
        const int64_t first = i * width, n = least(width, panels - first);
        for (int64_t r = 0; r < a->a.shape[0]; r += MOST) {
            const int64_t rows = least(MOST, a->a.shape[0] - r);
            float acc[MOST * AX_GEMM_NR];
            tiles[rows - 1][n - 1](codes_at(a, first), (const uint16_t *)a->a.data + r * stride,
                                   stride, acc);
            AX_VEC(ax_gemm_store)(g, acc, r, first * AX_PANEL_ROWS, rows, n * AX_PANEL_ROWS);
        }
    }
}

#else

bool AX_VEC(ax_packed_panels_supports)(const struct ax_packed_gemm *a) {
    (void)a;
    return false;
}

void AX_VEC(ax_packed_panels)(const struct ax_packed_gemm *a, const struct ax_gemm *g,
                              int threads) {
    (void)a;
    (void)g;
    (void)threads;
}

#endif
