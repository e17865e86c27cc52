/* Element types: the table of names and sizes, bf16 and f16 bits, and elements as doubles. */
#include "kernels/dtype.h"

#include <math.h>
#include <string.h>

static const struct ax_dtype_info INFO[AX_DTYPE_COUNT] = {
    [AX_F64] = {"float64", "F64", 8, true},    [AX_F32] = {"float32", "F32", 4, true},
    [AX_BF16] = {"bfloat16", "BF16", 2, true}, [AX_F16] = {"float16", "F16", 2, true},
    [AX_I64] = {"int64", "I64", 8, false},     [AX_I32] = {"int32", "I32", 4, false},
    [AX_I16] = {"int16", "I16", 2, false},     [AX_I8] = {"int8", "I8", 1, false},
    [AX_U8] = {"uint8", "U8", 1, false},
};

/* Short forms used in configs, in addition to the table's names. */
static const struct {
    const char *name;
    enum ax_dtype dtype;
} SHORT[] = {
    {"f64", AX_F64},   {"fp64", AX_F64}, {"f32", AX_F32},  {"fp32", AX_F32},
    {"bf16", AX_BF16}, {"f16", AX_F16},  {"fp16", AX_F16}, {"i64", AX_I64},
    {"i32", AX_I32},   {"i16", AX_I16},  {"i8", AX_I8},    {"u8", AX_U8},
};

const struct ax_dtype_info *ax_dtype_info(enum ax_dtype dtype) {
    AX_ASSERT(dtype < AX_DTYPE_COUNT);
    return &INFO[dtype];
}

size_t ax_dtype_size(enum ax_dtype dtype) {
    return ax_dtype_info(dtype)->size;
}

enum ax_status ax_dtype_parse(const char *name, enum ax_dtype *out) {
    for (int i = 0; i < AX_DTYPE_COUNT; i++) {
        if (strcmp(name, INFO[i].name) == 0) {
            *out = (enum ax_dtype)i;
            return AX_OK;
        }
    }
    for (size_t i = 0; i < sizeof(SHORT) / sizeof(SHORT[0]); i++) {
        if (strcmp(name, SHORT[i].name) == 0) {
            *out = SHORT[i].dtype;
            return AX_OK;
        }
    }
    return ax_error(AX_ERR_CONFIG,
                    "dtype: no type is called \"%.40s\". Choose float32 (fp32), bfloat16 (bf16), "
                    "float16 (fp16), float64 (fp64), int64, int32, int16, int8 or uint8.",
                    name);
}

enum ax_dtype ax_dtype_accum(enum ax_dtype dtype) {
    return dtype == AX_F64 ? AX_F64 : AX_F32;
}

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof(x));
    return x;
}

float ax_bf16_to_f32(uint16_t bits) {
    return float_of((uint32_t)bits << 16);
}

uint16_t ax_f32_to_bf16(float x) {
    uint32_t u = bits_of(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u); /* quiet NaN, so that dropping low bits cannot make it
                                                 inf */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* The low half as a signed number is exactly what rounding removed, so adding it undoes the
 * rounding. A NaN loses its low half first: a GPU's, 0x7fffffff, would round up to −0. */
uint16_t ax_f32_split(float x, int16_t *remainder) {
    uint32_t u = isnan(x) ? (bits_of(x) | 0x400000u) & 0xffff0000u : bits_of(x);
    uint16_t low = (uint16_t)u;
    memcpy(remainder, &low, sizeof(low));
    return (uint16_t)((u + 0x8000u) >> 16);
}

float ax_f32_join(uint16_t bf16, int16_t remainder) {
    return float_of(((uint32_t)bf16 << 16) + (uint32_t)(int32_t)remainder);
}

uint16_t ax_f32_to_bf16_random(float x, uint32_t random) {
    uint32_t u = bits_of(x);
    return isnan(x) ? ax_f32_to_bf16(x) : (uint16_t)((u + (random & 0xffffu)) >> 16);
}

float ax_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0) { /* zero and subnormals: mantissa · 2⁻²⁴, exact in f32 */
        float magnitude = (float)mantissa * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + (127u - 15u);
    return float_of(sign | (wide << 23) | (mantissa << 13));
}

uint16_t ax_f32_to_f16(float x) {
    uint32_t u = bits_of(x);
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and above round to 2¹⁶, which f16 does not have */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2⁻¹⁴: a multiple of 2⁻²⁴, rounded by the addition */
        float shifted = float_of(magnitude) + 0.5f; /* ulp of [0.5, 1) is 2⁻²⁴ */
        return (uint16_t)(sign | (bits_of(shifted) - bits_of(0.5f)));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - ((127u - 15u) << 23)) >> 13));
}

/* x truncated to float, with the last bit set if truncation lost any bits. Rounding that to a
 * shorter format equals rounding x directly: no double rounding. */
