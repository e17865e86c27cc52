/* The fabric of GPUs over a stand-in for NCCL, ranks as threads: the collectives of every fabric, on
 * queues of the emulated backend; a rank that is lost; what the host's memory takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <math.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "tests/doubles/cuda/nccl.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/fabric/comm_nccl.h"
#include "parallel/fabric/flight.h"
#include "tests/comm_cases.h"
#include "tests/kernels/harness.h"

/* Runs body on this rank with the fabric of GPUs and a queue. */
struct body {
    ax_local_body run;
    void *ctx;
};

static unsigned planned; /* roles of the fabric */

static enum ax_status be_rank(struct ax_fabric *host, void *ctx) {
    const struct body *body = ctx;
    struct ax_fabric f;
    struct machine m;
    machine_open(&m, "cuda", 1);
    comm_cases_queue = m.q;
    enum ax_status st = ax_nccl_fabric_open(&f, host, &m.arena.memory, planned);
    if (st == AX_OK) {
        st = body->run(&f, body->ctx);
        if (st != AX_OK)
            (f.ops->fail)(&f, st); /* cmocka has a macro of this name */
        f.ops->free(&f);
    }
    comm_cases_queue = NULL;
    machine_close(&m);
    return st;
}

static enum ax_status run_world(int world, double timeout, ax_local_body run, void *ctx) {
    return ax_local_run(world, &(struct ax_local_options){.timeout = timeout}, be_rank,
                        &(struct body){run, ctx});
}

static void collectives_have_known_answers(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++)
        if (run_world(world, 0, comm_cases_run, NULL) != AX_OK)
            fail_msg("%d ranks: %s", world, ax_error_text());
}

/* Runs ranks with standard error in a file; said: what is there. */
static void run_aside(ax_local_body run, char *said, size_t size) {
    char path[] = "/tmp/axtrain-nccl-XXXXXX";
    const int saved = dup(STDERR_FILENO), file = mkstemp(path);
    assert_true(saved >= 0 && file >= 0 && dup2(file, STDERR_FILENO) >= 0);
    const enum ax_status st = run_world(3, 0, run, NULL);
    dup2(saved, STDERR_FILENO);
    const ssize_t n = pread(file, said, size - 1, 0);
    close(saved);
    close(file);
    unlink(path);
    if (st != AX_OK || n < 0)
        fail_msg("%s", ax_error_text());
    said[n] = '\0';
}

/* What transfers move is registered; the stand-in ends the program if one is not while its rank has registered
 * any, or if it still is when a group or the memory goes. */
static void memory_is_registered(void **state) {
    (void)state;
    char said[1 << 12];
    uint64_t registered, others;
    ax_emulated_transfers(&registered, &others);
    run_aside(comm_cases_run, said, sizeof said);
    ax_emulated_transfers(&registered, &others);
    assert_true(registered > 100 && others == 0);
    assert_string_equal(said, "");
}

/* By one rank's library: no rank has registered any, and that one says why, once for all its groups. */
static enum ax_status open_twice(struct ax_fabric *f, void *ctx) {
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    ax_comm_free(&c);
    return comm_cases_run(f, ctx);
}

static void memory_may_be_refused(void **state) {
    (void)state;
    char said[1 << 12];
    uint64_t registered, others;
    ax_emulated_transfers(&registered, &others);
    ax_emulated_refuse(1);
    run_aside(open_twice, said, sizeof said);
    ax_emulated_refuse(-1);
    ax_emulated_transfers(&registered, &others);
    assert_true(registered == 0 && others > 100);
    const char *line = strstr(said, "slower: NCCL: ncclCommRegister: invalid argument\n");
    if (!line || strchr(line, '\n')[1] != '\0')
        fail_msg("%s", said);
}

