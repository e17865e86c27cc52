/* Run-time element types and scalar conversions (round to nearest even). */
#ifndef AX_KERNELS_DTYPE_H
#define AX_KERNELS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum ax_dtype {
    AX_F64,
    AX_F32,
    AX_BF16,
    AX_F16,
    AX_I64,
    AX_I32,
    AX_I16,
    AX_I8,
    AX_U8,
    AX_DTYPE_COUNT
};

struct ax_dtype_info {
    const char *name;        /* "bfloat16": PyTorch's name, used in configs and --dtype */
    const char *safetensors; /* "BF16" */
    size_t size;             /* bytes */
    bool is_float;
};
const struct ax_dtype_info *ax_dtype_info(enum ax_dtype dtype);
size_t ax_dtype_size(enum ax_dtype dtype);
/* Accepts PyTorch names and the short forms f64 fp32 bf16 …; AX_ERR_CONFIG lists the choices. */
enum ax_status ax_dtype_parse(const char *name, enum ax_dtype *out);
/* The accumulation dtype, for sums, statistics, gradients and masters: F64 for F64, else F32. */
enum ax_dtype ax_dtype_accum(enum ax_dtype dtype);

float ax_bf16_to_f32(uint16_t bits);
uint16_t ax_f32_to_bf16(float x); /* NaN stays NaN */
float ax_f16_to_f32(uint16_t bits);
uint16_t ax_f32_to_f16(float x); /* overflow → inf */

/* Splits a float32 into the nearest bfloat16 (ties away from zero) and 16 remainder bits; join
 * restores every bit. Both halves of NaN join to NaN, and its bfloat16 is NaN, too. */
uint16_t ax_f32_split(float x, int16_t *remainder);
float ax_f32_join(uint16_t bf16, int16_t remainder);
/* x rounded stochastically to bf16, so that the mean is x; `random` holds 16 bits. */
uint16_t ax_f32_to_bf16_random(float x, uint32_t random);

/* One element of any float or integer dtype as double, and back (rounded once from the double).
 * Reads, here and in ax_convert, need no alignment. */
double ax_load(enum ax_dtype dtype, const void *data, int64_t index);
void ax_store(enum ax_dtype dtype, void *data, int64_t index, double value);
/* n contiguous elements from one dtype to another. */
void ax_convert(enum ax_dtype to, void *dst, enum ax_dtype from, const void *src, int64_t n);

#endif
