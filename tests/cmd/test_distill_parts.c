/* rl: distill over part of the vocabulary: the likeliest tokens, with all others as one or without them. The
 * formulas: tests/kernels/test_divergences.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/on_policy_case.h"

static double first_loss(const char *more) {
    double loss[4] = {0};
    distill("out", more);
    assert_int_equal(numbers("out", "loss", loss, 4), 1);
    clear("out");
    return loss[0];
}

static void all_tokens_are_the_vocabulary(void **state) {
    (void)state;
    static const char *const all[] = {"kd_loss_top_k=1000000",
                                      "kd_loss_top_k=1000000 kd_loss_tail=false",
                                      "kd_loss_top_p=1 kd_loss_support=both"};
    distill("a", "");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        distill("b", all[i]);
        same_completions("a", "b");
        assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
        clear("b");
    }
    clear("a");
}

/* What buckets merge, a divergence cannot see: more tokens, a larger one. */
static void a_tail_bounds_from_below(void **state) {
    (void)state;
    static const char *const betas[] = {"0", "0.5", "1"}, *const supports[] = {"teacher", "student",
                                                                               "both"};
    for (int b = 0; b < 3; b++)
        for (int s = 0; s < 3; s++) {
            char more[160];
            double loss[4];
            static const char *const sizes[] = {"kd_loss_top_k=1", "kd_loss_top_k=6",
                                                "kd_loss_top_p=0.9", ""};
            for (int i = 0; i < 4; i++) {
                snprintf(more, sizeof more, "max_steps=1 kd_beta=%s kd_loss_support=%s %s",
                         betas[b], supports[s], sizes[i]);
                loss[i] = first_loss(more);
            }
            assert_true(loss[0] > 0);
            if (!(loss[0] < loss[1] && loss[1] < loss[3] && loss[2] < loss[3]))
                fail_msg("beta %s, %s: %g, %g, %g, %g", betas[b], supports[s], loss[0], loss[1],
                         loss[2], loss[3]);
        }
}

/* By the divergence, as in TRL, if no key says whose tokens. */
static void supports_follow_the_divergence(void **state) {
    (void)state;
    static const char *const alike[][2] = {{"0", "teacher"}, {"0.3", "both"}, {"1", "student"}};
    for (size_t i = 0; i < 3; i++) {
        char more[160];
        snprintf(more, sizeof more, "max_steps=1 kd_loss_top_k=3 kd_beta=%s", alike[i][0]);
        const double got = first_loss(more);
        snprintf(more, sizeof more, "max_steps=1 kd_loss_top_k=3 kd_beta=%s kd_loss_support=%s",
                 alike[i][0], alike[i][1]);
        assert_true(got == first_loss(more));
        snprintf(more, sizeof more, "max_steps=1 kd_loss_top_k=3 kd_beta=%s kd_loss_support=%s",
                 alike[i][0], alike[(i + 1) % 3][1]);
        assert_true(got != first_loss(more));
    }
}

static void a_vocabulary_may_be_split(void **state) {
    (void)state;
    static const char *const options[] = {
        "kd_loss_top_k=4 kd_beta=0.5", "kd_loss_top_p=0.8 kd_loss_tail=false",
        "kd_loss_top_k=5 kd_loss_top_p=0.95 kd_beta=0 trl.temperature=1.5"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char more[256];
        snprintf(more, sizeof more, "learning_rate=1e-7 %s", options[i]);
        distill("a", more);
        snprintf(more, sizeof more, "learning_rate=1e-7 tensor_parallel_size=2 %s", options[i]);
        if (try("launch -n 2 -- train", config(), teacher, "b", more) != 0)
            fail_msg("%s", said);
        near_steps("loss", 4, 1e-6, options[i]);
        clear("a");
        clear("b");
    }
}

static void mistakes(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"kd_loss_support=all", "kd_loss_support"},
        {"kd_loss_top_p=1.5", "kd_loss_top_p"},
        {"kd_loss_top_p=0", "kd_loss_top_p: expected a number above 0"},
        {"kd_loss_top_k=0", "kd_loss_top_k"},
        {"distillation_topk=100", "kd_loss_top_k, with kd_loss_support: student"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (try("train", config(), teacher, "out", cases[i][0]) != 2 || !strstr(said, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], said);
    static const char given[] =
        "base_model: m\nkd_teacher: t\nkd_loss_tail: false\nlearning_rate: 1e-5\n"
        "kd_ce_alpha: 0.5\n",
                      text[] = "{\"text\": \"one two\"}\n";
    char path[256];
    snprintf(path, sizeof path, "%s", put_bytes("given.jsonl", text, sizeof text - 1));
    assert_int_equal(run(said, sizeof said,
                         "train '%s' base_model='%s' kd_teacher='%s' datasets='[{path: %s, type: "
                         "completion}]'",
                         put_bytes("given.yaml", given, sizeof given - 1), student, teacher, path),
                     2);
    if (!strstr(said, "kd_loss_tail: false leaves nothing"))
        fail_msg("%s", said);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tokens_are_the_vocabulary), cmocka_unit_test(a_tail_bounds_from_below),
        cmocka_unit_test(supports_follow_the_divergence),
        cmocka_unit_test(a_vocabulary_may_be_split), cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, on_policy_begin, scratch_remove);
}
