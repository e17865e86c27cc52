/* `axtrain serve --allow-control`: a server that is held still, requests that are aborted, and who comes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/serve_case.h"

#define COMPLETE "/v1/completions"
#define LONG     2000 /* tokens: some tenths of a second */

static struct server server;

static int open_server(void **state) {
    if (setup(state) != 0)
        return -1;
    make_long_model();
    serve_open(&server, long_model,
               "--allow-control --parallel 2 --context 60000 --cache-tokens 130000");
    return 0;
}

static int close_server(void **state) {
    serve_close(&server);
    return scratch_remove(state);
}

/* ---- requests ---- */

static void begin(struct client *c, const char *id, int tokens, bool stream) {
    char body[300];
    snprintf(body, sizeof body,
             "{\"prompt\": \"chat\", \"temperature\": 0, \"ignore_eos\": true, \"max_tokens\": %d, "
             "\"stream\": %s, \"request_id\": \"%s\"}",
             tokens, stream ? "true" : "false", id);
    client_open(c, &server);
    client_send(c, "POST", COMPLETE, body);
    if (stream) {
        assert_int_equal(client_head(c), 200);
        assert_true(client_chunk(c));
    }
}

static void wait_pending(double n) {
    for (const double until = ax_clock_now() + 60; metric(&server, "sequences_pending") != n;
         nap(0.005))
        assert_true(ax_clock_now() < until);
}

/* The rest of a stream: its text and how it ended; free the text. */
static json_t *stream_end(struct client *c, const char **finish) {
    static char ended[32];
    struct ax_buf text = {0};
    ended[0] = '\0';
    while (client_chunk(c))
        ;
    for (char *event = c->body.data; strncmp(event, "data: {", 7) == 0;) {
        char *end = strstr(event, "\n\n");
        json_t *v = json_loadb(event + 6, (size_t)(end - event - 6), JSON_ALLOW_NUL, NULL);
        const json_t *piece = at(v, "choices.0.text"), *why = at(v, "choices.0.finish_reason");
        assert_int_equal(ax_buf_append(&text, json_string_value(piece), json_string_length(piece)),
                         AX_OK);
        if (json_is_string(why))
            snprintf(ended, sizeof ended, "%s", json_string_value(why));
        json_decref(v);
        event = end + 2;
    }
    client_close(c);
    json_t *whole = json_stringn(text.data ? text.data : "", text.len);
    ax_buf_free(&text);
    *finish = ended;
    return whole;
}

static json_t *undisturbed(int tokens) {
    struct client c;
    const char *finish;
    begin(&c, "alone", tokens, true);
    json_t *text = stream_end(&c, &finish);
    assert_string_equal(finish, "length");
    return text;
}

/* A route without a body. */
static int post_to(const char *path, struct client *c) {
    client_open(c, &server);
    char text[300];
    snprintf(text, sizeof text, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
             path);
    client_write(c, text, strlen(text));
    return client_answer(c);
}

static void control(const char *path, int status, const char *says) {
    struct client c;
    const int got = post_to(path, &c);
    if (got != status || !strstr(c.body.data, says))
        fail_msg("%s: %d %s", path, got, c.body.data);
    client_close(&c);
}

static bool is_paused(void) {
    struct client c;
    client_open(&c, &server);
    assert_int_equal(ask(&c, "GET", "/is_paused", NULL), 200);
    json_t *v = client_json(&c);
    const bool paused = json_is_true(at(v, "is_paused"));
    json_decref(v);
    client_close(&c);
    return paused;
}

/* ---- pausing ---- */

static void aborted_answer(struct client *c) {
    assert_int_equal(client_answer(c), 200);
    json_t *v = client_json(c);
    assert_string_equal(text_at(v, "choices.0.finish_reason"), "abort");
    json_decref(v);
    client_close(c);
}

static void kept(void **state) {
    (void)state;
    struct client c, later;
    const char *finish;
    json_t *want = undisturbed(LONG);
    begin(&c, "a", LONG, true);
    control("/pause?mode=keep", 200, "paused");
    assert_true(is_paused());
    const double tokens = metric(&server, "generated_tokens_total");
    begin(&later, "b", 3, false);
    nap(0.3);
    assert_true(metric(&server, "generated_tokens_total") == tokens);
    assert_true(metric(&server, "sequences_pending") == 2);
    control("/resume", 200, "resumed");
    assert_int_equal(client_answer(&later), 200);
    client_close(&later);
    json_t *text = stream_end(&c, &finish);
    assert_true(json_equal(text, want));
    assert_string_equal(finish, "length");
    assert_false(is_paused());
    json_decref(text);
    json_decref(want);
}

