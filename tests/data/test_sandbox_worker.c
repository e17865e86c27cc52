/* Workers that die, hang or are killed: nothing is lost, whose fault it was is found, and others'
 * verdicts stay what they are. Frames that are none are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "data/reward/sandbox/frame.h"
#include "tests/data/sandbox_case.h"

static int open_all(void **state) {
    (void)state;
    return sandbox_open(2);
}

static int close_all(void **state) {
    (void)state;
    return sandbox_close();
}

/* Sends `signal` to the worker every few milliseconds, `times` times or until it is told to stop. */
struct killer {
    pthread_t thread;
    int signal, times;
    long pause; /* ns */
    atomic_int sent;
    atomic_bool stop;
};

static void *kill_again_and_again(void *arg) {
    struct killer *k = arg;
    const struct timespec pause = {.tv_nsec = k->pause};
    while (k->sent < k->times && !k->stop) {
        (void)nanosleep(&pause, NULL);
        const int pid = ax_sandbox_pid(sandbox);
        if (pid > 0 && kill(pid, k->signal) == 0)
            k->sent++;
    }
    return NULL;
}

enum { N = 16 };
static struct ax_bytes parts[N][2];
static struct ax_sandbox_job jobs[N];
static struct ax_sandbox_result results[N];

static void fill(int i, const char *source) {
    parts[i][0] = (struct ax_bytes){source, strlen(source)};
    parts[i][1] = (struct ax_bytes){"", 0};
    jobs[i] = (struct ax_sandbox_job){.parts = parts[i], .n_parts = 2, .limits = AX_SANDBOX_LIMITS};
}

