/* TRL's columns of pairs, unpaired answers, reward pairs and steps: each against documents written by
 * hand. ⟦…⟧ is trained; {1} is a label that is not the token itself. */
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
#define PAIR(chosen, rejected)                                                                     \
    "{\"prompt\": \"2+3=\", \"chosen\": \"" chosen "\", \"rejected\": \"" rejected "\"}"

static void texts(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, NULL);
    check_record(&c.o, PAIR("5", "6!"), "2+3=⟦5</s>⟧ | 2+3=⟦6!</s>⟧");
    /* EOS that is there is not added again; the tokenizer's BOS is the prompt's */
    c.o.tokenizer = bos_tokenizer;
    check_record(&c.o, PAIR("5</s>", "6"), "<s>2+3=⟦5</s>⟧ | <s>2+3=⟦6</s>⟧");
    /* a token across the border belongs to the answer, and both sides begin at the same place */
    check_record(&c.o, "{\"prompt\": \"hello w\", \"chosen\": \"orld\", \"rejected\": \"ay\"}",
                 "<s>hello⟦ world</s>⟧ | <s>hello⟦ way</s>⟧");
    c.o.task = AX_TASK_UNPAIRED; /* each on its own */
    check_record(&c.o, "{\"prompt\": \"hello w\", \"chosen\": \"orld\", \"rejected\": \"ay\"}",
                 "<s>hello⟦ world</s>⟧ | <s>hello w⟦ay</s>⟧");
    c.o.task = AX_TASK_PAIR;
    /* no prompt at all: everything but BOS is an answer */
    check_record(&c.o, "{\"prompt\": \"\", \"chosen\": \"a\", \"rejected\": \"b\"}",
                 "<s>⟦a</s>⟧ | <s>⟦b</s>⟧");
    /* ids that are added where they are missing */
    c.answers.framed_by_ids = true;
    c.o.tokenizer = bare_tokenizer;
    check_record(&c.o, PAIR("5", "6</s>"), "<s>2+3=⟦5</s>⟧ | <s>2+3=⟦6</s>⟧");
    check_record(&c.o, "{\"prompt\": \"<s>a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
                 "<s>a⟦b</s>⟧ | <s>a⟦c</s>⟧");
    answers_close(&c);
}

static void prompts_inside(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, NULL);
    /* what both sides begin with, without a space before the difference */
    check_record(&c.o, "{\"chosen\": \"Q: x A: 5\", \"rejected\": \"Q: x A: 6\"}",
                 "Q: x A:⟦ 5</s>⟧ | Q: x A:⟦ 6</s>⟧");
    check_record(&c.o, "{\"chosen\": \"ab\", \"rejected\": \"abc\"}", "a⟦b</s>⟧ | a⟦bc</s>⟧");
    check_record(&c.o, "{\"chosen\": \"é\", \"rejected\": \"ê\"}", "⟦é</s>⟧ | ⟦ê</s>⟧");
    check_record(&c.o,
                 "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("q") ", " A("2") "]}",
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧ | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n⟧");
    /* messages that begin with the prompt, which is a text as well */
    check_record(&c.o,
                 "{\"prompt\": \"q\", \"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U(
                     "q") ", " A("2") "]}",
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧ | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n⟧");
    /* different from the first message on: there is no prompt */
    check_record(&c.o, "{\"chosen\": [" A("1") "], \"rejected\": [" A("2") "]}",
                 "⟦<|im_start|>assistant\n1<|im_end|>\n⟧ | ⟦<|im_start|>assistant\n2<|im_end|>\n⟧");
    answers_close(&c);
}

#define CHAT(answers) "{\"prompt\": [" U("q") "], " answers "}"

