/* Evaluations of rl: distill: the divergence from the teacher on answers to prompts that are kept aside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/on_policy_case.h"

enum { PROMPTS = 4, EVALS = 3 };
static char prompts[512], aside[512];

static void write_prompts(void) {
    char text[1024] = "", longer[1024];
    for (int i = 0; i < PROMPTS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"prompt\": \"What is %d plus %d? \"}\n", i, i + 2);
    snprintf(prompts, sizeof prompts, "%s", put_bytes("prompts.jsonl", text, strlen(text)));
    snprintf(longer, sizeof longer,
             "{\"prompt\": \"Here are many words, more than any prompt has that is trained on. "
             "What is 5 plus 3? \"}\n%.200s",
             text);
    longer[strcspn(longer, "\n") + 1] = '\0';
    snprintf(aside, sizeof aside, "%s", put_bytes("aside.jsonl", longer, strlen(longer)));
}

static void evaluated(const char *out, const char *set, const char *more) {
    char all[1400];
    snprintf(all, sizeof all,
             "datasets='[{path: %s}]' test_datasets='[{path: %s}]' eval_steps=2 %s", prompts, set,
             more);
    distill(out, all);
}

static void lines_have_the_loss(void **state) {
    (void)state;
    static const char *const names[] = {"eval_kd_loss", "eval_ce_loss", "eval_perplexity",
                                        "eval_completions/mean_length",
                                        "eval_completions/clipped_ratio"};
    double loss[EVALS + 1] = {0}, kd[EVALS + 1] = {0}, n[EVALS + 1] = {0};
    evaluated("a", aside, "");
    assert_int_equal(numbers("a", "eval_loss", loss, EVALS + 1), EVALS);
    assert_int_equal(numbers("a", "eval_kd_loss", kd, EVALS + 1), EVALS);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(numbers("a", names[i], n, EVALS + 1), EVALS);
    assert_int_equal(numbers("a", "eval_reward", n, EVALS + 1), 0);
    assert_int_equal(numbers("a", "eval_entropy", n, EVALS + 1), 0);
    assert_int_equal(numbers("a", "eval_rows", n, EVALS + 1), EVALS);
    assert_true(n[0] == 1);
    for (int i = 0; i < EVALS; i++)
        assert_true(loss[i] > 0 && loss[i] == kd[i]);
    assert_true(loss[EVALS - 1] < loss[0]);
    clear("a");
}

/* Nearly greedy, a step on all prompts samples what an evaluation on the same prompts samples. */
static void the_loss_is_that_of_a_step(void **state) {
    (void)state;
    static const char *const options[] = {"", "kd_beta=0.5 kd_loss_top_k=5",
                                          "kd_beta=0 kd_temperature=2"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        double loss[4] = {0}, eval[EVALS] = {0}, tokens[4] = {0}, scored[EVALS] = {0};
        char more[256];
        snprintf(more, sizeof more, "trl.temperature=1e-4 kd_temperature=1 max_steps=2 %s",
                 options[i]);
        evaluated("a", prompts, more);
        assert_int_equal(numbers("a", "loss", loss, 4), 2);
        assert_int_equal(numbers("a", "trained_tokens", tokens, 4), 2);
        assert_int_equal(numbers("a", "eval_loss", eval, EVALS), 2);
        assert_int_equal(numbers("a", "eval_trained_tokens", scored, EVALS), 2);
        assert_true(tokens[0] > PROMPTS && tokens[0] == scored[0]);
        if (!(fabs(loss[0] - eval[0]) < 1e-6 * loss[0]))
            fail_msg("%s: step %.9g, evaluation %.9g", options[i], loss[0], eval[0]);
        clear("a");
    }
}

/* The same random numbers every time. */
static void evaluations_repeat_themselves(void **state) {
    (void)state;
    double eval[EVALS] = {0};
    evaluated("a", aside, "learning_rate=1e-30");
    assert_int_equal(numbers("a", "eval_loss", eval, EVALS), EVALS);
    assert_true(eval[0] == eval[1] && eval[1] == eval[2]);
    clear("a");
}

static void training_is_what_it_is_without(void **state) {
    (void)state;
    char more[700];
    evaluated("a", aside, "");
    snprintf(more, sizeof more, "datasets='[{path: %s}]'", prompts);
    distill("b", more);
    same_completions("a", "b");
    assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
    clear("a");
    clear("b");
}

static void ranks_have_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2"};
    for (size_t i = 0; i < 2; i++) {
        char more[1400];
        evaluated("a", prompts, "learning_rate=1e-7");
        snprintf(more, sizeof more,
                 "datasets='[{path: %s}]' test_datasets='[{path: %s}]' eval_steps=2 "
                 "learning_rate=1e-7 %s",
                 prompts, prompts, meshes[i]);
        if (try("launch -n 2 -- train", config(), teacher, "b", more) != 0)
            fail_msg("%s", said);
        near_steps("eval_loss", EVALS, 1e-6, meshes[i]);
        clear("a");
        clear("b");
    }
}

static void the_best_model_has_the_lowest_loss(void **state) {
    (void)state;
    evaluated("a", aside, "load_best_model_at_end=true save_steps=2");
    evaluated("b", aside, "metric_for_best_model=eval_loss");
    clear("a");
    clear("b");
}

static int begin(void **state) {
    const int failed = on_policy_begin(state);
    if (!failed)
        write_prompts();
    return failed;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_have_the_loss),
                                       cmocka_unit_test(the_loss_is_that_of_a_step),
                                       cmocka_unit_test(evaluations_repeat_themselves),
                                       cmocka_unit_test(training_is_what_it_is_without),
                                       cmocka_unit_test(ranks_have_the_same),
                                       cmocka_unit_test(the_best_model_has_the_lowest_loss)};
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