static void run_all(int n) {
    if (ax_sandbox_run(sandbox, jobs, (size_t)n, results) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void free_all(int n) {
    for (int i = 0; i < n; i++)
        ax_sandbox_result_free(&results[i]);
    memset(results, 0, sizeof results);
}

static void killed_100_times_loses_nothing(void **state) {
    static struct killer k = {.signal = SIGKILL, .times = 100, .pause = 60000000};
    struct ax_sandbox_stats stats;
    (void)state;
    ax_sandbox_take_stats(sandbox, &stats);
    for (int i = 0; i < N; i++)
        fill(i, i % 2 ? "print(sum(range(20000)))" : "print(sum(i * i for i in range(3000)))");
    assert_int_equal(pthread_create(&k.thread, NULL, kill_again_and_again, &k), 0);
    while (k.sent < k.times) {
        run_all(N);
        for (int i = 0; i < N; i++) {
            const char *want = i % 2 ? "199990000\n" : "8995500500\n";
            assert_int_equal(results[i].verdict, AX_VERDICT_EXIT);
            assert_int_equal(results[i].exit_code, 0);
            assert_int_equal(results[i].out.len, strlen(want));
            assert_memory_equal(results[i].out.data, want, strlen(want));
        }
        free_all(N);
    }
    assert_int_equal(pthread_join(k.thread, NULL), 0);
    ax_sandbox_take_stats(sandbox, &stats);
    assert_true(stats.restarts > 50); /* some hit a worker that was starting */
    assert_int_equal(stats.verdicts[AX_VERDICT_EXIT], stats.runs);
    assert_true(stats.seconds > 0);
}

/* The first runs for seconds, the others are quick. */
static void fill_first_endless(void) {
    fill(0, "while True: pass");
    for (int i = 1; i < N; i++)
        fill(i, "print(1)");
    jobs[0].limits.fuel *= 20;
}

/* Whatever runs a few hundred milliseconds is hit, and takes the blame; what is quick is not. */
static void the_second_death_is_a_crash(void **state) {
    static struct killer k = {.signal = SIGSEGV, .times = 1000, .pause = 120000000};
    (void)state;
    fill_first_endless();
    assert_int_equal(pthread_create(&k.thread, NULL, kill_again_and_again, &k), 0);
    run_all(N);
    k.stop = true;
    assert_int_equal(pthread_join(k.thread, NULL), 0);
    assert_int_equal(results[0].verdict, AX_VERDICT_CRASH);
    for (int i = 1; i < N; i++) {
        assert_int_equal(results[i].verdict, AX_VERDICT_EXIT);
        assert_int_equal(results[i].exit_code, 0);
    }
    free_all(N);
}

static void a_stuck_worker_is_killed(void **state) {
    static struct killer k = {.signal = SIGSTOP, .times = 1, .pause = 100000000};
    (void)state;
    fill_first_endless();
    assert_int_equal(pthread_create(&k.thread, NULL, kill_again_and_again, &k), 0);
    run_all(N);
    assert_int_equal(pthread_join(k.thread, NULL), 0);
    assert_int_equal(results[0].verdict, AX_VERDICT_TIME);
    for (int i = 1; i < N; i++)
        assert_int_equal(results[i].verdict, AX_VERDICT_EXIT);
    free_all(N);
    assert_run("print(1)", "", AX_VERDICT_EXIT, 0, "1\n");
}

/* Wherever memory runs out on our side, it is no worker's fault. */
static void memory_runs_out(void **state) {
    bool fired = true;
    (void)state;
    fill(0, "import sys\nprint(1)\nsys.stderr.write('2')");
    for (int k = 1; fired; k++) {
        char spec[32];
        run_all(1); /* starts a worker */
        free_all(1);
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        const enum ax_status st = ax_sandbox_run(sandbox, jobs, 1, results);
        fired = ax_fault_fired();
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        assert_int_equal(st, fired ? AX_ERR_NOMEM : AX_OK);
        assert_true(fired || k > 3);
        free_all(1);
    }
}

/* ---- frames ---- */

static void frames_go_there_and_back(void **state) {
    static struct ax_frame f;
    const struct ax_bytes sources[] = {{"def f(): pass", 13}, {"", 0}, {"assert f", 8}};
    const struct ax_sandbox_job job = {.kind = AX_SANDBOX_CHECK,
                                       .parts = sources,
                                       .n_parts = 3,
                                       .limits = AX_SANDBOX_LIMITS,
                                       .seed = 7};
    struct ax_sandbox_job got;
    struct ax_sandbox_result back, r = {.verdict = AX_VERDICT_FUEL, .fuel = 5, .seconds = 0.5};
    struct ax_buf b = {0};
    (void)state;
    assert_int_equal(ax_frame_put_job(&b, &job), AX_OK);
    assert_int_equal(ax_frame_size(b.data, 3), 0);
    assert_int_equal(ax_frame_size(b.data, b.len), b.len);
    assert_int_equal(ax_frame_get(&f, b.data, b.len), AX_OK);
    assert_int_equal(ax_frame_get_job(&got, &f), AX_OK);
    assert_int_equal(got.n_parts, 3);
    assert_memory_equal(got.parts[2].data, "assert f", 8);
    assert_int_equal(got.seed, 7);
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(ax_frame_get(&f, b.data, n), AX_ERR_DATA);
    b.len = 0;
    assert_int_equal(ax_buf_append(&r.out, "out", 3), AX_OK);
    assert_int_equal(ax_buf_append(&r.passed, "\1\0", 2), AX_OK);
    assert_int_equal(ax_frame_put_result(&b, &r), AX_OK);
    assert_int_equal(ax_frame_get(&f, b.data, b.len), AX_OK);
    assert_int_equal(ax_frame_get_result(&back, &f, &job), AX_OK);
    assert_int_equal(back.verdict, AX_VERDICT_FUEL);
    assert_memory_equal(back.out.data, "out", 3);
    assert_memory_equal(back.passed.data, "\1\0", 2);
    ax_sandbox_result_free(&back);
    /* what a worker must not say */
    struct ax_frame bad = f;
    bad.numbers[0] = AX_VERDICT_COUNT;
    assert_int_equal(ax_frame_get_result(&back, &bad, &job), AX_ERR_DATA);
    bad = f;
    bad.numbers[1] = 126;
    assert_int_equal(ax_frame_get_result(&back, &bad, &job), AX_ERR_DATA);
    bad = f;
    bad.parts[2].n = 1;
    assert_int_equal(ax_frame_get_result(&back, &bad, &job), AX_ERR_DATA);
    bad = f;
    bad.parts[2].data = "\2\1";
    assert_int_equal(ax_frame_get_result(&back, &bad, &job), AX_ERR_DATA);
    struct ax_sandbox_job small = job;
    small.limits.out = 2;
    assert_int_equal(ax_frame_get_result(&back, &f, &small), AX_ERR_DATA);
    ax_sandbox_result_free(&r);
    ax_buf_free(&b);
}

/* A number or a length may be as large as it can be, and not larger by one. */
static void expect_most(const struct ax_frame *f, int number, uint64_t most,
                        const struct ax_sandbox_job *job) {
    struct ax_frame at = *f;
    for (uint64_t over = 0; over < 2; over++) {
        const enum ax_status expected = over ? AX_ERR_DATA : AX_OK;
        struct ax_sandbox_result r = {0};
        struct ax_sandbox_job got;
        at.numbers[number] = most + over;
        assert_int_equal(job ? ax_frame_get_result(&r, &at, job) : ax_frame_get_job(&got, &at),
                         expected);
        ax_sandbox_result_free(&r);
    }
}

static void frames_have_bounds(void **state) {
    static struct ax_frame f;
    static char zeros[AX_SANDBOX_OUT + 1];
    const struct ax_sandbox_job job = {.kind = AX_SANDBOX_PROGRAM, .limits = AX_SANDBOX_LIMITS};
    struct ax_sandbox_job got;
    struct ax_sandbox_result r;
    (void)state;
    f = (struct ax_frame){.numbers = {AX_SANDBOX_PROGRAM}, .n_parts = 2};
    f.parts[0] = f.parts[1] = f.parts[2] = (struct ax_bytes){zeros, 0};
    expect_most(&f, 0, AX_SANDBOX_KIND_COUNT - 1, NULL);
    expect_most(&f, 3, AX_SANDBOX_MEMORY, NULL);
    expect_most(&f, 4, AX_SANDBOX_OUT, NULL);
    expect_most(&f, 5, AX_SANDBOX_ERR, NULL);
    f.n_parts = 1; /* enough for a check, without tests */
    assert_int_equal(ax_frame_get_job(&got, &f), AX_ERR_DATA);
    f.numbers[0] = AX_SANDBOX_CHECK;
    assert_int_equal(ax_frame_get_job(&got, &f), AX_OK);
    f.n_parts = 0;
    assert_int_equal(ax_frame_get_job(&got, &f), AX_ERR_DATA);
    f.numbers[0] = AX_VERDICT_EXIT;
    f.n_parts = 3;
    expect_most(&f, 0, AX_VERDICT_COUNT - 1, &job);
    expect_most(&f, 1, 125, &job);
    for (int part = 0; part < 2; part++) {
        const size_t most = part == 0 ? AX_SANDBOX_OUT : AX_SANDBOX_ERR;
        f.parts[part].n = most;
        assert_int_equal(ax_frame_get_result(&r, &f, &job), AX_OK);
        ax_sandbox_result_free(&r);
        f.parts[part].n = most + 1;
        assert_int_equal(ax_frame_get_result(&r, &f, &job), AX_ERR_DATA);
        f.parts[part].n = 0;
    }
    for (f.n_parts = 2; f.n_parts <= 4; f.n_parts += 2)
        assert_int_equal(ax_frame_get_result(&r, &f, &job), AX_ERR_DATA);
}

/* What the bytes of a frame say of its length, and of its parts'. */
static void lengths_of_frames(void **state) {
    static struct ax_frame f, got;
    static char zeros[AX_FRAME_MAX];
    struct ax_buf b = {0};
    uint32_t n;
    (void)state;
    f.n_parts = AX_SANDBOX_MAX_PARTS;
    for (size_t i = 0; i < AX_SANDBOX_MAX_PARTS; i++)
        f.parts[i] = (struct ax_bytes){zeros, i % 2};
    assert_int_equal(ax_frame_put(&b, &f), AX_OK);
    assert_int_equal(ax_frame_get(&got, b.data, b.len), AX_OK);
    assert_int_equal(got.n_parts, AX_SANDBOX_MAX_PARTS);
    assert_int_equal(got.parts[AX_SANDBOX_MAX_PARTS - 1].n, 1);
    const size_t header = b.len - AX_SANDBOX_MAX_PARTS * sizeof n - AX_SANDBOX_MAX_PARTS / 2;
    n = AX_SANDBOX_MAX_PARTS + 1;
    memcpy(b.data + header - sizeof n, &n, sizeof n);
    assert_int_equal(ax_frame_get(&got, b.data, b.len), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "has 1025 parts"));
    n = 1; /* the others' bytes are too many */
    memcpy(b.data + header - sizeof n, &n, sizeof n);
    assert_int_equal(ax_frame_get(&got, b.data, b.len), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), " bytes too many"));
    const uint32_t sizes[][2] = {{(uint32_t)header, (uint32_t)header},
                                 {(uint32_t)header - 1, AX_FRAME_MAX + 1},
                                 {AX_FRAME_MAX, AX_FRAME_MAX},
                                 {AX_FRAME_MAX + 1, AX_FRAME_MAX + 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(ax_frame_size((const char *)&sizes[i][0], sizeof n), sizes[i][1]);
    b.len = 0;
    f.n_parts = 1;
    f.parts[0].n = AX_FRAME_MAX - header - sizeof n + 1;
    assert_int_equal(ax_frame_put(&b, &f), AX_ERR_DATA);
    assert_int_equal(b.len, 0);
    f.parts[0].n--;
    assert_int_equal(ax_frame_put(&b, &f), AX_OK);
    assert_int_equal(b.len, AX_FRAME_MAX);
    ax_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_100_times_loses_nothing),
        cmocka_unit_test(the_second_death_is_a_crash),
        cmocka_unit_test(a_stuck_worker_is_killed),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(frames_go_there_and_back),
        cmocka_unit_test(frames_have_bounds),
        cmocka_unit_test(lengths_of_frames),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
