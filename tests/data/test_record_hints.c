/* What is said of a record that lacks the columns its options read: the settings that read it, or what it is instead; of one
 * that has them, nothing, as the error has another cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "data/records/format/recognize.h"

/* `want`: what is added, behind "wrong; these columns look like "; NULL: nothing. */
static void says(const struct ax_format_options *o, const char *record, const char *want) {
    json_t *v = json_loads(record, 0, NULL);
    assert_non_null(v);
    const enum ax_status st = ax_error(AX_ERR_DATA, "wrong");
    assert_int_equal(ax_record_error_hint(st, o, v), AX_ERR_DATA);
    json_decref(v);
    const char *at = strstr(ax_error_text(), "; these columns look like ");
    const char *got = at ? at + strlen("; these columns look like ") : NULL;
    if ((got != NULL) != (want != NULL) || (got && strcmp(got, want) != 0))
        fail_msg("%s: %s, expected %s", record, got ? got : "nothing", want ? want : "nothing");
}

#define CHAT  "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}"
#define TURNS "{\"turns\": [{\"from\": \"human\", \"value\": \"x\"}]}"
#define TURNS_HINT                                                                                 \
    "type: chat_template, field_messages: turns, message_property_mappings: {role: from, "         \
    "content: value}"
#define QA          "{\"question\": \"x\", \"answer\": \"y\"}"
#define QA_HINT     "type: {field_instruction: question, field_output: answer}"
#define TEXT        "{\"text\": \"x\"}"
#define TEXT_HINT   "type: completion, field: text"
#define ALPACA      "{\"instruction\": \"x\", \"input\": \"\", \"output\": \"y\"}"
#define PREFERENCES "{\"prompt\": \"p\", \"chosen\": \"x\", \"rejected\": \"y\"}"
#define RATED       "{\"prompt\": \"p\", \"completion\": \"x\", \"label\": true}"
#define STEPS       "{\"prompt\": \"p\", \"completions\": [\"x\"], \"labels\": [true]}"
#define SPLIT                                                                                      \
    "{\"prompt\": [{\"role\": \"user\", \"content\": \"x\"}], \"completion\": [{\"role\": "        \
    "\"assistant\", \"content\": \"y\"}]}"

static void conversations(void **state) {
    (void)state;
    const struct ax_name_map usual[] = {{"role", "role"}, {"content", "content"}},
                             others[] = {{"from", "role"}, {"value", "content"}};
    struct ax_format_chat chat = {
        .field_messages = "messages", .properties = usual, .n_properties = 2};
    const struct ax_format_options o = {.type = "chat_template", .chat = &chat};
    says(&o, CHAT, NULL);
    says(&o, TURNS, TURNS_HINT);
    says(&o, TEXT, TEXT_HINT);
    says(&o, ALPACA, "type: alpaca");
    chat.field_messages = "turns";
    says(&o, TURNS, TURNS_HINT); /* other names within */
    says(&o, CHAT, "type: chat_template");
    chat.properties = others;
    says(&o, TURNS, NULL);
    says(&o, CHAT, "type: chat_template");
    chat.n_properties = 1; /* no content */
    says(&o, TURNS, TURNS_HINT);
    chat.properties = others + 1; /* no role */
    says(&o, TURNS, TURNS_HINT);
    chat.field_messages = "text"; /* there, but no conversation */
    says(&o, TEXT, NULL);
    chat.field_messages = "messages";
    chat.properties = others;
    chat.n_properties = 2;
    says(&o, CHAT, "type: chat_template");
}

static void texts(void **state) {
    (void)state;
    struct ax_format_options o = {.type = "alpaca"};
    says(&o, ALPACA, NULL);
    says(&o, QA, QA_HINT);
    says(&o, CHAT, "type: chat_template");
    o.type = "alpaca:chat";
    says(&o, ALPACA, NULL);
    o.type = "alpacas"; /* not that type */
    says(&o, ALPACA, "type: alpaca");
    o.type = "gpteacher";
    says(&o, "{\"instruction\": \"x\", \"response\": \"y\"}", NULL);
    says(&o, ALPACA, "type: alpaca");
    o.type = "jeopardy";
    says(&o, QA, NULL);
    says(&o, "{\"problem\": \"x\", \"solution\": \"y\"}",
         "type: {field_instruction: problem, field_output: solution}");
    const struct ax_format_user user = {.field_instruction = "question", .field_output = "answer"},
                                other = {.field_instruction = "question", .field_output = "reply"},
                                third = {.field_instruction = "ask", .field_output = "answer"};
    o = (struct ax_format_options){.user = &user};
    says(&o, QA, NULL);
    says(&o, CHAT, "type: chat_template"); /* which no type would have read */
    o.user = &other;
    says(&o, QA, QA_HINT);
    o.user = &third;
    says(&o, QA, QA_HINT);
    o = (struct ax_format_options){.type = "completion", .field = "text"};
    says(&o, TEXT, NULL);
    o.field = "body";
    says(&o, TEXT, TEXT_HINT);
    says(&o, "{\"document\": \"x\", \"id\": 3}", "type: completion, field: document");
    says(&o, "{\"only\": \"x\"}", "type: completion, field: only");
    says(&o, "{\"one\": \"x\", \"two\": \"y\"}", NULL); /* nobody knows which */
}

