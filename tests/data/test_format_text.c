/* Prompt and response, completion, pretraining, segments, ids and random ids: each row against a
 * document written by hand. ⟦…⟧ is trained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/scratch.h"
#include "tests/data/format_case.h"

#define SYS                                                                                        \
    "Below is an instruction that describes a task, paired with an input that provides further "   \
    "context. Write a response that appropriately completes the request."
#define SYS0                                                                                       \
    "Below is an instruction that describes a task. Write a response that appropriately "          \
    "completes the request."

static struct ax_format_options options(const char *type, const struct ax_tokenizer *t) {
    return (struct ax_format_options){
        .type = type, .tokenizer = t, .sequence_len = 1000, .pad = PAD, .field = "text"};
}

static void alpaca(void **state) {
    (void)state;
    const struct ax_format_options bare = options("alpaca", bare_tokenizer);
    const struct ax_format_options bos = options("alpaca", bos_tokenizer);
    const char *row = "{\"instruction\": \"Add.\", \"input\": \"1 2\", \"output\": \"3\"}";
    check_record(&bare, row,
                 SYS "\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n⟦3</s>⟧");
    check_record(&bos, row,
                 "<s>" SYS
                 "\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n⟦3</s>⟧");
    static const char *const no_input[] = {
        "{\"instruction\": \"Add.\", \"input\": \"\", \"output\": \"3\"}",
        "{\"instruction\": \"Add.\", \"input\": null, \"output\": \"3\"}",
        "{\"instruction\": \"Add.\", \"output\": \"3\", \"other\": [1]}"};
    for (int i = 0; i < 3; i++)
        check_record(&bare, no_input[i],
                     SYS0 "\n\n### Instruction:\nAdd.\n\n### Response:\n⟦3</s>⟧");
    /* prompt and response are tokenized apart: the line breaks between them do not merge */
    check_record(&bare, "{\"instruction\": \"\", \"output\": \"\\n3\"}",
                 SYS0 "\n\n### Instruction:\n\n\n### Response:\n⟦\n3</s>⟧");
    /* a blank response is nothing to learn from, EOS neither */
    check_bad_record(&bos, "{\"instruction\": \"x\", \"output\": \"\"}",
                     "output: the answer is empty");
    check_bad_record(&bos, "{\"instruction\": \"x\", \"output\": \" \\u00a0\\u3000\\n\"}",
                     "output: the answer is empty");
    /* a response that ends with EOS gets no second one, and special tokens are seen inside text */
    check_record(&bos, "{\"instruction\": \"x<|im_end|>\", \"output\": \"y<|eot|>z</s>\"}",
                 "<s>" SYS0 "\n\n### Instruction:\nx<|im_end|>\n\n### Response:\n⟦y<|eot|>z</s>⟧");
    struct ax_format_options inputs = bos;
    inputs.train_on_inputs = true;
    check_record(&inputs, "{\"instruction\": \"x\", \"output\": \"y\"}",
                 "⟦<s>" SYS0 "\n\n### Instruction:\nx\n\n### Response:\ny</s>⟧");
    /* a tokenizer that closes texts itself: the prompt keeps what it adds */
    check_record(&(struct ax_format_options){.type = "alpaca",
                                             .tokenizer = both_tokenizer,
                                             .sequence_len = 1000},
                 "{\"instruction\": \"x\", \"output\": \"y\"}",
                 "<s>" SYS0 "\n\n### Instruction:\nx\n\n### Response:\n</s>⟦y</s>⟧");
}

static void alpaca_styles(void **state) {
    (void)state;
    const char *with = "{\"instruction\": \"I\", \"input\": \"X\", \"output\": \"R\"}";
    const char *without = "{\"instruction\": \"I\", \"output\": \"R\"}";
    const struct ax_format_options chat = options("alpaca:chat", bare_tokenizer);
    check_record(&chat, with, "SYSTEM: " SYS "\nUSER: I\nX\nASSISTANT:⟦R</s>⟧");
    check_record(&chat, without, "SYSTEM: " SYS0 "\nUSER: I\nASSISTANT:⟦R</s>⟧");
    const struct ax_format_options chatml = options("alpaca:chatml", bare_tokenizer);
    check_record(&chatml, with,
                 "<|im_start|>system\n" SYS "<|im_end|>\n<|im_start|>user\nI\nX<|im_end|>\n"
                 "<|im_start|>assistant\n⟦R</s>⟧");
    check_record(&chatml, without,
                 "<|im_start|>system\n" SYS0 "<|im_end|>\n<|im_start|>user\nI<|im_end|>\n"
                 "<|im_start|>assistant\n⟦R</s>⟧");
    const struct ax_format_options phi = options("alpaca:phi", bare_tokenizer);
    check_record(&phi, with, "<|system|>\n" SYS "<|end|>\n<|user|>\nI<|end|>X<|assistant|>⟦R</s>⟧");
    check_record(&phi, without,
                 "<|system|>\n" SYS0 "<|end|>\n<|user|>\nI<|end|>\n<|assistant|>\n⟦R</s>⟧");
}

