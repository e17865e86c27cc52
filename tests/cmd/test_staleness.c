/* `axtrain grpo` with answers by older weights (max_staleness), and with ranks that only sample (rollout_ranks): which
 * weights draw an answer, that nothing but max_staleness decides it, and what is said of mistakes and losses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/cmd/tools_case.h"
#include "tests/long.h"

#define STEPS 4
#define STEP  "micro_batch_size: 4\ngradient_accumulation_steps: 2\n"
#define ADAPTER                                                                                    \
    "adapter=qlora load_in_4bit=true lora_r=4 lora_alpha=8 lora_target_linear=true trl.beta=0.1"

static void launch(int ranks, const char *out, const char *config, const char *more) {
    if (run(said, sizeof said, "launch -n %d -- grpo '%s' output_dir='%s/%s' --quiet %s", ranks,
            config, scratch, out, more) != 0)
        fail_msg("%s: %s", more, said);
}

static void same_run(const char *a, const char *b, const char *weights) {
    same_completions(a, b);
    if (hash_of(a, weights) != hash_of(b, weights))
        fail_msg("%s and %s have different weights", a, b);
}

static void close_losses(const char *a, const char *b) {
    double x[STEPS], y[STEPS];
    assert_int_equal(numbers(a, "loss", x, STEPS), STEPS);
    assert_int_equal(numbers(b, "loss", y, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(x[i] - y[i]) <= 1e-5))
            fail_msg("step %d: loss %.9g of %s, %.9g of %s", i + 1, x[i], a, y[i], b);
}

/* ---- which weights ---- */

/* The completions of a step, one after the other, without the rest of their lines; the caller frees them. *weights: the
 * version that its lines name; −1: none. */
static char *answers_of(const char *folder, int step, int64_t *weights) {
    struct ax_buf all = {0};
    char *text = read_text(folder, "completions.jsonl"), *rest = text;
    int n = 0;
    *weights = -1;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *of = json_object_get(v, "weights");
        if (json_integer_value(json_object_get(v, "step")) == step) {
            const json_t *answer = json_object_get(v, "completion");
            assert_int_equal(
                ax_buf_append(&all, json_string_value(answer), json_string_length(answer)), AX_OK);
            assert_int_equal(ax_buf_puts(&all, "\n"), AX_OK);
            if (of) {
                assert_true(n == 0 || *weights == json_integer_value(of));
                *weights = json_integer_value(of);
            }
            n++;
        }
        json_decref(v);
    }
    ax_free(text);
    assert_true(n > 0);
    return all.data;
}

/* What a run whose weights stay those after `version` steps of `of` draws in its step. */
static char *answers_by(const char *of, int version, const char *config, int step) {
    char more[400];
    int64_t weights;
    if (version == 0)
        snprintf(more, sizeof more, "learning_rate=1e-30 max_steps=%d", step);
    else
        snprintf(more, sizeof more,
                 "learning_rate=1e-30 max_steps=%d base_model='%s/%s/checkpoint-%d'", step, scratch,
                 of, version);
    train("still", config, more);
    char *answers = answers_of("still", step, &weights);
    assert_int_equal(weights, -1);
    clear("still");
    return answers;
}

/* A step's answers are drawn by the weights after the step before it, less the lag: those of the first steps by
 * the first weights. Runs that draw with these weights alone have the same answers. */
static void older_weights_draw(void **state) {
    (void)state;
    const char *config = configure("", STEP);
    for (int lag = 1; lag <= 2; lag++) {
        char more[60];
        snprintf(more, sizeof more, "max_staleness=%d save_total_limit=10", lag);
        train("a", config, more);
        for (int step = 1; step <= STEPS; step++) {
            const int version = step - 1 - lag > 0 ? step - 1 - lag : 0;
            int64_t weights;
            char *got = answers_of("a", step, &weights),
                 *want = answers_by("a", version, config, step);
            assert_int_equal(weights, version);
            if (strcmp(got, want) != 0)
                fail_msg("lag %d, step %d: got\n%sexpected\n%s", lag, step, got, want);
            ax_free(got);
            ax_free(want);
        }
        clear("a");
    }
}

