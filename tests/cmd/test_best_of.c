/* --best-of N --scorer DIR: what is chosen is the answer with the highest score, recomputed from the
 * scores that `axtrain eval --task prm|reward` gives the same texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/text/json.h"
#include "optim/evaluate/score/best_of.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

#define N    6
#define PRM  "runs/prm/prm_trained"
#define RM   "runs/reward/margin_trained"
#define KEYS (sizeof keys / sizeof *keys)

static const char *const keys[] = {"min", "product", "last"};
static const char *const questions[] = {"2 + 3?", "4 + 5?", "1 + 6?"};
static const int right[] = {5, 9, 7};
#define PROBLEMS 3

/* ---- a model that guesses ---- */

/* Four in eight answers are right, in two or three lines. */
static void put_answer(struct ax_buf *text, int q, int variant) {
    const int sum = right[q] + (variant % 2 ? variant % 3 : 0);
    const char *more = variant % 4 == 2 ? "so\\n" : "";
    assert_ok(ax_buf_printf(text,
                            "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": "
                            "\"assistant\", \"content\": \"it is %d\\n%s#### %d\"}]}\n",
                            questions[q], sum, more, sum));
}

static const char *write_problems(const char *name, int variants) {
    struct ax_buf text = {0};
    for (int v = 0; v < variants; v++)
        for (int q = 0; q < PROBLEMS; q++)
            put_answer(&text, q, v);
    const char *path = put_text(name, text.data);
    ax_buf_free(&text);
    return path;
}

static int train_model(void **state) {
    char out[8192];
    struct ax_buf text = {0};
    scratch_make(state);
    assert_ok(ax_buf_printf(&text,
                            "base_model: %s\nchat_template: llama3\ndatasets:\n  - path: %s\n"
                            "    type: chat_template\nsequence_len: 128\nmicro_batch_size: 24\n"
                            "val_set_size: 0\nnum_epochs: 40\nlearning_rate: 5e-3\n"
                            "save_strategy: \"no\"\nbf16: false\noutput_dir: %s\n",
                            golden_path("models/llama"), write_problems("train.jsonl", 8),
                            in_scratch("model")));
    put_text("c.yaml", text.data);
    ax_buf_free(&text);
    const int code = run(out, sizeof out, "sft %s", in_scratch("c.yaml"));
    if (code != 0)
        fail_msg("exit %d: %s", code, out);
    write_problems("test.jsonl", 1);
    return 0;
}

/* ---- what came out ---- */

static double number(const json_t *v, const char *key) {
    const json_t *x = json_object_get(v, key);
    if (!json_is_number(x))
        fail_msg("no number \"%s\"", key);
    return json_number_value(x);
}

static const char *text_of(const json_t *v, const char *key) {
    const char *text = json_string_value(json_object_get(v, key));
    return text ? text : "";
}

static bool yes(const json_t *v, const char *key) {
    return json_is_true(json_object_get(v, key));
}

static json_t *read_lines(const char *name) {
    json_t *list = json_array(), *v;
    FILE *f = fopen(in_scratch(name), "r");
    assert_non_null(f);
    while ((v = json_loadf(f, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL)) != NULL)
        json_array_append_new(list, v);
    fclose(f);
    return list;
}

static void must(int code, const char *out) {
    if (code != 0)
        fail_msg("exit %d: %s", code, out);
}

/* Lines of the problems, and the total. */
static json_t *evaluate(const char *scorer, const char *more) {
    char out[8192];
    must(run(out, sizeof out,
             "eval --model %s --data %s --task final-answer --max-new-tokens 24 --threads 1 "
             "--per-row -o %s %s%s %s",
             in_scratch("model"), in_scratch("test.jsonl"), in_scratch("eval.jsonl"),
             scorer ? "--best-of 6 --scorer " : "", scorer ? scorer : "", more),
         out);
    json_t *lines = read_lines("eval.jsonl");
    assert_int_equal(json_array_size(lines), PROBLEMS + 1);
    return lines;
}

