/* `rl: distill`: a model learns from a teacher on answers that it samples itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/on_policy_case.h"

/* ---- what a run says ---- */

static void metrics_have_trl_s_names(void **state) {
    (void)state;
    static const char *const names[] = {"entropy",
                                        "ce_loss",
                                        "completions/mean_length",
                                        "completions/min_length",
                                        "completions/max_length",
                                        "completions/clipped_ratio",
                                        "completions/mean_terminated_length",
                                        "completions/min_terminated_length",
                                        "completions/max_terminated_length"};
    double loss[4] = {0}, kd[4] = {0}, trained[4] = {0}, length[4] = {0};
    distill("out", "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (numbers("out", names[i], length, 4) != 4)
            fail_msg("no %s", names[i]);
    assert_int_equal(numbers("out", "loss", loss, 4), 4);
    assert_int_equal(numbers("out", "kd_loss", kd, 4), 4);
    assert_int_equal(numbers("out", "trained_tokens", trained, 4), 4);
    assert_int_equal(numbers("out", "completions/mean_length", length, 4), 4);
    for (int i = 0; i < 4; i++) {
        assert_true(loss[i] > 0.1 && fabs(loss[i] - kd[i]) < 1e-6);
        assert_true(trained[i] == 4 * length[i]); /* of prompts, none */
    }
    assert_true(loss[3] < loss[0]);
    assert_int_equal(numbers("out", "reward", loss, 4), 0);
    json_t *v = completion("out", 0);
    assert_true(json_is_string(json_object_get(v, "completion")));
    assert_null(json_object_get(v, "rewards"));
    assert_null(json_object_get(v, "advantage"));
    json_decref(v);
    if (run(said, sizeof said, "report '%s/out' -o '%s/report.html'", scratch, scratch) != 0)
        fail_msg("%s", said);
    char *page = read_text(".", "report.html");
    assert_non_null(strstr(page, "on-policy distillation"));
    assert_non_null(strstr(page, "Divergence from the teacher<"));
    ax_free(page);
    clear("out");
}

/* A model that is its own teacher has nothing to learn, whatever it samples. */
static void a_teacher_like_the_model(void **state) {
    (void)state;
    static const char *const options[] = {"", "kd_beta=0", "kd_beta=0.5",
                                          "trl.temperature=0.7 trl.top_k=20 kd_temperature=2"};
    double loss[4] = {0};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (try("train", config(), student, "out", options[i]) != 0)
            fail_msg("%s", said);
        assert_int_equal(numbers("out", "loss", loss, 4), 4);
        assert_true(fabs(loss[0]) < 1e-6);
        clear("out");
    }
}

/* The reverse KL at the temperature of sampling, as in TRL, unless keys say otherwise. */
static void defaults_are_trl_s(void **state) {
    (void)state;
    static const char *const alike[][2] = {
        {"", "kd_beta=1 kd_temperature=1"},
        {"trl.temperature=1.5", "trl.temperature=1.5 kd_temperature=1.5"},
    };
    for (size_t i = 0; i < 2; i++) {
        distill("a", alike[i][0]);
        distill("b", alike[i][1]);
        same_completions("a", "b");
        assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
        clear("b");
        distill("b", "kd_beta=0 trl.temperature=1.5 kd_temperature=1");
        assert_true(hash_of("a", "model.safetensors") != hash_of("b", "model.safetensors"));
        clear("a");
        clear("b");
    }
}

/* ---- what does not change a run ---- */

static void a_resumed_run_is_the_run(void **state) {
    (void)state;
    distill("a", "");
    distill("b", "max_steps=2");
    distill("b", "resume_from_checkpoint=auto");
    same_completions("a", "b");
    assert_true(hash_of("a", "model.safetensors") == hash_of("b", "model.safetensors"));
    clear("a");
    clear("b");
}

