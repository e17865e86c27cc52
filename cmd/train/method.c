#include "cmd/train/method.h"

#include <string.h>

static enum ax_status read_sft(struct ax_setup_method *m, const struct ax_config *cfg) {
    m->sft = (struct ax_sft_options){.label_smoothing = ax_config_f64(cfg, "label_smoothing"),
                                     .z_loss = ax_config_f64(cfg, "z_loss_coef"),
                                     .dynamic = ax_config_bool(cfg, "use_dynamic_finetuning")};
    if (ax_config_bool(cfg, "use_eaft")) {
        m->sft.entropy_k = ax_config_i64(cfg, "eaft_k");
        m->sft.entropy_alpha = ax_config_f64(cfg, "eaft_alpha");
        if (m->sft.entropy_k > AX_TOP_MAX)
            return ax_config_error(cfg, "eaft_k", "expected at most %d", AX_TOP_MAX);
    }
    m->objective = ax_objective_sft_with(&m->sft);
    return AX_OK;
}

/* ---- preferences ---- */

static double number_or(const struct ax_config *cfg, const char *path, double otherwise) {
    return ax_config_has(cfg, "%s", path) ? ax_config_f64(cfg, "%s", path) : otherwise;
}

static enum ax_status add_term(struct ax_preference_options *o, const struct ax_config *cfg,
                               size_t i) {
    const char *name = ax_config_str(cfg, "dpo_loss_type.%zu", i);
    const int term = ax_preference_term_find(name);
    if (term < 0)
        return ax_config_error(cfg, "dpo_loss_type", "%s is not a loss of pairs", name);
    if (o->weight[term] != 0)
        return ax_config_error(cfg, "dpo_loss_type", "%s is there twice", name);
    o->weight[term] =
        ax_config_has(cfg, "dpo_loss_weights") ? ax_config_f64(cfg, "dpo_loss_weights.%zu", i) : 1;
    return AX_OK;
}

static enum ax_status read_dpo(struct ax_preference_options *o, const struct ax_config *cfg) {
    const size_t n = ax_config_count(cfg, "dpo_loss_type");
    const size_t weights = ax_config_count(cfg, "dpo_loss_weights");
    o->reference = true;
    o->shares = ax_config_has(cfg, "ld_alpha");
    if (weights > 0 && weights != n)
        return ax_config_error(cfg, "dpo_loss_weights", "%zu weights for %zu losses", weights, n);
    if (n == 0)
        o->weight[AX_PREFER_SIGMOID] = 1;
    for (size_t i = 0; i < n; i++)
        AX_TRY(add_term(o, cfg, i));
    if (o->weight[AX_PREFER_ROBUST] != 0 && o->label_smoothing >= 0.5)
        return ax_config_error(cfg, "dpo_label_smoothing", "robust needs less than 0.5");
    if (o->weight[AX_PREFER_EXO_PAIR] != 0 && !(o->label_smoothing > 0))
        o->label_smoothing = 1e-3; /* its logarithm is taken; the same as TRL */
    return AX_OK;
}

static enum ax_status read_orpo(struct ax_preference_options *o, const struct ax_config *cfg) {
    (void)cfg;
    o->mean = true;
    o->weight[AX_PREFER_ODDS_RATIO] = o->weight[AX_PREFER_SFT] = 1;
    return AX_OK;
}

static enum ax_status read_cpo(struct ax_preference_options *o, const struct ax_config *cfg) {
    o->weight[AX_PREFER_SIGMOID] = 1;
    o->weight[AX_PREFER_SFT] = ax_config_f64(cfg, "cpo_alpha");
    return AX_OK;
}

static enum ax_status read_simpo(struct ax_preference_options *o, const struct ax_config *cfg) {
    AX_TRY(read_cpo(o, cfg));
    o->mean = true;
    o->gamma = ax_config_f64(cfg, "simpo_gamma");
    return AX_OK;
}

static const struct preference {
    const char *rl;
    enum ax_status (*read)(struct ax_preference_options *o, const struct ax_config *cfg);
    const char *beta; /* another key for it; NULL: none */
} preferences[] = {{"dpo", read_dpo, NULL},
                   {"orpo", read_orpo, "orpo_alpha"},
                   {"cpo", read_cpo, NULL},
                   {"simpo", read_simpo, NULL}};

