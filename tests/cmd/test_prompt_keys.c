/* Keys of data sets of prompts, seen through `axtrain preview`: types, variables of the template,
 * lengths with room for a completion, and what the preview says of a prompt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/data_case.h"

#define GRPO   "rl: grpo\ntrl: {max_completion_length: 16}\n"
#define ASK(q) "{\"prompt\": \"" q "\", \"answer\": 5}\n"
#define CHAT   "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}]}\n"
#define TALK                                                                                       \
    "{\"talk\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "             \
    "\"content\": \"a\"}]}\n"
#define VARIABLES                                                                                  \
    "chat_template_jinja: '{{ a }}{{ b }}{{ messages[0].content }}{% if add_generation_prompt %}>" \
    "{% endif %}'\nchat_template_kwargs: {a: 1, b: 1}\n"

static const char *config_of(const char *rows, const char *more) {
    char path[128];
    snprintf(path, sizeof path, "%s", put_text("rows.jsonl", rows));
    return put_config("p.yaml", path, more);
}

static void check_part(const char *rows, const char *more, const char *part) {
    char *out = preview(3, (const char *const[]){config_of(rows, more), "--color", "never"});
    if (!strstr(out, part))
        fail_msg("\"%s\" is not in: %s (%s)", part, out, more);
    ax_free(out);
}

static void keys(void **state) {
    (void)state;
    static const struct {
        const char *rows, *more, *part;
    } all[] = {
        {ASK("q="), GRPO,
         ":1: 2 tokens\nq=\nprompt: \"q=\"\nanswer: 5\ntraining: 1 prompt, 2 "
         "tokens, longest 2\n"},
        {ASK("q="), "rl: gdpo\ntrl: {max_completion_length: 16}\n", "training: 1 prompt, "},
        /* the template is optional, and here not the tokenizer's */
        {CHAT, "chat_template: chatml\n" GRPO,
         "20 tokens\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n\nprompt: [{"},
        {TALK, "    type: chat_template\n    field_messages: talk\nchat_template: chatml\n" GRPO,
         "20 tokens\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n\ntalk: [{"},
        {"{\"question\": \"q\", \"system\": \"s\", \"answer\": \"5\"}\n",
         "    type: {field_prompt: question, prompt_format: '{system}: {prompt}='}\n" GRPO,
         "5 tokens\ns: q=\nquestion: \"q\"\nsystem: \"s\"\nanswer: \"5\"\n"},
        /* variables of prompts take precedence over those of all conversations */
        {CHAT, VARIABLES GRPO, "\n11q>\n"},
        {CHAT,
         VARIABLES "rl: grpo\ntrl: {max_completion_length: 16, chat_template_kwargs: {b: 2}}\n",
         "\n12q>\n"},
        {CHAT,
         "chat_template_jinja: '{{ b }}>'\nrl: grpo\n"
         "trl: {max_completion_length: 16, chat_template_kwargs: {b: 2}}\n",
         "\n2>\n"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_part(all[i].rows, all[i].more, all[i].part);
}

/* A prompt and a completion have room in sequence_len together: here for prompts of 3 tokens. */
static void lengths(void **state) {
    (void)state;
    char *out;
    const char *config = config_of(ASK("aaa") ASK("bbbb") ASK("cc"), GRPO "val_set_size: 0\n");
    out = preview(2, (const char *const[]){config, "sequence_len=19"});
    assert_non_null(
        strstr(out, "training: 2 prompts, 5 tokens, longest 3\n  skipped: 1 too long\n"));
    ax_free(out);
    assert_error(
        run(ax_cmd_preview, &out, 3,
            (const char *const[]){config, "sequence_len=19", "excess_length_strategy=raise"}),
        AX_ERR_DATA,
        "rows.jsonl:2: a document has 4 tokens, but sequence_len is 19, of which a "
        "completion may take 16 (excess_length_strategy: raise)");
    ax_free(out);
    assert_error(
        run(ax_cmd_preview, &out, 3,
            (const char *const[]){config, "sequence_len=19", "excess_length_strategy=truncate"}),
        AX_ERR_CONFIG, "excess_length_strategy: truncate would remove the end of prompts");
    ax_free(out);
    assert_error(run(ax_cmd_preview, &out, 2, (const char *const[]){config, "sequence_len=16"}),
                 AX_ERR_CONFIG,
                 "trl.max_completion_length: 16 leaves no room for a prompt in sequence_len: 16");
    ax_free(out);
    assert_error(
        run(ax_cmd_preview, &out, 2, (const char *const[]){config, "eval_sequence_len=10"}),
        AX_ERR_CONFIG,
        "trl.max_completion_length: 16 leaves no room for a prompt in eval_sequence_len: 10");
    ax_free(out);
    assert_error(run(ax_cmd_preview, &out, 2, (const char *const[]){config, "sequence_len=17"}),
                 AX_ERR_DATA, "3 too long (sequence_len and the length of an answer)");
    ax_free(out);
    /* 256 if it is not set */
    assert_error(
        run(ax_cmd_preview, &out, 1, (const char *const[]){config_of(ASK("a"), "rl: grpo\n")}),
        AX_ERR_CONFIG, "256 leaves no room for a prompt in sequence_len: 64");
    ax_free(out);
}