/* One record per sample, written from its text alone. */
static json_t *as_record(const char *question, const json_t *sample, const char *key, bool steps) {
    json_t *answer = json_object_get(sample, key);
    if (!steps)
        return json_pack("{s[{ss ss} {ss sO}]}", "messages", "role", "user", "content", question,
                         "role", "assistant", "content", answer);
    json_t *lines = json_array();
    const char *text = json_string_value(answer), *stop = text + json_string_length(answer);
    for (const char *at = text, *end; at < stop; at = end + 1) {
        end = memchr(at, '\n', (size_t)(stop - at));
        end = end ? end : stop;
        if (at + strspn(at, " \t") < end)
            json_array_append_new(lines, json_stringn(at, (size_t)(end - at)));
    }
    return json_pack("{ss so}", "prompt", question, "completions", lines);
}

/* The lines that `eval --task prm|reward` writes of these records. */
static json_t *score(const json_t *records, const char *scorer, bool steps, const char *more) {
    char out[8192];
    FILE *f = fopen(in_scratch("records.jsonl"), "w");
    assert_non_null(f);
    for (size_t i = 0; i < json_array_size(records); i++) {
        json_dumpf(json_array_get(records, i), f, JSON_COMPACT);
        fputc('\n', f);
    }
    fclose(f);
    must(run(out, sizeof out, "eval --model %s --task %s --data %s -o %s --threads 1 %s", scorer,
             steps ? "prm" : "reward", in_scratch("records.jsonl"), in_scratch("scores.jsonl"),
             more),
         out);
    json_t *lines = read_lines("scores.jsonl");
    assert_int_equal(json_array_size(lines), json_array_size(records));
    return lines;
}

static json_t *records_of(const json_t *lines, bool steps) {
    json_t *records = json_array();
    for (size_t i = 0; i < PROBLEMS; i++) {
        const json_t *samples = json_object_get(json_array_get(lines, i), "samples");
        assert_int_equal(json_array_size(samples), N);
        for (size_t k = 0; k < N; k++)
            json_array_append_new(
                records, as_record(questions[i], json_array_get(samples, k), "answer", steps));
    }
    return records;
}

/* Index of the most frequent final answer, the first of equally frequent ones. */
static size_t majority_of(const json_t *samples) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < N; i++) {
        size_t votes = 0;
        const char *mine = text_of(json_array_get(samples, i), "final_answer");
        for (size_t k = 0; k < N && *mine; k++)
            votes += strcmp(mine, text_of(json_array_get(samples, k), "final_answer")) == 0;
        best = votes > most ? i : best;
        most = votes > most ? votes : most;
    }
    return best;
}

/* Checks scores, choices and counts; returns how many choices are not the first sample. */
static int check_choices(const json_t *lines, const json_t *scores, const char *key, bool exact) {
    int solved[3] = {0}, later = 0;
    const json_t *total = json_object_get(json_array_get(lines, PROBLEMS), "best_of"),
                 *all = json_object_get(total, "scores");
    for (size_t i = 0; i < PROBLEMS; i++) {
        const json_t *line = json_array_get(lines, i), *samples = json_object_get(line, "samples");
        size_t best = 0, correct = 0;
        for (size_t k = 0; k < N; k++) {
            const json_t *s = json_array_get(samples, k);
            const double want = number(json_array_get(scores, i * N + k), key),
                         got = number(s, "score"),
                         first = number(json_array_get(samples, best), "score");
            if (!(fabs(got - want) <= (exact ? 0 : 1e-5)))
                fail_msg("problem %zu, sample %zu: %.17g, %s alone %.17g", i, k, got, key, want);
            assert_true(json_number_value(json_array_get(json_array_get(all, i), k)) == got);
            char last[32];
            snprintf(last, sizeof last, "%d", right[i]);
            assert_true(yes(s, "solved") == (strcmp(text_of(s, "final_answer"), last) == 0));
            correct += yes(s, "solved");
            best = got > first ? k : best;
        }
        assert_int_equal((size_t)number(line, "best"), best);
        assert_int_equal((size_t)number(line, "majority"), majority_of(samples));
        assert_int_equal((size_t)number(line, "correct"), correct);
        assert_true(yes(line, "best_solved") == yes(json_array_get(samples, best), "solved"));
        solved[0] += yes(line, "solved");
        solved[1] += yes(json_array_get(samples, majority_of(samples)), "solved");
        solved[2] += yes(json_array_get(samples, best), "solved");
        later += best > 0;
    }
    assert_int_equal((int)number(total, "greedy"), solved[0]);
    assert_int_equal((int)number(total, "majority"), solved[1]);
    assert_int_equal((int)number(total, "best"), solved[2]);
    assert_int_equal((int)number(total, "unscored"), 0);
    return later;
}

