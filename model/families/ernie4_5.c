/* ERNIE 4.5 (Baidu 2025), dense: Llama with rope on neighboring pairs, and perhaps biases everywhere. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool bias;
    AX_TRY(ax_rope_parse_usual(&a->rope, c, 5e5, a->head_dim, a->max_positions));
    a->rope.interleaved = true;
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "tie_word_embeddings"), true, &a->tied));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "use_bias"), false, &bias));
    a->qkv_bias = a->o_bias = a->mlp_bias = bias;
    return AX_OK;
}

const struct ax_family ax_family_ernie4_5 = {.model_type = "ernie4_5",
                                             .architecture = "Ernie4_5ForCausalLM",
                                             .head_dim = 128,
                                             .parse = parse};
