/* Functions that the quantizers of large blocks share. Private to ckpt/. */
#ifndef AX_CKPT_GGUF_ROUNDING_H
#define AX_CKPT_GGUF_ROUNDING_H

#include "kernels/dtype.h"

/* Rounds to the nearest integer, ties to even, for |v| < 2^22; vectorizes without SSE 4.1. */
static inline float ax_nearest(float v) {
    const float shift = 12582912.0f; /* 1.5 · 2^23 */
    return (v + shift) - shift;
}

static inline float ax_clamp(float v, float low, float high) {
    v = v > low ? v : low;
    return v < high ? v : high;
}

/* Stores v in half precision and returns the stored value. */
static inline float ax_put_half(unsigned char *p, float v) {
    const uint16_t bits = ax_f32_to_f16(v);
    p[0] = (unsigned char)bits;
    p[1] = (unsigned char)(bits >> 8);
    return ax_f16_to_f32(bits);
}

#endif
