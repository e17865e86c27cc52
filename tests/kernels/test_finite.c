/* The first value that is no number, in tensors of a few elements and of several threads' parts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernels/finite.h"
#include "tests/doubles/far.h"

/* Of several parts, and of several pieces of 8-byte elements; the last of them is short. */
#define LARGE (((int64_t)1 << 20) + (1 << 17) + 77)

/* In the host's memory, or where the host cannot touch it. */
struct place {
    struct ax_arena arena;
    struct ax_queue *q;
    void *host, *device;
};

static void expect(struct place *p, struct ax_tensor t, int64_t at, double value) {
    struct ax_nonfinite bad;
    t.data = p->device;
    assert_int_equal(ax_queue_write(p->q, p->device, p->host, ax_tensor_bytes(&t)), AX_OK);
    assert_int_equal(ax_tensor_first_nonfinite(p->q, &t, &bad), AX_OK);
    assert_int_equal(bad.at, at);
    if (at >= 0)
        assert_memory_equal(&bad.value, &value, sizeof value);
}

static void check(struct place *p, struct ax_tensor t, int64_t first, int64_t second, double bad) {
    const double was[2] = {ax_load(t.dtype, t.data, first), ax_load(t.dtype, t.data, second)};
    ax_store(t.dtype, t.data, second, bad);
    expect(p, t, second, ax_load(t.dtype, t.data, second));
    ax_store(t.dtype, t.data, first, -bad);
    expect(p, t, first, ax_load(t.dtype, t.data, first));
    ax_store(t.dtype, t.data, first, was[0]);
    ax_store(t.dtype, t.data, second, was[1]);
    expect(p, t, -1, 0);
}

static void check_sizes(struct place *p) {
    static const enum ax_dtype dtypes[] = {AX_F64, AX_F32, AX_BF16, AX_F16};
    static const int64_t sizes[] = {2, 77, LARGE};
    for (int d = 0; d < 4; d++) {
        const enum ax_dtype dtype = dtypes[d];
        const double largest = dtype == AX_F16 ? 65504 : 3.3895313892515355e38;
        for (int s = 0; s < 3; s++) {
            const int64_t n = sizes[s];
            struct ax_tensor t = ax_tensor_1d(dtype, p->host, n);
            for (int64_t i = 0; i < n; i++) /* the largest of bfloat16 is a number */
                ax_store(dtype, p->host, i, i % 3 == 0 ? largest : -1e-40);
            expect(p, t, -1, 0);
            check(p, t, 0, n - 1, NAN);
            check(p, t, n / 2 - 1, n / 2, INFINITY);
            check(p, t, n / 3, n - 1, INFINITY);
        }
    }
}

static void the_first_is_found(void **state) {
    (void)state;
    for (int far = 0; far < 2; far++) {
        struct place p = {0};
        const size_t bytes = LARGE * 8 / AX_ARENA_ALIGN * AX_ARENA_ALIGN + AX_ARENA_ALIGN;
        const struct ax_arena_plan plan = {.persistent = bytes, .host = AX_QUEUE_RING};
        assert_int_equal(ax_arena_create(&p.arena, &plan, far ? &ax_device_far : &ax_device_host),
                         AX_OK);
        if (far) { /* else a queue of none */
            assert_int_equal(ax_queue_create(&p.q, "far", NULL, 1, &p.arena.scratch), AX_OK);
            assert_int_equal(ax_queue_open_ring(p.q), AX_OK);
        }
        assert_int_equal(ax_alloc(&p.host, bytes, 1), AX_OK);
        p.device = ax_stack_push(&p.arena.persistent, "values", bytes);
        check_sizes(&p);
        ax_free(p.host);
        ax_queue_free(p.q);
        ax_arena_free(&p.arena);
    }
}

static void nothing_has_no_bad_one(void **state) {
    (void)state;
    struct place p = {0};
    expect(&p, ax_tensor_1d(AX_F32, NULL, 0), -1, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_found),
        cmocka_unit_test(nothing_has_no_bad_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