/* The ratio to weights that have not moved is exactly 1, and to others it is not; it is never above its bound. */
static void the_ratio_is_of_the_lag(void **state) {
    (void)state;
    double mean[STEPS], most[STEPS], least[STEPS], gap[STEPS], widest[STEPS], age[STEPS],
        norm[2][STEPS];
    const char *config = configure("", STEP);
    train("a", config, "max_staleness=1");
    assert_int_equal(numbers("a", "sampling/importance_sampling_ratio/mean", mean, STEPS), STEPS);
    assert_int_equal(numbers("a", "sampling/importance_sampling_ratio/max", most, STEPS), STEPS);
    assert_int_equal(numbers("a", "sampling/importance_sampling_ratio/min", least, STEPS), STEPS);
    assert_int_equal(numbers("a", "sampling/sampling_logp_difference/mean", gap, STEPS), STEPS);
    assert_int_equal(numbers("a", "sampling/sampling_logp_difference/max", widest, STEPS), STEPS);
    assert_int_equal(numbers("a", "staleness", age, STEPS), STEPS);
    assert_int_equal(numbers("a", "grad_norm", norm[0], STEPS), STEPS);
    assert_true(age[0] == 0 && mean[0] == 1 && most[0] == 1 && least[0] == 1 && gap[0] == 0);
    for (int i = 1; i < STEPS; i++)
        assert_true(age[i] == 1 && gap[i] > 0 && gap[i] < widest[i] && least[i] < mean[i] &&
                    mean[i] < most[i]);
    clear("a");
    train("a", config, "max_staleness=1 trl.vllm_importance_sampling_clip_max=0.5");
    assert_int_equal(numbers("a", "sampling/importance_sampling_ratio/max", most, STEPS), STEPS);
    assert_int_equal(numbers("a", "grad_norm", norm[1], STEPS), STEPS);
    assert_true(most[0] == 0.5 && most[STEPS - 1] == 0.5);
    assert_true(fabs(norm[1][0] / norm[0][0] - 0.5) < 1e-5); /* all terms by half */
    clear("a");
    train("a", config, "max_staleness=1 trl.vllm_importance_sampling_correction=false");
    assert_int_equal(numbers("a", "ratio_mean", mean, STEPS), STEPS);
    assert_int_equal(numbers("a", "sampling/importance_sampling_ratio/mean", most, STEPS), 0);
    assert_true(mean[0] == 1 && mean[1] != 1);
    clear("a");
}

/* ---- ranks that only sample ---- */

/* Without a lag they do what one rank does, to the bit; with one, what one rank does with it. */
static void other_ranks_draw_the_same(void **state) {
    (void)state;
    char on[200];
    const char *const options[] = {"", "max_staleness=1", "max_staleness=2 trl.beta=0.1",
                                   "max_staleness=1 " ADAPTER, on};
    const char *config = configure("", STEP);
    snprintf(
        on, sizeof on,
        "max_staleness=1 adapter=lora lora_model_dir='%s/start' trl.beta=0.1 learning_rate=0.01",
        scratch);
    train("start", config, ADAPTER);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char more[300];
        const char *weights =
            strstr(options[i], "adapter") ? "adapter_model.safetensors" : "model.safetensors";
        train("a", config, options[i]);
        snprintf(more, sizeof more, "%s rollout_ranks=1", options[i]);
        launch(2, "b", config, more);
        same_run("a", "b", weights);
        clear("a");
        clear("b");
    }
    clear("start");
}

/* Any number of ranks on either side; ranks that train sum their losses in another order. */
static void any_ranks(void **state) {
    (void)state;
    static const struct {
        int ranks;
        const char *more;
    } meshes[] = {{3, "dp_shard_size=2 rollout_ranks=1"},
                  {4, "dp_replicate_size=2 rollout_ranks=2"},
                  {3, "context_parallel_size=2 context_parallel_method=gather rollout_ranks=1"}};
    double saved[STEPS];
    const char *config = configure("", "micro_batch_size: 4\nmax_staleness: 1\n");
    train("a", config, "gradient_accumulation_steps=2");
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        char more[200];
        const bool rows = strstr(meshes[i].more, "context") != NULL;
        snprintf(more, sizeof more, "%s gradient_accumulation_steps=%d", meshes[i].more, 1 + rows);
        launch(meshes[i].ranks, "b", config, more);
        same_completions("a", "b");
        close_losses("a", "b");
        assert_int_equal(numbers("b", "time_saved", saved, STEPS), STEPS);
        for (int s = 0; s < STEPS; s++)
            assert_true(saved[s] < 1);
        clear("b");
    }
    launch(3, "b", config, "gradient_accumulation_steps=2 rollout_ranks=2");
    same_run("a", "b", "model.safetensors");
    clear("b");
    clear("a");
}

/* Answers of several turns, with results of tools between them; those of the third step are by weights that moved. */
static void with_tools(void **state) {
    (void)state;
    double calls[2][3];
    const char *config = configure_tools(base, "");
    train("a", config, "max_staleness=1 max_steps=3");
    launch(2, "b", config, "max_staleness=1 rollout_ranks=1 max_steps=3");
    for (int i = 0; i < 2; i++)
        assert_int_equal(numbers(i ? "b" : "a", "tools/call_frequency", calls[i], 3), 3);
    assert_true(calls[0][0] > 0);
    assert_memory_equal(calls[0], calls[1], sizeof *calls);
    for (int step = 1; step <= 3; step++) {
        int64_t weights;
        char *x = answers_of("a", step, &weights), *y = answers_of("b", step, &weights);
        assert_string_equal(x, y);
        ax_free(x);
        ax_free(y);
    }
    if (hash_of("a", "model.safetensors") != hash_of("b", "model.safetensors"))
        fail_msg("other ranks have other weights");
    clear("a");
    clear("b");
}

