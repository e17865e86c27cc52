/* Ranks as threads: every collective against the plain expectation, and every way a rank can spoil
 * one: other sizes, another order, not coming, failing, leaving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "parallel/comm_local.h"
#include "tests/comm_cases.h"

static void succeeds(int world, const struct ax_local_options *o, ax_local_body body, void *ctx) {
    if (ax_local_run(world, o, body, ctx) != AX_OK)
        fail_msg("%d ranks: %s", world, ax_error_text());
}

/* Fails with st, and the text has all of the parts (up to the NULL). */
static void fails(int world, ax_local_body body, void *ctx, enum ax_status st,
                  const char *const *parts) {
    const struct ax_local_options o = {.timeout = 0.2};
    assert_int_equal(ax_local_run(world, &o, body, ctx), st);
    for (; *parts; parts++)
        if (!strstr(ax_error_text(), *parts))
            fail_msg("\"%s\" lacks \"%s\"", ax_error_text(), *parts);
}
#define FAILS(world, body, ctx, st, ...)                                                           \
    fails(world, body, ctx, st, (const char *const[]){__VA_ARGS__, NULL})

static void all_collectives(void **state) {
    (void)state;
    static const int worlds[] = {2, 3, 4, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        succeeds(worlds[i], NULL, comm_cases_run, NULL);
}

static enum ax_status one(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    ENSURE(f->world == 1 && f->rank == 0);
    return AX_OK;
}

static void a_world_of_one(void **state) {
    (void)state;
    succeeds(1, NULL, one, NULL);
}

/* ---- faults: a body in which rank 2 does something else ---- */

enum deed {
    OTHER_COUNT,
    OTHER_TYPE,
    OTHER_KIND,
    OTHER_ROOT,
    OTHER_REDUCTION,
    SKIPS,
    SKIPS_LAST,
    SLEEPS,
    FAILS_ITSELF,
    LEAVES,
    NEVER_OPENS,
    STARTS_AND_LEAVES,
};

struct deed_case {
    enum deed deed;
    double wait; /* seconds that rank 2 sleeps where it does */
};

static enum ax_status gather(struct ax_comm *c, int64_t count, enum ax_dtype dtype) {
    double send[8] = {0}, recv[64];
    const struct ax_collective what = {
        .kind = AX_ALL_GATHER, .dtype = dtype, .send = send, .recv = recv, .count = count};
    return ax_comm_run(c, NULL, &what);
}

static enum ax_status reduce(struct ax_comm *c, enum ax_reduction reduction) {
    double x = 1;
    const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                       .reduction = reduction,
                                       .dtype = AX_F64,
                                       .send = &x,
                                       .recv = &x,
                                       .count = 1};
    return ax_comm_run(c, NULL, &what);
}

static enum ax_status broadcast(struct ax_comm *c, int root) {
    float x = 1;
    const struct ax_collective what = {
        .kind = AX_BROADCAST, .dtype = AX_F32, .recv = &x, .count = 1, .root = root};
    return ax_comm_run(c, NULL, &what);
}

/* Broadcast, gather, reduce; what `deed` says on rank 2. */
static enum ax_status steps(struct ax_comm *c, const struct deed_case *d, bool odd) {
    static float in_flight[2][4];
    struct ax_ticket ticket;
    const enum deed deed = odd ? d->deed : SLEEPS;
    AX_TRY(broadcast(c, deed == OTHER_ROOT));
    if (deed == FAILS_ITSELF)
        return ax_error(AX_ERR_DATA, "rows.jsonl:7: no such field");
    if (deed == LEAVES)
        return AX_OK;
    if (deed == STARTS_AND_LEAVES) {
        const struct ax_collective what = {.kind = AX_ALL_GATHER,
                                           .dtype = AX_F32,
                                           .send = in_flight[0],
                                           .recv = in_flight[1],
                                           .count = 3};
        return ax_comm_start(c, NULL, &what, &ticket);
    }
    if (odd && deed == SLEEPS) {
        const double until = ax_clock_now() + d->wait;
        while (ax_clock_now() < until)
            ;
    }
    if (deed == OTHER_KIND)
        AX_TRY(reduce(c, AX_SUM));
    else if (deed != SKIPS)
        AX_TRY(gather(c, deed == OTHER_COUNT ? 5 : 3, deed == OTHER_TYPE ? AX_I32 : AX_F32));
    if (deed == SKIPS_LAST)
        return AX_OK;
    return reduce(c, deed == OTHER_REDUCTION ? AX_MAX : AX_SUM);
}

static enum ax_status misbehave(struct ax_fabric *f, void *ctx) {
    const struct deed_case *d = ctx;
    const bool odd = f->rank == 2;
    if (odd && d->deed == NEVER_OPENS)
        return AX_OK;
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    const enum ax_status st = steps(&c, d, odd);
    if (st != AX_OK)
        (f->ops->fail)(f, st); /* cmocka has a macro of this name */
    ax_comm_free(&c);
    return st;
}