/* ---- eval ---- */

static void the_highest_aggregate_is_chosen(void **state) {
    (void)state;
    char scorer[600], more[80];
    int later = 0;
    double of[KEYS];
    snprintf(scorer, sizeof scorer, "%s", golden_path(PRM));
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(more, sizeof more, "--seed 3 %s%s", i > 0 ? "--score-by " : "",
                 i > 0 ? keys[i] : ""); /* min is the default */
        json_t *lines = evaluate(scorer, more), *records = records_of(lines, true),
               *scores = score(records, scorer, true, "");
        const json_t *total = json_object_get(json_array_get(lines, PROBLEMS), "best_of");
        assert_string_equal(text_of(total, "score_by"), keys[i]);
        assert_string_equal(text_of(total, "kind"), "prm");
        later += check_choices(lines, scores, keys[i], true);
        of[i] = number(json_array_get(scores, 0), keys[i]);
        json_decref(lines);
        json_decref(records);
        json_decref(scores);
    }
    assert_true(later > 0);
    assert_true(of[1] != of[0] && of[1] != of[2]);
}

static void a_reward_model_chooses(void **state) {
    (void)state;
    char scorer[600];
    snprintf(scorer, sizeof scorer, "%s", golden_path(RM));
    json_t *lines = evaluate(scorer, "--seed 3"), *records = records_of(lines, false),
           *scores = score(records, scorer, false, "");
    const json_t *total = json_object_get(json_array_get(lines, PROBLEMS), "best_of");
    assert_null(json_object_get(total, "score_by"));
    assert_string_equal(text_of(total, "kind"), "reward");
    assert_true(check_choices(lines, scores, "score", true) > 0);
    json_decref(lines);
    json_decref(records);
    json_decref(scores);
}

/* The greedy answers are those of a run without --best-of, the samples those of --samples; and the
 * seed alone decides them. */
static void answers_are_those_without_it(void **state) {
    (void)state;
    char scorer[600];
    snprintf(scorer, sizeof scorer, "%s", golden_path(PRM));
    json_t *lines = evaluate(scorer, "--seed 3"), *greedy = evaluate(NULL, ""),
           *drawn = evaluate(NULL, "--samples 6 --seed 3"),
           *again = evaluate(scorer, "--seed 3 --batch 5"), *other = evaluate(scorer, "--seed 4");
    static const char *const of_greedy[] = {"answer", "final_answer", "solved", "cut", "mean_nll"};
    for (size_t i = 0; i < PROBLEMS; i++) {
        const json_t *line = json_array_get(lines, i), *one = json_array_get(greedy, i);
        for (size_t k = 0; k < sizeof of_greedy / sizeof *of_greedy; k++)
            assert_true(json_equal(json_object_get(line, of_greedy[k]),
                                   json_object_get(one, of_greedy[k])));
        assert_true(number(line, "correct") == number(json_array_get(drawn, i), "correct"));
        assert_true(json_equal(line, json_array_get(again, i)));
    }
    const json_t *total = json_array_get(lines, PROBLEMS),
                 *plain = json_array_get(greedy, PROBLEMS),
                 *samples = json_array_get(drawn, PROBLEMS);
    assert_true(number(json_object_get(total, "best_of"), "greedy") ==
                number(json_object_get(plain, "final_answer"), "solved"));
    assert_true(json_equal(json_object_get(json_object_get(total, "final_answer"), "pass_at"),
                           json_object_get(json_object_get(samples, "final_answer"), "pass_at")));
    bool same = true;
    for (size_t i = 0; i < PROBLEMS; i++)
        same = same && json_equal(json_object_get(json_array_get(lines, i), "samples"),
                                  json_object_get(json_array_get(other, i), "samples"));
    assert_false(same);
    json_decref(lines);
    json_decref(greedy);
    json_decref(drawn);
    json_decref(again);
    json_decref(other);
}

