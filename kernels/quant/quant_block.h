/* The numbers of one block in a number format (kernels/ops.h), with all arithmetic in float and in
 * the order of the formulas. Every backend uses these functions, so bits are equal everywhere; where
 * `kind` is a constant they have no branch. */
#ifndef AX_KERNELS_QUANT_QUANT_BLOCK_H
#define AX_KERNELS_QUANT_QUANT_BLOCK_H

#include "kernels/ops.h"
#include "kernels/quant/quant_codes.h"

struct ax_quant_block {
    float scale;   /* value = q·scale (+ offset) */
    float inverse; /* inverse of the scale, if x is multiplied by it */
    float offset;  /* offset as stored */
    float low;     /* INT4_ASYM: of the block */
    float row;     /* INT4_FP8: the row's scale */
    uint32_t byte; /* the scale as stored, where it is a byte */
};

AX_ON_DEVICE static inline float ax_greater(float a, float b) {
    return a > b ? a : b;
}

AX_ON_DEVICE static inline float ax_clamp(float v, float low, float high) {
    v = v < low ? low : v;
    return v > high ? high : v;
}

/* The float nearest to v, ties to even, among those with `bits` bits of fraction and no exponent
 * below `low`: adding 1.5·2²³ of its last places leaves no room for more. */
AX_ON_DEVICE static inline float ax_minifloat(float v, int bits, int low) {
    const uint32_t least = (uint32_t)(low + 127) << 23;
    uint32_t e;
    float c;
    memcpy(&e, &v, sizeof e);
    e &= 0x7f800000;
    e = (e > least ? e : least) + ((uint32_t)(23 - bits) << 23);
    memcpy(&c, &e, sizeof c);
    c *= 1.5F;
    return copysignf((fabsf(v) + c) - c, v);
}

AX_ON_DEVICE static inline float ax_e4m3(float v) {
    return ax_minifloat(ax_clamp(v, -448, 448), 3, -6);
}
AX_ON_DEVICE static inline float ax_e2m1(float v) {
    return ax_minifloat(ax_clamp(v, -6, 6), 1, 0);
}

/* The scale of a row or tensor, from its largest |x|. */
AX_ON_DEVICE static inline float ax_quant_outer(enum ax_quant kind, float amax) {
    return kind == AX_QUANT_NVFP4 ? ax_greater(amax / 2688, 0x1p-126F)
                                  : ax_greater(amax, 1e-12F) / 448;
}