/* No step of ranks that train has time for rewards, which the ranks that sample give. */
static void no_rewards_here(const char *folder) {
    char *text = read_text(folder, "metrics.jsonl"), *rest = text;
    int n = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, 0, NULL);
        const json_t *phases = json_object_get(v, "phase_seconds");
        if (phases) {
            assert_true(json_number_value(json_object_get(phases, "reward")) == 0);
            n++;
        }
        json_decref(v);
    }
    ax_free(text);
    assert_int_equal(n, STEPS);
}

/* By the ranks that train, with their weights of now; answers are as without it. */
static void evaluations(void **state) {
    (void)state;
    double x[5], y[5];
    const char *config = configure("", STEP);
    train("a", config, "max_staleness=1 val_set_size=4 eval_steps=2");
    launch(2, "b", config, "max_staleness=1 val_set_size=4 eval_steps=2 rollout_ranks=1");
    assert_int_equal(numbers("a", "eval_reward", x, 5), 3);
    assert_int_equal(numbers("b", "eval_reward", y, 5), 3);
    assert_memory_equal(x, y, 3 * sizeof *x);
    no_rewards_here("b");
    same_run("a", "b", "model.safetensors");
    clear("a");
    clear("b");
}

/* ---- going on ---- */

static int try_run(int ranks, const char *config, const char *more) {
    return ranks > 1
               ? run(said, sizeof said,
                     "launch -n %d -- grpo '%s' output_dir='%s/b' --quiet rollout_ranks=%d %s",
                     ranks, config, scratch, ranks - 1, more)
               : run(said, sizeof said, "grpo '%s' output_dir='%s/b' --quiet %s", config, scratch,
                     more);
}

/* After a kill of the rank that samples, or a request to stop, a run has the bits of one that was not stopped,
 * also where other ranks draw from there on. Answers that were drawn before are in the checkpoint. */
static void goes_on(void **state) {
    (void)state;
    static const struct {
        const char *signal;
        int before, after; /* ranks */
        int code;
    } runs[] = {{"SIGKILL", 1, 1, 137},
                {"SIGKILL", 2, 2, 137},
                {"SIGKILL", 2, 1, 137},
                {"SIGTERM", 2, 2, 75},
                {"SIGTERM", 1, 2, 75}};
    const char *config = configure("", STEP "max_staleness: 2\n");
    char judge[400], more[500];
    put_judge("SIGKILL", 2, 5, judge, sizeof judge);
    snprintf(more, sizeof more, "max_steps=6 %s", judge);
    train("a", config, more);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const bool launcher = runs[i].before > 1 && strcmp(runs[i].signal, "SIGTERM") == 0;
        put_judge(runs[i].signal, launcher ? 3 : 2, 5, judge, sizeof judge);
        put_text("kill", "");
        snprintf(more, sizeof more, "max_steps=6 %s", judge);
        const int code = try_run(runs[i].before, config, more);
        if (code == 0 || ax_path_exists(in_scratch("kill")))
            fail_msg("%s of %d ranks: exit %d: %s", runs[i].signal, runs[i].before, code, said);
        if (runs[i].before > 1 && !launcher && !strstr(said, "rank 1"))
            fail_msg("the rank that was lost is not named: %s", said);
        assert_false(ax_path_exists(in_scratch("b/model.safetensors")));
        snprintf(more, sizeof more, "max_steps=6 resume_from_checkpoint=auto %s", judge);
        if (try_run(runs[i].after, config, more) != 0)
            fail_msg("%s of %d ranks, then %d: %s", runs[i].signal, runs[i].before, runs[i].after,
                     said);
        same_run("a", "b", "model.safetensors");
        clear("b");
    }
    clear("a");
}

/* ---- mistakes ---- */

/* A run of N ranks that ends before it begins. */
static void refused(int ranks, const char *out, const char *more, const char *what) {
    char launcher[32] = "";
    const char *config = configure("", STEP);
    if (ranks > 1)
        (void)snprintf(launcher, sizeof launcher, "launch -n %d --", ranks);
    const int code = run(said, sizeof said, "%s grpo '%s' output_dir='%s/%s' %s", launcher, config,
                         scratch, out, more);
    if (code != 2 || !strstr(said, what))
        fail_msg("%s: exit %d, expected 2 and \"%s\": %s", more, code, what, said);
}

