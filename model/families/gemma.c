/* Gemma (Gemma Team 2024): norms x̂·(1 + w), a GELU gate, embeddings times √hidden_size. Gemma 2 (2024) and Gemma 3
 * (2025), the text models: norms also behind both parts, windows in some layers. Gemma 2 caps scores and logits, and so
 * does VaultGemma (2025), without the norms behind; Gemma 3 norms q and k instead, and its sliding layers have a rope
 * base of their own. */
#include <math.h>
#include <string.h>

#include "model/arch/family.h"

static enum ax_status refuse_bidirectional(struct ax_json c) {
    bool both;
    const struct ax_json v = ax_json_get(c, "use_bidirectional_attention");
    AX_TRY(ax_json_bool_or(v, false, &both));
    if (!both)
        return AX_OK;
    ax_json_error(v, "attention to later tokens is not implemented");
    return AX_ERR_UNSUPPORTED;
}

/* What all of them share. */
static enum ax_status basics(struct ax_arch *a, struct ax_json c) {
    AX_TRY(refuse_bidirectional(c));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_attention_bias_parse(a, c));
    a->norm = (struct ax_norm_style){.offset = 1, .once = true};
    a->embedding_scale = (double)(float)sqrt((double)a->hidden_size);
    a->embedding_scale_rounded = true;
    return AX_OK;
}

/* Old configs name the exact GELU and mean this one, as transformers knows. */
static enum ax_status parse_gemma(struct ax_arch *a, struct ax_json c) {
    const char *act = json_string_value(json_object_get(c.v, "hidden_act"));
    AX_TRY(basics(a, c));
    a->gating.gate = AX_GATE_GELU;
    return act && strcmp(act, "gelu") == 0
               ? AX_OK
               : ax_activation_parse(a, c, "hidden_act", "gelu_pytorch_tanh");
}

/* From Gemma 2 on; `behind`: norms behind the parts, too. */
static enum ax_status common(struct ax_arch *a, struct ax_json c, bool behind) {
    double scalar;
    const struct ax_json v = ax_json_get(c, "query_pre_attn_scalar");
    AX_TRY(basics(a, c));
    AX_TRY(ax_json_f64_or(v, 256, &scalar));
    if (!(scalar > 0 && scalar < 1e30))
        return ax_json_error(v, "expected a positive number, got %g", scalar);
    a->softmax_scale = 1 / sqrt(scalar);
    for (int64_t i = 0; i < a->n_layers; i++) {
        struct ax_layer_spec *l = &a->layers[i];
        l->ffn_norms.in = "model.layers.%d.pre_feedforward_layernorm.weight";
        if (!behind)
            continue;
        l->mixer_norms.out = "model.layers.%d.post_attention_layernorm.weight";
        l->ffn_norms.out = "model.layers.%d.post_feedforward_layernorm.weight";
    }
    return ax_activation_parse(a, c, "hidden_activation", "gelu_pytorch_tanh");
}

static enum ax_status capped(struct ax_arch *a, struct ax_json c, bool behind) {
    AX_TRY(common(a, c, behind));
    AX_TRY(ax_cap_parse(c, "attn_logit_softcapping", 50, &a->score_softcap));
    AX_TRY(ax_cap_parse(c, "final_logit_softcapping", 30, &a->logit_softcap));
    return ax_layer_windows(a, c, 2);
}

static enum ax_status parse_gemma2(struct ax_arch *a, struct ax_json c) {
    return capped(a, c, true);
}

static enum ax_status parse_vaultgemma(struct ax_arch *a, struct ax_json c) {
    return capped(a, c, false);
}

/* transformers 5 has an object for each kind of layer in rope_parameters. */
enum ax_status ax_gemma_ropes_parse(struct ax_arch *a, struct ax_json c) {
    const struct ax_json all = ax_json_get(c, "rope_parameters");
    const struct ax_json full = ax_json_get(all, "full_attention"),
                         sliding = ax_json_get(all, "sliding_attention");
    double theta;
    if (full.v)
        AX_TRY(ax_rope_parse_object(&a->rope, c, full, (struct ax_rope_usual){.theta = 1e6},
                                    a->head_dim, a->max_positions));
    else
        AX_TRY(ax_rope_parse_object(&a->rope, c, ax_json_get(c, "rope_scaling"),
                                    (struct ax_rope_usual){.theta = 1e6}, a->head_dim,
                                    a->max_positions));
    if (sliding.v)
        return ax_rope_parse_object(&a->rope_local, c, sliding, (struct ax_rope_usual){0},
                                    a->head_dim, a->max_positions);
    const struct ax_json base = ax_json_get(c, "rope_local_base_freq");
    AX_TRY(ax_json_f64_or(base, 1e4, &theta));
    if (!(theta > 1 && theta <= 1e30))
        return ax_json_error(base, "expected a number above 1 and at most 1e30, got %g", theta);
    a->rope_local = (struct ax_rope_config){.dim = a->rope.dim,
                                            .max_positions = a->max_positions,
                                            .theta = theta,
                                            .factor = 1,
                                            .truncate = true};
    return AX_OK;
}

static enum ax_status parse_gemma3(struct ax_arch *a, struct ax_json c) {
    int64_t period;
    struct ax_json v = ax_json_get(c, "sliding_window_pattern");
    if (!v.v)
        v = ax_json_get(c, "_sliding_window_pattern");
    AX_TRY(common(a, c, true));
    AX_TRY(ax_cap_parse(c, "final_logit_softcapping", 0, &a->logit_softcap));
    AX_TRY(ax_json_i64_or(v, 1, INT32_MAX, 6, &period));
    AX_TRY(ax_gemma_ropes_parse(a, c));
    a->qk_norm = AX_QK_NORM_HEAD;
    return ax_layer_windows(a, c, period);
}

const struct ax_family ax_family_gemma = {.model_type = "gemma",
                                          .models = "Gemma 1, CodeGemma",
                                          .architecture = "GemmaForCausalLM",
                                          .head_dim = 256,
                                          .own_act = "gelu",
                                          .parse = parse_gemma};
const struct ax_family ax_family_gemma2 = {.model_type = "gemma2",
                                           .models = "Gemma 2",
                                           .architecture = "Gemma2ForCausalLM",
                                           .head_dim = 256,
                                           .parse = parse_gemma2};
const struct ax_family ax_family_gemma3 = {.model_type = "gemma3_text",
                                           .models = "Gemma 3",
                                           .architecture = "Gemma3ForCausalLM",
                                           .classifier = "Gemma3Text",
                                           .head_dim = 256,
                                           .parse = parse_gemma3};
const struct ax_family ax_family_vaultgemma = {.model_type = "vaultgemma",
                                               .models = "VaultGemma",
                                               .lacks = "GGUF",
                                               .architecture = "VaultGemmaForCausalLM",
                                               .head_dim = 256,
                                               .parse = parse_vaultgemma};
