/* Prompts: each kind of record against a text written by hand, and conversations and texts against
 * what transformers made of them. All tokens are labeled, so a prompt is in ⟦…⟧. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"
#include "tests/data/answers_case.h"
#include "tests/data/template_case.h"
#include "tests/golden_files.h"

#define U(text)     "{\"role\": \"user\", \"content\": \"" text "\"}"
#define A(text)     "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define USER(text)  "<|im_start|>user\n" text "<|im_end|>\n"
#define REPLY(text) "<|im_start|>assistant\n" text "<|im_end|>\n"
#define HEADER      "<|im_start|>assistant\n"

static void texts(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PROMPT, NULL);
    check_record(&c.o, "{\"prompt\": \"2+3=\"}", "⟦2+3=⟧");
    check_record(&c.o, "{\"prompt\": \"a</s>\", \"answer\": 5}", "⟦a</s>⟧");
    /* what the tokenizer adds to every text, also to one that has it */
    c.o.tokenizer = bos_tokenizer;
    check_record(&c.o, "{\"prompt\": \"2+3=\"}", "⟦<s>2+3=⟧");
    check_record(&c.o, "{\"prompt\": \"<s>a\"}", "⟦<s><s>a⟧");
    c.o.tokenizer = both_tokenizer;
    check_record(&c.o, "{\"prompt\": \"2+3=\"}", "⟦<s>2+3=</s>⟧");
    /* nothing is cut: the corpus has the rule for lengths */
    c.o.tokenizer = bare_tokenizer;
    c.o.sequence_len = 2;
    check_record(&c.o, "{\"prompt\": \"2+3=\"}", "⟦2+3=⟧");
    /* texts need no template */
    c.o.chat = NULL;
    check_record(&c.o, "{\"prompt\": \"2+3=\"}", "⟦2+3=⟧");
    answers_close(&c);
}

static void messages(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PROMPT, NULL);
    check_record(&c.o, "{\"prompt\": [" U("q") "]}", "⟦" USER("q") HEADER "⟧");
    check_record(&c.o, "{\"prompt\": [" U("q") ", " A("a") ", " U("r") "], \"messages\": 7}",
                 "⟦" USER("q") REPLY("a") USER("r") HEADER "⟧");
    /* the header follows whatever comes last, as in TRL */
    check_record(&c.o, "{\"prompt\": [" U("q") ", " A("a") "]}",
                 "⟦" USER("q") REPLY("a") HEADER "⟧");
    /* the name of a container, say */
    check_record(&c.o, "{\"prompt\": [" U("q") "], \"image\": \"repo/name:1\"}",
                 "⟦" USER("q") HEADER "⟧");
    /* the template has its own BOS: the tokenizer adds none */
    c.o.tokenizer = bos_tokenizer;
    check_record(&c.o, "{\"prompt\": [" U("q") "]}", "⟦" USER("q") HEADER "⟧");
    c.chat.chat.properties = sharegpt_properties;
    check_record(&c.o, "{\"prompt\": [{\"from\": \"human\", \"value\": \"q\"}]}",
                 "⟦" USER("q") HEADER "⟧");
    answers_close(&c);
}

static void conversations(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PROMPT, "chat_template");
    check_record(&c.o, "{\"messages\": [" U("q") "]}", "⟦" USER("q") HEADER "⟧");
    check_record(&c.o, "{\"messages\": [" U("q") ", " A("a") "]}", "⟦" USER("q") HEADER "⟧");
    check_record(&c.o,
                 "{\"messages\": [" U("q") ", " A("a") ", " U("r") ", " A("b") ", " A("c") "]}",
                 "⟦" USER("q") REPLY("a") USER("r") HEADER "⟧");
    check_record(&c.o,
                 "{\"messages\": [" U("q") ", " A(
                     "a") ", {\"role\": \"tool\", \"content\": \"5\"}, " A("b") "]}",
                 "⟦" USER("q") REPLY("a") "<|im_start|>tool\n5<|im_end|>\n" HEADER "⟧");
    check_record(&c.o, "{\"system\": \"s\", \"messages\": [" U("q") ", " A("a") "]}",
                 "⟦<|im_start|>system\ns<|im_end|>\n" USER("q") HEADER "⟧");
    c.chat.chat.field_messages = "talk";
    check_record(&c.o, "{\"talk\": [" U("q") ", " A("a") "]}", "⟦" USER("q") HEADER "⟧");
    check_bad_record(&c.o, "{\"messages\": [" U("q") "], \"n\": 1}",
                     "column \"talk\" is missing or null; the record has \"messages\", \"n\"; "
                     "these columns look "
                     "like type: chat_template");
    check_bad_record(&c.o, "{\"talk\": [" A("a") ", " A("b") "]}", "talk: the prompt is empty");
    check_bad_record(&c.o, "{\"talk\": []}", "talk: the list of messages is empty");
    answers_close(&c);
}