static void refuses(const char *more, const char *what) {
    refused(2, "x", more, what);
}

static void mistakes_are_named(void **state) {
    (void)state;
    refuses("rollout_ranks=2", "2 ranks sample beside those that train, but only 2 ranks were");
    refuses("rollout_ranks=-1", "rollout_ranks");
    refuses("rollout_ranks=1 tensor_parallel_size=2", "tensor_parallel_size: ranks that sample");
    refuses("rollout_ranks=1 pipeline_parallel_size=2",
            "pipeline_parallel_size: ranks that sample");
    refuses("rollout_ranks=1 expert_parallel_size=2", "expert_parallel_size: ranks that sample");
    refuses("max_staleness=1 trl.num_iterations=2", "trl.num_iterations: answers that are sampled");
    refuses("max_staleness=1 trl.steps_per_generation=4", "are those of one step");
    refuses("rollout_ranks=1 elastic=true", "elastic: a lost rank");
    refuses("max_staleness=1 kd_teacher=nowhere", "kd_teacher: not supported");
    refuses("max_staleness=1 trl.loss_type=vespo trl.vllm_importance_sampling_mode=sequence_mask",
            "trl.vllm_importance_sampling_mode: vespo corrects tokens");
    assert_false(ax_path_exists(in_scratch("x")));
    refused(1, "x", "rollout_ranks=1",
            "only 1 rank was started: start more with `axtrain launch -n 2");
}

/* A run goes on with the lag that it has. */
static void the_lag_is_fixed(void **state) {
    (void)state;
    train("b", configure("", STEP), "max_staleness=1 max_steps=2");
    refused(1, "b", "max_staleness=2 resume_from_checkpoint=auto", "max_staleness was 1");
    clear("b");
}

/* With ranks that sample, a generation is one step's, so that they cannot go on from one that was two. */
static void other_generations_are_refused(void **state) {
    (void)state;
    train("b", configure("", STEP), "trl.num_iterations=2 max_steps=2");
    refused(2, "b", "rollout_ranks=1 resume_from_checkpoint=auto",
            "rollout_ranks: the checkpoint's run took several steps");
    clear("b");
}

/* Takes keys out of what a checkpoint says of its run's configuration. Its first line is a checksum of the rest. */
static void forget(const char *manifest, int n, const char *const *keys) {
    json_t *v = json_load_file(in_scratch(manifest), 0, NULL),
           *config = json_object_get(json_object_get(v, "run"), "config");
    struct ax_buf b = {0};
    for (int i = 0; i < n; i++)
        if (json_object_del(config, keys[i]) != 0)
            fail_msg("%s has no %s", manifest, keys[i]);
    json_object_del(v, "crc32c");
    char *text = json_dumps(v, JSON_COMPACT);
    const uint32_t crc = ax_crc32c(0, text + 1, strlen(text + 1));
    assert_int_equal(ax_buf_printf(&b, "{\"crc32c\": \"%08x\",%s", crc, text + 1), AX_OK);
    put_bytes(manifest, b.data, b.len);
    ax_buf_free(&b);
    ax_free_hook(text);
    json_decref(v);
}

/* A run from before there were such keys had what are their defaults now. */
static void older_checkpoints_resume(void **state) {
    (void)state;
    static const char *const newer[] = {"max_staleness", "indexer_training"};
    const char *config = configure("", STEP);
    train("a", config, "");
    train("b", config, "max_steps=2");
    forget("b/checkpoint-2/state/manifest.json", 2, newer);
    refused(1, "b", "max_staleness=1 resume_from_checkpoint=auto", "max_staleness was unset");
    train("b", config, "resume_from_checkpoint=auto");
    same_run("a", "b", "model.safetensors");
    clear("a");
    clear("b");
}

/* A key within a map, as others, makes another run. */
static void keys_of_maps_are_fixed(void **state) {
    (void)state;
    train("a", configure("", STEP), "max_steps=1");
    refused(1, "a", "trl.num_generations=2 micro_batch_size=2 resume_from_checkpoint=auto",
            "trl.num_generations was ");
    clear("a");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(older_weights_draw)),
        cmocka_unit_test(the_ratio_is_of_the_lag),
        LONG_TEST(cmocka_unit_test(other_ranks_draw_the_same)),
        LONG_TEST(cmocka_unit_test(any_ranks)),
        LONG_TEST(cmocka_unit_test(with_tools)),
        cmocka_unit_test(evaluations),
        LONG_TEST(cmocka_unit_test(goes_on)),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(the_lag_is_fixed),
        cmocka_unit_test(other_generations_are_refused),
        LONG_TEST(cmocka_unit_test(older_checkpoints_resume)),
        cmocka_unit_test(keys_of_maps_are_fixed),
    };
    return cmocka_run_group_tests(tests, teach_tools, scratch_remove);
}
