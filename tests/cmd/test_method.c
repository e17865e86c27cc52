/* Which objective a configuration trains, and with what numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "cmd/commands.h"
#include "cmd/train/method.h"
#include "optim/losses/teach.h"
#include "tests/cmd/config_case.h"

static struct ax_setup_method m;

static void reads(const char *yaml) {
    struct ax_config cfg;
    load_ok(&cfg, yaml, NULL);
    assert_int_equal(ax_setup_method_read(&m, &cfg), AX_OK);
    ax_config_free(&cfg);
}

static void fails(const char *yaml, const char *what) {
    struct ax_config cfg;
    load_ok(&cfg, yaml, NULL);
    assert_int_equal(ax_setup_method_read(&m, &cfg), AX_ERR_CONFIG);
    expect_text(ax_error_text(), what);
    ax_config_free(&cfg);
}

static void distillation(void **state) {
    (void)state;
    const struct ax_distill_options *o = &m.distill;
    reads("kd_teacher: t\n");
    assert_string_equal(m.objective.name, "distill");
    assert_ptr_equal(m.objective.head.distill, o);
    assert_true(o->divergence_weight == 1 && o->nll_weight == 0);
    assert_true(o->temperature == 1 && o->beta == 0);
    reads("kd_teacher: t\nkd_alpha: 0.9\nkd_ce_alpha: 0.1\nkd_temperature: 2\nkd_beta: 0.5\n");
    assert_true(o->divergence_weight == 0.9 && o->nll_weight == 0.1);
    assert_true(o->temperature == 2 && o->beta == 0.5);
    fails("kd_teacher: t\nkd_alpha: 0\n", "the teacher is not used");
    reads("seed: 1\n");
    assert_null(m.objective.head.distill);
}

/* The terms that there are, each as NAME WEIGHT. */
static void expect_terms(const char *want) {
    char got[256] = "";
    size_t n = 0;
    for (int t = 0; t < AX_PREFER_TERMS; t++)
        if (m.preference.o.weight[t] != 0)
            n += (size_t)snprintf(got + n, sizeof got - n, "%s%s %g", n ? ", " : "",
                                  ax_preference_term_name((enum ax_preference_term)t),
                                  m.preference.o.weight[t]);
    assert_string_equal(got, want);
}

static void losses_of_pairs(void **state) {
    (void)state;
    const struct ax_preference_options *o = &m.preference.o;
    reads("rl: dpo\n");
    expect_terms("sigmoid 1");
    assert_true(o->reference && !o->mean && o->beta == 0.1 && o->label_smoothing == 0);
    assert_true(!o->shares && ax_columns_count(m.objective.columns) == 1);
    reads("rl: dpo\nld_alpha: 0.5\n");
    assert_true(o->shares && ax_columns_count(m.objective.columns) == 2);
    reads("rl: dpo\nrl_beta: 0.3\ndpo_loss_type: [hinge, sft]\ndpo_loss_weights: [0.5, 2]\n");
    expect_terms("hinge 0.5, sft 2");
    assert_true(o->beta == 0.3);
    reads("rl: ipo\n");
    expect_terms("ipo 1");
    reads("rl: dpo\norpo_alpha: 0.7\n"); /* another method's key */
    assert_true(o->beta == 0.1);
    reads("rl: dpo\ndpo_loss_type: [exo_pair]\n");
    assert_true(o->label_smoothing == 1e-3);
    reads("rl: orpo\norpo_alpha: 0.7\n");
    expect_terms("odds_ratio 1, sft 1");
    assert_true(!o->reference && o->mean && o->beta == 0.7);
    reads("rl: orpo\norpo_alpha: 0.7\nrl_beta: 0.2\n");
    assert_true(o->beta == 0.2);
    reads("rl: cpo\ncpo_alpha: 0.25\ndpo_label_smoothing: 0.1\n");
    expect_terms("sigmoid 1, sft 0.25");
    assert_true(!o->reference && !o->mean && o->label_smoothing == 0.1 && o->gamma == 0);
    reads("rl: simpo\nrl_beta: 2\nsimpo_gamma: 1.4\ncpo_alpha: 0\n");
    expect_terms("sigmoid 1");
    assert_true(o->mean && o->gamma == 1.4 && o->beta == 2);
    fails("rl: dpo\nrl_beta: 0\n", "rl_beta: dpo needs a number above 0");
    reads("rl: dpo\ntrl: {beta: 0.3}\n");
    assert_true(o->beta == 0.3);
    fails("rl: dpo\ntrl: {beta: 0}\n", "trl.beta: dpo needs a number above 0");
    fails("rl: orpo\norpo_alpha: 0.7\ntrl: {beta: 0}\n", "trl.beta: orpo needs");
    fails("rl: dpo\ndpo_loss_type: [hinge, hinge]\n", "hinge is there twice");
    fails("rl: dpo\ndpo_loss_type: [aot]\n", "aot is not a loss of pairs");
    fails("rl: dpo\ndpo_loss_type: [robust]\ndpo_label_smoothing: 0.5\n", "less than 0.5");
}

