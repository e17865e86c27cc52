/* Falcon-H1 (TII 2025): attention and Mamba-2 side by side in all layers, with factors almost everywhere. */
#include "model/arch/family.h"
#include "model/arch/part.h"

#define LAYER "model.layers.%d."

static const struct ax_rename renames[] = {
    {"mlp.", "feed_forward."}, {"model.norm.", "model.final_layernorm."}, {0}};

static enum ax_status check_factor(struct ax_json v, double x) {
    if (x > 0 && x < 1e30)
        return AX_OK;
    return ax_json_error(v, "expected a positive number, got %g", x);
}

static enum ax_status factor(struct ax_json c, const char *key, double *out) {
    const struct ax_json v = ax_json_get(c, key);
    AX_TRY(ax_json_f64_or(v, 1, out));
    return check_factor(v, *out);
}

/* n of them; absent: all 1. */
static enum ax_status list_of_factors(struct ax_json c, const char *key, size_t n, double *out) {
    const struct ax_json list = ax_json_get(c, key);
    if (list.v && ax_json_size(list) != n)
        return ax_json_error(list, "expected a list of %zu numbers", n);
    for (size_t i = 0; i < n; i++) {
        const struct ax_json v = ax_json_at(list, i);
        AX_TRY(ax_json_f64_or(v, 1, &out[i]));
        AX_TRY(check_factor(v, out[i]));
    }
    return AX_OK;
}

static enum ax_status factors(struct ax_arch *a, struct ax_json c) {
    double key;
    AX_TRY(factor(c, "embedding_multiplier", &a->embedding_scale));
    AX_TRY(factor(c, "lm_head_multiplier", &a->logit_scale));
    AX_TRY(factor(c, "attention_in_multiplier", &a->beside_attention.in));
    AX_TRY(factor(c, "attention_out_multiplier", &a->beside_attention.out));
    AX_TRY(factor(c, "ssm_in_multiplier", &a->beside_mamba.in));
    AX_TRY(factor(c, "ssm_out_multiplier", &a->beside_mamba.out));
    AX_TRY(factor(c, "key_multiplier", &key));
    a->softmax_scale *= key;
    AX_TRY(list_of_factors(c, "ssm_multipliers", 5, a->ssd.scale));
    return list_of_factors(c, "mlp_multipliers", 2, a->mlp_scale);
}

static enum ax_status mamba(struct ax_arch *a, struct ax_json c) {
    const struct ax_json own = ax_json_get(c, "mamba_d_ssm");
    int64_t expand, width;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "mamba_expand"), 1, 1024, 2, &expand));
    /* absent means 1024, null means another key */
    const int64_t usual = json_object_get(c.v, "mamba_d_ssm") ? expand * a->hidden_size : 1024;
    AX_TRY(ax_json_i64_or(own, 1, 1LL << 24, usual, &width));
    const struct ax_ssd_keys keys = {.heads = "mamba_n_heads",
                                     .head_dim = "mamba_d_head",
                                     .groups = "mamba_n_groups",
                                     .state = "mamba_d_state",
                                     .taps = "mamba_d_conv",
                                     .conv_bias = "mamba_conv_bias",
                                     .bias = "mamba_proj_bias",
                                     .usual = {.heads = 128, .groups = 1, .state = 256},
                                     .width = width};
    AX_TRY(ax_ssd_parse(a, c, &keys));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "mamba_rms_norm"), false, &a->ssd.norm));
    if (a->ssd.norm) { /* the gate is before the norm */
        bool after;
        const struct ax_json order = ax_json_get(c, "mamba_norm_before_gate");
        AX_TRY(ax_json_bool_or(order, true, &after));
        if (after) {
            ax_json_error(order.v ? order : ax_json_get(c, "mamba_rms_norm"),
                          "a norm before the gate (mamba_norm_before_gate) is not implemented");
            return AX_ERR_UNSUPPORTED;
        }
    }
    AX_TRY(ax_field_only_bool(c, "mamba_use_mlp", true));
    /* where the config has a factor of what comes after the down projection, here is one of the up's: nothing may be
     * added between them */
    AX_TRY(ax_field_only_bool(c, "mlp_bias", false));
    AX_TRY(ax_field_only_bool(c, "mamba_proj_bias", false));
    return ax_field_only_bool(c, "projectors_bias", false);
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_attention_bias_parse(a, c));
    AX_TRY(mamba(a, c));
    AX_TRY(factors(a, c));
    a->renames = renames;
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].mixer = &ax_mixer_beside;
        a->layers[i].ffn_norms.in = LAYER "pre_ff_layernorm.weight";
    }
    return AX_OK;
}

const struct ax_family ax_family_falcon_h1 = {.model_type = "falcon_h1",
                                              .models = "Falcon-H1",
                                              .architecture = "FalconH1ForCausalLM",
                                              .parse = parse};