static void other_descriptions_are_named(void **state) {
    (void)state;
    struct deed_case d = {.deed = OTHER_COUNT};
    FAILS(4, misbehave, &d, AX_ERR_PEER,
          "tp: collective 2:", "rank 2 started all_gather of 5 float32", "all_gather of 3 float32");
    d.deed = OTHER_TYPE;
    FAILS(4, misbehave, &d, AX_ERR_PEER, "rank 2 started all_gather of 3 int32",
          "all_gather of 3 float32");
    d.deed = OTHER_KIND;
    FAILS(4, misbehave, &d, AX_ERR_PEER, "rank 2 started all_reduce sum of 1 float64",
          "all_gather of 3 float32");
    d.deed = OTHER_ROOT;
    FAILS(4, misbehave, &d, AX_ERR_PEER,
          "tp: collective 1:", "rank 2 started broadcast from 1 of the group", "broadcast from 0");
    d.deed = OTHER_REDUCTION;
    FAILS(4, misbehave, &d, AX_ERR_PEER, "tp: collective 3:", "rank 2 started all_reduce max",
          "all_reduce sum");
}

static void skipping_is_named(void **state) {
    (void)state;
    struct deed_case d = {.deed = SKIPS};
    FAILS(4, misbehave, &d, AX_ERR_PEER,
          "tp: collective 2:", "rank 2 started all_reduce sum of 1 float64",
          "all_gather of 3 float32");
    d.deed = SKIPS_LAST;
    const double start = ax_clock_now();
    FAILS(4, misbehave, &d, AX_ERR_PEER, "tp: collective 3 (all_reduce sum of 1 float64): rank 2",
          "ended without it");
    assert_true(ax_clock_now() - start < 5);
}

static void a_rank_that_does_not_come_is_named(void **state) {
    (void)state;
    struct deed_case d = {.deed = SLEEPS, .wait = 0.7};
    FAILS(4, misbehave, &d, AX_ERR_PEER, "tp: collective 2 (all_gather of 3 float32): rank 2",
          "did not come within 0.2 s");
    d.wait = 0.02; /* late, but not too late */
    succeeds(4, NULL, misbehave, &d);
}

static void a_rank_that_leaves_is_named(void **state) {
    (void)state;
    struct deed_case d = {.deed = LEAVES};
    FAILS(3, misbehave, &d, AX_ERR_PEER, "tp: collective 2", "rank 2 ended without it");
    d.deed = NEVER_OPENS;
    FAILS(3, misbehave, &d, AX_ERR_PEER, "tp: collective 1 (broadcast", "rank 2 ended without it");
}

/* Its buffers are taken back: if the others have not come yet, they are told; if they have, the
 * work is done before it can leave. */
static void a_rank_may_leave_what_it_started(void **state) {
    (void)state;
    struct deed_case d = {.deed = STARTS_AND_LEAVES};
    FAILS(3, misbehave, &d, AX_ERR_PEER, "rank 2 ended without it");
}

static enum ax_status only_rank_2_fails(struct ax_fabric *f, void *ctx) {
    const struct deed_case d = {.deed = FAILS_ITSELF};
    const enum ax_status st = misbehave(f, (void *)&d);
    char(*texts)[2048] = ctx;
    strcpy(texts[f->rank], ax_error_text());
    ENSURE(st == (f->rank == 2 ? AX_ERR_DATA : AX_ERR_PEER));
    return st;
}

/* The failure is what the run returns; the others' errors quote it. */
static void a_failure_reaches_everybody(void **state) {
    (void)state;
    static char texts[4][2048];
    FAILS(4, only_rank_2_fails, texts, AX_ERR_DATA, "rank 2: rows.jsonl:7: no such field");
    for (int r = 0; r < 4; r++)
        assert_non_null(
            strstr(texts[r], r == 2 ? "rows.jsonl:7" : "rank 2 failed: rows.jsonl:7: no such"));
}

/* ---- messages ---- */

static enum ax_status send_recv(struct ax_comm *c, int to, int from, int64_t count,
                                enum ax_dtype dtype, const void *send, void *recv) {
    const struct ax_collective what = {.kind = AX_SEND_RECV,
                                       .dtype = dtype,
                                       .send = send,
                                       .recv = recv,
                                       .count = count,
                                       .send_peer = to,
                                       .recv_peer = from};
    return ax_comm_run(c, NULL, &what);
}

static enum ax_status unequal_message(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    double data[8] = {0};
    enum ax_status st = AX_OK;
    AX_TRY(comm_cases_open(f, AX_ROLE_PP, &c));
    if (f->rank == 1)
        st = send_recv(&c, 2, -1, 4, AX_F32, data, NULL);
    else if (f->rank == 2)
        st = send_recv(&c, -1, 1, 5, AX_F32, NULL, data);
    ax_comm_free(&c);
    return st;
}

static enum ax_status unanswered_message(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    float x = 0;
    enum ax_status st = AX_OK;
    AX_TRY(comm_cases_open(f, AX_ROLE_PP, &c));
    st = send_recv(&c, -1, (f->rank + 1) % f->world, 1, AX_F32, NULL, &x); /* nobody sends */
    ax_comm_free(&c);
    return st;
}

