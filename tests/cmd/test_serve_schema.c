/* Answers of `axtrain serve` that are held to a JSON schema, a choice or an expression, and calls that must be made: a
 * model of random weights writes them, at temperature 1, in streams and beside answers that are held to nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/serve_case.h"

static struct server server;

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"
#define HELLO    "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]"

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    serve_open(&server, golden_path("runs/models/tools_qwen3"), "--parallel 8");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

static json_t *value_of(const json_t *text) {
    json_error_t error;
    json_t *v = json_loadb(json_string_value(text), json_string_length(text),
                           JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    if (!v)
        fail_msg("%s: %s", json_string_value(text), error.text);
    return v;
}

/* ---- schemas ---- */

#define SCHEMA                                                                                     \
    "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 8}, " \
    "\"age\": {\"type\": \"integer\", \"minimum\": 3, \"maximum\": 77}, \"tags\": {\"type\": "     \
    "\"array\", \"items\": {\"enum\": [\"x\", \"y\"]}, \"minItems\": 1, \"maxItems\": 3}}, "       \
    "\"required\": [\"name\", \"age\", \"tags\"], \"additionalProperties\": false}"

static void check_person(const json_t *text) {
    json_t *v = value_of(text), *tags = at(v, "tags");
    const json_int_t age = json_integer_value(at(v, "age"));
    assert_int_equal(json_object_size(v), 3);
    assert_true(json_is_string(at(v, "name")) && json_is_integer(at(v, "age")));
    assert_true(age >= 3 && age <= 77);
    assert_true(json_array_size(tags) >= 1 && json_array_size(tags) <= 3);
    for (size_t i = 0; i < json_array_size(tags); i++) {
        const char *tag = json_string_value(json_array_get(tags, i));
        assert_true(tag && (strcmp(tag, "x") == 0 || strcmp(tag, "y") == 0));
    }
    json_decref(v);
}

/* Each key that says so; many samples. */
static void held_to_a_schema(void **state) {
    (void)state;
    static const char *const keys[] = {
        "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"person\", "
        "\"strict\": true, \"schema\": " SCHEMA "}}",
        "\"guided_json\": " SCHEMA, "\"structured_outputs\": {\"json\": " SCHEMA "}"};
    for (size_t k = 0; k < 3; k++) {
        char body[2048];
        snprintf(body, sizeof body,
                 "{" HELLO ", %s, \"n\": 32, \"seed\": %zu, \"max_tokens\": 400}", keys[k], k);
        json_t *v = post(&server, CHAT, body);
        for (size_t i = 0; i < 32; i++) {
            const json_t *choice = json_array_get(at(v, "choices"), i);
            assert_string_equal(text_at(choice, "finish_reason"), "stop");
            check_person(at(choice, "message.content"));
        }
        json_decref(v);
    }
    json_t *v =
        post(&server, COMPLETE,
             "{\"prompt\": \"a\", \"guided_json\": {\"enum\": [\"yes\", \"no\"]}, \"n\": 8, "
             "\"max_tokens\": 30, \"temperature\": 1}");
    for (size_t i = 0; i < 8; i++) {
        const char *text = text_at(json_array_get(at(v, "choices"), i), "text");
        assert_true(strcmp(text, "\"yes\"") == 0 || strcmp(text, "\"no\"") == 0);
    }
    json_decref(v);
}

/* Any object; where length cuts it, it is the beginning of one. */
static void any_object(void **state) {
    (void)state;
    json_t *v = post(&server, CHAT,
                     "{" HELLO ", \"response_format\": {\"type\": \"json_object\"}, \"n\": 48, "
                     "\"seed\": 5, \"max_tokens\": 300, \"temperature\": 1}");
    int ended = 0;
    for (size_t i = 0; i < 48; i++) {
        const json_t *choice = json_array_get(at(v, "choices"), i);
        if (strcmp(text_at(choice, "finish_reason"), "stop") != 0)
            continue;
        const json_t *text = at(choice, "message.content");
        json_error_t error;
        json_t *x =
            json_loadb(json_string_value(text), json_string_length(text), JSON_ALLOW_NUL, &error);
        if (!x && !strstr(error.text, "NUL"))
            fail_msg("%s: %s", json_string_value(text), error.text);
        assert_true(!x || json_is_object(x));
        json_decref(x);
        ended++;
    }
    assert_true(ended > 3);
    json_decref(v);
}

