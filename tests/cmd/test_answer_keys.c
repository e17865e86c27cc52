/* Keys of data sets whose records are preferences, rated answers and labeled steps, seen through
 * `axtrain preview`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/data_case.h"

#define PAIR "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"22\"}\n"
#define CHAT_PAIR                                                                                  \
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"q\"}], \"chosen\": [{\"role\": "            \
    "\"assistant\", \"content\": \"1\"}], \"rejected\": [{\"role\": \"assistant\", \"content\": "  \
    "\"22\"}]}\n"

#define RATED "{\"prompt\": \"q\", \"completion\": \"1\", \"label\": "

/* What a configuration makes of records: the part is in the preview's text. */
static const struct seen {
    const char *rows, *more, *part;
} all[] = {
    {PAIR, "rl: dpo\n", "q┊⟦1</s>⟧\n"},
    {PAIR, "rl: simpo\nspecial_tokens: {bos_token: <pad>}\n", "<pad>q┊⟦22</s>⟧\n"},
    {PAIR, "rl: orpo\n", "<s>q┊⟦1</s>⟧\n"},
    /* the template is optional: here the tokenizer has none */
    {CHAT_PAIR, "rl: dpo\nchat_template: chatml\n",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n┊⟦22<|im_end|>\n⟧"},
    {CHAT_PAIR,
     "    chat_template_jinja: '{% for m in messages %}[{{ m.content }}]{% endfor %}'\n"
     "rl: dpo\n",
     "[q]⟦[⟧┊⟦22]⟧\n"},
    {"{\"good\": \"ab\", \"bad\": \"ac\"}\n",
     "    field_chosen: good\n    field_rejected: bad\nrl: dpo\n", "a┊⟦c</s>⟧\n"},
    {"{\"good\": \"1\", \"bad\": \"2\", \"prompt\": \"q\", \"system\": \"s\"}\n",
     "    type: {field_chosen: good, field_rejected: bad, prompt_format: '{system}:{prompt}', "
     "rejected_format: '{rejected}!'}\nrl: dpo\n",
     "s:q┊⟦2!</s>⟧\n"},
    {"{\"question\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}\n",
     "    type: chatml.intel\nrl: dpo\n",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n┊⟦2<|im_end|></s>⟧\n"},
    {"{\"talk\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}\n",
     "    type: chat_template.default\n    field_messages: talk\nrl: dpo\nchat_template: chatml\n",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n┊⟦2<|im_end|></s>⟧\n"},
};

/* The same at a sequence_len. */
static const struct {
    const char *length, *rows, *more, *part;
} lengths[] = {
    /* TRL truncates answers; a rule that is set holds for them, too */
    {"sequence_len=3", PAIR PAIR, "rl: dpo\n", "training: 4 documents, 12 tokens"},
    {"sequence_len=3", PAIR "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}\n",
     "rl: dpo\nexcess_length_strategy: drop\n",
     "training: 2 documents, 6 tokens, 4 trained (66.7 %), longest 3\n  sequences: 1"},
    {"sequence_len=3", PAIR, "rl: dpo\nexcess_length_strategy: truncate\n", "q┊⟦22⟧\n"},
    /* nothing is left of an answer: its pair is dropped */
    {"sequence_len=3", PAIR "{\"prompt\": \"qqq\", \"chosen\": \"1\", \"rejected\": \"2\"}\n",
     "rl: dpo\n", "skipped: 1 without a trained token\n"},
};

#define STEPS "{\"prompt\": \"q\", \"completions\": [\"a\", \"b\"], \"labels\": "

/* Without packing, which keeps a pair's sides in one sequence all the same. */
static const struct seen scored[] = {
    {RATED "true}\n" RATED "0}\n", "rl: kto\n", ", undesirable: 3 tokens, 2 trained\nq⟦1</s>⟧\n"},
    {PAIR, "rl: kto\n", "rows.jsonl:1, desirable: 3 tokens, 2 trained\nq⟦1</s>⟧\n"},
    {"{\"ask\": \"q\", \"reply\": \"1\", \"ok\": true}\n",
     "    type: {field_prompt: ask, field_completion: reply, field_label: ok, completion_format: "
     "'{completion}!'}\nrl: kto\n",
     ", desirable: 4 tokens, 3 trained\nq⟦1!</s>⟧\n"},
    {"{\"instruction\": \"q\", \"completion\": \"1\", \"label\": true}\n",
     "    type: chatml.argilla\nrl: kto\n",
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|></s>⟧\n"},
    {"{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\", \"margin\": 0.5}\n",
     "reward_model: true\n",
     ", chosen: 3 tokens, 1 trained, first 1 shared, margin 0.5\nq┊1⟦</s>⟧\n"},
    {"{\"system\": \"\", \"input\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}\n",
     "    type: bradley_terry.chat_template\nreward_model: true\nchat_template: chatml\n",
     ", rejected: 23 tokens, 1 trained, first 20 shared, margin 0\n<|im_start|>user\nq<|im_end|>\n"
     "<|im_start|>assistant\n┊2<|im_end|>⟦\n⟧\n"},
    {STEPS "[true, 0.25]}\n", "process_reward_model: true\n", "<s>qa⟦\n→1⟧b⟦\n→0.25⟧\n"},
    {STEPS "[1, 0]}\n",
     "    type: stepwise_supervised\n    step_separator: '--'\n    max_completion_length: 5\n"
     "process_reward_model: true\n",
     "<s>qa-⟦-→1⟧b-\n"},
    {STEPS "[0, 1]}\n", "    train_on_last_step_only: true\nprocess_reward_model: true\n",
     "<s>qa\nb⟦\n→1⟧\n"},
};

static const char *config_of(const char *rows, const char *more) {
    char path[128];
    snprintf(path, sizeof path, "%s", put_text("rows.jsonl", rows));
    return put_config("a.yaml", path, more);
}

static void check_part(const char *rows, const char *more, const char *part, const char *arg) {
    char *out =
        preview(arg ? 4 : 3, (const char *const[]){config_of(rows, more), "--color", "never", arg});
    if (!strstr(out, part))
        fail_msg("\"%s\" is not in: %s (%s)", part, out, more);
    ax_free(out);
}

static void keys(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_part(all[i].rows, all[i].more, all[i].part, NULL);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        check_part(lengths[i].rows, lengths[i].more, lengths[i].part, lengths[i].length);
}

static void scores(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof scored / sizeof *scored; i++)
        check_part(scored[i].rows, scored[i].more, scored[i].part, NULL);
    /* in JSON: labels of their own tokens, targets where there are labels, the margin */
    json_t *v =
        preview_json(2, (const char *const[]){config_of(scored[6].rows, scored[6].more), "--json"});
    const json_t *doc = json_array_get(
        json_object_get(json_array_get(json_object_get(v, "rows"), 0), "documents"), 0);
    char *text = json_dumps(json_object_get(doc, "labels"), JSON_COMPACT);
    assert_string_equal(text, "[-100,-100,-100,1,-100,0]");
    ax_free(text);
    text = json_dumps(json_object_get(doc, "targets"), JSON_COMPACT);
    assert_string_equal(text, "[null,null,null,1.0,null,0.25]");
    ax_free(text);
    json_decref(v);
    v = preview_json(2, (const char *const[]){config_of(scored[4].rows, scored[4].more), "--json"});
    doc = json_array_get(
        json_object_get(json_array_get(json_object_get(v, "rows"), 0), "documents"), 1);
    assert_true(json_real_value(json_object_get(doc, "margin")) == 0.5);
    assert_string_equal(json_string_value(json_object_get(doc, "role")), "rejected");
    json_decref(v);
}

/* Both sides of a pair, what they share, and what is trained on. */
static void sides(void **state) {
    (void)state;
    char want[2048], config[128];
    snprintf(
        config, sizeof config, "%s",
        config_of("{\"prompt\": \"q\", \"chosen\": \"12\", \"rejected\": \"13\"}\n", "rl: dpo\n"));
    const char *rows = in_scratch("rows.jsonl");
    snprintf(want, sizeof want,
             "── sequence 0 of epoch 0: 8 tokens, 6 trained, 2 documents\n"
             "─ %s:1, chosen: 4 tokens, 3 trained, first 2 shared\n"
             "q⟦1⟧┊⟦2</s>⟧\n"
             "ids: 113 ⟦49⟧ ⟦50⟧ ⟦264⟧\n"
             "─ %s:1, rejected: 4 tokens, 3 trained, first 2 shared\n"
             "q⟦1⟧┊⟦3</s>⟧\n"
             "ids: 113 ⟦49⟧ ⟦51⟧ ⟦264⟧\n"
             "training: 2 documents, 8 tokens, 6 trained (75.0 %%), longest 4\n",
             rows, rows);
    char *out = preview(4, (const char *const[]){config, "--ids", "--color", "never"});
    assert_memory_equal(out, want, strlen(want));
    ax_free(out);
    out = preview(3, (const char *const[]){config, "--color", "always"});
    assert_non_null(strstr(out, "q\x1b[32m1\x1b[0m\x1b[2m┊\x1b[0m\x1b[32m3</s>\x1b[0m\n"));
    ax_free(out);
    json_t *v = preview_json(2, (const char *const[]){config, "--json"});
    const json_t *docs =
        json_object_get(json_array_get(json_object_get(v, "rows"), 0), "documents");
    for (size_t k = 0; k < 2; k++) {
        const json_t *doc = json_array_get(docs, k);
        assert_string_equal(json_string_value(json_object_get(doc, "role")),
                            k == 0 ? "chosen" : "rejected");
        assert_int_equal(json_integer_value(json_object_get(doc, "shared")), 2);
        assert_string_equal(json_string_value(json_object_get(doc, "text")),
                            k == 0 ? "q12</s>" : "q13</s>");
        assert_null(json_object_get(doc, "margin"));
    }
    json_decref(v);
}

static void mistakes(void **state) {
    (void)state;
    static const struct {
        const char *rows, *more;
        enum ax_status st;
        const char *why;
    } bad[] = {
        {PAIR "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"1\"}\n", "rl: dpo\n",
         AX_ERR_DATA, "rows.jsonl:2: chosen and rejected give the same text"},
        {PAIR "{\"prompt\": \"q\", \"chosen\": \"1\"}\n", "rl: dpo\n", AX_ERR_DATA,
         "rows.jsonl:2: column \"rejected\" is missing or null; the record has \"prompt\", "
         "\"chosen\""},
        {CHAT_PAIR, "rl: dpo\n", AX_ERR_CONFIG,
         "prompt: messages need a chat template, and the tokenizer has none; set chat_template"},
        {RATED "false}\n" RATED "0}\n", "rl: kto\n", AX_ERR_DATA,
         "rows.jsonl:1: the answer of this and every other document is undesirable (label)"},
        {RATED "true}\n" RATED "0.5}\n", "rl: kto\n", AX_ERR_DATA,
         "rows.jsonl:2: label: expected true, false, 1 or 0, got another number"},
        {STEPS "[0, 0]}\n" STEPS "[0.25, false]}\n", "process_reward_model: true\n", AX_ERR_DATA,
         "rows.jsonl:1: no step of this or any other document is right (labels)"},
        {STEPS "[1, 0]}\n" STEPS "[1]}\n", "process_reward_model: true\n", AX_ERR_DATA,
         "rows.jsonl:2: completions has 2 steps, but labels has 1 elements"},
        {PAIR, "process_reward_model: true\n", AX_ERR_DATA,
         "rows.jsonl:1: column \"completions\" is missing or null; the record has \"prompt\", "
         "\"chosen\", "
         "\"rejected\""},
        {PAIR "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\", \"margin\": true}\n",
         "reward_model: true\n", AX_ERR_DATA,
         "rows.jsonl:2: margin: expected a finite number, got true"},
        {PAIR, "    type: stepwise_supervised\nrl: dpo\n", AX_ERR_CONFIG,
         "type \"stepwise_supervised\" does not make pairs of answers"},
        {PAIR, "    type: alpaca\nrl: dpo\n", AX_ERR_CONFIG,
         "datasets.0: type \"alpaca\" does not make pairs of answers"},
        {PAIR, "    type: {chosen_format: '{answer}'}\nrl: dpo\n", AX_ERR_CONFIG,
         "datasets.0: type.chosen_format: \"{answer}\": syntax error"},
        {PAIR, "    type: chatml.intel\n", AX_ERR_CONFIG,
         "datasets.0: type \"chatml.intel\" makes preferences, which fine-tuning does not read"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *out;
        assert_error(run(ax_cmd_preview, &out, 1,
                         (const char *const[]){config_of(bad[i].rows, bad[i].more)}),
                     bad[i].st, bad[i].why);
        ax_free(out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys), cmocka_unit_test(scores),
                                       cmocka_unit_test(sides), cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
