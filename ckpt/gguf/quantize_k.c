/* Blocks of 256 elements: groups whose scales are integer multiples of one half-precision number of
 * the block.
 *
 * Each group tries several level spacings around the obvious one. A spacing determines the codes;
 * for given codes, the scale (and minimum) with the least weighted squared error has a closed form,
 * and so has that error. The block stores the best of each group, rounded, and the codes are chosen
 * again for the stored values; Q4_K, whose scales have only six bits, also tries the neighboring
 * ones. */
#include <math.h>

#include "ckpt/gguf/quantize.h"
#include "kernels/dtype.h"

enum { BLOCK = 256 };

/* To the nearest whole number, ties to even, for |v| < 2^22; vectorizes without SSE 4.1. */
static inline float nearest(float v) {
    const float shift = 12582912.0f; /* 1.5 · 2^23 */
    return (v + shift) - shift;
}

static inline float clamp(float v, float low, float high) {
    v = v > low ? v : low;
    return v < high ? v : high;
}

/* A half-precision number in the block, and the value it has there. */
static float put_half(unsigned char *p, float v) {
    const uint16_t bits = ax_f32_to_f16(v);
    p[0] = (unsigned char)bits;
    p[1] = (unsigned char)(bits >> 8);
    return ax_f16_to_f32(bits);
}

/* --- Q4_K: x ≈ scale · q − minimum, q from 0 to 15, groups of 32 --- */

enum { GROUP4 = 32, GROUPS4 = BLOCK / GROUP4 };

struct fit {
    float scale, minimum; /* both ≥ 0 */
    float error;
};

/* Σ w, Σ w·x, Σ w·x² of a group, and its range, which begins at zero or below. */
struct group {
    const float *x;
    float w[GROUP4];
    float sw, swx, swxx, low, high;
};

/* Large elements matter more, but small ones are not free. */
static void weigh(struct group *g, const float *x) {
    float sum = 0;
    *g = (struct group){.x = x, .high = x[0]};
    for (int i = 0; i < GROUP4; i++)
        sum += x[i] * x[i];
    const float rms = sqrtf(sum / GROUP4);
    for (int i = 0; i < GROUP4; i++) {
        const float w = rms + fabsf(x[i]);
        g->w[i] = w;
        g->sw += w;
        g->swx += w * x[i];
        g->swxx += w * x[i] * x[i];
        g->low = x[i] < g->low ? x[i] : g->low;
        g->high = x[i] > g->high ? x[i] : g->high;
    }
}

/* Least squares over scale and minimum for the codes that this many levels per range give; with the
 * minimum at zero where it would be on the other side. */
static struct fit try_levels(const struct group *g, float levels) {
    const float inv = levels / (g->high - g->low);
    float sq = 0, sqq = 0, sxq = 0;
    for (int i = 0; i < GROUP4; i++) {
        const float q = clamp(nearest((g->x[i] - g->low) * inv), 0, 15), wq = g->w[i] * q;
        sq += wq;
        sqq += wq * q;
        sxq += wq * g->x[i];
    }
    struct fit f = {.error = INFINITY};
    if (!(sqq > 0))
        return f;
    const float det = g->sw * sqq - sq * sq;
    f.minimum = (sq * sxq - sqq * g->swx) / det;
    f.scale = (g->sw * sxq - g->swx * sq) / det;
    /* where all codes are equal but for rounding, any pair would do */
    if (!(det > 1e-5f * g->sw * sqq) || f.minimum < 0) {
        f.minimum = 0;
        f.scale = sxq / sqq;
    }
    f.error = g->swxx - f.scale * sxq + f.minimum * g->swx;
    return f;
}

static struct fit fit_group(const struct group *g) {
    struct fit best = {.minimum = -g->low, .error = INFINITY};
    if (!(g->high > g->low))
        return best;
    best.scale = (g->high - g->low) / 15;
    for (int step = -10; step <= 10; step++) {
        const struct fit f = try_levels(g, 15 + 0.1f * (float)step);
        if (f.error < best.error && f.scale > 0)
            best = f;
    }
    return best;
}

/* The codes for a scale and minimum as they are in the block, and their weighted error. */
static float encode(const struct group *g, float step, float offset, float *codes) {
    const float inv = step > 0 ? 1 / step : 0;
    float error = 0;
    for (int i = 0; i < GROUP4; i++) {
        const float q = nearest(clamp((g->x[i] + offset) * inv, 0, 15));
        const float e = step * q - offset - g->x[i];
        codes[i] = q;
        error += g->w[i] * e * e;
    }
    return error;
}

/* A group's six-bit numbers: the rounded ones, or neighbors that turn out better. */
static void encode_group(const struct group *g, const struct fit *f, float d, float dmin,
                         unsigned *scale, unsigned *minimum, unsigned char *out) {
    const int s0 = d > 0 ? (int)nearest(clamp(f->scale / d, 0, 63)) : 0;
    const int m0 = dmin > 0 ? (int)nearest(clamp(f->minimum / dmin, 0, 63)) : 0;
    float best = INFINITY, codes[GROUP4];
    for (int s = s0 > 0 ? s0 - 1 : 0; s <= s0 + 1 && s < 64; s++) {
        for (int m = m0 > 0 ? m0 - 1 : 0; m <= m0 + 1 && m < 64; m++) {
            const float error = encode(g, d * (float)s, dmin * (float)m, codes);
            if (!(error < best))
                continue;
            best = error;
            *scale = (unsigned)s;
            *minimum = (unsigned)m;
            for (int i = 0; i < GROUP4; i++)
                out[i] = (unsigned char)codes[i];
        }
    }
}

