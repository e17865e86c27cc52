/* Packing: panels of an operand, in the order in which the micro-kernel reads them. Operands whose
 * rows run along k are transposed, LANES rows by LANES units at a time, in registers. */
#include "kernels/cpu/vec/gemm/gemm_pack.h"
#include "kernels/panels.h"

#define LANES AX_LANES
#define MR    AX_GEMM_MR
#define NR    AX_GEMM_NR

/* Strides in packed memory, in floats: between strips of LANES rows, between the halves of a strip,
 * and between units. */
struct layout {
    int64_t strip, half, unit;
};

#ifdef __AVX512F__
AX_INLINE void put(float *dst, int64_t half, v_float x) {
    _mm256_storeu_ps(dst, _mm512_castps512_ps256(x));
    _mm256_storeu_ps(dst + half, _mm512_extractf32x8_ps(x, 1));
}
#elif !defined(__AVX2__)
AX_INLINE void put(float *dst, int64_t half, v_float x) {
    vst1_f32(dst, vget_low_f32(x));
    vst1_f32(dst + half, vget_high_f32(x));
}
#else
AX_INLINE void put(float *dst, int64_t half, v_float x) {
    _mm_storeu_ps(dst, _mm256_castps256_ps128(x));
    _mm_storeu_ps(dst + half, _mm256_extractf128_ps(x, 1));
}
#endif

/* Of pairs of bf16, the first ones and the second ones. */
AX_INLINE v_float first_of_pairs(v_float pairs) {
#ifdef __AVX512F__
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
#elif !defined(__AVX2__)
    return (v_float)((uint32x4_t)pairs << 16);
#else
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
#endif
}

AX_INLINE v_float second_of_pairs(v_float pairs) {
#ifdef __AVX512F__
    const __m512i mask = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), mask));
#elif !defined(__AVX2__)
    return (v_float)((uint32x4_t)pairs & vdupq_n_u32(0xffff0000));
#else
    const __m256i mask = _mm256_set1_epi32((int)0xffff0000);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(pairs), mask));
#endif
}

/* What to pack: units [u0, u0 + units) of outer [first, first + n). The next piece is `ahead` bytes
 * from there. */
struct piece {
    const struct ax_gemm_operand *op;
    int64_t first, n, u0, units, ahead;
};

/* Prefetches, but not into the L1 cache, which has no room for it yet. Prefetches go between the
 * stores because many together stall loads. */
AX_INLINE void prefetch(const char *p) {
    __builtin_prefetch(p, 0, 2);
}

/* LANES units of n rows, `left` elements each, as LANES vectors of rows. */
AX_INLINE void load_block(enum ax_dtype dtype, const char *p, int64_t stride, int64_t n,
                          int64_t left, v_float x[LANES]) {
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++)
        x[r] = r < n ? load_along_k(dtype, p + r * stride, left) : v_set(0);
    transpose(x);
}

AX_INLINE void pack_along_k(enum ax_dtype dtype, float *dst, struct layout to, struct piece in) {
    const int64_t step = LANES * k_per_unit(dtype), k0 = in.u0 * k_per_unit(dtype);
    v_float x[LANES];
    for (int64_t r = 0; r < in.n; r += LANES, dst += to.strip) {
        const char *p = in.op->data + (in.first + r) * in.op->stride + k0 * element_size(dtype);
        int64_t left = in.op->k - k0, u = 0;
        for (; in.n - r >= LANES && in.units - u >= LANES && left >= step; u += LANES) {
            load_block(dtype, p, in.op->stride, LANES, step, x);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                put(dst + (u + i) * to.unit, to.half, x[i]);
                prefetch(p + i * in.op->stride + in.ahead);
            }
            p += step * element_size(dtype);
            left -= step;
        }
        for (; u < in.units; u += LANES) {
            load_block(dtype, p, in.op->stride, in.n - r, left, x);
            for (int i = 0; i < LANES && u + i < in.units; i++)
                put(dst + (u + i) * to.unit, to.half, x[i]);
            p += step * element_size(dtype);
            left -= step;
        }
    }
}

/* TURN units of one strip, and so on through all strips: a row's cache lines are read together,
 * from few enough rows that none is evicted if the stride is a multiple of the cache's size. */
