/* Block layouts: values → blocks for types of up to 32 elements, then blocks → values for all. Fields are in file
 * order: d and m are fp16 scale and minimum, qs the low bits, qh high bits, sc scales within a block of
 * 256. */
#include "ckpt/gguf/blocks.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "ckpt/gguf/quantize.h"

/* ---- values → blocks ---- */

/* Rounded exactly as in llama.cpp's reference, so files are byte-identical: 32 elements share one scale,
 * determined by the element of the largest magnitude (or the range); everything is rounded once in
 * single precision. */

static void put_u16(unsigned char *p, uint16_t v) {
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

static void put_f32(const float *values, int64_t n, unsigned char *out) {
    ax_convert(AX_F32, out, AX_F32, values, n);
}

static void put_f16(const float *values, int64_t n, unsigned char *out) {
    ax_convert(AX_F16, out, AX_F32, values, n);
}

static void put_bf16(const float *values, int64_t n, unsigned char *out) {
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
static void put_q4_0(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 18) {
        const float d = peak(x) / -8, id = inverse(d);
        ax_put_half(out, d);
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
static void put_q4_1(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 20) {
        float least;
        const float d = range(x, &least) / 15, id = inverse(d);
        ax_put_half(out, d);
        ax_put_half(out + 2, least);
        for (int i = 0; i < 16; i++) {
            const unsigned low = code((x[i] - least) * id + 0.5f, 15);
            const unsigned high = code((x[16 + i] - least) * id + 0.5f, 15);
            out[4 + i] = (unsigned char)(low | high << 4);
        }
    }
}

/* d, qh (bit i: the fifth bit of element i), qs[16]: the peak maps to −16. */
static void put_q5_0(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 22) {
        const float d = peak(x) / -16, id = inverse(d);
        unsigned codes[32];
        for (int i = 0; i < 32; i++)
            codes[i] = code(x[i] * id + 16.5f, 31);
        ax_put_half(out, d);
        put_five_bits(codes, out + 2);
    }
}

/* d, m, qh, qs[16]: the smallest element maps to 0, the largest to 31. */
static void put_q5_1(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 24) {
        float least;
        const float d = range(x, &least) / 31, id = inverse(d);
        unsigned codes[32];
        for (int i = 0; i < 32; i++)
            codes[i] = code((x[i] - least) * id + 0.5f, 31);
        ax_put_half(out, d);
        ax_put_half(out + 2, least);
        put_five_bits(codes, out + 4);
    }
}

/* d, signed qs[32]: the peak maps to ±127; halves are rounded away from zero. */
static void put_q8_0(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += 32, out += 34) {
        const float d = fabsf(peak(x)) / 127, id = inverse(d);
        ax_put_half(out, d);
        for (int i = 0; i < 32; i++)
            out[2 + i] = (unsigned char)(int8_t)roundf(x[i] * id);
    }
}

/* ---- blocks → values ---- */

static uint16_t u16(const unsigned char *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t u32(const unsigned char *p) {
    return (uint32_t)u16(p) | (uint32_t)u16(p + 2) << 16;
}

static float f16(const unsigned char *p) {
    return ax_f16_to_f32(u16(p));
}

static void f32_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = u32(p + 4 * i);
        memcpy(&out[i], &bits, sizeof bits);
    }
}

static void f16_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = f16(p + 2 * i);
}

static void bf16_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = ax_bf16_to_f32(u16(p + 2 * i));
}

/* Nibble i of 32 in 16 bytes: low halves first. */
static int nibble(const unsigned char *qs, int i) {
    return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

/* d, qs[16]: d · (q − 8) */
static void q4_0_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 18, out += 32) {
        const float d = f16(p);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)((p[2 + i] & 15) - 8);
            out[16 + i] = d * (float)((p[2 + i] >> 4) - 8);
        }
    }
}

/* d, m, qs[16]: d · q + m */
static void q4_1_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 20, out += 32) {
        const float d = f16(p), m = f16(p + 2);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)(p[4 + i] & 15) + m;
            out[16 + i] = d * (float)(p[4 + i] >> 4) + m;
        }
    }
}

static int with_fifth_bit(const unsigned char *qs, uint32_t qh, int i) {
    return nibble(qs, i) + 16 * (int)(qh >> i & 1);
}

/* d, qh, qs[16]: d · (q − 16) */
static void q5_0_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 22, out += 32) {
        const float d = f16(p);
        const uint32_t qh = u32(p + 2);
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)(with_fifth_bit(p + 6, qh, i) - 16);
    }
}

/* d, m, qh, qs[16]: d · q + m */
static void q5_1_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 24, out += 32) {
        const float d = f16(p), m = f16(p + 2);
        const uint32_t qh = u32(p + 4);
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)with_fifth_bit(p + 8, qh, i) + m;
    }
}

