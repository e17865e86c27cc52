/* `axtrain eval --samples`: pass@k of a tiny model that has learned two answers to one question. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text/json.h"
#include "base/mem.h"
#include "tests/cmd/sft_case.h"

#define ROWS    2
#define SAMPLES 12

/* Half of the rows say 3, half 4. */
static void write_rows(const char *name, int n) {
    struct ax_buf text = {0};
    for (int i = 0; i < n; i++)
        assert_int_equal(
            ax_buf_printf(
                &text,
                "{\"messages\": [{\"role\": \"user\", \"content\": \"guess\"}, {\"role\": "
                "\"assistant\", \"content\": \"#### %d\"}]}\n",
                3 + i % 2),
            AX_OK);
    assert_int_equal(ax_write_file_atomic(in_scratch(name), text.data, text.len), AX_OK);
    ax_buf_free(&text);
}

static const char *trained_model(void) {
    static char out[128];
    struct ax_buf text = {0};
    char rows[128], config[128], said[8192];
    need_binary();
    write_rows("train.jsonl", 16);
    snprintf(rows, sizeof rows, "%s", in_scratch("train.jsonl"));
    snprintf(out, sizeof out, "%s", in_scratch("out"));
    assert_int_equal(
        ax_buf_printf(&text,
                      "base_model: %s\nchat_template: llama3\ndatasets:\n  - path: %s\n    type: "
                      "chat_template\nsequence_len: 128\nmicro_batch_size: 16\n"
                      "val_set_size: 0\nnum_epochs: 30\nlearning_rate: 5e-3\n"
                      "save_strategy: \"no\"\nbf16: false\noutput_dir: %s\n",
                      golden_llama(), rows, out),
        AX_OK);
    snprintf(config, sizeof config, "%s", in_scratch("c.yaml"));
    assert_int_equal(ax_write_file_atomic(config, text.data, text.len), AX_OK);
    ax_buf_free(&text);
    sft_command = "sft";
    const char *const args[] = {config};
    const int code = sft(said, sizeof said, 1, args);
    if (code != 0)
        fail_msg("exit %d: %s", code, said);
    sft_command = "eval";
    return out;
}

static double number(const json_t *v, const char *key) {
    const json_t *n = json_object_get(v, key);
    if (!json_is_number(n))
        fail_msg("no number \"%s\"", key);
    return json_number_value(n);
}

/* What an evaluation wrote: lines of rows, and one of all. */
struct outcome {
    int correct[ROWS];
    double at[3]; /* of 1, 4, 12 */
};

static struct outcome evaluate(const char *model, const char *batch, const char *threads,
                               const char *seed) {
    struct outcome o;
    char data[128], out[128], said[8192], *text;
    size_t len;
    snprintf(data, sizeof data, "%s", in_scratch("test.jsonl"));
    snprintf(out, sizeof out, "%s", in_scratch("eval.jsonl"));
    const char *const args[] = {
        "--model",   model,   "--data",    data,     "--task",           "final-answer",
        "--samples", "12",    "--pass-at", "1,4,12", "--batch",          batch,
        "--threads", threads, "--seed",    seed,     "--max-new-tokens", "16",
        "--per-row", "-o",    out};
    const int code = sft(said, sizeof said, (int)(sizeof args / sizeof *args), args);
    if (code != 0)
        fail_msg("exit %d: %s", code, said);
    assert_int_equal(ax_read_file(out, 1 << 20, &text, &len), AX_OK);
    char *line = text;
    for (int i = 0; i < ROWS; i++, line = strchr(line, '\n') + 1) {
        json_t *v = json_loads(line, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL);
        o.correct[i] = (int)number(v, "correct");
        json_decref(v);
    }
    json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
    const json_t *a = json_object_get(v, "final_answer"), *at = json_object_get(a, "pass_at");
    o.at[0] = number(at, "1");
    o.at[1] = number(at, "4");
    o.at[2] = number(at, "12");
    assert_int_equal((int)number(a, "correct"), o.correct[0] + o.correct[1]);
    assert_int_equal((int)number(a, "asked"), ROWS);
    json_decref(v);
    ax_free(text);
    return o;
}

