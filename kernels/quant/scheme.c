/* The tables of formats and schemes. */
#include "kernels/quant/scheme.h"

#include <limits.h>
#include <string.h>

#include "base/text/words.h"
#include "kernels/quant/quant_codes.h"

#define NO_OUTER 1

static const struct ax_quant_info infos[AX_QUANT_COUNT] = {
    [AX_QUANT_NF4] = {"nf4", AX_U8, AX_F32, .values = ax_nf4_values, .outer = NO_OUTER},
    [AX_QUANT_MAP8] = {"map8", AX_U8, AX_F32, .offset = true, .outer = NO_OUTER},
    [AX_QUANT_INT8] = {"int8", AX_I8, AX_F32, .fakes = true, .clips = true, .outer = NO_OUTER},
    [AX_QUANT_INT4] = {"int4", AX_I8, AX_F32, .fakes = true, .clips = true, .outer = NO_OUTER},
    [AX_QUANT_INT4X2] = {"int4, two per byte", AX_U8, AX_F32, .values = ax_int4_values,
                         .outer = NO_OUTER},
    [AX_QUANT_INT8_ASYM] = {"int8 asymmetric", AX_I8, AX_F32, .offset = true, .fakes = true,
                            .clips = true, .outer = NO_OUTER},
    [AX_QUANT_INT4_ASYM] = {"int4 asymmetric", AX_U8, AX_F32, .offset = true, .fakes = true,
                            .clips = true, .outer = NO_OUTER},
    [AX_QUANT_INT4_FP8] = {"int4 of fp8", AX_I8, AX_F32, .fakes = true, .clips = true,
                           .outer = AX_BLOCK_ROW},
    [AX_QUANT_FP8] = {"e4m3", AX_U8, AX_F32, .fakes = true, .outer = NO_OUTER},
    [AX_QUANT_E5M2] = {"e5m2", AX_U8, AX_F32, .fakes = true, .outer = NO_OUTER},
    [AX_QUANT_NVFP4] = {"nvfp4", AX_U8, AX_U8, .fakes = true, .outer = AX_BLOCK_TENSOR},
    [AX_QUANT_NVFP4_ONE] = {"nvfp4, one scale", AX_U8, AX_U8, .fakes = true, .outer = NO_OUTER},
    [AX_QUANT_MXFP4] = {"mxfp4", AX_U8, AX_U8, .fakes = true, .outer = NO_OUTER},
    [AX_QUANT_MXFP4_UP] = {"mxfp4, scale rounded up", AX_U8, AX_U8, .fakes = true,
                           .outer = NO_OUTER},
    [AX_QUANT_MXFP8] = {"mxfp8", AX_U8, AX_U8, .fakes = true, .outer = NO_OUTER},
    [AX_QUANT_MXFP8_UP] = {"mxfp8, scale rounded up", AX_U8, AX_U8, .fakes = true,
                           .outer = NO_OUTER},
};

const struct ax_quant_info *ax_quant_info(enum ax_quant kind) {
    AX_ASSERT(kind < AX_QUANT_COUNT);
    return &infos[kind];
}

int64_t ax_quant_code_bytes(enum ax_quant kind, int64_t n) {
    return ax_quant_info(kind)->values ? (n + 1) / 2 : n;
}

const char *ax_file_form_name(enum ax_file_form form) {
    static const char *const names[] = {
        NULL, NULL, "pack-quantized", "int-quantized", "float-quantized", "nvfp4-pack-quantized"};
    return names[form];
}

#define WEIGHT(kind, block) .weight = {AX_QUANT_##kind, block}
#define INPUT(kind, block)  .quantizes_input = true, .input = {AX_QUANT_##kind, block}
#define TOKEN_INT8          INPUT(INT8_ASYM, AX_BLOCK_ROW)
#define TRAINS              .trains = true
#define GROUPS              .groups = true
#define FORM(name)          .form = AX_FORM_##name
#define BOTH                "transformers, vLLM, axtrain"
#define MEMORY(near)        .readers = "axtrain, in memory (--base)", .nearest = near
#define TRAINED(near)       .readers = "nobody, of a file", .nearest = near
#define BLOCKS(types)       FORM(GGUF), .gguf = types, .readers = "llama.cpp, axtrain"

