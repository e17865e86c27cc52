/* Streams of `axtrain serve`, and what ends answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/serve_case.h"

static struct server server;

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    serve_open(&server, model, "--parallel 4 --name tiny");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

static json_t *events(const char *path, const char *body) {
    return post_stream(&server, path, body);
}

/* The concatenated pieces of a choice; *last: its finish_reason, NULL: none. */
static struct ax_buf joined(const json_t *list, int index, const char **last) {
    struct ax_buf text = {0};
    *last = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *choice = json_array_get(at(json_array_get(list, i), "choices"), 0);
        if (!choice || json_integer_value(at(choice, "index")) != index)
            continue;
        assert_null(*last); /* nothing follows the end */
        const json_t *delta = json_object_get(choice, "delta");
        const json_t *piece = delta ? json_object_get(delta, "content") : at(choice, "text");
        if (piece)
            assert_int_equal(
                ax_buf_append(&text, json_string_value(piece), json_string_length(piece)), AX_OK);
        *last = json_string_value(at(choice, "finish_reason"));
    }
    return text;
}

static void same_as_whole(const char *path, const char *request, int n, const char *key) {
    char body[600];
    const char *last;
    json_t *whole = post(&server, path, request);
    snprintf(body, sizeof body, "%.*s, \"stream\": true}", (int)strlen(request) - 1, request);
    json_t *list = events(path, body);
    for (int i = 0; i < n; i++) {
        const json_t *choice = json_array_get(at(whole, "choices"), (size_t)i);
        struct ax_buf text = joined(list, i, &last);
        const json_t *want = at(choice, key);
        assert_int_equal(text.len, json_string_length(want));
        assert_memory_equal(text.data ? text.data : "", json_string_value(want), text.len);
        assert_string_equal(last, text_at(choice, "finish_reason"));
        ax_buf_free(&text);
    }
    json_decref(whole);
    json_decref(list);
}

static void concatenated(void **state) {
    (void)state;
    same_as_whole(
        CHAT,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], \"max_tokens\": 40, "
        "\"temperature\": 0}",
        1, "message.content");
    same_as_whole(
        CHAT,
        "{\"messages\": [{\"role\": \"developer\", \"content\": [{\"type\": \"text\", "
        "\"text\": \"Be \"}, {\"type\": \"text\", \"text\": \"brief.\"}]}, {\"role\": "
        "\"user\", \"content\": \"hi\"}], \"max_completion_tokens\": 30, \"seed\": 4, \"n\": 3}",
        3, "message.content");
    same_as_whole(COMPLETE,
                  "{\"prompt\": [\"a\", \"b\"], \"max_tokens\": 25, \"seed\": 4, \"n\": 2}", 4,
                  "text");
    same_as_whole(COMPLETE,
                  "{\"prompt\": \"The \", \"max_tokens\": 5, \"seed\": 4, \"echo\": true}", 1,
                  "text");
}

static void first_and_last(void **state) {
    (void)state;
    json_t *list = events(CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], "
                                "\"max_tokens\": 12, \"temperature\": 0, \"stream\": true, "
                                "\"stream_options\": {\"include_usage\": true}, "
                                "\"return_token_ids\": true, \"logprobs\": true}");
    const size_t n = json_array_size(list);
    const json_t *first = json_array_get(list, 0), *last = json_array_get(list, n - 1);
    size_t ids = 0, logprobs = 0;
    assert_string_equal(text_at(first, "choices.0.delta.role"), "assistant");
    assert_true(json_array_size(at(first, "prompt_token_ids")) > 0);
    assert_int_equal(json_array_size(at(last, "choices")), 0);
    assert_int_equal(json_integer_value(at(last, "usage.completion_tokens")), 12);
    for (size_t i = 0; i + 1 < n; i++) {
        const json_t *v = json_array_get(list, i), *choice = at(v, "choices.0");
        assert_true(json_is_null(at(v, "usage")));
        assert_true(json_equal(at(v, "id"), at(first, "id")));
        assert_string_equal(text_at(v, "object"), "chat.completion.chunk");
        ids += json_array_size(at(choice, "token_ids"));
        logprobs += json_array_size(json_object_get(at(choice, "logprobs"), "content"));
    }
    assert_int_equal(ids, 12);
    assert_int_equal(logprobs, 12);
    json_decref(list);
}

