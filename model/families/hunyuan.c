/* Hunyuan (Tencent 2025): Llama with norms of each head's q and k after rope; and its mixture, with experts and an MLP of
 * the same width in every layer. */
#include <math.h>

#include "model/arch/family.h"
#include "model/arch/part.h"

/* A "dynamic" rope with alpha is one with another base, whatever the length. */
static enum ax_status rope(struct ax_arch *a, struct ax_json c) {
    struct ax_json all;
    double alpha;
    AX_TRY(ax_rope_object(c, &all));
    const struct ax_json v = ax_json_get(all, "alpha");
    AX_TRY(ax_json_f64_or(v, 1, &alpha));
    if (!(alpha >= 1 && alpha < 1e9))
        return ax_json_error(v, "expected a number from 1 to 1e9, got %g", alpha);
    if (a->rope.kind != AX_ROPE_DYNAMIC || !v.v)
        return AX_OK;
    const double d = (double)a->rope.dim;
    a->rope.kind = AX_ROPE_DEFAULT;
    a->rope.theta *= pow(alpha, d / (d - 2));
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(rope(a, c));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_attention_bias_parse(a, c));
    a->qk_norm = AX_QK_NORM_HEAD;
    a->qk_norm_after = true;
    a->q_norm = "model.layers.%d.self_attn.query_layernorm.weight";
    a->k_norm = "model.layers.%d.self_attn.key_layernorm.weight";
    return AX_OK;
}

static const struct ax_moe_names names = {
    .router = "model.layers.%d.mlp.gate.wg.weight",
    .experts = "model.layers.%d.mlp.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .shared = "model.layers.%d.mlp.shared_mlp",
};

/* A number, or a list of them for each layer, of which all must be equal. */
static enum ax_status same_in_all(const struct ax_arch *a, struct ax_json c, const char *key,
                                  int64_t *out) {
    const struct ax_json v = ax_json_get(c, key);
    const size_t n = ax_json_size(v);
    int64_t first, other;
    if (!json_is_array(v.v))
        return ax_json_i64_or(v, 1, 4096, 1, out);
    AX_TRY(ax_check_per_layer(a, v, n));
    AX_TRY(ax_json_i64(ax_json_at(v, 0), 1, 4096, &first));
    for (size_t i = 1; i < n; i++) {
        AX_TRY(ax_json_i64(ax_json_at(v, i), 1, 4096, &other));
        if (other == first)
            continue;
        ax_json_error(ax_json_at(v, i), "%lld after %lld is not implemented: all must be equal",
                      (long long)other, (long long)first);
        return AX_ERR_UNSUPPORTED;
    }
    *out = first;
    return AX_OK;
}

static enum ax_status parse_moe(struct ax_arch *a, struct ax_json c) {
    struct ax_moe_config *m = &a->moe;
    AX_TRY(parse(a, c));
    AX_TRY(ax_field_only_bool(c, "output_router_logits", false)); /* no balancing loss */
    AX_TRY(same_in_all(a, c, "num_experts", &m->n_experts));
    AX_TRY(same_in_all(a, c, "moe_topk", &m->n_active));
    if (m->n_active > m->n_experts)
        return ax_json_error(ax_json_get(c, "moe_topk"),
                             "cannot route a token to %lld of %lld experts", (long long)m->n_active,
                             (long long)m->n_experts);
    m->width = m->shared_width = a->intermediate_size;
    m->routing.scale = 1;
    m->routing.renormalize = true;
    m->names = &names;
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].ffn = &ax_ffn_moe_shared;
    return AX_OK;
}

const struct ax_family ax_family_hunyuan_v1_dense = {.model_type = "hunyuan_v1_dense",
                                                     .models = "Hunyuan 0.5B to 7B",
                                                     .architecture = "HunYuanDenseV1ForCausalLM",
                                                     .parse = parse};
const struct ax_family ax_family_hunyuan_v1_moe = {.model_type = "hunyuan_v1_moe",
                                                   .models = "Hunyuan-A13B",
                                                   .lacks = "GGUF",
                                                   .architecture = "HunYuanMoEV1ForCausalLM",
                                                   .parse = parse_moe};
