/* MiniMax M2 (MiniMax 2025): rope on a part of each head, norms on all of q and of k, and in every layer experts that
 * are chosen as DeepSeek-V3's. */
#include "model/arch/family.h"
#include "model/arch/part.h"

#define MOE "model.layers.%d.block_sparse_moe."
static const struct ax_moe_names names = {
    .router = MOE "gate.weight",
    .bias = MOE "e_score_correction_bias",
    .experts = MOE "experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
};

/* The published configs have rotary_dim, transformers 5 writes partial_rotary_factor. */
static enum ax_status rope(struct ax_arch *a, struct ax_json c) {
    const struct ax_json rotated = ax_json_get(c, "rotary_dim");
    if (rotated.v && a->rope.dim == a->head_dim)
        AX_TRY(ax_json_i64(rotated, 2, a->head_dim, &a->rope.dim));
    if (a->rope.dim % 2 == 0)
        return AX_OK;
    return ax_json_error(rotated, "rope needs an even number, got %lld", (long long)a->rope.dim);
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    int64_t shared;
    const struct ax_json width = ax_json_get(c, "shared_intermediate_size");
    AX_TRY(rope(a, c));
    AX_TRY(ax_field_only_bool(c, "use_qk_norm", true));
    AX_TRY(ax_field_only_bool(c, "use_routing_bias", true));
    AX_TRY(ax_field_only_bool(c, "output_router_logits", false)); /* no balancing loss */
    AX_TRY(ax_field_only(c, "scoring_func", "sigmoid"));
    AX_TRY(ax_json_i64_or(width, 0, INT32_MAX, 0, &shared));
    if (shared != 0) {
        ax_json_error(width, "a shared expert is not implemented in this family");
        return AX_ERR_UNSUPPORTED;
    }
    AX_TRY(ax_moe_parse(a, c, 256, 8));
    a->qk_norm = AX_QK_NORM_FULL;
    a->moe.width = a->intermediate_size;
    a->moe.routing.sigmoid = a->moe.routing.renormalize = true;
    a->moe.names = &names;
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].ffn = &ax_ffn_moe;
    return AX_OK;
}

const struct ax_family ax_family_minimax_m2 = {.model_type = "minimax_m2",
                                               .models = "MiniMax M2",
                                               .architecture = "MiniMaxM2ForCausalLM",
                                               .head_dim = 128,
                                               .rope = {.theta = 5e6, .part = 1},
                                               .parse = parse};
