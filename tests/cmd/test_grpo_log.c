/* What reward functions log in a run of `axtrain grpo`: the same in its records and completions.jsonl on any mesh, and with
 * ranks that sample. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "data/records/rows/rows.h"
#include "optim/losses/policy.h"
#include "optim/metrics/metrics.h"
#include "tests/cmd/grpo_case.h"

/* "e" rewards; calls of a data rank have different numbers of completions, and each logs one value for each. */
static const char functions[] =
    "def e(completions, completion_ids, answer, trainer_state, log_metric, log_extra, **kwargs):\n"
    "    s = trainer_state\n"
    "    for ids in completion_ids: log_metric('n/ids', len(ids))\n"
    "    log_metric('step', 1)\n"
    "    log_metric('reward', 1)\n"
    "    for x in ['kl', 'eval_seconds', 'moe/x']: log_metric(x, 1)\n"
    "    for i in range(7): log_metric(f'many/{s.global_step}/{i}', i)\n"
    "    log_extra('n', [len(x) for x in completion_ids])\n"
    "    log_extra('answer', answer)\n"
    "    log_extra('at', [[s.global_step, s.max_steps, s.epoch]] * len(answer))\n"
    "    return [float('e' in c) for c in completions]\n"
    "def sometimes(completions, answer, log_metric, **kwargs):\n"
    "    if answer[0] % 2: log_metric('odd', float('nan') if answer[0] == 1 else 0.5)\n"
    "    return [None] * len(completions)\n";

static int begin(void **state) {
    if (scratch_make(state) != 0)
        return -1;
    (void)put_text("mine_e.py", functions);
    return setenv("PYTHONPATH", scratch, 1);
}

#define FUNCTIONS "trl.reward_funcs='[mine_e.e, mine_e.sometimes]' "

static void train_by(const char *launch, const char *out, const char *config, const char *more) {
    if (run(said, sizeof said, "%s grpo '%s' output_dir='%s/%s' --quiet " FUNCTIONS "%s", launch,
            config, scratch, out, more) != 0)
        fail_msg("%s %s: %s", launch, more, said);
}

static json_t *line_at(char **rest) {
    char *line = strsep(rest, "\n");
    return line && *line ? json_loads(line, JSON_ALLOW_NUL, NULL) : NULL;
}

/* Each completion has its own columns, and each step's mean of lengths is theirs. Prompts of an epoch: 40. */
static void assert_columns(const char *folder, int steps, int per_step) {
    double lengths[8], means[8];
    char *text = read_text(folder, "completions.jsonl"), *rest = text;
    assert_int_equal(numbers(folder, "n/ids", lengths, 8), steps);
    assert_int_equal(numbers(folder, "completions/mean_length", means, 8), steps);
    for (int i = 0; i < steps; i++)
        assert_true(fabs(lengths[i] - means[i]) < 1e-9);
    for (int i = 0; i < steps * per_step; i++) {
        json_t *v = line_at(&rest);
        const json_t *extra = json_object_get(v, "extra"), *at = json_object_get(extra, "at");
        const int step = i / per_step;
        assert_int_equal(json_integer_value(json_object_get(extra, "n")),
                         json_integer_value(json_object_get(v, "tokens")));
        assert_int_equal(json_integer_value(json_object_get(extra, "answer")),
                         json_integer_value(json_object_get(v, "line")));
        assert_int_equal(json_integer_value(json_array_get(at, 0)), step);
        assert_int_equal(json_integer_value(json_array_get(at, 1)), steps);
        assert_true(fabs(json_number_value(json_array_get(at, 2)) - step * per_step / 160.0) <
                    1e-9);
        json_decref(v);
    }
    ax_free(text);
}

static void has(const char *part) {
    if (!strstr(said, part))
        fail_msg("\"%s\" lacks \"%s\"", said, part);
}

static bool is_measure(const char *name) {
    for (int i = 0; ax_policy_measures[i]; i++)
        if (strcmp(ax_policy_measures[i], name) == 0)
            return true;
    return false;
}