const struct ax_scheme ax_schemes[] = {
    {"int4", WEIGHT(INT4, 32), TRAINS, GROUPS, FORM(PACKED), .readers = BOTH,
     .what = "symmetric int4 in groups"},
    {"int4-int8", WEIGHT(INT4, 32), TOKEN_INT8, TRAINS, GROUPS, FORM(PACKED),
     .readers = "transformers, axtrain",
     .what = "int4, with int8 activations by token, asymmetric"},
    {"int4-fp8", WEIGHT(INT4_FP8, 128), INPUT(FP8, AX_BLOCK_ROW), TRAINS, GROUPS, FORM(PACKED),
     .readers = BOTH, .what = "int4 of fp8 by row, with fp8 activations by token"},
    {"int4-asym", WEIGHT(INT4_ASYM, 128), TRAINS, GROUPS, TRAINED("int4"),
     .what = "int4 in groups from their least to their largest number"},
    {"int8", WEIGHT(INT8, AX_BLOCK_ROW), TRAINS, FORM(PACKED), .readers = BOTH,
     .what = "symmetric int8 by row"},
    {"int8-int8", WEIGHT(INT8, AX_BLOCK_ROW), TOKEN_INT8, TRAINS, FORM(INT8), .readers = BOTH,
     .what = "int8, with int8 activations by token, asymmetric"},
    {"fp8", WEIGHT(FP8, AX_BLOCK_ROW), INPUT(FP8, AX_BLOCK_ROW), TRAINS, FORM(FLOAT),
     .readers = BOTH, .what = "e4m3 by row, with activations by token"},
    {"fp8-tensor", WEIGHT(FP8, AX_BLOCK_TENSOR), INPUT(FP8, AX_BLOCK_ROW), TRAINS, FORM(FLOAT),
     .readers = BOTH, .what = "e4m3 by tensor, with activations by token"},
    {"fp8-e5m2", WEIGHT(E5M2, AX_BLOCK_ROW), INPUT(E5M2, AX_BLOCK_ROW), TRAINS, TRAINED("fp8"),
     .what = "e5m2 by row, with activations by token"},
    {"nvfp4", WEIGHT(NVFP4, 16), TRAINS, FORM(NVFP4), .readers = BOTH,
     .what = "e2m1 in blocks of 16 with e4m3 scales, and a scale by tensor"},
    {"nvfp4-single", WEIGHT(NVFP4_ONE, 16), TRAINS, TRAINED("nvfp4"),
     .what = "nvfp4 without a scale by tensor"},
    {"mxfp4", WEIGHT(MXFP4_UP, 32), INPUT(MXFP4_UP, 32), TRAINS, TRAINED("nvfp4"),
     .what = "e2m1 in blocks of 32 with powers of two, rounded up; activations too"},
    {"mxfp4-floor", WEIGHT(MXFP4, 32), INPUT(MXFP4, 32), TRAINS, TRAINED("nvfp4"),
     .what = "mxfp4 with scales rounded down"},
    {"mxfp8", WEIGHT(MXFP8_UP, 32), INPUT(MXFP8_UP, 32), TRAINS, TRAINED("fp8"),
     .what = "e4m3 in blocks of 32 with powers of two, rounded up; activations too"},
    {"mxfp8-floor", WEIGHT(MXFP8, 32), INPUT(MXFP8, 32), TRAINS, TRAINED("fp8"),
     .what = "mxfp8 with scales rounded down"},
    {"nf4", WEIGHT(NF4, 64), MEMORY("int4"), .what = "QLoRA's 16 values, in blocks of 64"},
    {"nf4-double", WEIGHT(NF4, 64), MEMORY("int4"), .what = "nf4 with scales in 8 bits"},
    {"q4_0", BLOCKS("q4_0"), .what = "llama.cpp's: 4 bits in blocks of 32"},
    {"q8_0", BLOCKS("q8_0"), .what = "llama.cpp's: 8 bits in blocks of 32"},
    {"q4_k", BLOCKS("q4_k_m"), .what = "llama.cpp's: 4 bits with two levels of scales, some of 6"},
    {"q6_k", BLOCKS("q6_k"), .what = "llama.cpp's: 6 bits with two levels of scales"},
    {0},
};

