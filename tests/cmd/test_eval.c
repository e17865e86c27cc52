/* `axtrain eval` as a program: its numbers against the golden loss, answers by generation, and its
 * mistakes. AX_TEST_BIN names the program. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/text/json.h"
#include "ckpt/hf/safetensors.h"
#include "tests/cmd/program_case.h"
#include "tests/golden_files.h"

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/axtrain-eval-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static const char *model(void) {
    return golden_path("models/llama");
}

static void put(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(ax_write_file_atomic(path, text, strlen(text)), AX_OK);
}

static double number(const json_t *v, const char *key) {
    const json_t *n = json_object_get(v, key);
    if (!json_is_number(n))
        fail_msg("no number \"%s\"", key);
    return json_number_value(n);
}

/* ---- numbers ---- */

/* The golden batch as rows of ids, without their padding. Returns the number of tokens. */
static int write_golden_rows(void) {
    struct ax_safetensors st;
    char path[640];
    struct ax_buf text = {0};
    snprintf(path, sizeof path, "%s/golden/forward.safetensors", model());
    assert_int_equal(ax_safetensors_open(&st, path), AX_OK);
    const struct ax_st_entry *ids = ax_safetensors_find(&st, "input_ids");
    const struct ax_st_entry *labels = ax_safetensors_find(&st, "labels");
    const struct ax_st_entry *mask = ax_safetensors_find(&st, "attention_mask");
    assert_true(ids && labels && mask);
    const int32_t *t = (const int32_t *)(const void *)ids->data;
    const int32_t *l = (const int32_t *)(const void *)labels->data;
    const int width = (int)ids->shape[1];
    int tokens = 0;
    for (int row = 0; row < 2; row++) {
        int n = 0;
        while (n < width && ax_load(mask->dtype, mask->data, width * row + n) != 0)
            n++;
        tokens += n;
        assert_int_equal(ax_buf_puts(&text, "{\"input_ids\": ["), AX_OK);
        for (int i = 0; i < n; i++)
            assert_int_equal(ax_buf_printf(&text, "%s%d", i ? ", " : "", t[width * row + i]),
                             AX_OK);
        assert_int_equal(ax_buf_puts(&text, "], \"labels\": ["), AX_OK);
        for (int i = 0; i < n; i++)
            assert_int_equal(ax_buf_printf(&text, "%s%d", i ? ", " : "", l[width * row + i]),
                             AX_OK);
        assert_int_equal(ax_buf_puts(&text, "]}\n"), AX_OK);
    }
    put("rows.jsonl", text.data);
    ax_buf_free(&text);
    ax_safetensors_close(&st);
    return tokens;
}

static void write_config(const char *more) {
    char text[512];
    snprintf(text, sizeof text,
             "base_model: elsewhere\nsequence_len: 64\nmin_sample_len: 1\ndatasets:\n"
             "  - path: %s/rows.jsonl\n    type:\n%s",
             dir, more);
    put("c.yaml", text);
}

