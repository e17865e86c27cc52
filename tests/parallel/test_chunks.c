/* Units split over the stages of a pipeline by cost, and the idle time that is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "parallel/schedule/chunks.h"
#include "parallel/schedule/order.h"

#define MAX_UNITS 12

static double sum(const double *cost, int first, int end) {
    double all = 0;
    for (int u = first; u < end; u++)
        all += cost[u];
    return all;
}

struct quality {
    double slowest, squares;
};

static struct quality quality_of(const double *cost, int ranges, const int *bounds) {
    struct quality q = {0};
    for (int k = 0; k < ranges; k++) {
        const double range = sum(cost, bounds[k], bounds[k + 1]);
        q.slowest = fmax(q.slowest, range);
        q.squares += range * range;
    }
    return q;
}

static bool is_better(struct quality a, struct quality b) {
    return a.slowest < b.slowest || (a.slowest == b.slowest && a.squares < b.squares);
}

/* Tries all bounds from number k on. */
static void search(const double *cost, int n, int ranges, int k, int *bounds,
                   struct quality *best) {
    if (k == ranges) {
        bounds[ranges] = n;
        const struct quality q = quality_of(cost, ranges, bounds);
        *best = is_better(q, *best) ? q : *best;
        return;
    }
    for (bounds[k] = bounds[k - 1] + 1; bounds[k] <= n - (ranges - k); bounds[k]++)
        search(cost, n, ranges, k + 1, bounds, best);
}

/* Small integers, so that sums are exact. */
static void splits_are_the_best_of_all(void **state) {
    (void)state;
    int splits = 0;
    for (int round = 0; round < 60; round++)
        for (int n = 1; n <= MAX_UNITS; n++)
            for (int ranges = 1; ranges <= n && ranges <= 6; ranges++, splits++) {
                const struct ax_rng_key key = {7, (uint32_t)round, (uint32_t)n};
                double cost[MAX_UNITS];
                int bounds[MAX_UNITS + 1], tried[MAX_UNITS + 1] = {0};
                for (int u = 0; u < n; u++)
                    cost[u] = (double)ax_rng_below(key, (uint64_t)u, round % 2 ? 9 : 1000);
                struct quality best = {INFINITY, INFINITY};
                search(cost, n, ranges, 1, tried, &best);
                assert_int_equal(ax_chunks_split(cost, n, ranges, bounds), AX_OK);
                assert_int_equal(bounds[0], 0);
                assert_int_equal(bounds[ranges], n);
                for (int k = 0; k < ranges; k++)
                    assert_true(bounds[k] < bounds[k + 1]);
                const struct quality q = quality_of(cost, ranges, bounds);
                assert_true(q.slowest == best.slowest && q.squares == best.squares);
            }
    print_message("%d splits\n", splits);
}

/* The embedding costs next to nothing, the head as much as some layers. */
static void splits_by_hand(void **state) {
    (void)state;
    static const struct {
        int n, ranges;
        double cost[MAX_UNITS];
        int bounds[MAX_UNITS + 1];
    } cases[] = {
        {7, 2, {0, 1, 1, 1, 1, 1, 0}, {0, 3, 7}},            /* of 5 layers 2 and 3 */
        {7, 2, {0.1, 1, 1, 1, 1, 1, 3}, {0, 5, 7}},          /* 4, and 1 with the head */
        {8, 4, {0.1, 1, 1, 1, 1, 1, 1, 3}, {0, 3, 5, 7, 8}}, /* the head alone */
        {8, 2, {4, 1, 1, 1, 1, 1, 1, 4}, {0, 4, 8}},
        {5, 4, {0, 1, 1, 1, 1}, {0, 2, 3, 4, 5}},
        {6, 3, {9, 1, 1, 1, 1, 1}, {0, 1, 3, 6}}, /* nothing for the first range but its own */
        {4, 1, {1, 2, 3, 4}, {0, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int bounds[MAX_UNITS + 1];
        assert_int_equal(ax_chunks_split(cases[i].cost, cases[i].n, cases[i].ranges, bounds),
                         AX_OK);
        for (int k = 0; k <= cases[i].ranges; k++)
            assert_int_equal(bounds[k], cases[i].bounds[k]);
    }
}

static void stages_have_every_pth_range(void **state) {
    (void)state;
    static const int bounds[] = {0, 2, 3, 5, 6, 8, 9};
    const struct ax_chunks s = ax_chunks_of(bounds, 2, 3, 1);
    assert_int_equal(s.n, 3);
    for (int c = 0; c < 3; c++) {
        assert_int_equal(s.list[c].first, bounds[2 * c + 1]);
        assert_int_equal(s.list[c].end, bounds[2 * c + 2]);
    }
    for (int u = 0; u < 9; u++)
        assert_int_equal(ax_chunks_have(&s, u), u == 2 || u == 5 || u == 8);
}

/* Of equal costs the known formula: p − 1 of v·n + p − 1 turns. */
static void idle_time_is_known_for_equal_costs(void **state) {
    (void)state;
    double cost[64], idle;
    for (int i = 0; i < 64; i++)
        cost[i] = 3;
    for (int stages = 1; stages <= 6; stages++)
        for (int v = 1; v <= 4; v++)
            for (int n = stages; n <= 4 * stages; n++) {
                struct ax_pipeline p = {AX_PIPELINE_INTERLEAVED, v, stages, n};
                const double turns = ax_pipeline_chunks(&p) * n + stages - 1;
                assert_int_equal(ax_order_idle(&p, cost, &idle), AX_OK);
                assert_true(fabs(idle - (stages - 1) / turns) < 1e-12);
                p.kind = v % 2 ? AX_PIPELINE_1F1B : AX_PIPELINE_AFAB;
                assert_int_equal(ax_order_idle(&p, cost, &idle), AX_OK);
                assert_true(fabs(idle - (stages - 1.0) / (n + stages - 1)) < 1e-12);
            }
}

/* Two stages, the second three times as slow, two micro-batches: it runs 3 + 6 + 3 + 6 after the
 * first's 1, and the first's last backward of 2 follows: of 2 · 21 it is busy for 6 + 18. */
static void a_slow_stage_is_waited_for(void **state) {
    (void)state;
    const struct ax_pipeline p = {AX_PIPELINE_1F1B, 0, 2, 2};
    const double cost[] = {1, 3};
    double idle;
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(ax_order_idle(&p, cost, &idle), AX_OK);
    assert_true(fabs(idle - (1 - 24.0 / 42)) < 1e-12);
    for (int k = 1; k <= 7; k++) {
        char fault[32];
        int bounds[3];
        snprintf(fault, sizeof fault, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(fault), AX_OK);
        assert_int_equal(ax_order_idle(&p, cost, &idle), AX_ERR_NOMEM);
        if (k <= 3) {
            assert_int_equal(ax_fault_configure(fault), AX_OK);
            assert_int_equal(ax_chunks_split(cost, 2, 2, bounds), AX_ERR_NOMEM);
        }
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_are_the_best_of_all),
        cmocka_unit_test(splits_by_hand),
        cmocka_unit_test(stages_have_every_pth_range),
        cmocka_unit_test(idle_time_is_known_for_equal_costs),
        cmocka_unit_test(a_slow_stage_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