/* Tools and variables reach the template; an empty list of tools is none. */
static void variables(void **state) {
    (void)state;
    static const char source[] = "{% if tools is not none %}T{{ tools | length }} {% endif %}"
                                 "{% if loud %}LOUD {% endif %}{{ messages[-1].content }}"
                                 "{% if add_generation_prompt %}>{% endif %}";
    static const char *const types[] = {NULL, "chat_template"};
    for (int k = 0; k < 2; k++) {
        struct answers_case c;
        char row[256];
        answers_open(&c, AX_TASK_PROMPT, types[k]);
        chat_close(&c.chat);
        chat_open(&c.chat, source);
        c.o.chat = &c.chat.chat;
        const char *column = k == 0 ? "prompt" : "messages";
        snprintf(row, sizeof row, "{\"%s\": [" U("q") "], \"tools\": [{\"name\": \"f\"}]}", column);
        check_record(&c.o, row, "⟦T1 q>⟧");
        snprintf(row, sizeof row, "{\"%s\": [" U("q") "], \"tools\": []}", column);
        check_record(&c.o, row, "⟦q>⟧");
        json_t *loud = json_pack("{s:b}", "loud", 1);
        c.chat.chat.variables = loud;
        check_record(&c.o, row, "⟦LOUD q>⟧");
        json_decref(loud);
        answers_close(&c);
    }
}

/* Free with ax_example_list_free. */
static void make(const struct ax_format *f, const char *row, const char *observation,
                 struct ax_example_list *out) {
    struct ax_format_work w = {.observation = observation};
    json_t *record = json_loads(row, JSON_ALLOW_NUL, NULL);
    *out = (struct ax_example_list){0};
    assert_int_equal(ax_format_record(f, &w, record, (struct ax_origin){0}, out), AX_OK);
    json_decref(record);
    ax_format_work_free(&w);
}

/* What an environment adds is as if the last message had ended with it; the record's text is as it was. */
static void observations(void **state) {
    static const struct {
        const char *type, *row, *whole;
    } cases[] = {
        {NULL, "{\"prompt\": [" U("q") "]}", "{\"prompt\": [" U("q You see.") "]}"},
        {NULL, "{\"prompt\": [" U("a\\u0000b") "]}", "{\"prompt\": [" U("a\\u0000b You see.") "]}"},
        {NULL, "{\"prompt\": [" U("q") ", " A("a") "]}",
         "{\"prompt\": [" U("q") ", " A("a You see.") "]}"},
        {"chat_template", "{\"messages\": [" U("q") ", " A("a") "]}",
         "{\"messages\": [" U("q You see.") "]}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answers_case c;
        struct ax_format *f;
        struct ax_example_list got, want;
        answers_open(&c, AX_TASK_PROMPT, cases[i].type);
        assert_int_equal(ax_format_new(&f, &c.o), AX_OK);
        make(f, cases[i].row, " You see.", &got);
        make(f, cases[i].whole, NULL, &want);
        assert_int_equal(got.n_tokens, want.n_tokens);
        assert_memory_equal(got.tokens, want.tokens, got.n_tokens * sizeof *got.tokens);
        ax_example_list_free(&got);
        ax_example_list_free(&want);
        ax_format_free(f);
        answers_close(&c);
    }
}

/* Answers of several turns need messages. */
static void texts_have_no_turns(void **state) {
    struct answers_case c;
    struct ax_format_answers answers;
    (void)state;
    answers_open(&c, AX_TASK_PROMPT, NULL);
    answers = *c.o.answers;
    answers.turns = true;
    c.o.answers = &answers;
    check_bad_record(&c.o, "{\"prompt\": \"q\"}",
                     "prompt: tools and environments need a prompt of messages, not a text");
    check_record(&c.o, "{\"prompt\": [" U("q") "]}", "⟦" USER("q") HEADER "⟧");
    answers_close(&c);
}

static void maps(void **state) {
    (void)state;
    struct answers_case c;
    struct ax_format_answer_map map = {.field_prompt = "question",
                                       .field_system = "system",
                                       .prompt_format = "Question: {prompt}\nAnswer:",
                                       .chosen_format = "",
                                       .rejected_format = "",
                                       .completion_format = ""};
    answers_open(&c, AX_TASK_PROMPT, NULL);
    c.answers.map = &map;
    c.o.chat = NULL;
    check_record(&c.o, "{\"question\": \"2+3?\"}", "⟦Question: 2+3?\nAnswer:⟧");
    c.o.tokenizer = bos_tokenizer;
    map.prompt_format = "{{{system}}} {prompt}";
    check_record(&c.o, "{\"system\": \"s\", \"question\": \"2+3?\"}", "⟦<s>{s} 2+3?⟧");
    check_record(&c.o, "{\"question\": \"2+3?\"}", "⟦<s>{} 2+3?⟧");
    check_bad_record(&c.o, "{\"q\": \"2+3?\", \"a\": 5}",
                     "column \"question\" is missing or null; the record has \"q\", \"a\"");
    check_bad_record(&c.o, "{\"question\": 5}", "question: expected text, got a number");
    check_bad_record(&c.o, "{\"question\": \" \\n\"}", "question: the prompt is empty");
    struct ax_format *f;
    map.prompt_format = "{answer}";
    assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG, "prompt_format");
    answers_close(&c);
}

