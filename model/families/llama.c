/* Llama 1, 2, 3.x and other models in their format (SmolLM2, TinyLlama, InternLM 3, …). Arcee (2025): Llama whose MLPs have
 * no gate; Helium (Kyutai 2025): with rope on neighboring pairs; CWM (Meta 2025): with windows in three of four layers. */
#include "model/arch/family.h"

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_attention_bias_parse(a, c));
    return ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias);
}

static enum ax_status parse_arcee(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_field_only(c, "hidden_act", "relu2"));
    a->ungated = true;
    return parse(a, c);
}

static enum ax_status parse_helium(struct ax_arch *a, struct ax_json c) {
    a->norm.once = true;
    a->rope.interleaved = true;
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-8));
    AX_TRY(ax_field_only_bool(c, "mlp_bias", false));
    return ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &a->qkv_bias);
}

static enum ax_status parse_cwm(struct ax_arch *a, struct ax_json c) {
    int64_t window;
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_window_parse(c, 0, 8192, &window)); /* 0: none */
    for (int64_t i = 0; i < a->n_layers; i++)
        AX_TRY(ax_layer_window(a, c, i, i % 4 != 0, window));
    return ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias);
}

static enum ax_status parse_iquest(struct ax_arch *a, struct ax_json c) {
    AX_TRY(ax_refuse_clip(c));
    AX_TRY(ax_field_only_bool(c, "use_sliding_window", false));
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    return parse(a, c);
}

/* Its own code calls the biases qkv_bias and bias. */
static enum ax_status parse_internlm(struct ax_arch *a, struct ax_json c) {
    bool attention, mlp;
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(parse(a, c));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "qkv_bias"), a->qkv_bias, &attention));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "bias"), a->mlp_bias, &mlp));
    a->qkv_bias = a->o_bias = attention;
    a->mlp_bias = mlp;
    if (attention == mlp)
        return AX_OK;
    ax_json_error(c, "biases of attention or of MLPs alone are not implemented in this family");
    return AX_ERR_UNSUPPORTED;
}

const struct ax_family ax_family_llama = {
    .model_type = "llama",
    .models = "Llama 2 and 3, SmolLM2, and what else is built like them",
    .architecture = "LlamaForCausalLM",
    .parse = parse};
const struct ax_family ax_family_arcee = {.model_type = "arcee",
                                          .models = "Arcee AFM-4.5B",
                                          .architecture = "ArceeForCausalLM",
                                          .own_act = "relu2",
                                          .parse = parse_arcee};
const struct ax_family ax_family_helium = {.model_type = "helium",
                                           .models = "Helium 1",
                                           .lacks = "GGUF",
                                           .architecture = "HeliumForCausalLM",
                                           .head_dim = 128,
                                           .rope.theta = 1e5,
                                           .parse = parse_helium};
const struct ax_family ax_family_cwm = {
    .model_type = "cwm",
    .models = "Code World Model",
    .lacks = "GGUF",
    .architecture = "CwmForCausalLM",
    .head_dim = 128,
    .rope.parameters = "{\"rope_type\": \"llama3\", \"rope_theta\": 1000000.0, "
                       "\"factor\": 16.0, \"high_freq_factor\": 4.0, "
                       "\"low_freq_factor\": 1.0, "
                       "\"original_max_position_embeddings\": 8192}",
    .parse = parse_cwm};
const struct ax_family ax_family_iquestcoder = {.model_type = "iquestcoder",
                                                .models = "IQuest-Coder",
                                                .lacks = "GGUF",
                                                .architecture = "IQuestCoderForCausalLM",
                                                .head_dim = 128,
                                                .parse = parse_iquest};
const struct ax_family ax_family_internlm3 = {.model_type = "internlm3",
                                              .models = "InternLM 3",
                                              .lacks = "GGUF",
                                              .architecture = "InternLM3ForCausalLM",
                                              .head_dim = 128,
                                              .parse = parse_internlm};
