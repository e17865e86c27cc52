/* grpo, gdpo and ppo: the keys of their losses. */
#include <string.h>

#include "cmd/train/method.h"

bool ax_setup_samples_answers(const struct ax_config *cfg) {
    return ax_config_holds(cfg, "rl == grpo,gdpo,ppo");
}

bool ax_setup_is_ppo(const struct ax_config *cfg) {
    return ax_config_holds(cfg, "rl == ppo");
}

const char *ax_setup_answer_key(const struct ax_config *cfg) {
    return ax_setup_is_ppo(cfg) ? "ppo.response_length" : "trl.max_completion_length";
}

void ax_setup_read_sampling(struct ax_sampling *s, const struct ax_config *cfg) {
    const char *temperature = ax_setup_is_ppo(cfg) ? "ppo.temperature" : "trl.temperature";
    *s = (struct ax_sampling){.temperature = ax_config_f64(cfg, "%s", temperature),
                              .top_p = ax_given_top_p(ax_config_f64(cfg, "trl.top_p")),
                              .repetition_penalty = ax_config_f64(cfg, "trl.repetition_penalty"),
                              .seed = (uint64_t)ax_config_i64(cfg, "seed")};
    if (ax_config_has(cfg, "trl.top_k") && ax_config_i64(cfg, "trl.top_k") > 0)
        s->top_k = ax_config_i64(cfg, "trl.top_k");
    if (ax_config_has(cfg, "trl.min_p"))
        s->min_p = ax_config_f64(cfg, "trl.min_p");
    s->truncated = s->top_k > 0 || s->top_p < 1 || s->min_p > 0;
}

/* Log-probs are of what tokens are drawn from. */
static void set_sampling(struct ax_objective *o, const struct ax_config *cfg) {
    ax_setup_read_sampling(&o->sampling, cfg);
    o->temperature = o->sampling.temperature;
}

static double beta(const struct ax_config *cfg) {
    return ax_config_has(cfg, "trl.beta")  ? ax_config_f64(cfg, "trl.beta")
           : ax_config_has(cfg, "rl_beta") ? ax_config_f64(cfg, "rl_beta")
                                           : 0;
}

/* TRL's PPOTrainer has other names for what its GRPOTrainer logs, too. */
static const char *ppo_name(const char *name) {
    static const char *const names[][2] = {{"entropy", "policy/entropy_avg"},
                                           {"clip_ratio/region_mean", "policy/clipfrac_avg"},
                                           {"approx_kl", "policy/approxkl_avg"},
                                           {"ratio_mean", "val/ratio"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return name;
}

static enum ax_status read_ppo(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_policy_options o = ax_policy_defaults("bnpo");
    o.epsilon = o.epsilon_high = ax_config_f64(cfg, "ppo.cliprange");
    o.token_advantages = o.old = true;
    m->objective = ax_objective_policy(&m->policy, &o);
    set_sampling(&m->objective, cfg);
    for (int i = 0; m->objective.measures[i]; i++)
        m->measures[i] = ppo_name(m->objective.measures[i]);
    m->objective.measures = m->measures;
    return AX_OK;
}

enum ax_status ax_setup_method_policy(struct ax_setup_method *m, const struct ax_config *cfg) {
    if (ax_setup_is_ppo(cfg))
        return read_ppo(m, cfg);
    struct ax_policy_options o = ax_policy_defaults(ax_config_str(cfg, "trl.loss_type"));
    struct {
        const char *key;
        double *value;
    } const numbers[] = {{"trl.epsilon_high", &o.epsilon_high},
                         {"trl.delta", &o.delta},
                         {"trl.entropy_coef", &o.entropy_coef},
                         {"trl.sapo_temperature_pos", &o.sapo_temperature[0]},
                         {"trl.sapo_temperature_neg", &o.sapo_temperature[1]},
                         {"trl.vespo_k_pos", &o.vespo_k[0]},
                         {"trl.vespo_k_neg", &o.vespo_k[1]},
                         {"trl.vespo_lambda_pos", &o.vespo_lambda[0]},
                         {"trl.vespo_lambda_neg", &o.vespo_lambda[1]}};
    o.epsilon = o.epsilon_high = ax_config_f64(cfg, "trl.epsilon");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (ax_config_has(cfg, "%s", numbers[i].key))
            *numbers[i].value = ax_config_f64(cfg, "%s", numbers[i].key);
    o.sequence = strcmp(ax_config_str(cfg, "trl.importance_sampling_level"), "sequence") == 0;
    o.correct_kl = ax_config_bool(cfg, "trl.use_bias_correction_kl");
    o.max_completion_length = ax_config_i64(cfg, "trl.max_completion_length");
    o.entropy_mask = ax_config_f64(cfg, "trl.top_entropy_quantile") < 1;
    o.old = true;
    o.beta = beta(cfg);
    m->objective = ax_objective_policy(&m->policy, &o);
    set_sampling(&m->objective, cfg);
    return AX_OK;
}
