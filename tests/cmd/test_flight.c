/* Flight records of made mistakes name the rank and the call that differ; a signal writes them at any time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/fabric/flight.h"
#include "parallel/runtime.h"
#include "tests/cmd/command_case.h"

enum { RANKS = 3, ELEMENTS = 6 };
static char dir[64];
static char output[8192];

enum mistake { NONE, OTHER_KIND, OTHER_COUNT, ABSENT, NO_MESSAGE, SIGNAL };

struct job {
    enum mistake mistake;
    atomic_int there; /* ranks that came to the end */
};

static enum ax_status sum(struct ax_runtime *rt, enum ax_collective_kind kind, int64_t count) {
    float values[RANKS * ELEMENTS * 2] = {0}, more[RANKS * ELEMENTS * 2] = {0};
    const struct ax_collective what = {
        .kind = kind, .dtype = AX_F32, .send = values, .recv = more, .count = count};
    return ax_comm_run(&rt->comms[AX_ROLE_TP], rt->q, &what);
}

static enum ax_status message(struct ax_runtime *rt, int to, int from) {
    static _Thread_local float values[2][ELEMENTS];
    const struct ax_collective what = {.kind = AX_SEND_RECV,
                                       .dtype = AX_F32,
                                       .send = values[0],
                                       .recv = values[1],
                                       .count = ELEMENTS,
                                       .send_peer = to,
                                       .recv_peer = from};
    return ax_comm_run(&rt->comms[AX_ROLE_TP], rt->q, &what);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct job *j = ctx;
    const int rank = rt->mesh.rank;
    if (ax_runtime_planning(rt))
        return AX_OK;
    for (int i = 0; i < 300; i++) /* more than are kept */
        AX_TRY(sum(rt, AX_ALL_REDUCE, ELEMENTS));
    AX_TRY(message(rt, (rank + 1) % RANKS, (rank + RANKS - 1) % RANKS));
    if (j->mistake == OTHER_KIND && rank == 1)
        return sum(rt, AX_REDUCE_SCATTER, ELEMENTS);
    if (j->mistake == OTHER_COUNT && rank == 2)
        return sum(rt, AX_ALL_REDUCE, ELEMENTS + 1);
    if (j->mistake == ABSENT && rank == 0)
        return message(rt, -1, 2);
    if (j->mistake == NO_MESSAGE)
        return rank == 2 ? message(rt, -1, 1) : sum(rt, AX_ALL_REDUCE, ELEMENTS);
    AX_TRY(sum(rt, AX_ALL_REDUCE, ELEMENTS));
    j->there++;
    if (j->mistake == SIGNAL && rank == 0) {
        while (j->there < RANKS)
            usleep(1000);
        (void)kill(getpid(), SIGUSR2);
        usleep(20000); /* any thread may take it */
        j->there = 0;
    }
    while (j->mistake == SIGNAL && j->there > 0)
        usleep(1000);
    return AX_OK;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = {1, 1, 1, 1, RANKS, 1}, .fabric = fabric};
    return ax_runtime_run(&o, body, ctx, NULL);
}

static enum ax_status read_records(void) {
    char *argv[] = {"check", "flight", dir, NULL}, path[80];
    snprintf(path, sizeof path, "%s.out", dir);
    const enum ax_status st = run_command(ax_cmd_check, 3, argv, NULL, path, output, sizeof output);
    (void)unlink(path);
    return st;
}

/* The check's output about a job with this mistake; its status. */
static enum ax_status check(enum mistake mistake) {
    static const struct ax_local_options impatient = {.timeout = 0.3};
    struct job j = {.mistake = mistake};
    assert_int_equal(ax_remove_tree(dir), AX_OK);
    const enum ax_status st = ax_local_run(RANKS, &impatient, run_rank, &j);
    assert_int_equal(st == AX_OK, mistake == NONE || mistake == SIGNAL);
    return read_records();
}

static void expect(const char *text) {
    if (!strstr(output, text))
        fail_msg("expected \"%s\" in: %s", text, output);
}