static void messages(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, NULL);
    const char *pair =
        CHAT("\"chosen\": [" A("1") "], \"rejected\": [" A("2") ", " U("so?") ", " A("3") "]");
    check_record(&c.o, pair,
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧ | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n"
                 "<|im_start|>user\nso?<|im_end|>\n<|im_start|>assistant\n3<|im_end|>\n⟧");
    /* the template's text has its own BOS: the tokenizer adds none; EOS follows where ids do */
    c.o.tokenizer = bos_tokenizer;
    check_record(&c.o, CHAT("\"chosen\": [" A("1") "], \"rejected\": [" A("2") "]"),
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧ | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n⟧");
    c.answers.framed_by_ids = true;
    check_record(&c.o, CHAT("\"chosen\": [" A("1") "], \"rejected\": [" A("2") "]"),
                 "<s><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n</s>⟧ | "
                 "<s><|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n</s>⟧");
    c.answers.framed_by_ids = false;
    /* an answer after another one begins after its header, and so does a turn after that */
    check_record(&c.o,
                 "{\"prompt\": [" U("q") ", " A("a") "], \"chosen\": [" A(
                     "1") "], \"rejected\": [" U("so?") ", " A("2") "]}",
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>"
                 "⟦assistant\n1<|im_end|>\n⟧ | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>"
                 "⟦user\nso?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n⟧");
    check_record(&c.o,
                 "{\"prompt\": [" U("q") ", " A("a") "], \"chosen\": [" A(
                     "1") "], \"rejected\": [" A("2") "]}",
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>"
                 "assistant\n⟦1<|im_end|>\n⟧ | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n<|im_start|>"
                 "assistant\n⟦2<|im_end|>\n⟧");
    /* names and roles of the data set */
    c.answers.field_chosen = "good";
    c.answers.field_rejected = "bad";
    c.chat.chat.properties = sharegpt_properties;
    check_record(&c.o,
                 "{\"prompt\": [{\"from\": \"human\", \"value\": \"q\"}], \"good\": [{\"from\": "
                 "\"gpt\", \"value\": \"1\"}], \"bad\": [{\"from\": \"gpt\", \"value\": \"2\"}]}",
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧ | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n⟧");
    answers_close(&c);
}

/* The record's own variables come after those of the configuration, in all that is rendered. */
static void variables(void **state) {
    (void)state;
    static const char chat[] =
        "{{ style }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    static const char record[] = "{\"prompt\": [" U("q") "], \"chosen\": [" A(
        "1") "], \"rejected\": [" A("2") "], \"chat_template_kwargs\": {\"style\": \"so\"}}";
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, NULL);
    chat_close(&c.chat);
    chat_open(&c.chat, chat);
    json_t *usual = json_pack("{s:s}", "style", "thus");
    c.chat.chat.variables = usual;
    check_record(&c.o, CHAT("\"chosen\": [" A("1") "], \"rejected\": [" A("2") "]"),
                 "thus<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧ | "
                 "thus<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n⟧");
    check_record(&c.o, record,
                 "so<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧ | "
                 "so<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>\n⟧");
    c.o.type = "chat_template.argilla_chat";
    check_record(&c.o,
                 "{\"chosen\": [" U("q") ", " A("1") "], \"rejected\": [" U("q") ", " A(
                     "2") "], \"chat_template_kwargs\": \"{\\\"style\\\": \\\"so\\\"}\"}",
                 "so<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|></s>⟧ | "
                 "so<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|></s>⟧");
    json_decref(usual);
    answers_close(&c);
}

/* The first two examples' column. */
static void check_column(const struct ax_format_options *o, const char *json, int column, size_t n,
                         const float *want, bool joined) {
    struct ax_format *f;
    struct ax_example_list l = {.columns = o->columns};
    assert_ok(ax_format_new(&f, o));
    assert_ok(run_record(f, json, &l));
    assert_int_equal(l.n, n);
    for (size_t i = 0; i < n; i++) {
        const struct ax_example *x = &l.items[i];
        const float v = column == 0 ? (float)x->columns[0][0] : float_column(x, column, 0);
        assert_true(v == want[i]);
        assert_int_equal(x->joined, joined && i > 0);
    }
    ax_example_list_free(&l);
    ax_format_free(f);
    rows_checked++;
}

/* After as many trained tokens as the shorter answer has, the prompt's aside. */
static void shares(void **state) {
    (void)state;
    static const struct ax_columns columns = {
        .list = {{"reference", true, AX_OF_EXAMPLE, 0}, {"share", true, AX_OF_LABEL, 0}}, .n = 2};
    static const float tails[] = {0.25F, 0, 1};
    for (size_t t = 0; t < sizeof tails / sizeof *tails; t++) {
        struct answers_case c;
        struct ax_format *f;
        struct ax_example_list l = {.columns = &columns};
        answers_open(&c, AX_TASK_PAIR, NULL);
        c.o.columns = &columns;
        c.answers.tail_share = tails[t];
        assert_ok(ax_format_new(&f, &c.o));
        assert_ok(run_record(f, PAIR("5", "six!"), &l));
        assert_int_equal(l.n, 2);
        size_t trained[2] = {0}, ones = 0, tail = 0;
        for (size_t k = 0; k < 2; k++)
            for (size_t i = 0; i < l.items[k].n; i++) {
                if (l.items[k].labels[i] == AX_NO_LABEL)
                    continue;
                const float v = float_column(&l.items[k], 1, i);
                const bool both = trained[k]++ < 2; /* "5" and EOS */
                ones += both && v == 1;
                tail += !both && (tails[t] > 0 ? v == tails[t] : v > 0 && v < 1e-30F);
            }
        assert_int_equal(trained[0], 2);
        assert_true(trained[1] > 2);
        assert_int_equal(ones, 4);
        assert_int_equal(tail, trained[1] - 2);
        ax_example_list_free(&l);
        ax_format_free(f);
        answers_close(&c);
        rows_checked++;
    }
}

static void unpaired(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_UNPAIRED, NULL);
    const char *rows[] = {"{\"prompt\": \"q\", \"completion\": \"a\", \"label\": true}",
                          "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": 0}"};
    check_record(&c.o, rows[0], "q⟦a</s>⟧");
    check_column(&c.o, rows[0], 0, 1, (float[]){1}, false);
    check_column(&c.o, rows[1], 0, 1, (float[]){0}, false);
    static const char *const texts[] = {"False", "True", "0", "1", "FALSE", "true"}; /* as in CSV */
    for (int i = 0; i < 6; i++) {
        char row[100];
        snprintf(row, sizeof row, "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": \"%s\"}",
                 texts[i]);
        check_column(&c.o, row, 0, 1, (float[]){(float)(i % 2)}, false);
    }
    check_record(&c.o, CHAT("\"completion\": [" A("1") "], \"label\": false"),
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦1<|im_end|>\n⟧");
    /* a pair is two answers, which do not belong together */
    check_record(&c.o, PAIR("5", "6"), "2+3=⟦5</s>⟧ | 2+3=⟦6</s>⟧");
    check_column(&c.o, PAIR("5", "6"), 0, 2, (float[]){1, 0}, false);
    answers_close(&c);
}

static void rewards(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_REWARD, NULL);
    check_labels(&c.o, PAIR("5", "6!"), "2+3=5</s>{0} | 2+3=6!</s>{0}");
    check_column(&c.o, PAIR("5", "6"), 1, 2, (float[]){0, 0}, true);
    check_column(&c.o,
                 "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\", \"margin\": 0.5}", 1,
                 2, (float[]){0.5F, 0.5F}, true);
    check_column(&c.o,
                 "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\", \"margin\": null}", 1,
                 2, (float[]){0, 0}, true);
    check_column(&c.o,
                 "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\", \"margin\": \"1.5\"}",
                 1, 2, (float[]){1.5F, 1.5F}, true);
    check_labels(&c.o, CHAT("\"chosen\": [" A("1") "], \"rejected\": [" A("2") "]"),
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n1<|im_end|>\n{0} | "
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n{0}");
    /* the token that pads ends no answer; that it also ends texts moves the scores */
    c.o.pad = ax_tokenizer_special_id(bare_tokenizer, AX_EOS);
    check_labels(&c.o, PAIR("5", "6</s></s>"), "2+3=5{0}</s> | 2+3=6{0}</s></s>");
    c.o.long_examples = AX_LONG_CUT;
    c.o.sequence_len = 5;
    check_labels(&c.o, PAIR("5", "67"), "2+3=5{0} | 2+3=6{0}");
    c.o.sequence_len = 1000;
    check_labels(&c.o, "{\"prompt\": \"</s>\", \"chosen\": \"</s>\", \"rejected\": \"a\"}",
                 "</s>{0}</s> | </s>a{0}</s>");
    c.o.pad = AX_NO_TOKEN;
    /* no column to put the margin in */
    c.o.columns = NULL;
    check_labels(&c.o, PAIR("5", "6"), "2+3=5</s>{0} | 2+3=6</s>{0}");
    answers_close(&c);
}

static void lengths(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PAIR, NULL);
    c.o.sequence_len = 6;
    check_record(&c.o, PAIR("5", "67"), "2+3=⟦5</s>⟧ | 2+3=⟦67⟧"); /* EOS is lost, as in TRL */
    c.o.long_examples = AX_LONG_KEEP;
    check_record(&c.o, PAIR("5", "67"), "2+3=⟦5</s>⟧ | 2+3=⟦67</s>⟧");
    answers_close(&c);
    answers_open(&c, AX_TASK_REWARD, NULL);
    c.o.sequence_len = 6; /* left for the rule that drops it */
    check_labels(&c.o, PAIR("5", "67"), "2+3=5</s>{0} | 2+3=67</s>{0}");
    c.o.long_examples = AX_LONG_CUT;
    check_labels(&c.o, PAIR("5", "67"), "2+3=5</s>{0} | 2+3=67{0}");
    answers_close(&c);
}