static void a_line_each(void **state) {
    (void)state;
    char out[8192];
    must(run(out, sizeof out,
             "eval %s --data %s --task final-answer --max-new-tokens 24 --best-of 4 --scorer %s "
             "--score-by last",
             in_scratch("model"), in_scratch("test.jsonl"), golden_path(PRM)),
         out);
    assert_non_null(strstr(out, "\ngreedy      "));
    assert_non_null(strstr(out, "\nmajority    "));
    assert_non_null(strstr(out, "\nbest of 4   "));
    assert_non_null(strstr(out, "the highest last over the steps by "));
    assert_non_null(strstr(out, "\npass@4 "));
}

/* ---- labeled steps of what a model says ---- */

/* The record of labeled steps that a solution gives, made from its text. */
static json_t *labeled(size_t problem, const json_t *sample, bool is_right) {
    json_t *record = as_record(questions[problem], sample, "answer", true), *labels = json_array();
    for (size_t i = 0; i < json_array_size(json_object_get(record, "completions")); i++)
        json_array_append_new(labels, json_boolean(is_right));
    json_object_set_new(record, "labels", labels);
    return record;
}

/* Different answers that are right or wrong, in the samples' order, after `first` if it is given. */
static json_t *different(const json_t *samples, bool right_ones, json_t *first) {
    json_t *list = first ? json_pack("[o]", first) : json_array();
    for (size_t k = 0; k < N; k++) {
        json_t *s = json_array_get(samples, k);
        bool old = false;
        for (size_t i = first ? 1 : 0; i < json_array_size(list); i++)
            old = old || json_equal(json_object_get(json_array_get(list, i), "answer"),
                                    json_object_get(s, "answer"));
        if (yes(s, "solved") == right_ones && !old)
            json_array_append(list, s);
    }
    return list;
}

/* Each different wrong answer after a right one: the data's own, then what was sampled, then again. */
static void wrong_answers_become_labeled_steps(void **state) {
    (void)state;
    char scorer[600], more[400], own[64];
    size_t at = 0, rights = 0;
    snprintf(scorer, sizeof scorer, "%s", golden_path(PRM));
    snprintf(more, sizeof more, "--samples 6 --seed 3 --log-steps %s", in_scratch("steps.jsonl"));
    json_t *lines = evaluate(scorer, "--seed 3"), *total = evaluate(NULL, more),
           *steps = read_lines("steps.jsonl");
    for (size_t i = 0; i < PROBLEMS; i++) {
        const json_t *samples = json_object_get(json_array_get(lines, i), "samples");
        snprintf(own, sizeof own, "it is %d\n#### %d", right[i], right[i]);
        json_t *good = different(samples, true, json_pack("{ss}", "answer", own)),
               *bad = different(samples, false, NULL);
        for (size_t k = 0; k < json_array_size(bad); k++) {
            const size_t n = json_array_size(good);
            json_t *before = labeled(i, json_array_get(good, k % n), true),
                   *after = labeled(i, json_array_get(bad, k), false);
            assert_true(json_equal(json_array_get(steps, at++), before));
            assert_true(json_equal(json_array_get(steps, at++), after));
            rights += k % n > 0;
            json_decref(before);
            json_decref(after);
        }
        json_decref(good);
        json_decref(bad);
    }
    assert_int_equal(json_array_size(steps), at);
    assert_true(at >= 6 && rights > 0);
    json_decref(lines);
    json_decref(total);
    json_decref(steps);
}

/* The records of some files as a list on one line. */
static void put_list(const char *name, const struct ax_buf *const *files, size_t n) {
    struct ax_buf text = {0};
    assert_ok(ax_buf_puts(&text, "["));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < files[i]->len; k++)
            assert_ok(
                ax_buf_append(&text, files[i]->data[k] == '\n' ? "," : files[i]->data + k, 1));
    text.data[text.len - 1] = ']';
    put_text(name, text.data);
    ax_buf_free(&text);
}

/* Between questions that are too long for the model, of two files, and of a list on one line: which question is
 * meant is known by file and number. */
