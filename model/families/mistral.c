/* Mistral: Llama with a sliding window in every layer if the config gives one; of Ministral (2024), in the layers that
 * layer_types says. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    /* absent means 4096, null means none: transformers reads it so, and 0.1 files rely on it */
    const int64_t absent = json_object_get(c.v, "sliding_window") ? 0 : 4096;
    int64_t window;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, absent, &window));
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].window = window;
    return AX_OK;
}

static enum ax_status parse_ministral(struct ax_arch *a, struct ax_json c) {
    AX_TRY(parse(a, c));
    for (int64_t i = 0; i < a->n_layers; i++) {
        bool slides;
        AX_TRY(ax_layer_slides(a, c, i, true, &slides));
        a->layers[i].window = slides ? a->layers[i].window : 0;
    }
    return AX_OK;
}

const struct ax_family ax_family_mistral = {.model_type = "mistral",
                                            .models = "Mistral 7B, Nemo, Small",
                                            .architecture = "MistralForCausalLM",
                                            .parse = parse};
const struct ax_family ax_family_ministral = {.model_type = "ministral",
                                              .models = "Ministral 8B of 2024",
                                              .lacks = "GGUF",
                                              .architecture = "MinistralForCausalLM",
                                              .parse = parse_ministral};