static enum ax_status read_preference(struct ax_setup_method *m, const struct ax_config *cfg,
                                      const struct preference *p) {
    const double beta = p->beta ? ax_config_f64(cfg, "%s", p->beta) : 0.1;
    struct ax_preference_options o = {.beta = number_or(cfg, "rl_beta", beta),
                                      .label_smoothing = ax_config_f64(cfg, "dpo_label_smoothing"),
                                      .discopop_tau = 0.05};
    if (!(o.beta > 0))
        return ax_config_error(cfg, "rl_beta", "%s needs a number above 0", p->rl);
    AX_TRY(p->read(&o, cfg));
    m->objective = ax_objective_preference(&m->preference, p->rl, &o);
    return AX_OK;
}

static enum ax_status read_kto(struct ax_setup_method *m, const struct ax_config *cfg) {
    const struct ax_kto_options o = {
        .beta = number_or(cfg, "rl_beta", 0.1),
        .desirable_weight = ax_config_f64(cfg, "kto_desirable_weight"),
        .undesirable_weight = ax_config_f64(cfg, "kto_undesirable_weight"),
        .apo_zero_unpaired = strcmp(ax_config_str(cfg, "kto_loss_type"), "kto") != 0};
    if (!(o.beta > 0))
        return ax_config_error(cfg, "rl_beta", "kto needs a number above 0");
    m->objective = ax_objective_kto(&m->kto, &o);
    return AX_OK;
}

static enum ax_status read_distill(struct ax_setup_method *m, const struct ax_config *cfg) {
    m->distill = (struct ax_distill_options){.divergence_weight = ax_config_f64(cfg, "kd_alpha"),
                                             .nll_weight = ax_config_f64(cfg, "kd_ce_alpha"),
                                             .temperature = ax_config_f64(cfg, "kd_temperature"),
                                             .beta = ax_config_f64(cfg, "kd_beta")};
    if (ax_config_bool(cfg, "kd_trainer")) {
        const int64_t stored = ax_config_i64(cfg, "kd_topk");
        if (stored > AX_DISTILL_STORED_MAX)
            return ax_config_error(cfg, "kd_topk", "expected at most %d", AX_DISTILL_STORED_MAX);
        m->distill.stored = (int)stored;
    }
    if (!(m->distill.divergence_weight > 0))
        return ax_config_error(cfg, "kd_alpha",
                               "is 0: the teacher is not used. Set it above 0, or remove %s",
                               m->distill.stored > 0 ? "kd_trainer" : "kd_teacher");
    m->objective = ax_objective_distill(&m->distill);
    return AX_OK;
}

const struct ax_classifier *ax_setup_classifier(const struct ax_config *cfg) {
    return ax_config_bool(cfg, "reward_model")           ? &ax_classifier_reward
           : ax_config_bool(cfg, "process_reward_model") ? &ax_classifier_prm
                                                         : NULL;
}

enum ax_status ax_setup_method_read(struct ax_setup_method *m, const struct ax_config *cfg) {
    const char *rl = ax_config_str(cfg, "rl");
    for (size_t i = 0; rl && i < sizeof preferences / sizeof *preferences; i++)
        if (strcmp(rl, preferences[i].rl) == 0)
            return read_preference(m, cfg, &preferences[i]);
    if (rl && strcmp(rl, "kto") == 0)
        return read_kto(m, cfg);
    if (ax_setup_samples_answers(cfg))
        return ax_setup_method_policy(m, cfg);
    const struct ax_classifier *head = ax_setup_classifier(cfg);
    if (!head)
        return ax_config_has(cfg, "kd_teacher") || ax_config_bool(cfg, "kd_trainer")
                   ? read_distill(m, cfg)
                   : read_sft(m, cfg);
    m->objective =
        head == &ax_classifier_prm
            ? ax_objective_prm(&m->sft)
            : ax_objective_reward(&m->reward, number_or(cfg, "center_rewards_coefficient", 0));
    return AX_OK;
}
