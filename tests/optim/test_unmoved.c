/* Trained tensors that do not move are told of, a single time: after the first 20 steps of a run, or of what has
 * resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/optim/train_runs.h"

#define STEPS 20

static void open_still(struct train_case *c, int64_t steps) {
    open_case(c, AX_F32, true);
    c->o.lr = (struct ax_lr_schedule){.kind = AX_LR_CONSTANT, .base_lr = 1e-30};
    c->o.max_steps = steps;
    c->o.save.when.when = AX_NEVER;
}

/* Tensors of the model but the embedding's, which may lie still as rows of tokens that did not occur do. */
static int all_tensors(const struct train_case *c) {
    /* a layer: two norms, q, k, v and o, and the three of an MLP; the final norm, and the head unless it is tied */
    return (int)c->arch.n_layers * 9 + 1 + !c->arch.tied;
}

static void expect_event(const struct train_case *c, int64_t step, bool there) {
    char want[160];
    snprintf(want, sizeof want,
             "{\"step\": %lld, \"event\": \"warning\", \"text\": \"%d of %d trained tensors have "
             "not changed in 20 steps, first model.layers.0.",
             (long long)step, all_tensors(c), all_tensors(c));
    assert_int_equal(train_case_tells(c, want), there);
    assert_int_equal(train_case_tells(c, "have not changed"), there);
}

static void test_after_twenty_steps(void **state) {
    (void)state;
    for (int64_t steps = STEPS - 1; steps <= STEPS + 1; steps++) {
        struct train_case c;
        struct ax_train_result r;
        open_still(&c, steps);
        run_ok(&c, &r);
        expect_event(&c, STEPS, steps >= STEPS);
        assert_false(train_case_tells(&c, "{\"step\": 21, \"event\": \"warning\""));
        train_case_close(&c);
    }
}

/* Those before do not count, neither to the end nor in what is said. */
static void test_after_a_stop(void **state) {
    (void)state;
    for (int64_t more = STEPS - 1; more <= STEPS; more++) {
        struct train_case c;
        struct ax_train_result r;
        open_still(&c, 3);
        c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 3};
        run_ok(&c, &r);
        c.o.save.resume = AX_RESUME_NEWEST;
        c.o.max_steps = 3 + more;
        run_ok(&c, &r);
        assert_int_equal(r.resumed_from, 3);
        expect_event(&c, 3 + STEPS, more == STEPS);
        train_case_close(&c);
    }
}

/* AdamW moves a weight by about the rate: 1e-9 is much for those of matrices, which are near 0, and nothing for those of
 * norms, which are 1. */
static void test_some_move(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    char want[160];
    open_still(&c, STEPS);
    c.o.lr.base_lr = 1e-2;
    run_ok(&c, &r);
    assert_false(train_case_tells(&c, "have not changed"));
    train_case_close(&c);
    open_still(&c, STEPS);
    c.o.lr.base_lr = 1e-9;
    run_ok(&c, &r);
    snprintf(want, sizeof want,
             "%d of %d trained tensors have not changed in 20 steps, first "
             "model.layers.0.input_layernorm.weight: ",
             (int)c.arch.n_layers * 2 + 1, all_tensors(&c));
    assert_true(train_case_tells(&c, want));
    train_case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_after_twenty_steps),
        cmocka_unit_test(test_after_a_stop),
        cmocka_unit_test(test_some_move),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