/* TRL's columns need no type. */
static void no_type(void **state) {
    (void)state;
    struct ax_format_options o = {0};
    says(&o, CHAT, NULL);
    says(&o, SPLIT, NULL);
    says(&o, TURNS, TURNS_HINT);
    says(&o, "{\"turns\": [{\"role\": \"user\", \"content\": \"x\"}]}",
         "type: chat_template, field_messages: turns, message_property_mappings: {role: role, "
         "content: content}");
    says(&o, TEXT, TEXT_HINT);
    says(&o, PREFERENCES, "preferences (chosen, rejected): rl: dpo, without `type`");
    says(&o, RATED, "rated answers (completion, label): rl: kto, without `type`");
    says(&o, STEPS, "labeled steps (completions, labels): process_reward_model: true");
    o.type = "alpaca";
    says(&o, SPLIT, "messages in prompt and completion: leave `type` out");
}

static void other_tasks(void **state) {
    (void)state;
    struct ax_format_options o = {.task = AX_TASK_PAIR};
    says(&o, PREFERENCES, NULL);
    says(&o, RATED, "rated answers (completion, label): rl: kto, without `type`");
    says(&o, TEXT, "fine-tuning data: " TEXT_HINT ", without `rl`");
    o.type = "x";
    says(&o, PREFERENCES, "preferences (chosen, rejected): rl: dpo, without `type`");
    o = (struct ax_format_options){.task = AX_TASK_REWARD};
    says(&o, PREFERENCES, NULL);
    says(&o, CHAT, "fine-tuning data: type: chat_template, without `reward_model`");
    o = (struct ax_format_options){.task = AX_TASK_STEPS, .type = "stepwise_supervised"};
    says(&o, STEPS, NULL);
    says(&o, QA, "fine-tuning data: " QA_HINT ", without `process_reward_model`");
    o = (struct ax_format_options){.task = AX_TASK_UNPAIRED};
    says(&o, RATED, NULL);
    says(&o, "{\"question\": \"x\", \"answer\": \"y\", \"good\": 1}",
         "type: {field_prompt: question, field_completion: answer, field_label: good}");
    says(&o, "{\"question\": \"x\", \"answer\": \"y\", \"good\": 2}",
         "fine-tuning data: " QA_HINT ", without `rl`");
    says(&o, PREFERENCES, "preferences (chosen, rejected): rl: dpo, without `type`");
    o = (struct ax_format_options){.task = AX_TASK_PROMPT};
    says(&o, QA, "type: {field_prompt: question}");
    says(&o, TEXT, "type: {field_prompt: text}");
    says(&o, CHAT, "type: chat_template");
}

/* A file that is one object around its records. */
static void records_in_a_record(void **state) {
    (void)state;
    static const struct {
        const char *record, *column;
    } cases[] = {
        {"{\"version\": 1, \"data\": [" QA ", 3]}", "data"},
        {"{\"info\": [], \"a\": [1], \"train set\": [" CHAT "]}", "train set"},
        {"{\"version\": 1, \"data\": [{\"one\": \"x\", \"two\": \"y\"}]}", NULL},
        {"{\"version\": 1, \"data\": " QA "}", NULL},
    };
    const struct ax_format_options o = {.type = "completion", .field = "text"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[300] = "missing";
        json_t *v = json_loads(cases[i].record, 0, NULL);
        assert_non_null(v);
        if (cases[i].column)
            snprintf(want, sizeof want,
                     "missing; if the objects in \"%s\" are the records, write them alone: jq -c "
                     "'.[\"%s\"][]' FILE > rows.jsonl",
                     cases[i].column, cases[i].column);
        assert_int_equal(ax_record_error_hint(ax_error(AX_ERR_DATA, "missing"), &o, v),
                         AX_ERR_DATA);
        assert_string_equal(ax_error_text(), want);
        json_decref(v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(conversations), cmocka_unit_test(texts),
                                       cmocka_unit_test(no_type), cmocka_unit_test(other_tasks),
                                       cmocka_unit_test(records_in_a_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