static void a_mismatch_names_rank_and_call(void **state) {
    (void)state;
    assert_int_equal(check(OTHER_KIND), AX_ERR_FAILED);
    expect(
        "rank 1: collective 301 of tp, reduce_scatter of 6 float32; rank 0 has collective 301 of "
        "tp, all_reduce of 6 float32\n");
    assert_null(strstr(output, "rank 0: "));
    assert_null(strstr(output, "rank 2: "));
    assert_int_equal(check(OTHER_COUNT), AX_ERR_FAILED);
    expect("rank 2: collective 301 of tp, all_reduce of 7 float32; rank 0 has");
}

static void who_is_waited_for_is_named(void **state) {
    (void)state;
    assert_int_equal(check(ABSENT), AX_ERR_FAILED);
    expect(
        "rank 0 has not started collective 301 of tp, all_reduce of 6 float32, which rank 1 waits "
        "for; its last of tp is 300\n");
    expect(
        "rank 0 waits for message 2 of tp, send_recv of 6 float32, from rank 2, which has no such "
        "message under way\n");
    assert_int_equal(check(NO_MESSAGE), AX_ERR_FAILED);
    expect(
        "rank 2 waits for message 2 of tp, send_recv of 6 float32, from rank 1, which has no such");
    expect("rank 2 has not started collective 301 of tp");
}

/* Without a failure nothing is written; a signal writes what all ranks had done. */
static void a_signal_writes_records(void **state) {
    (void)state;
    assert_int_equal(check(NONE), AX_ERR_CONFIG);
    assert_null(strstr(output, "rank"));
    assert_int_equal(check(SIGNAL), AX_OK);
    expect("3 records of 3 ranks: nothing differs, and nobody waits alone\n");
    char path[96], *text;
    size_t length, lines = 0;
    snprintf(path, sizeof path, "%s/rank-2.tsv", dir);
    assert_int_equal(ax_read_file(path, 1 << 20, &text, &length), AX_OK);
    for (size_t i = 0; i < length; i++)
        lines += text[i] == '\n';
    assert_int_equal(lines, 2 + AX_FLIGHT_KEPT);
    assert_true(strncmp(text, "flight\t1\t2\t3\t302\n", 17) == 0);
    assert_non_null(strstr(text, "tp\t0\t2\t3\t1\tsend_recv\tsum\tfloat32\t6\t-1\t0\t1\tdone\n"));
    ax_free(text);
    /* one of them is lost */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_records(), AX_ERR_FAILED);
    expect("rank 2 of 3 left no record\n");
}

static void expect_error(const char *text, const char *error) {
    char path[96];
    snprintf(path, sizeof path, "%s/rank-0.tsv", dir);
    (void)mkdir(dir, 0777);
    assert_int_equal(ax_write_file_atomic(path, text, strlen(text)), AX_OK);
    assert_int_equal(read_records(), AX_ERR_DATA);
    if (!strstr(ax_error_text(), error))
        fail_msg("expected \"%s\" in: %s", error, ax_error_text());
}

static void bad_records_are_refused(void **state) {
    (void)state;
    assert_int_equal(ax_remove_tree(dir), AX_OK);
    expect_error("", "rank-0.tsv:1: not a flight record");
    expect_error("flight\t2\t0\t3\t1\n", "rank-0.tsv:1: not a flight record of this version");
    expect_error("flight\t1\t3\t3\t1\n", "rank-0.tsv:1: not a flight record");
    expect_error("flight\t1\t0\t3\t1\nrole\ntp\t0\t0\n", "rank-0.tsv:3: expected the 13 columns");
    expect_error(
        "flight\t1\t0\t3\t1\nrole\n"
        "a_role_with_a_name_that_is_much_too_long\t0\t0\t3\t1\ta\tb\tc\t1\t0\t0\t0\tdone\n",
        "rank-0.tsv:3: expected the 13 columns");
}

static int make_folder(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/axtrain-flight-%d", (int)getpid());
    ax_flight_to(dir);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    ax_flight_to(NULL);
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mismatch_names_rank_and_call),
        cmocka_unit_test(who_is_waited_for_is_named),
        cmocka_unit_test(a_signal_writes_records),
        cmocka_unit_test(bad_records_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
