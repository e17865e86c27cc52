/* Advantages against TRL's: of golden rewards, and of whole recorded runs; what follows from the
 * definition holds to the bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/safetensors.h"
#include "optim/losses/advantages.h"
#include "tests/golden_files.h"

#define MAX 64

/* Returns how many there are. */
static int64_t read_tensor(const struct ax_safetensors *st, const char *name, double *out) {
    const struct ax_st_entry *e = ax_safetensors_find(st, name);
    assert_non_null(e);
    assert_true(e->numel <= MAX);
    const struct ax_elements from = ax_st_elements(e);
    assert_int_equal(ax_elements_read(&from, 0, e->numel, AX_F64, out), AX_OK);
    return e->numel;
}

static void assert_near(const double *got, const double *want, int64_t n, double tolerance,
                        const char *what) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance))
            fail_msg("%s: advantage %lld is %.9g, not %.9g", what, (long long)i, got[i], want[i]);
}

static void golden_rewards(void **state) {
    (void)state;
    static const char *const modes[] = {"group", "batch", "none"};
    char name[64];
    double rewards[MAX], want[MAX], got[MAX];
    struct ax_safetensors st;
    assert_int_equal(ax_safetensors_open(&st, golden_path("objectives/grpo.safetensors")), AX_OK);
    const int64_t n = read_tensor(&st, "rewards", rewards);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        const struct ax_advantage_options o = {
            .group = 4,
            .n_rewards = 1,
            .scale = (enum ax_scale_rewards)ax_scale_rewards_find(modes[m])};
        snprintf(name, sizeof name, "advantages.%s", modes[m]);
        assert_int_equal(read_tensor(&st, name, want), n);
        ax_advantages(&o, n, rewards, got);
        assert_near(got, want, n, 1e-6, name);
        for (int i = 4; i < 8; i++) /* a group of equal rewards */
            assert_true(got[i] == 0);
    }
    ax_safetensors_close(&st);
}

/* ---- recorded runs ---- */

static const struct run {
    const char *name, *data;
    struct ax_advantage_options o;
    int batches;
} runs[] = {
    {"grpo", "rollouts", {.group = 4, .n_rewards = 2}, 6},
    {"none_rewards", "rollouts_none", {.group = 4, .n_rewards = 2}, 6},
    {"gdpo", "rollouts", {.group = 4, .n_rewards = 2, .normalize_then_sum = true}, 6},
    {"scale_batch",
     "rollouts",
     {.group = 4, .n_rewards = 2, .weights = (const double[]){1, 0.5}, .scale = AX_SCALE_BATCH},
     6},
};

/* The two functions' rewards of the answers of all records: [records][4][2]. */
static int64_t read_rewards(const char *data, double *out) {
    static const char *const functions[] = {"correct", "form"};
    char rest[96], line[1 << 14];
    int64_t n = 0;
    snprintf(rest, sizeof rest, "runs/data/%s.jsonl", data);
    FILE *f = fopen(golden_path(rest), "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *record = json_loads(line, 0, NULL);
        for (size_t i = 0; i < 4; i++)
            for (size_t k = 0; k < 2; k++) {
                const json_t *v = json_array_get(json_object_get(record, functions[k]), i);
                assert_true(n < 2 * MAX);
                out[n++] = json_is_number(v) ? json_number_value(v) : NAN;
            }
        json_decref(record);
    }
    fclose(f);
    return n;
}

static void recorded_runs(void **state) {
    (void)state;
    double rewards[2 * MAX], got[8], want[8];
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        char rest[96], name[64];
        struct ax_safetensors st;
        assert_true(read_rewards(runs[r].data, rewards) >= 16 * runs[r].batches);
        snprintf(rest, sizeof rest, "runs/grpo/%s.safetensors", runs[r].name);
        assert_int_equal(ax_safetensors_open(&st, golden_path(rest)), AX_OK);
        for (int b = 0; b < runs[r].batches; b++) {
            for (int m = 0; m < 2; m++) {
                snprintf(name, sizeof name, "m%02d.advantages", 2 * b + m);
                assert_int_equal(read_tensor(&st, name, want + 4 * (size_t)m), 4);
            }
            ax_advantages(&runs[r].o, 8, rewards + (size_t)b * 16, got);
            assert_near(got, want, 8, 1e-5, runs[r].name);
        }
        ax_safetensors_close(&st);
    }
}

/* ---- what follows from the definition ---- */

/* 0.1 + 0.1 + 0.1 is not 0.3: the mean of equal rewards must not be rounded. */
static void equal_rewards_have_no_advantage(void **state) {
    (void)state;
    const double rewards[] = {0.1, 0.1, 0.1, 1, 2, 4};
    for (int scale = AX_SCALE_GROUP; scale <= AX_SCALE_NONE; scale++) {
        const struct ax_advantage_options o = {
            .group = 3, .n_rewards = 1, .scale = (enum ax_scale_rewards)scale};
        double got[6];
        ax_advantages(&o, 6, rewards, got);
        for (int i = 0; i < 3; i++)
            assert_true(got[i] == 0);
        assert_true(got[3] < 0 && got[5] > 0);
    }
}

