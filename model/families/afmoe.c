/* AFMoE (Arcee 2025): gated attention with norms of each head's q and k, windows and rope in all but every fourth layer,
 * norms before and behind both parts, and DeepSeek-V3's mixture of experts by other names. */
#include <math.h>

#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_WIDTH (1LL << 24)
#define MLP       "model.layers.%d.mlp."
static const struct ax_moe_names names = {
    .router = MLP "router.gate.weight",
    .bias = MLP "expert_bias",
    .experts = MLP "experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .shared = MLP "shared_experts",
};

static enum ax_status layers(struct ax_arch *a, struct ax_json c) {
    int64_t period, window;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 1024, &window));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "global_attn_every_n_layers"), 1, INT32_MAX, 4, &period));
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        bool slides;
        AX_TRY(ax_layer_slides(a, c, i, (i + 1) % period != 0, &slides));
        l->window = slides ? window : 0;
        l->rope = slides ? AX_ROPE_MAIN : AX_ROPE_NONE;
        l->mixer = &ax_mixer_gated;
        l->mixer_norms.out = "model.layers.%d.post_attention_layernorm.weight";
        l->ffn_norms = (struct ax_norm_names){.in = "model.layers.%d.pre_mlp_layernorm.weight",
                                              .out = "model.layers.%d.post_mlp_layernorm.weight"};
    }
    return AX_OK;
}

static enum ax_status experts(struct ax_arch *a, struct ax_json c) {
    struct ax_moe_config *m = &a->moe;
    const struct ax_json scale = ax_json_get(c, "route_scale");
    int64_t shared, dense;
    AX_TRY(ax_field_only(c, "score_func", "sigmoid"));
    AX_TRY(ax_field_only_bool(c, "route_norm", true));
    AX_TRY(ax_field_only_bool(c, "output_router_logits", false)); /* no balancing loss */
    AX_TRY(ax_moe_parse(a, c, 64, 6));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "moe_intermediate_size"), 1, MAX_WIDTH, 1408, &m->width));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "num_shared_experts"), 0, 1024, 2, &shared));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "num_dense_layers"), 0, INT32_MAX, 1, &dense));
    AX_TRY(ax_json_f64_or(scale, 1, &m->routing.scale));
    if (!(m->routing.scale > 0 && m->routing.scale < 1e30))
        return ax_json_error(scale, "expected a positive number, got %g", m->routing.scale);
    m->shared_width = shared * m->width;
    m->routing.sigmoid = m->routing.renormalize = true;
    m->names = &names;
    for (int64_t i = dense; i < a->n_layers; i++)
        a->layers[i].ffn = shared > 0 ? &ax_ffn_moe_shared : &ax_ffn_moe;
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool scaled;
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_field_only_bool(c, "attention_bias", false));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "mup_enabled"), false, &scaled));
    a->embedding_scale = scaled ? sqrt((double)a->hidden_size) : 1;
    a->norm.once = true;
    a->qk_norm = AX_QK_NORM_HEAD;
    a->gate_apart = true;
    AX_TRY(layers(a, c));
    return experts(a, c);
}

const struct ax_family ax_family_afmoe = {.model_type = "afmoe",
                                          .models = "Arcee Trinity",
                                          .lacks = "GGUF",
                                          .architecture = "AfmoeForCausalLM",
                                          .head_dim = 128,
                                          .parse = parse};
