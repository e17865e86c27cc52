/* Records for fine-tuning without a type, as TRL's SFTTrainer reads them, against documents written
 * by hand. ⟦…⟧ is trained. */
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

static void texts(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_TEXT, NULL);
    check_record(&c.o, "{\"text\": \"hello\"}", "⟦hello</s>⟧");
    check_record(&c.o, "{\"prompt\": \"2+3=\", \"completion\": \"5\"}", "2+3=⟦5</s>⟧");
    c.o.tokenizer = bos_tokenizer;
    check_record(&c.o, "{\"text\": \"hello</s>\"}", "⟦<s>hello</s>⟧");
    /* a token across the border is trained on */
    check_record(&c.o, "{\"prompt\": \"hello w\", \"completion\": \"orld\"}",
                 "<s>hello⟦ world</s>⟧");
    c.o.train_on_inputs = true;
    check_record(&c.o, "{\"prompt\": \"2+3=\", \"completion\": \"5\"}", "⟦<s>2+3=5</s>⟧");
    /* the end of a long text goes, as its rule for lengths says */
    c.o.sequence_len = 4;
    c.o.long_examples = AX_LONG_KEEP;
    check_record(&c.o, "{\"text\": \"12345\"}", "⟦<s>12345</s>⟧");
    c.o.long_examples = AX_LONG_CUT;
    check_record(&c.o, "{\"text\": \"12345\"}", "⟦<s>123⟧");
    answers_close(&c);
}

static void messages(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_TEXT, NULL);
    check_record(&c.o, "{\"messages\": [" U("q") ", " A("1") "]}",
                 "⟦<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n⟧");
    check_record(&c.o, "{\"prompt\": [" U("q") "], \"completion\": [" A("1") "]}",
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧");
    c.o.chat = NULL;
    check_bad_record(&c.o, "{\"messages\": [" U("q") ", " A("1") "]}",
                     "messages: the model has no chat template; set chat_template");
    answers_close(&c);
}

/* What the template marks, alone. */
static void marked_messages(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_TEXT, NULL);
    chat_close(&c.chat);
    chat_open(&c.chat, "{% for m in messages %}{% if m.role == 'assistant' %}A:"
                       "{% generation %}{{ m.content }}{% endgeneration %}\n{% else %}"
                       "U:{{ m.content }}\n{% endif %}{% endfor %}");
    c.chat.chat.by_generation = true;
    check_record(&c.o, "{\"messages\": [" U("q") ", " A("1") "]}", "U:q\nA:⟦1⟧");
    chat_close(&c.chat);
    struct ax_format *f;
    chat_open(&c.chat, prompting_chat);
    c.chat.chat.by_generation = true;
    assert_int_equal(ax_format_new(&f, &c.o), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "generation"));
    answers_close(&c);
}

/* Under whatever name it has, and whichever of two the template reads, as transformers hands it over. */
static void reasoning(void **state) {
    (void)state;
    static const char *const keys[] = {"reasoning_content", "thinking", "reasoning"};
    struct answers_case c;
    answers_open(&c, AX_TASK_TEXT, NULL);
    for (size_t t = 0; t < 3; t++) {
        char source[200], row[200];
        snprintf(source, sizeof source,
                 "{%% for m in messages %%}{%% if m.%s %%}<{{ m.%s }}>{%% endif %%}"
                 "{{ m.content }}\n{%% endfor %%}",
                 keys[t], keys[t]);
        chat_close(&c.chat);
        chat_open(&c.chat, source);
        for (size_t k = 0; k < 3; k++) {
            snprintf(row, sizeof row,
                     "{\"messages\": [" U("q") ", {\"role\": \"assistant\", \"content\": \"1\", "
                                               "\"%s\": \"why\"}]}",
                     keys[k]);
            check_record(&c.o, row, t < 2 || k == 2 ? "⟦q\n<why>1\n⟧" : "⟦q\n1\n⟧");
        }
    }
    answers_close(&c);
}

static void bad_records(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_TEXT, NULL);
    check_bad_record(&c.o, "{\"prompt\": \"a\", \"completion\": \" \"}",
                     "completion: the answer is empty");
    check_bad_record(&c.o, "{\"prompt\": \"a\"}", "completion");
    check_bad_record(&c.o, "{\"prompt\": \"a\", \"completion\": [" A("1") "]}",
                     "prompt: expected a list of messages, as in completion, got text");
    check_bad_record(&c.o, "{\"text\": [1]}", "text: expected text, got a list");
    check_bad_record(&c.o, "{\"texts\": \"a\"}", "input_ids");
    answers_close(&c);
}

