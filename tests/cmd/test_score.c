/* Reward models and process reward models as commands see them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "optim/evaluate/score/steps.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/program_case.h"
#include "tests/golden_files.h"

/* One line that says what the folder is for; nothing is written. */
static void they_do_not_generate(void **state) {
    (void)state;
    static const struct {
        const char *folder, *words, *said;
    } cases[] = {
        {"runs/reward/margin_trained", "generate --model %s --prompt hi",
         "a reward model, which cannot generate text. It is for scoring: axtrain eval --task "
         "reward."},
        {"runs/prm/prm_trained", "chat --model %s </dev/null",
         "a process reward model, which cannot generate text. It is for scoring: axtrain eval "
         "--task prm."},
        {"runs/prm/prm_trained", "convert %s --to gguf", "which cannot be written as GGUF."},
        {"runs/reward/margin_trained", "eval --model %s --data x.jsonl",
         "which cannot predict tokens."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[1200], out[4096], file[600] = "";
        snprintf(words, sizeof words, cases[i].words, golden_path(cases[i].folder));
        if (strstr(words, "gguf"))
            snprintf(file, sizeof file, " %s", in_dir("out.gguf"));
        assert_int_equal(run(out, sizeof out, "%s%s", words, file), 2);
        assert_non_null(strstr(out, cases[i].said));
        assert_int_equal(count_entries(in_dir("")), 0);
    }
}

/* ---- scores ---- */

static json_t *read_json(const char *path) {
    json_t *v = json_load_file(path, 0, NULL);
    assert_non_null(v);
    return v;
}

/* Lines of JSON as a list. */
static json_t *read_lines(const char *name) {
    json_t *list = json_array(), *v;
    FILE *f = fopen(in_dir(name), "r");
    assert_non_null(f);
    while ((v = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) != NULL)
        json_array_append_new(list, v);
    fclose(f);
    return list;
}

static void write_lines(const char *name, const json_t *list) {
    FILE *f = fopen(in_dir(name), "w");
    assert_non_null(f);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_dumpf(json_array_get(list, i), f, JSON_COMPACT);
        fputc('\n', f);
    }
    fclose(f);
}

static json_t *recorded(const char *folder, const char *key) {
    char path[600];
    snprintf(path, sizeof path, "%s.scores.json", golden_path(folder));
    json_t *v = read_json(path), *list = json_incref(json_object_get(v, key));
    json_decref(v);
    assert_true(json_array_size(list) >= 8);
    return list;
}

static double number(const json_t *v, const char *key) {
    const json_t *x = json_object_get(v, key);
    assert_true(json_is_number(x));
    return json_number_value(x);
}

static void expect_near(const json_t *got, const char *key, double want) {
    if (!(fabs(number(got, key) - want) < 1e-5))
        fail_msg("%s: %.9g, recorded %.9g", key, number(got, key), want);
}

/* On one rank, and on two that share the rows of matrices, or the model. */
static void rewards_are_those_that_trl_recorded(void **state) {
    (void)state;
    static const char *const ranks[][2] = {
        {"", ""}, {"launch -n 2 -- ", " --mesh tp=2"}, {"launch -n 2 -- ", " --mesh dp_shard=2"}};
    char out[4096], folder[512];
    json_t *texts = recorded("runs/reward/margin_trained", "texts");
    snprintf(folder, sizeof folder, "%s", golden_path("runs/reward/margin_trained"));
    write_lines("texts.jsonl", texts);
    for (int k = 0; k < 3; k++) {
        assert_int_equal(
            run(out, sizeof out, "%seval --model %s --task reward --data %s -o %s --threads 1%s",
                ranks[k][0], folder, in_dir("texts.jsonl"), in_dir("scores.jsonl"), ranks[k][1]),
            0);
        json_t *got = read_lines("scores.jsonl");
        assert_int_equal(json_array_size(got), json_array_size(texts));
        for (size_t i = 0; i < json_array_size(got); i++) {
            const json_t *row = json_array_get(got, i);
            expect_near(row, "score", number(json_array_get(texts, i), "score"));
            assert_int_equal(number(row, "row"), i);
        }
        assert_non_null(strstr(out, "16 records\n"));
        assert_non_null(strstr(out, "mean score"));
        assert_int_equal(unlink(in_dir("scores.jsonl")), 0);
        json_decref(got);
    }
    json_decref(texts);
}

