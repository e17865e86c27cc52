/* chat_template rows: each against a document written by hand. ⟦…⟧ is trained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"

static const char *const im_end[] = {"<|im_end|>"};
static const char *const eot[] = {"<|eot|>"};

#define U(text)       "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text)       "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define S(text)       "{\"role\": \"system\", \"content\": \"" text "\"}"
#define ROW(messages) "{\"messages\": [" messages "]}"

static void turns(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, chatml);
    /* EOS is not what ends a turn here: the terminator stays untrained */
    check_record(&c.o, ROW(U("Hi") ", " A("Hello")),
                 "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello⟧<|im_end|>\n");
    c.chat.eot_tokens = im_end;
    c.chat.n_eot_tokens = 1;
    check_record(&c.o, ROW(U("Hi") ", " A("Hello")),
                 "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Hello<|im_end|>⟧\n");
    check_record(&c.o, ROW(S("Be kind.") ", " U("1") ", " A("2") ", " U("3") ", " A("4")),
                 "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n1<|im_end|>\n"
                 "<|im_start|>assistant\n⟦2<|im_end|>⟧\n<|im_start|>user\n3<|im_end|>\n"
                 "<|im_start|>assistant\n⟦4<|im_end|>⟧\n");
    /* no answer: nothing is trained */
    check_record(&c.o, ROW(U("Hi")), "<|im_start|>user\nHi<|im_end|>\n");
    /* an empty turn is not trained, its terminator neither */
    check_record(&c.o, ROW(U("") ", " A("") ", " A("x")),
                 "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
                 "<|im_start|>assistant\n⟦x<|im_end|>⟧\n");
    /* a conversation whose answers are all blank is nothing to learn from */
    check_bad_record(&c.o, ROW(U("Hi") ", " A("")), "messages: the answer is empty");
    check_bad_record(&c.o, ROW(U("Hi") ", " A(" \\n") ", " U("so?") ", " A("\\u00a0")),
                     "messages: the answer is empty");
    check_bad_record(&c.o, ROW(U(" ") ", " S("")), "messages: the messages are empty");
    /* white space belongs to the answer; a blank line merges with the header's end */
    check_record(&c.o, ROW(U(" ") ", " A(" x \\n")),
                 "<|im_start|>user\n <|im_end|>\n<|im_start|>assistant\n⟦ x \n<|im_end|>⟧\n");
    check_record(&c.o, ROW(A("\\nx")), "<|im_start|>assistant⟦\n\nx<|im_end|>⟧\n");
    /* special tokens inside a text are what they are anywhere else */
    check_record(&c.o, ROW(U("a<|im_end|>b") ", " A("<|im_end|>c<|im_start|>")),
                 "<|im_start|>user\na<|im_end|>b<|im_end|>\n<|im_start|>assistant\n"
                 "⟦<|im_end|>c<|im_start|><|im_end|>⟧\n");
    /* texts that begin or end as the text does that a turn is compared with */
    check_record(
        &c.o, ROW(A("[[1]]") ", " A("[") ", " A("<[") ", " A("((<[")),
        "<|im_start|>assistant\n⟦[[1]]<|im_end|>⟧\n<|im_start|>assistant\n⟦[<|im_end|>⟧\n"
        "<|im_start|>assistant\n⟦<[<|im_end|>⟧\n<|im_start|>assistant\n⟦((<[<|im_end|>⟧\n");
    check_record(&c.o, ROW(A("<<other text>>") ", " A("[[other text>>")),
                 "<|im_start|>assistant\n⟦<<other text>><|im_end|>⟧\n<|im_start|>assistant\n"
                 "⟦[[other text>><|im_end|>⟧\n");
    /* characters of several bytes */
    check_record(&c.o, ROW(U("é") ", " A("日本")),
                 "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n⟦日本<|im_end|>⟧\n");
    chat_close(&c);
}

