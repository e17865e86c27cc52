/* An endpoint's URL and limits, as a configuration has them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

#include "base/net/endpoint.h"
#include "base/status.h"

/* Paths of requests begin behind the root, which has no /v1 and no slash at its end. */
static void urls_have_a_root(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"},
        {"http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000"},
        {"HTTPS://host/a/v1//", "HTTPS://host/a"},
        {"https://host/v2", "https://host/v2"},
        {"https://host///", "https://host"},
        {"https://hostv1", "https://hostv1"},
        {"ftp://host/v1", NULL},
        {"host:8000/v1", NULL},
        {"https://me@host/v1", NULL},
        {"https://host/v1?key=1", NULL},
        {"https://host/v1#x", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_endpoint e;
        const struct ax_endpoint_options o = {.url = cases[i][0], .key = "secret"};
        const enum ax_status st = ax_endpoint_open(&e, &o);
        if ((st == AX_OK) != (cases[i][1] != NULL))
            fail_msg("%s: %s", cases[i][0], st ? ax_error_text() : "taken");
        if (st == AX_OK) {
            assert_string_equal(e.root, cases[i][1]);
            assert_string_equal(e.key, "secret");
        } else {
            assert_int_equal(st, AX_ERR_CONFIG);
        }
        ax_endpoint_close(&e);
    }
    ax_error_clear();
}

static void requests_side_by_side_are_bounded(void **state) {
    (void)state;
    static const int cases[][2] = {{-3, 1},  {0, 1},   {1, 1},   {7, 7},
                                   {63, 63}, {64, 64}, {65, 64}, {1 << 30, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_endpoint e;
        const struct ax_endpoint_options o = {.url = "http://host", .concurrency = cases[i][0]};
        assert_int_equal(ax_endpoint_open(&e, &o), AX_OK);
        assert_int_equal(e.o.concurrency, cases[i][1]);
        assert_null(e.key);
        ax_endpoint_close(&e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_have_a_root),
        cmocka_unit_test(requests_side_by_side_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