static const struct ax_scheme recipes[] = {
    {"tensorwise", WEIGHT(FP8, AX_BLOCK_TENSOR), INPUT(FP8, AX_BLOCK_TENSOR),
     .quantizes_grad = true, .grad = {AX_QUANT_E5M2, AX_BLOCK_TENSOR}},
    {"rowwise", WEIGHT(FP8, AX_BLOCK_ROW), INPUT(FP8, AX_BLOCK_ROW), .quantizes_grad = true,
     .grad = {AX_QUANT_E5M2, AX_BLOCK_ROW}},
};

const char *ax_fp8_recipe_name(size_t i) {
    return i < sizeof recipes / sizeof *recipes ? recipes[i].name : NULL;
}

enum ax_status ax_fp8_recipe(const char *name, bool e4m3_grad, struct ax_scheme *out) {
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        if (strcmp(recipes[i].name, name) != 0)
            continue;
        *out = recipes[i];
        out->grad.kind = e4m3_grad ? AX_QUANT_FP8 : AX_QUANT_E5M2;
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG, "fp8: no recipe is called \"%.40s\". Nearest: %s.", name,
                    *name == 'r' ? "rowwise" : "tensorwise");
}

/* Names of llm-compressor and llama.cpp. */
static const struct {
    const char *name, *here;
} others[] = {{"w4a16", "int4"},     {"w4a8", "int4-int8"}, {"w4afp8", "int4-fp8"},
              {"w8a16", "int8"},     {"w8a8", "int8-int8"}, {"fp8_dynamic", "fp8"},
              {"nvfp4a16", "nvfp4"}, {"q4_k_m", "q4_k"}};

static const char *nearest_scheme(const char *name) {
    char small[41] = "";
    for (size_t i = 0; name[i] && i + 1 < sizeof small; i++)
        small[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + ('a' - 'A') : name[i]);
    struct ax_nearest nearest = {.given = small, .within = INT_MAX};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(small, others[i].name) == 0)
            return others[i].here;
    for (const struct ax_scheme *s = ax_schemes; s->name; s++)
        ax_nearest_try(&nearest, s->name);
    return nearest.name;
}

enum ax_status ax_scheme_find(const char *key, const char *name, struct ax_scheme *out) {
    for (const struct ax_scheme *s = ax_schemes; s->name; s++)
        if (strcmp(s->name, name) == 0) {
            *out = *s;
            return AX_OK;
        }
    return ax_error(AX_ERR_CONFIG, "%s: no scheme is called \"%.40s\". Nearest: %s.", key, name,
                    nearest_scheme(name));
}

enum ax_status ax_scheme_find_trained(const char *key, const char *name, struct ax_scheme *out) {
    AX_TRY(ax_scheme_find(key, name, out));
    return out->trains ? AX_OK
                       : ax_error(AX_ERR_CONFIG,
                                  "%s: %s cannot be trained for; train for int4 or int8, or write "
                                  "it by `axtrain quantize`",
                                  key, name);
}

enum ax_status ax_scheme_refuse_inputs(const struct ax_scheme *s, const char *who,
                                       const char *setting, int64_t block, int64_t inputs,
                                       const char *matrix) {
    int64_t near = 1;
    while (2 * near <= block && inputs % (2 * near) == 0)
        near *= 2;
    if (!s->groups)
        return ax_error(
            AX_ERR_CONFIG,
            "%s: the blocks of %lld numbers of scheme %s do not divide the %lld inputs of %s. Use "
            "a scheme by rows, such as int8 or fp8.",
            who, (long long)block, s->name, (long long)inputs, matrix);
    return ax_error(AX_ERR_CONFIG,
                    "%s: groups of %lld numbers do not divide the %lld inputs of %s. Nearest: "
                    "%s %lld; or use a scheme by rows, such as int8 or fp8.",
                    who, (long long)block, (long long)inputs, matrix, setting, (long long)near);
}

struct ax_scheme ax_scheme_of_model(const struct ax_scheme *s, bool tied) {
    struct ax_scheme own = *s;
    if (tied)
        own.embedding = own.head = s->embedding || s->head;
    return own;
}
