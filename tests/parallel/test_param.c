/* Where the elements of a tp or ep slice are in the global tensor, against brute force. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/units/param.h"

static const struct {
    int ndim;
    int64_t shape[AX_MAX_DIMS];
} shapes[] = {{0, {0}},       {1, {12}},        {2, {4, 6}},        {2, {12, 4}},
              {3, {4, 3, 8}}, {3, {12, 12, 4}}, {4, {4, 2, 12, 3}}, {4, {1, 4, 1, 12}}};

static int cases;

/* The local shape that ax_unit_layout gives, and a mesh at these coordinates. */
static struct ax_param make(int shape, int tp_dim, int ep_dim, int tp, int ep) {
    struct ax_param p = {
        .ndim = shapes[shape].ndim, .tp_dim = (int8_t)tp_dim, .ep_dim = (int8_t)ep_dim};
    for (int d = 0; d < p.ndim; d++) {
        p.shape[d] = shapes[shape].shape[d];
        p.local_shape[d] = p.shape[d] / (d == tp_dim ? tp : d == ep_dim ? ep : 1);
    }
    return p;
}

/* Global index of local element i: its coordinates, moved by where the slice starts. */
static int64_t brute(const struct ax_param *p, int tp_rank, int ep_rank, int64_t i) {
    int64_t at[AX_MAX_DIMS] = {0};
    for (int d = p->ndim - 1; d >= 0; d--) {
        at[d] = i % p->local_shape[d];
        i /= p->local_shape[d];
        at[d] += d == p->tp_dim ? tp_rank * p->local_shape[d] : 0;
        at[d] += d == p->ep_dim ? ep_rank * p->local_shape[d] : 0;
    }
    int64_t index = 0;
    for (int d = 0; d < p->ndim; d++)
        index = index * p->shape[d] + at[d];
    return index;
}

/* Every rank's slice; together they must be the tensor, each element once. */
static void check_slices(int shape, int tp_dim, int ep_dim, int tp, int ep) {
    unsigned char seen[2048] = {0};
    struct ax_param p = make(shape, tp_dim, ep_dim, tp, ep);
    const int64_t total = ax_param_numel(&p), local = ax_param_local_numel(&p);
    assert_int_equal(local * (tp_dim >= 0 ? tp : 1) * (ep_dim >= 0 ? ep : 1), total);
    for (int tr = 0; tr < (tp_dim >= 0 ? tp : 1); tr++) {
        for (int er = 0; er < (ep_dim >= 0 ? ep : 1); er++) {
            struct ax_mesh mesh = {.size = {[AX_ROLE_TP] = tp, [AX_ROLE_EP] = ep},
                                   .coord = {[AX_ROLE_TP] = tr, [AX_ROLE_EP] = er}};
            for (int64_t i = 0; i < local; i++) {
                int64_t run = -1;
                const int64_t at = ax_param_global_index(&p, &mesh, i, &run);
                assert_int_equal(at, brute(&p, tr, er, i));
                assert_in_range(run, 1, local - i);
                for (int64_t k = 0; k < run; k++)
                    assert_int_equal(at + k, brute(&p, tr, er, i + k));
                seen[at]++;
            }
        }
    }
    for (int64_t i = 0; i < total; i++)
        assert_int_equal(seen[i], 1);
    cases++;
}

static void slices_lie_where_brute_force_says(void **state) {
    (void)state;
    for (int shape = 0; shape < (int)(sizeof shapes / sizeof *shapes); shape++) {
        for (int tp_dim = -1; tp_dim < shapes[shape].ndim; tp_dim++) {
            for (int ep_dim = -1; ep_dim < shapes[shape].ndim; ep_dim++) {
                if (tp_dim >= 0 && tp_dim == ep_dim)
                    continue;
                for (int tp = 1; tp <= 4; tp++) {
                    for (int ep = 1; ep <= 4; ep++) {
                        const bool fits = (tp_dim < 0 || shapes[shape].shape[tp_dim] % tp == 0) &&
                                          (ep_dim < 0 || shapes[shape].shape[ep_dim] % ep == 0);
                        if (fits)
                            check_slices(shape, tp_dim, ep_dim, tp, ep);
                    }
                }
            }
        }
    }
    print_message("%d slicings\n", cases);
    assert_true(cases > 300);
}

/* Copies go run by run, so a run must be as long as it can be. */
static void runs_are_as_long_as_they_can_be(void **state) {
    (void)state;
    int64_t run;
    const struct ax_mesh mesh = {.size = {[AX_ROLE_TP] = 2}, .coord = {[AX_ROLE_TP] = 1}};
    const struct ax_param rows = make(3, 0, -1, 2, 1), cols = make(3, 1, -1, 2, 1);
    const struct ax_param whole = make(5, -1, -1, 2, 1), middle = make(5, 1, -1, 2, 1);
    assert_int_equal(ax_param_global_index(&rows, &mesh, 3, &run), 27);
    assert_int_equal(run, 21); /* all that is left of [6][4] */
    assert_int_equal(ax_param_global_index(&cols, &mesh, 2, &run), 6);
    assert_int_equal(run, 2); /* a row of [12][2] */
    assert_int_equal(ax_param_global_index(&whole, &mesh, 5, &run), 5);
    assert_int_equal(run, 12 * 12 * 4 - 5);
    assert_int_equal(ax_param_global_index(&middle, &mesh, 25, &run), 48 + 24 + 1);
    assert_int_equal(run, 23); /* six rows of four, from the second element on */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_lie_where_brute_force_says),
        cmocka_unit_test(runs_are_as_long_as_they_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
