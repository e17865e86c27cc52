/* The delay fabric: collectives with known answers and known faults, on the clock and in the
 * mode of turns; when transfers arrive; and random programs of ranks that compute and
 * communicate, compared with the simulator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/doubles/delay.h"
#include "parallel/schedule/simulate.h"
#include "tests/comm_cases.h"

static void succeeds(int world, struct ax_delay_link link, bool turns, ax_local_body body,
                     void *ctx) {
    if (ax_delay_run(world, link, turns, body, ctx) != AX_OK)
        fail_msg("%d ranks: %s", world, ax_error_text());
}

static void all_collectives(void **state) {
    (void)state;
    static const int worlds[] = {2, 3, 4};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        succeeds(worlds[i], (struct ax_delay_link){1e-5, 1e9}, false, comm_cases_run, NULL);
        succeeds(worlds[i], (struct ax_delay_link){1e3, 1}, true, comm_cases_run, NULL);
    }
    succeeds(3, (struct ax_delay_link){1e-5, 1e9}, false, team_cases_run, NULL);
}

static void faults_are_named(void **state) {
    (void)state;
    for (enum comm_deed deed = 0; deed < DEED_DIES; deed++) {
        if (deed == DEED_SLEEPS) /* the others wait */
            continue;
        for (int turns = 0; turns < 2; turns++) {
            const struct comm_fault *fault = &comm_faults[deed];
            assert_int_equal(
                ax_delay_run(4, (struct ax_delay_link){0}, turns, comm_cases_misbehave, &deed),
                fault->st);
            if (!strstr(ax_error_text(), fault->text[1]))
                fail_msg("\"%s\" lacks \"%s\"", ax_error_text(), fault->text[1]);
        }
    }
}

/* ---- when they arrive ---- */

struct times {
    double start, wait, again;
};

static float floats[4][2][1000];

static enum ax_status begin(struct ax_comm *c, int i, int64_t count, struct ax_ticket *ticket) {
    const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                       .dtype = AX_F32,
                                       .send = floats[c->rank][i],
                                       .recv = floats[c->rank][i],
                                       .count = count};
    return ax_comm_start(c, &host_queue, &what, ticket);
}

static enum ax_status timed(struct ax_fabric *f, void *ctx) {
    struct times *times = ctx;
    struct ax_comm c;
    struct ax_ticket t[2];
    float together = 1;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    AX_TRY(ax_comm_sum(&c, &host_queue, AX_F32, &together, 1));
    const double zero = ax_delay_now(f);
    for (int i = 0; i < 2; i++)
        AX_TRY(begin(&c, i, 1000, &t[i]));
    times[f->rank].start = ax_delay_now(f) - zero;
    AX_TRY(ax_comm_wait(&c, &host_queue, t[0]));
    times[f->rank].wait = ax_delay_now(f) - zero;
    AX_TRY(ax_comm_wait(&c, &host_queue, t[1]));
    times[f->rank].again = ax_delay_now(f) - zero;
    ax_comm_free(&c);
    return AX_OK;
}

/* 4 kB among two ranks at 40 kB/s: 100 ms each, one after the other, and 50 ms of latency.
 * Starts return immediately, unless the machine is busy with other things. */
static void delays_pass_while_nobody_waits(void **state) {
    (void)state;
    static struct times times[2];
    bool at_once = false;
    for (int tries = 0; tries < 5 && !at_once; tries++) {
        succeeds(2, (struct ax_delay_link){0.05, 40e3}, false, timed, times);
        for (int r = 0; r < 2; r++)
            assert_true(times[r].wait > 0.149 && times[r].again > 0.249);
        at_once = times[0].start < 0.1 && times[1].start < 0.1;
    }
    assert_true(at_once);
    /* only the one or the other */
    succeeds(2, (struct ax_delay_link){0.05, 0}, false, timed, times);
    assert_true(times[0].wait > 0.049 && times[1].wait > 0.049);
    succeeds(2, (struct ax_delay_link){0, 40e3}, false, timed, times);
    assert_true(times[0].again > 0.199 && times[1].again > 0.199);
}

