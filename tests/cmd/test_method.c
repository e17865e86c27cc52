/* Which objective a configuration trains, and with what numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/commands.h"
#include "cmd/train/method.h"
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows), cmocka_unit_test(distillation),
                                       cmocka_unit_test(losses_of_pairs),
                                       cmocka_unit_test(other_methods)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
