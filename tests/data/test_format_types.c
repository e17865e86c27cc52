/* axolotl's types of preference and reward records: each against documents written by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"
#include "tests/data/answers_case.h"

#define U(text) "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define S(text) "{\"role\": \"system\", \"content\": \"" text "\"}"

/* The literal texts, with EOS after the end of the turn. */
#define CHATML(prompt) "<|im_start|>user\n" prompt "<|im_end|>\n<|im_start|>assistant\n"
#define CHATML_PAIR    CHATML("q") "⟦1<|im_end|></s>⟧ | " CHATML("q") "⟦2<|im_end|></s>⟧"
#define CHATML_SYSTEM                                                                               \
    "<|im_start|>system\ns<|im_end|>\n" CHATML(                                                     \
        "q") "⟦1<|im_end|></s>⟧ | <|im_start|>system\ns<|im_end|>\n" CHATML("q") "⟦2<|im_end|></" \
                                                                                 "s>⟧"
#define LLAMA(text)                                                                                \
    "<|start_header_id|>user<|end_header_id|>\n\nq<|eot_id|><|start_header_id|>"                   \
    "assistant<|end_header_id|>\n\n⟦" text "<|eot_id|></s>⟧"

static void texts(void **state) {
    (void)state;
    static const struct {
        const char *type, *row, *want;
    } rows[] = {
        {"chatml", "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}", CHATML_PAIR},
        {"chatml.default", "{\"input\": \"q\", \"chosen\": \"1\", \"rejected_response\": \"2\"}",
         CHATML_PAIR},
        {"chatml.default",
         "{\"question\": \"q\", \"instruction\": \"x\", \"chosen_response\": \"1\", \"rejected\": "
         "\"2\", \"system\": \"s\"}",
         CHATML_SYSTEM},
        {"chatml.icr",
         "{\"input\": \"q\", \"prompt\": \"x\", \"chosen\": \"1\", \"rejected\": \"2\", "
         "\"system\": \"\"}",
         CHATML_PAIR},
        {"chatml.intel",
         "{\"question\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\", \"system\": \"s\"}",
         CHATML_SYSTEM},
        {"chatml.prompt_pairs", "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
         CHATML_PAIR},
        {"chatml.ultra",
         "{\"prompt\": \"q\", \"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("q") ", " A(
             "2") "]}",
         CHATML_PAIR},
        {"chatml.argilla_chat",
         "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("q") ", " A(
             "2") "], \"system\": \"not read\"}",
         CHATML_PAIR},
        {"llama3.intel", "{\"question\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
         LLAMA("1") " | " LLAMA("2")},
        {"passthrough", "{\"prompt\": \"<s>q\", \"chosen\": \"1</s>\", \"rejected\": \"2\"}",
         "<s>q⟦1</s>⟧ | <s>q⟦2</s>⟧"},
    };
    static const struct {
        const char *type, *row, *want;
    } singles[] = {
        {"chatml.argilla", "{\"instruction\": \"q\", \"completion\": \"1\", \"label\": true}",
         CHATML("q") "⟦1<|im_end|></s>⟧"},
        {"chatml.argilla_chat", "{\"completion\": [" U("q") ", " A("1") "], \"label\": false}",
         CHATML("q") "⟦1<|im_end|></s>⟧"},
        {"chatml.intel", "{\"question\": \"q\", \"completion\": \"1\", \"label\": true}",
         CHATML("q") "⟦1<|im_end|></s>⟧"},
        {"chatml.prompt_pairs", "{\"prompt\": \"q\", \"completion\": \"1\", \"label\": true}",
         CHATML("q") "⟦1<|im_end|></s>⟧"},
        {"llama3.ultra", "{\"prompt\": \"q\", \"completion\": \"1\", \"label\": true}", LLAMA("1")},
        {"passthrough", "{\"prompt\": \"q\", \"completion\": \"1\", \"label\": 1}", "q⟦1</s>⟧"},
    };
    struct answers_case c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        answers_open(&c, AX_TASK_PAIR, rows[i].type);
        check_record(&c.o, rows[i].row, rows[i].want);
        answers_close(&c);
    }
    for (size_t i = 0; i < sizeof singles / sizeof *singles; i++) {
        answers_open(&c, AX_TASK_UNPAIRED, singles[i].type);
        check_record(&c.o, singles[i].row, singles[i].want);
        answers_close(&c);
    }
}

