/* The codes of packed numbers, one element at a time, with all arithmetic in float and in the order
 * of the formulas in kernels/ops.h. Every backend uses these, so codes are equal everywhere. Rounds
 * half to even. */
#ifndef AX_KERNELS_QUANT_QUANT_CODES_H
#define AX_KERNELS_QUANT_QUANT_CODES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Functions marked so are called by CUDA's kernels, too. */
#ifdef __CUDACC__
#define AX_ON_DEVICE __host__ __device__
#else
#define AX_ON_DEVICE
#endif

extern const float ax_nf4_values[16]; /* quant_tables.c */
extern const float ax_nf4_bounds[15];
extern const float ax_int4_values[16];  /* values of four bits in two's complement */
extern const float ax_map8_values[256]; /* ascending */

/* The nearest of ax_nf4_values; ties go to the lower one. */
static inline uint32_t ax_nf4_code(float v) {
    uint32_t code = 0;
    for (int k = 0; k < 15; k++)
        code += v >= ax_nf4_bounds[k];
    return code;
}

/* |v| ≤ 448. Below 2⁻⁶ codes are multiples of 2⁻⁹; above, the float's bits are rounded at the third
 * bit of the fraction and the exponent is moved from 127 to 7. */
AX_ON_DEVICE static inline uint32_t ax_e4m3_code(float v) {
    uint32_t bits, sign, code;
    memcpy(&bits, &v, sizeof bits);
    sign = bits >> 24 & 0x80;
    bits &= 0x7fffffff;
    code = ((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120U << 3);
    return sign | (bits < 0x3c800000 ? (uint32_t)rintf(fabsf(v) * 512) : code);
}

AX_ON_DEVICE static inline float ax_e4m3_value(uint32_t code) {
    const uint32_t bits = (code & 0x7f)
                          << 20; /* read as a float, the bits are 2⁻¹²⁰ times the value */
    float v;
    memcpy(&v, &bits, sizeof v);
    v *= 0x1p120F;
    return code & 0x80 ? -v : v;
}

/* The last map value not above v, or the next if v is at or beyond half way. */
static inline uint32_t ax_map8_code(float v) {
    uint32_t code = 0;
    for (uint32_t step = 128; step > 0; step /= 2)
        code += v >= ax_map8_values[code + step] ? step : 0;
    const uint32_t up = code < 255 ? code + 1 : 255;
    const float half = (ax_map8_values[up] - ax_map8_values[code]) * 0.5F;
    return v - ax_map8_values[code] >= half ? up : code;
}

#endif
