/* OLMo 3 (Ai2 2025): OLMo 2 with a window in all but every fourth layer; only the others' rope is scaled. */
#include "model/arch/family.h"

/* transformers 5 has an object for each kind of layer in rope_parameters. */
static enum ax_status ropes(struct ax_arch *a, struct ax_json c) {
    const struct ax_json all = ax_json_get(c, "rope_parameters");
    struct ax_json full = ax_json_get(all, "full_attention");
    if (!full.v)
        full = ax_json_get(c, "rope_scaling");
    AX_TRY(ax_rope_parse_object(&a->rope, c, full, a->family->rope, a->head_dim, a->max_positions));
    return ax_rope_parse_object(&a->rope_local, c, ax_json_get(all, "sliding_attention"),
                                a->family->rope, a->head_dim, a->max_positions);
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_family_olmo2.parse(a, c));
    AX_TRY(ropes(a, c));
    return ax_layer_windows(a, c, 4);
}

const struct ax_family ax_family_olmo3 = {.model_type = "olmo3",
                                          .models = "OLMo 3",
                                          .lacks = "GGUF",
                                          .architecture = "Olmo3ForCausalLM",
                                          .rope.theta = 5e5,
                                          .parse = parse};