static double choose(int n, int k) {
    double c = 1;
    for (int i = 1; i <= k; i++)
        c = c * (n - k + i) / i;
    return k > n ? 0 : c;
}

/* What an adapter answers after the base is what it answers alone; the answers of both that were
 * cut are counted. */
static void with_an_adapter(const char *model) {
    char lora[600], data[128], out[128], said[8192];
    double alone = -1;
    snprintf(data, sizeof data, "%s", in_scratch("test.jsonl"));
    snprintf(out, sizeof out, "%s", in_scratch("eval.json"));
    const char *golden = golden_llama();
    snprintf(lora, sizeof lora, "%.*s/lora/llama_r4", (int)(strstr(golden, "/models/") - golden),
             golden);
    char again[620];
    snprintf(again, sizeof again, "again=%s", lora);
    for (int n = 1; n <= 2; n++) {
        const char *const args[] = {"--model",   model,       "--data",
                                    data,        "--task",    "final-answer",
                                    "--samples", "12",        "--max-new-tokens",
                                    "16",        "--threads", "1",
                                    "--json",    "-o",        out,
                                    "--adapter", lora,        "--adapter",
                                    again};
        const int code = sft(said, sizeof said, n == 1 ? 17 : 19, args);
        if (code != 0)
            fail_msg("exit %d: %s", code, said);
        struct ax_json_doc doc;
        assert_int_equal(ax_json_load(&doc, out, 1 << 20), AX_OK);
        const json_t *list = json_object_get(doc.root, "adapters");
        for (size_t i = 0; i < (n == 1 ? 1 : 3); i++) {
            const json_t *turn = n == 1 ? doc.root : json_array_get(list, i);
            const json_t *a = json_object_get(turn, "final_answer");
            const double got = number(json_object_get(a, "pass_at"), "1");
            assert_true(n == 1 || i == 0 || got == alone);
            alone = n == 1 ? got : alone;
        }
        if (n == 2) { /* a line of each, after the heading */
            const char *const told[] = {"--model",          model,          "--data",    data,
                                        "--task",           "final-answer", "--samples", "12",
                                        "--max-new-tokens", "16",           "--threads", "1",
                                        "--adapter",        lora,           "--adapter", again};
            assert_int_equal(sft(said, sizeof said, 16, told), 0);
            for (size_t i = 0; i < 3; i++) {
                static const char *const names[] = {"\nbase ", "\nllama_r4 ", "\nagain "};
                const json_t *a = json_object_get(json_array_get(list, i), "final_answer");
                const char *line = strstr(said, names[i]);
                double nll, perplexity, accuracy, percent;
                if (!line || sscanf(line + strlen(names[i]), "%lf %lf %lf %%  pass@1 %lf", &nll,
                                    &perplexity, &accuracy, &percent) != 4)
                    fail_msg("no %s: %s", names[i] + 1, said);
                const json_t *turn = json_array_get(list, i);
                assert_true(fabs(accuracy - 100 * number(turn, "accuracy")) <= 0.0051);
                assert_true(fabs(percent - 100 * number(json_object_get(a, "pass_at"), "1")) <=
                            0.051);
                assert_true(i > 0 || (accuracy > 10 && percent > 10));
            }
        }
        ax_json_free(&doc);
    }
    EXPECT(0, "72 answers were truncated after 1 token (", "--model", model, "--data", data,
           "--task", "final-answer", "--samples", "12", "--max-new-tokens", "1", "--adapter", lora,
           "--adapter", again);
}

/* Greedy answers are as good as the guess of the base, and nothing with an adapter that is a thousand times too
 * loud. */
