/* Llama 1, 2, 3.x and other models in their format (SmolLM2, TinyLlama, …). */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool attention_bias;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &attention_bias));
    a->qkv_bias = a->o_bias = attention_bias;
    return ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias);
}

const struct ax_family ax_family_llama = {
    .model_type = "llama",
    .models = "Llama 2 and 3, SmolLM2, and what else is built like them",
    .architecture = "LlamaForCausalLM",
    .parse = parse};