/* Names of records are not for functions: those of a run without them. */
static void names_of_records(void **state) {
    (void)state;
    train("n", configure("", "micro_batch_size: 4\n"), "val_set_size=0.2 eval_steps=2");
    char *text = read_text("n", "metrics.jsonl"), *rest = text;
    json_t *v, *x;
    for (const char *name; (v = line_at(&rest)) != NULL; json_decref(v)) {
        json_object_foreach(v, name, x) {
            const char *plain = strncmp(name, "eval_", 5) == 0 ? name + 5 : name;
            const bool figure = strncmp(plain, "reward", 6) == 0 || strchr(plain, '/') ||
                                strcmp(plain, "frac_reward_zero_std") == 0;
            if (!figure && !is_measure(plain) && !ax_metrics_is_own(name))
                fail_msg("%s may be logged, too", name);
        }
    }
    ax_free(text);
    assert_false(ax_metrics_is_own("accuracy/x") || ax_metrics_is_own("los") ||
                 ax_metrics_is_own(""));
}

/* Names that the run has itself are left out, and said once. */
static void on_one_rank(void **state) {
    double ones[8], odd[8];
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n");
    (void)state;
    train_by("", "a", config, "max_steps=5");
    has("warn rewards: mine_e.e: log_metric(\"step\"): the run reports another figure of this "
        "name; "
        "it is left out (this is said only once)");
    assert_int_equal(numbers("a", "step", ones, 8), 5);
    assert_true(ones[4] == 5);
    assert_int_equal(numbers("a", "eval_seconds", ones, 8), 0);
    assert_int_equal(numbers("a", "moe/x", ones, 8), 0);
    assert_int_equal(numbers("a", "many/0/6", ones, 8), 1);
    assert_true(ones[0] == 6);
    assert_int_equal(numbers("a", "many/3/0", ones, 8), 1);
    assert_true(numbers("a", "odd", odd, 8) > 0 && odd[0] == 0.5);
    assert_columns("a", 5, 8);
    char *csv = read_text("a", "metrics.csv");
    assert_non_null(strstr(csv, ",n/ids"));
    assert_null(strstr(csv, "step,step"));
    ax_free(csv);
}

/* completions.parquet has them as JSON. */
static void as_a_table(void **state) {
    struct ax_rows *r;
    struct ax_raw_row row;
    bool got;
    (void)state;
    char *text = read_text("a", "completions.jsonl"), *rest = text;
    const struct ax_rows_options o = {.path = in_scratch("a/completions.parquet")};
    assert_int_equal(ax_rows_open(&r, &o), AX_OK);
    json_t *v, *line = line_at(&rest);
    assert_int_equal(ax_rows_next(r, &row, &got), AX_OK);
    assert_int_equal(ax_rows_parse(r, &row, &v), AX_OK);
    assert_true(json_equal(json_object_get(v, "extra"), json_object_get(line, "extra")));
    json_decref(line);
    json_decref(v);
    ax_rows_close(r);
    ax_free(text);
}

static void on_meshes(void **state) {
    static const struct {
        const char *launch, *more;
    } meshes[] = {
        {"launch -n 2 --", "dp_shard_size=2 gradient_accumulation_steps=1"},
        {"launch -n 2 --", "tensor_parallel_size=2"},
        {"launch -n 2 --", "pipeline_parallel_size=2"},
        {"launch -n 3 --", "dp_shard_size=3 micro_batch_size=4 gradient_accumulation_steps=1"},
        {"", "max_staleness=1"},
        {"launch -n 2 --", "rollout_ranks=1 max_staleness=1"},
    };
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 2\n");
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        train_by(meshes[i].launch, "b", config, meshes[i].more);
        assert_columns("b", 4, i == 3 ? 12 : 8);
        clear("b");
    }
}

/* At most 64 names in a run (n/ids, odd, reward, which is then left out, 61 more), and in evaluations the same ones behind eval_. */
static void evaluations_and_bounds(void **state) {
    double values[8], lengths[8];
    const char *config = configure("", "micro_batch_size: 4\ngradient_accumulation_steps: 1\n");
    (void)state;
    train_by("", "c", config, "max_steps=10 val_set_size=0.2 eval_steps=5 save_steps=10");
    assert_int_equal(numbers("c", "many/8/4", values, 8), 1);
    assert_int_equal(numbers("c", "many/8/5", values, 8), 0);
    assert_int_equal(numbers("c", "eval_n/ids", values, 8), 3);
    assert_int_equal(numbers("c", "eval_completions/mean_length", lengths, 8), 3);
    assert_true(fabs(values[1] - lengths[1]) < 1e-9);
    assert_int_equal(numbers("c", "eval_many/10/3", values, 8), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_records),
        cmocka_unit_test(on_one_rank),
        cmocka_unit_test(as_a_table),
        cmocka_unit_test(on_meshes),
        cmocka_unit_test(evaluations_and_bounds),
    };
    return cmocka_run_group_tests(tests, begin, scratch_remove);
}
