/* Codes in panels: 16 rows of W at a time, in the order in which the pairs of a sum are made of them, so that a
 * vector of codes becomes numbers, is multiplied with its rows' scales and rounded to the pairs of the
 * product without any rearrangement.
 *
 * An element's sum adds the pairs in ascending order from 0, as everywhere: same bits. Two panels at a
 * time, so that one sum does not wait for itself; the same place of the next two is prefetched. */
#include "kernels/cpu/vec/packed_panels.h"

#include "kernels/cpu/vec/split.h"
#include "kernels/panels.h"
#include "kernels/scheme.h"

#ifdef __AVX512BF16__

#define MOST  8 /* rows of x */
#define WIDTH 2 /* panels */
#define PAIRS 4 /* of 8 columns */

bool AX_VEC(ax_packed_panels_supports)(const struct ax_packed_gemm *a) {
    return a->a.dtype == AX_BF16;
}

bool AX_VEC(ax_packed_panels_are_few)(const struct ax_packed_gemm *a) {
    return a->codes.panels && a->a.shape[0] <= MOST;
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

/* The scales of 8 rows, each twice: of rows 0 to 7 in low, 8 to 15 in high. */
struct scales {
    v_float low, high;
};

AX_INLINE struct scales scales_at(const float *scale) {
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const v_float all = _mm512_loadu_ps(scale);
    return (struct scales){
        _mm512_permutexvar_ps(twice, all),
        _mm512_permutexvar_ps(_mm512_add_epi32(twice, _mm512_set1_epi32(8)), all)};
}

/* Half h of pair p of 8 columns at c: 8 rows' two numbers. */
AX_INLINE v_float numbers(bool nibbles, const unsigned char *c, v_float values, int p, int h) {
    if (nibbles)
        return _mm512_permutexvar_ps(
            _mm512_srli_epi32(_mm512_loadu_si512((const void *)c), (unsigned)(8 * p + 4 * h)),
            values);
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(c + 32 * p + 16 * h))));
}

AX_INLINE __m512bh pairs(bool nibbles, const unsigned char *c, v_float values, int p,
                         struct scales s) {
    return _mm512_cvtne2ps_pbh(numbers(nibbles, c, values, p, 1) * s.high,
                               numbers(nibbles, c, values, p, 0) * s.low);
}

/* acc [rows][NR] of `width` panels. nibbles, rows and width are constants after inlining. */
AX_INLINE void tile(bool nibbles, int rows, int width, struct codes w, const struct ax_tensor *a,
                    float *acc) {
    const uint16_t *x = a->data;
    const v_float values = nibbles ? _mm512_loadu_ps(w.values) : v_set(0);
    v_float sum[MOST][WIDTH];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            sum[r][v] = v_set(0);
    for (int64_t b = 0; b < w.blocks; b++, w.scale += AX_PANEL_ROWS) {
        struct scales s[WIDTH];
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            s[v] = scales_at(w.scale + v * w.scales);
        for (int64_t g = 0; g < w.groups; g++, w.at += w.step, x += 2 * PAIRS) {
#pragma GCC unroll 2
            for (int v = 0; v < width; v++)
                for (int64_t i = 0; i < (nibbles ? 1 : 2); i++)
                    __builtin_prefetch(w.at + (v + width) * w.stride + 64 * i, 0, 2);
#pragma GCC unroll 4
            for (int p = 0; p < PAIRS; p++) {
                __m512bh unit[WIDTH];
#pragma GCC unroll 2
                for (int v = 0; v < width; v++)
                    unit[v] = pairs(nibbles, w.at + v * w.stride, values, p, s[v]);
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const v_float one = ax_pair_at(x + r * a->row_stride + 2 * p);
#pragma GCC unroll 2
                    for (int v = 0; v < width; v++)
                        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], (__m512bh)one, unit[v]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < width; v++)
            v_store_f32(acc + r * AX_GEMM_NR + v * AX_PANEL_ROWS, AX_PANEL_ROWS, sum[r][v]);
}

typedef void tile_fn(struct codes w, const struct ax_tensor *a, float *acc);

#define DEFINE(kind, nibbles, rows, width)                                                         \
    static void kind##_##rows##x##width(struct codes w, const struct ax_tensor *a, float *acc) {   \
        tile(nibbles, rows, width, w, a, acc);                                                     \
    }
#define DEFINE_ROWS(kind, nibbles, rows)                                                           \
    DEFINE(kind, nibbles, rows, 1) DEFINE(kind, nibbles, rows, 2)
#define NAMES(kind, unused, rows) {kind##_##rows##x1, kind##_##rows##x2},
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
    const int64_t panels = a->c.shape[1] / AX_PANEL_ROWS, rows = a->a.shape[0];
    tile_fn *const *tiles = (ax_quant_info(a->kind)->values ? of_nibbles : of_bytes)[rows - 1];
    AX_PARALLEL_FOR (threads, i, ceil_div(panels, WIDTH)) {
        const int64_t first = i * WIDTH, n = least(WIDTH, panels - first);
        float acc[MOST * AX_GEMM_NR];
        tiles[n - 1](codes_at(a, first), &a->a, acc);
        AX_VEC(ax_gemm_store)(g, acc, 0, first * AX_PANEL_ROWS, rows, n * AX_PANEL_ROWS);
    }
}

/* ---- many rows ---- */

AX_INLINE void unpack(bool nibbles, struct codes w, uint16_t *to) {
    const v_float values = nibbles ? _mm512_loadu_ps(w.values) : v_set(0);
    for (int64_t b = 0; b < w.blocks; b++, w.scale += AX_PANEL_ROWS) {
        const struct scales s = scales_at(w.scale);
        for (int64_t g = 0; g < w.groups; g++, w.at += w.step)
            for (int p = 0; p < PAIRS; p++, to += 2 * AX_PANEL_ROWS)
                _mm512_storeu_si512((void *)to, (__m512i)pairs(nibbles, w.at, values, p, s));
    }
}

void AX_VEC(ax_packed_panels_unpack)(const struct ax_packed_gemm *a, void *values, int threads) {
    const int64_t size = AX_PANEL_ROWS * a->a.shape[1];
    AX_PARALLEL_FOR (threads, i, a->c.shape[1] / AX_PANEL_ROWS) {
        if (ax_quant_info(a->kind)->values)
            unpack(true, codes_at(a, i), (uint16_t *)values + i * size);
        else
            unpack(false, codes_at(a, i), (uint16_t *)values + i * size);
    }
}

#else

bool AX_VEC(ax_packed_panels_supports)(const struct ax_packed_gemm *a) {
    (void)a;
    return false;
}

bool AX_VEC(ax_packed_panels_are_few)(const struct ax_packed_gemm *a) {
    (void)a;
    return false;
}

void AX_VEC(ax_packed_panels)(const struct ax_packed_gemm *a, const struct ax_gemm *g,
                              int threads) {
    (void)a;
    (void)g;
    (void)threads;
}

void AX_VEC(ax_packed_panels_unpack)(const struct ax_packed_gemm *a, void *values, int threads) {
    (void)a;
    (void)values;
    (void)threads;
}

#endif
