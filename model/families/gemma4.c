/* Gemma 4 (2026), the text models: norms x̂·w before and after both parts, values normed too, a GELU gate, embeddings
 * times √hidden_size, windows in most layers. Full layers have heads of another size and a rope whose first pairs alone
 * turn. Of the last layers, some use the keys and values of earlier ones; the small models have inputs of each layer,
 * the mixture has experts beside every MLP. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/arch/family.h"

#define MAX_DIM      (1LL << 24)
#define MAX_HEAD_DIM 2048
#define MAX_EXPERTS  4096

enum { SLIDING, FULL };

/* "all" is for encoders; "vision" is about the tokens of images. */
static enum ax_status refuse_bidirectional(struct ax_json c) {
    const struct ax_json v = ax_json_get(c, "use_bidirectional_attention");
    const char *word;
    AX_TRY(ax_json_str_or(v, "vision", &word));
    return v.v ? ax_field_only(c, "use_bidirectional_attention", "vision") : AX_OK;
}

/* ---- kinds of layers ---- */

static enum ax_status kinds(struct ax_arch *a, struct ax_json c) {
    static const char *const known[] = {"sliding_attention", "full_attention", NULL};
    int64_t window;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 512, &window));
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        int kind = (i + 1) % 6 == 0 ? FULL : SLIDING;
        AX_TRY(ax_layer_kind(a, c, i, known, &kind));
        if (i == a->n_layers - 1) /* whatever the list says */
            kind = FULL;
        l->mixer = &ax_mixer_lending;
        l->window = kind == FULL ? 0 : window;
        l->rope = kind == FULL ? AX_ROPE_MAIN : AX_ROPE_LOCAL;
        l->kv_heads = a->n_kv_heads;
        l->head_dim = a->head_dim;
    }
    return AX_OK;
}

static bool is_full(const struct ax_layer_spec *l) {
    return l->rope == AX_ROPE_MAIN;
}

/* ---- heads: global_* in published files, per_layer_config as transformers 5 saves it ---- */

static enum ax_status global_heads(struct ax_arch *a, struct ax_json c) {
    int64_t head_dim, kv_heads = a->n_kv_heads;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "global_head_dim"), 1, MAX_HEAD_DIM, 512, &head_dim));
    if (a->layers[a->n_layers - 1].values_of_keys)
        AX_TRY(ax_json_i64_or(ax_json_get(c, "num_global_key_value_heads"), 1, 65536, kv_heads,
                              &kv_heads));
    for (int64_t i = 0; i < a->n_layers; i++)
        if (is_full(&a->layers[i])) {
            a->layers[i].head_dim = head_dim;
            a->layers[i].kv_heads = kv_heads;
        }
    return AX_OK;
}

static enum ax_status heads_of_layer(struct ax_arch *a, struct ax_json all, const char *key) {
    const struct ax_json own = ax_json_get(all, key);
    const char *member;
    json_t *value;
    char *end;
    const long long layer = strtoll(key, &end, 10);
    if (end == key || *end || layer < 0 || layer >= a->n_layers || !json_is_object(own.v))
        return ax_json_error(all, "expected an object for each layer from 0 to %lld, got \"%.40s\"",
                             (long long)a->n_layers - 1, key);
    struct ax_layer_spec *l = &a->layers[layer];
    AX_TRY(
        ax_json_i64_or(ax_json_get(own, "head_dim"), 1, MAX_HEAD_DIM, l->head_dim, &l->head_dim));
    AX_TRY(ax_json_i64_or(ax_json_get(own, "num_key_value_heads"), 1, 65536, l->kv_heads,
                          &l->kv_heads));
    json_object_foreach((json_t *)(uintptr_t)own.v, member, value) {
        if (strcmp(member, "head_dim") == 0 || strcmp(member, "num_key_value_heads") == 0)
            continue;
        ax_json_error(ax_json_get(own, member), "is not implemented for single layers");
        return AX_ERR_UNSUPPORTED;
    }
    return AX_OK;
}

static enum ax_status heads(struct ax_arch *a, struct ax_json c) {
    const struct ax_json own = ax_json_get(c, "per_layer_config");
    const char *key;
    json_t *value;
    if (!own.v) {
        AX_TRY(global_heads(a, c));
    } else {
        json_object_foreach((json_t *)(uintptr_t)own.v, key, value)
            AX_TRY(heads_of_layer(a, own, key));
    }
    for (int64_t i = 0; i < a->n_layers; i++)
        if (a->n_heads % a->layers[i].kv_heads != 0)
            return ax_json_error(own.v ? own : ax_json_get(c, "num_global_key_value_heads"),
                                 "%lld KV heads of layer %lld do not divide %lld attention heads",
                                 (long long)a->layers[i].kv_heads, (long long)i,
                                 (long long)a->n_heads);
    return AX_OK;
}