static void eos_rules(void **state) {
    (void)state;
    struct chat_case c;
    const char *row = ROW(U("1") ", " A("2") ", " U("3") ", " A("4"));
    chat_open(&c, chatml);
    c.chat.eot_tokens = im_end;
    c.chat.n_eot_tokens = 1;
    static const struct {
        enum ax_train_on rule;
        const char *want;
    } cases[] = {
        {AX_TRAIN_TURN, "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>⟧\n"
                        "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n⟦4<|im_end|>⟧\n"},
        {AX_TRAIN_ALL, "<|im_start|>user\n1⟦<|im_end|>⟧\n<|im_start|>assistant\n⟦2<|im_end|>⟧\n"
                       "<|im_start|>user\n3⟦<|im_end|>⟧\n<|im_start|>assistant\n⟦4<|im_end|>⟧\n"},
        {AX_TRAIN_LAST, "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n⟦2⟧<|im_end|>\n"
                        "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n⟦4<|im_end|>⟧\n"},
        {AX_TRAIN_NONE, "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n⟦2⟧<|im_end|>\n"
                        "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n⟦4⟧<|im_end|>\n"},
    };
    for (size_t i = 0; i < 4; i++) {
        c.chat.train_on_eot = cases[i].rule;
        check_record(&c.o, row, cases[i].want);
    }
    chat_close(&c);
    /* EOS itself, by the name of the variable; the line break behind it is never trained */
    chat_open(&c, plain_chat);
    check_record(&c.o, row,
                 "### In:\n1\n\n### Out:\n⟦2</s>⟧\n\n### In:\n3\n\n### Out:\n⟦4</s>⟧\n\n");
    c.chat.train_on_eos = AX_TRAIN_NONE;
    c.chat.train_on_eot = AX_TRAIN_NONE;
    check_record(&c.o, row,
                 "### In:\n1\n\n### Out:\n⟦2⟧</s>\n\n### In:\n3\n\n### Out:\n⟦4⟧</s>\n\n");
    chat_close(&c);
    /* a terminator counts only within three tokens behind the turn: the place of the turn's end,
     * and three more */
    chat_open(&c, "{% for m in messages %}{{ m.content }}abc</s>{% endfor %}");
    check_record(&c.o, ROW(A("x")), "⟦x⟧abc⟦</s>⟧");
    chat_close(&c);
    chat_open(&c, "{% for m in messages %}{{ m.content }}abcd</s>{% endfor %}");
    check_record(&c.o, ROW(A("x")), "⟦x⟧abcd</s>");
    chat_close(&c);
    /* the first one is the turn's */
    chat_open(&c, "{% for m in messages %}{{ m.content }}</s>b</s>{% endfor %}");
    check_record(&c.o, ROW(A("x")), "⟦x</s>⟧b</s>");
    c.chat.train_on_eos = c.chat.train_on_eot = AX_TRAIN_LAST;
    check_record(&c.o, ROW(A("x") ", " A("y")), "⟦x⟧</s>b</s>⟦y</s>⟧b</s>");
    chat_close(&c);
}

static void roles(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, chatml);
    c.chat.eot_tokens = im_end;
    c.chat.n_eot_tokens = 1;
    /* conversations of {from, value}, with role names that are mapped */
    c.chat.field_messages = "conversations";
    c.chat.properties = sharegpt_properties;
    check_record(
        &c.o,
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"1\"}, {\"from\": \"gpt\", "
        "\"value\": \"2\"}, {\"from\": \"critic\", \"value\": \"3\"}]}",
        "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>⟧\n"
        "<|im_start|>critic\n3<|im_end|>\n");
    /* roles to train go through the same map */
    static const char *const both[] = {"human", "critic"};
    c.chat.roles_to_train = both;
    c.chat.n_roles_to_train = 2;
    check_record(
        &c.o,
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"1\"}, {\"from\": \"gpt\", "
        "\"value\": \"2\"}, {\"from\": \"critic\", \"value\": \"3\"}]}",
        "<|im_start|>user\n⟦1<|im_end|>⟧\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>critic\n⟦3<|im_end|>⟧\n");
    chat_close(&c);
    chat_open(&c, chatml);
    c.o.train_on_inputs = true;
    check_record(&c.o, ROW(S("s") ", " U("1") ", " A("2")),
                 "<|im_start|>system\n⟦s⟧<|im_end|>\n<|im_start|>user\n⟦1⟧<|im_end|>\n"
                 "<|im_start|>assistant\n⟦2⟧<|im_end|>\n");
    c.chat.leading_system_untrained = true;
    check_record(&c.o, ROW(S("s") ", " U("1")),
                 "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n⟦1⟧<|im_end|>\n");
    chat_close(&c);
}