static void bad_records(void **state) {
    (void)state;
    static const struct {
        const char *row, *why;
    } all[] = {
        {"{}", "column \"prompt\" is missing or null; the record has none"},
        {"{\"problem\": \"q\", \"answer\": 5}",
         "column \"prompt\" is missing or null; the record has \"problem\", \"answer\""},
        {"{\"prompt\": null}", "column \"prompt\" is missing or null; the record has none"},
        {"{\"messages\": [" U("q") "]}",
         "the record has \"messages\"; these columns look like type: chat_template"},
        {"{\"question\": \"q\", \"answer\": \"5\"}", "look like type: {field_prompt: question}"},
        {"{\"instruction\": \"q\", \"output\": \"5\"}",
         "look like type: {field_prompt: instruction}"},
        {"{\"text\": \"q\"}", "look like type: {field_prompt: text}"},
        {"{\"chosen\": \"a\", \"rejected\": \"b\"}", "look like preferences"},
        {"{\"prompt\": 5}", "prompt: expected text or a list of messages, got a number"},
        {"{\"prompt\": \"\"}", "prompt: the prompt is empty"},
        {"{\"prompt\": \" \\n\"}", "prompt: the prompt is empty"},
        {"{\"prompt\": []}", "prompt: the list of messages is empty"},
        {"{\"prompt\": [" U(" ") "]}", "prompt: the prompt is empty"},
        {"{\"prompt\": [7]}", "prompt[0]: expected a message"},
        {"{\"prompt\": [" U("q") "], \"tools\": 7}", "tools: expected a list, got a number"},
        {"{\"prompt\": [" U("q") "], \"image\": {\"path\": \"cat.png\"}}",
         "image: images are not supported"},
    };
    struct answers_case c;
    answers_open(&c, AX_TASK_PROMPT, NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_bad_record(&c.o, all[i].row, all[i].why);
    answers_close(&c);
    /* a template that writes nothing */
    answers_open(&c, AX_TASK_PROMPT, NULL);
    chat_close(&c.chat);
    chat_open(&c.chat, "{% if false %}x{% endif %}");
    c.o.chat = &c.chat.chat;
    check_bad_record(&c.o, "{\"prompt\": [" U("q") "]}", "prompt: the prompt is empty");
    answers_close(&c);
}

static void types(void **state) {
    (void)state;
    static const char *const others[] = {"alpaca", "completion", "chat_template.default",
                                         "chatml.intel", "passthrough"};
    struct answers_case c;
    struct ax_format *f;
    struct ax_example_list l = {0};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char why[256];
        answers_open(&c, AX_TASK_PROMPT, others[i]);
        snprintf(why, sizeof why,
                 "type \"%s\" does not make prompts; expected chat_template, or a map with "
                 "field_prompt and prompt_format, or no `type`, with the column prompt",
                 others[i]);
        assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG, why);
        answers_close(&c);
    }
    answers_open(&c, AX_TASK_PROMPT, NULL);
    c.o.chat = NULL;
    assert_ok(ax_format_new(&f, &c.o));
    assert_error(run_record(f, "{\"prompt\": [" U("q") "]}", &l), AX_ERR_CONFIG,
                 "prompt: messages need a chat template");
    ax_example_list_free(&l);
    ax_format_free(f);
    c.o.type = "chat_template";
    assert_error(ax_format_new(&f, &c.o), AX_ERR_CONFIG, "needs a chat template");
    answers_close(&c);
}