/* With a seed, the same answer comes alone, streamed, and beside others. */
static void same_everywhere(void **state) {
    (void)state;
    struct client c[6];
    char body[1500];
    snprintf(body, sizeof body,
             "{" HELLO ", \"guided_json\": " SCHEMA ", \"seed\": 11, \"max_tokens\": 300}");
    json_t *alone = post(&server, CHAT, body);
    for (int i = 0; i < 6; i++) {
        client_open(&c[i], &server);
        client_send(&c[i], "POST", CHAT,
                    i % 2 ? "{" HELLO ", \"seed\": 11, \"max_tokens\": 90}" : body);
    }
    for (int i = 0; i < 6; i++) {
        assert_int_equal(client_answer(&c[i]), 200);
        json_t *v = client_json(&c[i]);
        assert_true(i % 2 == 1 || json_equal(at(v, "choices.0"), at(alone, "choices.0")));
        json_decref(v);
        client_close(&c[i]);
    }
    snprintf(body, sizeof body,
             "{" HELLO ", \"guided_json\": " SCHEMA ", \"seed\": 11, \"max_tokens\": 300, "
             "\"stream\": true}");
    json_t *list = post_stream(&server, CHAT, body);
    struct ax_buf text = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *piece =
            json_object_get(at(json_array_get(list, i), "choices.0.delta"), "content");
        assert_int_equal(ax_buf_append(&text,
                                       json_string_value(piece) ? json_string_value(piece) : "",
                                       json_string_length(piece)),
                         AX_OK);
    }
    const json_t *whole = at(alone, "choices.0.message.content");
    assert_int_equal(text.len, json_string_length(whole));
    assert_memory_equal(text.data, json_string_value(whole), text.len);
    ax_buf_free(&text);
    json_decref(list);
    json_decref(alone);
}

/* ---- choices and expressions ---- */

/* What each of many answers is like, by a function of its text. */
static void check_answers(const char *held, bool (*is)(const char *text)) {
    char body[600];
    snprintf(
        body, sizeof body,
        "{\"prompt\": \"a\", %s, \"n\": 32, \"seed\": 2, \"max_tokens\": 60, \"temperature\": 1}",
        held);
    json_t *v = post(&server, COMPLETE, body);
    for (size_t i = 0; i < 32; i++) {
        const json_t *choice = json_array_get(at(v, "choices"), i);
        assert_string_equal(text_at(choice, "finish_reason"), "stop");
        if (!is(text_at(choice, "text")))
            fail_msg("%s: %s", held, text_at(choice, "text"));
    }
    json_decref(v);
}

static bool is_answer(const char *text) {
    return strcmp(text, "yes") == 0 || strcmp(text, "yes, please") == 0 ||
           strcmp(text, "no \u00e4\"") == 0;
}

static bool is_date(const char *text) {
    int at = 0;
    return sscanf(text, "%*4[0-9]-%*2[0-9]%n", &at) == 0 && at == 7 && text[at] == '\0';
}

static bool is_words(const char *text) {
    const size_t n = strlen(text);
    return n >= 2 && text[n - 1] == '!' && !memchr(text, '!', n - 1) && n <= 160;
}