static void messages_that_do_not_match_are_named(void **state) {
    (void)state;
    FAILS(3, unequal_message, NULL, AX_ERR_PEER, "pp: message 1 from rank 1 to rank 2",
          "send_recv of 5 float32", "send_recv of 4 float32");
    FAILS(2, unanswered_message, NULL, AX_ERR_PEER, "pp: message 1 from rank ", "did not come");
}

static enum ax_status to_itself(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    float from = (float)f->rank, to = -1;
    AX_TRY(comm_cases_open(f, AX_ROLE_PP, &c));
    const enum ax_status st = send_recv(&c, f->rank, f->rank, 1, AX_F32, &from, &to);
    ax_comm_free(&c);
    ENSURE(st != AX_OK || to == from);
    return st;
}

static void a_message_to_oneself_arrives(void **state) {
    (void)state;
    succeeds(3, NULL, to_itself, NULL);
}

static enum ax_status wrong_counts(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    float send[6] = {0}, recv[6];
    const int64_t out[] = {1, 2, 3}, in[] = {f->rank + 1, f->rank + 1, f->rank == 2 ? 2 : 1};
    const struct ax_collective what = {.kind = AX_ALL_TO_ALL_V,
                                       .dtype = AX_F32,
                                       .send = send,
                                       .recv = recv,
                                       .send_counts = out,
                                       .recv_counts = in};
    AX_TRY(comm_cases_open(f, AX_ROLE_EP, &c));
    const enum ax_status st = ax_comm_run(&c, NULL, &what);
    ax_comm_free(&c);
    return st;
}

static void uneven_parts_must_agree(void **state) {
    (void)state;
    FAILS(3, wrong_counts, NULL, AX_ERR_PEER, "ep: collective 1 (all_to_all_v of float32)",
          "rank 2 sends 2 elements to rank 1, which expects 1 from it");
}

/* ---- life of communicators ---- */

static enum ax_status open_twice(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    for (int i = 0; i < 20; i++) { /* a fast rank is in round i + 1 while others are in i */
        struct ax_comm a, b;
        AX_TRY(comm_cases_open(f, AX_ROLE_TP, &a));
        AX_TRY(comm_cases_open(f, AX_ROLE_CP, &b));
        AX_TRY(reduce(&a, AX_SUM));
        AX_TRY(gather(&b, 3, AX_F32));
        if (i % 2)
            AX_TRY(reduce(&a, AX_MAX));
        ax_comm_free(&a);
        ax_comm_free(&b);
    }
    return AX_OK;
}

static void communicators_may_be_opened_again(void **state) {
    (void)state;
    succeeds(4, NULL, open_twice, NULL);
}

/* ---- delay ---- */

struct times {
    double start, wait, again;
};

static enum ax_status timed(struct ax_fabric *f, void *ctx) {
    struct times *times = ctx;
    static float data[2][2][1000];
    struct ax_comm c;
    struct ax_ticket t[2];
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    AX_TRY(reduce(&c, AX_SUM)); /* together */
    const double begin = ax_clock_now();
    for (int i = 0; i < 2; i++) {
        const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                           .dtype = AX_F32,
                                           .send = data[f->rank][i],
                                           .recv = data[f->rank][i],
                                           .count = 1000};
        AX_TRY(ax_comm_start(&c, NULL, &what, &t[i]));
    }
    times[f->rank].start = ax_clock_now() - begin;
    AX_TRY(ax_comm_wait(&c, NULL, t[0]));
    times[f->rank].wait = ax_clock_now() - begin;
    AX_TRY(ax_comm_wait(&c, NULL, t[1]));
    times[f->rank].again = ax_clock_now() - begin;
    ax_comm_free(&c);
    return AX_OK;
}

/* 4 kB among two ranks at 40 kB/s: 100 ms each, and 50 ms of latency once. */
static void delays_pass_while_nobody_waits(void **state) {
    (void)state;
    static struct times times[2];
    const struct ax_local_options o = {.latency = 0.05, .bytes_per_second = 40e3};
    succeeds(2, &o, timed, times);
    for (int r = 0; r < 2; r++) {
        assert_true(times[r].start < 0.1);
        assert_true(times[r].wait > 0.149 - 0.06); /* the ranks leave the first one at their pace */
        assert_true(times[r].again - times[r].wait > 0.09 && times[r].again > 0.24 - 0.06);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives),
        cmocka_unit_test(a_world_of_one),
        cmocka_unit_test(other_descriptions_are_named),
        cmocka_unit_test(skipping_is_named),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(a_rank_may_leave_what_it_started),
        cmocka_unit_test(a_failure_reaches_everybody),
        cmocka_unit_test(messages_that_do_not_match_are_named),
        cmocka_unit_test(a_message_to_oneself_arrives),
        cmocka_unit_test(uneven_parts_must_agree),
        cmocka_unit_test(communicators_may_be_opened_again),
        cmocka_unit_test(delays_pass_while_nobody_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
