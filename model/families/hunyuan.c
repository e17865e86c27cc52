/* Hunyuan (Tencent 2025), dense: Llama with norms of each head's q and k after rope. */
#include <math.h>

#include "model/arch/family.h"

/* A "dynamic" rope with alpha is one with another base, whatever the length. */
static enum ax_status rope(struct ax_arch *a, struct ax_json c) {
    struct ax_json all;
    double alpha;
    AX_TRY(ax_rope_object(c, &all));
    const struct ax_json v = ax_json_get(all, "alpha");
    AX_TRY(ax_json_f64_or(v, 1, &alpha));
    if (!(alpha >= 1 && alpha < 1e9))
        return ax_json_error(v, "expected a number from 1 to 1e9, got %g", alpha);
    if (a->rope.kind != AX_ROPE_DYNAMIC || !v.v)
        return AX_OK;
    const double d = (double)a->rope.dim;
    a->rope.kind = AX_ROPE_DEFAULT;
    a->rope.theta *= pow(alpha, d / (d - 2));
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    bool bias;
    AX_TRY(rope(a, c));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "rms_norm_eps"), 1e-5, &a->norm_eps));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), false, &bias));
    a->qkv_bias = a->o_bias = bias;
    a->qk_norm = AX_QK_NORM_HEAD;
    a->qk_norm_after = true;
    a->q_norm = "model.layers.%d.self_attn.query_layernorm.weight";
    a->k_norm = "model.layers.%d.self_attn.key_layernorm.weight";
    return AX_OK;
}

const struct ax_family ax_family_hunyuan_v1_dense = {.model_type = "hunyuan_v1_dense",
                                                     .models = "Hunyuan 0.5B to 7B",
                                                     .architecture = "HunYuanDenseV1ForCausalLM",
                                                     .parse = parse};