/* ---- stopping ---- */

static json_t *greedy(const char *more) {
    char body[400];
    snprintf(body, sizeof body,
             "{\"prompt\": \"The train\", \"max_tokens\": 30, \"temperature\": 0, "
             "\"return_token_ids\": true%s}",
             more);
    return post(&server, COMPLETE, body);
}

/* Characters i … i + n of a text as the text of a stop, JSON. */
static void make_stop(char *out, size_t size, const char *text, size_t i, size_t n,
                      const char *more) {
    json_t *stop = json_stringn(text + i, n);
    char *word = json_dumps(stop, JSON_ENCODE_ANY);
    assert_non_null(word);
    snprintf(out, size, ", \"stop\": [\"nowhere\", %s]%s", word, more);
    ax_free_hook(word);
    json_decref(stop);
}

/* Wherever the text is cut, and whatever tokens it spans: nothing of the stop is sent. */
static void stop_texts(void **state) {
    (void)state;
    char more[200], body[600];
    json_t *all = greedy("");
    const char *text = text_at(all, "choices.0.text"), *last;
    int tried = 0;
    for (size_t i = 1; text[i] && text[i + 1] && text[i + 2]; i++) {
        if ((text[i] & 0x80) || (text[i + 1] & 0x80) || (text[i + 2] & 0x80))
            continue;
        make_stop(more, sizeof more, text, i, 3, "");
        const char *first = memmem(text, strlen(text), text + i, 3);
        json_t *v = greedy(more);
        assert_int_equal(json_string_length(at(v, "choices.0.text")), first - text);
        assert_memory_equal(text_at(v, "choices.0.text"), text, (size_t)(first - text));
        assert_string_equal(text_at(v, "choices.0.finish_reason"), "stop");
        assert_memory_equal(text_at(v, "choices.0.stop_reason"), first, 3);
        json_decref(v);
        snprintf(body, sizeof body,
                 "{\"prompt\": \"The train\", \"max_tokens\": 30, \"temperature\": 0, \"stream\": "
                 "true%s}",
                 more);
        json_t *list = events(COMPLETE, body);
        struct ax_buf got = joined(list, 0, &last);
        assert_int_equal(got.len, first - text);
        assert_memory_equal(got.data ? got.data : "", text, got.len);
        assert_string_equal(last, "stop");
        ax_buf_free(&got);
        json_decref(list);
        make_stop(more, sizeof more, text, i, 3, ", \"include_stop_str_in_output\": true");
        v = greedy(more);
        assert_int_equal(json_string_length(at(v, "choices.0.text")), first + 3 - text);
        json_decref(v);
        tried++;
    }
    assert_true(tried > 3);
    json_decref(all);
}

static void stop_tokens(void **state) {
    (void)state;
    char more[100];
    json_t *all = greedy("");
    const json_t *ids = at(all, "choices.0.token_ids");
    const long long stop = json_integer_value(json_array_get(ids, 9));
    size_t first = 0;
    while (json_integer_value(json_array_get(ids, first)) != stop)
        first++;
    snprintf(more, sizeof more, ", \"stop_token_ids\": [510, %lld]", stop);
    json_t *v = greedy(more);
    assert_int_equal(json_array_size(at(v, "choices.0.token_ids")), first + 1);
    assert_int_equal(json_integer_value(at(v, "choices.0.stop_reason")), stop);
    assert_string_equal(text_at(v, "choices.0.finish_reason"), "stop");
    const size_t n = json_string_length(at(v, "choices.0.text"));
    assert_true(n < json_string_length(at(all, "choices.0.text")));
    json_decref(v);
    json_decref(all);
}

