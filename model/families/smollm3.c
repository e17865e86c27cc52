/* SmolLM3 (Hugging Face 2025): Llama with tied embeddings, and without rope in some layers. */
#include "model/arch/family.h"

/* no_rope_layers: one number per layer, 0 for one without rope, despite the name; without the list
 * every no_rope_layer_interval-th layer is. */
static enum ax_status ropes(struct ax_arch *a, struct ax_json c) {
    const struct ax_json list = ax_json_get(c, "no_rope_layers");
    int64_t interval, rope;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "no_rope_layer_interval"), 1, INT32_MAX, 4, &interval));
    if (list.v)
        AX_TRY(ax_check_per_layer(a, list, ax_json_size(list)));
    for (int64_t i = 0; i < a->n_layers; i++) {
        rope = (i + 1) % interval != 0;
        if (list.v)
            AX_TRY(ax_json_i64(ax_json_at(list, (size_t)i), 0, 1, &rope));
        a->layers[i].rope = rope ? AX_ROPE_MAIN : AX_ROPE_NONE;
    }
    return AX_OK;
}

/* In layers without rope, unless layer_types says otherwise. */
static enum ax_status windows(struct ax_arch *a, struct ax_json c) {
    bool use;
    int64_t window;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_sliding_window"), false, &use));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 0, &window));
    for (int64_t i = 0; i < a->n_layers; i++) {
        bool slides;
        AX_TRY(ax_layer_slides(a, c, i, a->layers[i].rope == AX_ROPE_NONE, &slides));
        a->layers[i].window = use && slides ? window : 0;
    }
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_attention_bias_parse(a, c));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias));
    AX_TRY(ropes(a, c));
    return windows(a, c);
}

const struct ax_family ax_family_smollm3 = {.model_type = "smollm3",
                                            .models = "SmolLM3",
                                            .architecture = "SmolLM3ForCausalLM",
                                            .rope.theta = 2e6,
                                            .parse = parse};
