/* Qwen2 (biases on q, k, v), Qwen3 (per-head norm on q and k) and their mixtures of experts in most
 * layers; that of Qwen2 has a shared expert with a gate. With use_sliding_window some layers have a window:
 * those in layer_types, else the family's. Qwen3-Next and Qwen3.5, whose layers are of two kinds. Mellum 2 (JetBrains
 * 2026): Qwen3's mixture, with a rope of its own in layers with a window. */
#include "model/arch/family.h"
#include "model/arch/part.h"

/* Whether layer i slides if layer_types does not say; `border` is max_window_layers. */
static bool from_border(int64_t i, int64_t border) {
    return i >= border;
}

static bool even_before_border(int64_t i, int64_t border) {
    return i % 2 == 0 && i < border;
}

/* Without `usual`, all do, whatever layer_types says. */
static enum ax_status windows(struct ax_arch *a, struct ax_json c,
                              bool (*usual)(int64_t i, int64_t border)) {
    bool use;
    int64_t window, border;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_sliding_window"), false, &use));
    AX_TRY(ax_window_parse(c, 0, 4096, &window)); /* 0: none */
    AX_TRY(ax_json_i64_or(ax_json_get(c, "max_window_layers"), 0, INT32_MAX, 28, &border));
    for (int64_t i = 0; i < a->n_layers; i++) {
        bool slides = true;
        if (usual)
            AX_TRY(ax_layer_slides(a, c, i, usual(i, border), &slides));
        a->layers[i].window = use && slides ? window : 0;
    }
    return AX_OK;
}

static enum ax_status parse_qwen2(struct ax_arch *a, struct ax_json c) {
    a->qkv_bias = true;
    return windows(a, c, from_border);
}

static enum ax_status qwen3_attention(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_attention_bias_parse(a, c));
    a->qk_norm = AX_QK_NORM_HEAD;
    return AX_OK;
}

static enum ax_status parse_qwen3(struct ax_arch *a, struct ax_json c) {
    AX_TRY(qwen3_attention(a, c));
    return windows(a, c, from_border);
}

const struct ax_moe_names ax_qwen_moe_names = {
    .router = "model.layers.%d.mlp.gate.weight",
    .experts = "model.layers.%d.mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
};

/* Experts in every decoder_sparse_step-th layer except mlp_only_layers. */
static enum ax_status sparse_layers(struct ax_arch *a, struct ax_json c,
                                    const struct ax_part_type *moe) {
    int64_t step, layer;
    const struct ax_json dense = ax_json_get(c, "mlp_only_layers");
    AX_TRY(ax_json_i64_or(ax_json_get(c, "decoder_sparse_step"), 1, INT32_MAX, 1, &step));
    for (int64_t i = step - 1; i < a->n_layers; i += step)
        a->layers[i].ffn = moe;
    for (size_t i = 0; i < ax_json_size(dense); i++) {
        AX_TRY(ax_json_i64(ax_json_at(dense, i), 0, a->n_layers - 1, &layer));
        a->layers[layer].ffn = &ax_ffn_swiglu;
    }
    return AX_OK;
}

static const struct ax_moe_names shared_names = {
    .router = "model.layers.%d.mlp.gate.weight",
    .experts = "model.layers.%d.mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .shared = "model.layers.%d.mlp.shared_expert",
    .shared_gate = "model.layers.%d.mlp.shared_expert_gate.weight",
};

/* Of configs that leave them out. */
struct usual {
    int experts, active;
    int64_t width, shared_width;
    bool renormalize;
};

static enum ax_status shared_experts(struct ax_arch *a, struct ax_json c, struct usual u) {
    const struct ax_json width = ax_json_get(c, "moe_intermediate_size");
    const struct ax_json shared = ax_json_get(c, "shared_expert_intermediate_size");
    const struct ax_json renormalize = ax_json_get(c, "norm_topk_prob");
    AX_TRY(ax_moe_parse(a, c, u.experts, u.active));
    AX_TRY(ax_json_i64_or(width, 1, 1LL << 24, u.width, &a->moe.width));
    AX_TRY(ax_json_i64_or(shared, 1, 1LL << 24, u.shared_width, &a->moe.shared_width));
    AX_TRY(ax_json_bool_or(renormalize, u.renormalize, &a->moe.routing.renormalize));
    a->moe.names = &shared_names;
    return AX_OK;
}

