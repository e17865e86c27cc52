/* Clients that never send a whole request, against the HTTP server of `axtrain serve` alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cmd/serve/http.h"
#include "tests/cmd/serve_case.h"

#define SECONDS 0.6

static enum ax_status slowly(void *ctx, struct ax_exchange *x) {
    (void)ctx;
    nap(2 * SECONDS); /* the time for a request is not that of its answer */
    return ax_reply_json(x, 200, json_pack("{ss}", "status", "ok"));
}

static const struct ax_route routes[] = {{"GET", "/slow", .handle = slowly},
                                         {"POST", "/slow", .handle = slowly}};

static json_t *say_why(void *ctx, struct ax_exchange *x, int status, const char *message) {
    (void)ctx;
    (void)x;
    return json_pack("{si ss}", "status", status, "message", message);
}

/* Sends a byte now and then until the connection ends; returns after how long. */
static double trickle(const struct server *s, const char *head) {
    struct client c;
    const double start = ax_clock_now();
    char nothing;
    client_open(&c, s);
    client_write(&c, head, strlen(head));
    while (ax_clock_now() < start + 20) {
        nap(SECONDS / 10);
        if (send(c.fd, "a", 1, MSG_NOSIGNAL) != 1 || recv(c.fd, &nothing, 1, MSG_DONTWAIT) == 0)
            break;
    }
    client_close(&c);
    return ax_clock_now() - start;
}

static void trickling(void **state) {
    (void)state;
    static const char *const heads[] = {
        "GET /slow HTTP/1.1\r\nX: ",
        "POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: 1000000\r\n\r\n"};
    const struct ax_http_options o = {.host = "127.0.0.1",
                                      .key = "",
                                      .request_seconds = SECONDS,
                                      .routes = routes,
                                      .n_routes = sizeof routes / sizeof *routes,
                                      .error = say_why};
    struct ax_http_server *http;
    if (ax_http_listen(&http, &o) != AX_OK)
        fail_msg("%s", ax_error_text());
    if (ax_http_start(http) != AX_OK)
        fail_msg("%s", ax_error_text());
    const struct server s = {.port = ax_http_port(http)};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const double seconds = trickle(&s, heads[i]);
        assert_true(seconds > SECONDS && seconds < 15);
    }
    struct client c;
    client_open(&c, &s);
    for (int i = 0; i < 3; i++) /* longer than the deadline, all on one connection */
        assert_int_equal(ask(&c, "GET", "/slow", NULL), 200);
    client_close(&c);
    ax_http_stop(http);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(trickling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
