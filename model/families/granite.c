/* Granite 3 (IBM 2024): Llama with factors on the embedding, on what a branch adds and on the logits,
 * and a scale of scores of its own. */
#include "model/arch/family.h"

static enum ax_status positive(struct ax_json c, const char *key, double *out) {
    const struct ax_json v = ax_json_get(c, key);
    AX_TRY(ax_json_f64_or(v, 1, out));
    if (*out > 0 && *out < 1e30)
        return AX_OK;
    return ax_json_error(v, "expected a positive number, got %g", *out);
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool attention_bias;
    double divisor;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &attention_bias));
    a->qkv_bias = a->o_bias = attention_bias;
    AX_TRY(positive(c, "embedding_multiplier", &a->embedding_scale));
    AX_TRY(positive(c, "attention_multiplier", &a->softmax_scale));
    AX_TRY(positive(c, "residual_multiplier", &a->residual_scale));
    AX_TRY(positive(c, "logits_scaling", &divisor));
    a->logit_scale = 1 / divisor;
    return ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias);
}

const struct ax_family ax_family_granite = {
    .model_type = "granite", .architecture = "GraniteForCausalLM", .parse = parse};
