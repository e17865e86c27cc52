/* A rank that is slower than its peers is named, soon and once; noise is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "optim/metrics/slow_ranks.h"

enum { MAX_WORLD = 8 };

/* Steps until a rank is named; −1: none in n. */
static int steps_until(struct ax_slow_ranks *s, const double *seconds, int n, int *rank,
                       double *its, double *median) {
    for (int i = 1; i <= n; i++) {
        *rank = ax_slow_ranks_note(s, seconds, its, median);
        if (*rank >= 0)
            return i;
    }
    return -1;
}

static void half_as_fast_is_named_within_20_steps(void **state) {
    (void)state;
    static const double even[MAX_WORLD] = {1, 1, 1, 1, 1, 1, 1, 1};
    for (int world = 2; world <= MAX_WORLD; world++)
        for (int slow = 0; slow < world; slow++) {
            struct ax_slow_ranks s;
            double seconds[MAX_WORLD], its, median;
            int rank;
            for (int r = 0; r < world; r++)
                seconds[r] = r == slow ? 2 : 1;
            assert_int_equal(ax_slow_ranks_create(&s, world, 1), AX_OK);
            assert_int_equal(steps_until(&s, even, 100, &rank, &its, &median), -1);
            const int steps = steps_until(&s, seconds, 20, &rank, &its, &median);
            assert_in_range(steps, 1, 20);
            assert_int_equal(rank, slow);
            assert_true(median == 1 && its > 4.0 / 3 && its <= 2);
            assert_int_equal(steps_until(&s, seconds, 100, &rank, &its, &median), -1); /* once */
            assert_int_equal(steps_until(&s, even, 100, &rank, &its, &median), -1);
            assert_true(steps_until(&s, seconds, 20, &rank, &its, &median) > 0); /* again */
            ax_slow_ranks_free(&s);
        }
}

static void noise_and_short_steps_are_not_named(void **state) {
    (void)state;
    const struct ax_rng_key key = {3, 4, 5};
    struct ax_slow_ranks s;
    double seconds[4], its, median;
    int rank;
    assert_int_equal(ax_slow_ranks_create(&s, 4, 1), AX_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        for (uint64_t r = 0; r < 4; r++)
            seconds[r] = 0.9 + 0.2 * ax_rng_uniform(key, 4 * i + r);
        assert_int_equal(ax_slow_ranks_note(&s, seconds, &its, &median), -1);
    }
    ax_slow_ranks_free(&s);
    assert_int_equal(ax_slow_ranks_create(&s, 2, 1), AX_OK); /* 20 steps lose less than 0.5 s */
    assert_int_equal(steps_until(&s, (double[]){0.02, 0.04}, 200, &rank, &its, &median), -1);
    ax_slow_ranks_free(&s);
}

/* The stages of a pipeline do unequal work. */
static void peers_are_those_of_the_stage(void **state) {
    (void)state;
    struct ax_slow_ranks s;
    double its, median;
    int rank;
    assert_int_equal(ax_slow_ranks_create(&s, 4, 2), AX_OK);
    assert_int_equal(steps_until(&s, (double[]){1, 1, 3, 3}, 100, &rank, &its, &median), -1);
    assert_true(steps_until(&s, (double[]){1, 1, 3, 5}, 20, &rank, &its, &median) > 0);
    assert_int_equal(rank, 3);
    assert_true(median == 3);
    ax_slow_ranks_free(&s);
    assert_int_equal(ax_slow_ranks_create(&s, 2, 2), AX_OK); /* no peers */
    assert_int_equal(steps_until(&s, (double[]){1, 9}, 100, &rank, &its, &median), -1);
    ax_slow_ranks_free(&s);
    assert_int_equal(ax_slow_ranks_create(&s, 1, 1), AX_OK);
    assert_int_equal(steps_until(&s, (double[]){1}, 100, &rank, &its, &median), -1);
    ax_slow_ranks_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_as_fast_is_named_within_20_steps),
        cmocka_unit_test(noise_and_short_steps_are_not_named),
        cmocka_unit_test(peers_are_those_of_the_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
