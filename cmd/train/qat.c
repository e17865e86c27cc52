/* qat and quantization: the scheme that a run trains for, or writes; fp8: the one that it trains in.
 * axolotl's pairs of types are names of schemes. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
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
    struct ax_scheme_keys k = {0};
    char key[48];
    AX_FILL(cfg, map, struct ax_scheme_keys, &k);
    snprintf(key, sizeof key, "%s.scheme", map);
    AX_TRY(ax_scheme_find(key, k.scheme ? k.scheme : name_of(k.weight, k.input), out));
    AX_FILL(cfg, map, struct ax_scheme, out);
    if (out->groups && (!k.scheme || ax_config_is_set(cfg, "%s.group_size", map)))
        out->weight.block = k.group_size;
    return AX_OK;
}

static enum ax_status read_fp8(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    if (!ax_config_holds(cfg, "fp8"))
        return AX_OK;
    s->o.step.model.qat = &s->qat;
    return ax_fp8_recipe(ax_config_str(cfg, "fp8_recipe"),
                         ax_config_holds(cfg, "fp8_format == e4m3"), &s->qat);
}

/* Before training, as `axtrain quantize` would say it after. */
static void warn_without_file(const char *map, const struct ax_scheme *scheme) {
    if (scheme->form == AX_FORM_NONE)
        ax_log_warn("%s: no file holds scheme %s, so `axtrain quantize` cannot write the trained "
                    "model in it. Nearest that has one: %s.",
                    map, scheme->name, scheme->nearest);
}

enum ax_status ax_train_qat_read(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    struct ax_scheme after;
    if (ax_config_has(cfg, "quantization")) {
        AX_TRY(ax_train_scheme_read(cfg, "quantization", &after));
        warn_without_file("quantization", &after);
    }
    if (!ax_config_has(cfg, "qat"))
        return read_fp8(s);
    AX_TRY(ax_train_scheme_read(cfg, "qat", &s->qat));
    warn_without_file("qat", &s->qat);
    s->o.step.model.qat = &s->qat;
    return AX_OK;
}