static float round_to_odd(double x) {
    float nearest = (float)x;
    uint32_t u = bits_of(nearest);
    if ((double)nearest == x || isnan(x))
        return nearest;
    if (fabs((double)nearest) > fabs(x))
        u -= 1;
    return float_of(u | 1u);
}

/* Element i without any alignment: tensors in files begin at any byte. */
#define DEFINE_AT(type)                                                                            \
    static type type##_at(const void *data, int64_t i) {                                           \
        type x;                                                                                    \
        memcpy(&x, (const char *)data + (size_t)i * sizeof(x), sizeof(x));                         \
        return x;                                                                                  \
    }
DEFINE_AT(double)
DEFINE_AT(float)
DEFINE_AT(uint16_t)
DEFINE_AT(int64_t)
DEFINE_AT(int32_t)
DEFINE_AT(int16_t)

double ax_load(enum ax_dtype dtype, const void *data, int64_t index) {
    AX_ASSERT(dtype < AX_DTYPE_COUNT);
    switch (dtype) {
    case AX_F64:
        return double_at(data, index);
    case AX_F32:
        return (double)float_at(data, index);
    case AX_BF16:
        return (double)ax_bf16_to_f32(uint16_t_at(data, index));
    case AX_F16:
        return (double)ax_f16_to_f32(uint16_t_at(data, index));
    case AX_I64:
        return (double)int64_t_at(data, index);
    case AX_I32:
        return (double)int32_t_at(data, index);
    case AX_I16:
        return (double)int16_t_at(data, index);
    case AX_I8:
        return (double)((const int8_t *)data)[index];
    case AX_U8:
        return (double)((const uint8_t *)data)[index];
    case AX_DTYPE_COUNT:
        break;
    }
    return 0;
}

/* Nearest integer within [min, max]; NaN gives 0. max is the largest double not above the type's.
 */
static int64_t to_integer(double value, double min, double max) {
    if (isnan(value))
        return 0;
    double nearest = nearbyint(value);
    return (int64_t)(nearest < min ? min : nearest > max ? max : nearest);
}

void ax_store(enum ax_dtype dtype, void *data, int64_t index, double value) {
    AX_ASSERT(dtype < AX_DTYPE_COUNT);
    switch (dtype) {
    case AX_F64:
        ((double *)data)[index] = value;
        return;
    case AX_F32:
        ((float *)data)[index] = (float)value;
        return;
    case AX_BF16:
        ((uint16_t *)data)[index] = ax_f32_to_bf16(round_to_odd(value));
        return;
    case AX_F16:
        ((uint16_t *)data)[index] = ax_f32_to_f16(round_to_odd(value));
        return;
    case AX_I64: /* 2⁶³ − 1024 is the largest double below 2⁶³ */
        ((int64_t *)data)[index] = to_integer(value, -0x1p63, 0x1.fffffffffffffp62);
        return;
    case AX_I32:
        ((int32_t *)data)[index] = (int32_t)to_integer(value, INT32_MIN, INT32_MAX);
        return;
    case AX_I16:
        ((int16_t *)data)[index] = (int16_t)to_integer(value, INT16_MIN, INT16_MAX);
        return;
    case AX_I8:
        ((int8_t *)data)[index] = (int8_t)to_integer(value, INT8_MIN, INT8_MAX);
        return;
    case AX_U8:
        ((uint8_t *)data)[index] = (uint8_t)to_integer(value, 0, UINT8_MAX);
        return;
    case AX_DTYPE_COUNT:
        break;
    }
}

void ax_convert(enum ax_dtype to, void *dst, enum ax_dtype from, const void *src, int64_t n) {
    if (n <= 0)
        return;
    if (to == from)
        memcpy(dst, src, (size_t)n * ax_dtype_size(to));
    else if (to == AX_F32 && from == AX_BF16)
        for (int64_t i = 0; i < n; i++)
            ((float *)dst)[i] = ax_bf16_to_f32(uint16_t_at(src, i));
    else if (to == AX_BF16 && from == AX_F32)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = ax_f32_to_bf16(float_at(src, i));
    else if (to == AX_F32 && from == AX_F16)
        for (int64_t i = 0; i < n; i++)
            ((float *)dst)[i] = ax_f16_to_f32(uint16_t_at(src, i));
    else if (to == AX_F16 && from == AX_F32)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)dst)[i] = ax_f32_to_f16(float_at(src, i));
    else if (to == AX_F64 && from == AX_F32)
        for (int64_t i = 0; i < n; i++)
            ((double *)dst)[i] = (double)float_at(src, i);
    else if (to == AX_F64 && from == AX_BF16)
        for (int64_t i = 0; i < n; i++)
            ((double *)dst)[i] = (double)ax_bf16_to_f32(uint16_t_at(src, i));
    else
        for (int64_t i = 0; i < n; i++)
            ax_store(to, dst, i, ax_load(from, src, i));
}