#define STEPS(labels)                                                                              \
    "{\"prompt\": \"q\", \"completions\": [\"a\", \"bc\", \"d\"], \"labels\": [" labels "]}"

static void steps(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_STEPS, NULL);
    check_labels(&c.o, STEPS("true, false, 1"), "<s>qa\n{1}bc\n{0}d\n{1}");
    c.o.type = "stepwise_supervised";
    c.steps.separator = "--"; /* of several tokens: the last one */
    check_labels(&c.o, STEPS("1, 0, 0"), "<s>qa--{1}bc--{0}d--{0}");
    c.steps.separator = "";
    check_labels(&c.o, STEPS("1, 0, 0"), "<s>qa{1}bc{0}d{0}");
    c.steps.last_only = true;
    check_labels(&c.o, STEPS("0, 0, 1"), "<s>qabcd{1}");
    c.steps.last_only = false;
    /* pieces are tokenized alone: no blank line at the border */
    c.steps.separator = "\n";
    check_labels(&c.o, "{\"prompt\": \"q\\n\", \"completions\": [\"\\na\"], \"labels\": [1]}",
                 "<s>q\n\na\n{1}");
    /* tokens that do not fit are truncated, with their labels */
    c.o.sequence_len = 6;
    check_labels(&c.o, STEPS("1, 1, 1"), "<s>qa\n{1}bc");
    c.o.sequence_len = 7;
    check_labels(&c.o, STEPS("1, 1, 1"), "<s>qa\n{1}bc\n{1}");
    c.o.sequence_len = 8;
    c.steps.separator = "--"; /* half of it has no label */
    check_labels(&c.o, STEPS("1, 1, 1"), "<s>qa--{1}bc-");
    c.steps.separator = "\n";
    c.o.long_examples = AX_LONG_KEEP;
    check_labels(&c.o, STEPS("1, 1, 1"), "<s>qa\n{1}bc\n{1}d\n{1}");
    c.steps.max_completion = 3;
    check_labels(&c.o, STEPS("1, 1, 1"), "<s>qa\n{1}b");
    answers_close(&c);
}

