/* `axtrain generate` on the golden llama model: prompts from everywhere, every kind of output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>

#include "base/text/json.h"
#include "cmd/commands.h"
#include "tests/cmd/command_case.h"
#include "tests/cmd/program_case.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static char model[512], output[65536];

static int find_model(void **state) {
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    return scratch_make(state);
}

/* Runs the command with `input` on stdin; what it prints is in `output` after it. */
static enum ax_status generates(const char *input, int argc, char **argv) {
    return run_command(ax_cmd_generate, argc, argv, put_text("in", input), in_scratch("out"),
                       output, sizeof output);
}

#define RUN(input, ...)                                                                            \
    generates(                                                                                     \
        (input),                                                                                   \
        sizeof((char *[]){"generate", "--model", model, "--dtype", "float32", __VA_ARGS__}) /      \
            sizeof(char *),                                                                        \
        (char *[]){"generate", "--model", model, "--dtype", "float32", __VA_ARGS__})

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Line i of the output as an object; field of it. Free with json_decref. */
static json_t *line(int i) {
    const char *at = output;
    while (i-- > 0 && at)
        at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL;
    assert_non_null(at);
    json_t *row = json_loadb(at, strcspn(at, "\n"), 0, NULL);
    assert_true(json_is_object(row));
    return row;
}

static long long number(const json_t *row, const char *key) {
    assert_true(json_is_integer(json_object_get(row, key)));
    return json_integer_value(json_object_get(row, key));
}

static void from_everywhere(void **state) {
    (void)state;
    static char plain[sizeof output];
    must(RUN("", "--prompt", "The train", "--max-new-tokens", "12"));
    memcpy(plain, output, sizeof output);
    assert_true(strlen(plain) > 1 && plain[strlen(plain) - 1] == '\n');
    must(RUN("The train\n", "--max-new-tokens", "12"));
    assert_string_equal(output, plain);
    must(RUN("The train\r\n", "--max-new-tokens", "12"));
    assert_string_equal(output, plain);
    const char *rows = put_text("rows.jsonl", "{\"prompt\": \"The train\"}\n\n"
                                              "{\"prompt\": \"Two\", \"more\": 1}\n"
                                              "{\"messages\": [{\"role\": \"user\", "
                                              "\"content\": \"hi\"}]}\n");
    must(RUN("", "--input", (char *)(uintptr_t)rows, "--max-new-tokens", "12"));
    static char head[sizeof output + 128];
    snprintf(head, sizeof head, "=== prompt 1, sample 1 ===\n%s=== prompt 2, sample 1 ===\n",
             plain);
    assert_memory_equal(output, head, strlen(head));
    assert_non_null(strstr(output, "=== prompt 3, sample 1 ===\n"));
    /* parts of a content are lines of one text, as in vLLM and llama.cpp */
    rows =
        put_text("parts.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"h\\ni\"}]}\n"
                                "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": "
                                "\"text\", \"text\": \"h\"}, {\"type\": \"text\", \"text\": "
                                "\"i\"}]}]}\n");
    must(RUN("", "--input", (char *)(uintptr_t)rows, "--max-new-tokens", "12"));
    const char *one = strstr(output, "===\n") + 4, *end = strstr(one, "=== prompt 2");
    const char *two = strstr(end, "===\n") + 4;
    assert_int_equal(strlen(two), end - one);
    assert_memory_equal(one, two, (size_t)(end - one));
}

static void as_json(void **state) {
    (void)state;
    must(RUN("", "--prompt", "The train", "--max-new-tokens", "9", "--n", "3", "--json",
             "--temperature", "1", "--seed", "5"));
    json_t *rows[3];
    for (int i = 0; i < 3; i++) {
        rows[i] = line(i);
        assert_int_equal(number(rows[i], "row"), 0);
        assert_int_equal(number(rows[i], "sample"), i);
        assert_in_range(number(rows[i], "tokens"), 1, 9);
        assert_true(json_real_value(json_object_get(rows[i], "logprob")) < 0);
        assert_true(json_is_string(json_object_get(rows[i], "text")));
        assert_true(json_is_string(json_object_get(rows[i], "finish")));
    }
    assert_false(json_equal(json_object_get(rows[0], "text"), json_object_get(rows[1], "text")));
    for (int i = 0; i < 3; i++)
        json_decref(rows[i]);

    static char first[sizeof output];
    memcpy(first, output, sizeof output);
    must(RUN("", "--prompt", "The train", "--max-new-tokens", "9", "--n", "3", "--json",
             "--temperature", "1", "--seed", "5", "--batch", "1", "--threads", "1"));
    assert_string_equal(output, first);
    must(RUN("", "--prompt", "The train", "--max-new-tokens", "9", "--n", "3", "--json",
             "--temperature", "1", "--seed", "6"));
    assert_string_not_equal(output, first);
}

