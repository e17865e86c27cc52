/* Blocks without minimums: Q6_K and Q3_K, 256 elements in groups of 16 (x ≈ scale · q, q from −n to
 * n − 1), and IQ4_NL, 32 elements whose codes are indices into a table.
 *
 * As in quantize_k.c, several spacings of the levels are tried; for given codes q the best scale is
 * Σ w·x·q / Σ w·q², which reduces the weighted squared error by (Σ w·x·q)² / Σ w·q². */
#include <math.h>

#include "ckpt/gguf/quantize.h"

enum { BLOCK = 256, GROUP = 16, GROUPS = BLOCK / GROUP };
#define NOTHING 1e-15f /* a smaller largest magnitude counts as zero */

struct group {
    const float *x;
    float w[GROUP];
};

static void square_weights(struct group *g, const float *x) {
    g->x = x;
    for (int i = 0; i < GROUP; i++)
        g->w[i] = x[i] * x[i];
}

static float fit_scale(const struct group *g, int n) {
    const float *x = g->x, low = (float)-n, high = (float)(n - 1);
    float top = 0, best = 0, scale = 0;
    for (int i = 0; i < GROUP; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    if (fabsf(top) < NOTHING)
        return 0;
    for (int step = -9; step <= 9; step++) {
        const float inv = (low - 0.1f * (float)step) / top;
        float sxq = 0, sqq = 0;
        for (int i = 0; i < GROUP; i++) {
            const float q = ax_clamp(ax_nearest(x[i] * inv), low, high), wq = g->w[i] * q;
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

/* --- Q6_K: an element's weight is its square --- */

/* The low four bits of element i share a byte with those of element i + 64, the high two bits with
 * those of three others. */
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
    float scales[GROUPS], top = 0;
    unsigned char codes[BLOCK];
    for (int j = 0; j < GROUPS; j++) {
        struct group g;
        square_weights(&g, x + GROUP * j);
        scales[j] = fit_scale(&g, 32);
        top = fabsf(scales[j]) > fabsf(top) ? scales[j] : top;
    }
    const float inv_top = fabsf(top) < NOTHING ? 0 : -128 / top;
    const float d = ax_put_half(out + 208, inv_top != 0 ? 1 / inv_top : 0);
    for (int j = 0; j < GROUPS; j++) {
        const float sc = ax_clamp(ax_nearest(inv_top * scales[j]), -128, 127), step = d * sc;
        const float inv = step != 0 ? 1 / step : 0;
        out[192 + j] = (unsigned char)(int8_t)sc;
        for (int i = GROUP * j; i < GROUP * (j + 1); i++)
            codes[i] = (unsigned char)(int)(32 + ax_nearest(ax_clamp(x[i] * inv, -32, 31)));
    }
    pack_q6(codes, out, out + 128);
}

void ax_put_q6_k(const float *values, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++)
        q6_k_block(values + BLOCK * b, out + 210 * b);
}

/* --- Q3_K: weights grow with the magnitude, but are not zero for small elements --- */

static void mixed_weights(const float *x, int n, float *w) {
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    const float rms = sqrtf(sum / (float)n);
    for (int i = 0; i < n; i++)
        w[i] = rms + fabsf(x[i]);
}

/* Returns the six-bit scale near sc0 with the least weighted error; `codes` are 0 to 7. */
static int encode3(const struct group *g, float d, int sc0, unsigned char *codes) {
    float least = INFINITY;
    int best = sc0;
    for (int sc = sc0 - 1; sc <= sc0 + 1; sc++) {
        const float step = d * (float)sc, inv = step != 0 ? 1 / step : 0;
        float q[GROUP], error = 0;
        if (sc < -32 || sc > 31)
            continue;
        for (int i = 0; i < GROUP; i++) {
            q[i] = ax_nearest(ax_clamp(g->x[i] * inv, -4, 3));
            error += g->w[i] * (step * q[i] - g->x[i]) * (step * q[i] - g->x[i]);
        }
        if (!(error < least))
            continue;
        least = error;
        best = sc;
        for (int i = 0; i < GROUP; i++)
            codes[i] = (unsigned char)(int)(q[i] + 4);
    }
    return best;
}

/* The low two bits of elements 32 apart share a byte in fours, the third bits in eights. Of the
 * scales, plus 32, the low four bits of j and j + 8 share byte j, and the high two of four scales
 * that are 4 apart share another. */
static void pack_q3(const unsigned char *codes, const int *scales, unsigned char *out) {
    for (int i = 0; i < 32; i++)
        out[i] = 0;
    for (int i = 0; i < 64; i++)
        out[32 + i] = 0;
    for (int i = 0; i < 12; i++)
        out[96 + i] = 0;
    for (int i = 0; i < BLOCK; i++) {
        const int half = i / 128, group = i % 128 / 32, l = i % 32;
        out[l] = (unsigned char)(out[l] | codes[i] >> 2 << (4 * half + group));
        out[32 + 32 * half + l] =
            (unsigned char)(out[32 + 32 * half + l] | (codes[i] & 3) << 2 * group);
    }
    for (int j = 0; j < GROUPS; j++) {
        const int sc = scales[j] + 32;
        out[96 + j % 8] = (unsigned char)(out[96 + j % 8] | (sc & 15) << 4 * (j / 8));
        out[104 + j % 4] = (unsigned char)(out[104 + j % 4] | sc >> 4 << 2 * (j / 4));
    }
}

static void q3_k_block(const float *x, unsigned char *out) {
    struct group groups[GROUPS];
    float scales[GROUPS], top = 0;
    int stored[GROUPS];
    unsigned char codes[BLOCK];
    for (int j = 0; j < GROUPS; j++) {
        groups[j].x = x + GROUP * j;
        mixed_weights(groups[j].x, GROUP, groups[j].w);
        scales[j] = fit_scale(&groups[j], 4);
        top = fabsf(scales[j]) > fabsf(top) ? scales[j] : top;
    }
    const float inv_top = fabsf(top) < NOTHING ? 0 : -32 / top;
    const float d = ax_put_half(out + 108, inv_top != 0 ? 1 / inv_top : 0);
    for (int j = 0; j < GROUPS; j++) {
        const int sc = (int)ax_clamp(ax_nearest(inv_top * scales[j]), -32, 31);
        stored[j] = encode3(&groups[j], d, sc, codes + GROUP * j);
    }
    pack_q3(codes, stored, out);
}

void ax_put_q3_k(const float *values, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++)
        q3_k_block(values + BLOCK * b, out + 110 * b);
}

/* --- IQ4_NL: d, qs[16]: d · table[q]; weights as in Q3_K --- */

enum { SMALL = 32, ENTRIES = 16 };

const signed char ax_iq4_nl_table[ENTRIES] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

static int nearest_entry(float v) {
    int q = 0;
    while (q + 1 < ENTRIES && v > 0.5f * (float)(ax_iq4_nl_table[q] + ax_iq4_nl_table[q + 1]))
        q++;
    return q;
}

/* The scale with the least error among several spacings that put the peak near either end of the
 * table. */
static float fit_table(const float *x) {
    float top = 0, best = 0, scale = 0, w[SMALL];
    mixed_weights(x, SMALL, w);
    for (int i = 0; i < SMALL; i++)
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    if (fabsf(top) < NOTHING)
        return 0;
    for (int end = 0; end < 2; end++) {
        for (int step = -8; step <= 8; step++) {
            const float at = (float)ax_iq4_nl_table[end ? ENTRIES - 1 : 0];
            const float inv = (at + (float)step) / top;
            float sxq = 0, sqq = 0;
            for (int i = 0; i < SMALL; i++) {
                const float q = (float)ax_iq4_nl_table[nearest_entry(x[i] * inv)];
                const float wq = w[i] * q;
                sxq += wq * x[i];
                sqq += wq * q;
            }
            if (sqq > 0 && sxq * sxq > best * sqq) {
                scale = sxq / sqq;
                best = sxq * scale;
            }
        }
    }
    return scale;
}

void ax_put_iq4_nl(const float *x, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, x += SMALL, out += 18) {
        const float d = ax_put_half(out, fit_table(x)), inv = d != 0 ? 1 / d : 0;
        for (int i = 0; i < SMALL / 2; i++)
            out[2 + i] = (unsigned char)(nearest_entry(x[i] * inv) |
                                         nearest_entry(x[SMALL / 2 + i] * inv) << 4);
    }
}
