/* What commands say about data whose tools a chat template leaves out: every form of training, streams,
 * the cache of prepared data, evaluation, generation, and what `axtrain init` makes of such data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <unistd.h>

#include "tests/cmd/sft_case.h"

#define U(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define RESULT  "{\"role\": \"tool\", \"name\": \"f\", \"content\": \"42\"}"
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
                            golden_llama(), scratch, outputs++, more, in_scratch("rows.jsonl"),
                            data));
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
    put_text("rows.jsonl", CHAT CHAT PLAIN);
    config = put_config("streaming: true\nfloat32: true\n", TYPE);
    SAYS("sft", config, "streaming_multipack_buffer_size=1", "max_steps=3");
    check_line(said, "streamed data: so far, the chat template ",
               "the tool definitions of 1 conversation (the first is ");
    assert_null(strstr(strstr(said, "so far, ") + 1, "so far, ")); /* in the first buffer alone */
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

/* ---- generation and scores ---- */

/* A folder in the scratch folder with the files of a golden one, and a template of its own. */
static const char *put_model(const char *golden, const char *name, const char *file,
                             const char *template) {
    static const char *const files[] = {"config.json",
                                        "generation_config.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json",
                                        "weights.json",
                                        "model.safetensors",
                                        "model.safetensors.index.json"};
    char path[512], from[512], *made;
    make_folder(name);
    snprintf(path, sizeof path, "%s/additional_chat_templates", name);
    make_folder(path);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%s/%s", golden_path(golden), files[i]);
        snprintf(path, sizeof path, "%s/%s/%s", scratch, name, files[i]);
        if (ax_path_exists(from))
            assert_int_equal(symlink(from, path), 0);
    }
    snprintf(path, sizeof path, "%s/%s", name, file);
    put_text(path, template);
    assert_ok(ax_path_join(&made, scratch, name));
    static char folder[512];
    snprintf(folder, sizeof folder, "%s", made);
    ax_free(made);
    return folder;
}

/* Writes tools, calls and results. */
#define FULL                                                                                       \
    "{{ bos_token }}{% for t in tools or [] %}{{ t | tojson }}<|eot_id|>{% endfor %}"              \
    "{% for m in messages %}{{ m.role }} {{ m.content }}{% if m.tool_calls %}"                     \
    "{{ m.tool_calls | tojson }}{% endif %}<|eot_id|>{% endfor %}"

/* The tokens of each prompt, from --json, and what was said. */
static void prompts(const char *model, const char *rows, char *said, size_t size, long long *n) {
    const char *const args[] = {
        "--model", model,    "--input",          put_text("rows.jsonl", rows),
        "--json",  "--chat", "--max-new-tokens", "1"};
    says("generate", args, 8, said, size);
    for (const char *at = said; (at = strstr(at, "\"prompt_tokens\":")) != NULL; at++)
        *n++ = strtoll(at + strlen("\"prompt_tokens\":"), NULL, 10);
}

#define ASKED "{\"messages\": [" BEFORE "]"
#define TEXT_TOOLS                                                                                 \
    ", \"tools\": \"[{\\\"type\\\": \\\"function\\\", \\\"function\\\": {\\\"name\\\": "           \
    "\\\"f\\\", \\\"description\\\": \\\"d\\\", \\\"parameters\\\": {\\\"type\\\": "               \
    "\\\"object\\\", \\\"properties\\\": {}}}}]\""