static void system_prompts(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, chatml);
    check_record(&c.o, "{\"system\": \"S\", \"messages\": [" U("1") "]}",
                 "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n1<|im_end|>\n");
    check_record(&c.o, "{\"system\": \"S\", \"messages\": [" S("T") ", " U("1") "]}",
                 "<|im_start|>system\nT<|im_end|>\n<|im_start|>user\n1<|im_end|>\n");
    check_record(&c.o, "{\"system\": \"\", \"messages\": [" U("1") "]}",
                 "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n1<|im_end|>\n");
    check_record(&c.o, "{\"system\": null, \"messages\": [" U("1") "]}",
                 "<|im_start|>user\n1<|im_end|>\n");
    static const char *const trained[] = {"system", "assistant"};
    c.chat.roles_to_train = trained;
    c.chat.n_roles_to_train = 2;
    check_record(&c.o, "{\"system\": \"S\", \"messages\": [" U("1") ", " A("2") "]}",
                 "<|im_start|>system\n⟦S⟧<|im_end|>\n<|im_start|>user\n1<|im_end|>\n"
                 "<|im_start|>assistant\n⟦2⟧<|im_end|>\n");
    c.chat.n_roles_to_train = 0;
    check_record(&c.o, "{\"system\": \"S\", \"messages\": [" A("2") "]}",
                 "<|im_start|>system\nS<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n");
    c.chat.roles_to_train = default_trained;
    c.chat.n_roles_to_train = 1;
    c.chat.drop_system = true;
    check_record(&c.o, "{\"messages\": [" S("T") ", " U("1") ", " A("2") "]}",
                 "<|im_start|>user\n1<|im_end|>\n<|im_start|>assistant\n⟦2⟧<|im_end|>\n");
    check_record(&c.o, "{\"system\": \"S\", \"messages\": [" U("1") "]}",
                 "<|im_start|>user\n1<|im_end|>\n");
    chat_close(&c);
}

static void training_fields(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, chatml);
    c.chat.eot_tokens = im_end;
    c.chat.n_eot_tokens = 1;
    c.chat.field_training = "train";
    check_record(
        &c.o,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"1\", \"train\": true}, {\"role\": "
        "\"assistant\", \"content\": \"2\", \"train\": false}, {\"role\": \"assistant\", "
        "\"content\": \"3\"}, {\"role\": \"assistant\", \"content\": \"4\", \"train\": null}]}",
        "<|im_start|>user\n⟦1<|im_end|>⟧\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>assistant\n⟦3<|im_end|>⟧\n<|im_start|>assistant\n⟦4<|im_end|>⟧\n");
    c.chat.field_training_detail = "spans";
    /* "hi world": ends are inclusive */
    check_record(
        &c.o,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi abcd\", \"spans\": "
        "[{\"begin_offset\": 0, \"end_offset\": 2, \"train\": false}, {\"begin_offset\": 3, "
        "\"end_offset\": 4, \"train\": true}, {\"begin_offset\": 5, \"end_offset\": 6, "
        "\"train\": false}]}]}",
        "<|im_start|>user\nhi ⟦ab⟧cd⟦<|im_end|>⟧\n");
    /* " wor" is one token: it is trained with a span that has two of its characters */
    check_record(
        &c.o,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"hi world\", \"spans\": "
        "[{\"begin_offset\": 0, \"end_offset\": 3, \"train\": false}, {\"begin_offset\": 4, "
        "\"end_offset\": 7, \"train\": true}]}]}",
        "<|im_start|>assistant\nhi⟦ world<|im_end|>⟧\n");
    check_record(
        &c.o,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"hi world\", \"spans\": "
        "[{\"begin_offset\": 0, \"end_offset\": 4, \"train\": false}, {\"begin_offset\": 5, "
        "\"end_offset\": 7, \"train\": true}]}]}",
        "<|im_start|>assistant\nhi wor⟦ld<|im_end|>⟧\n");
    check_record(
        &c.o,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"hi world\", \"spans\": "
        "[{\"begin_offset\": 0, \"end_offset\": 2, \"train\": true}, {\"begin_offset\": 3, "
        "\"end_offset\": 3, \"train\": true}]}]}",
        "<|im_start|>assistant\n⟦hi wor⟧ld⟦<|im_end|>⟧\n");
    check_record(&c.o,
                 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"hi world\", \"spans\": "
                 "[{\"begin_offset\": 4, \"end_offset\": 5, \"train\": true}]}]}",
                 "<|im_start|>assistant\nhi⟦ wor⟧ld⟦<|im_end|>⟧\n");
    /* and not with one that has one of them */
    check_record(&c.o,
                 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"hi world\", \"spans\": "
                 "[{\"begin_offset\": 0, \"end_offset\": 2, \"train\": true}]}]}",
                 "<|im_start|>assistant\n⟦hi⟧ world⟦<|im_end|>⟧\n");
    check_record(&c.o,
                 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"hi world\", \"spans\": "
                 "[{\"begin_offset\": 0, \"end_offset\": 3, \"train\": true}]}]}",
                 "<|im_start|>assistant\n⟦hi wor⟧ld⟦<|im_end|>⟧\n");
    /* offsets count characters, and may pass the end */
    check_record(
        &c.o,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"日本é.\", \"spans\": "
        "[{\"begin_offset\": 1, \"end_offset\": 2, \"train\": true}, {\"begin_offset\": 3, "
        "\"end_offset\": 99, \"train\": false}]}]}",
        "<|im_start|>assistant\n日⟦本é⟧.⟦<|im_end|>⟧\n");
    /* the message's own word goes first; an empty list of spans trains nothing */
    check_record(
        &c.o,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"ab\", \"train\": false, "
        "\"spans\": [{\"begin_offset\": 0, \"end_offset\": 0, \"train\": true}]}, {\"role\": "
        "\"assistant\", \"content\": \"cd\", \"spans\": []}]}",
        "<|im_start|>assistant\nab<|im_end|>\n<|im_start|>assistant\ncd<|im_end|>\n");
    check_bad_record(&c.o, ROW("{\"role\": \"user\", \"content\": \"1\", \"train\": \"yes\"}"),
                     "messages[0]: train: expected true, false, 1 or 0, got text");
    /* OpenAI's weights, as JSON and as a table have them: a turn is trained on or not */
    c.chat.field_training = "weight";
    check_record(&c.o,
                 ROW("{\"role\": \"assistant\", \"content\": \"1\", \"weight\": 0}, {\"role\": "
                     "\"assistant\", \"content\": \"2\", \"weight\": 1}, {\"role\": \"assistant\", "
                     "\"content\": \"3\", \"weight\": 0.0}, {\"role\": \"assistant\", "
                     "\"content\": \"4\", \"weight\": 1.0}"),
                 "<|im_start|>assistant\n1<|im_end|>\n<|im_start|>assistant\n⟦2<|im_end|>⟧\n"
                 "<|im_start|>assistant\n3<|im_end|>\n<|im_start|>assistant\n⟦4<|im_end|>⟧\n");
    check_bad_record(&c.o, ROW("{\"role\": \"assistant\", \"content\": \"1\", \"weight\": 2}"),
                     "messages[0]: weight: expected 0 (not trained on) or 1, got 2");
    check_bad_record(&c.o, ROW("{\"role\": \"assistant\", \"content\": \"1\", \"weight\": 0.5}"),
                     "messages[0]: weight: expected 0 (not trained on) or 1, got 0.5");
    c.chat.field_training = "train";
    check_bad_record(
        &c.o,
        ROW("{\"role\": \"user\", \"content\": \"1\", \"spans\": [{\"begin_offset\": 2, "
            "\"end_offset\": 1, \"train\": true}]}"),
        "messages[0]: spans: [0]: expected");
    chat_close(&c);
    chat_open(&c, "{% for m in messages %}{{ m.content | upper }}</s>{% endfor %}");
    c.chat.field_training_detail = "spans";
    check_bad_record(
        &c.o,
        ROW("{\"role\": \"user\", \"content\": \"abc\", \"spans\": [{\"begin_offset\": 0, "
            "\"end_offset\": 1, \"train\": true}]}"),
        "but the chat template changes the text of that message");
    chat_close(&c);
}

