/* The ops of a mixture of experts beyond what test_ops.c asks of every op: choices among equals and
 * of NaN, what sorting promises, and that a grouped product is its groups' products, bit by bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/kernels/machines.h"
#include "tests/skip.h"

static struct machine *const machines[] = {&ref, &cpu};

static int n_machines(void) {
    return have_cpu() ? 2 : 1;
}

/* Four experts, three chosen, one row. */
static void choose(struct machine *m, const float *logits, int32_t *chosen, float *weights,
                   struct ax_routing routing) {
    float row[4], probs[4];
    memcpy(row, logits, sizeof(row));
    const struct ax_router_forward r = {.logits = ax_tensor_2d(AX_F32, row, 1, 4),
                                        .probs = ax_tensor_2d(AX_F32, probs, 1, 4),
                                        .weights = ax_tensor_2d(AX_F32, weights, 1, 3),
                                        .experts = ax_tensor_2d(AX_I32, chosen, 1, 3),
                                        .routing = routing};
    assert_int_equal(ax_run_router_forward(m->q, &r), AX_OK);
}

static void the_first_of_equals_is_chosen(void **state) {
    (void)state;
    static const struct {
        float logits[4];
        int32_t chosen[3];
    } rows[] = {
        {{1, 1, 1, 1}, {0, 1, 2}},
        {{0, 2, 1, 2}, {1, 3, 2}},
        {{-1, -1, 3, -1}, {2, 0, 1}},
        {{1, 2, 3, 4}, {3, 2, 1}},
        {{-INFINITY, 0, -INFINITY, -INFINITY}, {1, 0, 2}},
    };
    for (int i = 0; i < n_machines(); i++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            int32_t chosen[3];
            float weights[3];
            choose(machines[i], rows[r].logits, chosen, weights,
                   (struct ax_routing){.renormalize = true, .scale = 1});
            assert_memory_equal(chosen, rows[r].chosen, sizeof(chosen));
            assert_true(fabsf(weights[0] + weights[1] + weights[2] - 1) < 1e-6f);
            assert_true(weights[0] >= weights[1] && weights[1] >= weights[2]);
        }
    }
}

/* A run that diverges must not read or write elsewhere. */
static void nan_still_chooses_distinct_experts(void **state) {
    (void)state;
    static const float rows[][4] = {{NAN, NAN, NAN, NAN}, {0, NAN, 1, 2}, {1, 2, 3, INFINITY}};
    static const struct ax_routing routings[] = {
        {.scale = 1},
        {.sigmoid = true, .groups = 2, .groups_kept = 2, .group_best = 2, .scale = 1}};
    for (int i = 0; i < 2 * n_machines(); i++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            int32_t chosen[3];
            float weights[3];
            choose(machines[i / 2], rows[r], chosen, weights, routings[i % 2]);
            unsigned seen = 0;
            for (int k = 0; k < 3; k++) {
                assert_in_range(chosen[k], 0, 3);
                seen |= 1u << chosen[k];
            }
            assert_int_equal(__builtin_popcount(seen), 3);
        }
    }
}