/* Probabilities: the labels are their rounding, the targets keep them. */
static void soft_steps(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_STEPS, NULL);
    check_labels(&c.o, STEPS("0.75, 0.25, 1.0"), "<s>qa\n{1}bc\n{0}d\n{1}");
    check_labels(&c.o, STEPS("0.5, 0.49, 0.51"), "<s>qa\n{1}bc\n{0}d\n{1}");
    for (int last = 0; last < 2; last++) {
        struct ax_format *f;
        struct ax_example_list l = {.columns = &rated_columns};
        c.steps.last_only = last;
        assert_ok(ax_format_new(&f, &c.o));
        assert_ok(run_record(f, STEPS("0.75, 0.25, 1.0"), &l));
        const float want[] = {0, 0, 0, 0.75F, 0, 0, 0.25F, 0, 1};
        assert_int_equal(l.items[0].n, 9);
        for (size_t t = 0; t < 9; t++)
            assert_true(float_column(&l.items[0], 2, t) == (last && t < 8 ? 0 : want[t]));
        ax_example_list_free(&l);
        ax_format_free(f);
    }
    c.steps.last_only = false;
    c.o.columns = NULL;
    check_bad_record(&c.o, STEPS("1, 0.25, 1"),
                     "labels[1]: 0.25 is a probability, but this method takes only 0 and 1");
    check_labels(&c.o, STEPS("1.0, 0.0, 1"), "<s>qa\n{1}bc\n{0}d\n{1}");
    answers_close(&c);
}

