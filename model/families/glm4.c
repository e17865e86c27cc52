/* GLM-4-0414 (Zhipu AI 2025): Llama with norms before and after both parts, gate and up in one matrix,
 * and rope on neighboring pairs of half of each head. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &a->qkv_bias));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1.5625e-7, &a->norm_eps));
    a->fused_gate_up = true;
    a->rope.interleaved = true;
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].mixer_norms.out = "model.layers.%d.post_self_attn_layernorm.weight";
        a->layers[i].ffn_norms.out = "model.layers.%d.post_mlp_layernorm.weight";
    }
    return AX_OK;
}

const struct ax_family ax_family_glm4 = {.model_type = "glm4",
                                         .models = "GLM-4 9B and 32B of 2025",
                                         .architecture = "Glm4ForCausalLM",
                                         .head_dim = 128,
                                         .rope.part = 0.5,
                                         .parse = parse};
