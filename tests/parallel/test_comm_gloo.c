/* Ranks as processes: the cases of the local fabric, with the same bits, and processes that fail,
 * die or never come. Every world is forked from here; ranks leave their results as files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/io.h"
#include "parallel/fabric/comm_gloo.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/fabric/gloo.h"
#include "parallel/runtime.h"
#include "parallel/job/store.h"
#include "tests/comm_cases.h"
#include "tests/strangers.h"

enum { MAX_WORLD = 4 };

struct result {
    int code; /* status; −1 = killed */
    char text[2048];
};

static char folder[] = "/tmp/axtrain-gloo-XXXXXX", visits[] = "/tmp/axtrain-visits-XXXXXX";

static void result_path(char *path, size_t size, int rank) {
    snprintf(path, size, "%s/result-%d", folder, rank);
}

static struct ax_store_options rendezvous = {
    .host = "127.0.0.1", .ports = 1, .key = "any key will do"};

/* In the child: connect, run, say how it went. */
static enum ax_status be_rank(int rank, int world, double timeout, ax_local_body body, void *ctx) {
    const uint64_t blocks = ax_mem_live_blocks();
    struct ax_store_client *store;
    struct ax_fabric f;
    struct ax_store_options o = rendezvous;
    o.rank = rank;
    o.world = world;
    o.timeout = timeout < 5 ? 5 : timeout; /* to join; a busy machine starts processes slowly */
    AX_TRY(ax_store_open(&store, &o));
    AX_TRY(ax_gloo_open(&f, store, world, timeout));
    const enum ax_status st = body(&f, ctx);
    if (st != AX_OK)
        (f.ops->fail)(&f, st); /* cmocka has a macro of this name */
    f.ops->free(&f);
    ax_store_close(store);
    ENSURE(st != AX_OK || ax_mem_live_blocks() == blocks);
    return st;
}

static pid_t start_rank(int rank, int world, double timeout, ax_local_body body, void *ctx) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    char path[256];
    const enum ax_status st = be_rank(rank, world, timeout, body, ctx);
    result_path(path, sizeof path, rank);
    FILE *out = fopen(path, "w");
    if (out) {
        fputs(ax_error_text(), out);
        fclose(out);
    }
    _exit((int)st);
}

/* Whether strangers visit the ranks of the next worlds. */
static bool with_strangers;

/* Runs ranks first … world − 1; results[rank]. */
static void run_world(int first, int world, double timeout, ax_local_body body, void *ctx,
                      struct result *results) {
    pid_t pids[MAX_WORLD], strangers = 0;
    struct ax_store_server *server;
    int listening;
    strcpy(folder + sizeof folder - 7, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ax_net_listen("127.0.0.1", 0, 1, &listening, &rendezvous.port), AX_OK);
    for (int r = first; r < world; r++)
        pids[r] = start_rank(r, world, timeout, body, ctx);
    if (with_strangers)
        strangers = strangers_start(pids, world, visits);
    assert_int_equal(
        ax_store_serve(&server, listening, world, rendezvous.key, first > 0 ? timeout : 60), AX_OK);
    for (int r = first; r < world; r++) {
        char path[256];
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        results[r] = (struct result){.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
        result_path(path, sizeof path, r);
        FILE *in = fopen(path, "r");
        if (in) {
            results[r].text[fread(results[r].text, 1, sizeof results[r].text - 1, in)] = '\0';
            fclose(in);
        }
    }
    ax_store_stop(server, 0);
    if (strangers > 0) {
        kill(strangers, SIGKILL);
        waitpid(strangers, NULL, 0);
    }
    assert_int_equal(ax_remove_tree(folder), AX_OK);
}

static void succeeds(int world, ax_local_body body, void *ctx) {
    struct result results[MAX_WORLD];
    run_world(0, world, 60, body, ctx, results);
    for (int r = 0; r < world; r++)
        if (results[r].code != AX_OK)
            fail_msg("rank %d of %d: %d: %s", r, world, results[r].code, results[r].text);
}

static void has(const struct result *r, const char *part) {
    if (!strstr(r->text, part))
        fail_msg("\"%s\" (status %d) lacks \"%s\"", r->text, r->code, part);
}

static void all_collectives(void **state) {
    (void)state;
    for (int world = 2; world <= MAX_WORLD; world++)
        succeeds(world, comm_cases_run, NULL);
}

static void a_team_talks_beside_the_training(void **state) {
    (void)state;
    for (int world = 2; world <= MAX_WORLD; world += 2)
        succeeds(world, team_cases_run, NULL);
}

/* ---- the same bits ---- */

static enum ax_status bits(struct ax_fabric *f, uint64_t *hash) {
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_FSDP, &c));
    const enum ax_status st = comm_cases_sum_bits(&c, hash);
    ax_comm_free(&c);
    return st;
}