static void conversations(void **state) {
    (void)state;
    must(RUN("", "--chat", "--prompt", "hi", "--system", "Be brief.", "--json", "--max-new-tokens",
             "4"));
    json_t *row = line(0);
    const long long with_system = number(row, "prompt_tokens");
    json_decref(row);
    must(RUN("", "--chat", "--prompt", "hi", "--json", "--max-new-tokens", "4"));
    row = line(0);
    assert_true(number(row, "prompt_tokens") < with_system);
    json_decref(row);
}

static void stop_strings(void **state) {
    (void)state;
    must(RUN("", "--prompt", "The train", "--max-new-tokens", "30"));
    static char all[sizeof output];
    char stop[3];
    memcpy(all, output, sizeof output);
    assert_true(strlen(all) > 8);
    const char *at = all + 4;
    while ((at[0] & 0x80) || (at[1] & 0x80)) /* two ASCII characters, where tokens may cut them */
        at++;
    snprintf(stop, sizeof stop, "%.2s", at);
    const size_t n = (size_t)(strstr(all, stop) - all);
    must(RUN("", "--prompt", "The train", "--max-new-tokens", "30", "--stop", "never seen",
             "--stop", stop));
    assert_int_equal(strlen(output), n + 1);
    assert_memory_equal(output, all, n);
    must(RUN("", "--prompt", "The train", "--max-new-tokens", "30", "--stop", stop, "--json"));
    json_t *row = line(0);
    assert_string_equal(json_string_value(json_object_get(row, "finish")), "stop");
    json_decref(row);
}

/* generation_config.json decides what the command line does not. */
static void the_models_settings(void **state) {
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    char fixture[512], from[1024];
    snprintf(fixture, sizeof fixture, "%s", model);
    make_folder("m");
    for (size_t i = 0; i < 4; i++) {
        char name[64];
        snprintf(from, sizeof from, "%s/%s", fixture, files[i]);
        snprintf(name, sizeof name, "m/%s", files[i]);
        char *real = realpath(from, NULL);
        assert_int_equal(symlink(real, in_scratch(name)), 0);
        free(real);
    }
    put_text("m/generation_config.json",
             "{\"do_sample\": true, \"temperature\": 1.5, \"top_k\": 100, \"max_new_tokens\": 7}");
    snprintf(model, sizeof model, "%s", in_scratch("m"));
    must(RUN("", "--prompt", "The train", "--json"));
    json_t *row = line(0);
    assert_true(number(row, "tokens") <= 7);
    json_decref(row);
    static char sampled[sizeof output];
    memcpy(sampled, output, sizeof output);
    must(RUN("", "--prompt", "The train", "--json", "--temperature", "1.5", "--top-k", "100"));
    assert_string_equal(output, sampled);
    must(RUN("", "--prompt", "The train", "--json", "--temperature", "0"));
    assert_string_not_equal(output, sampled);
    snprintf(model, sizeof model, "%s", fixture);
}

/* A long prompt leaves few tokens for its own answer alone. */
static void long_prompts(void **state) {
    (void)state;
    static char rows[600], alone[sizeof output];
    char many[251];
    memset(many, 'q', 250);
    many[250] = '\0';
    snprintf(rows, sizeof rows, "{\"prompt\": \"The train\"}\n");
    must(RUN("", "--input", (char *)(uintptr_t)put_text("a.jsonl", rows), "--max-new-tokens", "20",
             "--json"));
    memcpy(alone, output, sizeof output);
    snprintf(rows, sizeof rows, "{\"prompt\": \"The train\"}\n{\"prompt\": \"%s\"}\n", many);
    must(RUN("", "--input", (char *)(uintptr_t)put_text("b.jsonl", rows), "--max-new-tokens", "20",
             "--json"));
    assert_memory_equal(output, alone, strlen(alone));
    json_t *row = line(1);
    assert_in_range(number(row, "prompt_tokens"), 256 - 19, 255);
    assert_int_equal(number(row, "prompt_tokens") + number(row, "tokens"), 256);
    json_decref(row);
}

