/* Mistral: Llama with a sliding window in every layer if the config gives one; of Ministral (2024), in the layers that
 * layer_types says. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    int64_t window;
    AX_TRY(ax_window_parse(c, 1, 4096, &window)); /* null: none, on which files of 0.1 rely */
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].window = window;
    return AX_OK;
}

static enum ax_status parse_ministral(struct ax_arch *a, struct ax_json c) {
    AX_TRY(parse(a, c));
    for (int64_t i = 0; i < a->n_layers; i++)
        AX_TRY(ax_layer_window(a, c, i, true, a->layers[i].window));
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