static void relatives(void **state) {
    (void)state;
    const struct ax_format_options gpteacher = options("gpteacher", bare_tokenizer);
    check_record(&gpteacher, "{\"instruction\": \"I\", \"input\": \"X\", \"response\": \"R\"}",
                 SYS "\n\n### Instruction:\nI\n\n### Input:\nX\n\n### Response:\n⟦R</s>⟧");
    check_record(&(struct ax_format_options){.type = "gpteacher:chat",
                                             .tokenizer = bare_tokenizer,
                                             .sequence_len = 1000},
                 "{\"instruction\": \"I\", \"input\": \"\", \"response\": \"R\"}",
                 "SYSTEM: " SYS0 "\nUSER: I\nASSISTANT:⟦R</s>⟧");
    const struct ax_format_options oasst = options("oasst", bare_tokenizer);
    check_record(&oasst, "{\"INSTRUCTION\": \"I\", \"RESPONSE\": \"R\", \"input\": \"unused\"}",
                 SYS0 "\n\n### Instruction:\nI\n\n### Response:\n⟦R</s>⟧");
    const struct ax_format_options jeopardy = options("jeopardy", bos_tokenizer);
    check_record(&jeopardy,
                 "{\"question\": \"It barks\", \"category\": \"PETS\", \"answer\": \"a dog\"}",
                 "<s>" SYS "\n\n### Instruction:\nIt barks\n\n### Input:\nPETS\n\n### Response:\n"
                 "⟦what is a dog</s>⟧");
    check_bad_record(
        &oasst, "{\"INSTRUCTION\": \"I\", \"response\": \"R\"}",
        "column \"RESPONSE\" is missing or null; the record has \"INSTRUCTION\", \"response\"");
    check_bad_record(&jeopardy, "{\"question\": 5, \"category\": \"\", \"answer\": \"x\"}",
                     "question: expected text, got a number");
    check_bad_record(&gpteacher, "{\"instruction\": \"I\", \"input\": [], \"response\": \"R\"}",
                     "input: expected text, got a list");
    check_bad_record(&gpteacher, "{\"instruction\": null, \"response\": \"R\"}",
                     "instruction: expected text, got null");
}

static void truncation(void **state) {
    (void)state;
    /* prompt and response are cut to sequence_len each; a response that fills it gets no EOS */
    struct ax_format_options o = options("alpaca:chat", bos_tokenizer);
    o.sequence_len = 8;
    check_record(&o, "{\"instruction\": \"I\", \"output\": \"abcdefghij\"}", "<s>SYSTEM:⟦abcdefg⟧");
    check_record(&o, "{\"instruction\": \"I\", \"output\": \"abcdefg\"}", "<s>SYSTEM:⟦abcdefg⟧");
    check_record(&o, "{\"instruction\": \"I\", \"output\": \"abcdef\"}", "<s>SYSTEM:⟦abcdef</s>⟧");
    /* what the tokenizer adds behind a text is kept when the text is cut */
    o.tokenizer = both_tokenizer;
    check_record(&o, "{\"instruction\": \"I\", \"output\": \"abcdefghij\"}",
                 "<s>SYSTEM</s>⟦abcdef</s>⟧");
    o.tokenizer = bare_tokenizer;
    check_record(&o, "{\"instruction\": \"I\", \"output\": \"abcdefghij\"}", "SYSTEM: ⟦abcdefgh⟧");
}