/* ---- what is refused ---- */

static void bad_pairs(void **state) {
    (void)state;
    static const struct {
        const char *row, *why;
    } rows[] = {
        {PAIR("5", "5"), "chosen and rejected give the same text; a pair needs two answers"},
        {PAIR("5", "5</s>"), "chosen and rejected give the same text"},
        {PAIR("", "6"), "chosen: the answer is empty"},
        {PAIR("5", " \\n"), "rejected: the answer is empty"},
        {CHAT("\"chosen\": [" A("1") "], \"rejected\": [" A("1") "]"), "give the same text"},
        {CHAT("\"chosen\": [" A("") "], \"rejected\": [" A("1") "]"),
         "chosen: the answer is empty"},
        {CHAT("\"chosen\": [], \"rejected\": [" A("1") "]"),
         "chosen: the list of messages is empty"},
        {CHAT("\"chosen\": [" U("1") "], \"rejected\": [" A("1") "]"),
         "chosen: expected an answer that ends with an assistant's message"},
        {CHAT("\"chosen\": [" A("1") "], \"rejected\": \"2\""),
         "rejected: expected messages like the other side's, got text"},
        {CHAT("\"chosen\": \"1\", \"rejected\": \"2\""),
         "prompt: expected text, as in chosen, got a list"},
        {"{\"prompt\": \"a\", \"chosen\": 1, \"rejected\": \"b\"}",
         "chosen: expected text or a list of messages, got a number"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\"}",
         "column \"rejected\" is missing or null; the record has \"prompt\", \"chosen\""},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": null}",
         "column \"rejected\" is missing"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}",
         "column \"chosen\" is missing or null; the record has \"prompt\", \"completion\", "
         "\"label\"; "
         "these columns "
         "look "
         "like rated answers (completion, label): rl: kto, without `type`"},
        {"{\"instruction\": \"a\", \"output\": \"b\"}",
         "these columns look like fine-tuning data: type: alpaca, without `r"},
        {"{\"chosen\": [{\"role\": \"Assistant\", \"content\": \"b\"}], \"rejected\": [{\"role\": "
         "\"Assistant\", \"content\": \"c\"}]}",
         "the last has the role \"Assistant\" (roles says"},
        {"{\"chosen\": [" U("a") ", {\"content\": \"b\"}], \"rejected\": [" U("a") "]}",
         "chosen[1]: role: expected the name of a role, got nothing"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"margin\": \"1 %\"}",
         "margin: expected a finite number, got text"},
        {"{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"margin\": 1e300}",
         "margin: expected a finite number, got one that is too large"},
    };
    struct answers_case c;
    for (int task = AX_TASK_PAIR; task <= AX_TASK_REWARD; task += 2) {
        answers_open(&c, (enum ax_task)task, NULL);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            check_bad_record(&c.o, rows[i].row, rows[i].why);
        c.o.chat = NULL;
        struct ax_format *f;
        struct ax_example_list l = {.columns = c.o.columns};
        assert_ok(ax_format_new(&f, &c.o));
        assert_error(
            run_record(f, CHAT("\"chosen\": [" A("1") "], \"rejected\": [" A("2") "]"), &l),
            AX_ERR_CONFIG, "prompt: messages need a chat template");
        ax_format_free(f);
        ax_example_list_free(&l);
        answers_close(&c);
    }
}