static void records_are_found_again(void **state) {
    (void)state;
    static const char *const names[] = {"test.jsonl", "two", "list.json"};
    struct ax_buf longer = {0}, a = {0}, b = {0};
    char out[8192], data[256];
    json_t *steps[3];
    assert_ok(ax_buf_puts(&longer, "{\"messages\": [{\"role\": \"user\", \"content\": \""));
    for (int i = 0; i < 20000; i++)
        assert_ok(ax_buf_puts(&longer, "long "));
    assert_ok(ax_buf_puts(&longer, "\"}, {\"role\": \"assistant\", \"content\": \"#### 1\"}]}\n"));
    put_answer(&a, 0, 0);
    assert_ok(ax_buf_puts(&a, longer.data));
    assert_ok(ax_buf_puts(&b, longer.data));
    put_answer(&b, 1, 0);
    put_answer(&b, 2, 0);
    make_folder("two");
    put_text("two/a.jsonl", a.data);
    put_text("two/b.jsonl", b.data);
    put_list("list.json", (const struct ax_buf *const[]){&a, &b}, 2);
    for (int i = 0; i < 3; i++) {
        snprintf(data, sizeof data, "%s", in_scratch(names[i]));
        must(run(out, sizeof out,
                 "eval --model %s --data %s --task final-answer --max-new-tokens 24 --threads 1 "
                 "--samples 6 --seed 3 --log-steps %s",
                 in_scratch("model"), data, in_scratch("steps.jsonl")),
             out);
        steps[i] = read_lines("steps.jsonl");
        json_t *v;
        size_t k;
        json_array_foreach(steps[i], k, v)(void) json_object_del(v, "row");
        assert_true(json_array_size(steps[0]) > 0 && json_equal(steps[0], steps[i]));
    }
    for (int i = 0; i < 3; i++)
        json_decref(steps[i]);
    ax_buf_free(&longer);
    ax_buf_free(&a);
    ax_buf_free(&b);
}

/* On ranks that share the problems the same lines; on ranks that split both models, scores of the
 * same texts. */
static void on_ranks(void **state) {
    (void)state;
    static const char *const meshes[] = {"dp_replicate=2", "tp=2", "dp_shard=2"};
    char out[8192], scorer[600];
    snprintf(scorer, sizeof scorer, "%s", golden_path(PRM));
    json_t *alone = evaluate(scorer, "--seed 3");
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        must(run(out, sizeof out,
                 "launch -n 2 -- eval --model %s --data %s --task final-answer --max-new-tokens 24 "
                 "--per-row -o %s --best-of 6 --scorer %s --seed 3 --threads 1 --mesh %s",
                 in_scratch("model"), in_scratch("test.jsonl"), in_scratch("eval.jsonl"), scorer,
                 meshes[i]),
             out);
        json_t *lines = read_lines("eval.jsonl"), *records = records_of(lines, true),
               *scores = score(records, scorer, true, "");
        check_choices(lines, scores, "min", i == 0);
        for (size_t k = 0; k < PROBLEMS && i == 0; k++)
            assert_true(json_equal(json_object_get(json_array_get(lines, k), "samples"),
                                   json_object_get(json_array_get(alone, k), "samples")));
        json_decref(lines);
        json_decref(records);
        json_decref(scores);
    }
    json_decref(alone);
    assert_int_equal(run(out, sizeof out,
                         "launch -n 2 -- eval --model %s --data %s --task final-answer "
                         "--best-of 2 --scorer %s --mesh cp=2",
                         in_scratch("model"), in_scratch("test.jsonl"), scorer),
                     2);
    assert_non_null(strstr(out, "mesh: pp 1 and cp 2"));
}

/* An adapter's folder names its base; it scores as the base with --adapter does. */
static void a_folder_of_an_adapter(void **state) {
    (void)state;
    char out[8192], base[600];
    struct ax_buf text = {0};
    snprintf(base, sizeof base, "%s", golden_path("models/llama"));
    put_text("steps.jsonl", "{\"prompt\": \"2 + 3?\", \"completions\": [\"it is 5\", \"#### 5\"], "
                            "\"labels\": [true, true]}\n"
                            "{\"prompt\": \"2 + 3?\", \"completions\": [\"it is 6\", \"#### 6\"], "
                            "\"labels\": [false, false]}\n");
    assert_ok(
        ax_buf_printf(&text,
                      "base_model: %s\nprocess_reward_model: true\nadapter: lora\nlora_r: 4\n"
                      "lora_alpha: 8\nlora_target_linear: true\ndatasets:\n  - path: %s\n"
                      "    step_separator: \"\\n\\n\"\nsequence_len: 64\nmicro_batch_size: 2\n"
                      "val_set_size: 0\nnum_epochs: 20\nlearning_rate: 1e-2\n"
                      "save_strategy: \"no\"\nbf16: false\noutput_dir: %s\n",
                      base, in_scratch("steps.jsonl"), in_scratch("lora")));
    put_text("lora.yaml", text.data);
    ax_buf_free(&text);
    must(run(out, sizeof out, "prm %s", in_scratch("lora.yaml")), out);
    json_t *lines = evaluate(in_scratch("lora"), "--seed 3"), *records = json_array();
    for (size_t i = 0; i < PROBLEMS; i++) { /* its separator, which is in no answer: one step */
        const json_t *samples = json_object_get(json_array_get(lines, i), "samples");
        for (size_t k = 0; k < N; k++)
            json_array_append_new(records,
                                  json_pack("{ss s[O]}", "prompt", questions[i], "completions",
                                            json_object_get(json_array_get(samples, k), "answer")));
    }
    char adapter[300];
    snprintf(adapter, sizeof adapter, "--adapter %s", in_scratch("lora"));
    json_t *scores = score(records, base, true, adapter);
    check_choices(lines, scores, "min", true);
    json_decref(lines);
    json_decref(records);
    json_decref(scores);
}

