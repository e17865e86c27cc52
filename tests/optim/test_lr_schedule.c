/* Learning-rate schedules against the reference's numbers, and at their corners. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/text/json.h"
#include "optim/optimizers/lr_schedule.h"
#include "tests/golden_files.h"

static const char *text_of(struct ax_json c, const char *key, const char *otherwise) {
    const char *s;
    assert_int_equal(ax_json_str_or(ax_json_get(c, key), otherwise, &s), AX_OK);
    return s;
}

static double number_of(struct ax_json c, const char *key, double otherwise) {
    double x;
    assert_int_equal(ax_json_f64_or(ax_json_get(c, key), otherwise, &x), AX_OK);
    return x;
}

static int64_t count_of(struct ax_json c, const char *key) {
    return (int64_t)number_of(c, key, 0);
}

static struct ax_lr_schedule schedule_of(struct ax_json c, double base_lr) {
    struct ax_lr_schedule s = {.base_lr = base_lr};
    assert_int_equal(ax_lr_kind_parse(text_of(c, "kind", ""), &s.kind), AX_OK);
    assert_int_equal(ax_lr_decay_parse(text_of(c, "decay_type", "linear"), &s.decay_type), AX_OK);
    s.total = count_of(c, "total");
    s.warmup = count_of(c, "warmup");
    s.stable = count_of(c, "stable");
    s.decay = count_of(c, "decay");
    s.num_cycles = number_of(c, "num_cycles", 0.5);
    s.min_lr_ratio = number_of(c, "min_lr_ratio", number_of(c, "min_lr_rate", 0));
    s.min_lr_ratio += number_of(c, "min_lr", 0) / base_lr;
    s.lr_end = number_of(c, "lr_end", 0);
    s.power = number_of(c, "power", 1);
    return s;
}

static void rates_are_those_of_the_reference(void **state) {
    (void)state;
    struct ax_json_doc doc;
    bool seen[AX_LR_KIND_COUNT] = {false};
    int rates = 0;
    assert_int_equal(ax_json_load(&doc, golden_path("schedules.json"), 1 << 20), AX_OK);
    const struct ax_json root = ax_json_root(&doc), cases = ax_json_get(root, "cases");
    for (size_t i = 0; i < ax_json_size(cases); i++) {
        const struct ax_json c = ax_json_at(cases, i), lr = ax_json_get(c, "lr");
        const struct ax_lr_schedule s = schedule_of(c, number_of(root, "base_lr", 0));
        seen[s.kind] = true;
        for (size_t step = 0; step < ax_json_size(lr); step++, rates++) {
            double want;
            assert_int_equal(ax_json_f64(ax_json_at(lr, step), &want), AX_OK);
            const double got = ax_lr_at(&s, (int64_t)step);
            if (fabs(got - want) > 1e-12 * fabs(want) + 1e-19) {
                fail_msg("%s, case %zu, step %zu: %.17g, expected %.17g", text_of(c, "kind", ""), i,
                         step, got, want);
            }
        }
    }
    ax_json_free(&doc);
    for (int kind = 0; kind <= AX_LR_WARMUP_STABLE_DECAY; kind++) /* the others: below */
        assert_true(seen[kind]);
    print_message("%d rates\n", rates);
}

static void assert_rate(const struct ax_lr_schedule *s, int64_t step, double want) {
    const double got = ax_lr_at(s, step);
    if (fabs(got - want) > 1e-15 * (1 + fabs(want)))
        fail_msg("step %lld: %.17g, expected %.17g", (long long)step, got, want);
}

static void rates_by_hand(void **state) {
    (void)state;
    struct ax_lr_schedule s = {.base_lr = 8, .total = 10, .warmup = 4, .num_cycles = 0.5};
    s.kind = AX_LR_CONSTANT; /* does not warm up */
    assert_rate(&s, 0, 8);
    s.kind = AX_LR_CONSTANT_WITH_WARMUP;
    assert_rate(&s, 0, 0);
    assert_rate(&s, 3, 6);
    assert_rate(&s, 4, 8);
    assert_rate(&s, 1000, 8);
    s.kind = AX_LR_LINEAR;
    assert_rate(&s, 1, 2);
    assert_rate(&s, 7, 4);
    assert_rate(&s, 10, 0);
    assert_rate(&s, 11, 0); /* never below zero */
    s.kind = AX_LR_COSINE;
    assert_rate(&s, 4, 8);
    assert_rate(&s, 7, 4);
    assert_rate(&s, 10, 0);
    s.kind = AX_LR_COSINE_WITH_MIN_LR;
    s.min_lr_ratio = 0.25;
    assert_rate(&s, 2, 4);
    assert_rate(&s, 7, 5);
    assert_rate(&s, 10, 2);
    s.kind = AX_LR_COSINE_WITH_RESTARTS;
    s.num_cycles = 2;
    assert_rate(&s, 4, 8);
    assert_rate(&s, 7, 8); /* the second cycle begins */
    assert_rate(&s, 10, 0);
    s.kind = AX_LR_POLYNOMIAL;
    s.power = 2;
    s.lr_end = 4;
    assert_rate(&s, 7, 5);
    assert_rate(&s, 10, 4);
    assert_rate(&s, 99, 4);
    s.kind = AX_LR_INVERSE_SQRT;
    assert_rate(&s, 4, 8);
    assert_rate(&s, 16, 4); /* √(4/16) */
    s.timescale = 1;
    assert_rate(&s, 7, 4); /* √(1/(7 + 1 − 4)) */
    s.kind = AX_LR_WARMUP_STABLE_DECAY;
    s.stable = 3;
    s.decay = 2;
    assert_rate(&s, 0, 2); /* rises from the floor */
    assert_rate(&s, 6, 8);
    assert_rate(&s, 8, 5);
    assert_rate(&s, 9, 2);
}

