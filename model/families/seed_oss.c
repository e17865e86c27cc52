/* Seed-OSS (ByteDance 2025): Llama with biases on q, k and v. Its published configs have dropouts of 0.1, with which
 * transformers trains; they act nowhere here, as in most trainings of these models, and that is said. */
#include "base/log.h"
#include "model/arch/family.h"

static enum ax_status say_dropout(struct ax_json c, const char *key) {
    double p;
    const struct ax_json v = ax_json_get(c, key);
    AX_TRY(ax_json_f64_or(v, 0, &p));
    if (!(p >= 0 && p < 1))
        return ax_json_error(v, "expected a number from 0 to below 1, got %g", p);
    if (p > 0)
        ax_log_info("seed_oss: %s %g in config.json is not applied", key, p);
    return AX_OK;
}

static enum ax_status parse(struct ax_arch *a, struct ax_json c) {
    AX_TRY(say_dropout(c, "attention_dropout"));
    AX_TRY(say_dropout(c, "residual_dropout"));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_bias"), true, &a->qkv_bias));
    AX_TRY(ax_json_bool_or(ax_json_get(c, "attention_out_bias"), false, &a->o_bias));
    return ax_json_bool_or(ax_json_get(c, "mlp_bias"), false, &a->mlp_bias);
}

const struct ax_family ax_family_seed_oss = {
    .model_type = "seed_oss",
    .models = "Seed-OSS-36B",
    .architecture = "SeedOssForCausalLM",
    .head_dim = 128,
    .parse = parse,
    .has_dropout = true,
};
