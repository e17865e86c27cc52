/* Data sets mixed in proportions: exact counts, whole groups, and nothing that the seed does not
 * decide. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/data/corpus_case.h"
#include "tests/data/group_case.h"

static void build(struct ax_corpus *c, size_t n_sets) {
    struct ax_corpus_report r = {0};
    assert_ok(ax_corpus_build(c, sets, n_sets,
                              &(struct ax_corpus_options){.rule = {.max = INT64_MAX}}, &r));
}

static void weigh(struct ax_corpus *c, double a, double b, bool shares, bool shuffle,
                  uint64_t seed) {
    const double list[] = {a, b};
    build(c, 2);
    assert_ok(ax_corpus_weigh(c, &(struct ax_corpus_weights){list, 2, shares, shuffle, seed}));
}

/* How often each document of a set comes: as often as `times`, and `more` of them once more. */
static void check_times(const struct ax_corpus *c, uint16_t set, int times, int more) {
    int seen[200] = {0};
    int extra = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->refs[i].set == set)
            seen[c->refs[i].index]++;
    for (int i = 0; i < 200; i++) {
        assert_in_range(seen[i], times, times + 1);
        extra += seen[i] - times;
    }
    assert_int_equal(extra, more);
}

static void weights_are_exact(void **state) {
    (void)state;
    static const struct {
        double a, b;
        int times[2], more[2];
    } cases[] = {
        {0.5, 2.5, {0, 2}, {100, 100}},  {1, 1, {1, 1}, {0, 0}},
        {0.0025, 3, {0, 3}, {1, 0}},     {1.255, 7, {1, 7}, {51, 0}},
        {0.9976, 0.25, {1, 0}, {0, 50}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct ax_corpus c;
        for (int shuffle = 0; shuffle < 2; shuffle++) {
            weigh(&c, cases[k].a, cases[k].b, false, shuffle, 7);
            for (uint16_t s = 0; s < 2; s++)
                check_times(&c, s, cases[k].times[s], cases[k].more[s]);
            ax_corpus_free(&c);
        }
    }
}

/* As much as there is of the scarcest set, in the proportions asked for. */
static void shares_are_exact(void **state) {
    (void)state;
    static const struct {
        double a, b;
        int more[2];
    } cases[] = {
        {3, 1, {200, 67}}, {0.25, 0.75, {67, 200}}, {1, 1, {200, 200}}, {1, 400, {1, 200}}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct ax_corpus c;
        weigh(&c, cases[k].a, cases[k].b, true, true, 7);
        for (uint16_t s = 0; s < 2; s++)
            check_times(&c, s, cases[k].more[s] / 200, cases[k].more[s] % 200);
        ax_corpus_free(&c);
    }
}

static bool same(const struct ax_corpus *a, const struct ax_corpus *b) {
    return a->n == b->n && memcmp(a->refs, b->refs, a->n * sizeof *a->refs) == 0;
}

static void the_seed_decides(void **state) {
    (void)state;
    struct ax_corpus plain, a, b;
    build(&plain, 2);
    weigh(&a, 1, 1, false, false, 7);
    assert_true(same(&a, &plain));
    ax_corpus_free(&a);
    weigh(&a, 1, 1, false, true, 7);
    assert_false(same(&a, &plain));
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        ax_corpus_free(&a);
        weigh(&a, 0.5, 1.5, false, shuffle, 7);
        weigh(&b, 0.5, 1.5, false, shuffle, 7);
        assert_true(same(&a, &b));
        ax_corpus_free(&b);
        weigh(&b, 0.5, 1.5, false, shuffle, 8);
        assert_false(same(&a, &b));
        ax_corpus_free(&b);
    }
    ax_corpus_free(&a);
    ax_corpus_free(&plain);
}

/* Without a shuffle each pass keeps the order: all that come, then what comes again. */
static void passes_keep_the_order(void **state) {
    (void)state;
    struct ax_corpus c;
    weigh(&c, 2, 2.5, false, false, 7);
    assert_int_equal(c.n, 400 + 400 + 100);
    for (size_t i = 0; i < 800; i++)
        assert_int_equal(200 * c.refs[i].set + c.refs[i].index, i % 400);
    for (size_t i = 801; i < c.n; i++)
        assert_true(c.refs[i].set == 1 && c.refs[i].index > c.refs[i - 1].index);
    ax_corpus_free(&c);
}

static void groups_stay_whole(void **state) {
    (void)state;
    struct ax_examples groups;
    struct ax_corpus c;
    struct ax_corpus_report r = {0};
    int seen[N_GROUPS];
    int total = 0;
    const double weight = 1.5;
    open_groups(&groups, put_groups("groups.jsonl", 0, N_GROUPS), NULL);
    assert_ok(ax_corpus_build(&c, &groups, 1,
                              &(struct ax_corpus_options){.rule = {.max = INT64_MAX}}, &r));
    assert_ok(ax_corpus_weigh(&c, &(struct ax_corpus_weights){&weight, 1, false, true, 3}));
    check_whole(&c, seen);
    for (int i = 0; i < N_GROUPS; i++) {
        assert_in_range(seen[i], 1, 2);
        total += seen[i];
    }
    assert_int_equal(total, N_GROUPS + N_GROUPS / 2);
    ax_corpus_free(&c);
    ax_examples_free(&groups);
}

static void what_cannot_be_is_said(void **state) {
    (void)state;
    struct ax_corpus c;
    double list[] = {0.002, 1};
    struct ax_corpus_weights w = {.list = list, .n = 2};
    build(&c, 2);
    assert_error(ax_corpus_weigh(&c, &w), AX_ERR_DATA,
                 "a weight of 0.002 leaves none of the 200 documents of data set 1");
    assert_int_equal(c.n, 400);
    list[0] = 3e7;
    assert_error(ax_corpus_weigh(&c, &w), AX_ERR_DATA, "ask for 6000000200 documents");
    ax_corpus_free(&c);
    build(&c, 1);
    w.shares = true;
    list[0] = 1;
    assert_error(ax_corpus_weigh(&c, &w), AX_ERR_DATA, "data set 2 has no documents");
    w.shares = false; /* a set of which nothing is left has nothing to repeat */
    assert_ok(ax_corpus_weigh(&c, &w));
    assert_int_equal(c.n, 200);
    ax_corpus_free(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_exact), cmocka_unit_test(shares_are_exact),
        cmocka_unit_test(the_seed_decides),  cmocka_unit_test(passes_keep_the_order),
        cmocka_unit_test(groups_stay_whole), cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, make_sets, free_sets);
}