static void parts(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, full_chat);
    c.chat.eot_tokens = eot;
    c.chat.n_eot_tokens = 1;
    /* without flags the parts are one text */
    check_record(
        &c.o,
        ROW("{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
            "\"b\", {\"content\": \"c\"}, {\"value\": \"d\"}]}"),
        "<s><|im_start|>assistant\n\n⟦abcd<|eot|>⟧");
    /* flags: parts without one are trained, whatever the role */
    check_record(
        &c.o,
        ROW("{\"role\": \"assistant\", \"content\": [{\"text\": \"ab\", \"train\": false}, "
            "{\"text\": \"cd\"}, {\"text\": \"ef\", \"weight\": 0}, {\"text\": \"gh\", "
            "\"weight\": 1.0}]}"),
        "<s><|im_start|>assistant\n\nab⟦cd⟧ef⟦gh<|eot|>⟧");
    check_record(&c.o,
                 ROW("{\"role\": \"user\", \"content\": [{\"text\": \"ab\"}, {\"text\": \"cd\", "
                     "\"train\": true}]}"),
                 "<s><|im_start|>user\n\n⟦abcd<|eot|>⟧");
    /* reasoning has parts too; then the content is only trained by parts of its own */
    check_record(
        &c.o,
        ROW("{\"role\": \"assistant\", \"content\": \"x\", \"reasoning_content\": [{\"text\": "
            "\"ab\", \"train\": false}, {\"text\": \"cd\", \"train\": true}]}"),
        "<s><|im_start|>assistant\n\n<think>ab⟦cd⟧</think>x⟦<|eot|>⟧");
    check_bad_record(
        &c.o, ROW("{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"url\": \"x\"}]}"),
        "messages[0]: content[0]: a part of type \"image\" is no text of the message; remove it");
    /* types that are not text are no part of the answer */
    check_record(
        &c.o,
        ROW("{\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": "
            "\"ab\"}, "
            "{\"type\": \"output_text\", \"text\": \"x\"}, {\"type\": \"reasoning\", \"text\": "
            "\"cd\"}]}"),
        "<s><|im_start|>assistant\n\n⟦<think>abcd</think>x<|eot|>⟧");
    static const char *const others[] = {"refusal", "tool_call", "tool_use", "image_url", "audio"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char row[256], why[128];
        snprintf(row, sizeof row,
                 ROW("{\"role\": \"assistant\", \"content\": [\"a\", {\"type\": \"%s\", \"text\": "
                     "\"b\", "
                     "\"%s\": \"c\"}]}"),
                 others[i], others[i]);
        snprintf(why, sizeof why, "content[1]: a part of type \"%s\" is no text", others[i]);
        check_bad_record(&c.o, row, why);
    }
    check_bad_record(&c.o,
                     ROW("{\"role\": \"assistant\", \"reasoning_content\": \"a\", \"content\": "
                         "[{\"type\": \"thinking\", \"thinking\": \"b\"}]}"),
                     "content[0]: a part of type \"thinking\"");
    check_bad_record(&c.o, ROW("{\"role\": \"user\", \"content\": [{\"url\": \"x\"}]}"),
                     "messages[0]: content[0]: expected a part with text, got an object");
    chat_close(&c);
}