/* ---- generate ---- */

/* The candidates are those of --n with the same seed. */
static json_t *generate(const char *words, const char *more) {
    char out[16384];
    must(run(out, sizeof out,
             "generate --model %s --input %s --dtype float32 --threads 1 --max-new-tokens 24 "
             "--temperature 1.2 --seed 5 --json %s %s",
             in_scratch("model"), in_scratch("ask.jsonl"), words, more),
         out);
    put_text("said.jsonl", out[0] == '{' ? out : strstr(out, "\n{"));
    return read_lines("said.jsonl");
}

static void generate_prints_the_best(void **state) {
    (void)state;
    char scorer[600], more[700];
    put_text("ask.jsonl", "{\"prompt\": \"2 + 3?\"}\n{\"prompt\": \"4 + 5?\"}\n"
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"1 + 6?\"}]}\n");
    for (int steps = 0; steps < 2; steps++) {
        const char *key = steps ? "product" : "score";
        snprintf(scorer, sizeof scorer, "%s", golden_path(steps ? PRM : RM));
        snprintf(more, sizeof more, "--best-of 6 --scorer %s%s", scorer,
                 steps ? " --score-by product" : "");
        json_t *drawn = generate("--chat", "--n 6"), *best = generate("--chat", more),
               *records = json_array();
        assert_int_equal(json_array_size(drawn), PROBLEMS * N);
        assert_int_equal(json_array_size(best), PROBLEMS);
        for (size_t i = 0; i < PROBLEMS * N; i++)
            json_array_append_new(
                records, as_record(questions[i / N], json_array_get(drawn, i), "text", steps));
        json_t *scores = score(records, scorer, steps, "");
        for (size_t i = 0; i < PROBLEMS; i++) {
            const json_t *got = json_array_get(best, i), *list = json_object_get(got, "scores");
            size_t most = 0;
            for (size_t k = 0; k < N; k++) {
                const double want = number(json_array_get(scores, i * N + k), key);
                assert_true(json_number_value(json_array_get(list, k)) == want);
                if (want > number(json_array_get(scores, i * N + most), key))
                    most = k;
            }
            assert_int_equal((size_t)number(got, "sample"), most);
            assert_true(json_equal(json_object_get(got, "text"),
                                   json_object_get(json_array_get(drawn, i * N + most), "text")));
            assert_true(number(got, "score") == number(json_array_get(scores, i * N + most), key));
        }
        json_decref(drawn);
        json_decref(best);
        json_decref(records);
        json_decref(scores);
    }
}

static void ask(char *out, size_t size, const char *more) {
    must(run(out, size,
             "generate --model %s --prompt '2 + 3?' --chat --max-new-tokens 24 --seed 5 "
             "--best-of 8 --scorer %s%s",
             in_scratch("model"), golden_path(PRM), more),
         out);
}

/* Without --temperature the answers differ, although the model's own setting is greedy; what is
 * printed says which one it is and its score. */