/* EOS among stop_token_ids is no stop_reason, unless it is ignored. */
static void eos_is_no_reason(void **state) {
    (void)state;
    char more[160];
    json_t *v =
        post(&server, "/tokenize", "{\"prompt\": \"<|eot_id|>\", \"add_special_tokens\": false}");
    const long long eos = json_integer_value(at(v, "tokens.0"));
    assert_int_equal(json_integer_value(at(v, "count")), 1);
    json_decref(v);
    for (int ignored = 0; ignored < 2; ignored++) {
        snprintf(more, sizeof more,
                 ", \"logit_bias\": {\"%lld\": 100}, \"stop_token_ids\": [%lld], "
                 "\"ignore_eos\": %s",
                 eos, eos, ignored ? "true" : "false");
        v = greedy(more);
        assert_string_equal(text_at(v, "choices.0.finish_reason"), "stop");
        if (ignored)
            assert_int_equal(json_integer_value(at(v, "choices.0.stop_reason")), eos);
        else
            assert_true(json_is_null(at(v, "choices.0.stop_reason")));
        json_decref(v);
    }
}

/* The text that is held back until an answer ends, here the beginning of a character, comes with the end. */
static void held_until_the_end(void **state) {
    (void)state;
    char body[300];
    const char *last;
    json_t *v =
        post(&server, "/tokenize", "{\"prompt\": \"\u07ff\", \"add_special_tokens\": false}");
    const long long lead = json_integer_value(at(v, "tokens.0"));
    assert_int_equal(json_integer_value(at(v, "count")), 2);
    json_decref(v);
    snprintf(body, sizeof body,
             "{\"prompt\": \"a\", \"logit_bias\": {\"%lld\": 100}, \"stop_token_ids\": [%lld], "
             "\"include_stop_str_in_output\": true, \"n\": 8, \"stream\": true}",
             lead, lead);
    for (int i = 0; i < 40; i++) {
        json_t *list = events(COMPLETE, body);
        for (int k = 0; k < 8; k++) {
            struct ax_buf text = joined(list, k, &last);
            assert_string_equal(last, "stop");
            assert_string_equal(text.data, "\uFFFD");
            ax_buf_free(&text);
        }
        size_t reasons = 0;
        for (size_t k = 0; k < json_array_size(list); k++) {
            const json_t *reason = at(json_array_get(list, k), "choices.0.stop_reason");
            assert_true(!reason || json_integer_value(reason) == lead);
            reasons += reason != NULL;
        }
        assert_int_equal(reasons, 8);
        json_decref(list);
    }
}

/* One prompt for several answers goes through the model once. */
static void shared_prompt(void **state) {
    (void)state;
    struct ax_buf body = {0};
    assert_int_equal(ax_buf_puts(&body, "{\"prompt\": [7"), AX_OK);
    for (int i = 0; i < 99; i++)
        assert_int_equal(ax_buf_printf(&body, ", %d", 100 + i), AX_OK);
    assert_int_equal(ax_buf_puts(&body, "], \"n\": 4, \"max_tokens\": 2}"), AX_OK);
    const double before = metric(&server, "prompt_tokens_total");
    json_decref(post(&server, COMPLETE, body.data));
    nap(0.2); /* an idle engine tells its counters when it looks for work */
    json_decref(post(&server, COMPLETE, "{\"prompt\": [9], \"max_tokens\": 1}"));
    assert_true(metric(&server, "prompt_tokens_total") - before < 200);
    ax_buf_free(&body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concatenated),     cmocka_unit_test(first_and_last),
        cmocka_unit_test(stop_texts),       cmocka_unit_test(stop_tokens),
        cmocka_unit_test(shared_prompt),    cmocka_unit_test(held_until_the_end),
        cmocka_unit_test(eos_is_no_reason),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