static void choices_and_expressions(void **state) {
    (void)state;
    static const char *const choices[] =
        {"\"guided_choice\": [\"yes\", \"no \u00e4\\\"\", \"yes, please\"]",
         "\"structured_outputs\": {\"choice\": [\"yes\", \"no \u00e4\\\"\", \"yes, please\"], "
         "\"regex\": null}"},
                             *const dates[] = {
                                 "\"guided_regex\": \"^20[0-9]{2}-(0[1-9]|1[0-2])$\"",
                                 "\"structured_outputs\": {\"regex\": \"\\\\d{4}-\\\\d\\\\d\"}"};
    for (int i = 0; i < 2; i++) {
        check_answers(choices[i], is_answer);
        check_answers(dates[i], is_date);
    }
    check_answers("\"guided_regex\": \"[^!]{1,40}!\"", is_words);
    /* a choice is the text, not what it would match */
    json_t *v = post(&server, COMPLETE,
                     "{\"prompt\": \"a\", \"guided_choice\": [\"a+\"], \"max_tokens\": 9}");
    assert_string_equal(text_at(v, "choices.0.text"), "a+");
    json_decref(v);
    v = post(&server, COMPLETE,
             "{\"prompt\": \"a\", \"guided_regex\": \"a{3}\", \"max_tokens\": 2}");
    assert_memory_equal(text_at(v, "choices.0.text"), "aa", 2); /* length cuts it */
    json_decref(v);
    struct client c;
    client_open(&c, &server); /* the expression is kept, but not as a schema */
    assert_int_equal(
        ask(&c, "POST", COMPLETE, "{\"prompt\": \"a\", \"guided_json\": \"\\\"a{3}\\\"\"}"), 400);
    assert_non_null(strstr(c.body.data, "expected an object"));
    client_close(&c);
}

/* ---- calls ---- */

#define TOOL(name, key)                                                                            \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name "\", \"parameters\": {\"type\": "  \
    "\"object\", \"properties\": {\"" key "\": {\"$ref\": \"#/$defs/v\"}}, \"required\": [\"" key  \
    "\"], \"additionalProperties\": false, \"$defs\": {\"v\": {\"type\": \"integer\", "            \
    "\"minimum\": "                                                                                \
    "1, \"maximum\": 9}}}}}"
#define TOOLS "\"tools\": [" TOOL("add", "a") ", " TOOL("sub", "b") "]"

static void must_call(const char *choice, const char *name, const char *finish) {
    char body[2048];
    int seen[2] = {0, 0};
    snprintf(body, sizeof body,
             "{" HELLO ", " TOOLS ", \"tool_choice\": %s, \"n\": 24, \"seed\": 1, \"max_tokens\": "
             "200, \"temperature\": 1}",
             choice);
    json_t *v = post(&server, CHAT, body);
    for (size_t i = 0; i < 24; i++) {
        const json_t *c = json_array_get(at(v, "choices"), i),
                     *call = at(c, "message.tool_calls.0");
        json_t *arguments = value_of(at(call, "function.arguments"));
        const char *called = text_at(call, "function.name");
        const bool is_add = strcmp(called, "add") == 0;
        const json_int_t x = json_integer_value(at(arguments, is_add ? "a" : "b"));
        assert_true(is_add || strcmp(called, "sub") == 0);
        assert_true(!name || strcmp(called, name) == 0);
        assert_true(json_object_size(arguments) == 1 && x >= 1 && x <= 9);
        assert_true(json_is_null(at(c, "message.content")));
        assert_string_equal(text_at(c, "finish_reason"), finish);
        seen[is_add]++;
        json_decref(arguments);
    }
    assert_true(name || (seen[0] > 0 && seen[1] > 0));
    json_decref(v);
}

/* OpenAI: a function without parameters has an empty list of them. */
static void must_call_bare(const char *function) {
    char body[1024];
    snprintf(body, sizeof body,
             "{" HELLO ", \"tools\": [{\"type\": \"function\", \"function\": %s}], "
             "\"tool_choice\": \"required\", \"n\": 8, \"seed\": 1, \"max_tokens\": 200, "
             "\"temperature\": 1}",
             function);
    json_t *v = post(&server, CHAT, body);
    for (size_t i = 0; i < 8; i++) {
        const json_t *call = at(json_array_get(at(v, "choices"), i), "message.tool_calls.0");
        json_t *arguments = value_of(at(call, "function.arguments"));
        assert_string_equal(text_at(call, "function.name"), "now");
        assert_true(json_is_object(arguments) && json_object_size(arguments) == 0);
        json_decref(arguments);
    }
    json_decref(v);
}

