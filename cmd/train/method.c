#include "cmd/train/method.h"

#include <string.h>

#include "base/net/endpoint.h"

/* ---- tokens ---- */

static enum ax_status read_sft(struct ax_setup_method *m, const struct ax_config *cfg) {
    m->sft = (struct ax_sft_options){0};
    AX_FILL(cfg, "", struct ax_sft_options, &m->sft);
    if (m->sft.entropy_k > AX_TOP_MAX)
        return ax_config_error(cfg, "eaft_k", "expected at most %d", AX_TOP_MAX);
    m->objective = ax_objective_sft_with(&m->sft);
    return AX_OK;
}

/* ---- a teacher at a URL ---- */

static bool is_asked(const struct ax_config *cfg) {
    return ax_endpoint_is_url(ax_config_str(cfg, "kd_teacher"));
}

/* A server says the log-probs of its likeliest tokens, at temperature 1. */
static enum ax_status read_asked(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_distill_options *o = &m->distill;
    if (o->top_k == 0)
        return ax_config_error(cfg, "kd_loss_top_k",
                               "not set: kd_teacher is a URL, and a server says log-probs of its "
                               "likeliest tokens alone. Set how many (20, unless it gives more)%s",
                               ax_config_holds(cfg, "rl == distill")
                                   ? ", or trl.distillation_objective to sampled_token"
                                   : "");
    if (o->top_k > AX_DISTILL_STORED_MAX)
        return ax_config_error(cfg, "kd_loss_top_k",
                               "expected at most %d where kd_teacher is a URL",
                               AX_DISTILL_STORED_MAX);
    if (o->top_p < 1)
        return ax_config_error(cfg, "kd_loss_top_p",
                               "kd_teacher is a URL, and a server says as many tokens of each "
                               "place: remove it");
    if (o->support != AX_SUPPORT_TEACHER && (o->support != AX_SUPPORT_AUTO || o->beta != 0))
        return ax_config_error(
            cfg, "kd_loss_support",
            "kd_teacher is a URL, and a server does not know the model's likeliest "
            "tokens, which kd_beta above 0 compares by default: set it to teacher");
    if (o->tail && o->temperature != 1)
        return ax_config_error(
            cfg, "kd_temperature",
            "kd_teacher is a URL, and a server says what is left for other tokens "
            "at temperature 1: set it to 1, or kd_loss_tail to false");
    o->asked = true;
    o->stored = (int)o->top_k;
    o->support = AX_SUPPORT_TEACHER;
    return AX_OK;
}

/* Log-probs of sampled tokens have the temperature that they are drawn at. */
static enum ax_status check_asked(const struct ax_config *cfg) {
    if (!is_asked(cfg) || ax_config_f64(cfg, "trl.temperature") == 1)
        return AX_OK;
    return ax_config_error(
        cfg, "trl.temperature",
        "kd_teacher is a URL, and a server says log-probs at temperature 1: set it "
        "to 1");
}

/* ---- all divergences ---- */

static enum ax_status read_divergence(struct ax_setup_method *m, const struct ax_config *cfg,
                                      struct ax_distill_options unset) {
    m->distill = unset;
    AX_FILL(cfg, "", struct ax_distill_options, &m->distill);
    if (m->distill.stored > AX_DISTILL_STORED_MAX)
        return ax_config_error(cfg, "kd_topk", "expected at most %d", AX_DISTILL_STORED_MAX);
    if (!(m->distill.divergence_weight > 0))
        return ax_config_error(cfg, "kd_alpha",
                               "is 0: the teacher is not used. Set it above 0, or remove %s",
                               m->distill.stored > 0 ? "kd_trainer" : "kd_teacher");
    if (m->distill.top_p == 0 && m->distill.stored == 0)
        return ax_config_error(cfg, "kd_loss_top_p", "expected a number above 0");
    if (!m->distill.tail && m->distill.nll_weight != 0 && m->distill.stored == 0)
        return ax_config_error(cfg, "kd_loss_tail",
                               "false leaves nothing of the tokens outside the support, which "
                               "kd_ce_alpha needs: set it to true, or remove that");
    if (is_asked(cfg))
        AX_TRY(read_asked(m, cfg));
    m->objective = ax_objective_distill(&m->distill);
    return AX_OK;
}

static enum ax_status read_distill(struct ax_setup_method *m, const struct ax_config *cfg) {
    return read_divergence(m, cfg, (struct ax_distill_options){.temperature = 1});
}

/* ---- heads ---- */

static enum ax_status read_reward(struct ax_setup_method *m, const struct ax_config *cfg) {
    const char *key = "center_rewards_coefficient";
    const double center = ax_config_has(cfg, "%s", key) ? ax_config_f64(cfg, "%s", key) : 0;
    m->objective = ax_objective_reward(&m->reward, center);
    return AX_OK;
}

static enum ax_status read_prm(struct ax_setup_method *m, const struct ax_config *cfg) {
    (void)cfg;
    m->objective = ax_objective_prm(&m->sft);
    return AX_OK;
}

