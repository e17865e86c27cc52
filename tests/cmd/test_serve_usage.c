/* `axtrain serve`: what answers say beside their text: cached tokens, ids, bytes of tokens; and many stop texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/serve_case.h"

#define CHAT     "/v1/chat/completions"
#define COMPLETE "/v1/completions"

static struct server server;

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    serve_open(&server, model, "--parallel 4");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

static int64_t cached(const char *keys) {
    char body[512];
    snprintf(body, sizeof body, "{\"max_tokens\": 2, \"temperature\": 0, %s}", keys);
    json_t *v = post(&server, COMPLETE, body);
    const json_int_t n = json_integer_value(at(v, "usage.prompt_tokens_details.cached_tokens"));
    assert_true(n >= 0 && n < json_integer_value(at(v, "usage.prompt_tokens")));
    json_decref(v);
    return n;
}

#define LONG "\"prompt\": \"The trains of the two lines went on through the night\""

static void cached_tokens(void **state) {
    (void)state;
    assert_int_equal(cached(LONG), 0);
    const int64_t all = cached(LONG);
    assert_true(all > 8);
    assert_int_equal(cached(LONG ", \"n\": 3"), all);    /* a prompt counts once */
    assert_int_equal(cached("\"prompt\": \"Else\""), 1); /* BOS */
}

/* Prompts are shared only among requests of one salt. */
static void salts(void **state) {
    (void)state;
    assert_int_equal(cached(LONG ", \"cache_salt\": \"a\""), 0);
    assert_true(cached(LONG ", \"cache_salt\": \"a\"") > 8);
    assert_int_equal(cached(LONG ", \"cache_salt\": \"b\""), 0);
}

static void ids(void **state) {
    (void)state;
    json_t *v = post(&server, COMPLETE,
                     "{\"prompt\": \"a\", \"max_tokens\": 1, \"request_id\": "
                     "\"my-7\"}");
    assert_string_equal(text_at(v, "id"), "cmpl-my-7");
    json_decref(v);
    v = post(&server, CHAT,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], "
             "\"max_tokens\": 1, \"request_id\": \"my-8\"}");
    assert_string_equal(text_at(v, "id"), "chatcmpl-my-8");
    json_decref(v);
}

/* The bytes of all tokens are the text, also where characters are split; greedily, this model splits many. */
static void bytes(void **state) {
    (void)state;
    static char a[512];
    size_t n = 0;
    json_t *v = post(&server, CHAT,
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], "
                     "\"max_tokens\": 12, \"temperature\": 0, \"logprobs\": true}");
    const json_t *content = at(v, "choices.0.logprobs.content");
    int split = 0;
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *x = json_array_get(content, i), *own = at(x, "bytes");
        split += strstr(text_at(x, "token"), "\uFFFD") != NULL;
        for (size_t k = 0; k < json_array_size(own); k++) {
            assert_true(n < sizeof a);
            a[n++] = (char)json_integer_value(json_array_get(own, k));
        }
    }
    assert_true(split > 0);
    /* invalid UTF-8 is U+FFFD in the text: the tokenizer's own decoding says where */
    json_t *message = at(v, "choices.0.message.content");
    const char *b = json_string_value(message);
    for (size_t i = 0, k = 0; k < json_string_length(message);)
        if (strncmp(b + k, "\uFFFD", 3) == 0) {
            k += 3;
            i += (unsigned char)a[i] >= 0x80;
            while (i < n && ((unsigned char)a[i] & 0xC0U) == 0x80U)
                i++;
        } else {
            assert_int_equal(a[i++], b[k++]);
        }
    json_decref(v);
}

static int ask_with_stops(int n, struct client *c) {
    struct ax_buf body = {0};
    assert_int_equal(ax_buf_puts(&body, "{\"prompt\": \"a\", \"max_tokens\": 60, \"logit_bias\": "
                                        "{\"65\": 100}, \"temperature\": 0, \"stop\": ["),
                     AX_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(ax_buf_printf(&body, "%s\"no%d\"", i > 0 ? ", " : "", i), AX_OK);
    assert_int_equal(ax_buf_puts(&body, "]}"), AX_OK);
    const int status = ask(c, "POST", COMPLETE, body.data);
    ax_buf_free(&body);
    return status;
}

static void many_stops(void **state) {
    (void)state;
    struct client c;
    client_open(&c, &server);
    assert_int_equal(ask_with_stops(64, &c), 200);
    assert_int_equal(ask_with_stops(65, &c), 400);
    assert_non_null(strstr(c.body.data, "at most 64 texts"));
    client_close(&c);
}

static void refused(void **state) {
    (void)state;
    static const char *const keys[] = {"request_id", "cache_salt"};
    static const char *const values[] = {"\"\"", "7"};
    struct client c;
    client_open(&c, &server);
    for (int i = 0; i < 4; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"prompt\": \"a\", \"%s\": %s}", keys[i / 2], values[i % 2]);
        assert_int_equal(ask(&c, "POST", COMPLETE, body), 400);
        json_t *v = client_json(&c);
        assert_string_equal(text_at(v, "error.param"), keys[i / 2]);
        json_decref(v);
    }
    client_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cached_tokens), cmocka_unit_test(salts),      cmocka_unit_test(ids),
        cmocka_unit_test(bytes),         cmocka_unit_test(many_stops), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
