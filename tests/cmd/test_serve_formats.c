/* Calls that must be made, in every format of calls: a model of random weights with a family's chat template makes
 * calls that fit the tools' schemas, each read by the family's own reader. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/serve_case.h"

#define CHAT    "/v1/chat/completions"
#define ANSWERS 24
#define HELLO   "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]"

/* What all formats can write: texts, numbers, words, what may be left out. */
#define BOOK                                                                                       \
    "{\"type\": \"function\", \"function\": {\"name\": \"book\", \"description\": \"Books.\", "    \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"to\": {\"type\": \"string\", "      \
    "\"description\": \"Where to.\"}, \"seats\": {\"$ref\": \"#/$defs/seats\"}, "                  \
    "\"kind\": {\"type\": \"string\", \"enum\": [\"first\", \"second\"]}, "                        \
    "\"back\": {\"type\": \"boolean\"}, \"price\": {\"type\": \"number\", \"minimum\": 1, "        \
    "\"maximum\": 99}}, \"required\": [\"seats\", \"kind\"], \"additionalProperties\": false, "    \
    "\"$defs\": {\"seats\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 12}}}}}"
#define BOOK_MORE                                                                                  \
    "{\"type\": \"function\", \"function\": {\"name\": \"book_more\", \"description\": \"Books.\"" \
    ", \"parameters\": {\"type\": \"object\", \"properties\": {\"n\": {\"type\": \"integer\"}}, "  \
    "\"required\": [\"n\"], \"additionalProperties\": false}}}"
#define CANCEL                                                                                     \
    "{\"type\": \"function\", \"function\": {\"name\": \"cancel\", \"description\": \"Cancels.\"," \
    " \"parameters\": {\"type\": \"object\", \"properties\": {}, \"additionalProperties\": "       \
    "false}}}"
#define TOOLS "\"tools\": [" BOOK ", " BOOK_MORE ", " CANCEL "]"

static struct ax_json_doc goldens;

static int open_goldens(void **state) {
    if (setup(state) != 0)
        return -1;
    return ax_json_load(&goldens, golden_path("tools/formats.json"), (size_t)1 << 22) == AX_OK ? 0
                                                                                               : -1;
}

static int close_goldens(void **state) {
    ax_json_free(&goldens);
    return scratch_remove(state);
}

/* Copies a file of tools_qwen3; in it, two of its tokens have other texts, and none if they are NULL. */
static void put_file(const char *name, const char *file, const char *end, const char *pad) {
    static const char *const ends[] = {"<|im_end|>", "<|endoftext|>"};
    char path[700], *text;
    struct ax_buf out = {0};
    size_t len;
    snprintf(path, sizeof path, "%s/%s", golden_path("runs/models/tools_qwen3"), file);
    assert_int_equal(ax_read_file(path, 1 << 26, &text, &len), AX_OK);
    for (size_t at = 0; at < len;) {
        const char *to = NULL;
        size_t n = 1;
        for (int k = 0; k < 2 && !to; k++)
            if ((k ? pad : end) && strncmp(text + at, ends[k], strlen(ends[k])) == 0) {
                to = k ? pad : end;
                n = strlen(ends[k]);
            }
        assert_int_equal(ax_buf_append(&out, to ? to : text + at, to ? strlen(to) : n), AX_OK);
        at += n;
    }
    snprintf(path, sizeof path, "%s/%s", name, file);
    put_bytes(path, out.data, out.len);
    ax_buf_free(&out);
    ax_free(text);
}

/* The model of tools_qwen3 with a family's template and end tokens. */
static void put_model(const char *name, const json_t *family) {
    const json_t *template = at(family, "template");
    const bool harmony = strcmp(name, "gptoss") == 0, deepseek = strcmp(name, "deepseekv3") == 0;
    const char *end = text_at(family, "eos"), *pad = harmony ? "<|call|>" : "<|pad|>";
    struct ax_buf text = {0};
    char path[128];
    make_folder(name);
    put_file(name, "config.json", NULL, NULL);
    put_file(name, "model.safetensors", NULL, NULL);
    put_file(name, "tokenizer.json", end, pad);
    put_file(name, "tokenizer_config.json", end, pad);
    snprintf(path, sizeof path, "%s/generation_config.json", name);
    if (harmony) /* a turn with calls ends with another token */
        put_text(path, "{\"eos_token_id\": [482, 480]}");
    /* DeepSeek's own template leaves out the definitions of tools */
    assert_int_equal(ax_buf_puts(&text, deepseek ? "{{ tools | tojson }}" : ""), AX_OK);
    assert_int_equal(
        ax_buf_append(&text, json_string_value(template), json_string_length(template)), AX_OK);
    snprintf(path, sizeof path, "%s/chat_template.jinja", name);
    put_bytes(path, text.data, text.len);
    ax_buf_free(&text);
}