static void tools(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, full_chat);
    c.chat.eot_tokens = eot;
    c.chat.n_eot_tokens = 1;
    /* arguments and schemas may be JSON in a string; the call is trained, the tool's answer not */
    const char *want =
        "<s>TOOLS [{\"function\": {\"name\": \"f\", \"parameters\": {\"a\": 1}}}]<|eot|>"
        "<|im_start|>user\n\n1<|eot|><|im_start|>assistant\n\n⟦CALL f {\"x\": [1, 2.0]}<|eot|>⟧"
        "<|im_start|>tool\n\n42 (f)<|eot|><|im_start|>assistant\n\n⟦It is 42.<|eot|>⟧";
#define CALL(arguments)                                                                            \
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"type\": \"function\", "      \
    "\"function\": {\"name\": \"f\", \"arguments\": " arguments "}}]}"
#define REST ", {\"role\": \"tool\", \"content\": \"42\", \"name\": \"f\"}, " A("It is 42.")
    check_record(&c.o,
                 "{\"messages\": [" U("1") ", " CALL("{\"x\": [1, 2.0]}") REST
                 "], \"tools\": "
                 "[{\"function\": {\"name\": \"f\", \"parameters\": {\"a\": 1}}}]}",
                 want);
    check_record(&c.o,
                 "{\"messages\": [" U("1") ", " CALL("\"{\\\"x\\\": [1, 2.0]}\"") REST
                 "], \"tools\": [{\"function\": {\"name\": \"f\", \"parameters\": \"{\\\"a\\\": "
                 "1}\"}}]}",
                 want);
    check_record(
        &c.o,
        "{\"messages\": [" U("1") ", " CALL("\"{\\\"x\\\": [1, 2.0]}\"") REST
        "], \"tools\": \"[{\\\"function\\\": {\\\"name\\\": \\\"f\\\", \\\"parameters\\\": "
        "{\\\"a\\\": 1}}}]\"}",
        want);
    check_record(&c.o, "{\"messages\": [" U("1") "], \"tools\": null}",
                 "<s><|im_start|>user\n\n1<|eot|>");
    check_bad_record(
        &c.o, ROW(CALL("\"{x}\"")),
        "messages[0]: tool_calls[0].function: arguments: expected JSON text (text:1:2: ");
    check_bad_record(&c.o, "{\"messages\": [" U("1") "], \"tools\": {}}", "tools: expected a list");
    check_bad_record(&c.o,
                     "{\"messages\": [" U("1") "], \"tools\": [{\"function\": {\"parameters\": "
                                               "\"{\"}}]}",
                     "tools[0].function: parameters: expected JSON text (text:1:2");
    chat_close(&c);
}

