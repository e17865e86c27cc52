/* Mistakes that kernels make on a GPU are caught by the emulator: each of five kernels runs with its mistake
 * and without it, in a process of its own for each of four seeds. It is caught if a process ends with an
 * error, a result is wrong, or seeds give other bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/cuda/alone.h"
#include "tests/cuda/broken.h"

#define SEEDS 4

static float x[BROKEN_SIZE];
static float (
    *results)[BROKEN_SIZE]; /* one for each seed, shared with the processes that compute them */
static char said[SEEDS][ALONE_SAID]; /* what they wrote to stderr */

/* What the kernel's results should be, and how many there are. */
static int expect(enum broken_kernel kernel, double *want) {
    const int n = kernel == BROKEN_BARRIER ? BROKEN_COLS
                  : kernel == BROKEN_MASK  ? BROKEN_ROWS
                  : kernel == BROKEN_ORDER ? 1
                                           : BROKEN_SIZE;
    for (int i = 0; i < n; i++)
        want[i] = 0;
    for (int i = 0; i < BROKEN_SIZE; i++) {
        const int to = kernel == BROKEN_BARRIER ? i % BROKEN_COLS
                       : kernel == BROKEN_MASK  ? i / BROKEN_COLS
                       : kernel == BROKEN_ORDER ? 0
                                                : i;
        want[to] +=
            kernel == BROKEN_TAIL || kernel == BROKEN_WAIT ? 2 * (double)x[i] : (double)x[i];
        want[to] += kernel == BROKEN_WAIT ? 1 : 0;
    }
    return n;
}

struct trial {
    enum broken_kernel kernel;
    bool mistake;
    int seed;
};

static void run_trial(void *ctx) {
    const struct trial *t = ctx;
    char text[16];
    snprintf(text, sizeof text, "%d", t->seed);
    setenv("AXTRAIN_CUDA_SEED", text, 1);
    broken_run(t->kernel, t->mistake, x, results[t->seed]);
}

static bool is_right(enum broken_kernel kernel, const float *got) {
    double want[BROKEN_SIZE];
    const int n = expect(kernel, want);
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-4))
            return false;
    return true;
}

struct finding {
    int died, wrong, other_bits; /* seeds */
};

static struct finding run(enum broken_kernel kernel, bool mistake) {
    struct finding f = {0};
    double unused[BROKEN_SIZE];
    const size_t bytes = (size_t)expect(kernel, unused) * sizeof(float);
    memset(results, 0, SEEDS * sizeof *results);
    for (int seed = 0; seed < SEEDS; seed++) {
        struct trial t = {kernel, mistake, seed};
        if (run_alone(run_trial, &t, said[seed]) != 0) {
            f.died++;
            continue;
        }
        f.wrong += is_right(kernel, results[seed]) ? 0 : 1;
        f.other_bits += memcmp(results[seed], results[0], bytes) != 0 ? 1 : 0;
    }
    return f;
}

static void right_kernels_pass(void **state) {
    (void)state;
    for (int k = 0; k < BROKEN_COUNT; k++) {
        const struct finding f = run((enum broken_kernel)k, false);
        if (f.died + f.wrong + f.other_bits != 0) {
            fail_msg("kernel %d: %d seeds died, %d wrong, %d with other bits: %s", k, f.died,
                     f.wrong, f.other_bits, said[0]);
        }
    }
}

/* Shared memory begins as NaN: a thread that reads too early says so in its result. */
static void missing_barrier(void **state) {
    (void)state;
    const struct finding f = run(BROKEN_BARRIER, true);
    assert_int_equal(f.died, 0);
    assert_int_equal(f.wrong, SEEDS);
}

static void wrong_mask(void **state) {
    (void)state;
    assert_int_equal(run(BROKEN_MASK, true).died, SEEDS);
    assert_non_null(strstr(said[0], "cuda_emu: shuffle reads a lane outside the mask"));
}

static void tail_out_of_bounds(void **state) {
    (void)state;
    assert_int_equal(run(BROKEN_TAIL, true).died, SEEDS);
    assert_non_null(strstr(said[0], "AddressSanitizer: use-after-poison"));
}

/* Not every order of the streams is wrong. */
static void missing_stream_wait(void **state) {
    (void)state;
    const struct finding f = run(BROKEN_WAIT, true);
    assert_int_equal(f.died, 0);
    assert_true(f.wrong > 0 && f.other_bits > 0);
}

/* Every order is right within the tolerance: only their bits tell. */
static void unordered_sum(void **state) {
    (void)state;
    const struct finding f = run(BROKEN_ORDER, true);
    assert_int_equal(f.died + f.wrong, 0);
    assert_true(f.other_bits > 0);
}

static int set_up(void **state) {
    (void)state;
    const struct ax_rng_key key = {.seed = 5};
    for (int i = 0; i < BROKEN_SIZE; i++)
        x[i] = ax_rng_normal(key, (uint64_t)i);
    results = mmap(NULL, SEEDS * sizeof *results, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return results == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    return munmap(results, SEEDS * sizeof *results);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_pass),  cmocka_unit_test(missing_barrier),
        cmocka_unit_test(wrong_mask),          cmocka_unit_test(tail_out_of_bounds),
        cmocka_unit_test(missing_stream_wait), cmocka_unit_test(unordered_sum),
    };
    return cmocka_run_group_tests_name("broken kernels", tests, set_up, tear_down);
}