/* Records' tools reach the template, and it is said if that leaves them out. */
static void generated(void **state) {
    (void)state;
    char said[8192], model[512];
    long long n[8], other[8];
    need_binary();
    prompts(golden_llama(), ASKED "}\n\n" ASKED TOOLS "}\n" PLAIN, said, sizeof said, n);
    assert_int_equal(n[0], n[1]);
    check_line(said, TEMPLATE "the tool definitions of 1 conversation (the first is ", LINE(3));
    check_line(said, "the tool calls of 2 conversations (the first is ", LINE(1));
    check_line(said, TEMPLATE, "llama/chat_template.jinja");
    snprintf(model, sizeof model, "%s",
             put_model("models/llama", "full", "chat_template.jinja", FULL));
    prompts(model,
            ASKED "}\n" ASKED TOOLS "}\n" ASKED TEXT_TOOLS "}\n" ASKED ", \"tools\": []}\n"
                  "{\"prompt\": \"q\"}\n{\"prompt\": \"q\"" TOOLS "}\n",
            said, sizeof said, n);
    assert_null(strstr(said, "leaves out"));
    assert_true(n[0] < n[1]);
    assert_int_equal(n[2], n[1]);
    assert_int_equal(n[3], n[0]);
    assert_int_equal(n[5] - n[4], n[1] - n[0]);
    /* so do variables of a record, in training (data/test_format_chat) as here */
    snprintf(model, sizeof model, "%s",
             put_model("models/llama", "named", "chat_template.jinja", "{{ more }}" FULL));
    prompts(model, ASKED "}\n" ASKED ", \"chat_template_kwargs\": {\"more\": \"a b c d\"}}\n", said,
            sizeof said, n);
    assert_true(n[0] < n[1]);
    put_text("rows.jsonl", ASKED ", \"chat_template_kwargs\": [1]}\n");
    sft_command = "generate";
    EXPECT(3, "rows.jsonl:1: chat_template_kwargs: expected an object", "--model", model, "--input",
           in_scratch("rows.jsonl"));
    /* a template for tools alone is used where there are some */
    snprintf(model, sizeof model, "%s",
             put_model("models/llama", "two", "additional_chat_templates/tool_use.jinja", FULL));
    prompts(model, PLAIN ASKED TOOLS "}\n", said, sizeof said, n);
    assert_null(strstr(said, "leaves out"));
    prompts(golden_llama(), PLAIN, said, sizeof said, other);
    assert_int_equal(n[0], other[0]);
    prompts(in_scratch("full"), ASKED TOOLS "}\n", said, sizeof said, other);
    assert_int_equal(n[1], other[0]);
    put_text("rows.jsonl", ASKED ", \"tools\": 7}\n");
    sft_command = "generate";
    EXPECT(3, "rows.jsonl:1: tools: expected a list, got a number", "--model", golden_llama(),
           "--input", in_scratch("rows.jsonl"));
}

/* So does training with the template that a model has for tools alone, of records that bring some. */
static void own_template(void **state) {
    (void)state;
    static const char *const saved[] = {"own", "own/checkpoint-1", "own/checkpoint-2"};
    char said[8192], model[600], kept[200], trained[200], replaced[200];
    need_binary();
    put_text("rows.jsonl", PLAIN CHAT);
    snprintf(trained, sizeof trained, "output_dir=%s", in_scratch("own"));
    snprintf(replaced, sizeof replaced, "output_dir=%s", in_scratch("other"));
    snprintf(model, sizeof model, "base_model=%s",
             put_model("models/llama", "train", "additional_chat_templates/tool_use.jinja",
                       "{% if not tools %}{{ raise_exception('no tools') }}{% endif %}" FULL));
    SAYS("preview", put_config("", TYPE), model);
    assert_null(strstr(said, "leaves out"));
    assert_null(strstr(said, "skipped"));
    assert_non_null(strstr(said, "\"description\": \"d\""));
    /* it is part of what prepared data depend on */
    snprintf(kept, sizeof kept, "dataset_prepared_path=%s", in_scratch("own"));
    SAYS("preprocess", put_config("", TYPE), model, kept);
    put_text("train/additional_chat_templates/tool_use.jinja", "again " FULL);
    SAYS("preprocess", put_config("", TYPE), model, kept);
    assert_null(strstr(said, "(from the cache)"));
    /* a model that was trained with it has it, and so have its checkpoints, which resume */
    sft_command = "sft";
    EXPECT(0, "\nmodel: ", put_config("", TYPE), model, trained, "save_steps=1");
    EXPECT(0, "trained 2 of 2", put_config("", TYPE), model, trained, "save_steps=1", "max_steps=2",
           "resume_from_checkpoint=auto");
    for (size_t i = 0; i < sizeof saved / sizeof *saved; i++) {
        char path[100];
        snprintf(path, sizeof path, "%s/additional_chat_templates/tool_use.jinja", saved[i]);
        assert_true(ax_path_exists(in_scratch(path)));
    }
    EXPECT(0, "\nmodel: ", put_config("", TYPE), model, "chat_template=qwen3", replaced);
    assert_false(ax_path_exists(in_scratch("other/additional_chat_templates")));
    /* one that cannot be read is an error, not left aside */
    put_text("train/additional_chat_templates/tool_use.jinja", "{% if %}");
    sft_command = "preview";
    EXPECT(3, "tool_use.jinja", put_config("", TYPE), model);
    /* a chosen template replaces both */
    SAYS("preview", put_config("", TYPE), model, "chat_template=qwen3");
    assert_non_null(strstr(said, "<|im_start|>"));
}