static void empty_answers(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, "llama3.icr");
    check_bad_record(&c.o, "{\"input\": \"q\", \"chosen\": \"1\", \"rejected\": \" \\n\"}",
                     "rejected: the answer is empty");
    check_bad_record(&c.o, "{\"input\": \"q\", \"chosen\": 1, \"rejected\": \"2\"}",
                     "chosen: expected text, got a number");
    c.o.type = "chatml.ultra";
    check_bad_record(&c.o, "{\"prompt\": \"q\", \"chosen\": [" U("q") "], \"rejected\": []}",
                     "column \"chosen[1]\" is missing or null; the record has \"prompt\", "
                     "\"chosen\", \"rejected\"");
    c.o.type = "chat_template.default";
    check_bad_record(&c.o, "{\"messages\": \"q\", \"chosen\": \"\", \"rejected\": \"2\"}",
                     "chosen: the answer is empty");
    answers_close(&c);
}

/* A type's prompt is as many tokens as it has alone; ids are added around, as ORPO does. */
static void tokens(void **state) {
    (void)state;
    struct answers_case c;
    const char *across = "{\"prompt\": \"hello w\", \"chosen\": \"orld\", \"rejected\": \"ay\"}";
    answers_open(&c, AX_TASK_PAIR, "passthrough");
    check_record(&c.o, across, "hello w⟦ld</s>⟧ | hello w⟦ay</s>⟧");
    /* the template's BOS and the tokenizer's are one */
    c.o.tokenizer = bos_tokenizer;
    check_record(&c.o, "{\"prompt\": \"<s>q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
                 "<s>q⟦1</s>⟧ | <s>q⟦2</s>⟧");
    c.answers.framed_by_ids = true;
    check_record(&c.o, across, "<s>hello⟦ world</s>⟧ | <s>hello w⟦ay</s>⟧");
    answers_close(&c);
    /* too long without BOS and EOS: left for the rule; with them: BOS and EOS are truncated */
    answers_open(&c, AX_TASK_PAIR, "passthrough");
    c.o.sequence_len = 3;
    check_record(&c.o, "{\"prompt\": \"q\", \"chosen\": \"12\", \"rejected\": \"345\"}",
                 "q⟦12⟧ | q⟦345</s>⟧");
    c.o.long_examples = AX_LONG_KEEP;
    check_record(&c.o, "{\"prompt\": \"q\", \"chosen\": \"12\", \"rejected\": \"3\"}",
                 "q⟦12</s>⟧ | q⟦3</s>⟧");
    c.o.long_examples = AX_LONG_CUT;
    check_record(&c.o, "{\"prompt\": \"q\", \"chosen\": \"12\", \"rejected\": \"345\"}",
                 "q⟦12⟧ | q⟦34⟧");
    answers_close(&c);
}

static const char calling_chat[] =
    "{% for m in messages %}{{ m.role }}: {% if m.content %}{{ m.content | trim }}"
    "{{ ' ' if m.tool_calls else ';' }}{% endif %}"
    "{% for c in m.tool_calls %}{{ c.function.name }}(){% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}";
#define ASK(text)                                                                                  \
    "{\"role\": \"assistant\", \"content\": \"" text "\", \"tool_calls\": [{\"function\": "        \
    "{\"name\": \"f\"}}]}"
#define ONE_TURN(answer)                                                                           \
    "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦" answer "<|im_end|></s>⟧"

