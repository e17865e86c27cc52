/* Some lines of `axtrain check self`, and the requests that it refuses. test_check_self, which takes longer, has all
 * lines, and breaks ops so that each of them fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"

static char out[1 << 14];

static void has(const char *part) {
    if (!strstr(out, part))
        fail_msg("\"%s\" lacks \"%s\"", out, part);
}

static void lines_hold(void **state) {
    (void)state;
    const int code = run(out, sizeof out,
                         "check self --backend ref --threads 2 --only packed --only accumulation "
                         "--only kernels");
    if (code != 0)
        fail_msg("%d: %s", code, out);
    has("\npacked ");
    has("\naccumulation ");
    has("skipped: ref is the reference");
    has("\n2 checks passed, 0 failed, 1 skipped");
    assert_null(strstr(out, "\nthreads "));
    assert_null(strstr(out, "FAIL"));
}

static void requests_are_checked(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"--only mash", "--only: \"mash\" is not one of threads, packed"},
        {"--backend gpu", "--backend: \"gpu\" is not one of cpu, cuda, ref"},
        {"--dtype float64", "--backend ref computes in float64"},
        {"--dtype bfloat16 --backend ref", "--backend ref computes in float64"},
        {"--threads 1", "--threads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run(out, sizeof out, "check self %s", cases[i][0]), 2);
        has(cases[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_hold),
        cmocka_unit_test(requests_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
