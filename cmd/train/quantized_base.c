/* Keys that say how the base is quantized: config.json decides, and they have to agree with it. */
#include <string.h>

#include "cmd/train/setup.h"

static const struct {
    const char *key, *value, *method; /* value: NULL = true */
} claims[] = {
    {"gptq", NULL, "gptq"},
    {"model_quantization_config", "Mxfp4Config", "mxfp4"},
    {"model_quantization_config", "FineGrainedFP8Config", "fp8"},
};

static enum ax_status check_options(const struct ax_config *cfg) {
    static const char key[] = "model_quantization_config_kwargs";
    const struct ax_yaml_node *map = ax_config_node(cfg, "%s", key);
    for (size_t i = 0; map && i < map->n; i++)
        if (strcmp(map->entries[i].key, "dequantize") != 0)
            return ax_config_error(cfg, key,
                                   "%s is not supported; config.json of the base says how its "
                                   "weights are stored. Supported: dequantize",
                                   map->entries[i].key);
    return AX_OK;
}

enum ax_status ax_train_quantized_base(const struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        const char *key = claims[i].key, *want = claims[i].value;
        const char *value = want ? ax_config_str(cfg, "%s", key) : NULL;
        const bool claimed =
            want ? value && strcmp(value, want) == 0 : ax_config_bool(cfg, "%s", key);
        if (claimed && strcmp(s->arch.quant_method, claims[i].method) != 0)
            return ax_config_error(cfg, key,
                                   "%s%sneeds a base whose config.json says quant_method: %s; "
                                   "remove the key",
                                   want ? want : "", want ? " " : "", claims[i].method);
    }
    return check_options(cfg);
}
