/* GLM-4.5 (Zhipu AI 2025): Llama's attention with rope on a part of each head, and DeepSeek-V3's
 * mixture of experts. Solar Open (Upstage 2025): the same with rope on all of a head, experts in every layer and no
 * norms of q and k. */
#include "model/arch/family.h"
#include "model/arch/part.h"

static enum ax_status parse_glm(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_moe usual = {.n_experts = 128,
                                                 .n_active = 8,
                                                 .width = 1408,
                                                 .n_shared = 1,
                                                 .first_dense = 1,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 1,
                                                 .renormalize = true,
                                                 .group_best = 2};
    bool normed;
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &a->qkv_bias));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_qk_norm"), false, &normed));
    a->qk_norm = normed ? AX_QK_NORM_HEAD : AX_QK_NORM_NONE;
    return ax_deepseek_moe_parse(a, c, &usual);
}

static enum ax_status parse_solar(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_moe usual = {.n_experts = 128,
                                                 .n_active = 8,
                                                 .width = 1280,
                                                 .n_shared = 1,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 1,
                                                 .renormalize = true,
                                                 .group_best = 2};
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &a->qkv_bias));
    AX_TRY(ax_deepseek_moe_parse(a, c, &usual));
    a->intermediate_size = a->moe.width;
    return AX_OK;
}

const struct ax_family ax_family_glm4_moe = {.model_type = "glm4_moe",
                                             .models = "GLM-4.5, GLM-4.6",
                                             .architecture = "Glm4MoeForCausalLM",
                                             .rope.part = 0.5,
                                             .predicts = true,
                                             .parse = parse_glm};
const struct ax_family ax_family_solar_open = {.model_type = "solar_open",
                                               .models = "Solar Open 100B",
                                               .lacks = "GGUF",
                                               .architecture = "SolarOpenForCausalLM",
                                               .head_dim = 128,
                                               .rope.theta = 1e6,
                                               .own_width = true,
                                               .parse = parse_solar};