/* Sets pad_token_id in a copy of the recorded folder; its weights and tokenizer are links. */
static void copy_with_pad(const char *folder, const json_t *pad) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json", "chat_template.jinja"};
    char from[600], to[600];
    assert_int_equal(ax_remove_tree(folder), AX_OK);
    assert_int_equal(ax_mkdir(folder), AX_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%s/%s", golden_path("runs/reward/margin_trained"), files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        assert_int_equal(ax_symlink(from, to), AX_OK);
    }
    snprintf(from, sizeof from, "%s/config.json", golden_path("runs/reward/margin_trained"));
    snprintf(to, sizeof to, "%s/config.json", folder);
    json_t *v = read_json(from);
    assert_int_equal(json_object_set(v, "pad_token_id", (json_t *)(uintptr_t)pad), 0);
    assert_int_equal(json_dump_file(v, to, 0), 0);
    json_decref(v);
}

/* pad_token_id decides which token has the score: EOS, which ends the texts, another, one that no token is, none. */
static void scores_of_each_pad_are_those_of_transformers(void **state) {
    (void)state;
    char out[4096], path[600], folder[512];
    snprintf(path, sizeof path, "%s.pads.json", golden_path("runs/reward/margin_trained"));
    json_t *v = read_json(path), *texts = json_object_get(v, "texts");
    double lowest = 1e9, highest = -1e9;
    assert_int_equal(json_array_size(texts), 16);
    snprintf(folder, sizeof folder, "%s", in_dir("padded"));
    for (size_t i = 0; i < json_array_size(texts); i += 4) {
        json_t *some = json_array();
        for (size_t k = i; k < i + 4; k++)
            json_array_append(some, json_array_get(texts, k));
        write_lines("texts.jsonl", some);
        copy_with_pad(folder, json_object_get(json_array_get(some, 0), "pad_token_id"));
        if (run(out, sizeof out, "eval --model %s --task reward --data %s -o %s", folder,
                in_dir("texts.jsonl"), in_dir("scores.jsonl")) != 0)
            fail_msg("%s", out);
        json_t *got = read_lines("scores.jsonl");
        assert_int_equal(json_array_size(got), 4);
        for (size_t k = 0; k < 4; k++)
            expect_near(json_array_get(got, k), "score", number(json_array_get(some, k), "score"));
        const double first = number(json_array_get(got, 0), "score");
        lowest = fmin(lowest, first);
        highest = fmax(highest, first);
        json_decref(got);
        json_decref(some);
    }
    assert_true(highest - lowest > 1e-2);
    json_decref(v);
}

