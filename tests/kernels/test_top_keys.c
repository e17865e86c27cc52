/* The keys of sparse attention: by hand, with ties; a query alone chooses as it does among others, and both forms of
 * the result say the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/rng.h"
#include "tests/kernels/machines.h"
#include "tests/skip.h"

enum { MOST = 90, HEADS = 5, DIM = 24, TOP = 11, WORDS = (MOST + 31) / 32 };

/* ---- by hand ---- */

/* Keys with these scores, if q = 1 and w = 1, in dimension 1. */
static void expect_chosen(struct machine *m, int n, const float *keys, const float *weights,
                          int top, const int32_t *want) {
    float q[MOST];
    int32_t rows[MOST], cu[2] = {0, n};
    for (int i = 0; i < n; i++)
        q[i] = 1;
    const int64_t q_shape[] = {n, 1, 1};
    const struct ax_top_keys t = {.q = ax_tensor_nd(AX_F32, q, 3, q_shape),
                                  .k = ax_tensor_nd(AX_F32, (void *)(uintptr_t)keys, 3, q_shape),
                                  .w = ax_tensor_2d(AX_F32, (void *)(uintptr_t)weights, n, 1),
                                  .cu_q = ax_tensor_1d(AX_I32, cu, 2),
                                  .cu_k = ax_tensor_1d(AX_I32, cu, 2),
                                  .rows = ax_tensor_2d(AX_I32, rows, n, top),
                                  .max_q = n,
                                  .max_k = n,
                                  .top = top,
                                  .scale = 1};
    assert_int_equal(ax_run_top_keys(m->q, &t), AX_OK);
    assert_memory_equal(rows, want, (size_t)(n * top) * sizeof *rows);
}

/* Scores: 2 1 2 3 2; of equal ones the first. With negative weights: 0 0 0 is more than −1. */
static void of_equal_scores_the_first(struct machine *m) {
    static const float keys[] = {2, 1, 2, 3, 2}, ones[] = {1, 1, 1, 1, 1};
    static const int32_t best[] = {0, -1, 0, 1, 0, 2, 0, 3, 0, 3};
    expect_chosen(m, 5, keys, ones, 2, best);
    static const float some[] = {1, -1, -2, -3, 1}, minus[] = {-1, -1, -1, -1, -1};
    static const int32_t zeros[] = {0, -1, -1, 0, 1, -1, 0, 1, 2, 1, 2, 3, 1, 2, 3};
    expect_chosen(m, 5, some, minus, 3, zeros);
    static const float none[] = {-1, -2, -3, -4, -5};
    static const int32_t first[] = {0, -1, 0, 1, 0, 1, 0, 1, 0, 1};
    expect_chosen(m, 5, none, ones, 2, first);
    expect_chosen(m, 5, none, minus, 2, first);
}

static void ties_are_the_first_keys(void **state) {
    (void)state;
    of_equal_scores_the_first(&ref);
    if (have_cpu())
        of_equal_scores_the_first(&cpu);
}

/* ---- alone ---- */

static float q[MOST * HEADS * DIM], k[MOST * DIM], w[MOST * HEADS];

static void fill(float *x, int n, uint32_t tensor) {
    for (int i = 0; i < n; i++)
        x[i] = (float)ax_rng_uniform((struct ax_rng_key){5, 0, tensor}, (uint64_t)i) - 0.5f;
}

/* The last n_q queries of a document of n keys, as bits or rows. */
static struct ax_top_keys call(int n_q, int n, int32_t *cu, int32_t *bits, int32_t *rows) {
    const int64_t q_shape[] = {n_q, HEADS, DIM}, k_shape[] = {n, 1, DIM};
    cu[0] = cu[2] = 0;
    cu[1] = n_q;
    cu[3] = n;
    struct ax_top_keys t = {.q = ax_tensor_nd(AX_F32, q + (n - n_q) * HEADS * DIM, 3, q_shape),
                            .k = ax_tensor_nd(AX_F32, k, 3, k_shape),
                            .w = ax_tensor_2d(AX_F32, w + (n - n_q) * HEADS, n_q, HEADS),
                            .cu_q = ax_tensor_1d(AX_I32, cu, 2),
                            .cu_k = ax_tensor_1d(AX_I32, cu + 2, 2),
                            .max_q = n_q,
                            .max_k = n,
                            .top = TOP,
                            .scale = 0.3};
    if (bits)
        t.chosen = ax_tensor_2d(AX_I32, bits, n_q, WORDS);
    else
        t.rows = ax_tensor_2d(AX_I32, rows, n_q, TOP);
    return t;
}

/* Bits as a list. */
static void list(const int32_t *bits, int32_t *rows) {
    int found = 0;
    for (int j = 0; j < 32 * WORDS; j++)
        if ((uint32_t)bits[j / 32] >> j % 32 & 1) {
            assert_true(found < TOP);
            rows[found++] = j;
        }
    while (found < TOP)
        rows[found++] = -1;
}

static void compare_alone(struct machine *m) {
    static int32_t bits[MOST * WORDS], rows[MOST * TOP];
    int32_t cu[4], one[TOP], cut[WORDS], listed[TOP];
    struct ax_top_keys t = call(MOST, MOST, cu, bits, NULL);
    assert_int_equal(ax_run_top_keys(m->q, &t), AX_OK);
    t = call(MOST, MOST, cu, NULL, rows);
    assert_int_equal(ax_run_top_keys(m->q, &t), AX_OK);
    for (int n = 1; n <= MOST; n++) {
        list(bits + (n - 1) * WORDS, listed);
        assert_memory_equal(listed, rows + (n - 1) * TOP, sizeof listed);
        t = call(1, n, cu, NULL, one);
        assert_int_equal(ax_run_top_keys(m->q, &t), AX_OK);
        assert_memory_equal(one, rows + (n - 1) * TOP, sizeof one);
        t = call(1, n, cu, cut, NULL);
        assert_int_equal(ax_run_top_keys(m->q, &t), AX_OK);
        assert_memory_equal(cut, bits + (n - 1) * WORDS, sizeof cut);
    }
}

static void a_query_alone_chooses_the_same(void **state) {
    (void)state;
    fill(q, MOST * HEADS * DIM, 1);
    fill(k, MOST * DIM, 2);
    fill(w, MOST * HEADS, 3);
    compare_alone(&ref);
    if (have_cpu())
        compare_alone(&cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ties_are_the_first_keys),
        cmocka_unit_test(a_query_alone_chooses_the_same),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