static void user_formats(void **state) {
    (void)state;
    struct ax_format_user u = {.system_prompt = "",
                               .system_format = "{system}",
                               .field_system = "system",
                               .field_instruction = "instruction",
                               .field_input = "input",
                               .field_output = "output",
                               .format = "{instruction} {input} ",
                               .no_input_format = "{instruction} "};
    struct ax_format_options o = options(NULL, bos_tokenizer);
    o.user = &u;
    check_record(&o, "{\"instruction\": \"I\", \"input\": \"X\", \"output\": \"R\"}",
                 "<s>I X ⟦R</s>⟧");
    check_record(&o, "{\"instruction\": \"I\", \"output\": \"R\"}", "<s>I ⟦R</s>⟧");
    check_record(&o, "{\"instruction\": \"I\", \"output\": \"R\", \"system\": \"S\"}",
                 "<s>SI ⟦R</s>⟧");
    u.system_prompt = "You are a bot. ";
    u.system_format = "<<{system}>>{{x}}\n";
    u.field_system = "sys";
    u.field_instruction = "q";
    u.field_output = "a";
    u.format = "{{{instruction}}} {input}}}\n";
    u.no_input_format = "[INST] {instruction} [/INST]";
    check_record(&o, "{\"q\": \"I {input}\", \"input\": \"X\", \"a\": \"R\"}",
                 "<s><<You are a bot. >>{x}\n{I {input}} X}\n⟦R</s>⟧");
    check_record(&o, "{\"q\": \"I\", \"a\": \"R\"}",
                 "<s><<You are a bot. >>{x}\n[INST] I [/INST]⟦R</s>⟧");
    /* a column for the system text goes before the prompt of the config, even an empty one */
    check_record(&o, "{\"q\": \"I\", \"a\": \"R\", \"sys\": \"\"}", "<s>[INST] I [/INST]⟦R</s>⟧");
    check_record(&o, "{\"q\": \"I\", \"a\": \"R\", \"sys\": null}", "<s>[INST] I [/INST]⟦R</s>⟧");
    check_bad_record(&o, "{\"instruction\": \"I\", \"a\": \"R\"}", "column \"q\" is missing");
    static const char *const bad[] = {
        "{instruction", "}", "{", "{name}", "{0}", "{instruction!r}", "{ instruction }", "{}"};
    static const struct {
        size_t at;
        const char *key, *names[4]; /* none of them may be there */
    } texts[] = {{offsetof(struct ax_format_user, format), "type.format", {"{system}"}},
                 {offsetof(struct ax_format_user, no_input_format),
                  "type.no_input_format",
                  {"{input}", "{system}"}},
                 {offsetof(struct ax_format_user, system_format),
                  "type.system_format",
                  {"{input}", "{instruction}"}}};
    struct ax_format *f;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        const char **text = (const char **)(void *)((char *)&u + texts[k].at), *own = *text;
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            *text = bad[i];
            assert_error(ax_format_new(&f, &o), AX_ERR_CONFIG, texts[k].key);
        }
        for (int i = 0; texts[k].names[i]; i++) {
            *text = texts[k].names[i];
            assert_error(ax_format_new(&f, &o), AX_ERR_CONFIG, texts[k].key);
        }
        *text = own;
    }
}

static void completion(void **state) {
    (void)state;
    struct ax_format_options o = options("completion", bos_tokenizer);
    check_record(&o, "{\"text\": \"abc\"}", "⟦<s>abc</s>⟧");
    check_record(&o, "{\"text\": \"abc</s>\"}", "⟦<s>abc</s>⟧");
    check_bad_record(&o, "{\"text\": \"\"}", "text: the text is empty");
    check_bad_record(&o, "{\"text\": \" \\n\\t\"}", "text: the text is empty");
    o.sequence_len = 4;
    check_record(&o, "{\"text\": \"abcdefg\"}", "⟦<s>abc⟧ | ⟦defg⟧ | ⟦</s>⟧");
    check_record(&o, "{\"text\": \"abcdef\"}", "⟦<s>abc⟧ | ⟦def</s>⟧");
    o.field = "body";
    check_record(&o, "{\"body\": \"x\", \"text\": \"no\"}", "⟦<s>x</s>⟧");
    check_bad_record(&o, "{\"text\": \"x\"}", "column \"body\" is missing");
    /* beyond 64 documents of sequence_len the text is cut, and then has no EOS */
    o.sequence_len = 1;
    o.tokenizer = bare_tokenizer;
    char json[128];
    struct ax_buf want = {0};
    snprintf(json, sizeof json, "{\"body\": \"%070d\"}", 0);
    for (int i = 0; i < 64; i++)
        assert_ok(ax_buf_puts(&want, i ? " | ⟦0⟧" : "⟦0⟧"));
    check_record(&o, json, want.data);
    ax_buf_free(&want);
}

