/* The end of a matrix product: alpha, bias, addend and accumulation in float, and one rounding. */
#include "kernels/cpu/vec/gemm/gemm.h"

/* With BF16 instructions the sums have no denormals, so the instruction that flushes them can do
 * the rounding. */
AX_INLINE void put(enum ax_dtype dtype, void *base, int64_t i, int64_t n, v_float x) {
#ifdef __AVX512BF16__
    if (dtype == AX_BF16) {
        __m256i half = (__m256i)_mm512_cvtneps_pbh(x);
        if (n >= AX_LANES)
            _mm256_storeu_si256((void *)((uint16_t *)base + i), half);
        else
            _mm256_mask_storeu_epi16((uint16_t *)base + i, v_first(n), half);
        return;
    }
#endif
    v_store(dtype, base, i, n, x);
}

/* dtype: of a, b and bias. */
AX_INLINE void store(enum ax_dtype c_dtype, enum ax_dtype dtype, const struct ax_gemm *g,
                     const float *acc, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const v_float alpha = v_set((float)g->alpha);
    const struct ax_tensor *plus = g->accumulate ? &g->c : &g->addend;
    const bool adds = g->accumulate || g->addend.data != NULL;
    for (int64_t r = 0; r < rows; r++, acc += AX_GEMM_NR) {
        int64_t c_at = (row + r) * g->c.row_stride + col;
        int64_t plus_at = (row + r) * plus->row_stride + col;
        for (int64_t j = 0; j < cols; j += AX_LANES) {
            v_float x = v_load_f32(acc + j, AX_LANES) * alpha;
            if (g->bias.data != NULL)
                x += v_load(dtype, g->bias.data, col + j, cols - j);
            if (adds)
                x += v_load(c_dtype, plus->data, plus_at + j, cols - j);
            put(c_dtype, g->c.data, c_at + j, cols - j, x);
        }
    }
}

void AX_VEC(ax_gemm_store)(const struct ax_gemm *g, const float *acc, int64_t row, int64_t col,
                           int64_t rows, int64_t cols) {
    if (g->c.dtype == AX_BF16)
        store(AX_BF16, AX_BF16, g, acc, row, col, rows, cols);
    else if (g->a.dtype == AX_BF16)
        store(AX_F32, AX_BF16, g, acc, row, col, rows, cols);
    else
        store(AX_F32, AX_F32, g, acc, row, col, rows, cols);
}