static enum ax_status local_bits(struct ax_fabric *f, void *ctx) {
    return bits(f, (uint64_t *)ctx + f->rank);
}

static enum ax_status same_bits(struct ax_fabric *f, void *ctx) {
    uint64_t hash;
    AX_TRY(bits(f, &hash));
    ENSURE(hash == ((uint64_t *)ctx)[f->rank]);
    return AX_OK;
}

static void sums_have_the_bits_of_the_local_fabric(void **state) {
    (void)state;
    for (int world = 2; world <= MAX_WORLD; world++) {
        uint64_t hashes[MAX_WORLD];
        assert_int_equal(ax_local_run(world, NULL, local_bits, hashes), AX_OK);
        assert_true(hashes[0] != hashes[1]); /* each rank has its own part */
        succeeds(world, same_bits, hashes);
    }
}

/* One rank comes late, so that strangers see every port of the others; then ranks sum for a while. */
static enum ax_status same_bits_late(struct ax_fabric *f, void *ctx) {
    if (f->rank == f->world - 1)
        nanosleep(&(struct timespec){.tv_nsec = 300 * 1000 * 1000}, NULL);
    for (int i = 0; i < 100; i++)
        AX_TRY(same_bits(f, ctx));
    return AX_OK;
}

static void strangers_change_nothing(void **state) {
    (void)state;
    uint64_t hashes[MAX_WORLD];
    const int fd = mkstemp(visits);
    assert_true(fd >= 0);
    close(fd);
    with_strangers = true;
    for (int world = 2; world <= MAX_WORLD; world++) {
        assert_int_equal(ax_local_run(world, NULL, local_bits, hashes), AX_OK);
        succeeds(world, same_bits_late, hashes);
        char *text;
        size_t n;
        assert_int_equal(ax_read_file(visits, 1 << 20, &text, &n), AX_OK);
        int ports = 0;
        for (const char *p = text; (p = strchr(p, '\n')); p++)
            ports++;
        assert_true(ports >= world - 1); /* they were there */
        ax_free(text);
    }
    with_strangers = false;
    remove(visits);
}

/* ---- a runtime on processes ---- */

static int count_groups(const struct ax_fabric *f) {
    const struct ax_gloo_world *w = f->state;
    int n = 0;
    for (const struct ax_gloo_group *g = w->groups; g; g = g->next)
        n++;
    return n;
}

static enum ax_status sum_ranks(struct ax_runtime *rt, void *ctx) {
    (void)ctx;
    AX_TRY(ax_contract_enter(&rt->contracts, "sums"));
    for (enum ax_role role = 0; role < AX_ROLE_COUNT; role++) {
        struct ax_comm *c = &rt->comms[role];
        double sum = 1 << c->rank;
        const struct ax_collective what = {
            .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = &sum, .recv = &sum, .count = 1};
        AX_TRY(ax_comm_run(c, rt->q, &what));
        ENSURE(ax_runtime_planning(rt) || sum == (1 << c->size) - 1);
    }
    return ax_contract_leave(&rt->contracts, rt->comms);
}

