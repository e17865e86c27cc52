/* Ranks as threads: every collective against the plain expectation, and every way a rank can spoil
 * one: other sizes, another order, not coming, failing, leaving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "parallel/fabric/comm_local.h"
#include "tests/comm_cases.h"
#include "tests/doubles/far.h"

static void succeeds(int world, const struct ax_local_options *o, ax_local_body body, void *ctx) {
    if (ax_local_run(world, o, body, ctx) != AX_OK)
        fail_msg("%d ranks: %s", world, ax_error_text());
}

/* Fails with st, and the text has all of the parts (up to the NULL). */
static void fails(int world, double timeout, ax_local_body body, void *ctx, enum ax_status st,
                  const char *const *parts) {
    const struct ax_local_options o = {.timeout = timeout};
    assert_int_equal(ax_local_run(world, &o, body, ctx), st);
    for (; *parts; parts++)
        if (!strstr(ax_error_text(), *parts))
            fail_msg("\"%s\" lacks \"%s\"", ax_error_text(), *parts);
}
#define FAILS(world, timeout, body, ctx, st, ...)                                                  \
    fails(world, timeout, body, ctx, st, (const char *const[]){__VA_ARGS__, NULL})

static void all_collectives(void **state) {
    (void)state;
    static const int worlds[] = {2, 3, 4, 8};
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        succeeds(worlds[i], NULL, comm_cases_run, NULL);
}

static void a_team_talks_beside_the_training(void **state) {
    (void)state;
    static const int worlds[] = {2, 5, 8};
    assert_int_equal(team_cases_alone(), AX_OK);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        succeeds(worlds[i], NULL, team_cases_run, NULL);
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

static void spoilt_collectives_are_named(void **state) {
    (void)state;
    for (enum comm_deed deed = 0; deed < DEED_DIES; deed++) { /* a thread cannot die alone */
        const struct comm_fault *fault = &comm_faults[deed];
        const double start = ax_clock_now();
        FAILS(4, deed == DEED_SLEEPS ? 1 : 20, comm_cases_misbehave, &deed, fault->st,
              fault->text[1]);
        if (fault->st == AX_ERR_PEER)
            assert_non_null(strstr(ax_error_text(), fault->text[0]));
        assert_true(ax_clock_now() - start < 15); /* nobody waited for the time to run out */
    }
}

static void a_late_rank_is_waited_for(void **state) {
    (void)state;
    enum comm_deed deed = DEED_SLEEPS;
    succeeds(4, NULL, comm_cases_misbehave, &deed);
}

/* Its buffers are taken back: if the others have not come yet, they are told; if they have, the
 * work is done before it can leave. */
static enum ax_status start_and_leave(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    struct ax_ticket ticket;
    float send[3] = {0}, recv[9];
    const struct ax_collective what = {
        .kind = AX_ALL_GATHER, .dtype = AX_F32, .send = send, .recv = recv, .count = 3};
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    enum ax_status st = ax_comm_start(&c, &host_queue, &what, &ticket);
    if (st == AX_OK && f->rank != 2)
        st = ax_comm_wait(&c, &host_queue, ticket);
    ax_comm_free(&c);
    return st;
}

static void a_rank_may_leave_what_it_started(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++)
        if (ax_local_run(3, NULL, start_and_leave, NULL) != AX_OK)
            assert_non_null(strstr(ax_error_text(), "rank 2 ended without it"));
}

/* Rank 2 starts something and leaves before the others come: they must not find its buffers, which
 * are gone, but be told. */
enum { EARLY_GATHER, EARLY_SENDS, EARLY_RECEIVES };
struct early {
    atomic_bool left;
    int what; /* EARLY_… */
    char texts[3][512];
};

static struct ax_collective early_part(const struct early *e, int rank, float *send, float *recv) {
    if (e->what == EARLY_GATHER)
        return (struct ax_collective){
            .kind = AX_ALL_GATHER, .dtype = AX_F32, .send = send, .recv = recv, .count = 3};
    const int from = e->what == EARLY_SENDS ? 2 : 1, to = 3 - from;
    return (struct ax_collective){.kind = AX_SEND_RECV,
                                  .dtype = AX_F32,
                                  .send = rank == from ? send : NULL,
                                  .recv = rank == to ? recv : NULL,
                                  .count = 3,
                                  .send_peer = rank == from ? to : -1,
                                  .recv_peer = rank == to ? from : -1};
}

