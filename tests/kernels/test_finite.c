/* The first value that is no number, in tensors of a few elements and of several threads' parts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernels/finite.h"

#define LARGE (((int64_t)1 << 19) + 77) /* of several parts, the last of them short */

static void check(enum ax_dtype dtype, struct ax_tensor *t, int64_t first, int64_t second,
                  double bad) {
    const double was[2] = {ax_load(dtype, t->data, first), ax_load(dtype, t->data, second)};
    ax_store(dtype, t->data, second, bad);
    assert_int_equal(ax_tensor_first_nonfinite(t), second);
    ax_store(dtype, t->data, first, -bad);
    assert_int_equal(ax_tensor_first_nonfinite(t), first);
    ax_store(dtype, t->data, first, was[0]);
    ax_store(dtype, t->data, second, was[1]);
    assert_int_equal(ax_tensor_first_nonfinite(t), -1);
}

static void the_first_is_found(void **state) {
    (void)state;
    static const enum ax_dtype dtypes[] = {AX_F64, AX_F32, AX_BF16};
    static const int64_t sizes[] = {2, 77, LARGE};
    for (int d = 0; d < 3; d++) {
        const enum ax_dtype dtype = dtypes[d];
        for (int s = 0; s < 3; s++) {
            const int64_t n = sizes[s];
            void *data;
            assert_int_equal(ax_alloc(&data, (size_t)n, ax_dtype_size(dtype)), AX_OK);
            struct ax_tensor t = ax_tensor_1d(dtype, data, n);
            for (int64_t i = 0; i < n; i++) /* the largest of bfloat16 is a number */
                ax_store(dtype, data, i, i % 3 == 0 ? 3.3895313892515355e38 : -1e-40);
            assert_int_equal(ax_tensor_first_nonfinite(&t), -1);
            check(dtype, &t, 0, n - 1, NAN);
            check(dtype, &t, n / 2 - 1, n / 2, INFINITY);
            check(dtype, &t, n / 3, n - 1, INFINITY);
            ax_free(data);
        }
    }
}

static void nothing_has_no_bad_one(void **state) {
    (void)state;
    struct ax_tensor none = ax_tensor_1d(AX_F32, NULL, 0);
    assert_int_equal(ax_tensor_first_nonfinite(&none), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_found),
        cmocka_unit_test(nothing_has_no_bad_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