/* ---- preferences ---- */

/* rl_beta, which is trl.beta if that is set; or `beta` without it. */
static enum ax_status read_beta(double *out, const struct ax_config *cfg, double beta) {
    const char *key = ax_config_is_set(cfg, "trl.beta") ? "trl.beta" : "rl_beta";
    *out = ax_config_has(cfg, "rl_beta") ? ax_config_f64(cfg, "rl_beta") : beta;
    return *out > 0
               ? AX_OK
               : ax_config_error(cfg, key, "%s needs a number above 0", ax_method_of(cfg)->name);
}

static enum ax_status read_pairs(struct ax_preference_options *o, const struct ax_config *cfg,
                                 double beta) {
    *o = (struct ax_preference_options){.discopop_tau = 0.05};
    AX_FILL(cfg, "", struct ax_preference_options, o);
    return read_beta(&o->beta, cfg, beta);
}

static void set_pairs(struct ax_setup_method *m, const struct ax_config *cfg,
                      const struct ax_preference_options *o) {
    m->objective = ax_objective_preference(&m->preference, ax_method_of(cfg)->name, o);
}

static enum ax_status add_term(struct ax_preference_options *o, const struct ax_config *cfg,
                               const char *name, double weight) {
    const int term = ax_preference_term_find(name);
    if (term < 0)
        return ax_config_error(cfg, "dpo_loss_type", "%s is not a loss of pairs", name);
    if (o->weight[term] != 0)
        return ax_config_error(cfg, "dpo_loss_type", "%s is there twice", name);
    o->weight[term] = weight;
    return AX_OK;
}

static enum ax_status read_dpo(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_pair_keys k = {0};
    struct ax_preference_options o;
    AX_FILL(cfg, "", struct ax_pair_keys, &k);
    AX_TRY(read_pairs(&o, cfg, 0.1));
    o.reference = true;
    o.shares = ax_config_has(cfg, "ld_alpha");
    const size_t n = k.terms ? k.terms->n : 0, weights = k.weights ? k.weights->n : 0;
    if (n == 0)
        o.weight[AX_PREFER_SIGMOID] = 1;
    for (size_t i = 0; i < n; i++)
        AX_TRY(add_term(&o, cfg, k.terms->entries[i].value->text,
                        weights > 0 ? k.weights->entries[i].value->number : 1));
    if (o.weight[AX_PREFER_ROBUST] != 0 && o.label_smoothing >= 0.5)
        return ax_config_error(cfg, "dpo_label_smoothing", "robust needs less than 0.5");
    if (o.weight[AX_PREFER_EXO_PAIR] != 0 && !(o.label_smoothing > 0))
        o.label_smoothing = 1e-3; /* its logarithm is taken; the same as TRL */
    set_pairs(m, cfg, &o);
    return AX_OK;
}

static enum ax_status read_orpo(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_preference_options o;
    AX_TRY(read_pairs(&o, cfg, ax_config_f64(cfg, "orpo_alpha")));
    o.mean = true;
    o.weight[AX_PREFER_ODDS_RATIO] = o.weight[AX_PREFER_SFT] = 1;
    set_pairs(m, cfg, &o);
    return AX_OK;
}

/* cpo_alpha is the weight of SFT. */
static enum ax_status read_cpo(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_preference_options o;
    AX_TRY(read_pairs(&o, cfg, 0.1));
    o.weight[AX_PREFER_SIGMOID] = 1;
    set_pairs(m, cfg, &o);
    return AX_OK;
}

static enum ax_status read_simpo(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_preference_options o;
    AX_TRY(read_pairs(&o, cfg, 0.1));
    o.weight[AX_PREFER_SIGMOID] = 1;
    o.mean = true;
    set_pairs(m, cfg, &o);
    return AX_OK;
}

static enum ax_status read_kto(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_kto_options o = {0};
    AX_FILL(cfg, "", struct ax_kto_options, &o);
    AX_TRY(read_beta(&o.beta, cfg, 0.1));
    m->objective = ax_objective_kto(&m->kto, &o);
    return AX_OK;
}

/* ---- answers that the model samples ---- */

void ax_setup_read_sampling(struct ax_sampling *s, const struct ax_config *cfg) {
    *s = (struct ax_sampling){0};
    AX_FILL(cfg, "", struct ax_sampling, s);
    s->top_p = ax_given_top_p(s->top_p);
    s->top_k = s->top_k > 0 ? s->top_k : 0;
    s->truncated = s->top_k > 0 || s->top_p < 1 || s->min_p > 0;
}

/* Log-probs are of what tokens are drawn from. */
static void set_policy(struct ax_setup_method *m, const struct ax_config *cfg,
                       const struct ax_policy_options *o) {
    m->objective = ax_objective_policy(&m->policy, o);
    ax_setup_read_sampling(&m->objective.sampling, cfg);
    m->objective.temperature = m->objective.sampling.temperature;
}

