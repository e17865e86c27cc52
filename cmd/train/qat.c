/* qat and quantization: the scheme that a run trains for, or writes; fp8: the one that it trains in.
 * axolotl's pairs of types are names of schemes. */
#include <stdio.h>
#include <string.h>

#include "cmd/train/setup.h"

static bool is_fp8(const char *dtype) {
    return dtype && (strcmp(dtype, "fp8") == 0 || strncmp(dtype, "float8", 6) == 0);
}

/* The scheme of a pair that the rules between keys let through. */
static const char *name_of(const char *weight, const char *input) {
    if (is_fp8(weight))
        return "fp8";
    if (strcmp(weight, "int8") == 0)
        return input ? "int8-int8" : "int8";
    if (strcmp(weight, "int4") != 0)
        return weight; /* nvfp4, mxfp4: whatever the activations are */
    return !input ? "int4" : is_fp8(input) ? "int4-fp8" : "int4-int8";
}

enum ax_status ax_train_scheme_read(const struct ax_config *cfg, const char *map,
                                    struct ax_scheme *out) {
    char scheme[48], weight[48], input[48], group[48], embedding[48], head[48];
    snprintf(scheme, sizeof scheme, "%s.scheme", map);
    snprintf(weight, sizeof weight, "%s.weight_dtype", map);
    snprintf(input, sizeof input, "%s.activation_dtype", map);
    snprintf(group, sizeof group, "%s.group_size", map);
    const bool named = ax_config_has(cfg, "%s", scheme);
    const char *name =
        named ? ax_config_str(cfg, "%s", scheme)
              : name_of(ax_config_str(cfg, "%s", weight), ax_config_str(cfg, "%s", input));
    AX_TRY(ax_scheme_find(scheme, name, out));
    snprintf(embedding, sizeof embedding, "%s.quantize_embedding", map);
    snprintf(head, sizeof head, "%s.quantize_head", map);
    out->embedding = ax_config_bool(cfg, "%s", embedding);
    out->head = ax_config_bool(cfg, "%s", head);
    if (out->groups && (!named || ax_config_is_set(cfg, "%s", group)))
        out->weight.block = ax_config_i64(cfg, "%s", group);
    return AX_OK;
}

static enum ax_status read_fp8(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    if (!ax_config_bool(cfg, "fp8"))
        return AX_OK;
    s->o.step.model.qat = &s->qat;
    return ax_fp8_recipe(ax_config_str(cfg, "fp8_recipe"),
                         strcmp(ax_config_str(cfg, "fp8_format"), "e4m3") == 0, &s->qat);
}

enum ax_status ax_train_qat_read(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    if (!ax_config_has(cfg, "qat"))
        return read_fp8(s);
    AX_TRY(ax_train_scheme_read(cfg, "qat", &s->qat));
    s->o.step.model.qat = &s->qat;
    return AX_OK;
}