static enum ax_status run_runtime(struct ax_fabric *f, void *ctx) {
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = {.dp_shard = 2, .tp = 2, .ep = 2}, .fabric = f};
    for (int again = 0; again < 2; again++)
        AX_TRY(ax_runtime_run(&o, sum_ranks, ctx, NULL));
    ENSURE(count_groups(f) == 3); /* all, tp, fsdp: others have the same ranks as one of these */
    return AX_OK;
}

static void a_runtime_runs_on_processes(void **state) {
    (void)state;
    succeeds(4, run_runtime, NULL);
}

/* ---- connections ---- */

static struct ax_collective sum_of(double *data, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++)
        data[i] = value;
    return (struct ax_collective){
        .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = data, .recv = data, .count = n};
}

/* Three communicators of the same ranks with collectives in flight together, one of them apart. */
static enum ax_status share(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm tp, fsdp, apart;
    struct ax_ticket of_tp, of_fsdp;
    double large[5000], small[3], one;
    const int ranks[3] = {0, 1, 2};
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &tp));
    AX_TRY(comm_cases_open(f, AX_ROLE_FSDP, &fsdp));
    AX_TRY(f->ops->open(f, &apart, AX_ROLE_WORLD, ranks, 3, true));
    ENSURE(count_groups(f) == 1);
    const struct ax_collective first = sum_of(large, 5000, f->rank),
                               second = sum_of(small, 3, 10 + f->rank), third = sum_of(&one, 1, 1);
    AX_TRY(ax_comm_start(&tp, &host_queue, &first, &of_tp));
    AX_TRY(ax_comm_start(&fsdp, &host_queue, &second, &of_fsdp));
    AX_TRY(ax_comm_run(&apart, &host_queue, &third));
    AX_TRY(ax_comm_wait(&fsdp, &host_queue, of_fsdp));
    ENSURE(small[2] == 33 && one == 3);
    AX_TRY(ax_comm_wait(&tp, &host_queue, of_tp));
    ENSURE(large[4999] == 3);
    ax_comm_free(&tp);
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &tp));
    const struct ax_collective again = sum_of(small, 3, 1);
    AX_TRY(ax_comm_run(&fsdp, &host_queue, &again));
    ENSURE(small[0] == 3);
    ENSURE(count_groups(f) == 1);
    ax_comm_free(&tp);
    ax_comm_free(&fsdp);
    ax_comm_free(&apart);
    return AX_OK;
}

static void communicators_of_the_same_ranks_share_connections(void **state) {
    (void)state;
    succeeds(3, share, NULL);
}

/* ---- a slow network ---- */

static _Atomic bool slow;
static _Atomic int rounds; /* of the loop that receives, in which something had arrived */

/* Gloo's, which precede libc's, as this program is searched first. */
ssize_t writev(int fd, const struct iovec *parts, int n) {
    if (slow)
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    return syscall(SYS_writev, fd, parts, n);
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout) {
    const int ready = (int)syscall(SYS_epoll_pwait, fd, events, n, timeout, NULL, 8);
    rounds += ready > 0;
    return ready;
}

/* Both send several messages, and what the other sends arrives meanwhile. */
static enum ax_status send_slowly(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    double data[5000];
    AX_TRY(comm_cases_open(f, AX_ROLE_FSDP, &c));
    slow = true;
    const double start = ax_clock_now();
    for (int i = 0; i < 3; i++) {
        const struct ax_collective sum = sum_of(data, 5000, f->rank + 1);
        AX_TRY(ax_comm_run(&c, &host_queue, &sum));
        ENSURE(data[4999] == 3);
    }
    slow = false;
    const double seconds = ax_clock_now() - start;
    ax_comm_free(&c);
    if (rounds < 3 || rounds > seconds / 50e-6 + 100)
        return ax_error(AX_ERR_DATA, "%d rounds in %.3f s", rounds, seconds);
    return AX_OK;
}

/* The thread that receives does not look again and again whether a message is sent. */
static void receiving_rests_while_a_thread_sends(void **state) {
    (void)state;
    succeeds(2, send_slowly, NULL);
}