static void other_methods(void **state) {
    (void)state;
    reads("rl: kto\nkto_undesirable_weight: 1.5\n");
    assert_string_equal(m.objective.name, "kto");
    assert_true(m.kto.o.beta == 0.1 && m.kto.o.desirable_weight == 1 &&
                m.kto.o.undesirable_weight == 1.5 && m.kto.documents.mismatches);
    reads("rl: kto\nrl_beta: 0.4\nkto_loss_type: apo_zero_unpaired\n");
    assert_true(m.kto.o.beta == 0.4 && !m.kto.documents.mismatches);
    reads("reward_model: true\ncenter_rewards_coefficient: 0.02\n");
    assert_true(m.objective.per == AX_PER_PAIR && m.reward.center == 0.02);
    reads("process_reward_model: true\n");
    assert_true(m.objective.per == AX_PER_TOKEN && m.objective.labels_in_place);
    reads("label_smoothing: 0.1\n");
    assert_string_equal(m.objective.name, "sft");
    assert_true(m.sft.label_smoothing == 0.1 && !m.objective.documents);
}

/* What TRL's GRPOConfig sets, by the names of its fields; what is not set has its defaults. */
static void losses_of_answers(void **state) {
    (void)state;
    const struct ax_policy_options *o = &m.policy.o;
    reads("rl: grpo\n");
    assert_string_equal(o->loss->name, "dapo");
    assert_true(o->epsilon == 0.2 && o->epsilon_high == 0.2 && o->delta == 0 && o->beta == 0);
    assert_true(o->correct_kl && !o->sequence && !o->entropy_mask && !o->token_advantages);
    assert_true(o->old && !o->sampler.given && o->max_completion_length == 256);
    assert_true(o->off_policy_threshold == INFINITY && o->entropy_coef == 0);
    assert_true(m.objective.temperature == 1 && !m.objective.sampling.truncated);
    reads("rl: gdpo\ntrl: {loss_type: sapo, epsilon: 0.1, max_completion_length: 7, beta: 0.04, "
          "temperature: 0.5, sapo_temperature_pos: 1.25, sapo_temperature_neg: 1.5}\n");
    assert_string_equal(o->loss->name, "sapo");
    assert_true(o->epsilon == 0.1 && o->epsilon_high == 0.1 && o->beta == 0.04);
    assert_true(o->sapo_temperature[0] == 1.25 && o->sapo_temperature[1] == 1.5);
    assert_true(o->max_completion_length == 7 && m.objective.temperature == 0.5);
    reads("rl: grpo\nrl_beta: 0.3\ntrl: {loss_type: vespo, epsilon: 0.1, epsilon_high: 0.28, "
          "delta: 2, vespo_k_pos: 4, vespo_k_neg: 5, vespo_lambda_pos: 6, vespo_lambda_neg: 7, "
          "entropy_coef: 0.01, importance_sampling_level: sequence, use_bias_correction_kl: false, "
          "top_entropy_quantile: 0.2, off_policy_mask_threshold: 0.5}\n");
    assert_true(o->epsilon == 0.1 && o->epsilon_high == 0.28 && o->delta == 2 && o->beta == 0.3);
    assert_true(o->vespo_k[0] == 4 && o->vespo_k[1] == 5);
    assert_true(o->vespo_lambda[0] == 6 && o->vespo_lambda[1] == 7);
    assert_true(o->entropy_coef == 0.01 && o->sequence && !o->correct_kl && o->entropy_mask);
    assert_true(o->off_policy_threshold == 0.5);
    reads("rl: grpo\nkd_teacher: t\n");
    assert_true(o->token_advantages);
    fails("rl: grpo\nkd_teacher: http://h:1/v1\ntrl: {temperature: 0.9}\n",
          "trl.temperature: kd_teacher is a URL");
    reads("rl: grpo\nkd_teacher: http://h:1/v1\n");
}

