/* Parts of tensors: every element of random blocks, against a count by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

#include "ckpt/tensors/block.h"

enum { DIMS = 3, MOST = 4 * 5 * 6 };

/* The tensor's elements that the part has, in order. */
static int64_t by_hand(const struct ax_block *b, int64_t *elements) {
    int64_t n = 0, in_block = 0, total = 1;
    for (int d = 0; d < b->ndim; d++)
        total *= b->shape[d];
    for (int64_t e = 0; e < total; e++) {
        int64_t left = e;
        int inside = 1;
        for (int d = b->ndim - 1; d >= 0; d--) {
            const int64_t c = left % b->shape[d];
            left /= b->shape[d];
            inside = inside && c >= b->start[d] && c < b->start[d] + b->size[d];
        }
        if (inside && in_block >= b->first && in_block < b->first + b->n)
            elements[n++] = e;
        in_block += inside;
    }
    return n;
}

static void check(const struct ax_block *b) {
    int64_t elements[MOST], total = 1;
    const int64_t n = by_hand(b, elements);
    assert_int_equal(n, b->n);
    for (int d = 0; d < b->ndim; d++)
        total *= b->shape[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t run, together = 1;
        assert_int_equal(ax_block_index(b, i, &run), elements[i]);
        while (i + together < n && elements[i + together] == elements[i] + together)
            together++;
        assert_true(run >= 1 && run <= together);
        if (i == 0 && b->n == total)
            assert_int_equal(run, total); /* a whole tensor is one run */
    }
    for (int64_t at = 0, before = 0; at <= total + 2; at++) {
        assert_int_equal(ax_block_before(b, at), before);
        before += before < n && elements[before] == at;
    }
}

static void parts_have_their_elements(void **state) {
    (void)state;
    srand(7);
    for (int turn = 0; turn < 3000; turn++) {
        struct ax_block b = {.ndim = 1 + turn % DIMS};
        int64_t size = 1;
        for (int d = 0; d < b.ndim; d++) {
            b.shape[d] = 1 + rand() % (4 + d);
            b.start[d] = rand() % b.shape[d];
            b.size[d] = 1 + rand() % (b.shape[d] - b.start[d]);
            size *= b.size[d];
        }
        b.first = rand() % size;
        b.n = rand() % (size - b.first + 1);
        check(&b);
    }
}

static struct ax_block random_block(int ndim, const int64_t *shape) {
    struct ax_block b = {.ndim = ndim};
    int64_t size = 1;
    for (int d = 0; d < ndim; d++) {
        b.shape[d] = shape[d];
        b.start[d] = rand() % shape[d];
        b.size[d] = 1 + rand() % (shape[d] - b.start[d]);
        size *= b.size[d];
    }
    b.first = rand() % size;
    b.n = rand() % (size - b.first + 1);
    return b;
}

/* Every element of one that the other has, once and in order. */
static void parts_have_elements_in_common(void **state) {
    (void)state;
    static const int64_t shape[DIMS] = {4, 5, 6};
    srand(8);
    for (int turn = 0; turn < 3000; turn++) {
        const int ndim = 1 + turn % DIMS;
        const struct ax_block to = random_block(ndim, shape), from = random_block(ndim, shape);
        int64_t a[MOST], b[MOST], at, k, n;
        by_hand(&to, a);
        by_hand(&from, b);
        int64_t i = to.n > 0 ? rand() % to.n : 0;
        const int64_t end = i + (to.n > i ? rand() % (to.n - i + 1) : 0);
        struct ax_block_common c = ax_block_common(&to, i, end - i, &from);
        while (ax_block_next(&c, &at, &k, &n))
            for (int64_t e = 0; e < n; e++, i++) {
                for (; i < at + e; i++) /* those in between are not in the other */
                    for (int64_t other = 0; other < from.n; other++)
                        assert_int_not_equal(b[other], a[i]);
                assert_true(i < end && k + e < from.n);
                assert_int_equal(a[at + e], b[k + e]);
            }
        for (; i < end; i++)
            for (int64_t other = 0; other < from.n; other++)
                assert_int_not_equal(b[other], a[i]);
    }
}

/* Rows of a slice of columns, which is how tensor parallelism splits an output projection. */
static void runs_are_as_long_as_they_can_be(void **state) {
    (void)state;
    int64_t run;
    const struct ax_block columns = {
        .ndim = 2, .shape = {4, 6}, .start = {0, 2}, .size = {4, 3}, .n = 12};
    assert_int_equal(ax_block_index(&columns, 4, &run), 6 + 3);
    assert_int_equal(run, 2);
    const struct ax_block rows = {
        .ndim = 2, .shape = {4, 6}, .start = {1, 0}, .size = {2, 6}, .first = 1, .n = 10};
    assert_int_equal(ax_block_index(&rows, 2, &run), 6 + 3);
    assert_int_equal(run, 8);
}

static void scalars_and_empty_tensors(void **state) {
    (void)state;
    const int64_t none[] = {3, 0};
    const struct ax_block scalar = ax_block_whole(0, NULL), empty = ax_block_whole(2, none);
    assert_int_equal(scalar.n, 1);
    check(&scalar);
    assert_int_equal(empty.n, 0);
    assert_int_equal(ax_block_before(&empty, 0), 0);
    assert_int_equal(ax_block_before(&empty, 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_have_their_elements),
        cmocka_unit_test(parts_have_elements_in_common),
        cmocka_unit_test(runs_are_as_long_as_they_can_be),
        cmocka_unit_test(scalars_and_empty_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
