/* The event simulator on graphs whose times are known by hand (and on random ones: test_delay.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "parallel/schedule/schedule.h"
#include "parallel/schedule/simulate.h"

#define NEAR(a, b) assert_true((a) - (b) < 1e-9 && (b) - (a) < 1e-9)

/* Items are added to ranks one by one. */
#define MOST 256
static struct ax_sim_item items[8][MOST];
static struct ax_sim_rank ranks[8];

static struct ax_sim_item *add(int rank) {
    struct ax_sim_rank *r = &ranks[rank];
    assert_true(r->n < MOST);
    r->items = items[rank];
    struct ax_sim_item *i = &items[rank][r->n++];
    *i = (struct ax_sim_item){.to = -1, .from = -1};
    return i;
}

static void work(int rank, double seconds) {
    struct ax_sim_item *i = add(rank);
    i->kind = AX_SIM_WORK;
    i->seconds = seconds;
}

/* Groups 1 + lane. */
static struct ax_sim_item *begin(int rank, int lane, uint64_t ticket, double seconds) {
    struct ax_sim_item *i = add(rank);
    i->kind = AX_SIM_START;
    i->lane = lane;
    i->group = 1 + lane;
    i->ticket = ticket;
    i->links[AX_SIM_NODE] = seconds;
    return i;
}

static void wait_for(int rank, int lane, uint64_t ticket) {
    struct ax_sim_item *i = add(rank);
    i->kind = AX_SIM_WAIT;
    i->lane = lane;
    i->ticket = ticket;
}

static double simulated(int n, double contention) {
    const struct ax_sim_options o = {.contention = contention};
    double seconds = -1;
    assert_int_equal(ax_simulate(n, ranks, &o, &seconds), AX_OK);
    return seconds;
}

static int fresh(void **state) {
    (void)state;
    memset(ranks, 0, sizeof ranks);
    return 0;
}

static void work_adds_up(void **state) {
    (void)state;
    work(0, 1);
    work(0, 2);
    work(0, 0);
    NEAR(simulated(1, 0), 3);
    NEAR(ranks[0].work[0], 3);
    NEAR(simulated(1, 0), 3); /* and starts anew */
    NEAR(ranks[0].work[0], 3);
}

static void transfers_hide_behind_work(void **state) {
    (void)state;
    begin(0, 0, 1, 2);
    work(0, 3);
    wait_for(0, 0, 1);
    begin(0, 0, 2, 2);
    work(0, 0.5);
    wait_for(0, 0, 2);
    NEAR(simulated(1, 0), 5);
    NEAR(ranks[0].moved[1], 4);
    NEAR(ranks[0].exposed[1], 1.5);
}

static void a_lane_is_in_order(void **state) {
    (void)state;
    begin(0, 0, 1, 1);
    begin(0, 0, 2, 1)->seconds = 0.25; /* latency, after the first */
    wait_for(0, 0, 2);
    NEAR(simulated(1, 0), 2.25);
}

static void lanes_share_a_link(void **state) {
    (void)state;
    begin(0, 0, 1, 1);
    begin(0, 1, 1, 3);
    wait_for(0, 0, 1);
    wait_for(0, 1, 1);
    NEAR(simulated(1, 0), 4); /* the first at 2, when the other has moved 1 of 3 */
    NEAR(ranks[0].moved[1], 2);
    NEAR(ranks[0].moved[2], 4);
    NEAR(ranks[0].exposed[1], 2);
    NEAR(ranks[0].exposed[2], 2);
}

static void links_are_apart(void **state) {
    (void)state;
    begin(0, 0, 1, 1);
    struct ax_sim_item *far = begin(0, 1, 1, 0.5);
    far->links[AX_SIM_NETWORK] = 3; /* both at the same time */
    wait_for(0, 1, 1);
    NEAR(simulated(1, 0), 3);
}

static void latency_is_not_shared(void **state) {
    (void)state;
    for (int lane = 0; lane < 3; lane++)
        begin(0, lane, 1, 0)->seconds = 1;
    for (int lane = 0; lane < 3; lane++)
        wait_for(0, lane, 1);
    NEAR(simulated(1, 0), 1);
}

static void transfers_slow_work(void **state) {
    (void)state;
    begin(0, 0, 1, 1);
    work(0, 2);
    wait_for(0, 0, 1);
    NEAR(simulated(1, 0.5), 1 + (2 - 1 / 1.5));
}

static void messages_meet(void **state) {
    (void)state;
    work(0, 1);
    begin(0, 0, 1, 0.5)->to = 1;
    work(0, 4);
    begin(1, 0, 1, 0.5)->from = 0;
    begin(1, 0, 2, 0.5)->from = 0; /* the second of two, in order */
    wait_for(1, 0, 1);
    work(1, 1);
    begin(0, 0, 2, 0.25)->to = 1;
    wait_for(1, 0, 2);
    wait_for(0, 0, 2);
    NEAR(simulated(2, 0), 5.25);
    NEAR(ranks[1].exposed[1], 1.5 + (5.25 - 2.5));
    NEAR(ranks[1].work[0], 1);
    NEAR(ranks[0].exposed[1], 0.25);
}