/* ---- the record ---- */

static void check_text(const struct ax_format_options *o, const char *row, const char *want) {
    struct ax_format *f;
    struct ax_example_list l = {.columns = o->columns};
    assert_ok(ax_format_new(&f, o));
    for (size_t i = 0; i < 3; i++) {
        assert_ok(run_record(f, row, &l));
        assert_int_equal(l.n, i + 1);
        assert_false(l.items[i].joined);
        assert_int_equal(l.items[i].n_text, strlen(want));
        assert_memory_equal(l.items[i].text, want, strlen(want));
    }
    ax_example_list_free(&l);
    ax_format_free(f);
}

/* As it was read: all columns in their order, before null ones are dropped and tools are parsed. */
static void records(void **state) {
    (void)state;
    struct answers_case c;
    answers_open(&c, AX_TASK_PROMPT, NULL);
    check_text(
        &c.o,
        "{ \"z\": [1, 2.5, null], \"prompt\": \"q\", \"a\": {\"y\": true, \"b\": \"é\\u0000\"}, "
        "\"none\": null}",
        "{\"z\":[1,2.5,null],\"prompt\":\"q\",\"a\":{\"y\":true,\"b\":\"é\\u0000\"},"
        "\"none\":null}");
    check_text(&c.o, "{\"tools\": \"[{\\\"name\\\": \\\"f\\\"}]\", \"prompt\": [" U("q") "]}",
               "{\"tools\":\"[{\\\"name\\\": \\\"f\\\"}]\",\"prompt\":[{\"role\":\"user\","
               "\"content\":\"q\"}]}");
    c.o.type = "chat_template";
    check_text(&c.o, "{\"messages\": [" U("q") ", " A("a") "], \"n\": 5}",
               "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
               "\"content\":\"a\"}],\"n\":5}");
    answers_close(&c);
}

static void long_records(void **state) {
    (void)state;
    struct answers_case c;
    struct ax_format *f;
    answers_open(&c, AX_TASK_PROMPT, NULL);
    assert_ok(ax_format_new(&f, &c.o));
    const size_t around = strlen("{\"prompt\":\"q\",\"pad\":\"\"}");
    for (size_t over = 0; over < 2; over++) {
        const size_t pad = AX_EXAMPLE_TEXT_MAX - around + over;
        struct ax_example_list l = {.columns = c.o.columns};
        struct ax_buf row = {0};
        assert_ok(ax_buf_puts(&row, "{\"prompt\": \"q\", \"pad\": \""));
        for (size_t i = 0; i < pad; i++)
            assert_ok(ax_buf_puts(&row, "x"));
        assert_ok(ax_buf_puts(&row, "\"}"));
        if (over) {
            assert_error(run_record(f, row.data, &l), AX_ERR_DATA,
                         "the record has more than 1048576 bytes as JSON");
            assert_int_equal(l.n, 0);
        } else {
            assert_ok(run_record(f, row.data, &l));
            assert_int_equal(l.items[0].n_text, AX_EXAMPLE_TEXT_MAX);
        }
        ax_buf_free(&row);
        ax_example_list_free(&l);
    }
    ax_format_free(f);
    answers_close(&c);
}

/* ---- against transformers ---- */

static int goldens;

static void check_ids(const struct ax_format *f, const json_t *row, const json_t *ids,
                      const char *name) {
    struct ax_example_list l = {0};
    char *text = json_dumps(row, 0);
    const enum ax_status st = run_record(f, text, &l);
    if (strcmp(name, "empty_contents") == 0 ||
        strcmp(name, "\u00a0") == 0) { /* transformers renders them; we skip them */
        assert_error(st, AX_ERR_EMPTY, "the prompt is empty");
        ax_free_hook(text);
        return;
    }
    if (st != AX_OK)
        fail_msg("%s: %s", name, ax_error_text());
    assert_int_equal(l.n, 1);
    if (l.items[0].n != json_array_size(ids))
        fail_msg("%s: %zu tokens, not %zu", name, l.items[0].n, json_array_size(ids));
    for (size_t i = 0; i < l.items[0].n; i++)
        if (l.items[0].tokens[i] != json_integer_value(json_array_get(ids, i)))
            fail_msg("%s: token %zu differs", name, i);
    ax_free_hook(text);
    ax_example_list_free(&l);
    goldens++;
}

