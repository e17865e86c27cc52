/* lm_eval_tasks: tasks at evaluations of a run, by a program in place of lm-evaluation-harness (tests/cmd/harness). Their
 * results are those of `axtrain eval` on the weights of the step, on any mesh, and nothing else changes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/long.h"

static char out[1 << 18], config[160], names[400];

static void put_task(const char *name, const char *more) {
    char text[1024];
    snprintf(text, sizeof text, "task: %.*s\ndataset_kwargs: {data_files: {test: %s}}\n%s\n",
             (int)strcspn(name, "."), name, in_scratch("tasks.jsonl"), more);
    put_text(name, text);
}

static void put_files(void) {
    struct ax_buf rows = {0}, tasks = {0};
    for (int i = 0; i < 8; i++)
        assert_int_equal(
            ax_buf_printf(&rows,
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"say %d and "
                          "%d\"}, {\"role\": \"assistant\", \"content\": \"no, no %d\"}]}\n",
                          i, i * 7, i),
            AX_OK);
    for (int i = 0; i < 11; i++)
        assert_int_equal(ax_buf_printf(&tasks,
                                       "{\"q\": \"say %d and %d\", \"c\": [\"no\", \" no, no %d\", "
                                       "\"so\"], \"a\": %d}\n",
                                       i, i + 1, i, i % 3),
                         AX_OK);
    put_text("rows.jsonl", rows.data);
    put_text("tasks.jsonl", tasks.data);
    put_task("pick.yaml", "output_type: multiple_choice");
    put_task("read.yaml", "output_type: loglikelihood_rolling");
    put_task("draw.yaml", "output_type: generate_until\ngeneration_kwargs: {\"until\": [\"e\"], "
                          "\"max_gen_toks\": 6, \"do_sample\": true, \"top_k\": 9}");
    ax_buf_free(&rows);
    ax_buf_free(&tasks);
}

static void forget(const char *folder) {
    if (ax_path_exists(in_scratch(folder)))
        assert_int_equal(ax_remove_tree(in_scratch(folder)), AX_OK);
}

static void configure(void) {
    char text[2048];
    forget("out");
    put_files();
    snprintf(text, sizeof text,
             "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: %s/rows.jsonl\n"
             "    type: chat_template\nchat_template: llama3\nsequence_len: 64\n"
             "learning_rate: 1e-2\nmicro_batch_size: 2\ngradient_accumulation_steps: 2\n"
             "num_epochs: 9\nmax_steps: 4\nsave_strategy: 'no'\nval_set_size: 2\neval_steps: 2\n"
             "float32: true\n",
             golden_path("models/llama"), scratch, scratch);
    snprintf(config, sizeof config, "%s", put_text("c.yaml", text));
    snprintf(names, sizeof names, "%s/pick.yaml,%s/read.yaml,%s/draw.yaml", scratch, scratch,
             scratch);
}

static void must(const char *fmt, ...) {
    char words[2000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    if (run(out, sizeof out, "%s", words) != 0)
        fail_msg("%s: %s", words, out);
}

/* A figure of the evaluation after a step; NaN: it is not there. */
static double figure(const char *folder, int step, const char *key) {
    char path[64], *text;
    size_t len;
    double value = NAN;
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    assert_int_equal(ax_read_file(in_scratch(path), 1 << 20, &text, &len), AX_OK);
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, 0, NULL);
        const json_t *x = json_object_get(v, key);
        if (x && json_integer_value(json_object_get(v, "step")) == step)
            value = json_number_value(x);
        json_decref(v);
    }
    ax_free(text);
    return value;
}

static const struct {
    const char *figure, *task, *metric;
} results[] = {{"eval_pick/acc", "pick", "acc,none"},
               {"eval_read/bits_per_byte", "read", "bits_per_byte,none"},
               {"eval_draw/exact_match", "draw", "exact_match,none"}};
enum { N_RESULTS = sizeof results / sizeof *results };

static void near(double want, double got) {
    if (!(fabs(want - got) <= 1e-5 * fmax(1, fabs(want))))
        fail_msg("%.9g, expected %.9g", got, want);
}

static void same_file(const char *a, const char *b) {
    char *x, *y;
    size_t n, m;
    assert_int_equal(ax_read_file(in_scratch(a), 1 << 26, &x, &n), AX_OK);
    assert_int_equal(ax_read_file(in_scratch(b), 1 << 26, &y, &m), AX_OK);
    assert_true(n == m && memcmp(x, y, n) == 0);
    ax_free(x);
    ax_free(y);
}