/* Answers of older weights: TRL's vllm_importance_sampling_mode. */
static void ratios_to_what_has_drawn(void **state) {
    (void)state;
    static const struct {
        const char *mode;
        bool sequence, masks;
    } all[] = {{"token_truncate", false, false},
               {"token_mask", false, true},
               {"sequence_truncate", true, false},
               {"sequence_mask", true, true}};
    const struct ax_policy_options *o = &m.policy.o;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char yaml[256];
        snprintf(yaml, sizeof yaml,
                 "rl: grpo\nmax_staleness: 1\ntrl: {vllm_importance_sampling_mode: %s, "
                 "vllm_importance_sampling_clip_min: 0.25}\n",
                 all[i].mode);
        reads(yaml);
        assert_true(o->sampler.given && !o->old);
        assert_int_equal(o->sampler.sequence, all[i].sequence);
        assert_int_equal(o->sampler.masks, all[i].masks);
        assert_true(o->sampler.least == 0.25 && o->sampler.most == 3);
    }
    reads("rl: grpo\nmax_staleness: 2\n");
    assert_true(o->sampler.given && !o->sampler.sequence && !o->sampler.masks && !o->old);
    assert_true(o->sampler.least == 0);
    reads("rl: grpo\nmax_staleness: 2\ntrl: {vllm_importance_sampling_clip_max: 1.5}\n");
    assert_true(o->sampler.most == 1.5);
    reads("rl: grpo\nmax_staleness: 2\ntrl: {vllm_importance_sampling_correction: false}\n");
    assert_true(!o->sampler.given && o->old);
}