static void reasoning(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, full_chat);
    c.chat.eot_tokens = eot;
    c.chat.n_eot_tokens = 1;
    /* reasoning is trained with the turn */
    check_record(&c.o,
                 ROW("{\"role\": \"assistant\", \"content\": \"x\", \"reasoning_content\": \"r\"}"),
                 "<s><|im_start|>assistant\n\n⟦<think>r</think>x<|eot|>⟧");
    c.chat.field_thinking = "thought";
    check_record(&c.o, ROW("{\"role\": \"assistant\", \"content\": \"x\", \"thought\": \"r\"}"),
                 "<s><|im_start|>assistant\n\n⟦<think>r</think>x<|eot|>⟧");
    c.chat.split_thinking = true;
    static const char *const texts[][2] = {
        {"<think>\\n r \\n</think>\\n\\n x", "⟦<think>r</think>x<|eot|>⟧"},
        {"<reasoning>r</reasoning>x", "⟦<think>r</think>x<|eot|>⟧"},
        {"<|begin_of_thought|>r<|end_of_thought|> <|begin_of_solution|>x<|end_of_solution|>y",
         "⟦<think>r</think>x<|eot|>⟧"},
        {"x</think>y", "⟦x</think>y<|eot|>⟧"},
        {"</think>x<think>", "⟦</think>x<think><|eot|>⟧"},
    };
    for (size_t i = 0; i < 5; i++) {
        char row[256];
        char want[256];
        snprintf(row, sizeof row,
                 "{\"messages\": [{\"role\": \"assistant\", \"content\": \"%s\"}]}", texts[i][0]);
        snprintf(want, sizeof want, "<s><|im_start|>assistant\n\n%s", texts[i][1]);
        check_record(&c.o, row, want);
    }
    /* only the assistant's texts are split */
    check_record(&c.o, ROW(U("<think>r</think>x")),
                 "<s><|im_start|>user\n\n<think>r</think>x<|eot|>");
    chat_close(&c);
    /* a template that reads it as `thinking` gets it; of other names only those that it reads, as in axolotl */
    chat_open(&c, "{% for m in messages %}{{ m.role }}:{% if m.thinking %}<{{ m.thinking }}>"
                  "{% endif %}{{ m.content }}<|eot|>{% endfor %}");
    c.chat.eot_tokens = eot;
    c.chat.n_eot_tokens = 1;
    check_record(&c.o,
                 ROW("{\"role\": \"assistant\", \"content\": \"x\", \"reasoning_content\": \"r\"}"),
                 "assistant:⟦<r>x<|eot|>⟧");
    check_record(&c.o, ROW("{\"role\": \"assistant\", \"content\": \"x\", \"reasoning\": \"r\"}"),
                 "assistant:⟦x<|eot|>⟧");
    chat_close(&c);
}

static void row_shapes(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, chatml);
    check_record(&c.o,
                 "{\"messages\": \"[{\\\"role\\\": \\\"user\\\", \\\"content\\\": \\\"1\\\"}]\"}",
                 "<|im_start|>user\n1<|im_end|>\n");
    check_record(&c.o, ROW("{\"role\": \"user\"}, " U("1")),
                 "<|im_start|>user\n<|im_end|>\n<|im_start|>user\n1<|im_end|>\n");
    check_record(&c.o,
                 "{\"messages\": [" U("1") "], \"images\": [], \"image\": {\"bytes\": null, "
                                           "\"path\": \"\"}}",
                 "<|im_start|>user\n1<|im_end|>\n"); /* which are none */
    /* a message key that the template does not read is left out; one that it reads is not */
    check_record(&c.o, ROW("{\"role\": \"user\", \"content\": \"1\", \"extra\": {\"a\": null}}"),
                 "<|im_start|>user\n1<|im_end|>\n");
    static const char *const bad[][2] = {
        {"{\"text\": \"x\"}",
         "column \"messages\" (field_messages) is missing or null; the record has \"text\"; "
         "these columns look like type: completion, field: text"},
        {"{\"messages\": []}", "messages: the list of messages is empty"},
        {"{\"messages\": {}}", "messages: expected a list of messages, got an object"},
        {"{\"messages\": \"[\"}", "messages: expected JSON text (text:1:2"},
        {ROW("\"x\""), "messages[0]: expected a message"},
        {ROW(U("x") ", {\"content\": \"x\"}"),
         "messages[1]: role: expected the name of a role, got nothing"},
        {ROW("{\"role\": 1, \"content\": \"x\"}"),
         "role: expected the name of a role, got a number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad_record(&c.o, bad[i][0], bad[i][1]);
    chat_close(&c);
    chat_open(&c, plain_chat);
    check_bad_record(&c.o, ROW(S("x") ", " U("y")), "no system turns here");
    check_bad_record(&c.o, ROW(U("x") ", {\"role\": \"tool\", \"content\": \"y\"}"),
                     "no tool turns here");
    chat_close(&c);
}

/* A record may have variables for the template, which come after those of the configuration. */
static void variables(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, "{{ style }} {{ other }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
                  "{{ m.content }}<|im_end|>\n{% endfor %}");
    json_t *usual = json_pack("{s:s, s:s}", "style", "thus", "other", "2");
    c.chat.variables = usual;
    check_record(&c.o, ROW(A("1")), "thus 2<|im_start|>assistant\n⟦1⟧<|im_end|>\n");
    check_record(&c.o,
                 "{\"messages\": [" A("1") "], \"chat_template_kwargs\": {\"style\": \"so\", "
                                           "\"other\": null, \"messages\": 3}}",
                 "so 2<|im_start|>assistant\n⟦1⟧<|im_end|>\n");
    struct ax_format *f;
    struct ax_example_list l = {0};
    assert_ok(ax_format_new(&f, &c.o));
    assert_error(run_record(f, "{\"messages\": [" A("1") "], \"chat_template_kwargs\": [1]}", &l),
                 AX_ERR_DATA, "chat_template_kwargs: expected an object");
    ax_example_list_free(&l);
    ax_format_free(f);
    json_decref(usual);
    chat_close(&c);
}

