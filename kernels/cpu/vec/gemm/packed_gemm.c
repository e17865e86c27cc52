/* Products with packed weights; in panels: packed_panels.c. Else, of a few rows, as in decoding, codes go from memory to registers: those
 * of 16 rows of W are transposed as 32-bit words of neighbors along k, so that each lane has one row, and
 * become pairs of bf16 there. Others are unpacked first.
 *
 * An element's sum adds the pairs in ascending order from 0, as everywhere: same bits. */
#include "kernels/cpu/isa.h"
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/gemm/gemm.h"
#include "kernels/cpu/vec/gemm/gemm_pack.h"
#include "kernels/cpu/vec/gemm/packed_panels.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/quant/scheme.h"

#ifdef AX_TILES
enum ax_status ax_cpu_dequantize_avx512bf16(struct ax_queue *q, const struct ax_dequantize *args,
                                            void *work);
#define UNPACK          ax_cpu_dequantize_avx512bf16
#define PANELS          ax_packed_panels_avx512bf16
#define SUPPORTS_PANELS ax_packed_panels_supports_avx512bf16
#else
#define UNPACK          AX_VEC(ax_cpu_dequantize)
#define PANELS          AX_VEC(ax_packed_panels)
#define SUPPORTS_PANELS AX_VEC(ax_packed_panels_supports)
#endif

/* ---- few rows ---- */

#if defined(__AVX512BF16__) && !defined(AX_TILES)

#define LANES AX_LANES
#define MOST  8 /* rows of a: as many sums */
#define WORDS LANES

/* Codes in a word: one byte each, or two per byte. */
static int64_t codes_per_word(enum ax_quant kind) {
    return ax_quant_info(kind)->values ? 8 : 4;
}

static bool is_few(const struct ax_packed_gemm *a) {
    const int64_t k = a->a.shape[1], per = codes_per_word(a->kind);
    const bool known =
        ax_quant_info(a->kind)->values || a->kind == AX_QUANT_INT8 || a->kind == AX_QUANT_INT4;
    return known && !a->codes.panels && a->a.dtype == AX_BF16 && a->a.shape[0] <= MOST &&
           a->c.shape[1] % LANES == 0 && k > 0 && k % 2 == 0 && k % a->block == 0 &&
           (a->block % per == 0 || a->block == k) && a->codes.shape[0] < INT32_MAX;
}

/* 16 rows of W: their codes, `stride` bytes apart, and scales, `per_row` apart, each of `words` words. */
struct rows {
    const unsigned char *codes;
    const float *scale, *values; /* [16], of codes two in a byte */
    int64_t stride, per_row, words;
};

/* The words of all rows from byte `at` on, a lane for each row; and prefetches those of the next rows. */
AX_INLINE void read_words(const struct rows *w, int64_t at, v_float words[WORDS]) {
    const int64_t left = w->stride - at;
    const __mmask64 mask = left >= 64 ? ~0ULL : (1ULL << left) - 1;
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) {
        const unsigned char *row = w->codes + r * w->stride + at;
        words[r] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi8(mask, row));
        __builtin_prefetch(row + LANES * w->stride, 0, 2);
    }
    transpose(words);
}

AX_INLINE v_float scales_at(const struct rows *w, int64_t block) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (w->per_row == 1)
        return _mm512_loadu_ps(w->scale);
    return _mm512_i32gather_ps(_mm512_mullo_epi32(lane, _mm512_set1_epi32((int)w->per_row)),
                               w->scale + block, 4);
}

/* Two values of each row as a pair. */
AX_INLINE __m512bh pair_of(v_float even, v_float odd) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i pair = _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
#ifdef __clang__
    __asm__("" : "+v"(pair)); /* clang 16 crashes when it sees where it is from */
#endif
    return (__m512bh)pair;
}

/* Code i of each word, a constant after inlining. */
AX_INLINE v_float value_of(bool halves, v_float values, __m512i word, int i) {
    if (halves) /* the even element is in the high half of its byte */
        return _mm512_permutexvar_ps(_mm512_srli_epi32(word, (unsigned)(4 * (i ^ 1))), values);
    return _mm512_cvtepi32_ps(
        _mm512_srai_epi32(_mm512_slli_epi32(word, (unsigned)(24 - 8 * i)), 24));
}

/* The rows of x, at the first unit. */
struct x_rows {
    const uint16_t *at;
    int64_t stride;
};

