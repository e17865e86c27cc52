/* Command R (Cohere 2024) and Command R7B/A (2025): Llama with LayerNorm, attention and MLP that read one normed input,
 * tied embeddings, scaled logits, and rope on neighboring pairs. In the newer kind three layers of four have a window,
 * and the fourth has no rope. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    const struct ax_json eps = ax_json_get(c, "layer_norm_eps"),
                         scale = ax_json_get(c, "logit_scale");
    a->rope.interleaved = true;
    AX_TRY(ax_json_f64_or(eps, 1e-5, &a->norm_eps));
    if (!(a->norm_eps > 0))
        return ax_json_error(eps, "expected a positive number, got %g", a->norm_eps);
    AX_TRY(ax_json_f64_or(scale, 0.0625, &a->logit_scale));
    if (!(a->logit_scale > 0 && a->logit_scale < 1e30))
        return ax_json_error(scale, "expected a positive number, got %g", a->logit_scale);
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_attention_bias_parse(a, c));
    AX_TRY(ax_field_only_bool(c, "use_qk_norm", false)); /* a weight for each head */
    a->norm.centers = a->norm.once = true;
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].parallel = true;
        a->layers[i].ffn_norms.in = NULL;
    }
    return AX_OK;
}

static enum ax_status parse2(struct ax_arch *a, struct ax_json c) {
    int64_t period;
    AX_TRY(parse(a, c));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window_pattern"), 1, INT32_MAX, 4, &period));
    AX_TRY(ax_layer_windows(a, c, period));
    for (int64_t i = 0; i < a->n_layers; i++)
        if (a->layers[i].window == 0)
            a->layers[i].rope = AX_ROPE_NONE;
    return AX_OK;
}

const struct ax_family ax_family_cohere = {.model_type = "cohere",
                                           .models = "Command R, Command R+",
                                           .architecture = "CohereForCausalLM",
                                           .rope.theta = 5e5,
                                           .parse = parse};
const struct ax_family ax_family_cohere2 = {.model_type = "cohere2",
                                            .models = "Command R7B, Command A",
                                            .architecture = "Cohere2ForCausalLM",
                                            .parse = parse2};
