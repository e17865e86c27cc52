/* Mixtral: Mistral with a mixture of experts in every layer. */
#include "model/arch/family.h"
#include "model/arch/part.h"

#define MAX_EXPERTS 4096

/* The balancing loss is trained only if the config sets output_router_logits. */
static enum ax_status balance(struct ax_arch *a, struct ax_json c) {
    bool on;
    const double usual = a->family->balance > 0 ? a->family->balance : 0.001;
    const struct ax_json coef = ax_json_get(c, "router_aux_loss_coef");
    AX_TRY(ax_json_bool_or(ax_json_get(c, "output_router_logits"), false, &on));
    AX_TRY(ax_json_f64_or(coef, usual, &a->moe.balance_coef));
    if (a->moe.balance_coef < 0)
        return ax_json_error(coef, "expected 0 or more, got %g", a->moe.balance_coef);
    if (!on)
        a->moe.balance_coef = 0;
    return AX_OK;
}

enum ax_status ax_moe_parse(struct ax_arch *a, struct ax_json c, int64_t usual_experts,
                            int64_t usual_active) {
    struct ax_json experts = ax_json_get(c, "num_local_experts");
    if (!experts.v)
        experts = ax_json_get(c, "num_experts");
    const struct ax_json active = ax_json_get(c, "num_experts_per_tok");
    a->moe.routing.scale = 1;
    AX_TRY(ax_json_i64_or(experts, 1, MAX_EXPERTS, usual_experts, &a->moe.n_experts));
    AX_TRY(ax_json_i64_or(active, 1, MAX_EXPERTS, usual_active, &a->moe.n_active));
    if (a->moe.n_active > a->moe.n_experts)
        return ax_json_error(active.v ? active : experts,
                             "cannot route a token to %lld of %lld experts",
                             (long long)a->moe.n_active, (long long)a->moe.n_experts);
    return balance(a, c);
}

/* Noise on the router's input in training; no published model uses it. */
static enum ax_status refuse_jitter(struct ax_json c) {
    double jitter;
    const struct ax_json v = ax_json_get(c, "router_jitter_noise");
    AX_TRY(ax_json_f64_or(v, 0, &jitter));
    if (jitter == 0)
        return AX_OK;
    ax_json_error(v, "router jitter %g is not implemented; set it to 0", jitter);
    return AX_ERR_UNSUPPORTED;
}

static const struct ax_moe_names names = {
    .router = "model.layers.%d.block_sparse_moe.gate.weight",
    .experts = "model.layers.%d.block_sparse_moe.experts",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
};

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    int64_t window;
    AX_TRY(ax_norm_eps_parse(a, c, "rms_norm_eps", 1e-5));
    AX_TRY(ax_moe_parse(a, c, 8, 2));
    AX_TRY(refuse_jitter(c));
    a->moe.width = a->intermediate_size;
    a->moe.routing.renormalize = true;
    a->moe.names = &names;
    AX_TRY(ax_json_i64_or(ax_json_get(c, "sliding_window"), 1, INT32_MAX, 0, &window));
    for (int64_t i = 0; i < a->n_layers; i++) {
        a->layers[i].window = window;
        a->layers[i].ffn = &ax_ffn_moe;
    }
    return AX_OK;
}

const struct ax_family ax_family_mixtral = {.model_type = "mixtral",
                                            .models = "Mixtral 8x7B, 8x22B",
                                            .architecture = "MixtralForCausalLM",
                                            .rope.theta = 1e6,
                                            .parse = parse};