/* torch 2.13's OneCycleLR(max_lr=2e-3, total_steps, pct_start=warmup/total, "cos"). */
static void one_cycle_is_torch(void **state) {
    (void)state;
    static const double of_20[] = {7.999999999999999e-05,
                                   0.00036117749006091444,
                                   0.0010400000000000001,
                                   0.0017188225099390856,
                                   0.002,
                                   0.001978147688143403,
                                   0.00191354580346077,
                                   0.0018090177583069697,
                                   0.0016691319298364326,
                                   0.0015000019999999998,
                                   0.0013090197583069698,
                                   0.0011045320451538003,
                                   0.0008954759548461998,
                                   0.0006909882416930302,
                                   0.0005000060000000002,
                                   0.0003308760701635675,
                                   0.00019099024169303013,
                                   8.646219653922959e-05,
                                   2.1860311856597245e-05,
                                   8e-09};
    static const double of_10[] = {0.0019510567120690882, 0.0018090177583069697,
                                   0.0015877869011514639, 0.0013090197583069698,
                                   0.0010000039999999999, 0.0006909882416930302,
                                   0.0004122210988485361, 0.00019099024169303013,
                                   4.895128793091164e-05, 8e-09};
    struct ax_lr_schedule s = {.kind = AX_LR_ONE_CYCLE, .base_lr = 2e-3, .total = 20, .warmup = 5};
    for (int i = 0; i < 20; i++)
        assert_true(fabs(ax_lr_at(&s, i) - of_20[i]) <= 1e-12 * of_20[i] + 1e-18);
    s.total = 10;
    s.warmup = 0;
    for (int i = 0; i < 10; i++)
        assert_true(fabs(ax_lr_at(&s, i) - of_10[i]) <= 1e-12 * of_10[i] + 1e-18);
    assert_true(ax_lr_at(&s, 99) == ax_lr_at(&s, 9));
}

static void rates_of_axolotl(void **state) {
    (void)state;
    struct ax_lr_schedule s = {.base_lr = 8, .total = 12, .warmup = 4, .num_cycles = 0.5};
    s.kind = AX_LR_REX;
    assert_rate(&s, 0, 2);
    assert_rate(&s, 3, 8);
    assert_rate(&s, 7, 8 * 0.5 / 0.55);
    assert_rate(&s, 11, 0);
    assert_rate(&s, 12, 0);
    s.min_lr_ratio = 0.25;
    assert_rate(&s, 7, 2 + 6 * 0.5 / 0.55);
    assert_rate(&s, 11, 2);
    s.kind = AX_LR_COSINE_WITH_MIN_LR; /* decays over steps 4 … 8, then stays */
    s.constant_ratio = 0.7;
    assert_rate(&s, 2, 4);
    assert_rate(&s, 6, 5);
    assert_rate(&s, 8, 2);
    assert_rate(&s, 11, 2);
    s.kind = AX_LR_COSINE;
    s.quadratic_warmup = 1;
    assert_rate(&s, 1, 0.5);
    assert_rate(&s, 3, 4.5);
    assert_rate(&s, 8, 4);
}