static enum ax_status parse_qwen2_moe(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_json_bool_or(ax_json_get(c, "qkv_bias"), true, &a->qkv_bias));
    AX_TRY(windows(a, c, even_before_border));
    AX_TRY(shared_experts(a, c, (struct usual){60, 4, 1408, 5632, false}));
    return sparse_layers(a, c, &ax_ffn_moe_shared);
}

static enum ax_status parse_qwen3_moe(struct ax_arch *a, struct ax_json c) {
    const struct ax_json width = ax_json_get(c, "moe_intermediate_size");
    AX_TRY(qwen3_attention(a, c));
    AX_TRY(windows(a, c, NULL));
    AX_TRY(ax_moe_parse(a, c, 128, 8));
    AX_TRY(ax_json_i64_or(width, 1, 1LL << 24, 768, &a->moe.width));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "norm_topk_prob"), false, &a->moe.routing.renormalize));
    a->moe.names = &ax_qwen_moe_names;
    return sparse_layers(a, c, &ax_ffn_moe);
}

/* Which layers have experts: by mlp_layer_types, else all. */
static enum ax_status parse_mellum(struct ax_arch *a, struct ax_json c) {
    static const char *const known[] = {"dense", "sparse", NULL};
    const struct ax_json ropes = ax_json_get(c, "rope_parameters"),
                         full = ax_json_get(ropes, "full_attention"),
                         sliding = ax_json_get(ropes, "sliding_attention");
    int64_t window;
    AX_TRY(qwen3_attention(a, c));
    AX_TRY(ax_rope_parse_object(&a->rope, c, full, (struct ax_rope_usual){.theta = 5e5},
                                a->head_dim, a->max_positions));
    AX_TRY(ax_rope_parse_object(&a->rope_local, c, sliding, (struct ax_rope_usual){0}, a->head_dim,
                                a->max_positions));
    AX_TRY(ax_window_parse(c, 1, 1024, &window));
    AX_TRY(ax_moe_parse(a, c, 64, 8));
    AX_TRY(
        ax_json_i64_or(ax_json_get(c, "moe_intermediate_size"), 1, 1LL << 24, 896, &a->moe.width));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "norm_topk_prob"), true, &a->moe.routing.renormalize));
    a->moe.names = &ax_qwen_moe_names;
    a->unused_prefix = "mtp.";
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        bool slides;
        int sparse = 1;
        AX_TRY(ax_layer_slides(a, c, i, false, &slides));
        AX_TRY(ax_listed_kind(a, c, "mlp_layer_types", i, known, &sparse));
        l->window = slides ? window : 0;
        l->rope = slides ? AX_ROPE_LOCAL : AX_ROPE_MAIN;
        l->ffn = sparse ? &ax_ffn_moe : &ax_ffn_swiglu;
    }
    return AX_OK;
}

/* ---- Qwen3-Next (2025) and Qwen3.5 (2026): gated attention in every fourth layer, else the gated delta rule ---- */

static enum ax_status hybrid_layers(struct ax_arch *a, struct ax_json c) {
    static const char *const kinds[] = {"full_attention", "linear_attention", NULL};
    int64_t period;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "full_attention_interval"), 1, INT32_MAX, 4, &period));
    for (int64_t i = 0; i < a->n_layers; i++) {
        int kind = (i + 1) % period != 0;
        AX_TRY(ax_layer_kind(a, c, i, kinds, &kind));
        a->layers[i].mixer = kind ? &ax_mixer_delta : &ax_mixer_gated;
    }
    return AX_OK;
}

