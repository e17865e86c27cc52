/* The registry of optimizers, their names, and valid combinations. */
#include "optim/optimizers/optimizer.h"

#include <stdio.h>
#include <string.h>

/* Our own names first. 4-bit and float8 AdamW use 8-bit state, the smallest implemented. */
static const struct {
    const char *name;
    const struct ax_optimizer *optimizer;
    enum ax_moments moments;
} names[] = {
    {"adamw", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"sgd", &ax_optimizer_sgd, AX_MOMENTS_FULL},
    {"lion", &ax_optimizer_lion, AX_MOMENTS_FULL},
    {"adafactor", &ax_optimizer_adafactor, AX_MOMENTS_FULL},
    {"muon", &ax_optimizer_muon, AX_MOMENTS_FULL},
    {"adamw_torch", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"adamw_torch_fused", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"adamw_apex_fused", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"adamw_torch_xla", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"adamw_torch_npu_fused", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"adamw_anyprecision", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"optimi_adamw", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"paged_adamw_32bit", &ax_optimizer_adamw, AX_MOMENTS_FULL},
    {"adamw_8bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"adamw_bnb_8bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"adamw_torch_8bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"adamw_torch_4bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"paged_adamw_8bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"ao_adamw_8bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"ao_adamw_4bit", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"ao_adamw_fp8", &ax_optimizer_adamw, AX_MOMENTS_8BIT},
    {"lion_32bit", &ax_optimizer_lion, AX_MOMENTS_FULL},
    {"paged_lion_32bit", &ax_optimizer_lion, AX_MOMENTS_FULL},
    {"lion_8bit", &ax_optimizer_lion, AX_MOMENTS_BF16},
    {"paged_lion_8bit", &ax_optimizer_lion, AX_MOMENTS_BF16},
};

const char *ax_optimizer_name(size_t i) {
    return i < sizeof names / sizeof *names ? names[i].name : NULL;
}

enum ax_status ax_optimizer_find(const char *name, const struct ax_optimizer **out,
                                 struct ax_optimizer_options *o) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) != 0)
            continue;
        *out = names[i].optimizer;
        *o = (struct ax_optimizer_options){0};
        (*out)->defaults(o);
        o->moments = names[i].moments;
        return AX_OK;
    }
    char all[1024];
    size_t at = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i > 0 ? ", " : "", names[i].name);
    return ax_error(AX_ERR_CONFIG, "optimizer: \"%.40s\" is not one of %s", name, all);
}

static const char *const moments_names[] = {[AX_MOMENTS_FULL] = "float32",
                                            [AX_MOMENTS_BF16] = "bfloat16",
                                            [AX_MOMENTS_BF16_NEAREST] = "bfloat16_nearest",
                                            [AX_MOMENTS_8BIT] = "int8"};

const char *ax_moments_name(size_t i) {
    return i < sizeof moments_names / sizeof *moments_names ? moments_names[i] : NULL;
}

enum ax_status ax_moments_parse(const char *name, enum ax_moments *out) {
    for (size_t i = 0; i < sizeof moments_names / sizeof *moments_names; i++) {
        if (strcmp(name, moments_names[i]) == 0) {
            *out = (enum ax_moments)i;
            return AX_OK;
        }
    }
    return ax_error(AX_ERR_CONFIG,
                    "moments: \"%.40s\" is not one of float32, bfloat16 (stochastic "
                    "rounding), bfloat16_nearest, int8",
                    name);
}

enum ax_status ax_optimizer_check(const struct ax_optimizer *optimizer,
                                  const struct ax_optimizer_options *o) {
    const bool adamw = optimizer == &ax_optimizer_adamw, lion = optimizer == &ax_optimizer_lion;
    if (o->moments == AX_MOMENTS_FULL || (lion && o->moments == AX_MOMENTS_BF16))
        return AX_OK;
    if (!adamw)
        return ax_error(AX_ERR_CONFIG,
                        "moment_dtype: %s does not support moments in %s. Use float32%s, or AdamW.",
                        optimizer->name, moments_names[o->moments], lion ? " or bfloat16" : "");
    if (o->moments == AX_MOMENTS_BF16_NEAREST && o->beta2 > 0.995)
        return ax_error(
            AX_ERR_CONFIG,
            "moment_dtype: second moments in bfloat16 rounded to nearest never decrease "
            "with adam_beta2 %g. Use bfloat16 (stochastic rounding), or adam_beta2 of at "
            "most 0.995.",
            o->beta2);
    return AX_OK;
}