/* Clients that leave, or are aborted, while nothing is computed do not wait for the end of the pause. */
static void left_while_kept(void **state) {
    (void)state;
    struct client c, whole, gone, k;
    begin(&c, "a", 50000, true);
    begin(&whole, "b", 50000, false);
    wait_pending(2);
    control("/pause?mode=keep", 200, "paused");
    begin(&gone, "c", 50000, false);
    wait_pending(3);
    const double tokens = metric(&server, "generated_tokens_total"),
                 left = metric(&server, "sequences_left_total");
    client_close(&c);
    wait_pending(2);
    client_close(&gone);
    wait_pending(1);
    client_open(&k, &server);
    assert_int_equal(ask(&k, "POST", "/abort_requests", "{\"request_ids\": [\"b\"]}"), 200);
    client_close(&k);
    aborted_answer(&whole);
    wait_pending(0);
    const double gone_now = metric(&server, "sequences_left_total");
    assert_true(is_paused());
    control("/resume", 200, "resumed");
    assert_true(gone_now == left + 3);
    /* not a token more of theirs */
    json_decref(post(&server, COMPLETE, "{\"prompt\": \"a\", \"max_tokens\": 1}"));
    while (metric(&server, "generated_tokens_total") == tokens)
        nap(0.005);
    assert_true(metric(&server, "generated_tokens_total") == tokens + 1);
}

/* The pause begins when the answers on their way are complete; others wait for its end. */
static void waited_for(void **state) {
    (void)state;
    struct client c, later;
    const char *finish;
    begin(&c, "a", LONG, true);
    control("/pause?mode=wait&clear_cache=false", 200, "paused");
    assert_true(metric(&server, "sequences_pending") == 0);
    begin(&later, "b", 3, false);
    wait_pending(1);
    nap(0.1);
    assert_true(metric(&server, "sequences_pending") == 1);
    json_decref(stream_end(&c, &finish));
    assert_string_equal(finish, "length");
    control("/resume", 200, "resumed");
    assert_int_equal(client_answer(&later), 200);
    client_close(&later);
}

static void aborted(void **state) {
    (void)state;
    struct client c, whole, waits, late; /* on two lanes, on none, and not begun */
    const char *finish;
    begin(&c, "a", 50000, true);
    begin(&whole, "b", 50000, false);
    wait_pending(2);
    begin(&waits, "c", 3, false);
    wait_pending(3);
    control("/pause?mode=keep", 200, "paused");
    begin(&late, "d", 3, false);
    wait_pending(4);
    control("/pause", 200, "paused");
    assert_true(metric(&server, "sequences_pending") == 0);
    json_decref(stream_end(&c, &finish));
    assert_string_equal(finish, "abort");
    aborted_answer(&whole);
    aborted_answer(&waits);
    aborted_answer(&late);
    control("/resume", 200, "resumed");
}

static void one_is_aborted(void **state) {
    (void)state;
    struct client c, other, k;
    const char *finish;
    begin(&c, "one", 50000, true);
    begin(&other, "two", LONG, true);
    client_open(&k, &server);
    assert_int_equal(ask(&k, "POST", "/abort_requests", "{\"request_ids\": [\"one\", \"none\"]}"),
                     200);
    assert_non_null(strstr(k.body.data, "\"aborted\":1"));
    assert_int_equal(ask(&k, "POST", "/abort_requests", "{\"request_ids\": \"one\"}"), 400);
    client_close(&k);
    json_decref(stream_end(&c, &finish));
    assert_string_equal(finish, "abort");
    json_decref(stream_end(&other, &finish));
    assert_string_equal(finish, "length");
}

/* A request that waits for the end of a pause ends when it is aborted, not at /resume. */
static void one_that_waits_is_aborted(void **state) {
    (void)state;
    struct client c, k;
    control("/pause?mode=wait", 200, "paused");
    begin(&c, "early", 3, false);
    wait_pending(1);
    client_open(&k, &server);
    assert_int_equal(ask(&k, "POST", "/abort_requests", "{\"request_ids\": [\"early\"]}"), 200);
    client_close(&k);
    aborted_answer(&c);
    assert_true(metric(&server, "sequences_pending") == 0);
    assert_true(is_paused());
    control("/resume", 200, "resumed");
}

/* A pause that another client ends before it has begun is none. */
static void resumed_by_another(void **state) {
    (void)state;
    struct client c, waits;
    const char *finish;
    begin(&c, "a", 20000, true);
    client_open(&waits, &server);
    static const char words[] =
        "POST /pause?mode=wait HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    client_write(&waits, words, sizeof words - 1);
    while (!is_paused())
        nap(0.005);
    control("/resume", 200, "resumed");
    assert_int_equal(client_answer(&waits), 409);
    assert_non_null(strstr(waits.body.data, "another request has changed the pause"));
    client_close(&waits);
    json_decref(stream_end(&c, &finish));
    assert_string_equal(finish, "length");
}