static void generate_as_text(void **state) {
    (void)state;
    char out[8192];
    ask(out, sizeof out, "");
    const char *head = strstr(out, "=== prompt 1, sample ");
    assert_non_null(head);
    int sample;
    double score;
    assert_int_equal(sscanf(head, "=== prompt 1, sample %d, score %lf ===", &sample, &score), 2);
    assert_null(strstr(head + 1, "=== prompt"));
    ask(out, sizeof out, " --json");
    json_t *said = json_loads(strchr(out, '{'), JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL),
           *scores = json_object_get(said, "scores");
    bool differ = false;
    assert_int_equal(json_array_size(scores), 8);
    for (size_t i = 1; i < 8; i++)
        differ = differ || !json_equal(json_array_get(scores, i), json_array_get(scores, 0));
    assert_true(differ);
    assert_int_equal(number(said, "sample") + 1, sample);
    assert_true(fabs(number(said, "score") - score) <= 1e-6 * fabs(score) && score > 0);
    json_decref(said);
}

/* ---- answers without a score ---- */

static void some_answers_have_no_score(void **state) {
    (void)state;
    char lengthy[3001];
    struct ax_best_of b;
    const struct ax_best_of_args args = {.n = 2, .scorer = golden_path(PRM)};
    const struct ax_text_scorer_options o = {.dtype = AX_F32,
                                             .runtime = {.backend = "cpu", .threads = 1}};
    assert_ok(ax_best_of_open(&b, &args, &o));
    json_t *asked = json_pack("[{ss ss} {ss ss}]", "role", "system", "content", "add", "role",
                              "user", "content", "2 + 3?"),
           *prompt;
    assert_ok(ax_best_of_prompt(&b, asked, NULL, &prompt));
    assert_string_equal(json_string_value(prompt), "add\n2 + 3?");
    for (size_t i = 0; i < sizeof lengthy; i++)
        lengthy[i] = i + 1 == sizeof lengthy ? '\0' : "1 "[i % 2];
    static const struct {
        const char *text;
        int steps;
    } cases[] = {{"", -1}, {" \n\t\n", -1}, {NULL, -1}, {"a\n\nb\n", 2}, {"\n it is 5", 1}};
    const size_t n = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < n; i++) {
        const char *text = cases[i].text ? cases[i].text : lengthy;
        assert_ok(ax_best_of_add(&b, prompt, text, strlen(text)));
    }
    assert_ok(ax_best_of_run(&b));
    assert_int_equal(b.unscored, 3);
    for (size_t i = 0; i < n; i++) {
        assert_true(isnan(b.scores[i]) == (cases[i].steps < 0));
        assert_true(b.row[i] < 0 ? cases[i].steps < 0
                                 : b.set.rows[b.row[i]].n == (size_t)cases[i].steps);
    }
    assert_true(ax_best_of_choose(b.scores, n) >= 3);
    json_decref(asked);
    json_decref(prompt);
    ax_best_of_close(&b);
}

static void the_first_of_equal_scores(void **state) {
    (void)state;
    assert_int_equal(ax_best_of_choose((const double[]){1, 2, 2, 1}, 4), 1);
    assert_int_equal(ax_best_of_choose((const double[]){NAN, -3, NAN, -2}, 4), 3);
    assert_int_equal(ax_best_of_choose((const double[]){-3, NAN}, 2), 0);
    assert_int_equal(ax_best_of_choose((const double[]){NAN, NAN}, 2), 0);
    const double p[] = {0.5, 0.25, 0.75};
    assert_true(ax_score_steps(AX_SCORE_MIN, p, 3) == 0.25);
    assert_true(ax_score_steps(AX_SCORE_PRODUCT, p, 3) == 0.09375);
    assert_true(ax_score_steps(AX_SCORE_LAST, p, 3) == 0.75);
    for (int by = 0; by < AX_SCORE_BYS; by++) /* of no steps */
        assert_true(ax_score_steps((enum ax_score_by)by, p + 1, 0) == 1);
    assert_true(isnan(ax_score_steps(AX_SCORE_MIN, (const double[]){0.5, NAN, 0.25}, 3)));
}

/* ---- mistakes ---- */