/* The same conversation as a pair, as an answer to a prompt, and as messages; and its text. */
static void records_say_the_same_in_several_ways(void **state) {
    (void)state;
    char out[8192], folder[512];
    snprintf(folder, sizeof folder, "%s", golden_path("runs/reward/margin_trained"));
    put_text("rows.jsonl",
             "{\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2?\"}],"
             " \"chosen\": [{\"role\": \"assistant\", \"content\": \"#### 4\"}],"
             " \"rejected\": [{\"role\": \"assistant\", \"content\": \"#### 5\"}]}\n"
             "{\"prompt\": [{\"role\": \"user\", \"content\": \"2 + 2?\"}],"
             " \"completion\": [{\"role\": \"assistant\", \"content\": \"#### 4\"}]}\n"
             "{\"messages\": [{\"role\": \"user\", \"content\": \"2 + 2?\"},"
             " {\"role\": \"assistant\", \"content\": \"#### 5\"}]}\n"
             "{\"text\": \"<|start_header_id|>user<|end_header_id|>\\n\\n2 + 2?<|eot_id|>"
             "<|start_header_id|>assistant<|end_header_id|>\\n\\n#### 4\"}\n");
    assert_int_equal(run(out, sizeof out, "eval --model %s --task reward --data %s --json -o %s",
                         folder, in_dir("rows.jsonl"), in_dir("scores.jsonl")),
                     0);
    json_t *got = read_lines("scores.jsonl"), *total = json_loads(out, JSON_ALLOW_NUL, NULL);
    assert_int_equal(json_array_size(got), 4);
    const double chosen = number(json_array_get(got, 0), "chosen"),
                 rejected = number(json_array_get(got, 0), "rejected");
    assert_true(chosen != rejected);
    assert_true(number(json_array_get(got, 1), "score") == chosen);
    assert_true(number(json_array_get(got, 2), "score") == rejected);
    assert_true(number(json_array_get(got, 3), "score") == chosen); /* BOS and EOS are added */
    assert_true(number(total, "pairs") == 1 && number(total, "accuracy") == (chosen > rejected));
    assert_true(fabs(number(total, "margin") - (chosen - rejected)) < 1e-12);
    json_decref(got);
    json_decref(total);
    put_text("turned.jsonl", "{\"prompt\": \"2 + 2?\", \"chosen\": \"4\", \"rejected\": \"5\"}\n"
                             "{\"prompt\": \"2 + 2?\", \"chosen\": \"5\", \"rejected\": \"4\"}\n");
    assert_int_equal(run(out, sizeof out, "eval --model %s --task reward --data %s --json -o %s",
                         folder, in_dir("turned.jsonl"), in_dir("turned_scores.jsonl")),
                     0);
    total = json_loads(out, JSON_ALLOW_NUL, NULL);
    assert_true(number(total, "pairs") == 2 && number(total, "accuracy") == 0.5);
    json_decref(total);
    got = read_lines("turned_scores.jsonl");
    json_t *first = json_array_get(got, 0);
    const double margin = number(first, "chosen") - number(first, "rejected");
    json_decref(got);
    assert_int_equal(run(out, sizeof out,
                         "eval --model %s --task reward --data %s --json --rows 1 -o %s", folder,
                         in_dir("turned.jsonl"), in_dir("turned_scores.jsonl")),
                     0);
    total = json_loads(out, JSON_ALLOW_NUL, NULL);
    got = read_lines("turned_scores.jsonl");
    assert_true(number(total, "rows") == 1 && json_array_size(got) == 1);
    assert_true(number(total, "pairs") == 1 && number(total, "margin") == margin);
    json_decref(got);
    json_decref(total);
}

/* How often a right step has a higher score than a wrong one. */
static double auc_of(const json_t *rows) {
    double right[256], wrong[256], pairs = 0, higher = 0;
    size_t n_right = 0, n_wrong = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *labels = json_object_get(row, "labels"),
                     *scores = json_object_get(row, "step_scores");
        for (size_t k = 0; k < json_array_size(labels); k++) {
            const json_t *label = json_array_get(labels, k);
            const bool is = json_is_true(label) || json_number_value(label) >= 0.5;
            *(is ? &right[n_right++] : &wrong[n_wrong++]) =
                json_number_value(json_array_get(scores, k));
            assert_true(n_right < 256 && n_wrong < 256);
        }
    }
    for (size_t i = 0; i < n_right; i++)
        for (size_t k = 0; k < n_wrong; k++, pairs++)
            higher += right[i] > wrong[k] ? 1 : right[i] == wrong[k] ? 0.5 : 0;
    return higher / pairs;
}

static void step_scores_are_those_that_trl_recorded(void **state) {
    (void)state;
    char out[4096], folder[512];
    json_t *rows = recorded("runs/prm/prm_trained", "rows");
    snprintf(folder, sizeof folder, "%s", golden_path("runs/prm/prm_trained"));
    write_lines("rows.jsonl", rows);
    for (int labeled = 2; labeled >= 0; labeled--) { /* all rows, the last one, none */
        assert_int_equal(run(out, sizeof out, "eval --model %s --task prm --data %s -o %s", folder,
                             in_dir("rows.jsonl"), in_dir("scores.jsonl")),
                         0);
        json_t *got = read_lines("scores.jsonl");
        assert_int_equal(json_array_size(got), json_array_size(rows));
        for (size_t i = 0; i < json_array_size(got); i++) {
            const json_t *row = json_array_get(got, i), *want = json_array_get(rows, i),
                         *steps = json_object_get(row, "steps"),
                         *recorded_steps = json_object_get(want, "step_scores");
            assert_int_equal(json_array_size(steps), json_array_size(recorded_steps));
            for (size_t k = 0; k < json_array_size(steps); k++)
                assert_true(fabs(json_number_value(json_array_get(steps, k)) -
                                 json_number_value(json_array_get(recorded_steps, k))) < 1e-5);
            expect_near(row, "min", number(want, "min"));
            expect_near(row, "product", number(want, "product"));
            expect_near(row, "last", number(want, "last"));
        }
        const char *auc = strstr(out, "AUC per step");
        if (labeled != 1)
            assert_true((auc != NULL) == (labeled == 2));
        if (labeled == 2)
            assert_true(fabs(strtod(auc + strlen("AUC per step"), NULL) - auc_of(rows)) < 1e-3);
        for (size_t i = 0; i + (labeled == 2) < json_array_size(rows); i++)
            json_object_del(json_array_get(rows, i), "labels");
        write_lines("rows.jsonl", rows);
        json_decref(got);
    }
    json_decref(rows);
}