static void pretrain(void **state) {
    (void)state;
    struct ax_format_options o = options("pretrain", bos_tokenizer);
    o.pretrain = AX_PRETRAIN_WINDOWS;
    o.sequence_len = 8;
    check_record(&o, "{\"text\": \"abc\"}", "⟦<s>abc</s>⟧");
    /* windows of 7 with BOS in each: 6 characters, of which 3 are the last window's */
    check_record(&o, "{\"text\": \"abcdefghijk\"}",
                 "⟦<s>abcdef</s>⟧ | ⟦<s>defghi</s>⟧ | ⟦<s>ghijk</s>⟧");
    check_record(&o, "{\"text\": \"abcdef\"}", "⟦<s>abcdef</s>⟧");
    check_bad_record(&o, "{\"text\": \"\"}", "text: the text is empty");
    check_bad_record(&o, "{\"text\": \" \\n\\t\"}", "text: the text is empty");
    o.pretrain = AX_PRETRAIN_CUT;
    check_record(&o, "{\"text\": \"abcdefghijk\"}", "⟦<s>abcde⟧");
    check_record(&o, "{\"text\": \"ab\"}", "⟦<s>ab⟧");
    o.pretrain = AX_PRETRAIN_JOIN;
    check_record(&o, "{\"text\": \"abcdefghijk\"}", "⟦<s>abcde</s>⟧<pad>");
    check_record(&o, "{\"text\": \"ab\"}", "⟦<s>ab</s>⟧<pad>");
    o.pretrain = AX_PRETRAIN_WHOLE;
    check_record(&o, "{\"text\": \"abcdefghijk\"}", "⟦<s>abcdefghijk</s>⟧");
    o.pretrain = AX_PRETRAIN_WINDOWS;
    o.tokenizer = both_tokenizer;
    check_record(&o, "{\"text\": \"abcdefgh\"}",
                 "⟦<s>abcde</s></s>⟧ | ⟦<s>cdefg</s></s>⟧ | "
                 "⟦<s>efgh</s></s>⟧");
    o.sequence_len = 4; /* room for one character and no overlap */
    check_record(&o, "{\"text\": \"abc\"}", "⟦<s>a</s></s>⟧ | ⟦<s>b</s></s>⟧ | ⟦<s>c</s></s>⟧");
    struct ax_format *f;
    o.sequence_len = 3;
    assert_error(ax_format_new(&f, &o), AX_ERR_CONFIG, "at least 4");
    o.sequence_len = 8;
    o.pretrain = AX_PRETRAIN_JOIN;
    o.pad = AX_NO_TOKEN;
    assert_error(ax_format_new(&f, &o), AX_ERR_CONFIG, "pad_token");
}

static void input_output(void **state) {
    (void)state;
    struct ax_format_options o = options("input_output", bos_tokenizer);
    const char *row =
        "{\"segments\": [{\"label\": false, \"text\": \"<s>Q: \"}, {\"label\": true, \"text\": "
        "\"A</s>\"}, {\"label\": false, \"text\": \"\"}, {\"label\": false, \"text\": \"\\n\"}, "
        "{\"label\": true, \"text\": \"\\nB\"}]}";
    check_record(&o, row, "<s>Q: ⟦A</s>⟧\n⟦\nB⟧");
    o.train_on_inputs = true;
    check_record(&o, row, "⟦<s>Q: A</s>\n\nB⟧");
    check_bad_record(&o, "{\"segments\": []}", "segments: the text is empty");
    o.train_on_inputs = false;
    check_bad_record(&o, "{\"segments\": []}", "segments: the text is empty");
    check_bad_record(&o,
                     "{\"segments\": [{\"label\": false, \"text\": \"x\"}, {\"label\": true, "
                     "\"text\": \" \"}]}",
                     "segments: the text to train on is empty");
    check_bad_record(&o, "{\"text\": \"x\"}", "segments: expected a list, got nothing");
    check_bad_record(&o, "{\"segments\": [{\"label\": \"yes\", \"text\": \"x\"}]}",
                     "segments[0]: expected");
    check_bad_record(&o, "{\"segments\": [{\"label\": true, \"text\": \"x\"}, 5]}", "segments[1]");
}