static void chats(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, "chat_template");
    /* without the line break after the turn, but with EOS */
    check_record(&c.o,
                 "{\"messages\": [" U("q") "], \"chosen\": " A("1") ", \"rejected\": " A("2") "}",
                 ONE_TURN("1") " | " ONE_TURN("2"));
    c.o.type = "chat_template.default";
    check_record(
        &c.o, "{\"messages\": \"q\", \"chosen\": \" 1 \", \"rejected\": [" A("x") ", " A("2") "]}",
        ONE_TURN(" 1 ") " | " ONE_TURN("2"));
    /* the answer's text, not the same letters in a header or in another turn */
    check_record(&c.o,
                 "{\"messages\": \"q\", \"chosen\": " A("a") ", \"rejected\": " A("user\\n") "}",
                 ONE_TURN("a") " | " ONE_TURN("user\n"));
    check_record(
        &c.o,
        "{\"messages\": \"q\", \"chosen\": " A("turn") ", \"rejected\": " A("<|im_start|>") "}",
        ONE_TURN("turn") " | " ONE_TURN("<|im_start|>"));
    c.chat.chat.field_messages = "conversation";
    c.answers.field_chosen = "good";
    c.answers.field_rejected = "bad";
    check_record(
        &c.o,
        "{\"conversation\": [" S("s") ", " U("q") "], \"good\": " A("1") ", \"bad\": " A("2") "}",
        "<|im_start|>system\ns<|im_end|>\n" ONE_TURN(
            "1") " | <|im_start|>system\ns<|im_end|>\n" ONE_TURN("2"));
    answers_close(&c);
    /* calls alone, and behind a text that the template trims */
    answers_open(&c, AX_TASK_PAIR, "chat_template.default");
    struct ax_template *calling;
    assert_ok(ax_template_compile(&calling, "t", calling_chat, strlen(calling_chat)));
    c.chat.chat.template = calling;
    check_record(&c.o,
                 "{\"messages\": \"q\", \"chosen\": " ASK("") ", \"rejected\": " ASK(" a ") "}",
                 "user: q;assistant: ⟦f()</s>⟧ | user: q;assistant: ⟦a f()</s>⟧");
    c.chat.chat.template = c.chat.template;
    ax_template_free(calling);
    answers_close(&c);
    answers_open(&c, AX_TASK_PAIR, "chat_template.argilla_chat");
    check_record(&c.o,
                 "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("x") ", " A("2") "]}",
                 ONE_TURN("1") " | " ONE_TURN("2"));
    check_bad_record(&c.o, "{\"chosen\": [" A("1") "], \"rejected\": [" A("2") "]}",
                     "chosen: expected a list of at least two messages, got a shorter one");
    answers_close(&c);
    /* a template that trims its texts */
    answers_open(&c, AX_TASK_PAIR, "chat_template.default");
    chat_close(&c.chat);
    chat_open(&c.chat, "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}<|eot|>\n"
                       "{% endfor %}");
    c.o.chat = &c.chat.chat;
    check_record(&c.o, "{\"messages\": \"q\", \"chosen\": \" 1 \", \"rejected\": \"2\"}",
                 "user: q<|eot|>\n⟦1<|eot|></s>⟧ | user: q<|eot|>\n⟦2<|eot|></s>⟧");
    answers_close(&c);
}

static void argilla(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, "chat_template.argilla");
    c.answers.framed_by_ids = true;
#define TURN(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define LAST(text)       "<|im_start|>assistant\n⟦" text "<|im_end|>\n</s>⟧"
    check_record(&c.o,
                 "{\"system\": \"s\", \"chosen\": [" U("q") ", " A("a") ", " U("r") ", " A(
                     "1") "], \"rejected\": [" U("x") ", " A("y") ", " U("z") ", " A("2") "]}",
                 "<s>" TURN("system", "s") TURN("user", "q") TURN("assistant", "a")
                     TURN("user", "r") LAST("1") " | <s>" TURN("system", "s") TURN("user", "q")
                         TURN("assistant", "a") TURN("user", "r") LAST("2"));
    /* the prompt column is the text of user turns */
    check_record(&c.o,
                 "{\"prompt\": \"p\", \"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U(
                     "q") ", " A("2") "]}",
                 "<s>" TURN("user", "p") LAST("1") " | <s>" TURN("user", "p") LAST("2"));
    check_bad_record(
        &c.o, "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" A("2") "]}",
        "rejected: expected pairs of a user and an assistant message, got an odd number "
        "of messages");
    answers_close(&c);
}

static void rewards(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_REWARD, "bradley_terry.chat_template");
    check_labels(&c.o,
                 "{\"system\": \"\", \"input\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
                 TURN("user", "q") "<|im_start|>assistant\n1<|im_end|>\n{0} | " TURN(
                     "user", "q") "<|im_start|>assistant\n2<|im_end|>\n{0}");
    check_labels(
        &c.o, "{\"system\": \"s\", \"input\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
        TURN("system", "s")
            TURN("user", "q") "<|im_start|>assistant\n1<|im_end|>\n{0} | " TURN("system", "s")
                TURN("user", "q") "<|im_start|>assistant\n2<|im_end|>\n{0}");
    /* cut, as axolotl does, and scored at the last token that is left */
    c.o.sequence_len = 7;
    check_labels(&c.o, "{\"input\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
                 "<|im_start|>user\nq{0} | <|im_start|>user\nq{0}");
    check_bad_record(&c.o, "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
                     "column \"input\" is missing or null; the record has \"prompt\", \"chosen\", "
                     "\"rejected\"; these "
                     "columns look like preferences (chosen, rejected): rl: dpo, without `type`");
    answers_close(&c);
    /* types of pairs are scored, too */
    answers_open(&c, AX_TASK_REWARD, "passthrough");
    check_labels(&c.o, "{\"prompt\": \"q\", \"chosen\": \"1\", \"rejected\": \"2\"}",
                 "q1</s>{0} | q2</s>{0}");
    answers_close(&c);
}

