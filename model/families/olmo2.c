/* OLMo 2 (Walsh et al. 2024): Llama with norms on the outputs of a layer's parts instead of their
 * inputs, and on all of q and of k. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_attention_bias_parse(a, c));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    a->qk_norm = AX_QK_NORM_FULL;
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].mixer_norms =
            (struct ax_norm_names){.out = "model.layers.%d.post_attention_layernorm.weight"};
        a->layers[i].ffn_norms =
            (struct ax_norm_names){.out = "model.layers.%d.post_feedforward_layernorm.weight"};
    }
    return AX_OK;
}

const struct ax_family ax_family_olmo2 = {
    .model_type = "olmo2", .models = "OLMo 2", .architecture = "Olmo2ForCausalLM", .parse = parse};