/* A kind of layers has one rope, and so heads of one size. */
static enum ax_status ropes(struct ax_arch *a, struct ax_json c) {
    const struct ax_json all = ax_json_get(c, "rope_parameters");
    const struct ax_json full = ax_json_get(all, "full_attention"),
                         sliding = ax_json_get(all, "sliding_attention");
    int64_t dim[] = {[SLIDING] = a->head_dim, [FULL] = a->head_dim};
    for (int64_t i = 0; i < a->n_layers; i++)
        dim[is_full(&a->layers[i])] = a->layers[i].head_dim;
    for (int64_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].head_dim != dim[is_full(&a->layers[i])]) {
            ax_json_error(ax_json_get(c, "per_layer_config"),
                          "heads of %lld in layer %lld, of %lld in another of its kind: layers of "
                          "a kind have one rope",
                          (long long)a->layers[i].head_dim, (long long)i,
                          (long long)dim[is_full(&a->layers[i])]);
            return AX_ERR_UNSUPPORTED;
        }
    AX_TRY(ax_rope_parse_object(&a->rope_local, c, sliding, (struct ax_rope_usual){0}, dim[SLIDING],
                                a->max_positions));
    AX_TRY(ax_rope_parse_object(&a->rope, c, full, (struct ax_rope_usual){.theta = 1e6}, dim[FULL],
                                a->max_positions));
    if (!full.v) { /* proportional */
        a->rope.kind = AX_ROPE_PROPORTIONAL;
        a->rope.turning = dim[FULL] / 8;
    }
    return AX_OK;
}

/* ---- the last layers, which may use keys and values of earlier ones ---- */

static enum ax_status sharing(struct ax_arch *a, struct ax_json c) {
    bool wide;
    AX_TRY(ax_kv_sharing_parse(a, c, 0));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_double_wide_mlp"), false, &wide));
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        if (!l->borrows)
            continue;
        l->values_of_keys = false;
        l->width = wide ? 2 * a->intermediate_size : 0;
    }
    return AX_OK;
}

/* ---- what a layer has besides ---- */

static enum ax_status per_layer_inputs(struct ax_arch *a, struct ax_json c) {
    struct ax_per_layer_config *p = &a->per_layer;
    const struct ax_json rows = ax_json_get(c, "vocab_size_per_layer_input");
    AX_TRY(
        ax_json_i64_or(ax_json_get(c, "hidden_size_per_layer_input"), 0, MAX_DIM, 256, &p->width));
    if (p->width == 0)
        return AX_OK;
    AX_TRY(ax_json_i64_or(rows, 1, MAX_DIM, 262144, &p->rows));
    if (p->rows < a->vocab_size)
        return ax_json_error(rows, "%lld rows are fewer than the %lld of vocab_size",
                             (long long)p->rows, (long long)a->vocab_size);
    p->columns = a->n_layers * p->width;
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].extra = &ax_extra_per_layer;
        a->layers[i].extra_norms.out = "model.layers.%d.post_per_layer_input_norm.weight";
    }
    return AX_OK;
}

static const struct ax_moe_names names = {
    .router = "model.layers.%d.router.proj.weight",
    .experts = "model.layers.%d.experts",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .expert_scale = "model.layers.%d.router.per_expert_scale",
    .module = "experts",
};
static const struct ax_moe_stacked stacked = {
    .gate_up = "model.layers.%d.experts.gate_up_proj",
    .down = "model.layers.%d.experts.down_proj",
    .out_first = true,
};

static enum ax_status mixture(struct ax_arch *a, struct ax_json c) {
    struct ax_moe_config *m = &a->moe;
    const struct ax_json active = ax_json_get(c, "top_k_experts");
    bool on;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "enable_moe_block"), false, &on));
    if (!on)
        return AX_OK;
    AX_TRY(ax_json_i64(ax_json_get(c, "num_experts"), 1, MAX_EXPERTS, &m->n_experts));
    AX_TRY(ax_json_i64(active, 1, MAX_EXPERTS, &m->n_active));
    AX_TRY(ax_json_i64(ax_json_get(c, "moe_intermediate_size"), 1, MAX_DIM, &m->width));
    if (m->n_active > m->n_experts)
        return ax_json_error(active, "cannot route a token to %lld of %lld experts",
                             (long long)m->n_active, (long long)m->n_experts);
    m->routing.renormalize = true;
    m->routing.scale = 1;
    m->names = &names;
    m->stacked = &stacked;
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].ffn = &ax_ffn_moe_beside;
        a->layers[i].ffn_norms.in = NULL; /* the part has its own */
    }
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool of_keys;
    AX_TRY(refuse_bidirectional(c));
    AX_TRY(ax_field_only_bool(c, "attention_bias", false));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_cap_parse(c, "final_logit_softcapping", 0, &a->logit_softcap));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "num_key_value_heads"), 1, 65536, 4, &a->n_kv_heads));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_k_eq_v"), false, &of_keys));
    a->softmax_scale = 1;
    a->norm.once = true;
    a->embedding_scale = (double)(float)sqrt((double)a->hidden_size);
    a->embedding_scale_rounded = true;
    a->layer_scale = "model.layers.%d.layer_scalar";
    AX_TRY(ax_activation_parse(a, c, "hidden_activation", "gelu_pytorch_tanh"));
    AX_TRY(kinds(a, c));
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        l->mixer_norms.out = "model.layers.%d.post_attention_layernorm.weight";
        l->ffn_norms =
            (struct ax_norm_names){.in = "model.layers.%d.pre_feedforward_layernorm.weight",
                                   .out = "model.layers.%d.post_feedforward_layernorm.weight"};
        l->values_of_keys = of_keys && is_full(l);
    }
    AX_TRY(heads(a, c));
    AX_TRY(ropes(a, c));
    AX_TRY(sharing(a, c));
    AX_TRY(per_layer_inputs(a, c));
    return mixture(a, c);
}

const struct ax_family ax_family_gemma4 = {.model_type = "gemma4_text",
                                           .models = "Gemma 4",
                                           .architecture = "Gemma4ForCausalLM",
                                           .head_dim = 256,
                                           .parse = parse};