static void a_late_receiver_holds_the_sender(void **state) {
    (void)state;
    begin(0, 0, 1, 1)->to = 1;
    wait_for(0, 0, 1);
    work(1, 2);
    begin(1, 0, 1, 1)->from = 0;
    wait_for(1, 0, 1);
    NEAR(simulated(2, 0), 3);
    NEAR(ranks[0].exposed[1], 3);
}

static void waiting_forever_is_an_error(void **state) {
    (void)state;
    double seconds;
    work(0, 1);
    begin(1, 0, 7, 1)->from = 0;
    wait_for(1, 0, 7);
    assert_int_equal(ax_simulate(2, ranks, NULL, &seconds), AX_ERR_FAILED);
    assert_non_null(strstr(ax_error_text(), "rank 1 of 2 waits forever for transfer 7 of lane 0"));
}

/* ---- pipelines: the action table's own order ---- */

/* A backward takes twice as long as a forward, or its halves as long each. */
static void take_actions(int stage, const struct ax_schedule *s, double forward, bool halved) {
    uint64_t ticket = 0, tickets[16][4];
    for (int i = 0; i < s->n; i++) {
        const struct ax_action *a = &s->actions[i];
        const int next = stage + 1, before = stage - 1;
        if (a->kind == AX_ACT_FORWARD)
            work(stage, forward);
        else if (a->kind == AX_ACT_BACKWARD)
            work(stage, (halved ? 1 : 2) * forward);
        else if (a->kind == AX_ACT_WEIGHTS)
            work(stage, forward);
        else if (a->kind == AX_ACT_SEND_OUTPUT)
            begin(stage, 0, ++ticket, 0)->to = next;
        else if (a->kind == AX_ACT_RECEIVE_INPUT)
            begin(stage, 0, ++ticket, 0)->from = before;
        else if (a->kind == AX_ACT_SEND_GRADIENT)
            begin(stage, 0, ++ticket, 0)->to = before;
        else if (a->kind == AX_ACT_RECEIVE_GRADIENT)
            begin(stage, 0, ++ticket, 0)->from = next;
        else if (a->kind == AX_ACT_WAIT)
            wait_for(stage, 0, tickets[a->microbatch][a->message - AX_ACT_SEND_OUTPUT]);
        if (a->kind >= AX_ACT_SEND_OUTPUT && a->kind <= AX_ACT_RECEIVE_GRADIENT)
            tickets[a->microbatch][a->kind - AX_ACT_SEND_OUTPUT] = ticket;
    }
}

static double step_of(enum ax_pipeline_kind kind, int p, int m) {
    const struct ax_pipeline pipeline = {.kind = kind, .stages = p, .n_microbatches = m};
    memset(ranks, 0, sizeof ranks);
    for (int stage = 0; stage < p; stage++) {
        const struct ax_schedule_options o = {
            .pipeline = pipeline, .stage = stage, .chunks = {.n = 1, .list = {{stage, stage + 1}}}};
        struct ax_schedule s;
        assert_int_equal(ax_schedule_create(&s, &o), AX_OK);
        take_actions(stage, &s, 1, ax_pipeline_halves(&pipeline) && stage > 0);
        ax_schedule_free(&s);
    }
    return simulated(p, 0);
}

/* (m + p − 1) (f + b), if messages take no time; halved, 3 m f + (p − 1) f. */
static void a_pipeline_takes_its_formula(void **state) {
    (void)state;
    static const int cases[][2] = {{1, 4}, {2, 2}, {4, 4}, {4, 8}};
    static const double cost[] = {1, 1, 1, 1};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const int p = cases[k][0], m = cases[k][1];
        const double takes[] = {
            [AX_PIPELINE_1F1B] = 3.0 * (m + p - 1), [AX_PIPELINE_ZERO_BUBBLE] = 3.0 * m + p - 1};
        for (int i = 0; i < 2; i++) {
            const enum ax_pipeline_kind kind = i == 0 ? AX_PIPELINE_1F1B : AX_PIPELINE_ZERO_BUBBLE;
            const struct ax_pipeline pipeline = {.kind = kind, .stages = p, .n_microbatches = m};
            const double step = step_of(kind, p, m);
            double idle;
            NEAR(step, takes[kind]);
            assert_int_equal(ax_order_idle(&pipeline, cost, &idle), AX_OK);
            NEAR(1 - 3.0 * m / step, idle);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(work_adds_up, fresh),
        cmocka_unit_test_setup(transfers_hide_behind_work, fresh),
        cmocka_unit_test_setup(a_lane_is_in_order, fresh),
        cmocka_unit_test_setup(lanes_share_a_link, fresh),
        cmocka_unit_test_setup(links_are_apart, fresh),
        cmocka_unit_test_setup(latency_is_not_shared, fresh),
        cmocka_unit_test_setup(transfers_slow_work, fresh),
        cmocka_unit_test_setup(messages_meet, fresh),
        cmocka_unit_test_setup(a_late_receiver_holds_the_sender, fresh),
        cmocka_unit_test_setup(waiting_forever_is_an_error, fresh),
        cmocka_unit_test_setup(a_pipeline_takes_its_formula, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
