/* Tools of `axtrain serve`: a model that calls two, and conversations with their results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/serve_case.h"
#include "tests/cmd/calling_model.h"

static struct server server;

#define CHAT "/v1/chat/completions"
#define TOOL(name)                                                                                 \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name                                    \
    "\", \"description\": \"A tool.\", "                                                           \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, "     \
    "\"b\": {\"type\": \"string\"}}, \"required\": [\"a\"]}}}"
#define TOOLS "\"tools\": [" TOOL("add") ", " TOOL("look") "]"
#define ASK                                                                                        \
    "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"temperature\": 0, " TOOLS
#define RAW                                                                                        \
    "#### <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2, \"b\": "                      \
    "\"x\"}}\n</tool_call>\n"                                                                      \
    "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": 2, \"b\": \"\\\"{\"}}\n</tool_call>"

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    put_calling_model(in_scratch("calling"));
    serve_open(&server, in_scratch("calling"), "--parallel 4");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

static void check_call(const json_t *call, const char *name, const char *arguments) {
    assert_memory_equal(text_at(call, "id"), "call_", 5);
    assert_int_equal(strlen(text_at(call, "id")), 29);
    assert_string_equal(text_at(call, "type"), "function");
    assert_string_equal(text_at(call, "function.name"), name);
    assert_string_equal(text_at(call, "function.arguments"), arguments);
}

static void check_both(const json_t *calls) {
    assert_int_equal(json_array_size(calls), 2);
    check_call(json_array_get(calls, 0), "add", "{\"a\": 2, \"b\": \"x\"}");
    check_call(json_array_get(calls, 1), "look", "{\"a\": 2, \"b\": \"\\\"{\"}");
    assert_false(
        json_equal(at(json_array_get(calls, 0), "id"), at(json_array_get(calls, 1), "id")));
}

static void calls(void **state) {
    (void)state;
    json_t *v = post(&server, CHAT, "{" ASK ", \"return_token_ids\": true, \"logprobs\": true}");
    assert_string_equal(text_at(v, "choices.0.message.content"), "####");
    check_both(at(v, "choices.0.message.tool_calls"));
    assert_string_equal(text_at(v, "choices.0.finish_reason"), "tool_calls");
    assert_int_equal(json_array_size(at(v, "choices.0.token_ids")), 3);
    assert_int_equal(json_array_size(at(v, "choices.0.logprobs.content")), 3);
    json_decref(v);
    v = post(&server, CHAT, "{" ASK ", \"parallel_tool_calls\": false, \"tool_choice\": \"auto\"}");
    assert_int_equal(json_array_size(at(v, "choices.0.message.tool_calls")), 1);
    json_decref(v);
}

/* The text as it was written, and no calls. */
static void check_text(const char *body, const char *finish) {
    json_t *v = post(&server, CHAT, body);
    assert_string_equal(text_at(v, "choices.0.message.content"), RAW);
    assert_null(json_object_get(at(v, "choices.0.message"), "tool_calls"));
    assert_string_equal(text_at(v, "choices.0.finish_reason"), finish);
    json_decref(v);
}

static void no_calls(void **state) {
    (void)state;
    check_text("{" ASK ", \"tool_choice\": \"none\"}", "stop");
    check_text("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"temperature\": 0}",
               "stop");
    check_text("{" ASK ", \"max_tokens\": 2}", "length"); /* the turn has not ended */
}

/* The concatenated deltas are the whole answer. */
static void streamed(void **state) {
    (void)state;
    json_t *list = post_stream(&server, CHAT,
                               "{" ASK ", \"stream\": true, \"return_token_ids\": true, "
                               "\"logprobs\": true, \"n\": 2}");
    for (int choice = 0; choice < 2; choice++) {
        struct ax_buf content = {0}, arguments[2] = {{0}, {0}};
        json_t *got = json_array();
        size_t ids = 0, logprobs = 0;
        const char *finish = NULL;
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *c = at(json_array_get(list, i), "choices.0"), *delta = at(c, "delta"),
                         *deltas = json_object_get(delta, "tool_calls");
            if (json_integer_value(at(c, "index")) != choice)
                continue;
            assert_null(finish);
            const char *text = json_string_value(json_object_get(delta, "content"));
            assert_int_equal(ax_buf_puts(&content, text ? text : ""), AX_OK);
            ids += json_array_size(at(c, "token_ids"));
            logprobs += json_array_size(json_object_get(at(c, "logprobs"), "content"));
            finish = json_string_value(at(c, "finish_reason"));
            for (size_t k = 0; k < json_array_size(deltas); k++) {
                json_t *d = json_array_get(deltas, k);
                const size_t index = (size_t)json_integer_value(at(d, "index"));
                if (json_object_get(d, "id")) {
                    assert_int_equal(json_array_size(got), index); /* names come in order */
                    json_array_append(got, d);
                }
                assert_int_equal(ax_buf_puts(&arguments[index], text_at(d, "function.arguments")),
                                 AX_OK);
            }
        }
        for (size_t k = 0; k < 2; k++)
            json_object_set_new(at(json_array_get(got, k), "function"), "arguments",
                                json_string(arguments[k].data));
        check_both(got);
        assert_string_equal(content.data, "####");
        assert_string_equal(finish, "tool_calls");
        assert_int_equal(ids, 3);
        assert_int_equal(logprobs, 3);
        json_decref(got);
        ax_buf_free(&content);
        ax_buf_free(&arguments[0]);
        ax_buf_free(&arguments[1]);
    }
    json_decref(list);
}