static enum ax_status leave_early(struct ax_fabric *f, void *ctx) {
    struct early *e = ctx;
    struct ax_comm c;
    struct ax_ticket ticket;
    float send[3] = {0}, recv[9];
    const struct ax_collective what = early_part(e, f->rank, send, recv);
    enum ax_status st = AX_OK;
    AX_TRY(comm_cases_open(f, what.kind == AX_SEND_RECV ? AX_ROLE_PP : AX_ROLE_TP, &c));
    if (f->rank == 2) {
        st = ax_comm_start(&c, &host_queue, &what, &ticket);
        ax_comm_free(&c);
        atomic_store(&e->left, true);
        return st;
    }
    while (!atomic_load(&e->left))
        sched_yield();
    if (e->what == EARLY_GATHER || f->rank == 1)
        st = ax_comm_run(&c, &host_queue, &what);
    snprintf(e->texts[f->rank], sizeof e->texts[0], "%s", st == AX_OK ? "" : ax_error_text());
    ax_comm_free(&c);
    return st;
}

static void nobody_meets_a_rank_that_left(void **state) {
    (void)state;
    for (int what = EARLY_GATHER; what <= EARLY_RECEIVES; what++) {
        struct early e = {.what = what};
        assert_int_equal(ax_local_run(3, NULL, leave_early, &e), AX_ERR_PEER);
        for (int r = what == EARLY_GATHER ? 0 : 1; r < 2; r++)
            if (!strstr(e.texts[r], "rank 2 ended without it"))
                fail_msg("case %d, rank %d: \"%s\"", what, r, e.texts[r]);
    }
}

static enum ax_status only_rank_2_fails(struct ax_fabric *f, void *ctx) {
    enum comm_deed deed = DEED_FAILS_ITSELF;
    const enum ax_status st = comm_cases_misbehave(f, &deed);
    char(*texts)[2048] = ctx;
    strcpy(texts[f->rank], ax_error_text());
    ENSURE(st == (f->rank == 2 ? AX_ERR_DATA : AX_ERR_PEER));
    return st;
}

/* The failure is what the run returns; the others' errors quote it. */
static void a_failure_reaches_everybody(void **state) {
    (void)state;
    static char texts[4][2048];
    FAILS(4, 20, only_rank_2_fails, texts, AX_ERR_DATA, "rank 2: rows.jsonl:7: no such field");
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
    return ax_comm_run(c, &host_queue, &what);
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
    FAILS(3, 20, unequal_message, NULL, AX_ERR_PEER, "pp: message 1 from rank 1 to rank 2",
          "send_recv of 5 float32", "send_recv of 4 float32");
    FAILS(2, 0.2, unanswered_message, NULL, AX_ERR_PEER, "pp: message 1 from rank ",
          "did not arrive");
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
    const enum ax_status st = ax_comm_run(&c, &host_queue, &what);
    ax_comm_free(&c);
    return st;
}

static void uneven_parts_must_agree(void **state) {
    (void)state;
    FAILS(3, 20, wrong_counts, NULL, AX_ERR_PEER, "ep: collective 1 (all_to_all_v of float32)",
          "rank 2 sends 2 elements to rank 1, which expects 1");
}

/* ---- life of communicators ---- */

