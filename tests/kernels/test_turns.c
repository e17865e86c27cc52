/* Turns (kernels/cpu/turns.h): whatever threads do when, each iteration runs once, and a thread that
 * is stopped has little. */
#include "kernels/cpu/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/vec/split.h"

#define MOST 1000

static const int64_t COUNTS[] = {0, 1, 2, 7, 8, 64, 65, MOST};

static unsigned draw(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* `threads` threads take turns in a random order; `planned` is what ax_turns_start is told. */
static void cover(int64_t count, int planned, int threads, unsigned seed) {
    struct ax_turns turns;
    struct ax_turn at[80];
    unsigned char runs[MOST] = {0};
    int working = threads;
    bool done[80] = {false};
    ax_turns_start(&turns, count, planned);
    for (int t = 0; t < threads; t++)
        at[t] = ax_turns_enter(&turns, t);
    while (working > 0) {
        const int t = (int)(draw(&seed) % (unsigned)threads);
        if (done[t])
            continue;
        if (ax_turns_take(&turns, &at[t])) {
            assert_true(0 <= at[t].from && at[t].from < at[t].to && at[t].to <= count);
            for (int64_t i = at[t].from; i < at[t].to; i++)
                runs[i]++;
        } else {
            done[t] = true;
            working--;
        }
    }
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(runs[i], 1);
}

static void each_iteration_runs_once(void **state) {
    (void)state;
    const int planned[] = {1, 2, 3, 5, AX_TURNS_RANGES, 80}, more[] = {1, 2, 3, 5, 64, 80};
    for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++)
        for (size_t p = 0; p < sizeof planned / sizeof *planned; p++)
            for (size_t t = 0; t < sizeof more / sizeof *more; t++)
                cover(COUNTS[c], planned[p], more[t], (unsigned)(c * 100 + p * 10 + t));
}

/* A thread's own turns follow one another, and are its share if all are equally fast. */
static void threads_own_neighbors(void **state) {
    (void)state;
    struct ax_turns turns;
    ax_turns_start(&turns, MOST, 2);
    struct ax_turn at[2] = {ax_turns_enter(&turns, 0), ax_turns_enter(&turns, 1)};
    int64_t next[2] = {0, MOST / 2};
    while (next[1] < MOST) {
        for (int t = 0; t < 2; t++) {
            assert_true(ax_turns_take(&turns, &at[t]));
            assert_int_equal(at[t].from, next[t]);
            next[t] = at[t].to;
        }
    }
    assert_int_equal(next[0], MOST / 2);
    assert_false(ax_turns_take(&turns, &at[0]));
}

/* One of two threads is stopped in its k-th turn: it has at most an eighth of its half, and less and
 * less towards the end; the other one runs all the rest. */
static void a_stopped_thread_delays_one_turn(void **state) {
    (void)state;
    int64_t before = MOST;
    for (int k = 1; k <= 20; k++) {
        struct ax_turns turns;
        ax_turns_start(&turns, MOST, 2);
        struct ax_turn stopped = ax_turns_enter(&turns, 1), other = ax_turns_enter(&turns, 0);
        int64_t ran = 0;
        for (int i = 0; i < k; i++) {
            assert_true(ax_turns_take(&turns, &stopped));
            ran += stopped.to - stopped.from;
        }
        const int64_t held = stopped.to - stopped.from;
        assert_true(held <= (MOST / 2 - (ran - held) + 7) / 8 && held <= before);
        before = held;
        while (ax_turns_take(&turns, &other))
            ran += other.to - other.from;
        assert_int_equal(ran, MOST);
    }
    assert_true(before <= 6);
}

/* Real threads, more of them than cores. */
static void loops_cover_their_iterations(void **state) {
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        for (size_t c = 0; c < sizeof COUNTS / sizeof *COUNTS; c++) {
            _Atomic int runs[MOST] = {0};
            AX_PARALLEL_FOR (threads, i, COUNTS[c])
                atomic_fetch_add(&runs[i], 1);
            for (int64_t i = 0; i < MOST; i++)
                assert_int_equal(runs[i], i < COUNTS[c]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_iteration_runs_once),
        cmocka_unit_test(threads_own_neighbors),
        cmocka_unit_test(a_stopped_thread_delays_one_turn),
        cmocka_unit_test(loops_cover_their_iterations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