/* Six bits each of scale and minimum, in twelve bytes: see q4_k_scale in blocks.c. */
static void pack_scales(const unsigned *scale, const unsigned *minimum, unsigned char *sc) {
    for (int j = 0; j < 4; j++) {
        sc[j] = (unsigned char)(scale[j] | scale[j + 4] >> 4 << 6);
        sc[j + 4] = (unsigned char)(minimum[j] | minimum[j + 4] >> 4 << 6);
        sc[j + 8] = (unsigned char)((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

static void q4_k_block(const float *x, unsigned char *out) {
    struct group groups[GROUPS4];
    struct fit fits[GROUPS4];
    float most_scale = 0, most_minimum = 0;
    unsigned scale[GROUPS4] = {0}, minimum[GROUPS4] = {0};
    unsigned char codes[BLOCK] = {0};
    for (int j = 0; j < GROUPS4; j++) {
        weigh(&groups[j], x + GROUP4 * j);
        fits[j] = fit_group(&groups[j]);
        most_scale = fmaxf(most_scale, fits[j].scale);
        most_minimum = fmaxf(most_minimum, fits[j].minimum);
    }
    const float d = put_half(out, most_scale / 63), dmin = put_half(out + 2, most_minimum / 63);
    for (int j = 0; j < GROUPS4; j++)
        encode_group(&groups[j], &fits[j], d, dmin, &scale[j], &minimum[j], codes + GROUP4 * j);
    pack_scales(scale, minimum, out + 4);
    for (int i = 0; i < BLOCK / 2; i++) {
        const int at = 2 * GROUP4 * (i / GROUP4) + i % GROUP4;
        out[16 + i] = (unsigned char)(codes[at] | codes[at + GROUP4] << 4);
    }
}

void ax_put_q4_k(const float *values, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++)
        q4_k_block(values + BLOCK * b, out + 144 * b);
}

/* --- Q6_K: x ≈ scale · q, q from −32 to 31, groups of 16; elements weigh their square --- */

enum { GROUP6 = 16, GROUPS6 = BLOCK / GROUP6 };
#define NOTHING 1e-15f /* a smaller largest magnitude is zero */

/* For codes q the best scale is Σ w·x·q / Σ w·q², and it takes (Σ w·x·q)² / Σ w·q² off the error.
 */
static float fit_scale(const float *x) {
    float top = 0, best = 0, scale = 0;
    for (int i = 0; i < GROUP6; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    if (fabsf(top) < NOTHING)
        return 0;
    for (int step = -9; step <= 9; step++) {
        const float inv = -(32 + 0.1f * (float)step) / top;
        float sxq = 0, sqq = 0;
        for (int i = 0; i < GROUP6; i++) {
            const float q = clamp(nearest(x[i] * inv), -32, 31), wq = x[i] * x[i] * q;
            sxq += wq * x[i];
            sqq += wq * q;
        }
        if (sqq > 0 && sxq * sxq > best * sqq) {
            scale = sxq / sqq;
            best = sxq * scale;
        }
    }
    return scale;
}

/* Element i of the block: low four bits beside those of the element 64 further on, high two bits
 * beside those of three others. */
static void pack_q6(const unsigned char *codes, unsigned char *ql, unsigned char *qh) {
    for (int half = 0; half < 2; half++, codes += 128, ql += 64, qh += 32) {
        for (int l = 0; l < 64; l++)
            ql[l] = (unsigned char)((codes[l] & 15) | (codes[64 + l] & 15) << 4);
        for (int l = 0; l < 32; l++)
            qh[l] = (unsigned char)(codes[l] >> 4 | codes[32 + l] >> 4 << 2 |
                                    codes[64 + l] >> 4 << 4 | codes[96 + l] >> 4 << 6);
    }
}

static void q6_k_block(const float *x, unsigned char *out) {
    float scales[GROUPS6], top = 0;
    unsigned char codes[BLOCK];
    for (int j = 0; j < GROUPS6; j++) {
        scales[j] = fit_scale(x + GROUP6 * j);
        top = fabsf(scales[j]) > fabsf(top) ? scales[j] : top;
    }
    const float inv_top = fabsf(top) < NOTHING ? 0 : -128 / top;
    const float d = put_half(out + 208, inv_top != 0 ? 1 / inv_top : 0);
    for (int j = 0; j < GROUPS6; j++) {
        const float sc = clamp(nearest(inv_top * scales[j]), -128, 127), step = d * sc;
        const float inv = step != 0 ? 1 / step : 0;
        out[192 + j] = (unsigned char)(int8_t)sc;
        for (int i = GROUP6 * j; i < GROUP6 * (j + 1); i++)
            codes[i] = (unsigned char)(int)(32 + nearest(clamp(x[i] * inv, -32, 31)));
    }
    pack_q6(codes, out, out + 128);
}

void ax_put_q6_k(const float *values, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++)
        q6_k_block(values + BLOCK * b, out + 210 * b);
}