static void ids(void **state) {
    (void)state;
    const struct ax_format_options o = options(NULL, bare_tokenizer);
    check_record(&o,
                 "{\"input_ids\": [263, 97, 98], \"attention_mask\": [1, 1, 1], "
                 "\"labels\": [-100, 97, -100]}",
                 "<s>⟦a⟧b");
    /* padding is left out; the mask itself may be missing */
    check_record(&o,
                 "{\"input_ids\": [265, 97, 98, 265], \"attention_mask\": [0, 1, 1, 0], "
                 "\"labels\": [-100, -100, 98, -100]}",
                 "a⟦b⟧");
    check_record(&o, "{\"input_ids\": [97], \"labels\": [97]}", "⟦a⟧");
    check_record(&o, "{\"input_ids\": [97, 98]}", "⟦ab⟧");
    /* any type takes rows that have all three columns */
    const struct ax_format_options alpaca_type = options("alpaca", bare_tokenizer);
    check_record(&alpaca_type,
                 "{\"input_ids\": [97], \"attention_mask\": [1], \"labels\": [-100], \"output\": "
                 "\"x\"}",
                 "a");
    static const char *const bad[][2] = {
        {"{\"input_ids\": [97], \"labels\": null}", "labels: expected a list of numbers, got null"},
        {"{\"input_ids\": 97, \"labels\": []}", "input_ids: expected a list"},
        {"{\"input_ids\": [97, 98], \"labels\": [97]}", "input_ids has 2 elements, labels 1"},
        {"{\"input_ids\": [97], \"labels\": [97], \"attention_mask\": [1, 1]}", "attention_mask 2"},
        {"{\"input_ids\": [5000000], \"labels\": [97]}",
         "input_ids[0]: expected an integer of at least"},
        {"{\"input_ids\": [-1], \"labels\": [97]}",
         "input_ids[0]: expected an integer of at least"},
        {"{\"input_ids\": [1.5], \"labels\": [97]}",
         "input_ids[0]: expected an integer of at least"},
        {"{\"input_ids\": [97], \"labels\": [-99]}",
         "labels[0]: expected a token id or -100, got -99"},
        {"{\"input_ids\": [97], \"labels\": [9999999999]}", "labels[0]: expected"},
        {"{\"input_ids\": [97], \"labels\": [97], \"attention_mask\": [2]}", "attention_mask[0]"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_bad_record(&o, bad[i][0], bad[i][1]);
    check_bad_record(&o, "{\"input_ids\": [], \"labels\": []}",
                     "input_ids: the list of tokens is empty");
    check_bad_record(&o, "{\"input_ids\": [97], \"labels\": [97], \"attention_mask\": [0]}",
                     "input_ids: the list of tokens in attention_mask is empty");
    /* labels may be other ids */
    struct ax_format *f;
    struct ax_example_list s = {0};
    assert_ok(ax_format_new(&f, &o));
    assert_ok(run_record(f, "{\"input_ids\": [97, 98], \"labels\": [99, -100]}", &s));
    assert_int_equal(s.labels[0], 99);
    assert_int_equal(s.labels[1], AX_NO_LABEL);
    ax_example_list_free(&s);
    ax_format_free(f);
}

/* Records that a trainer has packed are the documents in them. */
static void packed_ids(void **state) {
    (void)state;
    const struct ax_format_options o = options(NULL, bare_tokenizer);
#define FIVE "{\"input_ids\": [97, 98, 99, 100, 101], \"labels\": [-100, 98, -100, 100, 101], "
    check_record(&o, FIVE "\"position_ids\": [0, 1, 0, 1, 2]}", "a⟦b⟧ | c⟦de⟧");
    check_record(&o, FIVE "\"position_ids\": [0, 1, 2, 3, 4]}", "a⟦b⟧c⟦de⟧");
    check_record(&o, FIVE "\"position_ids\": null, \"seq_lengths\": [1, 4]}", "a | ⟦b⟧c⟦de⟧");
    check_record(&o, FIVE "\"position_ids\": [0, 1, 0, 1, 2], \"seq_lengths\": [2, 3]}",
                 "a⟦b⟧ | c⟦de⟧");
    /* positions of padding say nothing, and those of a padded document may begin anywhere */
    check_record(&o, FIVE "\"position_ids\": [1, 1, 7, 8, 9], \"attention_mask\": [0, 0, 1, 1, 1]}",
                 "c⟦de⟧");
    check_record(&o, FIVE "\"position_ids\": [0, 1, 0, 0, 1], \"attention_mask\": [1, 1, 0, 1, 1]}",
                 "a⟦b⟧ | ⟦de⟧");
    check_record(&o, FIVE "\"seq_lengths\": [2, 3], \"attention_mask\": [1, 1, 0, 1, 1]}",
                 "a⟦b⟧ | ⟦de⟧");
    static const char *const bad[][2] = {
        {"\"position_ids\": [0, 1, 2, 3]}", "position_ids has 4 elements, but there are 5 tokens"},
        {"\"position_ids\": [0, 1, 3, 4, 5]}", "position_ids[2]: expected 2, the one after that of "
                                               "the token before, or 0, which begins a "
                                               "document, got 3"},
        {"\"position_ids\": 3}", "position_ids: expected a list of numbers, got a number"},
        {"\"position_ids\": [0, 1, 2, -3, 4]}", "position_ids[3]: expected an integer"},
        {"\"seq_lengths\": [2, 2]}", "seq_lengths: they add up to 4, but there are 5 tokens"},
        {"\"seq_lengths\": [0, 5]}", "seq_lengths[0]: expected an integer of at least 1"},
        {"\"seq_lengths\": 5}", "seq_lengths: expected a list of numbers, got a number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char row[256];
        snprintf(row, sizeof row, FIVE "%s", bad[i][0]);
        check_bad_record(&o, row, bad[i][1]);
    }
}

static void synthetic(void **state) {
    (void)state;
    struct ax_format_options o = options("_synthetic", bare_tokenizer);
    o.synthetic =
        (struct ax_format_synthetic){.length = 100, .min_id = 50, .max_id = 60, .seed = 3};
    struct ax_format *f;
    struct ax_example_list s = {0};
    struct ax_format_work w = {0};
    assert_ok(ax_format_new(&f, &o));
    json_t *row = json_object();
    for (int i = 0; i < 3; i++)
        assert_ok(ax_format_record(f, &w, row, (struct ax_origin){.record = i / 2}, &s));
    json_decref(row);
    assert_int_equal(s.n, 3);
    assert_memory_equal(s.tokens, s.tokens + 100, 100 * sizeof *s.tokens);
    assert_memory_not_equal(s.tokens, s.tokens + 200, 100 * sizeof *s.tokens);
    bool seen[10] = {0};
    for (size_t i = 0; i < 300; i++) {
        assert_in_range(s.tokens[i], 50, 59);
        assert_int_equal(s.labels[i], s.tokens[i]);
        seen[s.tokens[i] - 50] = true;
    }
    for (int i = 0; i < 10; i++)
        assert_true(seen[i]);
    ax_example_list_free(&s);
    ax_format_free(f);
    o.synthetic.max_id = 50;
    assert_error(ax_format_new(&f, &o), AX_ERR_CONFIG, "max_input_id");
}

static void types(void **state) {
    (void)state;
    static const char *const unknown[] = {"alpaca_chat.load_qa", "completion:chat", "alpac", "",
                                          "chat_template:x"};
    struct ax_format *f;
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const struct ax_format_options o = options(unknown[i], bare_tokenizer);
        assert_error(ax_format_new(&f, &o), AX_ERR_UNSUPPORTED, "are not supported");
    }
    const struct ax_format_options style = options("alpaca:load_no_prompt", bare_tokenizer);
    assert_error(ax_format_new(&f, &style), AX_ERR_CONFIG, "unknown style \"load_no_prompt\"");
    struct ax_tokenizer *t;
    put_tokenizer("noeos", "{}", "null");
    assert_ok(ax_tokenizer_load(&t, in_scratch("noeos")));
    const struct ax_format_options no_eos = options("completion", t);
    assert_error(ax_format_new(&f, &no_eos), AX_ERR_CONFIG, "no eos_token");
    ax_tokenizer_free(t);
}

static void enough_rows(void **state) {
    (void)state;
    assert_true(rows_checked >= 60);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alpaca),       cmocka_unit_test(alpaca_styles),
        cmocka_unit_test(relatives),    cmocka_unit_test(truncation),
        cmocka_unit_test(user_formats), cmocka_unit_test(completion),
        cmocka_unit_test(pretrain),     cmocka_unit_test(input_output),
        cmocka_unit_test(ids),          cmocka_unit_test(packed_ids),
        cmocka_unit_test(synthetic),    cmocka_unit_test(types),
        cmocka_unit_test(enough_rows),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