static void mistakes(void **state) {
    (void)state;
    char prm[600], rm[600], lm[600], out[8192], words[4000];
    snprintf(prm, sizeof prm, "%s", golden_path(PRM));
    snprintf(rm, sizeof rm, "%s", golden_path(RM));
    snprintf(lm, sizeof lm, "%s", golden_path("models/llama"));
    put_text("plain.jsonl", "{\"text\": \"2 + 3? #### 5\"}\n");
    put_text("seven.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"2 + 3?\"}, "
                            "{\"role\": \"assistant\", \"content\": \"#### 5\"}]}\n");
    const struct {
        const char *words, *scorer, *said;
        int code;
    } cases[] = {
        {"eval --task final-answer --best-of 4", NULL, "--best-of needs --scorer DIR", 2},
        {"eval --task final-answer --best-of 1 --scorer", prm, "expected an integer from 2", 2},
        {"eval --task final-answer --scorer", prm, "need --best-of N", 2},
        {"eval --task final-answer --score-by min", NULL, "need --best-of N", 2},
        {"eval --best-of 4 --scorer", prm, "needs --task final-answer and --data FILE", 2},
        {"eval --task prm --best-of 4 --scorer", prm, "needs --task final-answer", 2},
        {"eval --task final-answer --samples 4 --best-of 4 --scorer", prm, "remove --samples", 2},
        {"eval --task final-answer --temperature 0 --best-of 4 --scorer", prm, "or --best-of", 2},
        {"eval --task final-answer --best-of 4 --scorer", lm,
         "expected a reward model or a process reward model, but this is a language model", 2},
        {"eval --task final-answer --best-of 4 --scorer", "no/such", "no/such", 2},
        {"eval --task final-answer --score-by least --best-of 4 --scorer", prm,
         "expected min, product or last, got \"least\"", 2},
        {"eval --task final-answer --score-by min --best-of 4 --scorer", rm,
         "min, product and last are for process reward models", 2},
        {"eval --task final-answer --adapter a --adapter b --best-of 4 --scorer", prm,
         "--best-of takes one --adapter", 2},
        {"eval --task final-answer --adapter a --adapter b --samples 4 --log-steps s.jsonl", NULL,
         "--log-steps takes one --adapter", 2},
        {"eval --task final-answer --log-steps s.jsonl", NULL, "--log-steps needs --task", 2},
        {"eval --task final-answer --log-steps s.jsonl --best-of 4 --scorer", prm,
         "--log-steps needs --task final-answer, --data FILE and --samples N", 2},
        {"eval --task prm --log-steps s.jsonl", NULL, "remove --config, --type, --per-row", 2},
        {"generate --prompt a --best-of 4", NULL, "--best-of needs --scorer DIR", 2},
        {"generate --prompt a --n 2 --best-of 4 --scorer", prm, "remove --n", 2},
        {"generate --prompt a --temperature 0 --best-of 4 --scorer", prm, "remove --best-of", 2},
        {"generate --prompt a --best-of 4 --scorer", lm, "but this is a language model", 2},
        {"generate --prompt a --score-by last --best-of 4 --scorer", rm,
         "min, product and last are for process reward models", 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool eval = strncmp(cases[i].words, "eval", 4) == 0;
        snprintf(words, sizeof words, "%s %s --model %s%s%s", cases[i].words,
                 cases[i].scorer ? cases[i].scorer : "", in_scratch("model"),
                 eval ? " --data " : "", eval ? in_scratch("seven.jsonl") : "");
        const int code = run(out, sizeof out, "%s", words);
        const char *error = strstr(out, "error "), *end = error ? strchr(error, '\n') : NULL;
        if (code != cases[i].code || !strstr(out, cases[i].said) || !end || end[1] != '\0')
            fail_msg("%s: exit %d, or not one line: %s", words, code, out);
    }
    assert_int_equal(run(out, sizeof out,
                         "eval --model %s --data %s --type completion --task final-answer "
                         "--best-of 2 --scorer %s",
                         in_scratch("model"), in_scratch("plain.jsonl"), prm),
                     3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_highest_aggregate_is_chosen),
        cmocka_unit_test(a_reward_model_chooses),
        cmocka_unit_test(answers_are_those_without_it),
        cmocka_unit_test(a_line_each),
        cmocka_unit_test(wrong_answers_become_labeled_steps),
        cmocka_unit_test(records_are_found_again),
        cmocka_unit_test(on_ranks),
        cmocka_unit_test(a_folder_of_an_adapter),
        cmocka_unit_test(generate_prints_the_best),
        cmocka_unit_test(generate_as_text),
        cmocka_unit_test(some_answers_have_no_score),
        cmocka_unit_test(the_first_of_equal_scores),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, train_model, scratch_remove);
}