static void bad_answers(void **state) {
    (void)state;
    static const struct {
        const char *row, *why;
    } rows[] = {
        {"{\"prompt\": \"q\", \"completion\": \"\", \"label\": true}",
         "completion: the answer is empty"},
        {"{\"prompt\": \"q\", \"completion\": \"a\", \"label\": \"yes\"}",
         "label: expected true, false, 1 or 0, got text"},
        {"{\"prompt\": \"q\", \"completion\": \"a\", \"label\": \"\"}",
         "label: expected true, false, 1 or 0, got text"},
        {"{\"prompt\": \"q\", \"completion\": \"a\", \"label\": 0.5}",
         "label: expected true, false, 1 or 0, got another number"},
        {"{\"prompt\": \"q\", \"completion\": \"a\"}",
         "column \"label\" is missing or null; the record has \"prompt\", \"completion\"; these "
         "columns "
         "look like fine-tuning data: type: {field_instruction: prompt, field_output: completion}, "
         "without `rl`"},
        {"{\"prompt\": \"q\", \"answer\": \"a\", \"is_good\": true}",
         "look like type: {field_prompt: prompt, field_completion: answer, field_label: is_good}"},
        {"{\"completion\": \"a\", \"label\": 1}",
         "column \"prompt\" is missing or null; the record has \"completion\", \"label\""},
        {"{\"prompt\": \"q\", \"chosen\": \"a\"}", "column \"completion\" is missing"},
    };
    struct answers_case c;
    answers_open(&c, AX_TASK_UNPAIRED, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_bad_record(&c.o, rows[i].row, rows[i].why);
    answers_close(&c);
}

static void bad_steps(void **state) {
    (void)state;
    static const struct {
        const char *row, *why;
    } rows[] = {
        {STEPS("1, 0"), "completions has 3 steps, but labels has 2 elements"},
        {STEPS("1, 0, \"yes\""),
         "labels[2]: expected true, false, or a number from 0 to 1, got text"},
        {STEPS("1, null, 1"), "labels[1]: expected true, false, or a number from 0 to 1, got null"},
        {STEPS("1, 1, 2"), "labels[2]: expected a number from 0 to 1, got 2"},
        {STEPS("1, -0.5, 1"), "labels[1]: expected a number from 0 to 1, got -0.5"},
        {"{\"prompt\": \"q\", \"completions\": [], \"labels\": []}",
         "completions: the list of steps is empty"},
        {"{\"prompt\": \"q\", \"completions\": [\" \"], \"labels\": [1]}",
         "completions[0]: the step is empty"},
        {"{\"prompt\": \"q\", \"completions\": [3], \"labels\": [1]}",
         "completions[0]: expected text, got a number"},
        {"{\"prompt\": \"q\", \"completions\": \"a\", \"labels\": [1]}",
         "completions: expected a list, got text"},
        {"{\"prompt\": [" U("q") "], \"completions\": [\"a\"], \"labels\": [1]}",
         "prompt: expected text, got a list"},
        {"{\"completions\": [\"a\"], \"labels\": [1]}", "column \"prompt\" is missing"},
        {"{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}",
         "column \"completions\" is missing or null; the record has \"prompt\", \"chosen\", "
         "\"rejected\"; "
         "these "
         "columns "
         "look like preferences (chosen, rejected): rl: dpo, without `type`"},
    };
    struct answers_case c;
    answers_open(&c, AX_TASK_STEPS, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_bad_record(&c.o, rows[i].row, rows[i].why);
    struct ax_format *f;
    struct ax_example_list l = {.columns = c.o.columns};
    c.o.type = "stepwise_supervised"; /* reads these columns, so there is no other advice */
    assert_ok(ax_format_new(&f, &c.o));
    assert_error(
        run_record(f, "{\"completions\": [\"a\"], \"labels\": [1]}", &l), AX_ERR_DATA,
        "column \"prompt\" is missing or null; the record has \"completions\", \"labels\"");
    assert_null(strstr(ax_error_text(), "look like"));
    ax_format_free(f);
    ax_example_list_free(&l);
    c.o.type = "alpaca";
    assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG,
                 "type \"alpaca\" has no labeled steps; expected stepwise_supervised");
    answers_close(&c);
}

/* ---- the key of a cache ---- */

static char *description_of(const struct ax_format_options *o) {
    struct ax_format *f;
    json_t *v;
    assert_ok(ax_format_new(&f, o));
    assert_ok(ax_format_describe(f, &v));
    char *text = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(v);
    ax_format_free(f);
    return text;
}

/* Every option that changes the examples changes the description. */
static void described(void **state) {
    (void)state;
    struct answers_case c;
    struct ax_format_answer_map map = {"p", "s",        "c",        "r",          "a",
                                       "l", "{prompt}", "{chosen}", "{rejected}", "{completion}"};
    char *texts[16];
    size_t n = 0;
    answers_open(&c, AX_TASK_PAIR, NULL);
    texts[n++] = description_of(&c.o);
    c.o.sequence_len = 999;
    texts[n++] = description_of(&c.o);
    c.o.long_examples = AX_LONG_KEEP;
    texts[n++] = description_of(&c.o);
    c.answers.framed_by_ids = true;
    texts[n++] = description_of(&c.o);
    c.answers.field_chosen = "good";
    texts[n++] = description_of(&c.o);
    c.answers.field_rejected = "bad";
    texts[n++] = description_of(&c.o);
    c.o.task = AX_TASK_REWARD;
    texts[n++] = description_of(&c.o);
    c.o.pad = 0;
    texts[n++] = description_of(&c.o);
    c.o.type = "passthrough";
    texts[n++] = description_of(&c.o);
    c.answers.map = &map;
    texts[n++] = description_of(&c.o);
    map.chosen_format = "{chosen}.";
    texts[n++] = description_of(&c.o);
    c.answers.map = NULL;
    c.o.type = NULL;
    c.o.task = AX_TASK_STEPS;
    texts[n++] = description_of(&c.o);
    c.steps.separator = "";
    texts[n++] = description_of(&c.o);
    c.steps.max_completion = 9;
    texts[n++] = description_of(&c.o);
    c.steps.last_only = true;
    texts[n++] = description_of(&c.o);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(texts[i], texts[k]);
    while (n > 0)
        ax_free(texts[--n]);
    answers_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),     cmocka_unit_test(prompts_inside),
        cmocka_unit_test(messages),  cmocka_unit_test(variables),
        cmocka_unit_test(shares),    cmocka_unit_test(unpaired),
        cmocka_unit_test(rewards),   cmocka_unit_test(lengths),
        cmocka_unit_test(steps),     cmocka_unit_test(soft_steps),
        cmocka_unit_test(bad_pairs), cmocka_unit_test(bad_answers),
        cmocka_unit_test(bad_steps), cmocka_unit_test(described),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