/* Also where all of a group has none, and where a single one has. */
static void no_reward_is_no_advantage(void **state) {
    (void)state;
    const double rewards[] = {NAN, 3, 1, NAN, NAN, NAN, NAN, 5, NAN};
    for (int gdpo = 0; gdpo < 2; gdpo++)
        for (int scale = AX_SCALE_GROUP; scale <= AX_SCALE_NONE; scale++) {
            const struct ax_advantage_options o = {.group = 3,
                                                   .n_rewards = 1,
                                                   .scale = (enum ax_scale_rewards)scale,
                                                   .normalize_then_sum = gdpo != 0};
            double got[9];
            ax_advantages(&o, 9, rewards, got);
            assert_true(got[0] == 0 && got[3] == 0 && got[4] == 0 && got[5] == 0 && got[6] == 0);
            assert_true(got[1] > 0 && got[2] < 0);
            if (!gdpo)
                assert_true(got[7] == 0);
        }
}

/* Without GDPO's last step, a group's advantages do not depend on the other groups. */
static void groups_are_independent(void **state) {
    (void)state;
    const double a[] = {1, 0, 0.5, 0.25, 7, 7, 8, 9}, b[] = {1, 0, 0.5, 0.25, 0, 1, 0, 0};
    struct ax_advantage_options o = {.group = 4, .n_rewards = 1};
    double x[8], y[8];
    ax_advantages(&o, 8, a, x);
    ax_advantages(&o, 8, b, y);
    assert_memory_equal(x, y, 4 * sizeof *x);
    o.normalize_then_sum = true;
    ax_advantages(&o, 8, a, x);
    ax_advantages(&o, 8, b, y);
    assert_memory_not_equal(x, y, 4 * sizeof *x);
}

static void spread(void **state) {
    (void)state;
    const double totals[] = {1, 1, 0, 1, NAN, NAN, 2, NAN};
    struct ax_advantage_options o = {.group = 2, .n_rewards = 1};
    double work[8];
    assert_true(ax_share_without_spread(&o, 8, totals, work) == 0.25); /* of one value: not known */
    o.group = 1;
    assert_true(ax_share_without_spread(&o, 8, totals, work) == 1);
    o.group = 2;
    o.scale = AX_SCALE_BATCH;
    assert_true(ax_share_without_spread(&o, 8, totals, work) == 0);
    assert_true(ax_share_without_spread(&o, 2, totals, work) == 1);
    assert_int_equal(ax_scale_rewards_find("std"), -1);
}

/* GDPO compares sums of normalized rewards: groups that differ from each other alone teach nothing, and functions may
 * differ where totals do not. */
static void spread_of_normalized(void **state) {
    (void)state;
    const double groups[] = {1, 0, 1, 0, 3, 2, 3, 2}, equal[] = {1, 0, 0, 4, 1, 0, 0, 4},
                 halves[] = {2, 0.5};
    struct ax_advantage_options o = {
        .group = 2, .n_rewards = 2, .weights = halves, .normalize_then_sum = true};
    double work[4];
    assert_true(ax_share_without_spread(&o, 4, groups, work) == 1);
    assert_true(ax_share_without_spread(&o, 4, equal, work) == 0);
    o.normalize_then_sum = false;
    o.scale = AX_SCALE_BATCH;
    assert_true(ax_share_without_spread(&o, 4, groups, work) == 0);
    assert_true(ax_share_without_spread(&o, 4, equal, work) == 1);
}

/* Totals that rounding tells apart are equal; GDPO learns from groups of equal totals whose functions differ. */
static void what_teaches(void **state) {
    (void)state;
    const double parts[] = {0.1, 0.2, 0.3, 0}, rewards[] = {1, 0, 0, 1}, halves[] = {2, 0.5};
    double work[2];
    struct ax_advantage_options o = {.group = 2, .n_rewards = 2};
    assert_true(parts[0] + parts[1] != parts[2] + parts[3]);
    assert_false(ax_group_teaches(&o, parts, work));
    assert_false(ax_group_teaches(&o, rewards, work));
    o.weights = halves;
    assert_true(ax_group_teaches(&o, rewards, work));
    const double equal[] = {1, 0, 0, 4}; /* in total: 2 and 2 */
    assert_false(ax_group_teaches(&o, equal, work));
    o.normalize_then_sum = true;
    assert_true(ax_group_teaches(&o, equal, work));
    o.weights = NULL;
    assert_false(ax_group_teaches(&o, rewards, work)); /* one function takes what the other gives */
    assert_false(ax_group_teaches(&o, (const double[]){1, 0, NAN, NAN}, work));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_rewards),
        cmocka_unit_test(recorded_runs),
        cmocka_unit_test(equal_rewards_have_no_advantage),
        cmocka_unit_test(no_reward_is_no_advantage),
        cmocka_unit_test(groups_are_independent),
        cmocka_unit_test(spread),
        cmocka_unit_test(spread_of_normalized),
        cmocka_unit_test(what_teaches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