static void check_book(const json_t *a) {
    const json_int_t seats = json_integer_value(at(a, "seats"));
    const char *kind = text_at(a, "kind");
    const json_t *to = json_object_get(a, "to"), *back = json_object_get(a, "back"),
                 *price = json_object_get(a, "price");
    assert_true(json_is_integer(at(a, "seats")) && seats >= 1 && seats <= 12);
    assert_true(strcmp(kind, "first") == 0 || strcmp(kind, "second") == 0);
    assert_true(!to || json_is_string(to));
    assert_true(!back || json_is_boolean(back));
    assert_true(!price || (json_number_value(price) >= 1 && json_number_value(price) <= 99));
    assert_int_equal(json_object_size(a), (size_t)(2 + !!to + !!back + !!price));
}

struct seen {
    int calls[3], texts, cut;
};

static void check_answer(const char *family, const json_t *c, const char *finish,
                         struct seen *seen) {
    static const char *const names[] = {"book", "book_more", "cancel"};
    const json_t *calls = json_object_get(at(c, "message"), "tool_calls");
    if (strcmp(text_at(c, "finish_reason"), "length") == 0) { /* a long text */
        seen->cut++;
        assert_null(calls);
        return;
    }
    if (json_array_size(calls) != 1 || strcmp(text_at(c, "finish_reason"), finish) != 0)
        fail_msg("%s: %s", family, text_at(c, "message.content"));
    const json_t *f = at(json_array_get(calls, 0), "function");
    const json_t *text = at(f, "arguments");
    json_t *a = json_loadb(json_string_value(text), json_string_length(text),
                           JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    int i = 0;
    while (i < 2 && strcmp(text_at(f, "name"), names[i]) != 0)
        i++;
    assert_string_equal(text_at(f, "name"), names[i]);
    assert_true(json_is_object(a));
    seen->calls[i]++;
    if (i == 0)
        check_book(a);
    if (i == 1)
        assert_true(json_object_size(a) == 1 && json_is_integer(at(a, "n")));
    if (i == 2)
        assert_int_equal(json_object_size(a), 0);
    seen->texts += json_object_get(a, "to") != NULL;
    json_decref(a);
}

static void ask_for(const struct server *s, const char *family, const char *choice,
                    const char *finish, struct seen *seen) {
    char body[4000];
    snprintf(body, sizeof body,
             "{" HELLO ", " TOOLS ", \"tool_choice\": %s, \"n\": %d, \"seed\": 3, \"max_tokens\": "
             "220, \"temperature\": 1}",
             choice, ANSWERS);
    *seen = (struct seen){0};
    json_t *v = post(s, CHAT, body);
    for (size_t i = 0; i < ANSWERS; i++)
        check_answer(family, json_array_get(at(v, "choices"), i), finish, seen);
    json_decref(v);
}

/* A template that takes arguments apart has none of a text that is cut: the error says of which. */
static void check_cut_arguments(const struct server *s) {
    static const char body[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": \"assistant\", "
        "\"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"cancel\", \"arguments\": "
        "\"{}\"}}, {\"function\": {\"name\": \"book_more\", \"arguments\": \"{\\\"n\\\": \"}}]}]}";
    struct client c;
    client_open(&c, s);
    assert_int_equal(ask(&c, "POST", CHAT, body), 400);
    json_t *v = client_json(&c);
    client_close(&c);
    assert_string_equal(text_at(v, "error.param"), "messages[1].tool_calls[1].function.arguments");
    assert_non_null(strstr(text_at(v, "error.message"),
                           "messages[1].tool_calls[1].function.arguments: expected the text of a "
                           "JSON object ("));
    json_decref(v);
}

static void must_call(const char *family, const json_t *golden) {
    struct server s;
    struct seen seen;
    put_model(family, golden);
    serve_open(&s, in_scratch(family), "--parallel 8");
    ask_for(&s, family, "\"required\"", "tool_calls", &seen);
    if (seen.calls[0] == 0 || seen.calls[0] + seen.calls[1] + seen.calls[2] < ANSWERS / 2)
        fail_msg("%s: %d, %d and %d calls, %d with a text, %d cut", family, seen.calls[0],
                 seen.calls[1], seen.calls[2], seen.texts, seen.cut);
    ask_for(&s, family, "{\"type\": \"function\", \"function\": {\"name\": \"book_more\"}}", "stop",
            &seen);
    assert_true(seen.calls[0] == 0 && seen.calls[1] > 0 && seen.calls[2] == 0);
    ask_for(&s, family, "{\"type\": \"function\", \"function\": {\"name\": \"book\"}}", "stop",
            &seen);
    assert_true(seen.calls[0] > 0 && seen.texts > 0 && seen.texts < ANSWERS);
    if (strcmp(family, "pythonic") == 0)
        check_cut_arguments(&s);
    serve_close(&s);
}

static void every_family(void **state) {
    (void)state;
    const char *family;
    json_t *v;
    json_object_foreach(at(goldens.root, "families"), family, v) {
        must_call(family, v);
    }
}

/* Formats whose templates the goldens have not. */
#define TURNS(call)                                                                                \
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{% if m.role == 'user' "  \
    "%}[INST]{{ m.content }}[/INST]{% elif m.tool_calls %}" call                                   \
    "<|im_end|>{% elif m.role == 'tool' %}[RESULTS]{{ m.content }}[/RESULTS]{% else %}"            \
    "{{ m.content }}<|im_end|>{% endif %}{% endfor %}"

static void other_formats(void **state) {
    (void)state;
    static const struct {
        const char *name, *template;
    } others[] = {
        {"mistral",
         TURNS("[TOOL_CALLS] [{% for c in m.tool_calls %}{\"name\": \"{{ c.function.name }}\", "
               "\"arguments\": {{ c.function.arguments | tojson }}}{% if not loop.last %}, {% "
               "endif %}{% endfor %}]")},
        {"pythonic",
         TURNS("[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in "
               "c.function.arguments.items() %}{{ k }}={{ v | tojson }}{% if not loop.last %}, {% "
               "endif %}{% endfor %}){% if not loop.last %}, {% endif %}{% endfor %}]")},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        json_t *golden = json_pack("{ss ss}", "template", others[i].template, "eos", "<|im_end|>");
        must_call(others[i].name, golden);
        json_decref(golden);
    }
}

/* ---- schemas that a format cannot write ---- */

#define ONE(schema)                                                                                \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "        \
    "{\"type\": \"object\", \"properties\": {\"x\": " schema "}, \"required\": [\"x\"]}}}]"

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *family, *tools, *says;
    } wrong[] = {
        {"gemma4", ONE("{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}"),
         "f, argument x: expected one type, no list and no object for the format gemma4"},
        {"lfm2_2_5", ONE("{\"type\": \"string\", \"minLength\": 3}"),
         "f, argument x: minLength is not supported for texts and listed values for the format "
         "lfm2"},
        {"glm4moe", ONE("{\"enum\": [\"a\", \"b\"], \"pattern\": \"a\"}"),
         "f, argument x: pattern is not supported for texts and listed values"},
        {"glm4moe", ONE("{\"enum\": [\"a<b\"]}"), "enum: a text has bytes"},
        {"glm4moe", ONE("{\"enum\": [1, 2]}"), "values other than texts need a type"},
        {"glm4moe", ONE("{\"type\": [\"string\", \"integer\"]}"), "expected one type"},
        {"lfm2_2_5", ONE("{\"type\": \"integer\", \"enum\": [1, 3, 12]}"),
         "enum: a value that begins another one is not supported"},
        {"glm4moe", ONE("{\"type\": \"integer\", \"multipleOf\": 2}"), "multipleOf"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct server s;
        struct client c;
        char body[1000];
        serve_open(&s, in_scratch(wrong[i].family), "");
        client_open(&c, &s);
        snprintf(body, sizeof body, "{" HELLO ", %s, \"tool_choice\": \"required\"}",
                 wrong[i].tools);
        const int status = ask(&c, "POST", CHAT, body);
        json_t *v = client_json(&c);
        if (status != 400 || !strstr(text_at(v, "error.message"), wrong[i].says) ||
            strcmp(text_at(v, "error.param"), "tool_choice") != 0)
            fail_msg("%s: %d %s", body, status, c.body.data);
        json_decref(v);
        client_close(&c);
        serve_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family),
        cmocka_unit_test(other_formats),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_goldens, close_goldens);
}