static enum ax_status hybrid(struct ax_arch *a, struct ax_json c, enum ax_delta_layout layout) {
    AX_TRY(ax_field_only_bool(c, "attention_bias", false));
    AX_TRY(
        ax_delta_parse(a, c,
                       (struct ax_delta_config){
                           .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128}));
    AX_TRY(hybrid_layers(a, c));
    a->delta.layout = layout;
    a->delta.norm_eps = a->norm_eps;
    a->norm = (struct ax_norm_style){.offset = 1, .once = true};
    a->qk_norm = AX_QK_NORM_HEAD;
    a->unused_prefix = "mtp.";
    return AX_OK;
}

static enum ax_status parse_qwen3_next(struct ax_arch *a, struct ax_json c) {
    AX_TRY(hybrid(a, c, AX_DELTA_GROUPED));
    AX_TRY(shared_experts(a, c, (struct usual){512, 10, 512, 512, true}));
    return sparse_layers(a, c, &ax_ffn_moe_shared);
}

static enum ax_status parse_qwen3_5(struct ax_arch *a, struct ax_json c) {
    return hybrid(a, c, AX_DELTA_JOINED);
}

/* Experts in all layers, whose weights always add up to 1. */
static enum ax_status parse_qwen3_5_moe(struct ax_arch *a, struct ax_json c) {
    AX_TRY(hybrid(a, c, AX_DELTA_JOINED));
    AX_TRY(ax_field_only_bool(c, "norm_topk_prob", true));
    AX_TRY(shared_experts(a, c, (struct usual){256, 8, 512, 512, true}));
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].ffn = &ax_ffn_moe_shared;
    a->intermediate_size = a->moe.width;
    return AX_OK;
}

const struct ax_family ax_family_qwen2 = {.model_type = "qwen2",
                                          .models = "Qwen2, Qwen2.5",
                                          .architecture = "Qwen2ForCausalLM",
                                          .parse = parse_qwen2};
const struct ax_family ax_family_qwen2_moe = {.model_type = "qwen2_moe",
                                              .models = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B",
                                              .architecture = "Qwen2MoeForCausalLM",
                                              .parse = parse_qwen2_moe};
const struct ax_family ax_family_qwen3 = {.model_type = "qwen3",
                                          .models = "Qwen3",
                                          .architecture = "Qwen3ForCausalLM",
                                          .head_dim = 128,
                                          .parse = parse_qwen3};
const struct ax_family ax_family_qwen3_moe = {.model_type = "qwen3_moe",
                                              .models = "Qwen3 mixtures (30B-A3B, 235B-A22B)",
                                              .architecture = "Qwen3MoeForCausalLM",
                                              .parse = parse_qwen3_moe};
const struct ax_family ax_family_qwen3_next = {
    .model_type = "qwen3_next",
    .models = "Qwen3-Next",
    .lacks = "training of the layers for multi-token prediction",
    .architecture = "Qwen3NextForCausalLM",
    .head_dim = 256,
    .rope.part = 0.25,
    .parse = parse_qwen3_next};
const struct ax_family ax_family_qwen3_5 = {.model_type = "qwen3_5_text",
                                            .models = "Qwen3.5",
                                            .lacks =
                                                "training of the layers for multi-token prediction",
                                            .architecture = "Qwen3_5ForCausalLM",
                                            .head_dim = 256,
                                            .rope.part = 0.25,
                                            .parse = parse_qwen3_5};
const struct ax_family ax_family_qwen3_5_moe = {
    .model_type = "qwen3_5_moe_text",
    .models = "Qwen3.5 mixtures",
    .lacks = "training of the layers for multi-token prediction",
    .architecture = "Qwen3_5MoeForCausalLM",
    .head_dim = 256,
    .rope.part = 0.25,
    .own_width = true,
    .parse = parse_qwen3_5_moe};
const struct ax_family ax_family_mellum = {
    .model_type = "mellum",
    .models = "Mellum 2",
    .lacks = "GGUF, training of the layers for multi-token prediction",
    .architecture = "MellumForCausalLM",
    .head_dim = 128,
    .parse = parse_mellum};