/* Exponent of the power of two at or below v > 0, or with `up` at or above it, less `shift`. */
AX_ON_DEVICE static inline int ax_quant_exponent(float v, bool up, int shift) {
    int e;
    if (!(v > 0))
        return -127;
    const float fraction = frexpf(v, &e); /* in [½, 1) */
    e -= up && fraction > 0.5F ? shift : shift + 1;
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* At −127, torchao divides by 2⁻¹²⁶ or, rounding up, by 1; only zeros and denormals come there. */
AX_ON_DEVICE static inline void ax_quant_power(struct ax_quant_block *b, int e, bool up) {
    b->byte = (uint32_t)(e + 127);
    b->scale = ldexpf(1, e);
    b->inverse = e > -127 ? ldexpf(1, -e) : up ? 1 : 0x1p126F;
}

/* NVFP4: the scale of a tensor that values have. Files contain its reciprocal, and a reciprocal's
 * reciprocal is the same however often it is taken. */
AX_ON_DEVICE static inline float ax_quant_outer_value(float outer) {
    return 1 / (1 / outer);
}

AX_ON_DEVICE static inline void ax_quant_nvfp4(struct ax_quant_block *b, float ratio) {
    const float scale = ax_e4m3(ax_clamp(ratio, 0x1p-6F, 448));
    b->byte = ax_e4m3_code(scale);
    b->scale = scale;
}

/* The block whose least and largest number are these; `outer` is the scale of its row or tensor. */
AX_ON_DEVICE static inline struct ax_quant_block ax_quant_block_of(enum ax_quant kind, float low,
                                                                   float high, float outer) {
    struct ax_quant_block b;
    memset(&b, 0, sizeof b);
    const float amax = ax_greater(-low, high);
    switch (kind) {
    case AX_QUANT_INT8:
    case AX_QUANT_INT4:
    case AX_QUANT_INT4X2:
        b.scale = ax_greater(amax / (kind == AX_QUANT_INT8 ? 127.5F : 7.5F), 0x1p-126F);
        break;
    case AX_QUANT_INT8_ASYM:
        low = low < 0 ? low : 0;
        b.scale = ax_greater((ax_greater(high, 0) - low) / 255, 0x1p-126F);
        b.offset = ax_clamp(-128 - rintf(low / b.scale), -128, 127);
        break;
    case AX_QUANT_INT4_ASYM:
        b.scale = ax_greater(high - low, 1e-6F) / 15;
        b.low = low;
        b.offset = low + b.scale * 8;
        break;
    case AX_QUANT_INT4_FP8:
        b.row = outer;
        b.scale = ax_greater(ax_e4m3(amax / outer) * outer / 8, 1e-6F);
        break;
    case AX_QUANT_FP8:
        b.scale = ax_greater(amax, 1e-12F) / 448;
        break;
    case AX_QUANT_E5M2:
        b.scale = ax_greater(amax, 1e-12F) / 57344;
        break;
    case AX_QUANT_NVFP4:
        ax_quant_nvfp4(&b, amax / 6 / outer);
        b.inverse = (1 / outer) / b.scale;
        b.scale *= ax_quant_outer_value(outer);
        return b;
    case AX_QUANT_NVFP4_ONE:
        ax_quant_nvfp4(&b, amax / 6);
        break;
    case AX_QUANT_MXFP4:
        ax_quant_power(&b, ax_quant_exponent(amax, false, 2), false);
        return b;
    case AX_QUANT_MXFP4_UP:
        ax_quant_power(&b, ax_quant_exponent(amax / 6, true, 0), true);
        return b;
    case AX_QUANT_MXFP8:
        ax_quant_power(&b, ax_quant_exponent(amax, false, 8), false);
        return b;
    case AX_QUANT_MXFP8_UP:
        ax_quant_power(&b, ax_quant_exponent(amax / 448, true, 0), true);
        return b;
    case AX_QUANT_NF4:
    case AX_QUANT_MAP8:
    case AX_QUANT_COUNT:
        b.scale = amax;
        return b;
    }
    b.inverse = 1 / b.scale;
    return b;
}

/* q of an element before it is clamped to integers' limits. */
AX_ON_DEVICE static inline float ax_quant_rounded(enum ax_quant kind, float x,
                                                  const struct ax_quant_block *b) {
    switch (kind) {
    case AX_QUANT_INT8:
    case AX_QUANT_INT4:
    case AX_QUANT_INT4X2:
        return rintf(x * b->inverse);
    case AX_QUANT_INT8_ASYM:
        return rintf(x * b->inverse) + b->offset;
    case AX_QUANT_INT4_ASYM:
        return rintf((x - b->low) / b->scale);
    case AX_QUANT_INT4_FP8:
        return rintf(ax_e4m3(x / b->row) * b->row * b->inverse);
    case AX_QUANT_FP8:
        return ax_e4m3(x / b->scale);
    case AX_QUANT_E5M2:
        return ax_minifloat(ax_clamp(x / b->scale, -57344, 57344), 2, -14);
    case AX_QUANT_NVFP4_ONE:
        return ax_e2m1(x / b->scale);
    case AX_QUANT_NVFP4:
    case AX_QUANT_MXFP4:
    case AX_QUANT_MXFP4_UP:
        return ax_e2m1(x * b->inverse);
    case AX_QUANT_MXFP8:
    case AX_QUANT_MXFP8_UP:
        return ax_e4m3(x * b->inverse);
    case AX_QUANT_NF4:
    case AX_QUANT_MAP8:
    case AX_QUANT_COUNT:
        break;
    }
    return 0;
}

AX_ON_DEVICE static inline float ax_quant_least(enum ax_quant kind) {
    return kind == AX_QUANT_INT4_ASYM                            ? 0
           : kind == AX_QUANT_INT8 || kind == AX_QUANT_INT8_ASYM ? -128
                                                                 : -8;
}
AX_ON_DEVICE static inline float ax_quant_most(enum ax_quant kind) {
    return kind == AX_QUANT_INT4_ASYM                            ? 15
           : kind == AX_QUANT_INT8 || kind == AX_QUANT_INT8_ASYM ? 127
                                                                 : 7;
}
AX_ON_DEVICE static inline bool ax_quant_is_integer(enum ax_quant kind) {
    return kind == AX_QUANT_INT8 || kind == AX_QUANT_INT4 || kind == AX_QUANT_INT4X2 ||
           kind == AX_QUANT_INT8_ASYM || kind == AX_QUANT_INT4_ASYM || kind == AX_QUANT_INT4_FP8;
}

AX_ON_DEVICE static inline float ax_quant_clamped(enum ax_quant kind, float q) {
    return ax_quant_is_integer(kind) ? ax_clamp(q, ax_quant_least(kind), ax_quant_most(kind)) : q;
}

/* True for a code that files of others may have, and that our rounding never makes. */
static inline bool ax_quant_is_nan(enum ax_quant kind, uint32_t code) {
    return kind == AX_QUANT_FP8 && (code & 0x7fU) == 0x7fU;
}

/* The value that q stands for. */
AX_ON_DEVICE static inline float ax_quant_value(enum ax_quant kind, float q,
                                                const struct ax_quant_block *b) {
    if (kind == AX_QUANT_INT8_ASYM)
        return (q - b->offset) * b->scale;
    if (kind == AX_QUANT_INT4_ASYM)
        return (q - 8) * b->scale + b->offset;
    return q * b->scale;
}

AX_ON_DEVICE static inline float ax_quant_fake(enum ax_quant kind, float x,
                                               const struct ax_quant_block *b) {
    return ax_quant_value(kind, ax_quant_clamped(kind, ax_quant_rounded(kind, x, b)), b);
}

/* False where an integer was clamped. */
AX_ON_DEVICE static inline bool ax_quant_kept(enum ax_quant kind, float x,
                                              const struct ax_quant_block *b) {
    const float q = ax_quant_rounded(kind, x, b);
    return !ax_quant_is_integer(kind) || q == ax_quant_clamped(kind, q);
}

/* The code of a float in a small format: bits of sign, exponent and fraction. */
AX_ON_DEVICE static inline uint32_t ax_minifloat_code(float v, int bits, int low, int sign) {
    uint32_t u;
    const float size = fabsf(v);
    memcpy(&u, &size, sizeof u);
    const uint32_t normal = (u >> (23 - bits)) - ((uint32_t)(low + 126) << bits);
    const uint32_t code = size < ldexpf(1, low) ? (uint32_t)ldexpf(size, bits - low) : normal;
    return code | (signbit(v) ? 1U << sign : 0);
}

AX_ON_DEVICE static inline float ax_minifloat_value(uint32_t code, int bits, int low, int sign) {
    const uint32_t size = code & ((1U << sign) - 1), e = size >> bits;
    const float fraction = (float)(size & ((1U << bits) - 1));
    const float v = e == 0 ? ldexpf(fraction, low - bits)
                           : ldexpf(fraction + (float)(1U << bits), low - bits + (int)e - 1);
    return code >> sign & 1 ? -v : v;
}

/* The code of q, and q of a code; a NaN has the code of 0. */
AX_ON_DEVICE static inline uint32_t ax_quant_code(enum ax_quant kind, float q) {
    if (q != q)
        return 0;
    if (ax_quant_is_integer(kind))
        return (uint32_t)(int32_t)q & 255;
    if (kind == AX_QUANT_E5M2)
        return ax_minifloat_code(q, 2, -14, 7);
    if (kind == AX_QUANT_FP8 || kind == AX_QUANT_MXFP8 || kind == AX_QUANT_MXFP8_UP)
        return ax_e4m3_code(q);
    return ax_minifloat_code(q, 1, 0, 3);
}

/* The code of x in FP8 or E5M2, where a NaN stays one. */
#define AX_FP8_NAN 0x7fU
AX_ON_DEVICE static inline uint32_t ax_fp8_code(enum ax_quant kind, float x,
                                                const struct ax_quant_block *b) {
    const float q = ax_quant_rounded(kind, x, b);
    return q != q ? AX_FP8_NAN : ax_quant_code(kind, q);
}
AX_ON_DEVICE static inline float ax_quant_of_code(enum ax_quant kind, uint32_t code) {
    if (ax_quant_is_integer(kind))
        return kind == AX_QUANT_INT4_ASYM ? (float)code : (float)(int8_t)code;
    if (kind == AX_QUANT_E5M2)
        return ax_minifloat_value(code, 2, -14, 7);
    if (kind == AX_QUANT_FP8 || kind == AX_QUANT_MXFP8 || kind == AX_QUANT_MXFP8_UP)
        return ax_e4m3_value(code);
    return ax_minifloat_value(code, 1, 0, 3);
}
/* What such a code means without its scale. */
AX_ON_DEVICE static inline float ax_fp8_value(enum ax_quant kind, uint32_t code) {
    return (code & AX_FP8_NAN) == AX_FP8_NAN ? NAN : ax_quant_of_code(kind, code);
}

/* The block from what is stored of it. */
AX_ON_DEVICE static inline struct ax_quant_block
ax_quant_stored(enum ax_quant kind, float scale, uint32_t byte, float offset, float outer) {
    struct ax_quant_block b;
    memset(&b, 0, sizeof b);
    b.scale = scale;
    b.offset = offset;
    b.byte = byte;
    if (kind == AX_QUANT_NVFP4 || kind == AX_QUANT_NVFP4_ONE)
        b.scale = ax_e4m3_value(byte) * (kind == AX_QUANT_NVFP4 ? ax_quant_outer_value(outer) : 1);
    else if (kind >= AX_QUANT_MXFP4 && kind <= AX_QUANT_MXFP8_UP)
        b.scale = ldexpf(1, (int)byte - 127);
    return b;
}

/* INT4_ASYM: dx of a block from its x and dy; dx may be dy (quant_asym.c). */
void ax_quant_asym_gradient(const float *x, const double *dy, int64_t n, double *dx);

#endif