/* A sum that depends on what its queue computed before, and that the queue uses after. */
static enum ax_status sum_between_ops(struct ax_fabric *f, void *ctx) {
    struct ax_comm c;
    struct ax_queue *q = comm_cases_queue;
    struct ax_stack *scratch = q->scratch;
    const int64_t n = 1000;
    struct ax_tensor x = ax_tensor_1d(AX_F32, ax_stack_push(scratch, "x", 4096), n), y = x;
    float out[1000];
    (void)ctx;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    y.data = ax_stack_push(scratch, "y", 4096);
    for (int turn = 0; turn < 20; turn++) {
        AX_TRY(ax_run_fill(q, &(struct ax_fill){x, turn + c.rank}));
        AX_TRY(ax_comm_sum(&c, q, AX_F32, x.data, n));
        AX_TRY(ax_run_copy(q, &(struct ax_copy){y, x}));
        AX_TRY(ax_run_fill(q, &(struct ax_fill){x, -1}));
        AX_TRY(ax_queue_read(q, y.data, out, sizeof out, NULL));
        for (int i = 0; i < n; i++)
            ENSURE(out[i] == (float)(turn * c.size + c.size * (c.size - 1) / 2));
    }
    ax_comm_free(&c);
    return AX_OK;
}

static void queues_and_transfers_wait_for_each_other(void **state) {
    (void)state;
    if (run_world(3, 0, sum_between_ops, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* A transfer's call is in progress when it returns, and not for as long as a sleep takes. */
static void calls_do_not_sleep(void **state) {
    (void)state;
    (void)ax_emulated_first_look();
    if (run_world(2, 0, sum_between_ops, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    const double seconds = ax_emulated_first_look();
    if (!(seconds < 1e-4))
        fail_msg("%g s until the first look", seconds);
}

/* Each rank first waits for a message, by its stream's order, and then sends one. */
static enum ax_status receive_before_sending(struct ax_fabric *f, void *ctx) {
    struct ax_comm c;
    struct ax_queue *q = comm_cases_queue;
    float *x = ax_stack_push(q->scratch, "x", 256), *y = ax_stack_push(q->scratch, "y", 256);
    const int next = (f->rank + 1) % f->world, before = (f->rank + f->world - 1) % f->world;
    struct ax_ticket received, sent;
    float out[8];
    (void)ctx;
    AX_TRY(comm_cases_open(f, AX_ROLE_PP, &c));
    AX_TRY(ax_run_fill(q, &(struct ax_fill){ax_tensor_1d(AX_F32, x, 8), f->rank}));
    const struct ax_collective receive = {.kind = AX_SEND_RECV,
                                          .dtype = AX_F32,
                                          .recv = y,
                                          .count = 8,
                                          .send_peer = -1,
                                          .recv_peer = before};
    const struct ax_collective send = {.kind = AX_SEND_RECV,
                                       .dtype = AX_F32,
                                       .send = x,
                                       .count = 8,
                                       .send_peer = next,
                                       .recv_peer = -1};
    AX_TRY(ax_comm_start(&c, q, &receive, &received));
    AX_TRY(ax_comm_start(&c, q, &send, &sent));
    AX_TRY(ax_comm_wait(&c, q, received));
    AX_TRY(ax_queue_read(q, y, out, sizeof out, NULL));
    AX_TRY(ax_comm_wait(&c, q, sent));
    for (int i = 0; i < 8; i++)
        ENSURE(out[i] == (float)before);
    ax_comm_free(&c);
    return AX_OK;
}

static void receives_may_be_posted_first(void **state) {
    (void)state;
    if (run_world(3, 5, receive_before_sending, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* A queue stands still for the millisecond of a sum (emulated/nccl.cpp), but not where a product takes as long. */
static enum ax_status wait_and_hide(struct ax_fabric *f, void *ctx) {
    enum { TURNS = 100 }; /* more than there are events */
    struct ax_comm c;
    struct ax_queue *q = comm_cases_queue;
    const struct ax_tensor x = ax_tensor_2d(AX_F32, ax_stack_push(q->scratch, "x", 1024), 16, 16);
    const struct ax_tensor y = ax_tensor_2d(AX_F32, ax_stack_push(q->scratch, "y", 1024), 16, 16);
    const struct ax_tensor z = ax_tensor_2d(AX_F32, ax_stack_push(q->scratch, "z", 1024), 16, 16);
    struct ax_ticket ticket;
    (void)ctx;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    AX_TRY(ax_run_fill(q, &(struct ax_fill){x, 1}));
    for (int turn = 0; turn < TURNS; turn++) {
        AX_TRY(ax_comm_sum(&c, q, AX_F32, x.data, 256));
        if (turn % 10 == 0)
            AX_TRY(ax_queue_finish(q));
    }
    AX_TRY(ax_queue_finish(q));
    const double waited = ax_comm_waited(&c);
    const struct ax_collective sum = {
        .kind = AX_ALL_REDUCE, .dtype = AX_F32, .send = x.data, .recv = x.data, .count = 256};
    AX_TRY(ax_comm_start(&c, q, &sum, &ticket));
    AX_TRY(ax_run_gemm(q, &(struct ax_gemm){.a = y, .b = y, .c = z, .alpha = 1}));
    AX_TRY(ax_comm_wait(&c, q, ticket));
    AX_TRY(ax_queue_finish(q));
    const double hidden = ax_comm_waited(&c) - waited;
    ax_comm_free(&c);
    ENSURE(fabs(waited - 1e-3 * TURNS) < 1e-6);
    ENSURE(hidden == 0);
    return AX_OK;
}

static void waits_are_timed(void **state) {
    (void)state;
    if (run_world(3, 0, wait_and_hide, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Values of the host go by the host's fabric. */
static enum ax_status sum_on_host(struct ax_fabric *f, void *ctx) {
    struct ax_comm c;
    double x[2] = {f->rank, 1};
    (void)ctx;
    AX_TRY(comm_cases_open(f, AX_ROLE_LOSS, &c));
    AX_TRY(ax_comm_sum(&c, &host_queue, AX_F64, x, 2));
    ax_comm_free(&c);
    ENSURE(x[0] == 3 && x[1] == 3);
    return AX_OK;
}

static void the_hosts_memory_has_the_hosts_fabric(void **state) {
    (void)state;
    if (run_world(3, 0, sum_on_host, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* ---- which groups there are ---- */

/* TP is planned to move something, LOSS is not, and then does. */
static enum ax_status connect_late(struct ax_fabric *f, void *ctx) {
    struct ax_comm tp, loss;
    struct ax_queue *q = comm_cases_queue;
    float *x = ax_stack_push(q->scratch, "x", 64), out[4];
    double value = 1;
    uint64_t *members = ctx;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &tp));
    AX_TRY(comm_cases_open(f, AX_ROLE_LOSS, &loss));
    AX_TRY(ax_comm_sum(&loss, &host_queue, AX_F64, &value, 1));
    ENSURE(value == 2);
    if (f->rank == 0)
        members[0] = ax_emulated_members();
    AX_TRY(ax_comm_sum(&loss, &host_queue, AX_F64, &value, 1)); /* neither goes on before */
    AX_TRY(ax_run_fill(q, &(struct ax_fill){ax_tensor_1d(AX_F32, x, 4), 3}));
    AX_TRY(ax_comm_sum(&loss, q, AX_F32, x, 4));
    AX_TRY(ax_comm_sum(&tp, q, AX_F32, x, 4));
    AX_TRY(ax_queue_read(q, x, out, sizeof out, NULL));
    ENSURE(out[0] == 12 && out[3] == 12);
    ax_comm_free(&loss);
    ax_comm_free(&tp);
    return AX_OK;
}

static void groups_are_connected_when_they_move_something(void **state) {
    (void)state;
    uint64_t members[1];
    planned = 1u << AX_ROLE_TP;
    (void)ax_emulated_members();
    if (run_world(2, 0, connect_late, members) != AX_OK)
        fail_msg("%s", ax_error_text());
    planned = 0;
    assert_int_equal(members[0], 2);
    assert_int_equal(ax_emulated_members(), 2);
}

static atomic_int uses;

static enum ax_status use(struct ax_queue *q, const void *args, void *const *at) {
    (void)q;
    (void)args;
    (void)at;
    uses++;
    return AX_OK;
}

/* Rank 1 starts nothing more; the others wait for it on the device, not for ever. What they wait for has the
 * error: neither a read nor a function of the host sees the data without. */
static enum ax_status lose_one(struct ax_fabric *f, void *ctx) {
    struct ax_comm c;
    struct ax_queue *q = comm_cases_queue;
    enum ax_status st = AX_OK;
    float *x = ax_stack_push(q->scratch, "x", 4096);
    (void)ctx;
    struct ax_flight *flight;
    AX_TRY(ax_flight_create(&flight, f->rank, f->world));
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    c.flight = flight;
    AX_TRY(ax_comm_sum(&c, q, AX_F32, x, 100));
    AX_TRY(ax_queue_finish(q));
    if (f->rank == 1) {
        usleep(2000000);
    } else {
        st = ax_comm_sum(&c, q, AX_F32, x, 100);
        const struct ax_view view = {x, 400, AX_VIEW_READ};
        float out[100];
        ENSURE(st == AX_OK && ax_queue_call(q, use, NULL, 0, &view, 1) == AX_OK);
        ENSURE(ax_queue_read(q, x, out, sizeof out, NULL) == AX_ERR_PEER);
        ENSURE(ax_queue_finish(q) == AX_ERR_PEER);
        st = ax_comm_sum(&c, q, AX_F32, x, 100);
    }
    if (st != AX_OK)
        (f->ops->fail)(f, st);
    if (f->rank == 0)
        ax_flight_write(flight);
    ax_comm_free(&c);
    ax_flight_free(flight);
    return st;
}

/* The lines of rank 0's flight record from the third on: the collectives. */
static void expect_flight(const char *dir, const char *first, const char *second) {
    char path[128], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/rank-0.tsv", dir);
    assert_int_equal(ax_read_file(path, 1 << 16, &text, &len), AX_OK);
    const char *a = strstr(text, "\ntp\t"), *b = a ? strstr(a + 1, "\ntp\t") : NULL;
    if (!b || !strstr(a, first) || strstr(a, first) > b || !strstr(b, second))
        fail_msg("%s", text);
    ax_free(text);
}

static void a_lost_rank_ends_the_others(void **state) {
    (void)state;
    char dir[64];
    snprintf(dir, sizeof dir, "/tmp/axtrain-nccl-%d", (int)getpid());
    ax_flight_to(dir);
    uses = 0;
    assert_int_equal(run_world(3, 0.5, lose_one, NULL), AX_ERR_PEER);
    ax_flight_to(NULL);
    if (!strstr(ax_error_text(), "was not done within 0.5 s"))
        fail_msg("%s", ax_error_text());
    assert_int_equal(uses, 0);
    expect_flight(dir, "\tdone\n", "\tstarted\n");
    assert_int_equal(ax_remove_tree(dir), AX_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_have_known_answers),
        cmocka_unit_test(memory_is_registered),
        cmocka_unit_test(memory_may_be_refused),
        cmocka_unit_test(queues_and_transfers_wait_for_each_other),
        cmocka_unit_test(calls_do_not_sleep),
        cmocka_unit_test(receives_may_be_posted_first),
        cmocka_unit_test(waits_are_timed),
        cmocka_unit_test(the_hosts_memory_has_the_hosts_fabric),
        cmocka_unit_test(groups_are_connected_when_they_move_something),
        cmocka_unit_test(a_lost_rank_ends_the_others),
    };
    return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
