/* The 8-bit "dynamic" number format of optimizer states (Dettmers, Lewis, Shleifer, Zettlemoyer:
 * "8-bit Optimizers via Block-wise Quantization", 2022): seven decades below 1, each divided into
 * twice as many equal parts as the one below; code values are the parts' centers, 0 and 1. */
#ifndef AX_KERNELS_QUANT_DYNAMIC_MAP_H
#define AX_KERNELS_QUANT_DYNAMIC_MAP_H

#include <stdbool.h>
#include <stdint.h>

struct ax_dynamic_map {
    float value[256]; /* ascending; signed: code 127 is 0; unsigned: code 0 is 0 */
    float above[256]; /* the smallest float nearer to code c + 1 than to c; above[255] = inf */
};
extern const struct ax_dynamic_map ax_dynamic_signed, ax_dynamic_unsigned;

/* The code nearest to x, |x| ≤ 1; ties go to the higher code. */
uint8_t ax_dynamic_encode(const struct ax_dynamic_map *map, float x);

#endif