static void the_golden_loss(void **state) {
    (void)state;
    char out[8192], path[640];
    struct ax_json_doc golden;
    double want;
    const int tokens = write_golden_rows();
    write_config("");
    snprintf(path, sizeof path, "%s/golden/golden.json", model());
    assert_int_equal(ax_json_load(&golden, path, 1 << 20), AX_OK);
    struct ax_json batch = ax_json_get(ax_json_root(&golden), "batch");
    assert_int_equal(ax_json_f64(ax_json_get(batch, "loss_mean"), &want), AX_OK);
    const int code =
        run(out, sizeof out, "eval --model %s --config %s/c.yaml --data %s/rows.jsonl --json",
            model(), dir, dir);
    if (code != 0)
        fail_msg("exit %d: %s", code, out);
    json_t *v = json_loads(out, JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    print_message("mean NLL %.9f, golden %.9f\n", number(v, "mean_nll"), want);
    assert_true(fabs(number(v, "mean_nll") - want) < 2e-5);
    assert_true(fabs(number(v, "perplexity") - exp(want)) < 1e-3 * exp(want));
    assert_int_equal((int)number(v, "rows"), 2);
    assert_int_equal((int)number(v, "tokens"), tokens);
    json_decref(v);
    ax_json_free(&golden);
}

static void rows_one_by_one(void **state) {
    (void)state;
    char out[8192];
    write_golden_rows();
    write_config("");
    assert_int_equal(run(out, sizeof out,
                         "eval --model %s --config %s/c.yaml --data %s/rows.jsonl --per-row",
                         model(), dir, dir),
                     0);
    double nll = 0, trained = 0;
    int lines = 0;
    for (char *line = strtok(out, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        json_t *v = json_loads(line, JSON_ALLOW_NUL, NULL);
        assert_non_null(v);
        if (lines < 2) {
            char where[96];
            snprintf(where, sizeof where, "%s/rows.jsonl:%d", dir, lines + 1);
            assert_string_equal(json_string_value(json_object_get(v, "where")), where);
            nll += number(v, "mean_nll") * number(v, "trained_tokens");
            trained += number(v, "trained_tokens");
        } else {
            assert_true(fabs(number(v, "mean_nll") - nll / trained) < 1e-9);
            assert_true(number(v, "trained_tokens") == trained);
        }
        json_decref(v);
    }
    assert_int_equal(lines, 3);
}

/* Without --data: the rows that the configuration sets aside. */
static void evaluation_rows_of_a_config(void **state) {
    (void)state;
    char out[8192];
    write_golden_rows();
    write_config("val_set_size: 0.4\n");
    assert_int_equal(
        run(out, sizeof out, "eval --model %s --config %s/c.yaml --json", model(), dir), 0);
    json_t *v = json_loads(out, JSON_ALLOW_NUL, NULL);
    assert_int_equal((int)number(v, "rows"), 1);
    json_decref(v);
    write_config("");
    assert_int_equal(run(out, sizeof out, "eval --model %s --config %s/c.yaml", model(), dir), 2);
    assert_non_null(strstr(out, "holds out no records for evaluation"));
}

/* Of several adapters each gets what it gets alone, and the base what it gets without any. */
static void several_adapters(void **state) {
    (void)state;
    static const char *const names[] = {"base", "llama_r4", "other"};
    char out[8192], lora[600], args[2048];
    write_golden_rows();
    write_config("");
    snprintf(lora, sizeof lora, "%.*s/lora/llama_r4", (int)(strstr(model(), "/models/") - model()),
             model());
    snprintf(args, sizeof args, "eval --model %s --config %s/c.yaml --data %s/rows.jsonl", model(),
             dir, dir);
    assert_int_equal(
        run(out, sizeof out, "%s --adapter %s --adapter other=%s_dora --json", args, lora, lora),
        0);
    json_t *v = json_loads(out, JSON_ALLOW_NUL, NULL);
    const json_t *list = json_object_get(v, "adapters");
    assert_int_equal(json_array_size(list), 3);
    for (int i = 0; i < 3; i++) {
        const json_t *row = json_array_get(list, (size_t)i);
        assert_string_equal(json_string_value(json_object_get(row, "adapter")), names[i]);
        assert_int_equal(run(out, sizeof out, "%s%s%s%s --json", args, i ? " --adapter " : "",
                             i ? lora : "", i == 2 ? "_dora" : ""),
                         0);
        json_t *alone = json_loads(out, JSON_ALLOW_NUL, NULL);
        assert_true(number(alone, "mean_nll") == number(row, "mean_nll"));
        assert_true(number(alone, "accuracy") == number(row, "accuracy"));
        json_decref(alone);
        for (int k = 0; k < i; k++)
            assert_true(number(row, "mean_nll") !=
                        number(json_array_get(list, (size_t)k), "mean_nll"));
    }
    /* its folder names the base, from where it is */
    assert_int_equal(run(out, sizeof out,
                         "eval --model %s --config %s/c.yaml --data %s/rows.jsonl --json", lora,
                         dir, dir),
                     0);
    json_t *named = json_loads(strchr(out, '{'), JSON_ALLOW_NUL, NULL);
    assert_true(number(named, "mean_nll") == number(json_array_get(list, 1), "mean_nll"));
    json_decref(named);
    assert_int_equal(
        run(out, sizeof out, "%s --adapter %s --adapter other=%s_dora", args, lora, lora), 0);
    for (int i = 0; i < 3; i++) {
        const json_t *row = json_array_get(list, (size_t)i);
        char line[120];
        snprintf(line, sizeof line, "\n%-8s  %10.6f  %10.4f  %7.2f %%\n", names[i],
                 number(row, "mean_nll"), number(row, "perplexity"), 100 * number(row, "accuracy"));
        if (!strstr(out, line))
            fail_msg("not in it: %s%s", line, out);
    }
    json_decref(v);
    /* a column as wide as the longest name */
    assert_non_null(strstr(out, "\nadapter     mean NLL"));
    assert_non_null(strstr(out, "\nbase      "));
    assert_non_null(strstr(out, "\nllama_r4  "));
    assert_non_null(strstr(out, "\nother     "));
    assert_int_equal(
        run(out, sizeof out, "%s --adapter %s --adapter other=%s_dora --per-row", args, lora, lora),
        0);
    int lines = 0;
    for (const char *at = out; (at = strstr(at, "{\"adapter\":\"")) != NULL; at++)
        lines++;
    assert_int_equal(lines, 3 * 2 + 3); /* rows, and the summary's list */
}

/* Names of files and adapters on Linux are bytes: in JSON, what is no UTF-8 is U+FFFD. */
static void names_that_are_no_text(void **state) {
    (void)state;
    char out[8192], path[96], lora[600];
    write_golden_rows();
    write_config("");
    snprintf(path, sizeof path, "%s/sub", dir);
    assert_int_equal(ax_mkdir(path), AX_OK);
    snprintf(path, sizeof path, "%s/rows.jsonl", dir);
    snprintf(out, sizeof out, "%s/sub/r\xe9.jsonl", dir);
    assert_int_equal(rename(path, out), 0);
    snprintf(lora, sizeof lora, "%.*s/lora/llama_r4", (int)(strstr(model(), "/models/") - model()),
             model());
    const int code = run(out, sizeof out,
                         "eval --model %s --config %s/c.yaml --data %s/sub --per-row "
                         "--adapter 'a\xe9=%s' --adapter other=%s_dora",
                         model(), dir, dir, lora, lora);
    if (code != 0)
        fail_msg("exit %d: %s", code, out);
    assert_non_null(strstr(out, "/sub/r\xef\xbf\xbd.jsonl:2\""));
    assert_non_null(strstr(out, "{\"adapter\":\"a\xef\xbf\xbd\",\"row\":1,"));
}

/* Without --dtype an adapter with a name of its own is computed with as it was trained. */
static void the_dtype_of_a_named_adapter(void **state) {
    (void)state;
    char out[8192], command[1600];
    write_golden_rows();
    write_config("");
    snprintf(command, sizeof command, "cp -rL '%.*s/lora/llama_r4' %s/lora && chmod -R u+w %s/lora",
             (int)(strstr(model(), "/models/") - model()), model(), dir, dir);
    assert_int_equal(system(command), 0);
    put("lora/run.json", "{\"compute_dtype\": \"bfloat16\"}");
    for (int named = 0; named < 2; named++) {
        assert_int_equal(run(out, sizeof out,
                             "eval --model %s --config %s/c.yaml --data %s/rows.jsonl --json "
                             "--adapter %s%s/lora",
                             model(), dir, dir, named ? "mine=" : "", dir),
                         0);
        assert_non_null(strstr(out, "\"dtype\": \"bfloat16\""));
    }
}

/* ---- answers ---- */

static const char chat[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"one and two\"}, {\"role\": \"assistant\", "
    "\"content\": \"1 + 2 = 3\\n#### 3\"}]}\n";

static void asks_and_counts(void **state) {
    (void)state;
    char out[8192], rows[1024] = "";
    for (int i = 0; i < 3; i++)
        strcat(rows, chat);
    put("chat.jsonl", rows);
    const int code = run(out, sizeof out,
                         "eval --model %s --data %s/chat.jsonl --task final-answer --batch 2 "
                         "--max-new-tokens 9 --rows 3 --json",
                         model(), dir);
    if (code != 0)
        fail_msg("exit %d: %s", code, out);
    json_t *v = json_loads(out, JSON_ALLOW_NUL, NULL);
    const json_t *a = json_object_get(v, "final_answer");
    assert_int_equal((int)number(a, "asked"), 3);
    assert_int_equal((int)number(a, "solved"), 0); /* the weights are random */
    assert_true(number(a, "generated_tokens") >= 3 && number(a, "generated_tokens") <= 27);
    json_decref(v);
}

/* ---- mistakes ---- */

static void mistakes(void **state) {
    (void)state;
    char out[8192];
    put("plain.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": "
                       "\"assistant\", \"content\": \"b\"}]}\n");
    put("empty.jsonl", "");
    put("wrong.jsonl", "{\"question\": \"a\"}\n");
    const struct {
        int code;
        const char *args, *text;
    } cases[] = {
        {2, "eval", "--model DIR is missing"},
        {2, "eval --model M", "give --data FILE"},
        {2, "eval --model M --data plain.jsonl --task guess",
         "final-answer, reward and prm, got \"guess\""},
        {2, "eval --model M --data plain.jsonl --dtype int3", "int3"},
        {2, "eval --model no/such --data plain.jsonl", "no/such"},
        {2, "eval --model M --data plain.jsonl --base nf5", "nf5"},
        {3, "eval --model M --data plain.jsonl --adapter nowhere",
         "adapter_config.json is missing"},
        {3, "eval --model M --data none.jsonl", "none.jsonl"},
        {3, "eval --model M --data empty.jsonl", "no records to evaluate"},
        {3, "eval --model M --data wrong.jsonl", "wrong.jsonl:1"},
        {3, "eval --model M --data wrong.jsonl", "--config FILE to read them as training does"},
        {3, "eval --model M --data plain.jsonl --task final-answer", "no record ends in"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char args[1024] = "";
        const char *s = cases[i].args;
        for (; *s; s += strcspn(s, " "), s += strspn(s, " ")) { /* M: the model */
            char word[600];
            const int n = (int)strcspn(s, " ");
            const bool is_file = n > 6 && strncmp(s + n - 6, ".jsonl", 6) == 0;
            if (n == 1 && *s == 'M')
                snprintf(word, sizeof word, "%s ", model());
            else
                snprintf(word, sizeof word, "%s%s%.*s ", is_file ? dir : "", is_file ? "/" : "", n,
                         s);
            strcat(args, word);
        }
        const int code = run(out, sizeof out, "%s", args);
        const char *error = strstr(out, "error "), *end = error ? strchr(error, '\n') : NULL;
        if (code != cases[i].code || !strstr(out, cases[i].text) || !end || end[1] != '\0')
            fail_msg("%s: exit %d, or not one line at the end: %s", args, code, out);
    }
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        T(the_golden_loss),
        T(rows_one_by_one),
        T(evaluation_rows_of_a_config),
        T(several_adapters),
        T(asks_and_counts),
        T(mistakes),
        T(names_that_are_no_text),
        T(the_dtype_of_a_named_adapter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
