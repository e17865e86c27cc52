/* `axtrain serve --allow-control`: answers that go on after a pause, and who comes first. test_serve_pause has the rest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/control_case.h"
#include "tests/long.h"

#define LONG 2000 /* tokens: some tenths of a second */

static json_t *undisturbed(int tokens) {
    struct client c;
    const char *finish;
    begin(&c, "alone", tokens, true);
    json_t *text = stream_end(&c, &finish);
    assert_string_equal(finish, "length");
    return text;
}

/* ---- pausing ---- */

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

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(kept)), cmocka_unit_test(waited_for),
        cmocka_unit_test(one_is_aborted),  LONG_TEST(cmocka_unit_test(resumed_by_another)),
        cmocka_unit_test(priorities),
    };
    return cmocka_run_group_tests(tests, open_server, close_server);
}
