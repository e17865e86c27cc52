/* Gemma 3n (2025), the text models: Gemma 4's norms, values, inputs of each layer and borrowed keys, in layers of several
 * streams (model/parts/altup.h) with a path of low rank beside attention (model/parts/laurel.c). In some layers, the few
 * largest gates of an MLP stay. */
#include <math.h>

#include "model/arch/family.h"

#define MAX_DIM (1LL << 24)

static enum ax_status kinds(struct ax_arch *a, struct ax_json c) {
    int64_t window;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 512, &window));
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        bool slides;
        AX_TRY(ax_layer_slides(a, c, i, (i + 1) % 5 != 0, &slides));
        l->mixer = &ax_mixer_laurel;
        l->window = slides ? window : 0;
        l->rope = slides ? AX_ROPE_LOCAL : AX_ROPE_MAIN;
        l->kv_heads = a->n_kv_heads;
        l->head_dim = a->head_dim;
        l->ffn_norms =
            (struct ax_norm_names){.in = "model.layers.%d.pre_feedforward_layernorm.weight",
                                   .out = "model.layers.%d.post_feedforward_layernorm.weight"};
        l->extra = &ax_extra_per_layer;
        l->extra_norms.out = "model.layers.%d.post_per_layer_input_norm.weight";
    }
    return AX_OK;
}

/* One width, or a list with one for each layer. */
static enum ax_status widths(struct ax_arch *a, struct ax_json c) {
    const struct ax_json v = ax_json_get(c, "intermediate_size");
    if (!json_is_array(v.v))
        return ax_json_i64_or(v, 1, MAX_DIM, 16384, &a->intermediate_size);
    AX_TRY(ax_check_per_layer(a, v, ax_json_size(v)));
    for (int64_t i = 0; i < a->n_layers; i++) {
        int64_t *width = &a->layers[i].width;
        AX_TRY(ax_json_i64(ax_json_at(v, (size_t)i), 1, MAX_DIM, width));
        a->intermediate_size = *width > a->intermediate_size ? *width : a->intermediate_size;
    }
    for (int64_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].width == a->intermediate_size)
            a->layers[i].width = 0;
    return AX_OK;
}

/* Φ⁻¹(s), by bisection: how many standard deviations above the mean a share s of normal numbers ends. */
static double quantile(double s) {
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        const double z = (low + high) / 2;
        *(0.5 * erfc(-z / sqrt(2)) < s ? &low : &high) = z;
    }
    return (low + high) / 2;
}

static enum ax_status sparsity(struct ax_arch *a, struct ax_json c) {
    const struct ax_json list = ax_json_get(c, "activation_sparsity_pattern");
    if (list.v)
        AX_TRY(ax_check_per_layer(a, list, ax_json_size(list)));
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_json v = ax_json_at(list, (size_t)i);
        double share = a->n_layers > 10 && i < 10 ? 0.95 : 0;
        if (list.v)
            AX_TRY(ax_json_f64(v, &share));
        if (!(share >= 0 && share < 1))
            return ax_json_error(v, "expected a share of at least 0 and below 1, got %g", share);
        a->layers[i].sparse = share > 0;
        a->layers[i].cut = share > 0 ? quantile(share) : 0;
    }
    return AX_OK;
}

/* Published models have coefficients far within their clip, which is a bound in training alone. */
static enum ax_status no_clip(struct ax_json c) {
    const struct ax_json v = ax_json_get(c, "altup_coef_clip");
    double clip;
    AX_TRY(ax_json_f64_or(v, 120, &clip));
    if (clip >= 100)
        return AX_OK;
    ax_json_error(v,
                  "clipping coefficients at %g is not implemented; expected at least 100, where "
                  "none is, or null",
                  clip);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status streams(struct ax_arch *a, struct ax_json c) {
    struct ax_streams_config *s = &a->streams;
    const struct ax_json active = ax_json_get(c, "altup_active_idx");
    AX_TRY(ax_json_i64_or(ax_json_get(c, "altup_num_inputs"), 2, AX_MAX_STREAMS, 4, &s->n));
    AX_TRY(ax_json_i64_or(active, 0, AX_MAX_STREAMS - 1, 0, &s->active));
    if (s->active >= s->n)
        return ax_json_error(active, "stream %lld of altup_num_inputs %lld: expected 0 to %lld",
                             (long long)s->active, (long long)s->n, (long long)s->n - 1);
    AX_TRY(ax_field_only_bool(c, "altup_correct_scale", true));
    AX_TRY(no_clip(c));
    return ax_json_i64_or(ax_json_get(c, "laurel_rank"), 1, a->hidden_size, 64, &a->laurel_rank);
}

static enum ax_status per_layer_inputs(struct ax_arch *a, struct ax_json c) {
    struct ax_per_layer_config *p = &a->per_layer;
    AX_TRY(
        ax_json_i64_or(ax_json_get(c, "hidden_size_per_layer_input"), 1, MAX_DIM, 256, &p->width));
    AX_TRY(
        ax_json_i64_or(ax_json_get(c, "vocab_size_per_layer_input"), 1, MAX_DIM, 262144, &p->rows));
    p->columns = a->n_layers * p->width;
    p->shares_first = true;
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_field_only_bool(c, "attention_bias", false));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_cap_parse(c, "final_logit_softcapping", 30, &a->logit_softcap));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "num_key_value_heads"), 1, 65536, 2, &a->n_kv_heads));
    if (a->n_heads % a->n_kv_heads != 0)
        return ax_json_error(c, "%lld KV heads do not divide %lld attention heads",
                             (long long)a->n_kv_heads, (long long)a->n_heads);
    a->softmax_scale = 1;
    a->norm.once = true;
    a->embedding_scale = (double)(float)sqrt((double)a->hidden_size);
    a->embedding_scale_rounded = true;
    a->middle_scale = sqrt(0.5);
    AX_TRY(ax_activation_parse(a, c, "hidden_activation", "gelu_pytorch_tanh"));
    AX_TRY(kinds(a, c));
    AX_TRY(ax_gemma_ropes_parse(a, c));
    AX_TRY(widths(a, c));
    AX_TRY(sparsity(a, c));
    AX_TRY(streams(a, c));
    AX_TRY(per_layer_inputs(a, c));
    return ax_kv_sharing_parse(a, c, 15);
}

const struct ax_family ax_family_gemma3n = {.model_type = "gemma3n_text",
                                            .models = "Gemma 3n",
                                            .architecture = "Gemma3nForCausalLM",
                                            .head_dim = 256,
                                            .own_width = true,
                                            .parse = parse};