/* What a stream without calls holds back comes at its end. */
static void streamed_text(void **state) {
    (void)state;
    json_t *list = post_stream(&server, CHAT, "{" ASK ", \"stream\": true, \"max_tokens\": 2}");
    struct ax_buf content = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(
            json_object_get(at(json_array_get(list, i), "choices.0.delta"), "content"));
        assert_int_equal(ax_buf_puts(&content, text ? text : ""), AX_OK);
    }
    assert_string_equal(content.data, RAW);
    ax_buf_free(&content);
    json_decref(list);
}

/* The prompt of a conversation with a call whose function has these members beside its name. */
static void check_rendered(const char *members, const char *rendered) {
    struct ax_buf body = {0};
    assert_int_equal(
        ax_buf_printf(
            &body,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": "
            "\"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": "
            "\"add\"%s}}]}, {\"role\": \"tool\", \"content\": \"5\"}], " TOOLS "}",
            members),
        AX_OK);
    json_t *v = post(&server, "/tokenize", body.data);
    char *ids = json_dumps(at(v, "tokens"), JSON_COMPACT);
    ax_buf_free(&body);
    assert_int_equal(ax_buf_printf(&body, "{\"tokens\": %s}", ids), AX_OK);
    json_t *text = post(&server, "/detokenize", body.data);
    if (!strstr(text_at(text, "prompt"), rendered))
        fail_msg("%s: %s", members, text_at(text, "prompt"));
    json_decref(text);
    json_decref(v);
    ax_buf_free(&body);
    ax_free_hook(ids);
}

/* Arguments may be an object instead of its text, or missing, as in vLLM. */
static void arguments_of_calls(void **state) {
    (void)state;
    check_rendered(", \"arguments\": \"{\\\"a\\\": 2}\"", "\"arguments\": {\"a\": 2}}");
    check_rendered(", \"arguments\": {\"a\": 2}", "\"arguments\": {\"a\": 2}}");
    check_rendered(", \"arguments\": \"\"", "\"arguments\": {}}");
    check_rendered(", \"arguments\": \" \\n\"", "\"arguments\": {}}");
    check_rendered(", \"arguments\": null", "\"arguments\": {}}");
    check_rendered("", "\"arguments\": {}}");
}

/* Definitions, calls and results are rendered by the template: arguments as the object that they are. */
static void rendered(void **state) {
    (void)state;
    static const char body[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}, {\"role\": \"assistant\", "
        "\"content\": null, \"tool_calls\": [{\"id\": \"call_1\", \"type\": \"function\", "
        "\"function\": {\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 2}\"}}]}, {\"role\": "
        "\"tool\", \"tool_call_id\": \"call_1\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"the result\"}]}], \"temperature\": 0, " TOOLS "}";
    json_t *v = post(&server, "/tokenize", body);
    char *ids = json_dumps(at(v, "tokens"), JSON_COMPACT);
    struct ax_buf request = {0};
    assert_int_equal(ax_buf_printf(&request, "{\"tokens\": %s}", ids), AX_OK);
    json_t *text = post(&server, "/detokenize", request.data);
    const char *prompt = text_at(text, "prompt");
    assert_non_null(strstr(prompt, "<tools>\n{\"type\": \"function\", \"function\": {\"name\": "
                                   "\"add\", \"description\": \"A tool.\""));
    assert_non_null(strstr(
        prompt, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>"));
    assert_non_null(strstr(prompt, "<tool_response>\nthe result\n</tool_response><|im_end|>\n"
                                   "<|im_start|>assistant\n"));
    json_decref(text);
    json_decref(v);
    ax_buf_free(&request);
    ax_free_hook(ids);
    v = post(&server, CHAT, body); /* and answered */
    assert_string_equal(text_at(v, "choices.0.finish_reason"), "tool_calls");
    json_decref(v);
}

/* ---- refusals ---- */

static const struct {
    const char *more, *param, *says;
} wrong[] = {
    {"\"tools\": {}", "tools", "a list"},
    {"\"tools\": [{\"type\": \"web_search\"}]", "tools[0]", "\"function\""},
    {"\"tools\": [" TOOL("a b") "]", "tools[0]", "function.name"},
    {"\"tools\": [" TOOL("") "]", "tools[0]", "function.name"},
    {"\"tools\": [" TOOL("add") ", " TOOL("add") "]", "tools[1]", "another tool"},
    {"\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": []}}]",
     "tools[0]", "function.parameters"},
    {"\"tool_choice\": \"required\"", "tool_choice", "needs tools"},
    {TOOLS ", \"tool_choice\": \"any\"", "tool_choice", "expected none, auto"},
    {TOOLS ", \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"no\"}}",
     "tool_choice", "there is no tool \"no\""},
    {TOOLS ", \"parallel_tool_calls\": 1", "parallel_tool_calls", "true or false"},
};

static void refused(void **state) {
    (void)state;
    struct client c;
    client_open(&c, &server);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char body[2048];
        snprintf(body, sizeof body,
                 "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], %s}", wrong[i].more);
        const int status = ask(&c, "POST", CHAT, body);
        json_t *v = client_json(&c);
        if (status != 400 || !strstr(text_at(v, "error.message"), wrong[i].says) ||
            strcmp(text_at(v, "error.param"), wrong[i].param) != 0)
            fail_msg("%s: %d %s", body, status, c.body.data);
        json_decref(v);
    }
    client_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls),    cmocka_unit_test(no_calls),
        cmocka_unit_test(streamed), cmocka_unit_test(streamed_text),
        cmocka_unit_test(rendered), cmocka_unit_test(arguments_of_calls),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