/* Short runs: no division by zero, whatever the steps add up to. */
static void every_corner_is_a_finite_rate(void **state) {
    (void)state;
    int checked = 0;
    for (int kind = 0; kind < AX_LR_KIND_COUNT; kind++) {
        for (int total = 0; total <= 3; total++) {
            for (int warmup = 0; warmup <= 4; warmup++) {
                for (int step = 0; step <= 5; step++) {
                    const struct ax_lr_schedule s = {.kind = (enum ax_lr_kind)kind,
                                                     .base_lr = 1e-3,
                                                     .total = total,
                                                     .warmup = warmup,
                                                     .num_cycles = 0.5,
                                                     .power = 1,
                                                     .lr_end = 1e-5};
                    const double lr = ax_lr_at(&s, step);
                    if (!isfinite(lr) || lr < 0 || lr > 1e-3 * (1 + 1e-12)) {
                        fail_msg("kind %d, total %d, warmup %d, step %d: %g", kind, total, warmup,
                                 step, lr);
                    }
                    checked++;
                }
            }
        }
    }
    print_message("%d corners\n", checked);
}

static void unknown_names_list_the_known(void **state) {
    (void)state;
    enum ax_lr_kind kind;
    enum ax_lr_decay decay;
    assert_int_equal(ax_lr_kind_parse("cosin", &kind), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "lr_scheduler: \"cosin\" is not one of constant, "
                                            "constant_with_warmup, linear, cosine"));
    assert_int_equal(ax_lr_decay_parse("sqrt", &decay), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "\"sqrt\" is not one of linear, cosine, 1-sqrt"));
    assert_int_equal(ax_lr_decay_parse("1-sqrt", &decay), AX_OK);
    assert_int_equal(decay, AX_LR_DECAY_1_SQRT);
}

/* The rates that axolotl's JaggedLRRestartScheduler (July 2026) sets around transformers' schedules,
 * 24 steps of them, of which 3 warm up. */
static void restarts(void **state) {
    (void)state;
    static const struct {
        struct ax_lr_schedule s;
        double rates[24];
    } cases[] = {
        {{.kind = AX_LR_CONSTANT,
          .restart = 8,
          .restart_warmup = 3,
          .restart_anneal = 2,
          .restart_floor = 0.001},
         {1, 1, 1,      1,     1,     1,     0.5005, 0.001, 0.334, 0.667, 1,      1,
          1, 1, 0.5005, 0.001, 0.334, 0.667, 1,      1,     1,     1,     0.5005, 0.001}},
        {{.kind = AX_LR_COSINE,
          .num_cycles = 0.5,
          .restart = 8,
          .restart_warmup = 3,
          .restart_anneal = 2,
          .restart_floor = 0.001},
         {0.333333333333333,
          0.666666666666667,
          1,
          0.994415413112564,
          0.97778640289307,
          0.95048443395121,
          0.457016253272578,
          0.000866525935914913,
          0.271122796910408,
          0.50025,
          0.682670512183198,
          0.611260466978157,
          0.537365046793212,
          0.462634953206788,
          0.194564136277432,
          0.000317329487816803,
          0.0835,
          0.125566151080112,
          0.133474064085087,
          0.0868806128420027,
          0.0495155660487905,
          0.0222135971069296,
          0.00279508573716159,
          0}},
        {{.kind = AX_LR_LINEAR,
          .restart = 10,
          .restart_warmup = 10,
          .restart_anneal = 1,
          .restart_floor = 0.1},
         {0.333333333333333,  0.666666666666667,  1,
          0.952380952380952,  0.904761904761905,  0.857142857142857,
          0.80952380952381,   0.761904761904762,  0.65,
          0.0666666666666667, 0.117619047619048,  0.16,
          0.193809523809524,  0.219047619047619,  0.235714285714286,
          0.243809523809524,  0.243333333333333,  0.234285714285714,
          0.216666666666667,  0.019047619047619,  0.0271428571428571,
          0.0266666666666667, 0.0176190476190476, 0}},
        {{.kind = AX_LR_CONSTANT,
          .restart = 6,
          .restart_warmup = 2,
          .restart_anneal = 6,
          .restart_floor = 0.001},
         {0.5005, 0.667, 0.5005, 0.334, 0.1675, 0.001, 0.5005, 0.667,
          0.5005, 0.334, 0.1675, 0.001, 0.5005, 0.667, 0.5005, 0.334,
          0.1675, 0.001, 0.5005, 0.667, 0.5005, 0.334, 0.1675, 0.001}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_lr_schedule s = cases[i].s;
        s.base_lr = 1;
        s.total = 24;
        s.warmup = 3;
        for (int64_t step = 0; step < 24; step++)
            if (!(fabs(ax_lr_at(&s, step) - cases[i].rates[step]) < 1e-14))
                fail_msg("case %zu, step %d: %.17g", i, (int)step, ax_lr_at(&s, step));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(restarts),
        cmocka_unit_test(rates_are_those_of_the_reference),
        cmocka_unit_test(rates_by_hand),
        cmocka_unit_test(one_cycle_is_torch),
        cmocka_unit_test(rates_of_axolotl),
        cmocka_unit_test(every_corner_is_a_finite_rate),
        cmocka_unit_test(unknown_names_list_the_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
