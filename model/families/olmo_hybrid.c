/* OLMo Hybrid (Ai2 2026): every fourth layer is one of OLMo 2's, usually without rope; the others are of the gated
 * delta rule, whose β is up to 2, and have norms on the inputs of their parts. */
#include "model/arch/family.h"
#include "model/arch/part.h"

#define OUTPUT_EPS 1e-5 /* of the delta rule's norm, whatever rms_norm_eps says */

static enum ax_status delta_rule(struct ax_arch *a, struct ax_json c) {
    int64_t heads, key_dim;
    bool negative;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "linear_num_key_heads"), 1, 65536, a->n_heads, &heads));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "linear_key_head_dim"), 1, 1 << 24,
                          3 * a->hidden_size / (4 * heads), &key_dim));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "linear_allow_neg_eigval"), true, &negative));
    AX_TRY(ax_delta_parse(a, c,
                          (struct ax_delta_config){.key_heads = heads,
                                                   .value_heads = a->n_heads,
                                                   .key_dim = key_dim,
                                                   .value_dim = 2 * key_dim}));
    a->delta.layout = AX_DELTA_APART;
    a->delta.beta_scale = negative ? 2 : 1;
    a->delta.norm_eps = OUTPUT_EPS;
    return AX_OK;
}

/* Without layer_types, a model of fewer than four layers has attention in the last one. */
static enum ax_status layers(struct ax_arch *a, struct ax_json c) {
    static const char *const kinds[] = {"full_attention", "linear_attention", NULL};
    for (int64_t i = 0; i < a->n_layers; i++) {
        int kind = i % 4 != 3 && (a->n_layers > 3 || i + 1 < a->n_layers);
        AX_TRY(ax_layer_kind(a, c, i, kinds, &kind));
        if (kind == 0)
            continue;
        struct ax_layer_spec *layer = &a->layers[i];
        layer->mixer = &ax_mixer_delta;
        layer->mixer_norms =
            (struct ax_norm_names){.in = "model.layers.%d.attention_layer_norm.weight"};
        layer->ffn_norms =
            (struct ax_norm_names){.in = "model.layers.%d.feedforward_layer_norm.weight"};
    }
    return AX_OK;
}

/* rope_theta: null in rope_parameters is no rope; without rope_parameters there is the usual one. */
static void ropes(struct ax_arch *a, struct ax_json c) {
    const json_t *theta = json_object_get(ax_json_get(c, "rope_parameters").v, "rope_theta");
    for (int64_t i = 0; i < a->n_layers && json_is_null(theta); i++)
        a->layers[i].rope = AX_ROPE_NONE;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    const double eps = a->norm_eps;
    AX_TRY(ax_family_olmo2.parse(a, c));
    a->norm_eps = eps; /* its default is not OLMo 2's */
    AX_TRY(delta_rule(a, c));
    AX_TRY(layers(a, c));
    ropes(a, c);
    return AX_OK;
}

const struct ax_family ax_family_olmo_hybrid = {.model_type = "olmo_hybrid",
                                                .models = "OLMo Hybrid",
                                                .lacks = "GGUF",
                                                .architecture = "OlmoHybridForCausalLM",
                                                .parse = parse};