/* Up to rounding, which sums over ranks change. */
static void ranks_sample_the_same(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_shard_size=2 gradient_accumulation_steps=1",
                                         "tensor_parallel_size=2", "pipeline_parallel_size=2",
                                         "context_parallel_size=2"};
    char more[256];
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        double one[4] = {0}, two[4] = {0};
        /* the first samples follow from the base alone */
        distill("a", "learning_rate=1e-7");
        snprintf(more, sizeof more, "learning_rate=1e-7 %s", meshes[i]);
        if (try("launch -n 2 -- train", config(), teacher, "b", more) != 0)
            fail_msg("%s", said);
        same_completions("a", "b");
        assert_int_equal(numbers("a", "loss", one, 4), 4);
        assert_int_equal(numbers("b", "loss", two, 4), 4);
        for (int k = 0; k < 4; k++)
            if (!(fabs(one[k] - two[k]) < 1e-6))
                fail_msg("%s, step %d: %.9g and %.9g", meshes[i], k + 1, one[k], two[k]);
        clear("a");
        clear("b");
    }
}

/* ---- mistakes, and the page ---- */

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"kd_teacher=", "kd_teacher: rl: distill needs a teacher"},
        {"kd_ce_alpha=0.5", "kd_ce_alpha: with rl: distill"},
        {"trl.reward_funcs=\"['format:e']\"", "rl: distill has no rewards"},
        {"rl_beta=0.1", "kd_beta chooses its divergence"},
        {"trl.num_generations=4", "rl: distill samples one answer of a prompt"},
        {"val_set_size=0.2 metric_for_best_model=eval_reward", "metric_for_best_model"},
        {"kd_alpha=0", "the teacher is not used"},
        {"rl=ppo", "kd_teacher: distills into a language model"},
        {"sample_packing=true", "packing is not supported with this rl"},
        {"lmbda=0.5", "lmbda"},
        {"loss_top_k=8", "here it is called kd_loss_top_k"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (try("train", config(), teacher, "out", cases[i].more) != 2 ||
            !strstr(said, cases[i].says))
            fail_msg("%s: expected \"%s\" in: %s", cases[i].more, cases[i].says, said);
    char other[512];
    snprintf(other, sizeof other, "%s", golden_path("models/qwen3"));
    assert_int_equal(try("train", config(), other, "out", ""), 2);
    assert_non_null(strstr(said, "kd_teacher: "));
}

/* The configuration of docs/distillation.md, with small models; plan and preview know it, too. */
static void the_example_of_the_page_runs(void **state) {
    (void)state;
    char *text, *from, *to;
    size_t n;
    assert_int_equal(ax_read_file("docs/distillation.md", 1 << 20, &text, &n), AX_OK);
    from = strstr(text, "## On the model's own answers");
    assert_non_null(from);
    from = strstr(from, "```yaml\n") + 8;
    to = strstr(from, "```");
    assert_non_null(to);
    char path[256];
    snprintf(path, sizeof path, "%s", put_bytes("page.yaml", from, (size_t)(to - from)));
    ax_free(text);
    if (try("train", path, teacher, "out", "max_steps=2") != 0)
        fail_msg("%s", said);
    clear("out");
    static const char *const commands[] = {"plan", "preview"};
    for (size_t i = 0; i < 2; i++) {
        if (run(said, sizeof said,
                "%s '%s' base_model='%s' kd_teacher='%s' datasets='[{path: %s}]' "
                "dataset_prepared_path='%s/cache' sequence_len=600",
                commands[i], path, student, teacher, data, scratch) != 0)
            fail_msg("%s: %s", commands[i], said);
        assert_non_null(
            strstr(said, i == 0 ? "sampling 8 prompts × 1 answer for 1 step" : "prompt"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_have_trl_s_names),     cmocka_unit_test(a_teacher_like_the_model),
        cmocka_unit_test(defaults_are_trl_s),           cmocka_unit_test(a_resumed_run_is_the_run),
        cmocka_unit_test(ranks_sample_the_same),        cmocka_unit_test(mistakes),
        cmocka_unit_test(the_example_of_the_page_runs),
    };
    return cmocka_run_group_tests(tests, on_policy_begin, scratch_remove);
}
