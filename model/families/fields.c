/* Fields of config.json that several families have: the activation, which layers have a sliding window or use the keys
 * of others, and keys with one value that is there. */
#include <stdio.h>
#include <string.h>

#include "model/arch/family.h"

#define MAX_DELTA_DIM 2048

enum ax_status ax_activation_parse(struct ax_arch *a, struct ax_json c, const char *key,
                                   const char *usual) {
    static const struct {
        const char *name;
        enum ax_gate gate;
    } acts[] = {
        {"silu", AX_GATE_SILU}, {"swish", AX_GATE_SILU}, {"gelu_pytorch_tanh", AX_GATE_GELU}};
    const char *name;
    AX_TRY(ax_json_str_or(ax_json_get(c, key), usual, &name));
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        if (strcmp(name, acts[i].name) != 0)
            continue;
        a->gating.gate = acts[i].gate;
        return AX_OK;
    }
    ax_json_error(ax_json_get(c, key), "\"%s\" is not implemented (silu and gelu_pytorch_tanh are)",
                  name);
    return AX_ERR_UNSUPPORTED;
}

enum ax_status ax_norm_eps_parse(struct ax_arch *a, struct ax_json c, const char *key,
                                 double usual) {
    const struct ax_json eps = ax_json_get(c, key);
    AX_TRY(ax_json_f64_or(eps, usual, &a->norm_eps));
    if (a->norm_eps > 0)
        return AX_OK;
    return ax_json_error(eps, "expected a positive number, got %g", a->norm_eps);
}

enum ax_status ax_cap_parse(struct ax_json c, const char *key, double usual, double *out) {
    const struct ax_json v = ax_json_get(c, key);
    *out = 0;
    if (json_is_null(json_object_get(c.v, key))) /* null: none */
        return AX_OK;
    AX_TRY(ax_json_f64_or(v, usual, out));
    if (*out > 0 || (!v.v && usual == 0))
        return AX_OK;
    return ax_json_error(v, "expected a positive number or null, got %g", *out);
}

enum ax_status ax_field_only(struct ax_json c, const char *key, const char *usual) {
    const char *got;
    const struct ax_json v = ax_json_get(c, key);
    AX_TRY(ax_json_str_or(v, usual, &got));
    if (strcmp(got, usual) == 0)
        return AX_OK;
    ax_json_error(v, "\"%s\" is not implemented in this family (only %s)", got, usual);
    return AX_ERR_UNSUPPORTED;
}

enum ax_status ax_field_only_bool(struct ax_json c, const char *key, bool usual) {
    bool got;
    const struct ax_json v = ax_json_get(c, key);
    AX_TRY(ax_json_bool_or(v, usual, &got));
    if (got == usual)
        return AX_OK;
    ax_json_error(v, "%s is not implemented in this family", got ? "true" : "false");
    return AX_ERR_UNSUPPORTED;
}

enum ax_status ax_refuse_clip(struct ax_json c) {
    const struct ax_json v = ax_json_get(c, "clip_qkv");
    if (!v.v)
        return AX_OK;
    ax_json_error(v, "limits of q, k and v are not implemented; expected null");
    return AX_ERR_UNSUPPORTED;
}

enum ax_status ax_attention_bias_parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &a->qkv_bias));
    a->o_bias = a->qkv_bias;
    return AX_OK;
}

enum ax_status ax_check_per_layer(const struct ax_arch *a, struct ax_json list, size_t n) {
    if ((int64_t)n == a->n_layers)
        return AX_OK;
    return ax_json_error(list, "expected one entry for each of %lld layers, got %zu",
                         (long long)a->n_layers, n);
}

enum ax_status ax_layer_kind(const struct ax_arch *a, struct ax_json c, int64_t layer,
                             const char *const *known, int *kind) {
    return ax_listed_kind(a, c, "layer_types", layer, known, kind);
}

enum ax_status ax_listed_kind(const struct ax_arch *a, struct ax_json c, const char *key,
                              int64_t layer, const char *const *known, int *kind) {
    const char *type;
    char list[200] = "";
    const struct ax_json types = ax_json_get(c, key);
    if (!types.v)
        return AX_OK;
    AX_TRY(ax_check_per_layer(a, types, ax_json_size(types)));
    const struct ax_json v = ax_json_at(types, (size_t)layer);
    AX_TRY(ax_json_str(v, &type));
    for (int i = 0; known[i]; i++) {
        if (strcmp(type, known[i]) == 0) {
            *kind = i;
            return AX_OK;
        }
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", known[i]);
    }
    ax_json_error(v, "layer type \"%.40s\" is not one of %s", type, list);
    return AX_ERR_UNSUPPORTED;
}

enum ax_status ax_layer_slides(const struct ax_arch *a, struct ax_json c, int64_t layer, bool usual,
                               bool *slides) {
    static const char *const kinds[] = {"full_attention", "sliding_attention", NULL};
    int kind = usual;
    AX_TRY(ax_layer_kind(a, c, layer, kinds, &kind));
    *slides = kind;
    return AX_OK;
}

