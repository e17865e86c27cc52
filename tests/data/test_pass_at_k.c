/* The estimator of pass@k against the chance that it estimates, counted out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "data/reward/pass_at_k.h"

/* Of all ways to choose k of n answers, the share with one of the first c, which are right. */
static double by_counting(int n, int c, int k) {
    long with = 0, all = 0;
    for (unsigned set = 0; set < 1U << n; set++) {
        if (__builtin_popcount(set) != k)
            continue;
        all++;
        with += (set & ((1U << c) - 1)) != 0;
    }
    return (double)with / (double)all;
}

static void every_small_case(void **state) {
    (void)state;
    for (int n = 1; n <= 12; n++)
        for (int c = 0; c <= n; c++)
            for (int k = 1; k <= n; k++) {
                const double want = by_counting(n, c, k), got = ax_pass_at_k(n, c, k);
                if (!(fabs(got - want) < 1e-14))
                    fail_msg("n %d, c %d, k %d: %.17g, counted %.17g", n, c, k, got, want);
            }
}

/* log C(n, k) by the gamma function, where counting would take too long. */
static long double log_choose(int64_t n, int64_t k) {
    return lgammal((long double)n + 1) - lgammal((long double)k + 1) -
           lgammal((long double)(n - k) + 1);
}

static void many_answers(void **state) {
    (void)state;
    static const int64_t cases[][3] = {{200, 1, 100},     {200, 7, 10},       {1000, 3, 100},
                                       {1000, 900, 1},    {100000, 5, 20000}, {100000, 1, 1},
                                       {100000, 99999, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t n = cases[i][0], c = cases[i][1], k = cases[i][2];
        const long double want = -expm1l(log_choose(n - c, k) - log_choose(n, k));
        const double got = ax_pass_at_k(n, c, k);
        if (!(fabs(got - (double)want) < 1e-10))
            fail_msg("n %lld, c %lld, k %lld: %.17g, by gamma %.17Lg", (long long)n, (long long)c,
                     (long long)k, got, want);
    }
    assert_true(ax_pass_at_k(100000, 0, 100000) == 0);
    assert_true(ax_pass_at_k(8, 3, 6) == 1); /* fewer than k are wrong */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_case),
        cmocka_unit_test(many_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