/* A scorer reads answers with the tools of their prompt. */
static void scored(void **state) {
    (void)state;
    char said[8192], model[512], data[160];
    const char *const args[] = {"--model", model, "--data", data, "--task", "reward"};
    double scores[2] = {0};
    need_binary();
    snprintf(data, sizeof data, "%s", in_scratch("rows.jsonl"));
    put_text("rows.jsonl",
             "{\"prompt\": [" BEFORE
             "], \"completion\": [" A("a") "]}\n"
                                           "{\"prompt\": [" BEFORE
                                           "], \"completion\": [" A("a") "]" TOOLS "}\n");
    snprintf(model, sizeof model, "%s",
             put_model("runs/reward/margin_trained", "plain", "chat_template.jinja",
                       "{% for m in messages %}{{ m.role }} {{ m.content }}{% endfor %}"));
    says("eval", args, 6, said, sizeof said);
    check_line(said, "plain/chat_template.jinja leaves out the tool definitions of 1 conversation",
               LINE(2));
    check_line(said, "the tool calls of 2 conversations (the first is ", LINE(1));
    check_line(said, "plain/chat_template.jinja", "; the scores do not depend on them");
    snprintf(model, sizeof model, "%s",
             put_model("runs/reward/margin_trained", "scorer", "chat_template.jinja", FULL));
    says("eval", args, 6, said, sizeof said);
    assert_null(strstr(said, "leaves out"));
    const char *at = said;
    for (int i = 0; i < 2; i++, at++) {
        at = strstr(at, "\"score\":");
        assert_non_null(at);
        scores[i] = strtod(at + strlen("\"score\":"), NULL);
    }
    assert_true(scores[0] != scores[1]);
    /* so does one that chooses among answers */
    put_text("rows.jsonl", ASKED TOOLS "}\n");
    for (int i = 0; i < 2; i++) {
        snprintf(model, sizeof model, "%s/%s", scratch, i == 0 ? "plain" : "scorer");
        SAYS("generate", "--model", golden_llama(), "--input", data, "--max-new-tokens", "4",
             "--best-of", "2", "--scorer", model, "--min-p", "0.9");
        if ((strstr(said, "the scorer's chat template ") != NULL) != (i == 0))
            fail_msg("%s: %s", model, said);
    }
}

int main(void) {
    const struct CMUnitTest t[] = {
        cmocka_unit_test(every_method), cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(calls_alone),  cmocka_unit_test(prepared),
        cmocka_unit_test(streamed),     cmocka_unit_test(evaluated),
        cmocka_unit_test(generated),    cmocka_unit_test(own_template),
        cmocka_unit_test(scored),
    };
    return cmocka_run_group_tests(t, scratch_make, scratch_remove);
}