/* A sampling that leaves tokens out changes what log-probs are of. */
static void samplings(void **state) {
    (void)state;
    static const struct {
        const char *keys;
        bool truncated;
        double top_p, min_p;
        int top_k;
    } all[] = {{"top_k: 5", true, 1, 0, 5},     {"top_k: 1", true, 1, 0, 1},
               {"top_k: 0", false, 1, 0, 0},    {"top_k: -1", false, 1, 0, 0},
               {"top_p: 0.9", true, 0.9, 0, 0}, {"top_p: 1", false, 1, 0, 0},
               {"min_p: 0.1", true, 1, 0.1, 0}, {"min_p: 0", false, 1, 0, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct ax_sampling *s = &m.objective.sampling;
        char yaml[128];
        snprintf(yaml, sizeof yaml, "rl: grpo\nseed: 9\ntrl: {%s, repetition_penalty: 1.5}\n",
                 all[i].keys);
        reads(yaml);
        assert_int_equal(s->truncated, all[i].truncated);
        assert_true(s->top_p == all[i].top_p && s->min_p == all[i].min_p);
        assert_true(s->top_k == all[i].top_k && s->repetition_penalty == 1.5 && s->seed == 9);
    }
}

static void distillation_of_own_answers(void **state) {
    (void)state;
    reads("rl: distill\nkd_teacher: t\ntrl: {temperature: 0.5}\n");
    assert_true(m.distill.beta == 1 && m.distill.temperature == 0.5 && m.distill.entropy);
    assert_ptr_equal(m.objective.head.distill, &m.distill);
    reads("rl: distill\nkd_teacher: t\nkd_beta: 0.5\nkd_temperature: 2\ntrl: {temperature: 0.5}\n");
    assert_true(m.distill.beta == 0.5 && m.distill.temperature == 2);
    static const char *const sampled[] = {"sampled_token", "iw_opd"};
    for (int i = 0; i < 2; i++) {
        char yaml[128];
        snprintf(yaml, sizeof yaml,
                 "rl: distill\nkd_teacher: t\ntrl: {distillation_objective: %s}\n", sampled[i]);
        reads(yaml);
        assert_string_equal(m.policy.o.loss->name, "cispo");
        assert_true(m.policy.o.epsilon_high == AX_TEACH_CAP && m.policy.o.token_advantages);
        assert_true(m.policy.o.old && !m.policy.o.sampler.given);
    }
    fails("rl: distill\nkd_teacher: http://h:1/v1\n"
          "trl: {distillation_objective: sampled_token, temperature: 0.5}\n",
          "trl.temperature: kd_teacher is a URL");
}

/* A server says the log-probs of its likeliest tokens alone, as they are at temperature 1. */
static void a_teacher_at_a_url(void **state) {
    (void)state;
    char yaml[256];
    static const struct {
        const char *keys, *wrong;
    } all[] = {{"kd_loss_top_k: 0", "kd_loss_top_k"},
               {"seed: 1", "kd_loss_top_k: not set"},
               {"kd_loss_top_k: 257", "kd_loss_top_k: expected at most 256 where"},
               {"kd_loss_top_k: 256", NULL},
               {"kd_loss_top_k: 20", NULL},
               {"kd_loss_top_k: 20\nkd_loss_top_p: 0.9", "kd_loss_top_p: kd_teacher is a URL"},
               {"kd_loss_top_k: 20\nkd_loss_support: teacher\nkd_beta: 0.5", NULL},
               {"kd_loss_top_k: 20\nkd_loss_support: student", "kd_loss_support: kd_teacher"},
               {"kd_loss_top_k: 20\nkd_beta: 0.5", "kd_loss_support: kd_teacher is a URL"},
               {"kd_loss_top_k: 20\nkd_temperature: 2", "kd_temperature: kd_teacher is a URL"},
               {"kd_loss_top_k: 20\nkd_temperature: 2\nkd_loss_tail: false", NULL}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ax_config cfg;
        snprintf(yaml, sizeof yaml, "kd_teacher: http://h:1/v1\n%s\n", all[i].keys);
        if (load_with(&cfg, yaml, NULL) != AX_OK) {
            expect_text(ax_error_text(), all[i].wrong);
            continue;
        }
        const enum ax_status st = ax_setup_method_read(&m, &cfg);
        if ((st != AX_OK) != (all[i].wrong != NULL))
            fail_msg("%s: %s", all[i].keys, st == AX_OK ? "no error" : ax_error_text());
        if (all[i].wrong)
            expect_text(ax_error_text(), all[i].wrong);
        else
            assert_true(m.distill.asked && m.distill.stored == m.distill.top_k &&
                        m.distill.support == AX_SUPPORT_TEACHER);
        ax_config_free(&cfg);
    }
}

static void ppo(void **state) {
    (void)state;
    static const char *const renamed[] = {"policy/entropy_avg", "policy/clipfrac_avg",
                                          "policy/approxkl_avg", "val/ratio"};
    const struct ax_policy_options *o = &m.policy.o;
    reads("rl: ppo\nppo: {cliprange: 0.3, temperature: 0.6}\n");
    assert_string_equal(o->loss->name, "bnpo");
    assert_true(o->epsilon == 0.3 && o->epsilon_high == 0.3 && o->beta == 0);
    assert_true(o->old && o->token_advantages && m.objective.temperature == 0.6);
    for (size_t k = 0; k < sizeof renamed / sizeof *renamed; k++) {
        int found = 0;
        for (int i = 0; m.objective.measures[i]; i++)
            found += strcmp(m.objective.measures[i], renamed[k]) == 0;
        assert_int_equal(found, 1);
    }
}

static const struct ax_command *command_of(const char *name) {
    const struct ax_command *c = ax_commands;
    while (c->name && strcmp(c->name, name) != 0)
        c++;
    return c;
}

/* What a row says agrees with itself, with the key table, and with the commands that train. */
static void rows(void **state) {
    (void)state;
    const struct ax_method *row;
    for (size_t i = 0; (row = ax_method_at(i)) != NULL; i++) {
        struct ax_config cfg;
        char yaml[64];
        assert_true((row->task == AX_TASK_PROMPT) == (row->answer_key != NULL));
        assert_true(!row->value || row->task == AX_TASK_PROMPT);
        assert_true((row->head != NULL) ==
                    (row->task == AX_TASK_REWARD || row->task == AX_TASK_STEPS));
        if (row->answer_key)
            assert_non_null(ax_config_find(row->answer_key));
        if (row->command)
            assert_true(command_of(row->command)->trains);
        if (row->when)
            continue;
        snprintf(yaml, sizeof yaml, "rl: %s\n%s", row->name,
                 strcmp(row->name, "distill") == 0 ? "kd_teacher: t\n" : "");
        load_ok(&cfg, yaml, NULL);
        assert_ptr_equal(ax_method_of(&cfg), row);
        ax_config_free(&cfg);
        if (row->command && !strstr(command_of(row->command)->summary, row->name) &&
            strcmp(row->command, row->name) != 0)
            fail_msg("the summary of `axtrain %s` lacks %s", row->command, row->name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows),
                                       cmocka_unit_test(distillation),
                                       cmocka_unit_test(losses_of_pairs),
                                       cmocka_unit_test(other_methods),
                                       cmocka_unit_test(losses_of_answers),
                                       cmocka_unit_test(ratios_to_what_has_drawn),
                                       cmocka_unit_test(samplings),
                                       cmocka_unit_test(distillation_of_own_answers),
                                       cmocka_unit_test(a_teacher_at_a_url),
                                       cmocka_unit_test(ppo)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
