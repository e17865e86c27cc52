/* dots.llm1 (rednote 2025): Qwen3's attention, and DeepSeek-V3's mixture of experts. */
#include "model/arch/family.h"

/* Layers with a window: those of layer_types, else from max_window_layers on. */
static enum ax_status windows(struct ax_arch *a, struct ax_json c) {
    int64_t window, border;
    AX_TRY(ax_window_parse(c, 1, 4096, &window));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "max_window_layers"), 0, INT32_MAX, 62, &border));
    for (int64_t i = 0; i < a->n_layers; i++)
        AX_TRY(ax_layer_window(a, c, i, i >= border, window));
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_moe usual = {.n_experts = 128,
                                                 .n_active = 6,
                                                 .width = 1408,
                                                 .n_shared = 2,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 1,
                                                 .group_best = 2};
    AX_TRY(ax_attention_bias_parse(a, c));
    a->qk_norm = AX_QK_NORM_HEAD;
    AX_TRY(windows(a, c));
    return ax_deepseek_moe_parse(a, c, &usual);
}

const struct ax_family ax_family_dots1 = {.model_type = "dots1",
                                          .models = "dots.llm1",
                                          .architecture = "Dots1ForCausalLM",
                                          .parse = parse};