/* In the mode of turns, transfers of days take no time, and last as long as they should on the
 * ranks' clocks. */
static void turns_do_not_sleep(void **state) {
    (void)state;
    static struct times times[4];
    const double begin_at = ax_clock_now();
    succeeds(4, (struct ax_delay_link){5e4, 0.06}, true, timed, times); /* 6 kB: 1e5 s */
    assert_true(ax_clock_now() - begin_at < 50);
    for (int r = 0; r < 4; r++) {
        assert_true(times[r].start < 1);
        assert_true(fabs(times[r].wait - 1.5e5) < 1);
        assert_true(fabs(times[r].again - 2.5e5) < 1);
    }
}

static enum ax_status gather_much(struct ax_fabric *f, void *ctx) {
    enum { BYTES = 32 << 20 };
    static char memory[2][3 * BYTES]; /* first touched here */
    double *took = ctx;
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                       .dtype = AX_U8,
                                       .send = memory[f->rank] + 2 * BYTES,
                                       .recv = memory[f->rank],
                                       .count = BYTES};
    const double zero = ax_delay_now(f);
    AX_TRY(ax_comm_run(&c, &host_queue, &what));
    took[f->rank] = ax_delay_now(f) - zero;
    ax_comm_free(&c);
    return AX_OK;
}

/* In the mode of turns, a transfer lasts as long as its link takes; the copy in this machine
 * (more than 10 ms for 128 MiB) does not count. */
static void moving_data_is_no_computing(void **state) {
    (void)state;
    double took[2];
    succeeds(2, (struct ax_delay_link){0}, true, gather_much, took);
    assert_true(took[0] < 2e-3 && took[1] < 2e-3);
}

/* ---- random programs, against the simulator ---- */

enum { MOST_RANKS = 4, MOST_ITEMS = 128, MOST_OPEN = 3 };
#define LATENCY 2e-3
#define SPEED   1e6

/* Ranks do not compute, they say for how long they would have: whatever else runs on the machine, their
 * clocks are exact. */
static _Thread_local double worked;

static double seconds_worked(void) {
    return worked;
}

struct program {
    int n;
    bool messages;
    size_t items[MOST_RANKS];
    struct ax_sim_item item[MOST_RANKS][MOST_ITEMS];
    double end[MOST_RANKS], exposed[MOST_RANKS];
};

static struct ax_sim_item *put(struct program *p, int rank, enum ax_sim_kind kind,
                               uint64_t ticket) {
    assert_true(p->items[rank] < MOST_ITEMS);
    struct ax_sim_item *item = &p->item[rank][p->items[rank]++];
    *item = (struct ax_sim_item){.kind = kind, .to = -1, .from = -1, .ticket = ticket};
    return item;
}

/* Waits for some of what is open, in any order, or for all. */
static void put_waits(struct program *p, int rank, uint64_t *open, int *n, int most) {
    while (*n > most || (*n > 0 && rand() % 3 == 0)) {
        const int i = rand() % *n;
        put(p, rank, AX_SIM_WAIT, open[i]);
        open[i] = open[--*n];
    }
}

/* The simulator takes collectives of ranks that do the same; messages share no link if a rank sends one
 * at a time. */
static void draw(struct program *p, unsigned seed) {
    uint64_t open[MOST_RANKS][MOST_OPEN + 1];
    int n_open[MOST_RANKS] = {0};
    srand(seed);
    *p = (struct program){.n = 2 + rand() % (MOST_RANKS - 1), .messages = rand() % 2};
    for (uint64_t ticket = 1; ticket <= 10; ticket++) {
        const int from = rand() % p->n, to = (from + 1 + rand() % (p->n - 1)) % p->n;
        const int work = rand() % 30, bytes = 1200 * (1 + rand() % 8), once = rand();
        for (int r = 0; r < p->n; r++) {
            if (!p->messages) /* alike, in what they draw as well */
                srand((unsigned)once);
            put(p, r, AX_SIM_WORK, 0)->seconds = 1e-4 * (p->messages ? rand() % 30 : work);
            put_waits(p, r, open[r], &n_open[r], p->messages && r == from ? 0 : MOST_OPEN - 1);
            if (p->messages && r != from && r != to)
                continue;
            struct ax_sim_item *item = put(p, r, AX_SIM_START, ticket);
            open[r][n_open[r]++] = ticket;
            item->links[AX_SIM_NODE] = bytes / SPEED;
            item->seconds = p->messages ? LATENCY : 0;
            if (p->messages && r == from)
                item->to = to;
            else if (p->messages)
                item->from = from;
        }
    }
    for (int r = 0; r < p->n; r++)
        put_waits(p, r, open[r], &n_open[r], 0);
}

