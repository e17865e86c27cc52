/* Phi-3 and Phi-4 (Microsoft 2024): Llama with q, k and v in one matrix, gate and up in another, and
 * in long-context models with longrope. */
#include "model/arch/family.h"

/* Dropout of embeddings and branches in training; published models have none. */
static enum ax_status refuse_dropout(struct ax_json c, const char *key) {
    double p;
    const struct ax_json v = ax_json_get(c, key);
    AX_TRY(ax_json_f64_or(v, 0, &p));
    if (p == 0)
        return AX_OK;
    ax_json_error(v, "dropout %g is not implemented; set it to 0", p);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    int64_t window;
    AX_TRY(refuse_dropout(c, "resid_pdrop"));
    AX_TRY(refuse_dropout(c, "embd_pdrop"));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 0, &window));
    for (int64_t i = 0; i < a->n_layers; i++)
        a->layers[i].window = window;
    a->fused_qkv = a->fused_gate_up = true;
    return AX_OK;
}

const struct ax_family ax_family_phi3 = {.model_type = "phi3",
                                         .models = "Phi-3, Phi-4",
                                         .architecture = "Phi3ForCausalLM",
                                         .rope.part = 1,
                                         .parse = parse};