/* d, signed qs[32]: d · q */
static void q8_0_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 34, out += 32) {
        const float d = f16(p);
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)(int8_t)p[2 + i];
    }
}

/* d, qs[16]: d · table[q] */
static void iq4_nl_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 18, out += 32) {
        const float d = f16(p);
        for (int i = 0; i < 32; i++)
            out[i] = d * (float)ax_iq4_nl_table[nibble(p + 2, i)];
    }
}

/* d, sh (bits 2j and 2j + 1: the high bits of scale j), sl[4], qs[128]: (d · (scale − 32)) · table[q], in eight groups
 * of 32 with the nibbles of IQ4_NL */
static void iq4_xs_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 136, out += 256) {
        const float d = f16(p);
        for (int j = 0; j < 8; j++) {
            const int low = p[4 + j / 2] >> 4 * (j % 2) & 15, high = u16(p + 2) >> 2 * j & 3;
            const float step = d * (float)(low + 16 * high - 32);
            for (int k = 0; k < 32; k++)
                out[32 * j + k] = step * (float)ax_iq4_nl_table[nibble(p + 8 + 16 * j, k)];
        }
    }
}

/* scale e, qs[16]: 2^(e − 127) · value, as in the Open Compute Project's format, in another order */
static void mxfp4_values(const unsigned char *p, int64_t n, float *out) {
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    for (int64_t b = 0; b < n; b++, p += 17, out += 32)
        for (int i = 0; i < 32; i++) {
            const int code = nibble(p + 1, i);
            const float v = p[0] == 255 ? NAN : ldexpf(values[code & 7], p[0] - 127);
            out[i] = code & 8 ? -v : v;
        }
}

/* sc[16], qs[64], d, dmin: (d · scale) · q − dmin · minimum, in sixteen groups of 16; a byte of sc has the scale in its
 * low half, and a byte of qs a code of each of four groups of 32 */
static void q2_k_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 84, out += 256) {
        const float d = f16(p + 80), dmin = f16(p + 82);
        for (int i = 0; i < 256; i++) {
            const int half = i / 128, group = i % 128 / 32, sc = p[i / 16];
            const float step = d * (float)(sc & 15), offset = dmin * (float)(sc >> 4);
            const int q = p[16 + 32 * half + i % 32] >> 2 * group & 3;
            out[i] = step * (float)q - offset;
        }
    }
}

/* Six-bit scale and minimum of group j of eight, packed in twelve bytes: bytes 0–7 contain those of
 * the first four groups, and in their top two bits the high bits of the others, whose low four bits
 * are in bytes 8–11. */
static void q4_k_scale(const unsigned char *sc, int j, int *scale, int *minimum) {
    if (j < 4) {
        *scale = sc[j] & 63;
        *minimum = sc[j + 4] & 63;
    } else {
        *scale = (sc[j + 4] & 15) + 16 * (sc[j - 4] >> 6);
        *minimum = (sc[j + 4] >> 4) + 16 * (sc[j] >> 6);
    }
}

/* d, dmin, sc[12], qs[128]: (d · scale) · q − dmin · minimum, in eight groups of 32 */
static void q4_k_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 144, out += 256) {
        const float d = f16(p), dmin = f16(p + 2);
        for (int j = 0; j < 8; j++) {
            int scale, minimum;
            q4_k_scale(p + 4, j, &scale, &minimum);
            const float step = d * (float)scale, offset = dmin * (float)minimum;
            const unsigned char *qs = p + 16 + 32 * (j / 2);
            for (int k = 0; k < 32; k++)
                out[32 * j + k] = step * (float)(qs[k] >> 4 * (j % 2) & 15) - offset;
        }
    }
}

/* d, dmin, sc[12], qh[32], qs[128]: like Q4_K; bit j of a byte of qh is the fifth bit in group j */
static void q5_k_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 176, out += 256) {
        const float d = f16(p), dmin = f16(p + 2);
        for (int j = 0; j < 8; j++) {
            int scale, minimum;
            q4_k_scale(p + 4, j, &scale, &minimum);
            const float step = d * (float)scale, offset = dmin * (float)minimum;
            const unsigned char *qs = p + 48 + 32 * (j / 2);
            for (int k = 0; k < 32; k++) {
                const int low = qs[k] >> 4 * (j % 2) & 15, fifth = p[16 + k] >> j & 1;
                out[32 * j + k] = step * (float)(low + 16 * fifth) - offset;
            }
        }
    }
}

/* hmask[32], qs[64], sc[12], d: (d · (scale − 32)) · (q − 4), in sixteen groups of 16; the high bit
 * of q is in hmask. A byte of sc has the low four bits of scales j and j + 8, or the high two of
 * four scales. */