enum ax_status ax_query_growth_parse(struct ax_json c, int64_t usual,
                                     struct ax_rope_config *queries) {
    struct ax_json rope;
    AX_TRY(ax_rope_object(c, &rope));
    const struct ax_json beta = ax_json_get(rope, "llama_4_scaling_beta");
    AX_TRY(ax_json_f64_or(beta, 0, &queries->growth));
    if (!(queries->growth >= 0 && queries->growth <= 100))
        return ax_json_error(beta, "expected a number from 0 to 100, got %g", queries->growth);
    if (queries->growth == 0)
        return AX_OK;
    return ax_json_i64_or(ax_json_get(rope, "original_max_position_embeddings"), 1, INT32_MAX,
                          usual, &queries->period);
}

enum ax_status ax_window_parse(struct ax_json c, int64_t least, int64_t usual, int64_t *window) {
    const bool is_null = json_is_null(json_object_get(c.v, "sliding_window"));
    return ax_json_i64_or(ax_json_get(c, "sliding_window"), least, INT32_MAX, is_null ? 0 : usual,
                          window);
}

enum ax_status ax_layer_window(struct ax_arch *a, struct ax_json c, int64_t layer, bool usual,
                               int64_t window) {
    bool slides;
    AX_TRY(ax_layer_slides(a, c, layer, usual, &slides));
    a->layers[layer].window = slides ? window : 0;
    return AX_OK;
}

enum ax_status ax_layer_windows(struct ax_arch *a, struct ax_json c, int64_t period) {
    int64_t window;
    AX_TRY(ax_window_parse(c, 1, 4096, &window));
    for (int64_t i = 0; i < a->n_layers; i++) {
        bool slides;
        AX_TRY(ax_layer_slides(a, c, i, (i + 1) % period != 0, &slides));
        a->layers[i].window = slides ? window : 0;
        a->layers[i].rope = slides && a->rope_local.dim > 0 ? AX_ROPE_LOCAL : AX_ROPE_MAIN;
    }
    return AX_OK;
}

/* The last of the first n layers that has the rope of layer l; −1: none. */
static int64_t lender_of(const struct ax_arch *a, int64_t n, const struct ax_layer_spec *l) {
    while (--n >= 0 && a->layers[n].rope != l->rope)
        ;
    return n;
}

enum ax_status ax_kv_sharing_parse(struct ax_arch *a, struct ax_json c, int64_t usual) {
    const struct ax_json v = ax_json_get(c, "num_kv_shared_layers");
    int64_t n;
    AX_TRY(ax_json_i64_or(v, 0, a->n_layers - 1, usual, &n));
    if (n >= a->n_layers)
        return ax_json_error(c,
                             "without num_kv_shared_layers, %lld layers use keys and values of "
                             "earlier ones; there are %lld layers",
                             (long long)n, (long long)a->n_layers);
    for (int64_t i = a->n_layers - n; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        l->source = lender_of(a, a->n_layers - n, l);
        if (l->source < 0)
            return ax_json_error(v,
                                 "layer %lld has no earlier layer of its kind with keys and values",
                                 (long long)i);
        struct ax_layer_spec *lender = &a->layers[l->source];
        if (l->kv_heads != lender->kv_heads)
            return ax_json_error(
                v, "layer %lld has %lld KV heads, layer %lld, whose keys it uses, %lld",
                (long long)i, (long long)l->kv_heads, (long long)l->source,
                (long long)lender->kv_heads);
        l->borrows = lender->lends = true;
    }
    return AX_OK;
}

enum ax_status ax_delta_parse(struct ax_arch *a, struct ax_json c, struct ax_delta_config usual) {
    struct ax_delta_config *d = &a->delta;
    const struct ax_json keys = ax_json_get(c, "linear_num_key_heads"),
                         values = ax_json_get(c, "linear_num_value_heads");
    *d = (struct ax_delta_config){.beta_scale = 1, .norm_eps = a->norm_eps};
    AX_TRY(ax_field_only(c, "hidden_act", "silu")); /* also of convolutions and gates */
    AX_TRY(ax_json_i64_or(keys, 1, 65536, usual.key_heads, &d->key_heads));
    AX_TRY(ax_json_i64_or(values, 1, 65536, usual.value_heads, &d->value_heads));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "linear_key_head_dim"), 1, MAX_DELTA_DIM, usual.key_dim,
                          &d->key_dim));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "linear_value_head_dim"), 1, MAX_DELTA_DIM,
                          usual.value_dim, &d->value_dim));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "linear_conv_kernel_dim"), 2, AX_CONV_TAPS, 4,
                          &a->conv.taps));
    if (d->key_dim < 1 || d->key_dim > MAX_DELTA_DIM || d->value_dim < 1 ||
        d->value_dim > MAX_DELTA_DIM)
        return ax_json_error(
            c,
            "without linear_key_head_dim and linear_value_head_dim, heads have %lld and %lld "
            "elements; 1 to %d are supported",
            (long long)d->key_dim, (long long)d->value_dim, MAX_DELTA_DIM);
    if (d->value_heads % d->key_heads == 0)
        return AX_OK;
    return ax_json_error(values.v ? values : keys, "%lld key heads do not divide %lld value heads",
                         (long long)d->key_heads, (long long)d->value_heads);
}
