/* `axtrain eval --task FILE` and the goldens of evaluation tasks, as programs: output, samples,
 * the same bits for any batch, and mistakes. AX_TEST_BIN names the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "base/text/json.h"
#include "tests/cmd/program_case.h"
#include "tests/optim/task_case.h"
#include "tests/golden_files.h"

static char out[1 << 20];

static void write_tasks(void) {
    put("rows.jsonl", "{\"q\": \"Is it red, as far as one can tell from here?\", \"c\": [\"no\", "
                      "\"yes it is\"], \"a\": 0}\n"
                      "{\"q\": \"Is it blue, as far as one can tell from here?\", \"c\": "
                      "[\"never\", \"sometimes\", \"a\"], \"a\": 2}\n"
                      "{\"q\": \"Is it a \\\"tree\\\"?\", \"c\": [\"no\", \"yes\"], \"a\": 1}\n");
    put("train.jsonl", "{\"q\": \"One?\", \"c\": [\"no\", \"yes\"], \"a\": 1}\n");
    put("choice.yaml", CHOICE "fewshot_split: train\n");
    put("generate.yaml", "task: g\n" DATA "doc_to_text: q\ndoc_to_target: \"{{c[a]}}\"\n"
                         "generation_kwargs: {until: [\"e\"], max_gen_toks: 6}\nrepeats: 2\n"
                         "filter_list: [{name: all, filter: [{function: lowercase}]}]\n");
    put("sample.yaml",
        "task: s\n" DATA "doc_to_text: q\ndoc_to_target: \"{{c[a]}}\"\n"
        "generation_kwargs: {until: [], max_gen_toks: 6, do_sample: true, top_k: 9}\n"
        "repeats: 3\n");
    put("rolling.yaml", "task: r\n" DATA "output_type: loglikelihood_rolling\ndoc_to_target: q\n");
}

/* A table; one number of it, by hand: the mean of the samples. */
static void prints_a_table(void **state) {
    (void)state;
    const char *model = golden_path("models/llama");
    write_tasks();
    assert_int_equal(run(out, sizeof out,
                         "eval --model %s --task %s/choice.yaml --num-fewshot 1 "
                         "--task %s/rolling.yaml --log-samples %s/s.jsonl",
                         model, dir, dir, dir),
                     0);
    assert_non_null(strstr(out, "task                  shots  filter             metric"));
    assert_non_null(strstr(out, "t                         1  none               acc   "));
    assert_non_null(strstr(out, "r                         0  none               word_perplexity"));
    assert_non_null(strstr(out, "10 requests in ")); /* 7 choices, 3 texts */
    const char *acc = strstr(out, "acc    ");
    char path[128], *text;
    size_t len;
    double sum = 0;
    int lines = 0;
    snprintf(path, sizeof path, "%s/s.jsonl", dir);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *a = json_array_get(json_array_get(json_object_get(v, "arguments"), 1), 0);
        if (lines < 3) {
            sum += json_number_value(json_object_get(v, "acc"));
            assert_int_equal(strncmp(json_string_value(a), "One? yes\n\nIs it", 15), 0);
        }
        json_decref(v);
    }
    ax_free(text);
    assert_int_equal(lines, 6);
    char want[32];
    snprintf(want, sizeof want, "%.4f ±", sum / 3);
    assert_non_null(strstr(acc, want));
}

/* The results of all tasks as JSON; the number of requests and of lanes changes no bit. */
static json_t *results(const char *options) {
    write_tasks();
    const int code = run(out, sizeof out,
                         "eval --model %s --task %s/choice.yaml --task %s/generate.yaml --task "
                         "%s/sample.yaml --task %s/rolling.yaml --json --log-samples %s/s.jsonl %s",
                         golden_path("models/llama"), dir, dir, dir, dir, dir, options);
    if (code != 0)
        fail_msg("%s", out);
    json_t *v = json_loads(out, JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    return v;
}

static char *samples(void) {
    char path[128], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/s.jsonl", dir);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
    return text;
}

static void batches_change_nothing(void **state) {
    (void)state;
    json_t *a = results("");
    char *first = samples();
    json_t *b = results("--batch 1 --threads 1");
    char *second = samples();
    assert_string_equal(first, second);
    assert_true(json_equal(json_object_get(a, "results"), json_object_get(b, "results")));
    const json_t *g = json_object_get(json_object_get(a, "results"), "g");
    assert_true(json_is_number(json_object_get(g, "exact_match,all")));
    assert_true(json_is_number(json_object_get(g, "exact_match_stderr,all")));
    const json_t *r = json_object_get(json_object_get(a, "results"), "r");
    assert_string_equal(json_string_value(json_object_get(r, "word_perplexity_stderr,none")),
                        "N/A");
    assert_true(json_is_false(json_object_get(
        json_object_get(json_object_get(a, "higher_is_better"), "r"), "word_perplexity")));
    /* choices share their question, samples their prompt */
    assert_true(json_integer_value(json_object_get(a, "shared_tokens")) > 30);
    json_t *c = results("--seed 7"); /* other samples, the same greedy answers */
    char *third = samples();
    assert_string_not_equal(first, third);
    const char *greedy = strstr(first, "\"task\":\"g\""), *also = strstr(third, "\"task\":\"g\"");
    const size_t n = (size_t)(strstr(greedy, "\"task\":\"s\"") - greedy);
    assert_memory_equal(greedy, also, n);
    ax_free(first);
    ax_free(second);
    ax_free(third);
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

/* Copies `text` with @ for the test's folder and # for `bare`. */
static void fill(char *to, size_t size, const char *text, const char *bare) {
    size_t n = 0;
    for (; *text; text++) {
        const char one[2] = {*text, '\0'}, *part = *text == '@' ? dir : *text == '#' ? bare : one;
        n += (size_t)snprintf(to + n, size - n, "%s", part);
        assert_true(n < size);
    }
}

static void mistakes(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"--task @/choice.yaml --data x", "a task file says what is asked and how"},
        {"--num-fewshot 2 --data x", "need --task FILE"},
        {"--task final-answer --task @/choice.yaml", "run them separately"},
        {"--task @/none.yaml", "none.yaml"},
        {"--task @/choice.yaml --fewshot-single-turn", "needs --apply-chat-template"},
        {"--task @/choice.yaml --task @/choice.yaml", "a second task with the name t"},
        {"--task @/choice.yaml --max-length 100000", "--max-length: 100000 is more than"},
        {"--task @/choice.yaml --max-length 3", "more than the 3 that the model can take"},
        {"--task @/generate.yaml --max-length 6",
         "max_gen_toks is 6, which leaves no tokens for a prompt"},
        {"--task @/choice.yaml --apply-chat-template --model #", "chat template"},
    };
    char model[512], bare[128], words[2300];
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    snprintf(bare, sizeof bare, "%s/bare", dir);
    write_tasks();
    snprintf(words, sizeof words,
             "mkdir %s && cp %s/*.safetensors %s/config.json %s/tokenizer.json %s", bare, model,
             model, model, bare);
    assert_int_equal(system(words), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const bool own = strstr(wrong[i][0], "--model") != NULL;
        fill(words, sizeof words, wrong[i][0], bare);
        const int code = own ? run(out, sizeof out, "eval %s", words)
                             : run(out, sizeof out, "eval --model %s %s", model, words);
        if (code == 0 || !strstr(out, wrong[i][1]))
            fail_msg("%s\n  said %s\n  not  %s", words, out, wrong[i][1]);
    }
    put("bare/tokenizer_config.json", "{\"bos_token\": \"<|begin_of_text|>\"}");
    fill(words, sizeof words, "--task @/choice.yaml --model #", bare); /* a chat is not asked for */
    if (run(out, sizeof out, "eval %s", words) != 0)
        fail_msg("%s", out);
}

