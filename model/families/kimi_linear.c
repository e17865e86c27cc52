/* Kimi Linear (Moonshot AI 2025): three of four layers are Kimi Delta Attention, the others latent attention without rope;
 * after a few dense layers, DeepSeek-V3's mixture under other keys and names. Config keys and their defaults are those
 * of published folders, or transformers', which writes others. */
#include "base/mem.h"
#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_HEADS    65536
#define MAX_HEAD_DIM 2048

/* A size of the delta rule: in linear_attn_config, or as transformers spells it. */
static enum ax_status delta_field(struct ax_json c, const char *published, const char *other,
                                  int64_t low, int64_t high, int64_t usual, int64_t *out) {
    struct ax_json v = ax_json_get(ax_json_get(c, "linear_attn_config"), published);
    if (!v.v)
        v = ax_json_get(c, other);
    return ax_json_i64_or(v, low, high, usual, out);
}

static enum ax_status delta_rule(struct ax_arch *a, struct ax_json c) {
    int64_t heads, size;
    AX_TRY(ax_field_only(c, "hidden_act", "silu")); /* also of convolutions */
    AX_TRY(delta_field(c, "num_heads", "linear_num_heads", 1, MAX_HEADS, 32, &heads));
    AX_TRY(delta_field(c, "head_dim", "linear_head_dim", 1, MAX_HEAD_DIM, 128, &size));
    AX_TRY(delta_field(c, "short_conv_kernel_size", "linear_conv_kernel_dim", 2, AX_CONV_TAPS, 4,
                       &a->conv.taps));
    a->delta = (struct ax_delta_config){.key_heads = heads,
                                        .value_heads = heads,
                                        .key_dim = size,
                                        .value_dim = size,
                                        .layout = AX_DELTA_CHANNELS,
                                        .beta_scale = 1,
                                        .norm_eps = a->norm_eps};
    return AX_OK;
}

/* ---- which layers attend ---- */

enum { UNKNOWN, FULL, DELTA };

/* Marks the layers, counted from 1, of a list. */
static enum ax_status mark(const struct ax_arch *a, struct ax_json config, const char *key,
                           char kind, char *kinds) {
    const struct ax_json list = ax_json_get(config, key);
    if (list.v && !json_is_array(list.v))
        return ax_json_error(list, "expected a list of layers, counted from 1");
    for (size_t i = 0; i < ax_json_size(list); i++) {
        const struct ax_json v = ax_json_at(list, i);
        int64_t layer;
        AX_TRY(ax_json_i64(v, 1, a->n_layers, &layer));
        if (kinds[layer - 1] != UNKNOWN)
            return ax_json_error(v,
                                 "layer %lld, counted from 1, is listed twice in kda_layers and "
                                 "full_attn_layers; list each layer once",
                                 (long long)layer);
        kinds[layer - 1] = kind;
    }
    return AX_OK;
}

static enum ax_status published_kinds(const struct ax_arch *a, struct ax_json config, char *kinds) {
    AX_TRY(mark(a, config, "full_attn_layers", FULL, kinds));
    AX_TRY(mark(a, config, "kda_layers", DELTA, kinds));
    for (int64_t i = 0; i < a->n_layers; i++)
        if (kinds[i] == UNKNOWN)
            return ax_json_error(config,
                                 "layer %lld, counted from 1, is neither in kda_layers nor in "
                                 "full_attn_layers; list each of the %lld layers once",
                                 (long long)i + 1, (long long)a->n_layers);
    return AX_OK;
}

/* layer_types comes before the published lists; without both, every fourth layer after the first attends. */
static enum ax_status find_kinds(const struct ax_arch *a, struct ax_json c, char *kinds) {
    static const char *const known[] = {"full_attention", "linear_attention", NULL};
    const struct ax_json published = ax_json_get(c, "linear_attn_config");
    if (!ax_json_get(c, "layer_types").v &&
        (ax_json_get(published, "kda_layers").v || ax_json_get(published, "full_attn_layers").v))
        return published_kinds(a, published, kinds);
    for (int64_t i = 0; i < a->n_layers; i++) {
        int kind = i == 0 || i % 4 != 0;
        AX_TRY(ax_layer_kind(a, c, i, known, &kind));
        kinds[i] = kind == 0 ? FULL : DELTA;
    }
    return AX_OK;
}

static enum ax_status mixers(struct ax_arch *a, struct ax_json c) {
    char *kinds;
    AX_TRY(ax_alloc(&kinds, (size_t)a->n_layers, sizeof *kinds));
    const enum ax_status st = find_kinds(a, c, kinds);
    for (int64_t i = 0; i < a->n_layers && st == AX_OK; i++) {
        a->layers[i].mixer = kinds[i] == FULL ? &ax_mixer_mla : &ax_mixer_delta;
        a->layers[i].rope = AX_ROPE_NONE;
    }
    ax_free(kinds);
    return st;
}

/* ---- the mixture ---- */

#define MOE "model.layers.%d.block_sparse_moe."
static const struct ax_moe_names names = {
    .router = MOE "gate.weight",
    .bias = MOE "gate.e_score_correction_bias",
    .experts = MOE "experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .shared = MOE "shared_experts",
};

static enum ax_status mixture(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_keys keys = {.experts = "num_experts",
                                                 .active = "num_experts_per_token",
                                                 .shared = "num_shared_experts",
                                                 .renormalize = "moe_renormalize",
                                                 .groups = "num_expert_group"};
    static const struct ax_deepseek_moe usual = {.n_experts = 256,
                                                 .n_active = 8,
                                                 .width = 1024,
                                                 .n_shared = 1,
                                                 .first_dense = 1,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 2.446,
                                                 .renormalize = true,
                                                 .group_best = 2,
                                                 .keys = &keys,
                                                 .names = &names};
    AX_TRY(ax_field_only(c, "moe_router_activation_func", "sigmoid"));
    AX_TRY(ax_field_only_bool(c, "output_router_logits", false)); /* no balancing loss */
    AX_TRY(ax_deepseek_moe_parse(a, c, &usual));
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    const struct ax_json length = ax_json_get(c, "model_max_length");
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    if (!ax_json_get(c, "max_position_embeddings").v)
        AX_TRY(ax_json_i64_or(length, 1, INT32_MAX, 1 << 20, &a->max_positions));
    AX_TRY(ax_field_only_bool(c, "mla_use_nope", true));
    struct ax_mla_usual usual = ax_deepseek_mla;
    usual.q_rank = 0;
    AX_TRY(ax_mla_parse(a, c, &usual));
    AX_TRY(delta_rule(a, c));
    AX_TRY(mixers(a, c));
    return mixture(a, c);
}

const struct ax_family ax_family_kimi_linear = {.model_type = "kimi_linear",
                                                .models = "Kimi-Linear-48B-A3B",
                                                .architecture = "KimiLinearForCausalLM",
                                                .head_dim = 64,
                                                .parse = parse};