/* Six experts in three groups, of which one or two are kept; the bias chooses and does not weigh. */
static void groups_choose_before_experts(void **state) {
    (void)state;
    static const struct {
        float logits[6], bias[6];
        int kept, best;
        int32_t chosen[2];
    } rows[] = {
        {{3, -3, 2, 2, 1, 1}, {0}, 1, 1, {0, 1}}, /* the best of a group */
        {{3, -3, 2, 2, 1, 1}, {0}, 1, 2, {2, 3}}, /* its best two */
        {{3, -3, 2, 2, 1, 1}, {0}, 2, 1, {0, 2}},
        {{1, 1, 1, 1, 1, 1}, {0}, 2, 2, {0, 1}}, /* the first of equals */
        {{1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 1}, 1, 2, {5, 4}},
        {{3, 2, 1, 1, 1, 1}, {-1, -1, -0.5f, 0, 0, 0}, 2, 1, {3, 4}},
        {{3, 2, 1, 1, 1, 1}, {-1, -1, -1, -1, -1, -1}, 1, 1, {0, 1}}, /* all negative */
    };
    for (int i = 0; i < n_machines(); i++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            float logits[6], bias[6], probs[6], weights[2];
            int32_t chosen[2];
            memcpy(logits, rows[r].logits, sizeof(logits));
            memcpy(bias, rows[r].bias, sizeof(bias));
            const struct ax_router_forward f = {.logits = ax_tensor_2d(AX_F32, logits, 1, 6),
                                                .bias = ax_tensor_1d(AX_F32, bias, 6),
                                                .probs = ax_tensor_2d(AX_F32, probs, 1, 6),
                                                .weights = ax_tensor_2d(AX_F32, weights, 1, 2),
                                                .experts = ax_tensor_2d(AX_I32, chosen, 1, 2),
                                                .routing = {.sigmoid = true,
                                                            .groups = 3,
                                                            .groups_kept = rows[r].kept,
                                                            .group_best = rows[r].best,
                                                            .scale = 2}};
            assert_int_equal(ax_run_router_forward(machines[i]->q, &f), AX_OK);
            assert_memory_equal(chosen, rows[r].chosen, sizeof(chosen));
            for (int k = 0; k < 2; k++) {
                const double p = 1 / (1 + exp(-(double)logits[chosen[k]]));
                assert_true(fabs((double)weights[k] - 2 * p) < 1e-6);
            }
        }
    }
}

static int32_t i32_at(const struct ax_tensor *t, int64_t i) {
    return ((const int32_t *)t->data)[i];
}

/* places is a bijection onto 0 … offsets[G] − 1 that keeps groups together and order within. */
static void check_sort(const struct ax_group_rows *a) {
    int64_t n = ax_tensor_numel(&a->keys), groups = a->offsets.shape[0] - 1, placed = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t g = i32_at(&a->keys, i) - a->first;
        int32_t place = i32_at(&a->places, i);
        if (g < 0 || g >= groups) {
            assert_int_equal(place, -1);
            continue;
        }
        placed++;
        assert_in_range(place, i32_at(&a->offsets, g), i32_at(&a->offsets, g + 1) - 1);
        for (int64_t j = 0; j < i; j++) {
            assert_true(i32_at(&a->keys, j) != i32_at(&a->keys, i) ||
                        i32_at(&a->places, j) < place);
        }
    }
    assert_int_equal(i32_at(&a->offsets, 0), 0);
    assert_int_equal(i32_at(&a->offsets, groups), placed);
    for (int64_t g = 0; g < groups; g++) {
        assert_int_equal(i32_at(&a->counts, g),
                         i32_at(&a->offsets, g + 1) - i32_at(&a->offsets, g));
    }
}

static void groups_are_stable_and_complete(void **state) {
    (void)state;
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_group_rows, &count);
    for (int s = 0; s < count; s++) {
        for (int i = 0; i < n_machines() && !shapes[s].big; i++) {
            struct ax_case c;
            case_open(&c, AX_OP_group_rows, &shapes[s], AX_F32, &ref);
            case_run(&c, machines[i]);
            check_sort(c.args);
            ax_case_free(&c);
        }
    }
}

static void check_group(const struct ax_case *c, const struct ax_case *alone, int64_t group) {
    struct ax_grouped_gemm *a = alone->args;
    const struct ax_grouped_gemm *together = c->args;
    if (i32_at(&a->offsets, group + 1) > i32_at(&a->offsets, group)) {
        const struct ax_gemm one = ax_grouped_gemm_of(a, group);
        assert_int_equal(ax_run_gemm(cpu.q, &one), AX_OK);
    }
    int64_t first = i32_at(&a->offsets, group), n = i32_at(&a->offsets, group + 1) - first;
    const struct ax_tensor want =
        a->trans_a ? ax_tensor_rows(&a->c, group, 1) : ax_tensor_rows(&a->c, first, n);
    const struct ax_tensor got = a->trans_a ? ax_tensor_rows(&together->c, group, 1)
                                            : ax_tensor_rows(&together->c, first, n);
    if (!same_bits(&got, &want)) {
        fail_msg("grouped_gemm \"%s\" %s: group %lld differs from its own product", c->shape->name,
                 ax_dtype_info(c->dtype)->name, (long long)group);
    }
}