/* apply_chat_template(…, add_generation_prompt=True, tokenize=True) */
static void check_chats(struct ax_format_options *o, const char *folder, const char *key,
                        const char *type) {
    char path[1200];
    struct ax_json_doc doc;
    struct ax_format *f;
    snprintf(path, sizeof path, "%s/chat.json", folder);
    assert_ok(ax_json_load(&doc, path, (size_t)64 << 20));
    o->type = type;
    assert_ok(ax_format_new(&f, o));
    json_t *c;
    size_t i;
    json_array_foreach(json_object_get(doc.root, "cases"), i, c) {
        const json_t *list = json_object_get(c, "messages");
        const json_t *last = json_array_get(list, json_array_size(list) - 1);
        const bool answered =
            strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
        if (!json_is_true(json_object_get(c, "add_generation_prompt")) ||
            !json_object_get(c, "ids") || (type && answered))
            continue;
        json_t *row = json_pack("{s:O}", key, list);
        if (json_object_get(c, "tools"))
            json_object_set(row, "tools", json_object_get(c, "tools"));
        check_ids(f, row, json_object_get(c, "ids"), json_string_value(json_object_get(c, "name")));
        json_decref(row);
    }
    ax_format_free(f);
    ax_json_free(&doc);
}

/* tokenizer(text)["input_ids"] */
static void check_plain(struct ax_format_options *o, const char *folder) {
    char path[1200];
    struct ax_json_doc doc;
    struct ax_format *f;
    snprintf(path, sizeof path, "%s/cases.json", folder);
    assert_ok(ax_json_load(&doc, path, (size_t)64 << 20));
    o->type = NULL;
    assert_ok(ax_format_new(&f, o));
    json_t *c;
    size_t i;
    json_array_foreach(json_object_get(doc.root, "cases"), i, c) {
        const char *text = json_string_value(json_object_get(c, "text"));
        if (strspn(text, " \t\r\n") == json_string_length(json_object_get(c, "text")))
            continue; /* refused */
        json_t *row = json_pack("{s:O}", "prompt", json_object_get(c, "text"));
        check_ids(f, row, json_object_get(c, "ids_special"), text);
        json_decref(row);
    }
    ax_format_free(f);
    ax_json_free(&doc);
}

static void golden(void **state) {
    (void)state;
    static const char *const names[] = {"llama3_style", "qwen2_style", "sp_bpe", "sp_bpe_legacy"};
    int chats = 0, plain = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct answers_case c;
        struct ax_template *template;
        struct ax_tokenizer *tokenizer;
        char name[128];
        snprintf(name, sizeof name, "tokenizer/%s", names[i]);
        const char *folder = golden_path(name);
        answers_open(&c, AX_TASK_PROMPT, NULL);
        assert_ok(ax_tokenizer_load(&tokenizer, folder));
        assert_ok(ax_template_from_folder(&template, folder, NULL, false));
        json_decref((json_t *)(uintptr_t)c.chat.chat.tokens);
        json_t *tokens;
        assert_ok(ax_template_folder_tokens(&tokens, folder));
        c.chat.chat.tokens = tokens;
        c.chat.chat.template = template;
        c.o.tokenizer = tokenizer;
        c.o.columns = NULL;
        goldens = 0;
        check_chats(&c.o, folder, "prompt", NULL);
        check_chats(&c.o, folder, "messages", "chat_template");
        chats += goldens;
        goldens = 0;
        check_plain(&c.o, folder);
        plain += goldens;
        ax_template_free(template);
        ax_tokenizer_free(tokenizer);
        answers_close(&c);
    }
    printf("%d conversations and %d texts against transformers\n", chats, plain);
    assert_true(chats >= 40 && plain >= 900);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),         cmocka_unit_test(messages),
        cmocka_unit_test(conversations), cmocka_unit_test(variables),
        cmocka_unit_test(observations),  cmocka_unit_test(texts_have_no_turns),
        cmocka_unit_test(maps),          cmocka_unit_test(bad_records),
        cmocka_unit_test(types),         cmocka_unit_test(records),
        cmocka_unit_test(long_records),  cmocka_unit_test(golden),
    };
    const int failed = cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
    printf("%d records\n", rows_checked);
    return failed;
}