/* As tables have them in the columns of their other records. */
static void nulls(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_TEXT, NULL);
    check_record(&c.o, "{\"messages\": null, \"prompt\": null, \"text\": \"ab\"}", "⟦ab</s>⟧");
    check_bad_record(&c.o, "{\"messages\": null}", "this one has \"messages\" (null)");
    check_bad_record(&c.o, "{\"text\": null}", "this one has \"text\" (null)");
    check_bad_record(&c.o, "{\"prompt\": null, \"completion\": \"a\"}",
                     "this one has \"prompt\" (null), \"completion\"");
    check_bad_record(&c.o, "{\"prompt\": \"a\", \"completion\": null}",
                     "column \"completion\" is missing or null; the record has \"prompt\"");
    chat_close(&c.chat);
    chat_open(&c.chat, prompting_chat);
    c.o.type = "chat_template";
    check_bad_record(&c.o, "{\"messages\": null}",
                     "column \"messages\" (field_messages) is missing or null");
    answers_close(&c);
}

/* Tokens with TRL's masks, which SFTTrainer makes labels of where there are none: all that apply, together. */
static void masked_tokens(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_TEXT, NULL);
#define IDS                    "{\"input_ids\": [97, 98, 99, 100], "
#define COMPLETION(a, b, d, e) "\"completion_mask\": [" #a ", " #b ", " #d ", " #e "]"
#define ASSISTANT(a, b, d, e)  "\"assistant_masks\": [" #a ", " #b ", " #d ", " #e "]"
    static const char *const cases[][3] = {
        /* by default, and with train_on_inputs, TRL's completion_only_loss: false */
        {COMPLETION(0, 0, 1, 1), "ab⟦cd⟧", "⟦abcd⟧"},
        {ASSISTANT(0, 1, 0, 1), "a⟦b⟧c⟦d⟧", "a⟦b⟧c⟦d⟧"},
        {COMPLETION(0, 0, 1, 1) ", " ASSISTANT(0, 1, 0, 1), "abc⟦d⟧", "a⟦b⟧c⟦d⟧"},
        {ASSISTANT(false, true, true, false), "a⟦bc⟧d", "a⟦bc⟧d"},
        {COMPLETION(0, 0, 1, 1) ", \"labels\": [97, -100, -100, 100]", "⟦a⟧bc⟦d⟧", "⟦a⟧bc⟦d⟧"},
        {COMPLETION(0, 1, 1, 1) ", \"labels\": null, \"assistant_masks\": null", "a⟦bcd⟧",
         "⟦abcd⟧"},
        {COMPLETION(0, 1, 0, 1) ", \"seq_lengths\": [2, 2]", "a⟦b⟧ | c⟦d⟧", "⟦ab⟧ | ⟦cd⟧"},
        {COMPLETION(0, 1, 0, 1) ", \"position_ids\": [0, 1, 2, 0]", "a⟦b⟧c | ⟦d⟧", "⟦abc⟧ | ⟦d⟧"},
        {COMPLETION(0, 1, 0, 1) ", \"attention_mask\": [0, 1, 1, 1]", "⟦b⟧c⟦d⟧", "⟦bcd⟧"},
        {COMPLETION(0, 0, 1, 1) ", \"text\": \"x\", \"prompt\": \"y\", \"messages\": []", "ab⟦cd⟧",
         "⟦abcd⟧"},
        {"\"text\": \"x\"", "⟦abcd⟧", "⟦abcd⟧"},
        {"\"messages\": [], \"completion_mask\": null", "⟦abcd⟧", "⟦abcd⟧"},
        {"\"attention_mask\": [1, 1, 0, 1]", "⟦abd⟧", "⟦abd⟧"},
    };
    static const char *const bad[][2] = {
        {"\"completion_mask\": [0, 1, 1]",
         "completion_mask has 3 elements, but there are 4 tokens"},
        {COMPLETION(0, 2, 1, 1),
         "completion_mask[1]: expected an integer of at least 0 and below 2"},
        {ASSISTANT(0, 1, "x", 1), "assistant_masks[2]: expected an integer"},
        {"\"assistant_masks\": 1", "assistant_masks: expected a list of numbers, got a number"},
        {"\"labels\": null",
         "labels: expected a list of numbers, got null, nor are there completion_mask or"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char row[256];
        snprintf(row, sizeof row, IDS "%s}", cases[i][0]);
        for (int inputs = 0; inputs < 2; inputs++) {
            c.o.train_on_inputs = inputs;
            check_record(&c.o, row, cases[i][1 + inputs]);
        }
    }
    c.o.train_on_inputs = false;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char row[256];
        snprintf(row, sizeof row, IDS "%s}", bad[i][0]);
        check_bad_record(&c.o, row, bad[i][1]);
    }
    answers_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),           cmocka_unit_test(messages),
        cmocka_unit_test(marked_messages), cmocka_unit_test(reasoning),
        cmocka_unit_test(bad_records),     cmocka_unit_test(nulls),
        cmocka_unit_test(masked_tokens),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
