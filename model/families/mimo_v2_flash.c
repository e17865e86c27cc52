/* MiMo-V2-Flash (Xiaomi 2025): most layers have a window, sinks, and twice as many heads of keys and values as the
 * others; values are smaller than keys and have a factor; DeepSeek-V3's experts without a shared one. Published configs have
 * keys of their own (hybrid_layer_pattern, swa_*, layernorm_epsilon), which transformers 5 writes otherwise. */
#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_DIM (1LL << 24)

static const struct ax_rename renames[] = {{".sinks", ".attention_sink_bias"}, {0}};

/* Rope on a third of each head unless told otherwise. `usual`: its base; `key`: where published configs have that. */
static enum ax_status rope(struct ax_arch *a, struct ax_json c, const char *layers, const char *key,
                           double usual, struct ax_rope_config *r) {
    const struct ax_json all = ax_json_get(c, "rope_parameters"), own = ax_json_get(all, layers),
                         theta = ax_json_get(c, key);
    const struct ax_rope_usual third = {.theta = usual, .part = 0.334};
    AX_TRY(ax_rope_parse_object(r, c, own, third, a->head_dim, a->max_positions));
    if (!ax_json_get(own, "rope_theta").v) {
        AX_TRY(ax_json_f64_or(theta, usual, &r->theta));
        if (!(r->theta > 1 && r->theta <= 1e30))
            return ax_json_error(theta, "expected a number above 1 and at most 1e30, got %g",
                                 r->theta);
    }
    return AX_OK;
}

/* Sizes that sliding layers have in keys of their own, all but one of which are equal here. */
static enum ax_status heads(struct ax_arch *a, struct ax_json c, int64_t *sliding) {
    const struct {
        const char *key;
        int64_t value;
    } equal[] = {{"swa_num_attention_heads", a->n_heads},
                 {"swa_head_dim", a->head_dim},
                 {"swa_v_head_dim", a->v_head_dim}};
    const struct ax_json kv = ax_json_get(c, "swa_num_key_value_heads");
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++) {
        int64_t n;
        const struct ax_json v = ax_json_get(c, equal[i].key);
        AX_TRY(ax_json_i64_or(v, 1, MAX_DIM, equal[i].value, &n));
        if (n != equal[i].value) {
            ax_json_error(v, "%lld in sliding layers, and %lld in others, is not implemented",
                          (long long)n, (long long)equal[i].value);
            return AX_ERR_UNSUPPORTED;
        }
    }
    AX_TRY(ax_json_i64_or(kv, 1, 65536, 2 * a->n_kv_heads, sliding));
    if (a->n_heads % *sliding == 0)
        return AX_OK;
    return ax_json_error(kv.v ? kv : ax_json_get(c, "num_key_value_heads"),
                         "%lld KV heads do not divide %lld attention heads", (long long)*sliding,
                         (long long)a->n_heads);
}

/* Layer 0 and every sixth are full, unless layer_types or hybrid_layer_pattern says otherwise: 1 is a window. */
static enum ax_status layers(struct ax_arch *a, struct ax_json c, int64_t kv_heads,
                             int64_t window) {
    const struct ax_json pattern = ax_json_get(c, "hybrid_layer_pattern");
    if (pattern.v)
        AX_TRY(ax_check_per_layer(a, pattern, ax_json_size(pattern)));
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *spec = &a->layers[i];
        int64_t one = i > 0 && (i + 1) % 6 != 0;
        bool slides;
        if (pattern.v)
            AX_TRY(ax_json_i64(ax_json_at(pattern, (size_t)i), 0, 1, &one));
        AX_TRY(ax_layer_slides(a, c, i, one, &slides));
        spec->rope = slides ? AX_ROPE_LOCAL : AX_ROPE_MAIN;
        spec->window = slides ? window : 0;
        spec->kv_heads = slides ? kv_heads : 0;
        spec->sinks = slides;
    }
    return AX_OK;
}

/* A window of sliding_window_size, as published, counts only the tokens before a query. */
static enum ax_status attention(struct ax_arch *a, struct ax_json c) {
    int64_t window, before, kv_heads;
    const struct ax_json scale = ax_json_get(c, "attention_value_scale");
    /* absent means 0.707, null means none */
    const double usual = json_object_get(c.v, "attention_value_scale") ? 1 : 0.707;
    AX_TRY(ax_field_only(c, "attention_projection_layout", "split"));
    AX_TRY(ax_field_only_bool(c, "add_full_attention_sink_bias", false));
    AX_TRY(ax_field_only_bool(c, "add_swa_attention_sink_bias", true));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "v_head_dim"), 1, 2048, 128, &a->v_head_dim));
    AX_TRY(ax_json_f64_or(scale, usual, &a->value_scale));
    if (!(a->value_scale > 0 && a->value_scale < 1e6))
        return ax_json_error(scale, "expected a positive number below 1e6, got %g", a->value_scale);
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &a->qkv_bias));
    AX_TRY(rope(a, c, "full_attention", "rope_theta", 5e6, &a->rope));
    AX_TRY(rope(a, c, "sliding_attention", "swa_rope_theta", 1e4, &a->rope_local));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 129, &window));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window_size"), 0, INT32_MAX - 1, window - 1,
                          &before));
    AX_TRY(heads(a, c, &kv_heads));
    return layers(a, c, kv_heads, before + 1);
}

static enum ax_status experts(struct ax_arch *a, struct ax_json c) {
    static const struct ax_deepseek_moe usual = {.n_experts = 256,
                                                 .n_active = 8,
                                                 .width = 2048,
                                                 .first_dense = 1,
                                                 .groups = 1,
                                                 .groups_kept = 1,
                                                 .scale = 1,
                                                 .renormalize = true,
                                                 .group_best = 2};
    AX_TRY(ax_field_only(c, "scoring_func", "sigmoid"));
    AX_TRY(ax_field_only(c, "topk_method", "noaux_tc"));
    AX_TRY(ax_field_only_bool(c, "output_router_logits", false)); /* no balancing loss */
    return ax_deepseek_moe_parse(a, c, &usual);
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    const bool published = !ax_json_get(c, "rms_norm_eps").v;
    AX_TRY(ax_norm_eps_parse(a, c, published ? "layernorm_epsilon" : "rms_norm_eps", 1e-5));
    a->renames = renames;
    a->unused_prefix = "model.mtp.";
    AX_TRY(attention(a, c));
    return experts(a, c);
}

const struct ax_family ax_family_mimo_v2_flash = {
    .model_type = "mimo_v2_flash",
    .models = "MiMo-V2-Flash",
    .lacks = "training of the layers for multi-token prediction",
    .architecture = "MiMoV2FlashForCausalLM",
    .head_dim = 192,
    .rope.part = 1, /* of the layers alike; rope() has what is usual */
    .parse = parse};