/* ---- goldens ---- */

static void golden(void **state) {
    (void)state;
    assert_int_equal(
        run_beside(out, sizeof out, "tests/goldens/replay", "%s", golden_path("runs/lm_eval")), 0);
    assert_non_null(strstr(out, "llama/rolling.json"));
    assert_non_null(strstr(out, "not run: "));
    assert_non_null(strstr(out, "smollm2/mc.json: give the model with --model smollm2=DIR"));
    assert_non_null(strstr(out, " 0 failed, 9 files absent"));
    assert_int_equal(run_beside(out, sizeof out, "tests/goldens/replay",
                                "%s --model llama=/no/such/folder", golden_path("runs/lm_eval")),
                     1);
    assert_non_null(strstr(out, "/no/such/folder"));
}

/* What is changed in a copy has to be seen. */
static void golden_damage_is_seen(void **state) {
    (void)state;
    static const char *const edits[][3] = {
        {"llama/mc.json", "\"is_greedy\":false", "\"is_greedy\":true"},
        {"llama/mc.json", "\"acc\": 0.0", "\"acc\": 1.0"},
        {"llama/mc.json", "\"fed\":4", "\"fed\":5"},
        {"llama/mc.json", "\"loglikelihood\":-2", "\"loglikelihood\":-3"},
        {"llama/mc.json", "\"acc,none\":0.2", "\"acc,none\":0.4"},
        {"llama/rolling.json", "\"words\": 3", "\"words\": 4"},
        {"llama/gsm8k_0shot.json", "\"generated_ids\": [", "\"generated_ids\": [7, "},
        {"llama/gsm8k_0shot.json", "\"extracted\":\"[", "\"extracted\":\"("},
        {"llama/mc_chat.json", "Answer:<|eot_id|>", "Answer: <|eot_id|>"},
    };
    char from[512], command[2048], path[1024];
    snprintf(from, sizeof from, "%s", golden_path("runs/lm_eval"));
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *text;
        size_t len;
        snprintf(command, sizeof command,
                 "cd %s && rm -rf runs && mkdir -p runs/lm_eval/llama models && cp -r '%s/rows' "
                 "'%s/tasks' runs/lm_eval && chmod -R u+w runs && ln -sfn '%s' models/llama",
                 dir, from, from, golden_path("models/llama"));
        assert_int_equal(system(command), 0);
        snprintf(path, sizeof path, "%s/%s", from, edits[i][0]);
        assert_int_equal(ax_read_file(path, 1 << 20, &text, &len), AX_OK);
        char *at = strstr(text, edits[i][1]);
        assert_non_null(at);
        struct ax_buf changed = {0};
        must(ax_buf_append(&changed, text, (size_t)(at - text)));
        must(ax_buf_puts(&changed, edits[i][2]));
        must(ax_buf_puts(&changed, at + strlen(edits[i][1])));
        snprintf(path, sizeof path, "runs/lm_eval/%s", edits[i][0]);
        put(path, changed.data);
        ax_buf_free(&changed);
        ax_free(text);
        if (run_beside(out, sizeof out, "tests/goldens/replay", "%s/runs/lm_eval", dir) == 0)
            fail_msg("%s: %s was not seen:\n%s", edits[i][0], edits[i][2], out);
        assert_non_null(strstr(out, "FAIL"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_a_table),
        cmocka_unit_test(batches_change_nothing),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(golden),
        cmocka_unit_test(golden_damage_is_seen),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
