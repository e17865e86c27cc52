/* Values → blocks for the types that search for their scales: those of 256 elements, and IQ4_NL. They take
 * the scales with the least weighted error, as llama.cpp does without an importance matrix. `values`
 * are finite, n counts blocks. The other types are in blocks.c. Private to ckpt/. */
#ifndef AX_CKPT_GGUF_QUANTIZE_H
#define AX_CKPT_GGUF_QUANTIZE_H

#include "kernels/dtype.h"

void ax_put_q4_k(const float *values, int64_t n, unsigned char *out);
void ax_put_q5_k(const float *values, int64_t n, unsigned char *out);
void ax_put_q3_k(const float *values, int64_t n, unsigned char *out);
void ax_put_q6_k(const float *values, int64_t n, unsigned char *out);
void ax_put_iq4_nl(const float *values, int64_t n, unsigned char *out);

extern const signed char ax_iq4_nl_table[16]; /* values of IQ4_NL's codes */

/* ---- shared ---- */

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