static void results_are_those_of_eval(void **state) {
    (void)state;
    configure();
    must("sft %s output_dir=%s/without", config, scratch);
    must("sft %s lm_eval_tasks=[%s]", config, names);
    same_file("out/model.safetensors", "without/model.safetensors");
    must("eval %s --task %s --max-length 64 --json", in_scratch("out"), names);
    json_t *v = json_loads(strchr(out, '{'), JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(v);
    for (int i = 0; i < N_RESULTS; i++) {
        const json_t *task = json_object_get(json_object_get(v, "results"), results[i].task);
        near(json_number_value(json_object_get(task, results[i].metric)),
             figure("out", 4, results[i].figure));
    }
    /* at the start the model has not seen the answers */
    assert_true(figure("out", 0, "eval_read/bits_per_byte") >
                figure("out", 2, "eval_read/bits_per_byte"));
    assert_true(isnan(figure("without", 4, "eval_pick/acc")));
    assert_true(isnan(figure("out", 4, "eval_pick/acc_stderr")));
    json_decref(v);
}

/* Rank 0 has the harness; all have the weights of the step. */
static void ranks_say_the_same(void **state) {
    (void)state;
    static const struct {
        int n;
        const char *mesh;
    } meshes[] = {{2, "dp_shard_size=2 gradient_accumulation_steps=1"},
                  {2, "tensor_parallel_size=2"},
                  {2, "pipeline_parallel_size=2"},
                  {2, "context_parallel_size=2"},
                  {4, "tensor_parallel_size=2 dp_shard_size=2 gradient_accumulation_steps=1"}};
    configure();
    must("sft %s lm_eval_tasks=[%s]", config, names);
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        must("launch -n %d -- sft %s lm_eval_tasks=[%s] output_dir=%s/mesh %s", meshes[k].n, config,
             names, scratch, meshes[k].mesh);
        for (int step = 0; step <= 4; step += 2)
            for (int i = 0; i < N_RESULTS; i++)
                near(figure("out", step, results[i].figure),
                     figure("mesh", step, results[i].figure));
        forget("mesh");
    }
}

/* What a harness says after the start of a run is not its end. */
static void a_harness_that_fails_later(void **state) {
    (void)state;
    static const char *const why[][2] = {
        {"raises",
         "lm_eval_tasks: lm_eval: KeyError: 'no task of that\\nname'. Training continues"},
        {"dies", "lm_eval_tasks: lm_eval has ended without results: exit code 3. Training"},
        {"babbles", "lm_eval_tasks: lm_eval:1:"},
        {"asks", "max_gen_toks is 64, which leaves no tokens for a prompt"}};
    configure();
    setenv("FAKE_LINE",
           "{\"generate\": [\"a\"], \"more\": false, \"max_tokens\": 64, \"temperature\": 0, "
           "\"top_p\": 1, \"top_k\": 0}",
           1);
    for (size_t i = 0; i < sizeof why / sizeof *why; i++) {
        must("%ssft %s lm_eval_tasks=[%s] %s", i % 2 ? "launch -n 2 -- " : "", config, why[i][0],
             i % 2 ? "tensor_parallel_size=2" : "");
        if (!strstr(out, why[i][1]) || !strstr(out, "trained 4 of 4 steps"))
            fail_msg("%s: %s", why[i][0], out);
        assert_true(isnan(figure("out", 4, "eval_pick/acc")));
        assert_true(isfinite(figure("out", 4, "eval_loss")));
        forget("out");
    }
    unsetenv("FAKE_LINE");
}

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

/* A run that is to end does not wait for the harness, which ends with it; what is left of the run comes later. */
static void a_stop_ends_the_harness(void **state) {
    (void)state;
    char task[300], *text = NULL, *second;
    size_t len;
    int status;
    configure();
    snprintf(task, sizeof task, "lm_eval_tasks=[sleeps:%s]", in_scratch("pids"));
    const pid_t pid = fork();
    if (pid == 0) {
        execl(test_program(), "axtrain", "sft", config, task, "--quiet", NULL);
        _exit(99);
    }
    for (int i = 0; i < 3000 && !ax_path_exists(in_scratch("pids")); i++)
        nap();
    assert_int_equal(ax_read_file(in_scratch("pids"), 100, &text, &len), AX_OK);
    const pid_t theirs[] = {(pid_t)strtol(text, &second, 10), (pid_t)strtol(second, NULL, 10)};
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    for (int i = 0; i < 2; i++) {
        for (int wait = 0; wait < 500 && kill(theirs[i], 0) == 0; wait++)
            nap();
        assert_true(theirs[i] > 1 && kill(theirs[i], 0) != 0);
    }
    ax_free(text);
}