static void with_a_loud_adapter(const char *model) {
    char command[1600], loud[160], data[128], said[8192];
    const char *golden = golden_llama(), *line;
    snprintf(loud, sizeof loud, "%s", in_scratch("loud"));
    snprintf(data, sizeof data, "%s", in_scratch("test.jsonl"));
    snprintf(command, sizeof command,
             "cp -rL '%.*s/lora/llama_r4' %s && chmod -R u+w %s && sed -i 's/\"lora_alpha\": *"
             "[0-9.]*/\"lora_alpha\": 8000/' %s/adapter_config.json",
             (int)(strstr(golden, "/models/") - golden), golden, loud, loud, loud);
    assert_int_equal(system(command), 0);
    char named[200];
    snprintf(named, sizeof named, "again=%s", loud);
    const char *const args[] = {
        "--model", model,       "--data", data,        "--task", "final-answer", "--max-new-tokens",
        "16",      "--threads", "1",      "--adapter", loud,     "--adapter",    named};
    assert_int_equal(sft(said, sizeof said, 14, args), 0);
    static const char *const lines[][2] = {{"\nbase ", "  1/2 (50.0 %)\n"},
                                           {"\nloud ", "  0/2 (0.0 %)\n"},
                                           {"\nagain ", "  0/2 (0.0 %)\n"}};
    for (int i = 0; i < 3; i++) {
        line = strstr(said, lines[i][0]);
        const char *end = line ? strstr(line, lines[i][1]) : NULL;
        if (!end || end > strchr(line + 1, '\n'))
            fail_msg("no %s%s: %s", lines[i][0] + 1, lines[i][1], said);
    }
}

static void draws_and_estimates(void **state) {
    (void)state;
    const char *model = trained_model();
    write_rows("test.jsonl", ROWS);
    const struct outcome o = evaluate(model, "16", "1", "1");
    print_message("right: %d and %d of %d, pass@1 %.3f, pass@4 %.3f\n", o.correct[0], o.correct[1],
                  SAMPLES, o.at[0], o.at[1]);
    /* it answers the one or the other, so each row gets some right answers and some wrong ones */
    assert_true(o.correct[0] > 0 && o.correct[1] > 0);
    assert_true(o.correct[0] + o.correct[1] >= SAMPLES / 2 && o.correct[0] < SAMPLES);
    static const int at[] = {1, 4, 12};
    for (int k = 0; k < 3; k++) {
        double want = 0;
        for (int i = 0; i < ROWS; i++)
            want += 1 - choose(SAMPLES - o.correct[i], at[k]) / choose(SAMPLES, at[k]);
        assert_true(fabs(o.at[k] - want / ROWS) < 1e-12);
    }
    static const char *const ways[][2] = {{"1", "1"}, {"5", "1"}, {"7", "2"}, {"64", "2"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct outcome again = evaluate(model, ways[i][0], ways[i][1], "1");
        assert_memory_equal(again.correct, o.correct, sizeof o.correct);
    }
    bool other = false; /* another seed draws others, sooner or later */
    for (int seed = 2; seed < 6 && !other; seed++) {
        char text[8];
        snprintf(text, sizeof text, "%d", seed);
        const struct outcome drawn = evaluate(model, "16", "1", text);
        other = memcmp(drawn.correct, o.correct, sizeof o.correct) != 0;
    }
    assert_true(other);
    with_an_adapter(model);
    with_a_loud_adapter(model);
    char data[128];
    snprintf(data, sizeof data, "%s", in_scratch("test.jsonl"));
    EXPECT(0, "pass@12", "--model", model, "--data", data, "--task", "final-answer", "--samples",
           "12", "--max-new-tokens", "8");
}

static void mistakes(void **state) {
    (void)state;
    need_binary();
    sft_command = "eval";
    EXPECT(2, "need --samples N", "--model", "m", "--data", "d", "--task", "final-answer",
           "--temperature", "0.7");
    EXPECT(2, "needs --task", "--model", "m", "--data", "d", "--samples", "4");
#define TASK "--model", "m", "--data", "d", "--task", "final-answer", "--samples", "4"
    EXPECT(2, "remove --samples", TASK, "--temperature", "0");
    EXPECT(2, "top_p", TASK, "--top-p", "1.5");
    EXPECT(2, "5 is not between 1 and the 4", TASK, "--pass-at", "1,5");
    EXPECT(2, "0 is not between", TASK, "--pass-at", "0");
    EXPECT(2, "expected numbers like 1,4,8", TASK, "--pass-at", "1,,2");
    EXPECT(2, "expected numbers like 1,4,8", TASK, "--pass-at", "1,x");
    EXPECT(2, "expected numbers like 1,4,8", TASK, "--pass-at", "");
    EXPECT(2, "more than 8", TASK, "--pass-at", "1,1,1,1,1,1,1,1,1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(draws_and_estimates, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(mistakes, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