static enum ax_status start_item(struct ax_comm *c, const struct program *p,
                                 const struct ax_sim_item *item, struct ax_ticket *ticket) {
    static char memory[MOST_RANKS][2][32 << 10];
    const int64_t bytes = llround(item->links[AX_SIM_NODE] * SPEED);
    const struct ax_collective what = {.kind = p->messages ? AX_SEND_RECV : AX_ALL_GATHER,
                                       .dtype = AX_U8,
                                       .send = memory[c->rank][0],
                                       .recv = memory[c->rank][1],
                                       .count = p->messages ? bytes : bytes / (p->n - 1),
                                       .send_peer = item->to,
                                       .recv_peer = item->from};
    return ax_comm_start(c, &host_queue, &what, ticket);
}

static enum ax_status run_program(struct ax_fabric *f, void *ctx) {
    struct program *p = ctx;
    const int r = f->rank;
    struct ax_ticket tickets[16];
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_PP, &c));
    const double zero = ax_delay_now(f);
    for (size_t i = 0; i < p->items[r]; i++) {
        struct ax_sim_item *item = &p->item[r][i];
        if (item->kind == AX_SIM_WORK)
            worked += item->seconds;
        else if (item->kind == AX_SIM_START)
            AX_TRY(start_item(&c, p, item, &tickets[item->ticket]));
        else
            AX_TRY(ax_comm_wait(&c, &host_queue, tickets[item->ticket]));
    }
    p->end[r] = ax_delay_now(f) - zero;
    p->exposed[r] = ax_delay_exposed(f, AX_ROLE_PP);
    ax_comm_free(&c);
    return AX_OK;
}

/* Ranks end when the simulator says, and wait as long. */
static void the_simulator_agrees(void **state) {
    (void)state;
    static struct program p;
    for (unsigned seed = 1; seed <= 40; seed++) {
        struct ax_sim_rank ranks[MOST_RANKS] = {0};
        double seconds;
        draw(&p, seed);
        const struct ax_delay_link link = {p.messages ? LATENCY : 0, SPEED};
        if (ax_delay_run_told(p.n, link, seconds_worked, run_program, &p) != AX_OK)
            fail_msg("%d ranks: %s", p.n, ax_error_text());
        for (int r = 0; r < p.n; r++)
            ranks[r] = (struct ax_sim_rank){.items = p.item[r], .n = p.items[r]};
        assert_int_equal(ax_simulate(p.messages ? p.n : 1, ranks, NULL, &seconds), AX_OK);
        for (int r = 0; r < p.n; r++) {
            const struct ax_sim_rank *s = &ranks[p.messages ? r : 0];
            if (!(fabs(p.end[r] - s->end) <= 1e-9 * s->end &&
                  fabs(p.exposed[r] - s->exposed[0]) <= 1e-9 * s->end))
                fail_msg("seed %u, %d ranks, %s, rank %d: ends at %g s, waits %g s; simulated %g, "
                         "%g",
                         seed, p.n, p.messages ? "messages" : "collectives", r, p.end[r],
                         p.exposed[r], s->end, s->exposed[0]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives),
        cmocka_unit_test(faults_are_named),
        cmocka_unit_test(delays_pass_while_nobody_waits),
        cmocka_unit_test(turns_do_not_sleep),
        cmocka_unit_test(moving_data_is_no_computing),
        cmocka_unit_test(the_simulator_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
