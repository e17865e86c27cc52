/* The 8-bit "dynamic" number format of optimizer states (Dettmers, Lewis, Shleifer, Zettlemoyer:
 * "8-bit Optimizers via Block-wise Quantization", 2022): seven decades below 1, each divided into
 * twice as many equal parts as the one below; code values are the parts' centers, 0 and 1. Unsigned,
 * only 0 has the code 0: a second moment that is rounded to 0 beside a first one that is not would
 * divide it by eps alone in a step without a gradient, as rows of the embedding have them. */
#ifndef AX_KERNELS_QUANT_DYNAMIC_MAP_H
#define AX_KERNELS_QUANT_DYNAMIC_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct ax_dynamic_map {
    float value[256]; /* ascending; signed: code 127 is 0; unsigned: code 0 is 0 */
    float above[256]; /* the smallest float that has code c + 1 rather than c; above[255] = inf */
};
extern const struct ax_dynamic_map ax_dynamic_signed, ax_dynamic_unsigned;

/* The code nearest to x, |x| ≤ 1, but for unsigned ones near 0; ties go to the higher code. */
uint8_t ax_dynamic_encode(const struct ax_dynamic_map *map, float x);

#endif
