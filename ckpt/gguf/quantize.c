/* Plain types, and blocks of 32 elements that share one scale, determined by the element of the
 * largest magnitude (or the range); everything is rounded once in single precision. */
#include "ckpt/gguf/quantize.h"

#include <math.h>

#include "kernels/dtype.h"

static void put_u16(unsigned char *p, uint16_t v) {
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

static void put_half(unsigned char *p, float v) {
    put_u16(p, ax_f32_to_f16(v));
}

void ax_put_f32(const float *values, int64_t n, unsigned char *out) {
    ax_convert(AX_F32, out, AX_F32, values, n);
}

void ax_put_f16(const float *values, int64_t n, unsigned char *out) {
    ax_convert(AX_F16, out, AX_F32, values, n);
}

void ax_put_bf16(const float *values, int64_t n, unsigned char *out) {
    ax_convert(AX_BF16, out, AX_F32, values, n);
}

/* The element of the largest magnitude (the first of several), with its sign. */
static float peak(const float *x) {
    float best = 0;
    for (int i = 0; i < 32; i++)
        best = fabsf(x[i]) > fabsf(best) ? x[i] : best;
    return best;
}

/* 1/d, or 0 if that is not finite: the block is then zero, or too small to be distinguished from
 * it. */
static float inverse(float d) {
    const float id = 1.0f / d;
    return isfinite(id) ? id : 0;
}

/* v ≥ 0 truncated to an integer, at most `top`. */
static unsigned code(float v, int top) {
    const int q = (int)v;
    return (unsigned)(q < top ? q : top);
}

/* d, qs[16]: the peak maps to exactly −8, because the range −8 to 7 is larger on that side. */
void ax_put_q4_0(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 18) {
        const float d = peak(x) / -8, id = inverse(d);
        put_half(out, d);
        for (int i = 0; i < 16; i++) {
            const unsigned low = code(x[i] * id + 8.5f, 15), high = code(x[16 + i] * id + 8.5f, 15);
            out[2 + i] = (unsigned char)(low | high << 4);
        }
    }
}

/* The smallest element, and how far the largest is above it. */
static float range(const float *x, float *least) {
    float most = x[0];
    *least = x[0];
    for (int i = 1; i < 32; i++) {
        *least = x[i] < *least ? x[i] : *least;
        most = x[i] > most ? x[i] : most;
    }
    return most - *least;
}

/* qh (bit i: the fifth bit of code i), qs[16]: code i shares a byte with code i + 16. */
static void put_five_bits(const unsigned *codes, unsigned char *out) {
    uint32_t fifth = 0;
    for (int i = 0; i < 16; i++) {
        const unsigned low = codes[i], high = codes[16 + i];
        out[4 + i] = (unsigned char)((low & 15) | (high & 15) << 4);
        fifth |= (uint32_t)(low >> 4) << i | (uint32_t)(high >> 4) << (16 + i);
    }
    put_u16(out, (uint16_t)fifth);
    put_u16(out + 2, (uint16_t)(fifth >> 16));
}

/* d, m, qs[16]: the smallest element maps to 0, the largest to 15. */
void ax_put_q4_1(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 20) {
        float least;
        const float d = range(x, &least) / 15, id = inverse(d);
        put_half(out, d);
        put_half(out + 2, least);
        for (int i = 0; i < 16; i++) {
            const unsigned low = code((x[i] - least) * id + 0.5f, 15);
            const unsigned high = code((x[16 + i] - least) * id + 0.5f, 15);
            out[4 + i] = (unsigned char)(low | high << 4);
        }
    }
}

/* d, qh (bit i: the fifth bit of element i), qs[16]: the peak maps to −16. */
void ax_put_q5_0(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 22) {
        const float d = peak(x) / -16, id = inverse(d);
        unsigned codes[32];
        for (int i = 0; i < 32; i++)
            codes[i] = code(x[i] * id + 16.5f, 31);
        put_half(out, d);
        put_five_bits(codes, out + 2);
    }
}

/* d, m, qh, qs[16]: the smallest element maps to 0, the largest to 31. */
void ax_put_q5_1(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 24) {
        float least;
        const float d = range(x, &least) / 31, id = inverse(d);
        unsigned codes[32];
        for (int i = 0; i < 32; i++)
            codes[i] = code((x[i] - least) * id + 0.5f, 31);
        put_half(out, d);
        put_half(out + 2, least);
        put_five_bits(codes, out + 4);
    }
}

/* d, signed qs[32]: the peak maps to ±127; halves are rounded away from zero. */
void ax_put_q8_0(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 34) {
        const float d = fabsf(peak(x)) / 127, id = inverse(d);
        put_half(out, d);
        for (int i = 0; i < 32; i++)
            out[2 + i] = (unsigned char)(int8_t)roundf(x[i] * id);
    }
}