static void maps(void **state) {
    (void)state;
    struct answers_case c;
    struct ax_format_answer_map map = {
        .field_prompt = "ask",
        .field_system = "system",
        .field_chosen = "good",
        .field_rejected = "bad",
        .field_completion = "reply",
        .field_label = "ok",
        .prompt_format = "{system}[{prompt}]",
        .chosen_format = "{chosen}!",
        .rejected_format = "{{{rejected}}}",
        .completion_format = "{completion}?",
    };
    answers_open(&c, AX_TASK_PAIR, NULL);
    c.answers.map = &map;
    check_record(&c.o, "{\"ask\": \"q\", \"good\": \"1\", \"bad\": \"2\"}",
                 "[q]⟦1!</s>⟧ | [q]⟦{2}</s>⟧");
    check_record(&c.o, "{\"ask\": \"q\", \"good\": \"1\", \"bad\": \"2\", \"system\": \"s\"}",
                 "s[q]⟦1!</s>⟧ | s[q]⟦{2}</s>⟧");
    check_bad_record(&c.o, "{\"ask\": \"q\", \"good\": \"1\"}",
                     "column \"bad\" is missing or null; the record has \"ask\", \"good\"");
    check_bad_record(&c.o, "{\"ask\": \"q\", \"good\": \"\", \"bad\": \"1\"}",
                     "good: the answer is empty");
    c.o.task = AX_TASK_UNPAIRED;
    check_record(&c.o, "{\"ask\": \"q\", \"reply\": \"1\", \"ok\": false}", "[q]⟦1?</s>⟧");
    check_bad_record(&c.o, "{\"ask\": \"q\", \"reply\": \"1\", \"ok\": 2}",
                     "ok: expected true, false, 1 or 0, got another number");
    struct ax_format *f;
    map.chosen_format = "{rejected}";
    assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG, "type.chosen_format: \"{rejected}\"");
    answers_close(&c);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        enum ax_task task;
        const char *type;
        enum ax_status st;
        const char *why;
    } rows[] = {
        {AX_TASK_PAIR, "alpaca", AX_ERR_CONFIG,
         "type \"alpaca\" does not make pairs of answers; leave out `type` for the columns prompt, "
         "chosen, rejected"},
        {AX_TASK_PAIR, "chatml.argilla", AX_ERR_CONFIG, "does not make pairs of answers"},
        {AX_TASK_PAIR, "bradley_terry.chat_template", AX_ERR_CONFIG, "does not make pairs"},
        {AX_TASK_UNPAIRED, "chatml.icr", AX_ERR_CONFIG,
         "does not make unpaired answers; leave out `type` for the columns prompt, completion, "
         "label"},
        {AX_TASK_UNPAIRED, "chatml", AX_ERR_CONFIG, "does not make unpaired answers"},
        {AX_TASK_PAIR, "chatmlx.icr", AX_ERR_CONFIG, "does not make pairs"},
        {AX_TASK_PAIR, "zephyr.nectar", AX_ERR_UNSUPPORTED, "the two worst of the ranked answers"},
        {AX_TASK_TEXT, "chatml.icr", AX_ERR_CONFIG,
         "type \"chatml.icr\" makes preferences, which fine-tuning does not read; set rl"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct answers_case c;
        struct ax_format *f;
        answers_open(&c, rows[i].task, rows[i].type);
        assert_error(ax_format_new(&f, &c.o), rows[i].st, rows[i].why);
        answers_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts), cmocka_unit_test(empty_answers), cmocka_unit_test(tokens),
        cmocka_unit_test(chats), cmocka_unit_test(argilla),       cmocka_unit_test(rewards),
        cmocka_unit_test(maps),  cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
