/* Blocks of 256 elements with scales and minimums: Q4_K and Q5_K. Groups have scales that are
 * integer multiples of one half-precision number of the block.
 *
 * Each group tries several level spacings around the obvious one. A spacing determines the codes;
 * for given codes, the scale (and minimum) with the least weighted squared error has a closed form,
 * and so has that error. The block stores the best of each group, rounded, and the codes are chosen
 * again for the stored values; as scales have only six bits, their neighbors are tried as well. */
#include <math.h>

#include "ckpt/gguf/quantize.h"

enum { BLOCK = 256 };

/* x ≈ scale · q − minimum, q from 0 to `top` (15 or 31), groups of 32 */

enum { GROUP = 32, GROUPS = BLOCK / GROUP };

struct fit {
    float scale, minimum; /* both ≥ 0 */
    float error;
};

/* Σ w, Σ w·x and Σ w·x² of a group, and its range, extended to include 0 at the low end. */
struct group {
    const float *x;
    float w[GROUP];
    float sw, swx, swxx, low, high, top;
};

/* Weights that grow with the magnitude, but are not zero for small elements. */
static void weigh(struct group *g, const float *x, int top) {
    float sum = 0;
    *g = (struct group){.x = x, .high = x[0], .top = (float)top};
    for (int i = 0; i < GROUP; i++)
        sum += x[i] * x[i];
    const float rms = sqrtf(sum / GROUP);
    for (int i = 0; i < GROUP; i++) {
        const float w = rms + fabsf(x[i]);
        g->w[i] = w;
        g->sw += w;
        g->swx += w * x[i];
        g->swxx += w * x[i] * x[i];
        g->low = x[i] < g->low ? x[i] : g->low;
        g->high = x[i] > g->high ? x[i] : g->high;
    }
}

/* Weighted least squares for scale and minimum, given the codes that result from this many levels
 * over the range; with the minimum at 0 if it would have the wrong sign. */
static struct fit try_levels(const struct group *g, float levels) {
    const float inv = levels / (g->high - g->low);
    float sq = 0, sqq = 0, sxq = 0;
    for (int i = 0; i < GROUP; i++) {
        const float q = ax_clamp(ax_nearest((g->x[i] - g->low) * inv), 0, g->top), wq = g->w[i] * q;
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
    /* if all codes are equal up to rounding, scale and minimum are not determined */
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
    best.scale = (g->high - g->low) / g->top;
    for (int step = -10; step <= 10; step++) {
        const struct fit f = try_levels(g, g->top + 0.1f * (float)step);
        if (f.error < best.error && f.scale > 0)
            best = f;
    }
    return best;
}

/* Codes for the stored scale and minimum, and their weighted error. */
static float encode(const struct group *g, float step, float offset, float *codes) {
    const float inv = step > 0 ? 1 / step : 0;
    float error = 0;
    for (int i = 0; i < GROUP; i++) {
        const float q = ax_nearest(ax_clamp((g->x[i] + offset) * inv, 0, g->top));
        const float e = step * q - offset - g->x[i];
        codes[i] = q;
        error += g->w[i] * e * e;
    }
    return error;
}

/* The six-bit scale and minimum of a group: the rounded values, or neighbors with a smaller
 * error. */
static void encode_group(const struct group *g, const struct fit *f, float d, float dmin,
                         unsigned *scale, unsigned *minimum, unsigned char *out) {
    const int s0 = d > 0 ? (int)ax_nearest(ax_clamp(f->scale / d, 0, 63)) : 0;
    const int m0 = dmin > 0 ? (int)ax_nearest(ax_clamp(f->minimum / dmin, 0, 63)) : 0;
    float best = INFINITY, codes[GROUP];
    for (int s = s0 > 0 ? s0 - 1 : 0; s <= s0 + 1 && s < 64; s++) {
        for (int m = m0 > 0 ? m0 - 1 : 0; m <= m0 + 1 && m < 64; m++) {
            const float error = encode(g, d * (float)s, dmin * (float)m, codes);
            if (!(error < best))
                continue;
            best = error;
            *scale = (unsigned)s;
            *minimum = (unsigned)m;
            for (int i = 0; i < GROUP; i++)
                out[i] = (unsigned char)codes[i];
        }
    }
}

/* Packs six-bit scales and minimums into twelve bytes: see q4_k_scale in blocks.c. */
static void pack_scales(const unsigned *scale, const unsigned *minimum, unsigned char *sc) {
    for (int j = 0; j < 4; j++) {
        sc[j] = (unsigned char)(scale[j] | scale[j + 4] >> 4 << 6);
        sc[j + 4] = (unsigned char)(minimum[j] | minimum[j + 4] >> 4 << 6);
        sc[j + 8] = (unsigned char)((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

/* Writes the first sixteen bytes of a block, which both types have in common, and returns the
 * codes. */
static void fit_block(const float *x, int top, unsigned char *out, unsigned char codes[BLOCK]) {
    struct group groups[GROUPS];
    struct fit fits[GROUPS];
    float most_scale = 0, most_minimum = 0;
    unsigned scale[GROUPS] = {0}, minimum[GROUPS] = {0};
    for (int j = 0; j < GROUPS; j++) {
        weigh(&groups[j], x + GROUP * j, top);
        fits[j] = fit_group(&groups[j]);
        most_scale = fmaxf(most_scale, fits[j].scale);
        most_minimum = fmaxf(most_minimum, fits[j].minimum);
    }
    const float d = ax_put_half(out, most_scale / 63);
    const float dmin = ax_put_half(out + 2, most_minimum / 63);
    for (int j = 0; j < GROUPS; j++)
        encode_group(&groups[j], &fits[j], d, dmin, &scale[j], &minimum[j], codes + GROUP * j);
    pack_scales(scale, minimum, out + 4);
}

/* The low four bits: each byte has those of two elements, one group apart. */
static void pack_low(const unsigned char *codes, unsigned char *qs) {
    for (int i = 0; i < BLOCK / 2; i++) {
        const int at = 2 * GROUP * (i / GROUP) + i % GROUP;
        qs[i] = (unsigned char)((codes[at] & 15) | (codes[at + GROUP] & 15) << 4);
    }
}

void ax_put_q4_k(const float *values, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, out += 144) {
        unsigned char codes[BLOCK] = {0};
        fit_block(values + BLOCK * b, 15, out, codes);
        pack_low(codes, out + 16);
    }
}

/* Bit j of byte k of qh is the fifth bit of element k in group j. */
void ax_put_q5_k(const float *values, int64_t n, unsigned char *out) {
    for (int64_t b = 0; b < n; b++, out += 176) {
        unsigned char codes[BLOCK] = {0};
        fit_block(values + BLOCK * b, 31, out, codes);
        for (int k = 0; k < GROUP; k++) {
            unsigned fifth = 0;
            for (int j = 0; j < GROUPS; j++)
                fifth |= (unsigned)(codes[GROUP * j + k] >> 4) << j;
            out[16 + k] = (unsigned char)fifth;
        }
        pack_low(codes, out + 48);
    }
}
