/* What commands say about data whose tools a chat template leaves out: every form of training, streams,
 * the cache of prepared data, evaluation, generation, and what `axtrain init` makes of such data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/cmd/sft_case.h"

#define U(text)  "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text)  "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define RESULT   "{\"role\": \"tool\", \"name\": \"f\", \"content\": \"42\"}"
#define ASK(text)                                                                                  \
    "{\"role\": \"assistant\", \"content\": \"" text "\", \"tool_calls\": [{\"type\": "            \
    "\"function\", \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1}}}]}"
#define TOOLS                                                                                      \
    ", \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": "     \
    "\"d\", \"parameters\": {\"type\": \"object\", \"properties\": {}}}}]"
#define BEFORE U("q") ", " ASK("") ", " RESULT
#define CHAT   "{\"messages\": [" BEFORE ", " A("It is 42.") "]" TOOLS "}\n"
#define PLAIN  "{\"messages\": [" U("q") ", " A("a") "]}\n"

/* A configuration over the golden llama, whose template writes roles and contents. */
static const char *put_config(const char *more, const char *data) {
    static char path[160];
    static int outputs;
    struct ax_buf b = {0};
    assert_ok(ax_buf_printf(&b,
                            "base_model: %s\nsequence_len: 256\nlearning_rate: 1e-4\n"
                            "micro_batch_size: 1\ngradient_accumulation_steps: 2\nval_set_size: 0\n"
                            "max_steps: 1\noutput_dir: %s/out%d\n%sdatasets:\n  - path: %s\n%s",
                            golden_llama(), scratch, outputs++, more, in_scratch("rows.jsonl"), data));
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

#define TYPE        "    type: chat_template\n"
#define TEMPLATE    "tokenizer_config.json: chat_template leaves out "
#define DEFINITIONS "the tool definitions of 2 conversations (the first is "
#define LINE(n)     "rows.jsonl:" #n ")"
#define REMEDY      "; set chat_template to one that writes them, such as qwen3 or llama4"

/* Both pieces are in one line. */
static void check_line(const char *said, const char *piece, const char *other) {
    const char *at = strstr(said, piece);
    if (!at || !strstr(at, other) || strstr(at, other) > at + strcspn(at, "\n"))
        fail_msg("no \"%s\" and \"%s\" in a line of: %s", piece, other, said);
}

static void says(const char *command, const char *const *args, int n, char *said, size_t size) {
    sft_command = command;
    const int code = sft(said, size, n, args);
    if (code != 0)
        fail_msg("%s: exit %d: %s", command, code, said);
}
#define SAYS(command, ...)                                                                         \
    says(command, (const char *const[]){__VA_ARGS__},                                              \
         (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)), said, sizeof said)

