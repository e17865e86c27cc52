/* qat: the scheme that a run trains for. axolotl's pairs of types are names of schemes. */
#include <string.h>

#include "cmd/train/setup.h"

static bool is_fp8(const char *dtype) {
    return dtype && (strcmp(dtype, "fp8") == 0 || strncmp(dtype, "float8", 6) == 0);
}

/* The scheme of a pair that the rules between keys let through. */
static const char *name_of(const char *weight, const char *input) {
    if (is_fp8(weight))
        return "fp8";
    if (strcmp(weight, "int4") != 0)
        return weight; /* nvfp4, mxfp4: whatever the activations are */
    return !input ? "int4" : is_fp8(input) ? "int4-fp8" : "int4-int8";
}

enum ax_status ax_train_qat_read(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    if (!ax_config_has(cfg, "qat"))
        return AX_OK;
    const bool named = ax_config_has(cfg, "qat.scheme");
    const char *name = named ? ax_config_str(cfg, "qat.scheme")
                             : name_of(ax_config_str(cfg, "qat.weight_dtype"),
                                       ax_config_str(cfg, "qat.activation_dtype"));
    AX_TRY(ax_scheme_find("qat.scheme", name, &s->qat));
    if (s->qat.groups && (!named || ax_config_is_set(cfg, "qat.group_size")))
        s->qat.weight.block = ax_config_i64(cfg, "qat.group_size");
    s->o.step.qat = &s->qat;
    if (ax_config_has(cfg, "qat.fake_quant_after_n_steps"))
        s->o.step.qat_after = ax_config_i64(cfg, "qat.fake_quant_after_n_steps");
    return AX_OK;
}
