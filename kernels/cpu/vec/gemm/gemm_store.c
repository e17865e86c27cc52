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

/* Two full vectors side by side. */
AX_INLINE void put_two(enum ax_dtype dtype, void *base, int64_t i, v_float x, v_float y) {
#ifdef __AVX512BF16__
    if (dtype == AX_BF16) {
        _mm512_storeu_si512((uint16_t *)base + i, (__m512i)_mm512_cvtne2ps_pbh(y, x));
        return;
    }
#endif
    v_store(dtype, base, i, AX_LANES, x);
    v_store(dtype, base, i + AX_LANES, AX_LANES, y);
}

/* What is added to the sums of the row at hand; NULL: nothing. Elements 0 … are those of the tile's columns. */
struct addends {
    const void *bias, *plus;
    int64_t col, plus_at;
};

/* n elements from column j of the tile on. */
AX_INLINE v_float finished(enum ax_dtype c_dtype, enum ax_dtype dtype, const struct addends *add,
                           const float *acc, v_float alpha, int64_t j, int64_t n) {
    v_float x = v_load_f32(acc + j, AX_LANES) * alpha;
    if (add->bias != NULL)
        x += v_load(dtype, add->bias, add->col + j, n);
    if (add->plus != NULL)
        x += v_load(c_dtype, add->plus, add->plus_at + j, n);
    return x;
}

/* dtype: of a, b and bias. */
AX_INLINE void store(enum ax_dtype c_dtype, enum ax_dtype dtype, const struct ax_gemm *g,
                     const float *acc, int64_t row, int64_t col, int64_t rows, int64_t cols,
                     struct addends add) {
    const v_float alpha = v_set((float)g->alpha);
    const int64_t plus_stride = g->accumulate ? g->c.row_stride : g->addend.row_stride;
    for (int64_t r = 0; r < rows; r++, acc += AX_GEMM_NR) {
        const int64_t c_at = (row + r) * g->c.row_stride + col;
        int64_t j = 0;
        add.plus_at = (row + r) * plus_stride + col;
        for (; j + 2 * AX_LANES <= cols; j += 2 * AX_LANES)
            put_two(c_dtype, g->c.data, c_at + j,
                    finished(c_dtype, dtype, &add, acc, alpha, j, AX_LANES),
                    finished(c_dtype, dtype, &add, acc, alpha, j + AX_LANES, AX_LANES));
        for (; j < cols; j += AX_LANES)
            put(c_dtype, g->c.data, c_at + j, cols - j,
                finished(c_dtype, dtype, &add, acc, alpha, j, cols - j));
    }
}

/* What most products have is constant there. */
AX_INLINE void store_by(enum ax_dtype c_dtype, enum ax_dtype dtype, const struct ax_gemm *g,
                        const float *acc, int64_t row, int64_t col, int64_t rows, int64_t cols) {
    const struct addends add = {g->bias.data, g->accumulate ? g->c.data : g->addend.data, col, 0};
    if (cols < AX_GEMM_NR || add.bias != NULL)
        store(c_dtype, dtype, g, acc, row, col, rows, cols, add);
    else if (add.plus != NULL)
        store(c_dtype, dtype, g, acc, row, col, rows, AX_GEMM_NR,
              (struct addends){NULL, add.plus, col, 0});
    else
        store(c_dtype, dtype, g, acc, row, col, rows, AX_GEMM_NR, (struct addends){0});
}

void AX_VEC(ax_gemm_store)(const struct ax_gemm *g, const float *acc, int64_t row, int64_t col,
                           int64_t rows, int64_t cols) {
    if (g->c.dtype == AX_BF16)
        store_by(AX_BF16, AX_BF16, g, acc, row, col, rows, cols);
    else if (g->a.dtype == AX_BF16)
        store_by(AX_F32, AX_BF16, g, acc, row, col, rows, cols);
    else
        store_by(AX_F32, AX_F32, g, acc, row, col, rows, cols);
}
