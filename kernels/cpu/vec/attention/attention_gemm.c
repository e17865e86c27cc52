/* The matrix products of attention: tiles of AX_ATTENTION_TILE rows by up to MAX_VECTORS vectors,
 * kept in registers while the sum runs. There is one for every height and width, so that edges and
 * single rows cost no more than their size. */
#include "kernels/cpu/vec/attention/attention.h"

#if defined(__AVX512F__) || defined(__ARM_NEON)
#define MAX_VECTORS 4 /* 6 × 4 sums, 4 of b and 1 of a: 29 of 32 registers */
#else
#define MAX_VECTORS 2 /* 6 × 2 sums, 2 of b and 1 of a: 15 of 16 registers */
#endif

/* rows, vectors and pairs are constants after inlining: the loops unroll and sum stays in
 * registers. */
AX_INLINE void tile(int rows, int vectors, bool pairs, const struct ax_attention_gemm *g, int64_t m,
                    int64_t n) {
    const float *a = g->a + m * g->a_row;
    const float *b = g->b + n;
    float *c = g->c + m * g->c_row + n;
    int64_t a_row = g->a_row;
    v_float sum[AX_ATTENTION_TILE][MAX_VECTORS];
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < vectors; j++) {
            sum[i][j] =
                g->accumulate ? v_load_f32(c + i * g->c_row + j * AX_LANES, AX_LANES) : v_set(0.0f);
        }
    }
    for (int64_t u = 0; u < g->units; u++) {
        v_float right[MAX_VECTORS];
        for (int j = 0; j < vectors; j++)
            right[j] = v_load_f32(b + j * AX_LANES, AX_LANES);
        for (int i = 0; i < rows; i++) {
            v_float left = v_set(a[i * a_row]);
            for (int j = 0; j < vectors; j++)
                sum[i][j] = v_multiply_add(pairs, left, right[j], sum[i][j]);
        }
        a += g->a_unit;
        b += g->b_unit;
    }
    v_float scale = v_set(g->accumulate ? 1.0f : g->scale);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            v_store_f32(c + i * g->c_row + j * AX_LANES, AX_LANES, sum[i][j] * scale);
}

#define CASE(rows, vectors)                                                                        \
    case (rows)*8 + (vectors):                                                                     \
        tile(rows, vectors, pairs, g, m, n);                                                       \
        break;
#define CASES(vectors)                                                                             \
    CASE(1, vectors)                                                                               \
    CASE(2, vectors)                                                                               \
    CASE(3, vectors)                                                                               \
    CASE(4, vectors)                                                                               \
    CASE(5, vectors)                                                                               \
    CASE(6, vectors)
_Static_assert(AX_ATTENTION_TILE == 6, "CASES lists every number of rows");

AX_INLINE void gemm(bool pairs, const struct ax_attention_gemm *g) {
    for (int64_t n = 0; n < g->n; n += MAX_VECTORS * AX_LANES) {
        int64_t vectors = least((g->n - n) / AX_LANES, MAX_VECTORS);
        for (int64_t m = 0; m < g->m; m += AX_ATTENTION_TILE) {
            int64_t rows = least(g->m - m, AX_ATTENTION_TILE);
            switch (rows * 8 + vectors) {
                CASES(1)
                CASES(2)
#if MAX_VECTORS == 4
                CASES(3)
                CASES(4)
#endif
            default:
                break;
            }
        }
    }
}

void AX_VEC(ax_attention_gemm)(const struct ax_attention_gemm *g) {
#ifdef __AVX512BF16__
    if (g->pairs) {
        gemm(true, g);
        return;
    }
#endif
    gemm(false, g);
}
