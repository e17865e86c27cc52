/* Short copies are held back until something else follows, and made by one kernel: as if each was made in its
 * turn, whatever they write and read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/cuda/graphs.h"
#include "tests/kernels/harness.h"

#define N      6000 /* floats: more than 2,048 are not a short copy */
#define HALVED 512
#define ORDERS 16

struct twins {
    struct machine m;
    float AX_DEVICE *there;
    float here[N]; /* what is there when all is done */
    uint64_t drawn;
};

static void open_twins(struct twins *t, unsigned order) {
    ax_emulated_seed(order);
    machine_open(&t->m, "cuda", 1);
    t->there = ax_stack_push(t->m.q->scratch, "x", sizeof t->here);
    memset(t->here, 0, sizeof t->here);
    t->drawn = (uint64_t)order << 32;
}

static int draw(struct twins *t, int below) {
    return (int)ax_rng_below((struct ax_rng_key){.seed = 5}, t->drawn++, (uint64_t)below);
}

static void check(struct twins *t) {
    float out[N];
    assert_int_equal(ax_queue_read(t->m.q, t->there, out, sizeof out, NULL), AX_OK);
    assert_memory_equal(out, t->here, sizeof out);
}

/* ---- how many there are ---- */

static void write_to(struct twins *t, int at, int n) {
    static float numbers[N];
    for (int i = 0; i < n; i++)
        numbers[i] = (float)draw(t, 1000);
    memcpy(t->here + at, numbers, (size_t)n * sizeof *numbers);
    assert_int_equal(ax_queue_write(t->m.q, t->there + at, numbers, (size_t)n * sizeof *numbers),
                     AX_OK);
}

static void short_ones_take_no_copy(void **state) {
    (void)state;
    struct twins t;
    open_twins(&t, 0);
    for (int n = 1; n < 40; n += 19) { /* also more than one kernel makes */
        const uint64_t before = ax_emulated_copies();
        for (int i = 0; i < n; i++)
            write_to(&t, 100 * i, 1 + i);
        check(&t);
        assert_int_equal(ax_emulated_copies() - before, 1); /* the read */
    }
    const uint64_t before = ax_emulated_copies();
    write_to(&t, 0, N);
    check(&t);
    assert_int_equal(ax_emulated_copies() - before, 2);
    machine_close(&t.m);
}

/* ---- in their order ---- */

static void move(struct twins *t) {
    const int n = 1 + draw(t, 2500), from = draw(t, N - 2 * n + 1), to = from + n;
    const bool back = draw(t, 2);
    const int a = back ? to : from, b = back ? from : to;
    memcpy(t->here + b, t->here + a, (size_t)n * sizeof *t->here);
    assert_int_equal(ax_queue_copy(t->m.q, t->there + b, t->there + a, (size_t)n * sizeof *t->here),
                     AX_OK);
}

/* By as many ops as make a graph: what comes the third time is held back. */
static void halve(struct twins *t) {
    const struct ax_tensor x = ax_tensor_1d(AX_F32, t->there, HALVED);
    const struct ax_scale half = {.y = x, .x = x, .alpha = 0.5};
    for (int k = 0; k < AX_GRAPH_LEAST; k++) {
        for (int i = 0; i < HALVED; i++)
            t->here[i] /= 2;
        assert_int_equal(ax_run_scale(t->m.q, &half), AX_OK);
    }
}

/* Bytes that are no whole word, or not at one. */
static void write_bytes(struct twins *t) {
    const char bytes[] = {1, 2, 3, 4, 5};
    const int n = 1 + draw(t, 5), at = draw(t, (int)sizeof t->here - n);
    memcpy((char *)t->here + at, bytes, (size_t)n);
    assert_int_equal(ax_queue_write(t->m.q, (char AX_DEVICE *)t->there + at, bytes, (size_t)n),
                     AX_OK);
}

static void what_overlaps_keeps_its_order(void **state) {
    (void)state;
    for (unsigned order = 0; order < ORDERS; order++) {
        struct twins t;
        open_twins(&t, order);
        for (int i = 0; i < 300; i++) {
            const int n = 1 + draw(&t, draw(&t, 8) ? 300 : N), kind = draw(&t, 16);
            if (kind < 9)
                write_to(&t, draw(&t, N - n + 1), n);
            else if (kind < 11)
                move(&t);
            else if (kind < 12)
                write_bytes(&t);
            else
                halve(&t);
            if (draw(&t, 20) == 0)
                check(&t);
        }
        check(&t);
        machine_close(&t.m);
    }
}

/* ---- errors ---- */

static void errors_are_told_to_who_waits(void **state) {
    (void)state;
    struct twins t;
    float out[4];
    open_twins(&t, 0);
    write_to(&t, 0, 4);
    ax_emulated_fail(cudaErrorLaunchFailure, false);
    assert_int_equal(ax_queue_read(t.m.q, t.there, out, sizeof out, NULL), AX_ERR_FAILED);
    assert_non_null(strstr(ax_error_text(), "copies_kernel failed"));
    machine_close(&t.m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_ones_take_no_copy),
        cmocka_unit_test(what_overlaps_keeps_its_order),
        cmocka_unit_test(errors_are_told_to_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