static void q3_k_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 110, out += 256) {
        const float d = f16(p + 108);
        for (int i = 0; i < 256; i++) {
            const int half = i / 128, group = i % 128 / 32, l = i % 32, j = i / 16;
            const int scale =
                (p[96 + j % 8] >> 4 * (j / 8) & 15) | (p[104 + j % 4] >> 2 * (j / 4) & 3) << 4;
            const int q =
                (p[32 + 32 * half + l] >> 2 * group & 3) | (p[l] >> (4 * half + group) & 1) << 2;
            const float step = d * (float)(scale - 32);
            out[i] = step * (float)(q - 4);
        }
    }
}

/* ql[128], qh[64], signed sc[16], d: (d · sc) · (q − 32); each half of the block is four groups of
 * 32: a byte of ql belongs to two of them, a byte of qh to all four */
static void q6_k_values(const unsigned char *p, int64_t n, float *out) {
    for (int64_t b = 0; b < n; b++, p += 210, out += 256) {
        const float d = f16(p + 208);
        for (int i = 0; i < 256; i++) {
            const int half = i / 128, group = i % 128 / 32, l = i % 32;
            const int low = p[64 * half + 32 * (group % 2) + l] >> 4 * (group / 2) & 15;
            const int high = p[128 + 32 * half + l] >> 2 * group & 3;
            const float step = d * (float)(int8_t)p[192 + i / 16];
            out[i] = step * (float)(low + 16 * high - 32);
        }
    }
}

/* ---- the types ---- */

#define LARGEST_F16  65504.0f
#define LARGEST_BF16 3.3895314e38f

static const struct ax_block_type types[] = {
    {"F32", 0, 1, 4, f32_values, put_f32, FLT_MAX},
    {"F16", 1, 1, 2, f16_values, put_f16, LARGEST_F16},
    {"BF16", 30, 1, 2, bf16_values, put_bf16, LARGEST_BF16},
    {"Q4_0", 2, 32, 18, q4_0_values, put_q4_0, LARGEST_F16},
    {"Q4_1", 3, 32, 20, q4_1_values, put_q4_1, LARGEST_F16},
    {"Q5_0", 6, 32, 22, q5_0_values, put_q5_0, LARGEST_F16},
    {"Q5_1", 7, 32, 24, q5_1_values, put_q5_1, LARGEST_F16},
    {"Q8_0", 8, 32, 34, q8_0_values, put_q8_0, LARGEST_F16},
    {"Q4_K", 12, 256, 144, q4_k_values, ax_put_q4_k, LARGEST_F16},
    {"Q5_K", 13, 256, 176, q5_k_values, ax_put_q5_k, LARGEST_F16},
    {"Q3_K", 11, 256, 110, q3_k_values, ax_put_q3_k, LARGEST_F16},
    {"IQ4_NL", 20, 32, 18, iq4_nl_values, ax_put_iq4_nl, LARGEST_F16},
    {"Q6_K", 14, 256, 210, q6_k_values, ax_put_q6_k, LARGEST_F16},
    {"MXFP4", 39, 32, 17, mxfp4_values, NULL, 0},
    {"Q2_K", 10, 256, 84, q2_k_values, NULL, 0},
    {"IQ4_XS", 23, 256, 136, iq4_xs_values, NULL, 0},
    {"Q8_1", 9, 0, 0, NULL, NULL, 0},
    {"Q8_K", 15, 0, 0, NULL, NULL, 0},
    {"IQ2_XXS", 16, 0, 0, NULL, NULL, 0},
    {"IQ2_XS", 17, 0, 0, NULL, NULL, 0},
    {"IQ3_XXS", 18, 0, 0, NULL, NULL, 0},
    {"IQ1_S", 19, 0, 0, NULL, NULL, 0},
    {"IQ3_S", 21, 0, 0, NULL, NULL, 0},
    {"IQ2_S", 22, 0, 0, NULL, NULL, 0},
    {"I8", 24, 0, 0, NULL, NULL, 0},
    {"I16", 25, 0, 0, NULL, NULL, 0},
    {"I32", 26, 0, 0, NULL, NULL, 0},
    {"I64", 27, 0, 0, NULL, NULL, 0},
    {"F64", 28, 0, 0, NULL, NULL, 0},
    {"IQ1_M", 29, 0, 0, NULL, NULL, 0},
    {"TQ1_0", 34, 0, 0, NULL, NULL, 0},
    {"TQ2_0", 35, 0, 0, NULL, NULL, 0},
    {"NVFP4", 40, 0, 0, NULL, NULL, 0},
    {"Q1_0", 41, 0, 0, NULL, NULL, 0},
};

const struct ax_block_type *ax_block_type_find(uint32_t id) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].id == id)
            return &types[i];
    return NULL;
}
