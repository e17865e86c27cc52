/* `axtrain serve --allow-control`: requests that end while nothing is computed, the cache, and what is refused.
 * test_serve_control, which takes longer, has answers that go on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/control_case.h"

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
        cmocka_unit_test(left_while_kept),
        cmocka_unit_test(aborted),
        cmocka_unit_test(one_that_waits_is_aborted),
        cmocka_unit_test(reset),
        cmocka_unit_test(refused),
        cmocka_unit_test(stopped_while_paused),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
