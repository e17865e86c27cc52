/* Conversions of single numbers with the bits of kernels/dtype.c. */
#ifndef AX_KERNELS_CUDA_NUMBERS_CUH
#define AX_KERNELS_CUDA_NUMBERS_CUH

#include "kernels/cuda/kernel.cuh"

__device__ static inline uint16_t f32_to_bf16(float x) {
    const uint32_t u = __float_as_uint(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

__device__ static inline float bf16_to_f32(uint16_t bits) {
    return __uint_as_float((uint32_t)bits << 16);
}

/* The two of a word, in the order of their addresses. */
__device__ static inline void bf16_pair_to_f32(uint32_t pair, float &one, float &two) {
    one = __uint_as_float(pair << 16);
    two = __uint_as_float(pair & 0xffff0000u);
}

/* See ax_f32_split, ax_f32_join, ax_f32_to_bf16_random. */
__device__ static inline uint16_t f32_split(float x, int16_t *remainder) {
    const uint32_t bits = __float_as_uint(x);
    const uint32_t u = x != x ? (bits | 0x400000u) & 0xffff0000u : bits;
    *remainder = (int16_t)(uint16_t)u;
    return (uint16_t)((u + 0x8000u) >> 16);
}
__device__ static inline float f32_join(uint16_t high, int16_t remainder) {
    return __uint_as_float(((uint32_t)high << 16) + (uint32_t)(int32_t)remainder);
}

__device__ static inline float f16_to_f32(uint16_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu;
    const uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) {
        const float magnitude = (float)mantissa * 0x1p-24f;
        return sign ? -magnitude : magnitude;
    }
    const uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + (127u - 15u);
    return __uint_as_float(sign | wide << 23 | mantissa << 13);
}

__device__ static inline uint16_t f32_to_f16(float x) {
    const uint32_t u = __float_as_uint(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u)
        return (uint16_t)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) -
                                  __float_as_uint(0.5f)));
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - ((127u - 15u) << 23)) >> 13);
}

/* Truncated, with the last bit set if anything was lost: rounding that to fewer bits rounds x once. */
__device__ static inline float round_to_odd(double x) {
    const float nearest = (float)x;
    uint32_t u = __float_as_uint(nearest);
    if ((double)nearest == x || x != x)
        return nearest;
    if (fabs((double)nearest) > fabs(x))
        u -= 1;
    return __uint_as_float(u | 1u);
}
__device__ static inline uint16_t f64_to_bf16(double x) {
    return f32_to_bf16(round_to_odd(x));
}
__device__ static inline uint16_t f64_to_f16(double x) {
    return f32_to_f16(round_to_odd(x));
}

#endif
