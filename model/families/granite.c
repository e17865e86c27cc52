/* Granite 3 (IBM 2024): Llama with factors on the embedding, on what a branch adds and on the logits,
 * and a scale of scores of its own; its mixtures, some with an MLP beside the experts. HyperCLOVA X (Naver 2025): the
 * same with norms behind both parts. Granite 4 (2025), the hybrids: Mamba-2 in most layers. */
#include <string.h>

#include "model/arch/family.h"
#include "model/arch/kv_row.h"
#include "model/arch/part.h"

static enum ax_status positive(struct ax_json c, const char *key, double *out) {
    const struct ax_json v = ax_json_get(c, key);
    AX_TRY(ax_json_f64_or(v, 1, out));
    if (*out > 0 && *out < 1e30)
        return AX_OK;
    return ax_json_error(v, "expected a positive number, got %g", *out);
}

static enum ax_status factors(struct ax_arch *a, struct ax_json c) {
    double divisor;
    AX_TRY(ax_attention_bias_parse(a, c));
    AX_TRY(positive(c, "embedding_multiplier", &a->embedding_scale));
    AX_TRY(positive(c, "attention_multiplier", &a->softmax_scale));
    AX_TRY(positive(c, "residual_multiplier", &a->residual_scale));
    AX_TRY(positive(c, "logits_scaling", &divisor));
    a->logit_scale = 1 / divisor;
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(factors(a, c));
    return ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias);
}

/* Logits are multiplied, not divided. */
static enum ax_status parse_hyperclovax(struct ax_arch *a, struct ax_json c) {
    const double usual = a->softmax_scale;
    bool behind;
    AX_TRY(parse(a, c));
    if (!ax_json_get(c, "attention_multiplier").v)
        a->softmax_scale = usual;
    a->logit_scale = 1 / a->logit_scale;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_post_norm"), true, &behind));
    for (int64_t i = 0; i < a->n_layers && behind; i++) {
        a->layers[i].mixer_norms.out = "model.layers.%d.post_norm1.weight";
        a->layers[i].ffn_norms.out = "model.layers.%d.post_norm2.weight";
    }
    return AX_OK;
}

/* ---- hybrids ---- */

static const struct ax_rename renames[] = {{"mlp.gate_up_proj", "shared_mlp.input_linear"},
                                           {"mlp.down_proj", "shared_mlp.output_linear"},
                                           {0}};

/* Which layers attend: by layer_types, else none. Most have no rope. */
static enum ax_status mixers(struct ax_arch *a, struct ax_json c) {
    static const char *const kinds[] = {"mamba", "attention", "linear_attention", "full_attention",
                                        NULL};
    const char *positions;
    AX_TRY(ax_json_str_or(ax_json_get(c, "position_embedding_type"), "", &positions));
    for (int64_t i = 0; i < a->n_layers; i++) {
        int kind = 0;
        AX_TRY(ax_layer_kind(a, c, i, kinds, &kind));
        a->layers[i].mixer = kind % 2 ? &ax_mixer_attention : &ax_mixer_mamba;
        a->layers[i].rope = strcmp(positions, "rope") == 0 ? AX_ROPE_MAIN : AX_ROPE_NONE;
    }
    return AX_OK;
}

static const struct ax_moe_names names = {
    .router = "model.layers.%d.block_sparse_moe.router.layer.weight",
    .experts = "model.layers.%d.block_sparse_moe.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .shared = "model.layers.%d.mlp",
    .module = "block_sparse_moe.experts",
};
static const struct ax_moe_stacked stacked = {
    .gate_up = "model.layers.%d.block_sparse_moe.input_linear.weight",
    .down = "model.layers.%d.block_sparse_moe.output_linear.weight",
    .out_first = true,
};

/* Experts in all layers, beside an MLP of the width `shared` if that is not 0. */
static enum ax_status mixture(struct ax_arch *a, struct ax_json c, int64_t shared) {
    AX_TRY(ax_moe_parse(a, c, 8, 2));
    AX_TRY(ax_json_i64(ax_json_get(c, "intermediate_size"), 1, 1LL << 24, &a->moe.width));
    a->moe.shared_width = shared;
    a->moe.routing.renormalize = true; /* the softmax is over the chosen ones alone */
    a->moe.names = &names;
    a->moe.stacked = &stacked;
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].ffn = shared > 0 ? &ax_ffn_moe_shared : &ax_ffn_moe;
    return AX_OK;
}

/* As of all that attends in every layer. */
static enum ax_status parse_moe(struct ax_arch *a, struct ax_json c) {
    AX_TRY(factors(a, c));
    return mixture(a, c, 0);
}

static enum ax_status parse_shared(struct ax_arch *a, struct ax_json c) {
    int64_t shared;
    AX_TRY(factors(a, c));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "shared_intermediate_size"), 0, 1LL << 24, 0, &shared));
    a->fused_gate_up = true;
    a->renames = renames;
    return mixture(a, c, shared);
}

static enum ax_status mamba(struct ax_arch *a, struct ax_json c) {
    int64_t expand;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "mamba_expand"), 1, 1024, 2, &expand));
    const struct ax_ssd_keys keys = {.heads = "mamba_n_heads",
                                     .head_dim = "mamba_d_head",
                                     .groups = "mamba_n_groups",
                                     .state = "mamba_d_state",
                                     .taps = "mamba_d_conv",
                                     .conv_bias = "mamba_conv_bias",
                                     .bias = "mamba_proj_bias",
                                     .usual = {.heads = 128, .groups = 1, .state = 256},
                                     .width = expand * a->hidden_size};
    return ax_ssd_parse(a, c, &keys);
}

/* Some are no hybrids: all of their layers attend. */
static enum ax_status parse_hybrid(struct ax_arch *a, struct ax_json c) {
    int64_t experts;
    AX_TRY(factors(a, c));
    AX_TRY(mixers(a, c));
    if (ax_state_layers(a) > 0)
        AX_TRY(mamba(a, c));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "shared_intermediate_size"), 1, 1LL << 24, 1024,
                          &a->intermediate_size));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "num_local_experts"), 0, INT32_MAX, 8, &experts));
    a->fused_gate_up = true;
    a->renames = renames;
    return experts > 0 ? mixture(a, c, a->intermediate_size) : AX_OK;
}

const struct ax_family ax_family_granite = {.model_type = "granite",
                                            .models = "Granite 3, dense Granite 4.0",
                                            .architecture = "GraniteForCausalLM",
                                            .parse = parse};
const struct ax_family ax_family_granitemoehybrid = {.model_type = "granitemoehybrid",
                                                     .models =
                                                         "Granite 4.0 H, with and without experts",
                                                     .architecture = "GraniteMoeHybridForCausalLM",
                                                     .own_width = true,
                                                     .parse = parse_hybrid};
const struct ax_family ax_family_granitemoe = {.model_type = "granitemoe",
                                               .models = "Granite 3 mixtures, PowerMoE",
                                               .lacks = "GGUF",
                                               .architecture = "GraniteMoeForCausalLM",
                                               .parse = parse_moe};
const struct ax_family ax_family_granitemoeshared = {.model_type = "granitemoeshared",
                                                     .models = "Granite 4.0 preview mixtures",
                                                     .lacks = "GGUF",
                                                     .architecture = "GraniteMoeSharedForCausalLM",
                                                     .parse = parse_shared};
const struct ax_family ax_family_hyperclovax = {.model_type = "hyperclovax",
                                                .models = "HyperCLOVA X SEED",
                                                .lacks = "GGUF",
                                                .architecture = "HyperCLOVAXForCausalLM",
                                                .parse = parse_hyperclovax};