static void generation_blocks(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
                  "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{{ '\n' }}"
                  "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}");
    c.chat.by_generation = true;
    check_record(&c.o, ROW(U("é") ", " A("日本") ", " U("3") ", " A("")),
                 "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n⟦日本<|im_end|>⟧\n"
                 "<|im_start|>user\n3<|im_end|>\n<|im_start|>assistant\n⟦<|im_end|>⟧\n");
    chat_close(&c);
    /* a token that a span only touches is trained whole; empty spans train nothing */
    chat_open(&c, "{% for m in messages %}a w{% generation %}{{ m.content }}{% endgeneration %}ld"
                  "{% endfor %}");
    c.chat.by_generation = true;
    check_record(&c.o, ROW(A("or") ", " A("")), "a⟦ wor⟧lda wld");
    chat_close(&c);
    /* blocks in blocks: all of the outer one is trained, in front of the inner one too */
    chat_open(&c, "{% for m in messages %}x{% generation %}ab{% generation %}{{ m.content }}"
                  "{% endgeneration %}cd{% endgeneration %}y{% endfor %}");
    c.chat.by_generation = true;
    check_record(&c.o, ROW(A("1") ", " A("2")), "x⟦ab1cd⟧yx⟦ab2cd⟧y");
    chat_close(&c);
    chat_open(&c, chatml);
    c.chat.by_generation = true;
    struct ax_format *f;
    assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG, "no {% generation %} blocks");
    chat_close(&c);
}

static void eot_tokens(void **state) {
    (void)state;
    struct chat_case c;
    struct ax_format *f;
    chat_open(&c, chatml);
    assert_ok(ax_format_new(&f, &c.o));
    assert_non_null(
        strstr(ax_format_warnings(f), "EOS token \"</s>\" does not appear in the chat"));
    ax_format_free(f);
    static const char *const absent[] = {"<|eot|>", "<|im_end|>"};
    c.chat.eot_tokens = absent;
    c.chat.n_eot_tokens = 2;
    assert_ok(ax_format_new(&f, &c.o));
    assert_non_null(
        strstr(ax_format_warnings(f), "\"<|eot|>\" does not appear in the chat template"));
    for (int32_t id = 0; id < (int32_t)ax_tokenizer_size(c.o.tokenizer); id++)
        assert_int_equal(ax_format_is_end(f, id), id == EOS || id == IM_END);
    ax_format_free(f);
    static const char *const several[] = {"\n"
                                          "{% endfor"};
    c.chat.eot_tokens = several;
    c.chat.n_eot_tokens = 1;
    assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG, "is 9 tokens; add it under `tokens:`");
    chat_close(&c);
    chat_open(&c, plain_chat);
    static const char *const eos[] = {"</s>"};
    c.chat.eot_tokens = eos;
    c.chat.n_eot_tokens = 1;
    c.chat.train_on_eot = AX_TRAIN_ALL;
    assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG, "must be the same");
    c.chat.train_on_eos = AX_TRAIN_ALL;
    assert_ok(ax_format_new(&f, &c.o));
    assert_string_equal(ax_format_warnings(f), "");
    ax_format_free(f);
    chat_close(&c);
}

/* A template that leaves out the reasoning before the last question: the turns are where the whole text has them. */
static void rewritten(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, chatml);
    ax_template_free(c.template);
    assert_ok(ax_template_builtin(&c.template, "qwen3"));
    c.chat.template = c.template;
#define THINK(text, why)                                                                           \
    "{\"role\": \"assistant\", \"content\": \"" text "\", \"reasoning_content\": \"" why "\"}"