static void calls(void **state) {
    (void)state;
    must_call_bare("{\"name\": \"now\"}");
    must_call_bare("{\"name\": \"now\", \"parameters\": null}");
    must_call("\"required\"", NULL, "tool_calls");
    must_call("{\"type\": \"function\", \"function\": {\"name\": \"sub\"}}", "sub", "stop");
}

/* ---- refusals ---- */

static const struct {
    const char *more, *param, *says;
} wrong[] = {
    {"\"response_format\": {\"type\": \"xml\"}", "response_format", "type: expected text"},
    {"\"response_format\": {\"type\": \"json_schema\"}", "response_format", "json_schema.schema"},
    {"\"guided_json\": {\"type\": \"array\", \"uniqueItems\": true}", "guided_json",
     "uniqueItems: this keyword is not supported"},
    {"\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": "
     "{\"type\": \"object\", \"dependentRequired\": {\"a\": [\"b\"]}}}}",
     "response_format", "dependentRequired: this keyword is not supported (schema #)"},
    {"\"structured_outputs\": {\"json\": {\"items\": {\"multipleOf\": 2}}}", "structured_outputs",
     "multipleOf: this keyword is not supported (schema #/items)"},
    {"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
     "{\"type\": \"object\", \"minProperties\": 1}}}], \"tool_choice\": \"required\"",
     "tool_choice", "minProperties: this keyword is not supported"},
    {"\"guided_json\": \"{\"", "guided_json", "not valid JSON"},
    {"\"guided_json\": {}, \"response_format\": {\"type\": \"json_object\"}", "guided_json",
     "already held"},
    {"\"structured_outputs\": {\"grammar\": \"a\"}", "structured_outputs",
     "grammar is not supported yet; json, json_object, choice and regex are"},
    {"\"guided_grammar\": \"a\"", "guided_grammar", "not supported yet"},
    {"\"guided_regex\": \"a(?=b)\"", "guided_regex",
     "groups that begin with (?= are not supported (byte 2"},
    {"\"guided_regex\": 1", "guided_regex", "expected the text of an expression"},
    {"\"guided_regex\": \"(a|b)*a(a|b){20}\"", "guided_regex", "too many states"},
    {"\"guided_choice\": \"a\"", "guided_choice", "expected a list of texts"},
    {"\"structured_outputs\": {\"choice\": [\"a\", \"\"]}", "structured_outputs",
     "choice 1: expected"},
    {"\"guided_choice\": [\"a\"], \"guided_regex\": \"a\"", "guided_regex", "already held"},
    {TOOLS ", \"tool_choice\": \"required\", \"guided_json\": {}", "tool_choice", "already held"},
};

static void refused(void **state) {
    (void)state;
    struct client c;
    client_open(&c, &server);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char body[2048];
        snprintf(body, sizeof body, "{" HELLO ", %s}", wrong[i].more);
        const int status = ask(&c, "POST", CHAT, body);
        json_t *v = client_json(&c);
        if (status != 400 || !strstr(text_at(v, "error.message"), wrong[i].says) ||
            strcmp(text_at(v, "error.param"), wrong[i].param) != 0)
            fail_msg("%s: %d %s", body, status, c.body.data);
        json_decref(v);
    }
    client_close(&c);
    for (int i = 0; i < 40; i++) { /* more schemas than are kept */
        char body[256];
        snprintf(body, sizeof body,
                 "{\"prompt\": \"a\", \"guided_json\": {\"const\": %d}, \"max_tokens\": 9}", i);
        json_t *v = post(&server, COMPLETE, body);
        assert_int_equal(strtol(text_at(v, "choices.0.text"), NULL, 10), i);
        json_decref(v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_to_a_schema),        cmocka_unit_test(any_object),
        cmocka_unit_test(same_everywhere),         cmocka_unit_test(calls),
        cmocka_unit_test(choices_and_expressions), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