/* ---- the cache ---- */

static json_int_t cached(void) {
    json_t *v = post(&server, COMPLETE,
                     "{\"prompt\": \"The trains of the two lines went on\", \"max_tokens\": 1}");
    const json_int_t n = json_integer_value(at(v, "usage.prompt_tokens_details.cached_tokens"));
    json_decref(v);
    return n;
}

static void reset(void **state) {
    (void)state;
    (void)cached();
    assert_true(cached() > 8);
    control("/reset_prefix_cache", 200, "reset");
    assert_int_equal(cached(), 0);
    assert_true(cached() > 8);
    control("/pause?mode=wait&clear_cache=false", 200, "paused");
    control("/resume", 200, "resumed");
    assert_true(cached() > 8);
    control("/pause?mode=wait", 200, "paused");
    control("/resume", 200, "resumed");
    assert_int_equal(cached(), 0);
}

/* ---- who comes first ---- */

#define WAITING "{\"prompt\": \"a\", \"max_tokens\": 400, \"ignore_eos\": true, \"priority\": %d}"

/* Both lanes are in use; of two requests that wait, the later is answered first. */
static void priorities(void **state) {
    (void)state;
    struct client busy[2], wait[2];
    for (int i = 0; i < 2; i++)
        begin(&busy[i], i ? "x" : "y", 50000, true);
    for (int i = 0; i < 2; i++) {
        char body[128];
        snprintf(body, sizeof body, WAITING, i == 0 ? 7 : -1);
        client_open(&wait[i], &server);
        client_send(&wait[i], "POST", COMPLETE, body);
        wait_pending(3 + i);
    }
    client_close(&busy[0]); /* one lane, for one after the other */
    struct pollfd p[] = {{wait[0].fd, POLLIN, 0}, {wait[1].fd, POLLIN, 0}};
    assert_true(poll(p, 2, 60000) > 0);
    assert_true(p[1].revents != 0 && p[0].revents == 0);
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(client_answer(&wait[i]), 200);
        client_close(&wait[i]);
    }
    client_close(&busy[1]);
    wait_pending(0);
}

/* ---- what is refused ---- */

static void refused(void **state) {
    (void)state;
    struct server s;
    struct client c;
    control("/pause?mode=soon", 400, "expected abort, wait or keep");
    control("/pause?clear_cache=1", 400, "expected true or false");
    control("/update_weights", 404, "/v1/load_lora_adapter");
    control("/init_weight_transfer_engine", 404, "weights are not sent");
    client_open(&c, &server);
    static const char page[] = "POST /pause HTTP/1.1\r\nHost: localhost\r\nOrigin: "
                               "http://evil.example\r\nContent-Length: 0\r\n\r\n";
    client_write(&c, page, sizeof page - 1);
    assert_int_equal(client_answer(&c), 403);
    assert_int_equal(ask(&c, "GET", "/weight_info", NULL), 200);
    assert_string_equal(c.body.data, "{\"weight_version\":null}");
    assert_int_equal(ask(&c, "GET", "/get_world_size", NULL), 404);
    assert_int_equal(ask(&c, "POST", COMPLETE, "{\"prompt\": \"a\", \"priority\": 0.5}"), 400);
    client_close(&c);
    assert_false(is_paused());
    serve_open(&s, model, "");
    static const char *const posts[] = {"/pause", "/resume", "/reset_prefix_cache",
                                        "/abort_requests"};
    client_open(&c, &s);
    for (size_t i = 0; i < sizeof posts / sizeof *posts; i++) {
        assert_int_equal(ask(&c, "POST", posts[i], "{}"), 404);
        assert_non_null(strstr(c.body.data, "--allow-control"));
    }
    assert_int_equal(ask(&c, "GET", "/is_paused", NULL), 404);
    client_close(&c);
    serve_close(&s);
}

/* A server that is held still ends when it is asked to, and answers what waits. */
static void stopped_while_paused(void **state) {
    (void)state;
    struct client c;
    control("/pause?mode=keep", 200, "paused");
    begin(&c, "a", 3, false);
    wait_pending(1);
    assert_int_equal(kill(server.pid, SIGTERM), 0);
    assert_int_equal(client_answer(&c), 200);
    client_close(&c);
    assert_int_equal(serve_wait(&server, 60), 0);
    serve_open(&server, model, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept),
        cmocka_unit_test(left_while_kept),
        cmocka_unit_test(waited_for),
        cmocka_unit_test(aborted),
        cmocka_unit_test(one_is_aborted),
        cmocka_unit_test(one_that_waits_is_aborted),
        cmocka_unit_test(resumed_by_another),
        cmocka_unit_test(reset),
        cmocka_unit_test(priorities),
        cmocka_unit_test(refused),
        cmocka_unit_test(stopped_while_paused),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