static void grouped_gemm_is_gemm_by_group(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    int count;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_grouped_gemm, &count);
    static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16};
    for (int s = 0; s < count; s++) {
        for (int d = 0; d < 2 && !(shapes[s].big && skips_big()); d++) {
            struct ax_case c, alone;
            case_open(&c, AX_OP_grouped_gemm, &shapes[s], dtypes[d], &ref);
            case_open(&alone, AX_OP_grouped_gemm, &shapes[s], dtypes[d], &ref);
            case_run(&c, &cpu);
            for (int64_t g = 0; g < shapes[s].n_documents; g++)
                check_group(&c, &alone, g);
            ax_case_free(&c);
            ax_case_free(&alone);
        }
    }
}

/* Matrices without columns are no products, however many rows the groups have. */
static void groups_may_have_no_columns(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    float a[16] = {0};
    int32_t offsets[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const struct ax_grouped_gemm g = {.a = ax_tensor_2d(AX_F32, a, 16, 1),
                                      .b = ax_tensor_3d(AX_F32, a, 16, 0, 1),
                                      .c = ax_tensor_2d(AX_F32, a, 16, 0),
                                      .offsets = ax_tensor_1d(AX_I32, offsets, 17),
                                      .expected_rows = 16,
                                      .alpha = 1,
                                      .trans_b = true};
    assert_null(ax_op_broken_rule(AX_OP_grouped_gemm, &g));
    assert_int_equal(ax_run_grouped_gemm(cpu.q, &g), AX_OK);
}

/* Workspace is for the most rows a group may get: any number of rows must fit (asserted inside). */
static void any_number_of_rows_fits(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    static const int64_t sizes[][2] = {{1, 1}, {40, 24}, {600, 50}, {33, 700}, {96, 900}};
    enum { ROWS = 500 };
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        int64_t cols = sizes[s][0], inner = sizes[s][1];
        float *memory;
        assert_int_equal(
            ax_alloc(&memory, (size_t)(ROWS * (inner + cols) + cols * inner), sizeof(*memory)),
            AX_OK);
        int32_t offsets[] = {0, 0};
        struct ax_grouped_gemm y = {
            .a = ax_tensor_2d(AX_F32, memory, ROWS, inner),
            .b = ax_tensor_3d(AX_F32, memory + ROWS * (inner + cols), 1, cols, inner),
            .c = ax_tensor_2d(AX_F32, memory + ROWS * inner, ROWS, cols),
            .offsets = ax_tensor_1d(AX_I32, offsets, 2),
            .alpha = 1,
            .trans_b = true};
        struct ax_grouped_gemm dw = {
            .a = y.a, .b = y.c, .offsets = y.offsets, .trans_a = true, .alpha = 1};
        dw.c = ax_tensor_3d(AX_F32, y.b.data, 1, inner, cols);
        for (int32_t rows = 0; rows <= ROWS; rows += rows < 40 ? 1 : 61) {
            offsets[1] = rows;
            assert_int_equal(ax_run_grouped_gemm(cpu.q, &y), AX_OK);
            assert_int_equal(ax_run_grouped_gemm(cpu.q, &dw), AX_OK);
        }
        ax_free(memory);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_of_equals_is_chosen),
        cmocka_unit_test(nan_still_chooses_distinct_experts),
        cmocka_unit_test(groups_choose_before_experts),
        cmocka_unit_test(groups_are_stable_and_complete),
        cmocka_unit_test(grouped_gemm_is_gemm_by_group),
        cmocka_unit_test(groups_may_have_no_columns),
        cmocka_unit_test(any_number_of_rows_fits),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