static void fails(int code, const char *words, const char *why) {
    const int got = run(out, sizeof out, "sft %s output_dir=%s/none %s", config, scratch, words);
    if (got != code || !strstr(out, why))
        fail_msg("%s: exit code %d\n  said %s\n  not  %s", words, got, out, why);
    assert_false(ax_path_exists(in_scratch("none/metrics.jsonl")));
}

/* What is missing is said before the first step. */
static void mistakes(void **state) {
    (void)state;
    configure();
    setenv("FAKE_MISSING", "1", 1);
    fails(2, "lm_eval_tasks=[pick]", "lm_eval_tasks: python3 has no lm_eval. Install it with");
    must("plan %s lm_eval_tasks=[pick]", config); /* a plan needs no harness */
    unsetenv("FAKE_MISSING");
    fails(1, "lm_eval_tasks=[nothing]", "lm_eval: KeyError: 'nothing'");
    must("sft %s lm_eval_tasks=[nothing] val_set_size=0", config); /* without evaluations */
    assert_non_null(strstr(out, "lm_eval_tasks: only has an effect with val_set_size"));
}

/* A rope that is chosen by the longest text of a pass is the training's own again behind a task's longer ones. */
static void a_rope_by_length_is_each_passes_own(void **state) {
    (void)state;
    char command[1600], words[900], phi[160];
    const char *llama = golden_path("models/llama");
    configure();
    snprintf(phi, sizeof phi, "%s", in_scratch("phi"));
    snprintf(command, sizeof command, "cp -rL %s %s && chmod -R u+w %s && cp %s/tokenizer*.json %s",
             golden_path("models/phi3"), phi, phi, llama, phi);
    assert_int_equal(system(command), 0);
    put_text("short.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"a b\"}\n{\"text\": \"no\"}\n");
    put_text("tasks.jsonl",
             "{\"q\": \"say one and two and three and four and five and six and seven and "
             "eight and nine and ten and more\", \"c\": [\"no\"], \"a\": 0}\n");
    snprintf(words, sizeof words,
             "base_model=%s datasets.0.path=%s/short.jsonl datasets.0.type=completion "
             "val_set_size=0.5 gradient_accumulation_steps=1",
             phi, scratch);
    must("sft %s %s output_dir=%s/short", config, words, scratch);
    must("sft %s %s lm_eval_tasks=[%s/read.yaml]", config, words, scratch);
    same_file("out/model.safetensors", "short/model.safetensors");
    assert_true(isfinite(figure("out", 4, "eval_read/bits_per_byte")));
}

/* Lanes of the texts need memory that a run without tasks has not; a longer text more. */
static int64_t planned_bytes(const char *more) {
    must("sft %s --quiet --json max_steps=1 %s", config, more);
    json_t *v = json_loads(strchr(out, '{'), JSON_DISABLE_EOF_CHECK, NULL);
    const int64_t bytes = json_integer_value(json_object_get(v, "planned_bytes"));
    json_decref(v);
    forget("out");
    return bytes;
}

static void memory_is_planned(void **state) {
    (void)state;
    char more[500];
    configure();
    snprintf(more, sizeof more, "lm_eval_tasks=[%s] lm_eval_batch_size=400", names);
    const int64_t many = planned_bytes(more);
    snprintf(more, sizeof more, "lm_eval_tasks=[%s] lm_eval_batch_size=200", names);
    const int64_t few = planned_bytes(more);
    const int64_t lane = 64LL * 2 * 3 * 2 * 16 * 4; /* keys and values of 3 layers, 2 heads of 16 */
    print_message("%lld bytes for 400 lanes, %lld for 200\n", (long long)many, (long long)few);
    assert_true(many - few >= 200 * lane);
}

static int setup(void **state) {
    setenv("PYTHONPATH", "tests/cmd/harness", 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    unsetenv("AXTRAIN_PYTHON");
    setenv("OMP_NUM_THREADS", "1", 0);
    return scratch_make(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(results_are_those_of_eval)),
        LONG_TEST(cmocka_unit_test(ranks_say_the_same)),
        LONG_TEST(cmocka_unit_test(a_harness_that_fails_later)),
        cmocka_unit_test(a_stop_ends_the_harness),
        cmocka_unit_test(mistakes),
        LONG_TEST(cmocka_unit_test(a_rope_by_length_is_each_passes_own)),
        LONG_TEST(cmocka_unit_test(memory_is_planned)),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