#define TURN 4
AX_INLINE void pack_across_k(enum ax_dtype dtype, float *dst, struct layout to, struct piece in) {
    const int64_t per = k_per_unit(dtype), size = element_size(dtype), stride = in.op->stride;
    for (int64_t u0 = 0; u0 < in.units; u0 += TURN) {
        const int64_t k0 = (in.u0 + u0) * per;
        const char *strip = in.op->data + k0 * stride + in.first * size;
        float *at = dst + u0 * to.unit;
        for (int64_t r = 0; r < in.n; r += LANES, at += to.strip, strip += LANES * size) {
            for (int64_t i = 0; i < TURN && u0 + i < in.units; i++) {
                const char *p = strip + i * per * stride;
                const char *q = per == 2 && k0 + 2 * i + 1 < in.op->k ? p + stride : NULL;
                put(at + i * to.unit, to.half, load_across_k(dtype, p, q, in.n - r));
                prefetch(p + in.ahead);
                if (q != NULL)
                    prefetch(q + in.ahead);
            }
        }
    }
}

/* Panels already consist of units, or pairs of them; a strip is a panel, or half of one. The
 * prefetch distance is the same as in rows. */
AX_INLINE void pack_panels(float *dst, struct layout to, struct piece in) {
    const bool pairs = ax_gemm_pairs(AX_BF16);
    const int64_t u0 = in.u0 / (pairs ? 1 : 2);
    for (int64_t r = 0; r < in.n; r += LANES, dst += to.strip) {
        const int64_t row = in.first + r, within = row % AX_PANEL_ROWS;
        const char *panel = in.op->data + (row - within) * in.op->stride + within * 4;
        for (int64_t u = 0; u < in.units; u += pairs ? 1 : 2) {
            const char *p = panel + (u0 + (pairs ? u : u / 2)) * AX_PANEL_ROWS * 4;
            const v_float both = v_load_f32((const float *)p, LANES);
            prefetch(p + in.ahead);
            if (pairs) {
                put(dst + u * to.unit, to.half, both);
                continue;
            }
            put(dst + u * to.unit, to.half, first_of_pairs(both));
            if (u + 1 < in.units)
                put(dst + (u + 1) * to.unit, to.half, second_of_pairs(both));
        }
    }
}

static void pack(float *dst, struct layout to, struct piece in) {
    if (in.op->panels)
        pack_panels(dst, to, in);
    else if (in.op->k_inside)
        AX_BY_DTYPE(in.op->dtype, pack_along_k, dst, to, in);
    else
        AX_BY_DTYPE(in.op->dtype, pack_across_k, dst, to, in);
}

/* Panels of `wide` rows or columns, one after the other. */
static void pack_each(float *dst, int64_t wide, struct piece in) {
    const struct layout panel = {.strip = LANES, .half = LANES / 2, .unit = wide};
    for (int64_t r = 0; r < in.n; r += wide) {
        const int64_t width = in.n - r < wide ? in.n - r : wide;
        pack(dst + r * in.units, panel,
             (struct piece){in.op, in.first + r, width, in.u0, in.units, in.ahead});
    }
}

void AX_VEC(ax_gemm_pack_a)(float *dst, const struct ax_gemm_operand *op, int64_t first, int64_t n,
                            int64_t u0, int64_t units) {
    const int64_t rows = op->k_inside ? 2 * LANES : 2 * TURN * k_per_unit(op->dtype);
    const struct piece in = {op, first, n, u0, units, rows * op->stride};
#ifdef __ARM_NEON
    pack_each(dst, MR, in);
#else
    const struct layout panels = {.strip = LANES * units, .half = MR * units, .unit = MR};
    pack(dst, panels, in);
#endif
}

void AX_VEC(ax_gemm_pack_b)(float *dst, const struct ax_gemm_operand *op, int64_t first, int64_t n,
                            int64_t u0, int64_t units) {
    const int64_t next = op->k_inside ? op->stride : element_size(op->dtype);
    const int64_t ahead = op->ahead != 0 ? op->ahead : NR * next;
    pack_each(dst, NR, (struct piece){op, first, n, u0, units, ahead});
}