/* ---- faults ---- */

static void spoilt_collectives_are_named(void **state) {
    (void)state;
    for (enum comm_deed deed = 0; deed < DEED_COUNT; deed++) {
        const struct comm_fault *fault = &comm_faults[deed];
        const double start = ax_clock_now();
        struct result results[MAX_WORLD];
        run_world(0, 4, deed == DEED_SLEEPS ? 1 : 30, comm_cases_misbehave, &deed, results);
        for (int r = 0; r < 4; r++) {
            if (r == 2)
                continue;
            assert_int_equal(results[r].code, AX_ERR_PEER);
            if (deed == DEED_NEVER_OPENS) { /* opening connects */
                has(&results[r], "rank 2 ended before rank ");
                continue;
            }
            has(&results[r], fault->text[0]);
            has(&results[r], fault->text[1]);
        }
        if (deed == DEED_DIES)
            assert_int_equal(results[2].code, -1);
        if (deed == DEED_FAILS_ITSELF)
            assert_int_equal(results[2].code, AX_ERR_DATA);
        assert_true(ax_clock_now() - start < 20);
    }
}

static void ranks_that_never_come_are_named(void **state) {
    (void)state;
    struct result results[MAX_WORLD];
    run_world(2, 4, 0.3, comm_cases_run, NULL, results);
    for (int r = 2; r < 4; r++) {
        assert_int_equal(results[r].code, AX_ERR_PEER);
        has(&results[r], "of 4 ranks, these did not arrive within 0.3 s: 0, 1");
        assert_null(strstr(results[r].text, "0, 1,"));
    }
}

/* An all-reduce is cut into a slice for each rank: all elements once, in order, and none has more
 * than its share. */
static void slices_are_even(void **state) {
    (void)state;
    for (int size = 1; size <= 9; size++)
        for (int64_t count = 0; count <= 40; count++) {
            struct ax_comm comm = {.size = size};
            const struct ax_gloo_op op = {.comm = &comm, .what = {.count = count}};
            int64_t next = 0;
            for (int r = 0; r < size; r++) {
                int64_t n;
                assert_int_equal(ax_gloo_slice(&op, r, &n), next);
                assert_true(n >= 0 && n * size < count + size);
                next += n;
            }
            assert_int_equal(next, count);
        }
}

/* A rank that ends before its group has connected, whichever it is: nobody waits for it. */
static enum ax_status ends_before_it_connects(struct ax_fabric *f, void *ctx) {
    struct ax_comm c;
    if (f->rank == *(const int *)ctx)
        return AX_OK;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    ax_comm_free(&c);
    return AX_OK;
}

static void members_that_have_ended_are_named(void **state) {
    (void)state;
    for (int away = 0; away < 3; away++) {
        struct result results[MAX_WORLD];
        char part[32];
        const double begin = ax_clock_now();
        run_world(0, 3, 60, ends_before_it_connects, &away, results);
        assert_true(ax_clock_now() - begin < 30);
        snprintf(part, sizeof part, "rank %d ended before rank ", away);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(results[r].code, r == away ? AX_OK : AX_ERR_PEER);
            /* who heard of it second says what the first one said */
            if (r != away)
                has(&results[r], part);
        }
    }
}

/* Rank 1 is alone: its first sum ends with an error, and later ones do not begin. */
static enum ax_status goes_on(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    double x = 1;
    const struct ax_collective sum = {
        .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = &x, .recv = &x, .count = 1};
    AX_TRY(ax_comm_run(&c, &host_queue, &sum)); /* all are connected */
    enum ax_status st = f->rank == 0 ? AX_OK : ax_comm_run(&c, &host_queue, &sum);
    if (st == AX_ERR_PEER && strstr(ax_error_text(), "rank 0 ended without it"))
        for (int again = 0; again < 2; again++)
            st = ax_comm_run(&c, &host_queue, &sum);
    ax_comm_free(&c);
    return st;
}

