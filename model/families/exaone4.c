/* EXAONE 4 (LG AI Research 2025): norms on the outputs of a layer's parts as OLMo 2's, but of each head's q and k. With
 * sliding_window, every fourth layer has neither a window nor rope. K-EXAONE (2025): the same attention behind norms as
 * Llama's, and DeepSeek-V3's mixture of experts. */
#include <string.h>

#include "model/arch/family.h"

/* A number, or a word such as LLLG, whose length it is. transformers writes 0 where there is no window. */
static enum ax_status period_of(struct ax_json c, int64_t *period) {
    const struct ax_json v = ax_json_get(c, "sliding_window_pattern");
    const char *word;
    *period = 1;
    if (json_is_integer(v.v) && json_integer_value(v.v) == 0 &&
        json_is_null(json_object_get(c.v, "sliding_window")))
        return AX_OK;
    if (!json_is_string(v.v))
        return ax_json_i64_or(v, 1, INT32_MAX, 4, period);
    AX_TRY(ax_json_str(v, &word));
    const size_t n = strlen(word);
    if (n == 0 || strspn(word, "L") != n - 1 || word[n - 1] != 'G')
        return ax_json_error(v,
                             "expected L for layers with a window and one G at the end, got "
                             "\"%.40s\"",
                             word);
    *period = (int64_t)n;
    return AX_OK;
}

static enum ax_status attention(struct ax_arch *a, struct ax_json c) {
    int64_t period = 0;
    a->qk_norm = AX_QK_NORM_HEAD;
    AX_TRY(period_of(c, &period));
    AX_TRY(ax_layer_windows(a, c, period));
    const bool windows = !json_is_null(json_object_get(c.v, "sliding_window")); /* or absent */
    for (int64_t i = 0; i < a->n_layers; i++)
        if (windows && a->layers[i].window == 0)
            a->layers[i].rope = AX_ROPE_NONE;
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_family_olmo2.parse(a, c));
    a->qkv_bias = a->o_bias = false;
    return attention(a, c);
}

static const struct ax_deepseek_keys keys = {.experts = "num_experts",
                                             .active = "num_experts_per_tok",
                                             .shared = "num_shared_experts",
                                             .renormalize = "norm_topk_prob",
                                             .groups = "n_group"};
#define MLP "model.layers.%d.mlp."
static const struct ax_moe_names names = {
    .router = MLP "gate.weight",
    .experts = MLP "experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .bias = MLP "e_score_correction_bias",
    .shared = MLP "shared_experts",
};

static enum ax_status parse_moe(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_moe usual = {.n_experts = 64,
                                                 .n_active = 8,
                                                 .width = 1024,
                                                 .n_shared = 1,
                                                 .first_dense = 1,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 2.5,
                                                 .renormalize = true,
                                                 .group_best = 2,
                                                 .keys = &keys,
                                                 .names = &names};
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(attention(a, c));
    AX_TRY(ax_deepseek_moe_parse(a, c, &usual));
    a->unused_prefix = "mtp.";
    return AX_OK;
}

const struct ax_family ax_family_exaone4 = {.model_type = "exaone4",
                                            .models = "EXAONE 4.0",
                                            .architecture = "Exaone4ForCausalLM",
                                            .parse = parse};
const struct ax_family ax_family_exaone_moe = {
    .model_type = "exaone_moe",
    .models = "K-EXAONE",
    .lacks = "GGUF, training of the layers for multi-token prediction",
    .architecture = "ExaoneMoeForCausalLM",
    .parse = parse_moe};
