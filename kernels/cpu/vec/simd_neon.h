/* The vector layer for 64-bit ARM: simd.h's floats, simd_int.h's integers and philox.h's counters in
 * NEON's 128-bit registers. Included by simd.h. */
#ifndef AX_KERNELS_CPU_VEC_SIMD_NEON_H
#define AX_KERNELS_CPU_VEC_SIMD_NEON_H

#include <arm_neon.h>

#define AX_LANES 4
typedef float32x4_t v_float;
typedef uint32x4_t v_int;

/* −1 in the first n lanes, else 0. */
AX_INLINE v_int v_first(int64_t n) {
    return vcgtq_s32(vdupq_n_s32((int)n), (int32x4_t){0, 1, 2, 3});
}

AX_INLINE v_float v_set(float x) {
    return vdupq_n_f32(x);
}

AX_INLINE v_float v_fma(v_float a, v_float b, v_float c) {
    return vfmaq_f32(c, a, b);
}
AX_INLINE v_float v_fnma(v_float a, v_float b, v_float c) {
    return vfmsq_f32(c, a, b);
}

/* vmaxq_f32 gives NaN if either is. */
AX_INLINE v_float v_max(v_float a, v_float b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
AX_INLINE v_float v_min(v_float a, v_float b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

AX_INLINE v_float v_sqrt(v_float x) {
    return vsqrtq_f32(x);
}

AX_INLINE v_float v_above(v_float a, v_float b, v_float x) {
    return vbslq_f32(vcgtq_f32(a, b), x, v_set(0.0f));
}

AX_INLINE v_float v_keep(int64_t n, v_float x, float fill) {
    return n >= AX_LANES ? x : vbslq_f32(v_first(n), x, v_set(fill));
}

/* Two steps, because 2^k alone may be denormal or overflow when p·2^k is or does not. */
AX_INLINE v_float v_scale(v_float p, v_float k) {
    const int32x4_t whole = vcvtnq_s32_f32(k), half = whole >> 1, bias = vdupq_n_s32(127);
    return p * (v_float)((half + bias) << 23) * (v_float)((whole - half + bias) << 23);
}

AX_INLINE v_float v_load_f32(const float *p, int64_t n) {
    if (n >= AX_LANES)
        return vld1q_f32(p);
    float tail[AX_LANES] = {0};
    memcpy(tail, p, (size_t)n * sizeof(*p));
    return vld1q_f32(tail);
}

AX_INLINE void v_store_f32(float *p, int64_t n, v_float x) {
    if (n >= AX_LANES) {
        vst1q_f32(p, x);
    } else {
        float tail[AX_LANES];
        vst1q_f32(tail, x);
        memcpy(p, tail, (size_t)n * sizeof(*p));
    }
}

AX_INLINE uint16x4_t v_to_bf16(v_float x) {
    const v_int bits = (v_int)x, odd = bits >> 16 & vdupq_n_u32(1);
    const v_int up = bits + vdupq_n_u32(0x7fff) + odd, quiet = bits | vdupq_n_u32(0x400000);
    return vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), up, quiet), 16);
}

AX_INLINE v_float v_from_bf16(uint16x4_t half) {
    return (v_float)vshll_n_u16(half, 16);
}

AX_INLINE v_float v_load_bf16(const uint16_t *p, int64_t n) {
    if (n >= AX_LANES)
        return v_from_bf16(vld1_u16(p));
    uint16_t tail[AX_LANES] = {0};
    memcpy(tail, p, (size_t)n * sizeof(*p));
    return v_from_bf16(vld1_u16(tail));
}

AX_INLINE void v_store_bf16(uint16_t *p, int64_t n, v_float x) {
    if (n >= AX_LANES) {
        vst1_u16(p, v_to_bf16(x));
    } else {
        uint16_t tail[AX_LANES];
        vst1_u16(tail, v_to_bf16(x));
        memcpy(p, tail, (size_t)n * sizeof(*p));
    }
}

/* Two doubles each: the lower and the upper lanes. */
typedef float64x2_t v_double;
AX_INLINE v_double v_low(v_float x) {
    return vcvt_f64_f32(vget_low_f32(x));
}
AX_INLINE v_double v_high(v_float x) {
    return vcvt_high_f64_f32(x);
}
AX_INLINE v_double v_zero_double(void) {
    return vdupq_n_f64(0);
}
AX_INLINE double v_sum_double(v_double x) {
    return x[0] + x[1];
}

AX_INLINE float v_max_lane(v_float x) {
    return vmaxvq_f32(x);
}

AX_INLINE int v_find(v_float x, float value) {
    const uint64_t same = vget_lane_u64((uint64x1_t)vmovn_u32(vceqq_f32(x, vdupq_n_f32(value))), 0);
    return same == 0 ? -1 : __builtin_ctzll(same) / 16;
}

AX_INLINE v_float v_swap(v_float x) {
    return vrev64q_f32(x);
}
AX_INLINE v_float v_twice(v_float x) {
    return vzip1q_f32(x, x);
}

/* Neighbors of a and b: lanes 0 and 1 of each, alternating, and lanes 2 and 3; and halves. */
AX_INLINE v_float v_zip_low(v_float a, v_float b) {
    return vzip1q_f32(a, b);
}
AX_INLINE v_float v_zip_high(v_float a, v_float b) {
    return vzip2q_f32(a, b);
}
AX_INLINE v_float v_low_halves(v_float a, v_float b) {
    return vcombine_f32(vget_low_f32(a), vget_low_f32(b));
}
AX_INLINE v_float v_high_halves(v_float a, v_float b) {
    return vcombine_f32(vget_high_f32(a), vget_high_f32(b));
}