#define CALLS(why)                                                                                 \
    "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"" why                   \
    "\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]}"
#define CALLED "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
#define CALLS_TEXT                                                                                 \
    "{\"role\": \"assistant\", \"content\": \"calling\", \"tool_calls\": [{\"function\": "         \
    "{\"name\": "                                                                                  \
    "\"f\", \"arguments\": {\"a\": 1}}}]}"
#define RESULT(text) "{\"role\": \"tool\", \"content\": \"" text "\"}"
    check_record(&c.o, ROW(U("q") ", " THINK("one", "since") ", " U("r") ", " THINK("two", "as")),
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦one⟧<|im_end|>\n"
                 "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n"
                 "<think>\n⟦as\n</think>\n\ntwo⟧<|im_end|>\n");
    check_record(&c.o,
                 ROW(U("q") ", " CALLS("see") ", " RESULT("7") ", " THINK("one", "since") ", " U(
                     "r") ", " CALLS("so") ", " RESULT("8") ", " THINK("two", "as")),
                 "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n⟦" CALLED "⟧<|im_end|>\n"
                 "<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n"
                 "<|im_start|>assistant\n⟦one⟧<|im_end|>\n<|im_start|>user\nr<|im_end|>\n"
                 "<|im_start|>assistant\n⟦<think>\nso\n</think>\n\n" CALLED "⟧<|im_end|>\n"
                 "<|im_start|>user\n<tool_response>\n8\n</tool_response><|im_end|>\n"
                 "<|im_start|>assistant\n<think>\n⟦as\n</think>\n\ntwo⟧<|im_end|>\n");
    /* a template that reads answers in a way that another text does not allow */
    ax_template_free(c.template);
    static const char strict[] =
        "{% for m in messages %}{% if m.role == 'tool' and not messages[loop.index0 - "
        "1].tool_calls %}"
        "{{ raise_exception('a result without a call') }}{% endif %}<|im_start|>"
        "{{ m.content if loop.last else m.content[:1] }}<|im_end|>{% endfor %}";
    assert_ok(ax_template_compile(&c.template, "t", strict, strlen(strict)));
    c.chat.template = c.template;
    check_bad_record(&c.o, ROW(U("q") ", " CALLS_TEXT ", " RESULT("7") ", " A("one")),
                     "message 2: the chat template writes it differently when others follow");
    chat_close(&c);
}

static void use_template(struct chat_case *c, const char *source) {
    ax_template_free(c->template);
    assert_ok(ax_template_compile(&c->template, "t", source, strlen(source)));
    c->chat.template = c->template;
}

/* Tokens over an end of a turn are the turn's, and no others, as in axolotl 0.19; a system message may be a part of the
 * next one. */
static void ends_of_turns(void **state) {
    (void)state;
    static const char *const all[] = {"system", "user", "assistant"};
    struct chat_case c;
    chat_open(&c, chatml);
    c.chat.roles_to_train = all;
    c.chat.n_roles_to_train = 3;
    use_template(&c, "{% for m in messages %}{{ m.role }} {{ m.content }}ld{% endfor %}");
    check_record(&c.o, ROW(U("world wor") ", " A("1")), "user⟦ world wor⟧ldassistant ⟦1⟧ld");
    use_template(&c, "{% for m in messages %}{{ m.role }}\n\n{{ m.content }}\n\n{% endfor %}");
    check_record(&c.o, ROW(U("\\nor") ", " A("12\\n")),
                 "user\n\n⟦\nor⟧\n\nassistant\n\n⟦12\n\n⟧\n");
    use_template(
        &c,
        "{% for m in messages[1:] %}[{% if loop.first %}{{ messages[0].content }}: {% endif %}{{ "
        "m.content }}]{% endfor %}");
    check_record(&c.o, ROW(S("be brief") ", " U("q") ", " A("7")), "[⟦be brief⟧: ⟦q⟧][⟦7⟧]");
    chat_close(&c);
}

static void enough_rows(void **state) {
    (void)state;
    assert_true(rows_checked >= 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns),
        cmocka_unit_test(eos_rules),
        cmocka_unit_test(roles),
        cmocka_unit_test(system_prompts),
        cmocka_unit_test(training_fields),
        cmocka_unit_test(parts),
        cmocka_unit_test(tools),
        cmocka_unit_test(reasoning),
        cmocka_unit_test(row_shapes),
        cmocka_unit_test(variables),
        cmocka_unit_test(generation_blocks),
        cmocka_unit_test(eot_tokens),
        cmocka_unit_test(rewritten),
        cmocka_unit_test(ends_of_turns),
        cmocka_unit_test(enough_rows),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
