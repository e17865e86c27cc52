/* GLM-4 (Zhipu AI 2024): Llama with gate and up in one matrix, and rope on neighboring pairs of half of each head.
 * GLM-4-0414 (2025): the same with norms behind both parts, too; and in GLM-4.1V. */
#include "model/arch/family.h"

static enum ax_status common(struct ax_arch *a, struct ax_json c, bool usual_bias) {
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), usual_bias, &a->qkv_bias));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1.5625e-7, &a->norm_eps));
    a->fused_gate_up = true;
    a->rope.interleaved = true;
    return AX_OK;
}

static enum ax_status parse_glm(struct ax_arch *a, struct ax_json c) {
    return common(a, c, true);
}

static enum ax_status parse_glm4(struct ax_arch *a, struct ax_json c) {
    AX_TRY(common(a, c, false));
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].mixer_norms.out = "model.layers.%d.post_self_attn_layernorm.weight";
        a->layers[i].ffn_norms.out = "model.layers.%d.post_mlp_layernorm.weight";
    }
    return AX_OK;
}

static enum ax_status parse_glm4v(struct ax_arch *a, struct ax_json c) {
    AX_TRY(parse_glm4(a, c));
    a->qkv_bias = true;
    return ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5);
}

const struct ax_family ax_family_glm = {.model_type = "glm",
                                        .models = "GLM-4 9B of 2024, GLM-Edge",
                                        .lacks = "GGUF",
                                        .architecture = "GlmForCausalLM",
                                        .head_dim = 128,
                                        .rope.part = 0.5,
                                        .parse = parse_glm};
const struct ax_family ax_family_glm4 = {.model_type = "glm4",
                                         .models = "GLM-4 9B and 32B of 2025",
                                         .architecture = "Glm4ForCausalLM",
                                         .head_dim = 128,
                                         .rope.part = 0.5,
                                         .parse = parse_glm4};
const struct ax_family ax_family_glm4v = {.model_type = "glm4v_text",
                                          .models = "GLM-4.1V, GLM-4.6V-Flash",
                                          .lacks = "GGUF",
                                          .architecture = "Glm4vForCausalLM",
                                          .rope.part = 1,
                                          .parse = parse_glm4v};
