/* Rows of q, k, v and dout as operands of ax_attention_gemm: straight, transposed, or with pairs of
 * rows interleaved. bf16 is moved or widened; nothing is rounded. */
#include "kernels/cpu/vec/attention/attention.h"

/* Units u … of one row, as many as a vector holds; 0 beyond the row. */
AX_INLINE v_float row_units(enum ax_dtype dtype, bool pairs, const void *row, int64_t head_dim,
                            int64_t u) {
#ifdef __AVX512BF16__
    if (pairs) {
        int64_t left = head_dim - 2 * u;
        const uint16_t *from = (const uint16_t *)row + 2 * u;
        __mmask32 inside = left >= 2 * AX_LANES ? ~0u : (1u << left) - 1u;
        return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(inside, from));
    }
#endif
    (void)pairs;
    return v_load(dtype, row, u, least(head_dim - u, AX_LANES));
}

/* Elements i … of two rows, those of `odd` (NULL = zeros) in the upper halves of the units. */
#ifdef __AVX512BF16__
AX_INLINE v_float interleave(const uint16_t *even, const uint16_t *odd, int64_t i, int64_t n) {
    __m512i low = _mm512_srli_epi32(_mm512_castps_si512(v_load_bf16(even + i, n)), 16);
    if (odd != NULL)
        low = _mm512_or_si512(low, _mm512_castps_si512(v_load_bf16(odd + i, n)));
    return _mm512_castsi512_ps(low);
}

/* The same for two full vectors at i. */
AX_INLINE void interleave_two(const uint16_t *even, const uint16_t *odd, int64_t i, float *dst) {
    /* word w of the result is word w / 2 of the first (even w) or of the second (odd w) */
    const __m512i first = _mm512_add_epi32(
        _mm512_mullo_epi32(_mm512_set1_epi32(0x10001),
                           _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)),
        _mm512_set1_epi32(32 << 16));
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(16 << 16 | 16));
    const __m512i x = _mm512_loadu_si512(even + i), y = _mm512_loadu_si512(odd + i);
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi16(x, first, y));
    _mm512_storeu_si512(dst + AX_LANES, _mm512_permutex2var_epi16(x, second, y));
}
#endif

#ifdef __AVX512F__
#define LOW32(a, b)  _mm512_unpacklo_ps(a, b)
#define HIGH32(a, b) _mm512_unpackhi_ps(a, b)
#define LOW64(a, b)  ((v_float)_mm512_unpacklo_pd((__m512d)(a), (__m512d)(b)))
#define HIGH64(a, b) ((v_float)_mm512_unpackhi_pd((__m512d)(a), (__m512d)(b)))
#elif !defined(__AVX2__)
#define LOW32  v_zip_low
#define HIGH32 v_zip_high
#define LOW64  v_low_halves
#define HIGH64 v_high_halves
#else
#define LOW32(a, b)  _mm256_unpacklo_ps(a, b)
#define HIGH32(a, b) _mm256_unpackhi_ps(a, b)
#define LOW64(a, b)  ((v_float)_mm256_unpacklo_pd((__m256d)(a), (__m256d)(b)))
#define HIGH64(a, b) ((v_float)_mm256_unpackhi_pd((__m256d)(a), (__m256d)(b)))
#endif

/* Transposes AX_LANES × AX_LANES in place: 4 × 4 within 128-bit lanes, then the lanes. */
AX_INLINE void transpose(v_float x[AX_LANES]) {
    v_float y[AX_LANES]; /* y[4i + c]: lane l holds column 4l + c of rows 4i … 4i + 3 */
    for (int i = 0; i < AX_LANES; i += 4) {
        v_float a = LOW32(x[i], x[i + 1]);
        v_float b = HIGH32(x[i], x[i + 1]);
        v_float c = LOW32(x[i + 2], x[i + 3]);
        v_float d = HIGH32(x[i + 2], x[i + 3]);
        y[i] = LOW64(a, c);
        y[i + 1] = HIGH64(a, c);
        y[i + 2] = LOW64(b, d);
        y[i + 3] = HIGH64(b, d);
    }
    for (int c = 0; c < 4; c++) {
#ifdef __AVX512F__
        v_float even = _mm512_shuffle_f32x4(y[c], y[4 + c], 0x88); /* lanes 0 and 2 of each */
        v_float odd = _mm512_shuffle_f32x4(y[c], y[4 + c], 0xdd);
        v_float even2 = _mm512_shuffle_f32x4(y[8 + c], y[12 + c], 0x88);
        v_float odd2 = _mm512_shuffle_f32x4(y[8 + c], y[12 + c], 0xdd);
        x[c] = _mm512_shuffle_f32x4(even, even2, 0x88);
        x[4 + c] = _mm512_shuffle_f32x4(odd, odd2, 0x88);
        x[8 + c] = _mm512_shuffle_f32x4(even, even2, 0xdd);
        x[12 + c] = _mm512_shuffle_f32x4(odd, odd2, 0xdd);
#elif !defined(__AVX2__)
        x[c] = y[c];
#else
        x[c] = _mm256_permute2f128_ps(y[c], y[4 + c], 0x20);
        x[4 + c] = _mm256_permute2f128_ps(y[c], y[4 + c], 0x31);
#endif
    }
}

