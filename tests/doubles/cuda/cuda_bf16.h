/* The type bfloat16 of CUDA C++. */
#ifndef AX_TESTS_DOUBLES_CUDA_CUDA_BF16_H
#define AX_TESTS_DOUBLES_CUDA_CUDA_BF16_H

#include <cuda_runtime.h>

struct __nv_bfloat16 {
    uint16_t x;
    __nv_bfloat16() = default;
    __nv_bfloat16(float f) { // round to nearest even, keep NaN a NaN
        uint32_t u = __float_as_uint(f);
        x = (u & 0x7fffffffu) > 0x7f800000u ? 0x7fff
                                            : (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
    }
    operator float() const {
        return __uint_as_float((uint32_t)x << 16);
    }
};
typedef __nv_bfloat16 nv_bfloat16;
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
    return __nv_bfloat16(f);
}
static inline __nv_bfloat16 __float2bfloat16(float f) {
    return __nv_bfloat16(f);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) {
    return h.x;
}
static inline float __bfloat162float(__nv_bfloat16 h) {
    return (float)h;
}

#endif