static void errors(void **state) {
    (void)state;
    char *none[] = {"generate", "--prompt", "x"};
    assert_error(generates("", 3, none), AX_ERR_CONFIG, "--model is missing");
    assert_error(RUN("", "--prompt", "x", "--input", "y"), AX_ERR_CONFIG, "either --prompt");
    assert_error(RUN("", "--prompt", "x", "--system", "y"), AX_ERR_CONFIG, "--system needs --chat");
    assert_error(RUN("", "--prompt", "x", "--top-p", "2"), AX_ERR_CONFIG, "top_p: expected");
    assert_error(RUN("", "--prompt", "x", "--stop", ""), AX_ERR_CONFIG, "--stop: expected");
    assert_error(RUN("", "--input", "/no/such.jsonl"), AX_ERR_IO, "/no/such.jsonl");
    const char *rows = put_text("bad.jsonl", "{\"prompt\": \"a\"}\n{\"text\": \"b\"}\n");
    assert_error(RUN("", "--input", (char *)(uintptr_t)rows), AX_ERR_DATA, "bad.jsonl:2");
    rows = put_text("worse.jsonl", "{\"prompt\": 3}\n");
    assert_error(RUN("", "--input", (char *)(uintptr_t)rows), AX_ERR_DATA, "worse.jsonl:1");
    char *many[2 * 17 + 5] = {"generate", "--model", model, "--prompt", "x"};
    for (int i = 0; i < 17; i++) {
        many[5 + 2 * i] = "--stop";
        many[6 + 2 * i] = "a";
    }
    assert_error(generates("", 39, many), AX_ERR_CONFIG, "can be given at most 16 times");
    static char lots[8192];
    memset(lots, 'q', sizeof lots - 1);
    assert_error(RUN(lots, "--json"), AX_ERR_DATA, "but the model has only 256 positions");
}

/* `generate … | head -1` ends with head, and is no failure. */
static void without_a_reader(void **state) {
    (void)state;
    char command[2000];
    struct ax_buf b = {0};
    for (int i = 0; i < 500; i++)
        must(ax_buf_printf(&b, "{\"prompt\": \"%d trains\"}\n", i));
    put_bytes("many.jsonl", b.data, b.len);
    ax_buf_free(&b);
    snprintf(command, sizeof command,
             "{ '%s' generate '%s' --input '%s/many.jsonl' --max-new-tokens 64 --batch 1 2> "
             "'%s/said'; echo $? >> '%s/said'; } | head -1",
             test_program(), model, scratch, scratch, scratch);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    assert_non_null(fgets(output, sizeof output, p));
    assert_int_equal(pclose(p), 0);
    char *said;
    size_t len;
    must(ax_read_file(in_scratch("said"), 1 << 20, &said, &len));
    assert_string_equal(said, "0\n"); /* without the line about 500 answers */
    ax_free(said);
}

/* A model that has learned no calls makes none; how it would is read from its template, which the prompt comes from, too. */
static void tools_are_in_the_prompt(void **state) {
    (void)state;
    static const char script[] = "def add(a: int, b: int) -> int:\n    \"\"\"Adds.\n\n    Args:\n"
                                 "        a: one\n        b: other\n    \"\"\"\n    return a + b\n";
    char log[4096], chats[256];
    put_text("calls.py", script);
    snprintf(chats, sizeof chats, "%s",
             put_text("chats.jsonl",
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"1 + 2?\"}]}\n"));
    if (run(log, sizeof log,
            "generate '%s' --dtype float32 --max-new-tokens 4 --temperature 0 --json --input '%s' "
            "-o '%s/answers' --tools '%s/calls.py:add'",
            golden_path("runs/models/tools_qwen3"), chats, scratch, scratch) != 0)
        fail_msg("%s", log);
    assert_non_null(strstr(log, "tools: calls are read as "));
    assert_non_null(strstr(log, " writes them (tool_call_format hermes)"));
    json_t *v = json_load_file(in_scratch("answers"), 0, NULL);
    assert_int_equal(json_array_size(json_object_get(v, "completion_ids")), 4);
    /* its definition is longer than the question */
    assert_true(json_array_size(json_object_get(v, "prompt_ids")) > 100);
    json_decref(v);
    if (run(log, sizeof log,
            "generate '%s' --dtype float32 --max-new-tokens 4 --input '%s' --tools "
            "'%s/calls.py:add'",
            model, chats, scratch) == 0)
        fail_msg("%s", log);
    if (!strstr(log, "writes tool calls in no format that is known"))
        fail_msg("%s", log);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_everywhere),         cmocka_unit_test(as_json),
        cmocka_unit_test(conversations),           cmocka_unit_test(stop_strings),
        cmocka_unit_test(the_models_settings),     cmocka_unit_test(long_prompts),
        cmocka_unit_test(tools_are_in_the_prompt), cmocka_unit_test(errors),
        cmocka_unit_test(without_a_reader),
    };
    return cmocka_run_group_tests(tests, find_model, scratch_remove);
}