/* Each method that reads messages; two of three records have tools, the second and third. */
static void every_method(void **state) {
    (void)state;
    static const struct {
        const char *more, *data, *plain, *row;
        bool calls;
    } cases[] = {
        {"", TYPE, PLAIN, CHAT, true},
        {"sample_packing: true\n", TYPE, PLAIN, CHAT, true},
        {"", "", PLAIN, CHAT, true},
        {"", "", "{\"prompt\": [" U("q") "], \"completion\": [" A("a") "]}\n",
         "{\"prompt\": [" BEFORE "], \"completion\": [" A("a") "]" TOOLS "}\n", true},
        {"rl: dpo\n", "",
         "{\"prompt\": [" U("q") "], \"chosen\": [" A("a") "], \"rejected\": [" A("b") "]}\n",
         "{\"prompt\": [" BEFORE "], \"chosen\": [" A("a") "], \"rejected\": [" A("b") "]" TOOLS
         "}\n",
         true},
        {"rl: dpo\n", "    type: chat_template.default\n",
         "{\"messages\": [" U("q") "], \"chosen\": " A("a") ", \"rejected\": " A("b") "}\n",
         "{\"messages\": [" BEFORE "], \"chosen\": " A("a") ", \"rejected\": " A("b") TOOLS "}\n",
         true},
        {"rl: orpo\n", "",
         "{\"chosen\": [" U("q") "," A("a") "], \"rejected\": [" U("q") "," A("b") "]}\n",
         "{\"chosen\": [" BEFORE "," A("a") "], \"rejected\": [" BEFORE "," A("b") "]" TOOLS "}\n",
         true},
        {"rl: kto\n", "",
         "{\"prompt\": [" U("q") "], \"completion\": [" A("a") "], \"label\": true}\n",
         "{\"prompt\": [" BEFORE "], \"completion\": [" A("a") "], \"label\": false" TOOLS "}\n",
         true},
        {"reward_model: true\n", "    type: bradley_terry.chat_template\n",
         "{\"input\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}\n",
         "{\"input\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"" TOOLS "}\n", false},
        {"rl: grpo\ntrl: {max_completion_length: 8, num_generations: 2, reward_funcs: [x.y]}\n", "",
         "{\"prompt\": [" U("q") "]}\n", "{\"prompt\": [" BEFORE "]" TOOLS "}\n", true},
        {"rl: grpo\ntrl: {max_completion_length: 8, num_generations: 2, reward_funcs: [x.y]}\n",
         TYPE, PLAIN, CHAT, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char said[8192], rows[4096];
        snprintf(rows, sizeof rows, "%s%s%s", cases[i].plain, cases[i].row, cases[i].row);
        put_text("rows.jsonl", rows);
        SAYS("preview", put_config(cases[i].more, cases[i].data));
        check_line(said, TEMPLATE DEFINITIONS, LINE(2));
        if (cases[i].calls)
            check_line(said, "the tool calls of 2 conversations (the first is ", LINE(2) REMEDY);
        check_line(said, TEMPLATE, REMEDY);
        assert_null(strstr(said, "the tool results"));
    }
}

/* Nothing is said of a template that writes tools, and of conversations without any. */
static void nothing_is_lost(void **state) {
    (void)state;
    char said[8192];
    put_text("rows.jsonl", PLAIN CHAT CHAT);
    SAYS("preview", put_config("", TYPE), "chat_template=qwen3");
    assert_null(strstr(said, "leaves out"));
    put_text("rows.jsonl", PLAIN "{\"messages\": [" U("q") ", " A("a") "], \"tools\": []}\n");
    SAYS("preview", put_config("", TYPE));
    assert_null(strstr(said, "leaves out"));
}

/* Conversations that are skipped, as calls are all that is learned from, count as well. */
static void calls_alone(void **state) {
    (void)state;
    char said[8192];
    put_text("rows.jsonl", PLAIN "{\"messages\": [" U("q") ", " ASK("") "]" TOOLS "}\n" CHAT);
    SAYS("preview", put_config("", TYPE));
    check_line(said, "the tool calls of 2 conversations (the first is ", LINE(2));
    check_line(said, "1 record skipped, with nothing to learn from; the first is ",
               "rows.jsonl:2: messages: the answer is empty; tool calls are left out by the chat "
               "template ");
}

/* What was prepared before is counted, and trained on with the same words. */
static void prepared(void **state) {
    (void)state;
    char said[8192], cache[160];
    need_binary();
    put_text("rows.jsonl", PLAIN CHAT CHAT);
    snprintf(cache, sizeof cache, "dataset_prepared_path=%s", in_scratch("prepared"));
    const char *config = put_config("", TYPE);
    SAYS("preprocess", config, cache);
    check_line(said, TEMPLATE DEFINITIONS, LINE(2));
    SAYS("preprocess", config, cache);
    assert_non_null(strstr(said, "(from the cache)"));
    check_line(said, TEMPLATE DEFINITIONS, LINE(2));
    SAYS("sft", config, cache, "float32=true");
    check_line(said, TEMPLATE DEFINITIONS, LINE(2));
}

/* A stream says it when a buffer has such a record, and counts at the end of an epoch. */
static void streamed(void **state) {
    (void)state;
    char said[8192];
    need_binary();
    put_text("rows.jsonl", PLAIN CHAT CHAT);
    const char *config = put_config("streaming: true\nfloat32: true\n", TYPE);
    SAYS("sft", config);
    check_line(said, "streamed data: the chat template ", TEMPLATE DEFINITIONS);
    check_line(said, "streamed data: the chat template ", REMEDY);
    assert_null(strstr(said, "so far"));
    config = put_config("streaming: true\nfloat32: true\n", TYPE);
    SAYS("sft", config, "streaming_multipack_buffer_size=1", "max_steps=3");
    check_line(said, "streamed data: so far, the chat template ",
               "the tool definitions of 1 conversation (the first is ");
    check_line(said, "streamed data: the chat template ", DEFINITIONS);
    put_text("rows.jsonl", PLAIN PLAIN);
    SAYS("sft", put_config("streaming: true\nfloat32: true\n", TYPE));
    assert_null(strstr(said, "leaves out"));
}

static void evaluated(void **state) {
    (void)state;
    char said[8192];
    put_text("rows.jsonl", PLAIN CHAT CHAT);
    SAYS("eval", "--model", golden_llama(), "--data", in_scratch("rows.jsonl"));
    check_line(said, TEMPLATE DEFINITIONS, LINE(2) REMEDY);
}

int main(void) {
    const struct CMUnitTest t[] = {
        cmocka_unit_test(every_method), cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(calls_alone),  cmocka_unit_test(prepared),
        cmocka_unit_test(streamed),     cmocka_unit_test(evaluated),
    };
    return cmocka_run_group_tests(t, scratch_make, scratch_remove);
}
