/* Views: shapes, strides, and where slices point; on made-up addresses too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/tensor.h"

static void dense_views(void **state) {
    (void)state;
    float data[24];
    struct ax_tensor a = ax_tensor_1d(AX_F32, data, 24);
    assert_int_equal(a.row_stride, 1);
    assert_int_equal(ax_tensor_row_len(&a), 1);
    assert_int_equal(ax_tensor_bytes(&a), 96);
    assert_ptr_equal(ax_tensor_row(&a, 5), &data[5]);
    struct ax_tensor b = ax_tensor_2d(AX_F32, data, 4, 6);
    assert_int_equal(b.row_stride, 6);
    assert_int_equal(ax_tensor_numel(&b), 24);
    assert_ptr_equal(ax_tensor_row(&b, 3), &data[18]);
    struct ax_tensor c = ax_tensor_3d(AX_F32, data, 2, 3, 4);
    assert_int_equal(c.row_stride, 12);
    assert_int_equal(ax_tensor_row_len(&c), 12);
    struct ax_tensor d = ax_tensor_nd(AX_F32, data, 4, (const int64_t[]){2, 3, 2, 2});
    assert_int_equal(d.row_stride, 12);
    assert_true(ax_tensor_is_dense(&a) && ax_tensor_is_dense(&b) && ax_tensor_is_dense(&c) &&
                ax_tensor_is_dense(&d));
    struct ax_tensor none = ax_tensor_2d(AX_F32, data, 0, 6);
    assert_int_equal(ax_tensor_numel(&none), 0);
    assert_true(ax_tensor_is_dense(&none));
}

static void slices_of_a_qkv_buffer(void **state) {
    (void)state;
    uint16_t data[5 * 16];
    /* [T = 5][(Hq 4 + 2·Hk 2) · hd 2] */
    struct ax_tensor qkv = ax_tensor_2d(AX_BF16, data, 5, 16);
    struct ax_tensor k = ax_tensor_cols(&qkv, 8, 4);
    assert_ptr_equal(k.data, &data[8]);
    assert_int_equal(k.row_stride, 16);
    assert_false(ax_tensor_is_dense(&k));
    struct ax_tensor heads = ax_tensor_heads(&k, 2, 2);
    assert_int_equal(heads.ndim, 3);
    assert_int_equal(heads.shape[1], 2);
    assert_int_equal(heads.shape[2], 2);
    assert_int_equal(heads.row_stride, 16);
    assert_int_equal(ax_tensor_bytes(&heads), 40);
    struct ax_tensor rows = ax_tensor_rows(&heads, 2, 3);
    assert_int_equal(rows.shape[0], 3);
    assert_ptr_equal(rows.data, &data[2 * 16 + 8]);
    assert_ptr_equal(ax_tensor_row(&rows, 1), &data[3 * 16 + 8]);
    struct ax_tensor last = ax_tensor_rows(&heads, 4, 1);
    assert_true(ax_tensor_is_dense(&last)); /* one row has no stride to speak of */
    struct ax_tensor end = ax_tensor_rows(&heads, 5, 0);
    assert_int_equal(ax_tensor_numel(&end), 0);
}

static void missing_tensors_stay_missing(void **state) {
    (void)state;
    struct ax_tensor none = ax_tensor_2d(AX_F32, NULL, 4, 6);
    struct ax_tensor rows = ax_tensor_rows(&none, 2, 2);
    struct ax_tensor cols = ax_tensor_cols(&none, 3, 3);
    assert_null(rows.data);
    assert_null(cols.data);
    assert_null(ax_tensor_row(&none, 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_views),
        cmocka_unit_test(slices_of_a_qkv_buffer),
        cmocka_unit_test(missing_tensors_stay_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
