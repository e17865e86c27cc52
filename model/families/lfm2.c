/* LFM2 (Liquid AI 2025): gated short convolutions, and attention with normed heads of q and k in some layers. In
 * lfm2_moe, layers after the first have experts that are chosen by sigmoids and a bias. */
#include "model/arch/family.h"
#include "model/arch/part.h"

#define LAYER "model.layers.%d."

static const struct ax_rename renames[] = {
    {"self_attn.o_proj", "self_attn.out_proj"}, {"mlp.gate_proj", "feed_forward.w1"},
    {"mlp.up_proj", "feed_forward.w3"},         {"mlp.down_proj", "feed_forward.w2"},
    {"model.norm.", "model.embedding_norm."},   {0}};

/* Which layers attend: by layer_types, by full_attn_idxs, or all. */
static enum ax_status mixers(struct ax_arch *a, struct ax_json c) {
    static const char *const kinds[] = {"full_attention", "conv", NULL};
    const struct ax_json list = ax_json_get(c, "full_attn_idxs");
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].mixer = list.v ? &ax_mixer_shortconv : &ax_mixer_attention;
    for (size_t i = 0; i < ax_json_size(list); i++) {
        int64_t layer;
        AX_TRY(ax_json_i64(ax_json_at(list, i), 0, a->n_layers - 1, &layer));
        a->layers[layer].mixer = &ax_mixer_attention;
    }
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *spec = &a->layers[i];
        int kind = spec->mixer == &ax_mixer_shortconv;
        AX_TRY(ax_layer_kind(a, c, i, kinds, &kind));
        spec->mixer = kind ? &ax_mixer_shortconv : &ax_mixer_attention;
        spec->mixer_norms.in = LAYER "operator_norm.weight";
        spec->ffn_norms.in = LAYER "ffn_norm.weight";
    }
    return AX_OK;
}

static enum ax_status parse_common(struct ax_arch *a, struct ax_json c) {
    const struct ax_json tied = ax_json_get(c, "tie_embedding");
    AX_TRY(ax_norm_eps_parse(a, c, "norm_eps", 1e-5));
    AX_TRY(ax_json_bool_or(tied.v ? tied : ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "conv_L_cache"), 2, AX_CONV_TAPS, 3, &a->conv.taps));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "conv_bias"), false, &a->conv.bias));
    a->qk_norm = AX_QK_NORM_HEAD;
    a->q_norm = LAYER "self_attn.q_layernorm.weight";
    a->k_norm = LAYER "self_attn.k_layernorm.weight";
    a->renames = renames;
    return mixers(a, c);
}

/* Two thirds of the width, times a factor, up to a multiple. */
static enum ax_status width(struct ax_arch *a, struct ax_json c) {
    const struct ax_json own = ax_json_get(c, "block_ff_dim");
    bool adjusts;
    int64_t multiple;
    double factor;
    AX_TRY(ax_json_i64(own.v ? own : ax_json_get(c, "intermediate_size"), 1, 1LL << 24,
                       &a->intermediate_size));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "block_auto_adjust_ff_dim"), true, &adjusts));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "block_multiple_of"), 1, 1 << 20, 256, &multiple));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "block_ffn_dim_multiplier"), 1, &factor));
    if (!adjusts)
        return AX_OK;
    const int64_t two_thirds = 2 * a->intermediate_size / 3;
    const double wanted = factor * (double)two_thirds;
    if (!(wanted >= 1 && wanted <= 1 << 24))
        return ax_json_error(ax_json_get(c, "block_ffn_dim_multiplier"),
                             "%g makes the feed-forward layers %g wide", factor, wanted);
    a->intermediate_size = ((int64_t)wanted + multiple - 1) / multiple * multiple;
    return AX_OK;
}

static enum ax_status parse_lfm2(struct ax_arch *a, struct ax_json c) {
    AX_TRY(width(a, c));
    return parse_common(a, c);
}

static const struct ax_moe_names names = {
    .router = LAYER "feed_forward.gate.weight",
    .bias = LAYER "feed_forward.expert_bias",
    .experts = LAYER "feed_forward.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .module = "feed_forward.experts",
};
static const struct ax_moe_names unbiased = {
    .router = LAYER "feed_forward.gate.weight",
    .experts = LAYER "feed_forward.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .module = "feed_forward.experts",
};

static enum ax_status parse_moe(struct ax_arch *a, struct ax_json c) {
    const struct ax_json scale = ax_json_get(c, "routed_scaling_factor");
    const struct ax_json experts = ax_json_get(c, "moe_intermediate_size");
    int64_t dense;
    bool biased;
    AX_TRY(ax_json_i64(ax_json_get(c, "intermediate_size"), 1, 1LL << 24, &a->intermediate_size));
    AX_TRY(parse_common(a, c));
    AX_TRY(ax_moe_parse(a, c, 32, 4));
    AX_TRY(ax_json_i64_or(experts, 1, 1LL << 24, 1792, &a->moe.width));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "norm_topk_prob"), true, &a->moe.routing.renormalize));
    AX_TRY(ax_json_f64_or(scale, 1, &a->moe.routing.scale));
    if (a->moe.routing.scale <= 0)
        return ax_json_error(scale, "expected a positive number, got %g", a->moe.routing.scale);
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_expert_bias"), true, &biased));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "num_dense_layers"), 0, a->n_layers, 2, &dense));
    a->moe.routing.sigmoid = true;
    a->moe.names = biased ? &names : &unbiased;
    for (int64_t i = dense; i < a->n_layers; i++)
        a->layers[i].ffn = &ax_ffn_moe;
    return AX_OK;
}

const struct ax_family ax_family_lfm2 = {.model_type = "lfm2",
                                         .models = "LFM2",
                                         .architecture = "Lfm2ForCausalLM",
                                         .own_width = true,
                                         .rope.theta = 1e6,
                                         .parse = parse_lfm2};
const struct ax_family ax_family_lfm2_moe = {.model_type = "lfm2_moe",
                                             .models = "LFM2-8B-A1B",
                                             .architecture = "Lfm2MoeForCausalLM",
                                             .own_width = true,
                                             .rope.theta = 1e6,
                                             .parse = parse_moe};
