/* Orders of rows: a GGUF file's row of each of HF's, against layouts that are written here as loops over parts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ckpt/gguf/names.h"

enum { KEYS = 3, HEAD = 4, VALUES = 6, ROWS = KEYS * 2 * (HEAD + VALUES) };

/* Of HF's rows: part p (q, k, v, z) of group g begins where? */
static int64_t begins(int64_t g, int p) {
    static const int64_t before[] = {0, HEAD, 2 * HEAD, 2 * HEAD + VALUES};
    return g * 2 * (HEAD + VALUES) + before[p];
}

/* q of all groups, then k, then v; z is a tensor of its own. */
static void groups_are_taken_apart(void **state) {
    (void)state;
    int64_t want[2][ROWS], n[2] = {0};
    for (int i = 0; i < 2 * ROWS; i++)
        want[i / ROWS][i % ROWS] = -1;
    for (int p = 0; p < 4; p++)
        for (int64_t g = 0; g < KEYS; g++)
            for (int64_t i = 0; i < (p < 2 ? HEAD : VALUES); i++)
                want[p == 3][begins(g, p) + i] = n[p == 3]++;
    assert_int_equal(n[0] + n[1], ROWS);
    for (int z = 0; z < 2; z++) {
        const struct ax_gguf_order o = {
            .kind = z ? AX_GGUF_Z : AX_GGUF_QKV, .head = HEAD, .keys = KEYS, .values = VALUES};
        for (int64_t r = 0; r < ROWS; r++)
            assert_int_equal(ax_gguf_row(&o, r), want[z][r]);
        assert_int_equal(ax_gguf_rows_in_order(&o, 0, 5), 1);
        assert_int_equal(ax_gguf_run(&o, ROWS), ROWS);
    }
}

/* Halves of a head side by side, in pairs. */
static void halves_become_pairs(void **state) {
    (void)state;
    static const int64_t want[] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
    const struct ax_gguf_order o = {.kind = AX_GGUF_PAIRS, .head = 6};
    for (int64_t r = 0; r < 12; r++)
        assert_int_equal(ax_gguf_row(&o, r), want[r]);
    assert_int_equal(ax_gguf_run(&o, 12), 6);
}

/* Two value heads for each of three key heads, of two rows each, after one row that stays. */
static void value_heads_are_tiled(void **state) {
    (void)state;
    static const int64_t want[] = {0, 1, 2, 7, 8, 3, 4, 9, 10, 5, 6, 11, 12};
    const struct ax_gguf_order o = {
        .kind = AX_GGUF_TILED, .head = 2, .from = 1, .keys = 3, .values = 2};
    for (int64_t r = 0; r < 13; r++)
        assert_int_equal(ax_gguf_row(&o, r), want[r]);
    assert_int_equal(ax_gguf_rows_in_order(&o, 0, 9), 1);
    assert_int_equal(ax_gguf_rows_in_order(&o, 1, 9), 2);
    assert_int_equal(ax_gguf_rows_in_order(&o, 2, 9), 1);
    assert_int_equal(ax_gguf_rows_in_order(&o, 3, 1), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_taken_apart),
        cmocka_unit_test(halves_become_pairs),
        cmocka_unit_test(value_heads_are_tiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
