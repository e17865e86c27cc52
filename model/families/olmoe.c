/* OLMoE (Muennighoff et al. 2024): Llama with norms on all of q and of k, and experts in every layer. FlexOlmo (Ai2 2025):
 * OLMo 2 with these experts. */
#include "model/arch/family.h"
#include "model/arch/part.h"

static enum ax_status experts(struct ax_arch *a, struct ax_json c, int64_t usual, int64_t active) {
    AX_TRY(ax_moe_parse(a, c, usual, active));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "norm_topk_prob"), false, &a->moe.routing.renormalize));
    a->moe.width = a->intermediate_size;
    a->moe.names = &ax_qwen_moe_names;
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].ffn = &ax_ffn_moe;
    return AX_OK;
}

static enum ax_status parse_olmoe(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_refuse_clip(c));
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_attention_bias_parse(a, c));
    a->qk_norm = AX_QK_NORM_FULL;
    return experts(a, c, 64, 8);
}

static enum ax_status parse_flex(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_family_olmo2.parse(a, c));
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-6));
    return experts(a, c, 7, 5);
}

const struct ax_family ax_family_olmoe = {.model_type = "olmoe",
                                          .models = "OLMoE",
                                          .architecture = "OlmoeForCausalLM",
                                          .balance = 0.01,
                                          .parse = parse_olmoe};
const struct ax_family ax_family_flex_olmo = {.model_type = "flex_olmo",
                                              .models = "FlexOlmo",
                                              .lacks = "GGUF",
                                              .architecture = "FlexOlmoForCausalLM",
                                              .rope.theta = 5e5,
                                              .balance = 0.01,
                                              .parse = parse_flex};
