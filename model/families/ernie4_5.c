/* ERNIE 4.5 (Baidu 2025): Llama with rope on neighboring pairs, and perhaps biases everywhere; and its mixture, whose
 * experts are chosen by a softmax and a correction. */
#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_WIDTH (1LL << 24)

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool bias;
    a->rope.interleaved = true;
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_bias"), false, &bias));
    a->qkv_bias = a->o_bias = a->mlp_bias = bias;
    return AX_OK;
}

#define MLP "model.layers.%d.mlp."
static const struct ax_moe_names names = {
    .router = MLP "gate.weight",
    .bias = MLP "moe_statics.e_score_correction_bias",
    .bias_is_row = true,
    .experts = MLP "experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .shared = MLP "shared_experts",
};

/* Every `interval`-th layer from `start` to `end`, −1 for the last. */
static enum ax_status sparse_layers(struct ax_arch *a, struct ax_json c) {
    int64_t start, end, interval;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_layer_start_index"), 0, INT32_MAX, 1, &start));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_layer_end_index"), -1, INT32_MAX, -1, &end));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_layer_interval"), 1, INT32_MAX, 1, &interval));
    if (end < 0 || end >= a->n_layers)
        end = a->n_layers - 1;
    for (int64_t i = start; i <= end; i++)
        if ((i + 1) % interval == 0)
            a->layers[i].ffn = a->moe.shared_width > 0 ? &ax_ffn_moe_shared : &ax_ffn_moe;
    return AX_OK;
}

/* What the weights of chosen experts are divided by is at least moe_norm_min, which no sum is below if it is tiny. */
static enum ax_status least_sum(struct ax_json c) {
    double least;
    const struct ax_json v = ax_json_get(c, "moe_norm_min");
    AX_TRY(ax_json_f64_or(v, 0, &least));
    if (least <= 1e-6)
        return AX_OK;
    ax_json_error(v, "%g is not implemented; expected at most 1e-6", least);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status parse_moe(struct ax_arch *a, struct ax_json c) {
    int64_t experts, active, shared;
    AX_TRY(ax_field_only_bool(c, "use_bias", false));             /* of experts, and the head */
    AX_TRY(ax_field_only_bool(c, "output_router_logits", false)); /* no balancing loss */
    AX_TRY(parse(a, c));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_num_experts"), 1, 4096, 64, &experts));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_k"), 1, 4096, 6, &active));
    AX_TRY(ax_moe_parse(a, c, experts, active));
    AX_TRY(
        ax_json_i64_or(ax_json_get(c, "moe_intermediate_size"), 1, MAX_WIDTH, 1536, &a->moe.width));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_num_shared_experts"), 0, 1024, 2, &shared));
    AX_TRY(least_sum(c));
    a->moe.shared_width = shared * a->moe.width;
    a->moe.routing.renormalize = true;
    a->moe.names = &names;
    return sparse_layers(a, c);
}

const struct ax_family ax_family_ernie4_5 = {.model_type = "ernie4_5",
                                             .models = "ERNIE 4.5 0.3B",
                                             .architecture = "Ernie4_5ForCausalLM",
                                             .head_dim = 128,
                                             .rope.theta = 5e5,
                                             .parse = parse};
const struct ax_family ax_family_ernie4_5_moe = {.model_type = "ernie4_5_moe",
                                                 .models = "ERNIE 4.5 21B-A3B",
                                                 .architecture = "Ernie4_5_MoeForCausalLM",
                                                 .rope.theta = 5e5,
                                                 .parse = parse_moe};