AX_INLINE void pack_rows(enum ax_dtype dtype, bool pairs, const struct ax_attention_head *h,
                         void *const *rows, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r++) {
        for (int64_t u = 0; u < h->units; u += AX_LANES) {
            v_store_f32(dst + r * h->units + u, least(h->units - u, AX_LANES),
                        row_units(dtype, pairs, rows[r], h->size, u));
        }
    }
}

AX_INLINE void pack_columns(enum ax_dtype dtype, bool pairs, const struct ax_attention_head *h,
                            void *const *rows, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r += AX_LANES) {
        for (int64_t u = 0; u < h->units; u += AX_LANES) {
            v_float x[AX_LANES];
            for (int i = 0; i < AX_LANES; i++)
                x[i] = r + i < n ? row_units(dtype, pairs, rows[r + i], h->size, u) : v_set(0.0f);
            transpose(x);
            int64_t height = least(h->units - u, AX_LANES);
            for (int64_t i = 0; i < height; i++)
                v_store_f32(dst + (u + i) * AX_ATTENTION_KEYS + r, AX_LANES, x[i]);
        }
    }
}

AX_INLINE void pack_sums(enum ax_dtype dtype, bool pairs, const struct ax_attention_head *h,
                         void *const *rows, int64_t n, float *dst) {
    for (int64_t r = 0; r < n; r += pairs ? 2 : 1) {
        int64_t i = 0;
#ifdef __AVX512BF16__
        for (; pairs && r + 1 < n && i + 2 * AX_LANES <= h->size; i += 2 * AX_LANES)
            interleave_two(rows[r], rows[r + 1], i, dst + i);
#endif
        for (; i < h->columns; i += AX_LANES) {
            int64_t width = least(h->size - i, AX_LANES);
#ifdef __AVX512BF16__
            if (pairs) {
                const void *odd = r + 1 < n ? rows[r + 1] : NULL;
                v_store_f32(dst + i, AX_LANES, interleave(rows[r], odd, i, width));
                continue;
            }
#endif
            v_store_f32(dst + i, AX_LANES, v_load(dtype, rows[r], i, width));
        }
        dst += h->columns;
    }
}

#ifdef AX_TILES
void AX_VEC(ax_attention_pack_turned)(const struct ax_attention_head *h, void *const *rows,
                                      int64_t n, int64_t padded, float *dst) {
    const int64_t units = padded / 2;
    for (int64_t u = 0; u < units; u += AX_LANES) {
        for (int64_t i = 0; i < h->columns; i += AX_LANES) {
            v_float x[AX_LANES];
            for (int64_t l = 0; l < AX_LANES; l++) {
                const int64_t r = 2 * (u + l);
                const void *odd = r + 1 < n ? rows[r + 1] : NULL;
                x[l] =
                    r < n ? interleave(rows[r], odd, i, least(h->size - i, AX_LANES)) : v_set(0.0f);
            }
            transpose(x);
            for (int64_t l = 0; l < AX_LANES; l++)
                v_store_f32(dst + (i + l) * units + u, AX_LANES, x[l]);
        }
    }
}
#endif

/* function(dtype, pairs, …) with both as constants. */
#ifdef __AVX512BF16__
#define BY_UNIT(s, function, ...)                                                                  \
    ((s)->pairs ? function(AX_BF16, true, __VA_ARGS__) : function(AX_F32, false, __VA_ARGS__))
#else
#define BY_UNIT(s, function, ...)                                                                  \
    ((s)->dtype == AX_BF16 ? function(AX_BF16, false, __VA_ARGS__)                                 \
                           : function(AX_F32, false, __VA_ARGS__))
#endif

void AX_VEC(ax_attention_pack_rows)(const struct ax_attention_shape *s,
                                    const struct ax_attention_head *h, void *const *rows, int64_t n,
                                    float *dst) {
    BY_UNIT(s, pack_rows, h, rows, n, dst);
}

void AX_VEC(ax_attention_pack_columns)(const struct ax_attention_shape *s,
                                       const struct ax_attention_head *h, void *const *rows,
                                       int64_t n, float *dst) {
    BY_UNIT(s, pack_columns, h, rows, n, dst);
}

void AX_VEC(ax_attention_pack_sums)(const struct ax_attention_shape *s,
                                    const struct ax_attention_head *h, void *const *rows, int64_t n,
                                    int64_t padded, float *dst) {
    BY_UNIT(s, pack_sums, h, rows, n, dst);
    int64_t used = ceil_div(n, s->per_unit) * h->columns;
    int64_t all = ceil_div(padded, s->per_unit) * h->columns;
    memset(dst + used, 0, (size_t)(all - used) * sizeof(*dst));
}
