/* gpt-oss (OpenAI 2025): a mixture of experts with biases everywhere, attention sinks, windows in
 * every other layer, a clamped gate, and experts stacked in one tensor, published in MXFP4
 * (ckpt/hf/hf.h). */
#include "model/arch/family.h"
#include "model/arch/part.h"

static const struct ax_moe_names names = {
    .router = "model.layers.%d.mlp.router.weight",
    .router_bias = "model.layers.%d.mlp.router.bias",
};
static const struct ax_moe_stacked stacked = {
    .gate_up = "model.layers.%d.mlp.experts.gate_up_proj",
    .gate_up_bias = "model.layers.%d.mlp.experts.gate_up_proj_bias",
    .down = "model.layers.%d.mlp.experts.down_proj",
    .down_bias = "model.layers.%d.mlp.experts.down_proj_bias",
};

static enum ax_status gate(struct ax_arch *a, struct ax_json c) {
    const struct ax_json alpha = ax_json_get(c, "swiglu_alpha"),
                         limit = ax_json_get(c, "swiglu_limit");
    a->gating = (struct ax_gating){.gate = AX_GATE_CLAMPED, .interleaved = true};
    AX_TRY(ax_json_f64_or(alpha, 1.702, &a->gating.alpha));
    AX_TRY(ax_json_f64_or(limit, 7, &a->gating.limit));
    if (!(a->gating.limit > 0 && a->gating.limit < 1e30))
        return ax_json_error(limit, "expected a positive number, got %g", a->gating.limit);
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool attention_bias;
    int64_t window;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), true, &attention_bias));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 128, &window));
    AX_TRY(ax_moe_parse(a, c, 128, 4));
    AX_TRY(gate(a, c));
    a->qkv_bias = a->o_bias = attention_bias;
    a->norm.once = true;
    a->moe.width = a->intermediate_size;
    a->moe.routing.renormalize = true; /* the softmax is over the chosen ones alone */
    a->moe.names = &names;
    a->moe.stacked = &stacked;
    for (int64_t i = 0; i < a->n_layers; i++) {
        bool slides;
        AX_TRY(ax_layer_slides(a, c, i, i % 2 == 0, &slides));
        a->layers[i].window = slides ? window : 0;
        a->layers[i].sinks = true;
        a->layers[i].ffn = &ax_ffn_moe;
    }
    return AX_OK;
}

const struct ax_family ax_family_gpt_oss = {
    .model_type = "gpt_oss",
    .models = "gpt-oss",
    .lacks = "`quantize`; saving as MXFP4",
    .architecture = "GptOssForCausalLM",
    .head_dim = 64,
    .rope = {.theta = 150000,
             .parameters = "{\"rope_type\": \"yarn\", \"factor\": 32.0, "
                           "\"beta_fast\": 32.0, \"beta_slow\": 1.0, "
                           "\"truncate\": false, "
                           "\"original_max_position_embeddings\": 4096}"},
    .parse = parse};