/* For answers that older weights have drawn, of which a step's policy is the first to be trained: old is the policy. */
static void set_sampler(struct ax_sampler_ratio *s, const char *mode) {
    s->given = true;
    s->sequence = strncmp(mode, "sequence", strlen("sequence")) == 0;
    s->masks = strstr(mode, "mask") != NULL;
}

static enum ax_status read_grpo(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_policy_options o = ax_policy_defaults(ax_config_str(cfg, "trl.loss_type"));
    AX_FILL(cfg, "", struct ax_policy_options, &o);
    o.entropy_mask = ax_config_f64(cfg, "trl.top_entropy_quantile") < 1;
    o.old = !ax_config_holds(cfg, "max_staleness && trl.vllm_importance_sampling_correction");
    if (!o.old)
        set_sampler(&o.sampler, ax_config_str(cfg, "trl.vllm_importance_sampling_mode"));
    o.token_advantages = ax_config_has(cfg, "kd_teacher");
    set_policy(m, cfg, &o);
    return check_asked(cfg);
}

/* Advantages of sampled tokens are all that it has (optim/losses/teach.h). */
static enum ax_status read_sampled(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_policy_options o = ax_policy_defaults("cispo");
    o.epsilon_high = AX_TEACH_CAP;
    o.token_advantages = o.old = true;
    set_policy(m, cfg, &o);
    return check_asked(cfg);
}

/* As in TRL's DistillationTrainer: what is set in neither place is the reverse KL, at the temperature of
 * sampling. Top-p and the like choose tokens; distributions are compared as they are. */
static enum ax_status read_on_policy(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_sampling drawn;
    if (ax_config_holds(cfg, "trl.distillation_objective == sampled_token,iw_opd"))
        return read_sampled(m, cfg);
    ax_setup_read_sampling(&drawn, cfg);
    return read_divergence(
        m, cfg,
        (struct ax_distill_options){.temperature = drawn.temperature, .beta = 1, .entropy = true});
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

/* Its KL is in the rewards of tokens (ppo.kl_coef; beta is refused). */
static enum ax_status read_ppo(struct ax_setup_method *m, const struct ax_config *cfg) {
    struct ax_policy_options o = ax_policy_defaults("bnpo");
    AX_FILL(cfg, "", struct ax_policy_options, &o);
    o.token_advantages = o.old = true;
    set_policy(m, cfg, &o);
    for (int i = 0; m->objective.measures[i]; i++)
        m->measures[i] = ppo_name(m->objective.measures[i]);
    m->objective.measures = m->measures;
    return AX_OK;
}

/* ---- the table ---- */

#define SAMPLES(key) .task = AX_TASK_PROMPT, .answer_key = key

static const struct ax_method methods[] = {
    {"dpo", NULL, "dpo", AX_TASK_PAIR, .read = read_dpo},
    {"orpo", NULL, "dpo", AX_TASK_PAIR, .framed_by_ids = true, .read = read_orpo},
    {"cpo", NULL, "dpo", AX_TASK_PAIR, .framed_by_ids = true, .read = read_cpo},
    {"simpo", NULL, "dpo", AX_TASK_PAIR, .framed_by_ids = true, .read = read_simpo},
    {"kto", NULL, "dpo", AX_TASK_UNPAIRED, .read = read_kto},
    {"grpo", NULL, "grpo", SAMPLES("trl.max_completion_length"), .read = read_grpo},
    {"gdpo", NULL, "grpo", SAMPLES("trl.max_completion_length"), .normalize_then_sum = true,
     .read = read_grpo},
    {"ppo", NULL, "ppo", SAMPLES("ppo.response_length"), .value = true, .read = read_ppo},
    {"distill", NULL, NULL, SAMPLES("trl.max_completion_length"), .read = read_on_policy},
    {"reward model", "reward_model", "reward", AX_TASK_REWARD, .head = &ax_classifier_reward,
     .read = read_reward},
    {"process reward model", "process_reward_model", "prm", AX_TASK_STEPS,
     .head = &ax_classifier_prm, .read = read_prm},
    {"distillation", "kd_teacher || kd_trainer", "sft", AX_TASK_TEXT, .read = read_distill},
    {"sft", "!rl", "sft", AX_TASK_TEXT, .read = read_sft},
};

const struct ax_method *ax_method_at(size_t i) {
    return i < sizeof methods / sizeof *methods ? &methods[i] : NULL;
}

/* A value of rl that no row has (ebft) trains nothing; data are read as text. */
const struct ax_method *ax_method_of(const struct ax_config *cfg) {
    const char *rl = ax_config_str(cfg, "rl");
    size_t i = 0;
    while (i + 1 < sizeof methods / sizeof *methods &&
           !(methods[i].when ? ax_config_holds(cfg, methods[i].when)
                             : rl && strcmp(rl, methods[i].name) == 0))
        i++;
    return &methods[i];
}

enum ax_status ax_setup_method_read(struct ax_setup_method *m, const struct ax_config *cfg) {
    return ax_method_of(cfg)->read(m, cfg);
}