/* acc [rows][NR] = x·Wᵀ of 16 rows of W. halves and rows are constants after inlining. */
AX_INLINE void tile(bool halves, int rows, const struct rows *w, struct x_rows x, int64_t units,
                    float *acc) {
    const int per = halves ? 4 : 2; /* pairs in a word */
    const v_float values = halves ? _mm512_loadu_ps(w->values) : v_set(0);
    v_float sum[MOST], words[WORDS], scale = v_set(0);
    int64_t block = 0, left = 0;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        sum[r] = v_set(0);
    for (int64_t u = 0; u < units;) {
        read_words(w, u / per * 4, words);
        for (int i = 0; i < WORDS && u < units; i++) {
            const __m512i word = _mm512_castps_si512(words[i]);
            if (left == 0) {
                scale = scales_at(w, block++);
                left = w->words;
            }
            left--;
#pragma GCC unroll 4
            for (int p = 0; p < per; p++, u++) {
                const __m512bh pair = pair_of(value_of(halves, values, word, 2 * p) * scale,
                                              value_of(halves, values, word, 2 * p + 1) * scale);
                if (u >= units)
                    break;
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const v_float both = ax_pair_at(x.at + r * x.stride + 2 * u);
                    sum[r] = _mm512_dpbf16_ps(sum[r], (__m512bh)both, pair);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        v_store_f32(acc + r * AX_GEMM_NR, LANES, sum[r]);
}

typedef void tile_fn(const struct rows *w, struct x_rows x, int64_t units, float *acc);

#define DEFINE(halves, n)                                                                          \
    static void tile_##halves##_##n(const struct rows *w, struct x_rows x, int64_t units,          \
                                    float *acc) {                                                  \
        tile(halves, n, w, x, units, acc);                                                         \
    }
#define FOR_ROWS(X, halves)                                                                        \
    X(halves, 1)                                                                                   \
    X(halves, 2) X(halves, 3) X(halves, 4) X(halves, 5) X(halves, 6) X(halves, 7) X(halves, 8)
#define NAME(halves, n) tile_##halves##_##n,
FOR_ROWS(DEFINE, 0)
FOR_ROWS(DEFINE, 1)
/* [codes two in a byte][rows − 1] */
static tile_fn *const tiles[2][MOST] = {{FOR_ROWS(NAME, 0)}, {FOR_ROWS(NAME, 1)}};

static void run_rows(const struct ax_packed_gemm *a, const struct ax_gemm *g, int64_t n) {
    const int64_t k = a->a.shape[1], per = codes_per_word(a->kind), rows = a->a.shape[0];
    const int64_t per_row = k / a->block, stride = ax_quant_code_bytes(a->kind, k);
    const float *values = ax_quant_info(a->kind)->values;
    const struct rows w = {.codes = (const unsigned char *)a->codes.data + n * stride,
                           .scale = (const float *)a->scale.data + n * per_row,
                           .values = values,
                           .stride = stride,
                           .per_row = per_row,
                           .words = ceil_div(a->block, per)};
    float acc[MOST * AX_GEMM_NR];
    tiles[values != NULL][rows - 1](&w, (struct x_rows){a->a.data, a->a.row_stride}, k / 2, acc);
    AX_VEC(ax_gemm_store)(g, acc, 0, n, rows, LANES);
}

static void run_few(const struct ax_packed_gemm *a, int threads) {
    const struct ax_gemm g = ax_packed_gemm_of(a, NULL);
    AX_PARALLEL_FOR (AX_VEC(ax_gemm_threads)(&g, threads), i, a->c.shape[1] / LANES)
        run_rows(a, &g, i * LANES);
}

#else

static bool is_few(const struct ax_packed_gemm *a) {
    (void)a;
    return false;
}

static void run_few(const struct ax_packed_gemm *a, int threads) {
    (void)a;
    (void)threads;
}

#endif

/* ---- many ---- */

bool AX_VEC(ax_cpu_packed_gemm_supports)(const struct ax_queue *q, const struct ax_packed_gemm *a) {
    const struct ax_gemm g = ax_packed_gemm_of(a, NULL);
    return (!a->codes.panels || SUPPORTS_PANELS(a)) && AX_VEC(ax_cpu_gemm_supports)(q, &g);
}

/* Those of the values, rounded up to whole cache lines. */
static size_t values_bytes(const struct ax_packed_gemm *a) {
    const size_t n = (size_t)(a->c.shape[1] * a->a.shape[1]) * ax_dtype_size(a->a.dtype);
    return (n + 63) / 64 * 64;
}

size_t AX_VEC(ax_cpu_packed_gemm_workspace)(struct ax_queue *q, const struct ax_packed_gemm *a) {
    const struct ax_gemm g = ax_packed_gemm_of(a, NULL);
    if (a->codes.panels)
        return 0;
    return values_bytes(a) + AX_VEC(ax_cpu_gemm_workspace)(q, &g);
}

enum ax_status AX_VEC(ax_cpu_packed_gemm)(struct ax_queue *q, const struct ax_packed_gemm *a,
                                          void *work) {
    const bool any = ax_tensor_numel(&a->c) > 0;
    const struct ax_gemm g = ax_packed_gemm_of(a, work);
    const struct ax_dequantize d = {
        .out = g.b, .codes = a->codes, .scale = a->scale, .block = a->block, .kind = a->kind};
    if (a->codes.panels && any)
        PANELS(a, &g, ax_cpu_has_vbmi(), AX_VEC(ax_gemm_threads)(&g, q->threads));
    if (a->codes.panels || !any)
        return AX_OK;
    if (is_few(a)) {
        run_few(a, q->threads);
        return AX_OK;
    }
    AX_TRY(UNPACK(q, &d, NULL));
    return AX_VEC(ax_cpu_gemm)(q, &g, (char *)work + values_bytes(a));
}