/* A folder in the test's, with the files of a golden one. */
static void link_folder(char folder[512], const char *name, const char *golden) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    char from[600], to[600];
    snprintf(folder, 512, "%s", in_dir(name));
    assert_int_equal(ax_mkdir(folder), AX_OK);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%s/%s", golden_path(golden), files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        assert_int_equal(ax_symlink(from, to), AX_OK);
    }
}

/* The separator is the folder's; another gives other scores. */
static void the_folder_says_what_separates_steps(void **state) {
    (void)state;
    char out[4096], folder[512];
    double last[2];
    put_text("rows.jsonl", "{\"prompt\": \"2 + 2?\", \"completions\": [\"2 + 2 = 4\", \"4\"]}\n");
    link_folder(folder, "prm", "runs/prm/prm_trained");
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            put_text("prm/step_separator.json", "{\"step_separator\": \"\\n\\n\"}");
        assert_int_equal(run(out, sizeof out, "eval --model %s --task prm --data %s -o %s", folder,
                             in_dir("rows.jsonl"), in_dir("scores.jsonl")),
                         0);
        json_t *got = read_lines("scores.jsonl");
        last[i] = number(json_array_get(got, 0), "last");
        json_decref(got);
    }
    assert_true(fabs(last[0] - last[1]) > 1e-4);
}

/* A model with a NaN in its weights: no figure counts it as an answer, right or wrong. */
static void scores_that_are_no_numbers_are_told(void **state) {
    (void)state;
    static const struct {
        const char *golden, *task, *row, *line;
    } cases[] = {
        {"runs/prm/prm_trained", "prm",
         "{\"prompt\": \"2 + 2?\", \"completions\": [\"4\"], \"labels\": [false]}\n",
         "\"first_error\":null"},
        {"runs/reward/margin_trained", "reward",
         "{\"prompt\": \"2 + 2?\", \"chosen\": \"4\", \"rejected\": \"5\"}\n",
         "\"chosen\":null,\"rejected\":null"},
    };
    setenv("AXTRAIN_NONFINITE", "allow", 1);
    for (size_t i = 0; i < 2; i++) {
        char out[4096], folder[512], weights[600], *bytes;
        size_t len;
        link_folder(folder, cases[i].task, cases[i].golden);
        snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
        assert_int_equal(ax_read_file(weights, 64 << 20, &bytes, &len), AX_OK);
        memset(bytes + len - 4, 0xff, 4); /* the last number of the last tensor */
        assert_int_equal(ax_unlink(weights), AX_OK);
        assert_int_equal(ax_write_file_atomic(weights, bytes, len), AX_OK);
        ax_free(bytes);
        put_text("rows.jsonl", cases[i].row);
        assert_int_equal(run(out, sizeof out, "eval --model %s --task %s --data %s --json", folder,
                             cases[i].task, in_dir("rows.jsonl")),
                         0);
        if (!strstr(out, "1 of 1 records have a score that is not a number (the first: ") ||
            !strstr(out, cases[i].line) || !strstr(out, "\"accuracy\":null"))
            fail_msg("%s", out);
    }
    unsetenv("AXTRAIN_NONFINITE");
}