static void refused(void **state) {
    (void)state;
    char *out;
    assert_error(run(ax_cmd_preview, &out, 1,
                     (const char *const[]){config_of(ASK("a"), "    type: alpaca\n" GRPO)}),
                 AX_ERR_CONFIG, "datasets.0: type \"alpaca\" does not make prompts");
    ax_free(out);
    assert_error(run(ax_cmd_preview, &out, 1, (const char *const[]){config_of(TALK, GRPO)}),
                 AX_ERR_DATA,
                 "rows.jsonl:1: column \"prompt\" is missing or null; the record has \"talk\"");
    ax_free(out);
}

static void json_form(void **state) {
    (void)state;
    json_t *v = preview_json(
        2, (const char *const[]){config_of("{\"a\": null, \"prompt\": \"q=\"}\n", GRPO), "--json"});
    const json_t *row = json_array_get(json_object_get(v, "rows"), 0);
    const json_t *doc = json_array_get(json_object_get(row, "documents"), 0);
    char *record = json_dumps(json_object_get(doc, "record"), JSON_COMPACT);
    char *labels = json_dumps(json_object_get(doc, "labels"), JSON_COMPACT);
    assert_string_equal(record, "{\"a\":null,\"prompt\":\"q=\"}");
    assert_string_equal(labels, "[-100,-100]");
    assert_string_equal(json_string_value(json_object_get(doc, "text")), "q=");
    assert_int_equal(json_integer_value(json_object_get(row, "trained")), 0);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(v, "train"), "trained")),
                     0);
    ax_free(record);
    ax_free(labels);
    json_decref(v);
}

/* One prompt in each sequence, whatever the packing. */
static void never_packed(void **state) {
    (void)state;
    json_t *v = preview_json(
        2, (const char *const[]){config_of(ASK("aa") ASK("bb") ASK("cc") ASK("dd"),
                                           GRPO "val_set_size: 0.5\neval_sample_packing: true\n"),
                                 "--json"});
    static const char *const parts[] = {"train", "eval"};
    for (int i = 0; i < 2; i++) {
        const json_t *t = json_object_get(v, parts[i]);
        assert_int_equal(json_integer_value(json_object_get(t, "documents")), 2);
        assert_int_equal(json_integer_value(json_object_get(t, "rows")), 2);
    }
    json_decref(v);
}

/* A long column is shortened between characters; what controls a terminal is shown as a picture. */
static void columns(void **state) {
    (void)state;
    struct ax_buf rows = {0}, want = {0};
    assert_ok(ax_buf_puts(&rows, "{\"prompt\": \"qq\", \"c\\u007f\": \""));
    assert_ok(ax_buf_puts(&want, "\nc␡: \""));
    for (int i = 0; i < 60; i++) {
        assert_ok(ax_buf_puts(&rows, "é"));
        if (i < 49)
            assert_ok(ax_buf_puts(&want, "é"));
    }
    assert_ok(ax_buf_puts(&rows, "\"}\n"));
    assert_ok(ax_buf_puts(&want, "…\n"));
    check_part(rows.data, GRPO, want.data);
    ax_buf_free(&rows);
    ax_buf_free(&want);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),      cmocka_unit_test(lengths),      cmocka_unit_test(refused),
        cmocka_unit_test(json_form), cmocka_unit_test(never_packed), cmocka_unit_test(columns),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