AX_INLINE v_int v_set_int(uint32_t x) {
    return vdupq_n_u32(x);
}
AX_INLINE v_int v_add(v_int a, v_int b) {
    return a + b;
}
AX_INLINE v_int v_sub(v_int a, v_int b) {
    return a - b;
}
AX_INLINE v_int v_and(v_int a, v_int b) {
    return a & b;
}
AX_INLINE v_int v_or(v_int a, v_int b) {
    return a | b;
}
AX_INLINE v_int v_xor(v_int a, v_int b) {
    return a ^ b;
}
#define v_shift_left(a, bits)  ((a) << (bits))
#define v_shift_right(a, bits) ((a) >> (bits))

AX_INLINE v_int v_bits(v_float x) {
    return (v_int)x;
}
AX_INLINE v_float v_from_bits(v_int x) {
    return (v_float)x;
}
AX_INLINE v_int v_truncate(v_float x) {
    return (v_int)vcvtq_s32_f32(x);
}
AX_INLINE v_float v_to_float(v_int x) {
    return vcvtq_f32_s32((int32x4_t)x);
}

AX_INLINE v_int v_load_int(const uint32_t *p) {
    return vld1q_u32(p);
}
AX_INLINE v_int v_load_u16(const uint16_t *p, int64_t n) {
    uint16_t all[AX_LANES] = {0};
    memcpy(all, p, (size_t)(n < AX_LANES ? n : AX_LANES) * sizeof(*p));
    return vmovl_u16(vld1_u16(all));
}
AX_INLINE void v_store_u16(uint16_t *p, int64_t n, v_int x) {
    uint16_t all[AX_LANES];
    vst1_u16(all, vmovn_u32(x));
    memcpy(p, all, (size_t)(n < AX_LANES ? n : AX_LANES) * sizeof(*p));
}
AX_INLINE v_int v_load_u8(const uint8_t *p, int64_t n) {
    uint8_t all[8] = {0};
    memcpy(all, p, (size_t)(n < AX_LANES ? n : AX_LANES));
    return vmovl_u16(vget_low_u16(vmovl_u8(vld1_u8(all))));
}
AX_INLINE void v_store_u8(uint8_t *p, int64_t n, v_int x) {
    const uint16x4_t halves = vmovn_u32(x);
    uint8_t all[8];
    vst1_u8(all, vmovn_u16(vcombine_u16(halves, halves)));
    memcpy(p, all, (size_t)(n < AX_LANES ? n : AX_LANES));
}

AX_INLINE v_float v_lookup(const float *table, v_int index) {
    return (v_float){table[index[0]], table[index[1]], table[index[2]], table[index[3]]};
}
/* Lookup by a byte's position in two registers. */
typedef uint8x16x2_t v_eight;
AX_INLINE v_eight v_eight_of(const float *table) {
    return (v_eight){{(uint8x16_t)vld1q_f32(table), (uint8x16_t)vld1q_f32(table + 4)}};
}
AX_INLINE v_float v_pick(v_eight table, v_int index) {
    const v_int bytes = (index & 7) * vdupq_n_u32(0x04040404) + vdupq_n_u32(0x03020100);
    return (v_float)vqtbl2q_u8(table, (uint8x16_t)bytes);
}

AX_INLINE v_int v_count(v_int n, v_float a, v_float b) {
    return n - vcgeq_f32(a, b);
}
AX_INLINE bool v_any_less(v_float a, v_float b) {
    return vmaxvq_u32(vcltq_f32(a, b)) != 0;
}
AX_INLINE v_int v_negative(v_float x) {
    return (v_int)((int32x4_t)x >> 31);
}
AX_INLINE v_int v_is_nan(v_float x) {
    return ~vceqq_f32(x, x);
}
AX_INLINE v_int v_choose(v_int mask, v_int a, v_int b) {
    return vbslq_u32(mask, b, a);
}

#define BLOCKS_PER_VECTOR 2
typedef uint64x2_t v_wide;

AX_INLINE v_wide wide_set(uint64_t x) {
    return vdupq_n_u64(x);
}
AX_INLINE v_wide wide_from(uint64_t first) {
    return wide_set(first) + (v_wide){0, 1};
}
AX_INLINE v_wide wide_mul(v_wide a, v_wide b) {
    return vmull_u32(vmovn_u64(a), vmovn_u64(b));
}
AX_INLINE v_wide wide_upper(v_wide a) {
    return a >> 32;
}
AX_INLINE v_wide wide_xor(v_wide a, v_wide b, v_wide c) {
    return a ^ b ^ c;
}
AX_INLINE void wide_store(uint32_t *words, v_wide c0, v_wide c1, v_wide c2, v_wide c3) {
    const v_wide a = (c0 & wide_set(0xffffffff)) | c1 << 32;
    const v_wide b = (c2 & wide_set(0xffffffff)) | c3 << 32;
    vst1q_u32(words, (v_int)vzip1q_u64(a, b));
    vst1q_u32(words + 4, (v_int)vzip2q_u64(a, b));
}

#endif