static void what_cannot_be_scored_is_one_line(void **state) {
    (void)state;
    static const struct {
        const char *folder, *words, *rows, *said;
        int code;
    } cases[] = {
        {"models/llama", "--task prm", "{}",
         "--task prm needs a process reward model, but this is a "
         "language model",
         2},
        {"runs/prm/prm_trained", "--task reward", "{}",
         "--task reward needs a reward model, but this is a process reward model", 2},
        {"runs/prm/prm_trained", "--task prm --batch 2", "{}", "remove --config, --type", 2},
        {"runs/prm/prm_trained", "--task prm --task reward", "{}", "run them separately", 2},
        {"runs/prm/prm_trained", "--task prm", "", "no records to score", 3},
        {"runs/prm/prm_trained", "--task prm", "{\"prompt\": \"a\", \"completions\": []}",
         "rows.jsonl:1: completions: the list of steps is empty", 3},
        {"runs/reward/margin_trained", "--task reward", "{\"answer\": 3}", "rows.jsonl:1:", 3},
        {"runs/reward/margin_trained", "--task reward",
         "{\"text\": \"1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
         "1 "
         "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
         "1 "
         "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 "
         "1 "
         "1 1 1 1 1 1 1 1 1 1 1 1\"}",
         "tokens, but the model has 256 positions", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[4096];
        put_text("rows.jsonl", cases[i].rows);
        const int code = run(out, sizeof out, "eval --model %s %s --data %s",
                             golden_path(cases[i].folder), cases[i].words, in_dir("rows.jsonl"));
        if (code != cases[i].code || !strstr(out, cases[i].said))
            fail_msg("case %zu: exit code %d: %s", i, code, out);
    }
}

/* ---- metrics ---- */

static void metrics_of_steps(void **state) {
    (void)state;
    /* four solutions: the error found; found one too early; right, and seen so; right, but not so */
    static const struct ax_scored_step steps[] = {
        {0.9, true}, {0.2, false}, {0.8, false}, {0.4, true},  {0.1, false},
        {0.6, true}, {0.7, true},  {0.9, true},  {0.49, true},
    };
    static const size_t ends[] = {3, 5, 7, 9};
    const size_t n = sizeof steps / sizeof *steps;
    const struct ax_step_metrics m = ax_step_metrics(steps, ends, 4);
    double wins = 0, pairs = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++)
            if (steps[i].right && !steps[k].right) {
                pairs++;
                wins += steps[i].p > steps[k].p ? 1 : steps[i].p < steps[k].p ? 0 : 0.5;
            }
    assert_true(m.steps == n && m.solutions == 4);
    assert_true(fabs(m.accuracy - 6.0 / 9) < 1e-15);
    assert_true(fabs(m.auc - wins / pairs) < 1e-15);
    assert_true(m.error_found == 0.5 && m.correct_found == 0.5 && m.first_error == 0.5);
    const struct ax_step_metrics two = ax_step_metrics(steps, ends, 1);
    assert_true(two.error_found == 1 && isnan(two.correct_found) && isnan(two.first_error));
    static const struct ax_scored_step equal[] = {{0.5, true}, {0.5, false}, {0.5, true}};
    assert_true(ax_step_metrics(equal, (const size_t[]){3}, 1).auc == 0.5);
    assert_true(isnan(ax_step_metrics(NULL, NULL, 0).accuracy));
    static const struct ax_scored_step broken[] = {{0.9, true}, {NAN, false}, {0.5, true}};
    const struct ax_step_metrics none = ax_step_metrics(broken, (const size_t[]){3}, 1);
    assert_true(isnan(none.auc) && isnan(none.accuracy) && isnan(none.error_found) &&
                isnan(none.first_error) && none.steps == 3);
    /* shares of 1 and 1/2: their harmonic mean is 2/3 */
    static const struct ax_scored_step found[] = {{0.1, false}, {0.9, true}, {0.2, true}};
    const struct ax_step_metrics f1 = ax_step_metrics(found, (const size_t[]){1, 2, 3}, 3);
    assert_true(fabs(f1.first_error - 2.0 / 3) < 1e-15);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_do_not_generate),
        cmocka_unit_test(rewards_are_those_that_trl_recorded),
        cmocka_unit_test(scores_of_each_pad_are_those_of_transformers),
        cmocka_unit_test(records_say_the_same_in_several_ways),
        cmocka_unit_test(step_scores_are_those_that_trl_recorded),
        cmocka_unit_test(the_folder_says_what_separates_steps),
        cmocka_unit_test(scores_that_are_no_numbers_are_told),
        cmocka_unit_test(what_cannot_be_scored_is_one_line),
        cmocka_unit_test(metrics_of_steps),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