static void nothing_begins_after_an_error(void **state) {
    (void)state;
    struct result results[MAX_WORLD];
    run_world(0, 2, 30, goes_on, NULL, results);
    assert_int_equal(results[0].code, AX_OK);
    assert_int_equal(results[1].code, AX_ERR_PEER);
    assert_string_equal(results[1].text, "rank 1 has stopped after an earlier error");
}

/* Rank 1 is alone with two sums in flight: waiting for the second ends like the first. Rank 0
   ends only once both are started, which the pipe tells it. */
static enum ax_status waits_on(struct ax_fabric *f, void *ctx) {
    const int *started = ctx;
    struct ax_comm c;
    struct ax_ticket tickets[2];
    char told = 0;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    double x[2] = {1, 2};
    struct ax_collective sum = {
        .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = &x[0], .recv = &x[0], .count = 1};
    AX_TRY(ax_comm_run(&c, &host_queue, &sum)); /* all are connected */
    for (int i = 0; f->rank == 1 && i < 2; i++) {
        sum.send = sum.recv = &x[i];
        AX_TRY(ax_comm_start(&c, &host_queue, &sum, &tickets[i]));
    }
    ENSURE(f->rank == 0 ? read(started[0], &told, 1) == 1 : write(started[1], &told, 1) == 1);
    enum ax_status st = f->rank == 0 ? AX_OK : ax_comm_wait(&c, &host_queue, tickets[0]);
    if (st == AX_ERR_PEER && strstr(ax_error_text(), "rank 0 ended without it"))
        st = ax_comm_wait(&c, &host_queue, tickets[1]);
    ax_comm_free(&c);
    return st;
}

static void nothing_is_waited_for_after_an_error(void **state) {
    (void)state;
    struct result results[MAX_WORLD];
    int started[2];
    assert_int_equal(pipe(started), 0);
    run_world(0, 2, 30, waits_on, started, results);
    close(started[0]);
    close(started[1]);
    assert_int_equal(results[0].code, AX_OK);
    assert_int_equal(results[1].code, AX_ERR_PEER);
    assert_string_equal(results[1].text, "rank 1 has stopped after an earlier error");
}

/* Of four ranks, 1 and 3 come too late, or not at all. */
static enum ax_status two_stay_away(struct ax_fabric *f, void *ctx) {
    const bool late = *(const bool *)ctx;
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    double x = 1;
    const struct ax_collective sum = {
        .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = &x, .recv = &x, .count = 1};
    const bool away = f->rank % 2 == 1;
    AX_TRY(ax_comm_run(&c, &host_queue, &sum)); /* all are connected */
    if (away && late)
        nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500 * 1000 * 1000}, NULL);
    const enum ax_status st = away ? AX_OK : ax_comm_run(&c, &host_queue, &sum);
    ax_comm_free(&c);
    return st;
}

/* A timeout names all, a broken connection the one that it led to. */
static void all_that_are_late_are_named(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct result results[MAX_WORLD];
        run_world(0, 4, late ? 0.5 : 30, two_stay_away, &(bool){late}, results);
        for (int r = 0; r < 4; r += 2) {
            assert_int_equal(results[r].code, AX_ERR_PEER);
            has(&results[r], "tp: collective 2 (all_reduce sum of 1 float64): rank");
        }
        /* on a busy machine rank 2 may be late as well */
        const bool both = strstr(results[0].text, "): ranks 1") &&
                          strstr(results[0].text, " and 3 did not arrive within 0.5 s");
        const bool one = strstr(results[0].text, "): rank 1 ended without it") ||
                         strstr(results[0].text, "): rank 3 ended without it");
        if (late ? !both : !one)
            fail_msg("%s: %s", late ? "late" : "gone", results[0].text);
    }
}