static enum ax_status open_twice(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    for (int i = 0; i < 20; i++) { /* a fast rank is in round i + 1 while others are in i */
        struct ax_comm a, b;
        AX_TRY(comm_cases_open(f, AX_ROLE_TP, &a));
        AX_TRY(comm_cases_open(f, AX_ROLE_CP, &b));
        uint64_t bits;
        AX_TRY(comm_cases_sum_bits(&a, &bits));
        AX_TRY(comm_cases_sum_bits(&b, &bits));
        if (i % 2)
            AX_TRY(comm_cases_sum_bits(&a, &bits));
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

/* ---- memory that the host cannot touch ---- */

struct far_rank {
    struct ax_arena arena;
    struct ax_queue *q;
    struct ax_comm c;
};

static enum ax_status use_far(struct far_rank *r, int rank) {
    struct ax_stack *scratch = &r->arena.scratch;
    int64_t counts[2] = {1, 1};
    float *x = ax_stack_push(scratch, "x", 4 * sizeof *x);
    float *y = ax_stack_push(scratch, "y", 4 * sizeof *y);
    const float mine[4] = {(float)rank + 1, 10, 20, 30};
    float out[4];
    struct ax_ticket t;
    AX_TRY(ax_queue_write(r->q, x, mine, sizeof mine));
    /* starts after the write, is waited for by the ops after it, and the host by neither */
    AX_TRY(
        ax_comm_start(&r->c, r->q,
                      &(struct ax_collective){
                          .kind = AX_ALL_REDUCE, .dtype = AX_F32, .send = x, .recv = x, .count = 4},
                      &t));
    AX_TRY(ax_comm_wait(&r->c, r->q, t));
    const struct ax_tensor sum = ax_tensor_1d(AX_F32, x, 4), copy = ax_tensor_1d(AX_F32, y, 4);
    AX_TRY(ax_run_copy(r->q, &(struct ax_copy){copy, sum}));
    AX_TRY(ax_comm_start(&r->c, r->q,
                         &(struct ax_collective){.kind = AX_ALL_TO_ALL_V,
                                                 .dtype = AX_F32,
                                                 .send = y,
                                                 .recv = x,
                                                 .send_counts = counts,
                                                 .recv_counts = counts},
                         &t));
    counts[0] = counts[1] = 1 << 30; /* they may change */
    AX_TRY(ax_comm_wait(&r->c, r->q, t));
    ENSURE(r->q->counters.waits == 0);
    AX_TRY(ax_queue_read(r->q, x, out, sizeof out, NULL));
    const float want[4] = {rank == 0 ? 3 : 20, rank == 0 ? 3 : 20, 40, 60};
    ENSURE(memcmp(out, want, sizeof want) == 0);
    return AX_OK;
}

static enum ax_status far_body(struct ax_fabric *f, void *ctx) {
    const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = 1 << 16, .host = AX_QUEUE_RING};
    struct far_rank r = {0};
    enum ax_status st;
    (void)ctx;
    AX_TRY(ax_arena_create(&r.arena, &plan, &ax_device_far));
    AX_TRY_GOTO(ax_queue_create(&r.q, "far", NULL, 1, &r.arena.scratch), st, done);
    AX_TRY_GOTO(ax_queue_open_ring(r.q), st, done);
    AX_TRY_GOTO(comm_cases_open(f, AX_ROLE_TP, &r.c), st, done);
    AX_TRY_GOTO(use_far(&r, f->rank), st, done);
done:
    ax_comm_free(&r.c);
    ax_queue_free(r.q);
    ax_arena_free(&r.arena);
    return st;
}

/* No thread has room for its stack: the text names the rank, as with every other failure. */
static void a_rank_without_a_thread_is_named(void **state) {
    (void)state;
    pthread_attr_t usual, huge;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    const enum ax_status st = ax_local_run(2, NULL, one, NULL);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(st, AX_ERR_FAILED);
    if (strncmp(ax_error_text(), "rank 0: cannot start a thread: ", 31) != 0)
        fail_msg("%s", ax_error_text());
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
    succeeds(1, NULL, one, NULL);
}

static void on_far_memory(void **state) {
    (void)state;
    succeeds(2, NULL, far_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives),
        cmocka_unit_test(a_team_talks_beside_the_training),
        cmocka_unit_test(a_world_of_one),
        cmocka_unit_test(on_far_memory),
        cmocka_unit_test(spoilt_collectives_are_named),
        cmocka_unit_test(a_late_rank_is_waited_for),
        cmocka_unit_test(a_rank_may_leave_what_it_started),
        cmocka_unit_test(nobody_meets_a_rank_that_left),
        cmocka_unit_test(a_failure_reaches_everybody),
        cmocka_unit_test(a_rank_without_a_thread_is_named),
        cmocka_unit_test(messages_that_do_not_match_are_named),
        cmocka_unit_test(a_message_to_oneself_arrives),
        cmocka_unit_test(uneven_parts_must_agree),
        cmocka_unit_test(communicators_may_be_opened_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