/* What the two ranks of a group started differently; both say the same of it. */
static const struct mismatch {
    struct ax_collective of[2];
    const char *text;
} mismatches[] = {
    {{{.kind = AX_ALL_TO_ALL_V,
       .dtype = AX_F32,
       .send_counts = (const int64_t[]){1, 2},
       .recv_counts = (const int64_t[]){1, 1}},
      {.kind = AX_ALL_TO_ALL_V,
       .dtype = AX_F32,
       .send_counts = (const int64_t[]){1, 0},
       .recv_counts = (const int64_t[]){3, 0}}},
     "rank 0 sends 2 elements to rank 1, which expects 3"},
    {{{.kind = AX_SEND_RECV, .dtype = AX_F32, .count = 2, .send_peer = 1, .recv_peer = -1},
      {.kind = AX_SEND_RECV, .dtype = AX_F32, .count = 3, .send_peer = -1, .recv_peer = 0}},
     "tp: message 1 from rank 0 to rank 1: rank 1 started "},
};

static enum ax_status start_differently(struct ax_fabric *f, void *ctx) {
    const struct mismatch *m = ctx;
    struct ax_comm c;
    float send[4] = {0}, recv[4];
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    struct ax_collective what = m->of[f->rank];
    what.send = send;
    what.recv = recv;
    const enum ax_status st = ax_comm_run(&c, &host_queue, &what);
    ax_comm_free(&c);
    return st;
}

static void mismatches_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof mismatches / sizeof *mismatches; i++) {
        struct result results[MAX_WORLD];
        run_world(0, 2, 5, start_differently, (void *)(uintptr_t)&mismatches[i], results);
        assert_int_equal(results[1].code, AX_ERR_PEER);
        has(&results[1], mismatches[i].text);
    }
}

/* The first failure stays, and one that failed has not ended well. */
static enum ax_status fails_twice(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    if (f->rank == 1)
        return comm_cases_open(f, AX_ROLE_TP, &c);
    (f->ops->fail)(f, ax_error(AX_ERR_DATA, "the first"));
    (f->ops->fail)(f, ax_error(AX_ERR_IO, "the second"));
    ENSURE(strcmp(ax_error_text(), "the second") == 0);
    return AX_OK;
}

static void a_rank_fails_once(void **state) {
    (void)state;
    struct result results[MAX_WORLD];
    run_world(0, 2, 5, fails_twice, NULL, results);
    assert_int_equal(results[0].code, AX_OK);
    assert_int_equal(results[1].code, AX_ERR_PEER);
    assert_string_equal(results[1].text, "rank 0 failed: the first");
}

/* Rank 1 has joined, and does not connect in time. */
static enum ax_status one_stays_away(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    struct ax_comm c;
    if (f->rank == 0)
        return comm_cases_open(f, AX_ROLE_TP, &c);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500 * 1000 * 1000}, NULL);
    return AX_OK;
}

static void ranks_that_do_not_connect_are_an_error(void **state) {
    (void)state;
    struct result results[MAX_WORLD];
    run_world(0, 2, 0.3, one_stays_away, NULL, results);
    assert_int_equal(results[0].code, AX_ERR_PEER);
    has(&results[0], "rank 0 of 2 cannot connect to the others: ");
    has(&results[0], "it did not arrive in time");
}

/* Rank 1 has no room for a socket to listen with, or to call the other with: its own failure. */
static enum ax_status one_has_no_room(struct ax_fabric *f, void *ctx) {
    const int *room = ctx;
    struct ax_comm c;
    struct rlimit files;
    ENSURE(getrlimit(RLIMIT_NOFILE, &files) == 0);
    if (f->rank == 1) {
        const int next = dup(STDERR_FILENO);
        ENSURE(next >= 0 && close(next) == 0);
        const struct rlimit few = {(rlim_t)(next + *room), files.rlim_max};
        ENSURE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    }
    const enum ax_status st = comm_cases_open(f, AX_ROLE_TP, &c);
    /* UBSan looks at an object's type through a pipe; without one, it takes Gloo's for broken. */
    ENSURE(setrlimit(RLIMIT_NOFILE, &files) == 0);
    return st;
}

static void a_rank_without_sockets_says_so(void **state) {
    (void)state;
    static const struct {
        enum ax_status st;
        const char *text;
    } cases[] = {
        {AX_ERR_CONFIG, "cannot listen on a port of the system's choice: Too many open files"},
        {AX_ERR_IO, "no socket to call rank 0 with: Too many open files. Raise the limit"}};
    for (int room = 0; room < 2; room++) {
        struct result results[MAX_WORLD];
        run_world(0, 2, 20, one_has_no_room, &room, results);
        has(&results[1], cases[room].text);
        assert_int_equal(results[1].code, cases[room].st);
        assert_null(strstr(results[1].text, "cannot connect to the others"));
        assert_int_equal(results[0].code, AX_ERR_PEER);
        has(&results[0], "rank 1 failed: ");
        has(&results[0], cases[room].text);
    }
}

/* The connection breaks before rank 2 has said why. */
static enum ax_status breaks_and_tells(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    const struct ax_gloo_world *w = f->state;
    struct ax_comm c;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    double x = 1;
    const struct ax_collective sum = {
        .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = &x, .recv = &x, .count = 1};
    enum ax_status st = ax_comm_run(&c, &host_queue, &sum);
    if (f->rank == 2) {
        w->gloo->break_link(w->groups->link);
        nanosleep(&(struct timespec){.tv_nsec = 60 * 1000 * 1000}, NULL);
        st = ax_error(AX_ERR_DATA, "rows.jsonl:7: no such field");
        (f->ops->fail)(f, st);
    } else if (st == AX_OK) {
        st = ax_comm_run(&c, &host_queue, &sum);
    }
    ax_comm_free(&c);
    return st;
}

static void a_message_may_come_after_the_break(void **state) {
    (void)state;
    struct result results[MAX_WORLD];
    run_world(0, 3, 30, breaks_and_tells, NULL, results);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(results[r].code, AX_ERR_PEER);
        assert_string_equal(results[r].text, "rank 2 failed: rows.jsonl:7: no such field");
    }
}

static enum ax_status with_fault(struct ax_fabric *f, void *ctx) {
    if (f->rank == 1)
        AX_TRY(ax_fault_configure(ctx));
    return comm_cases_run(f, NULL);
}

/* A rank that is killed, or whose connection fails, in the middle of something. */
static void injected_faults_are_named(void **state) {
    (void)state;
    static const char *const specs[] = {"send:20:kill", "recv:31:kill", "send:7:eio", "recv:8:eio"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct result results[MAX_WORLD];
        run_world(0, 3, 30, with_fault, (void *)specs[i], results);
        for (int r = 0; r < 3; r += 2) {
            assert_int_equal(results[r].code, AX_ERR_PEER);
            has(&results[r], "fsdp: ");
            has(&results[r], i < 2 ? "rank 1 is gone" : "fault injected");
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_collectives),
        cmocka_unit_test(a_team_talks_beside_the_training),
        cmocka_unit_test(sums_have_the_bits_of_the_local_fabric),
        cmocka_unit_test(strangers_change_nothing),
        cmocka_unit_test(a_runtime_runs_on_processes),
        cmocka_unit_test(communicators_of_the_same_ranks_share_connections),
        cmocka_unit_test(receiving_rests_while_a_thread_sends),
        cmocka_unit_test(spoilt_collectives_are_named),
        cmocka_unit_test(ranks_that_never_come_are_named),
        cmocka_unit_test(slices_are_even),
        cmocka_unit_test(ranks_that_do_not_connect_are_an_error),
        cmocka_unit_test(a_rank_without_sockets_says_so),
        cmocka_unit_test(injected_faults_are_named),
        cmocka_unit_test(members_that_have_ended_are_named),
        cmocka_unit_test(nothing_begins_after_an_error),
        cmocka_unit_test(nothing_is_waited_for_after_an_error),
        cmocka_unit_test(mismatches_are_named),
        cmocka_unit_test(a_rank_fails_once),
        cmocka_unit_test(all_that_are_late_are_named),
        cmocka_unit_test(a_message_may_come_after_the_break),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
