/* A tracker's process, here a shell: lines in pieces, data that nobody reads, and every way to
 * end. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "cmd/tracker/tracker.h"
#include "cmd/tracker/tracker_process.h"
#include "tests/cmd/config_case.h"
#include "tests/data/scratch.h"

static void start(struct ax_tracker_process *p, const char *script) {
    const char *const argv[] = {"sh", "-c", script, NULL};
    assert_int_equal(ax_tracker_process_start(p, argv), AX_OK);
    assert_true(p->pid > 0);
}

static void expect_line(struct ax_tracker_process *p, const char *line) {
    bool gone = true;
    const char *got = ax_tracker_process_line(p, 20, &gone);
    assert_false(gone);
    assert_non_null(got);
    assert_string_equal(got, line);
}

static void expect_none(struct ax_tracker_process *p, double seconds, bool ended) {
    bool gone = !ended;
    assert_null(ax_tracker_process_line(p, seconds, &gone));
    assert_int_equal(gone, ended);
}

static void programs_are_found_or_named(void **state) {
    (void)state;
    struct ax_tracker_process p;
    const char *const argv[] = {"no-such-program", NULL};
    /* a folder of PATH that may not be read is another error */
    assert_int_equal(setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 1), 0);
    assert_int_equal(ax_tracker_process_start(&p, argv), AX_ERR_CONFIG);
    assert_string_equal(ax_error_text(),
                        "no-such-program: cannot start it: No such file or directory");
    assert_int_equal(p.pid, 0);
    assert_true(ax_tracker_process_end(&p, 0)); /* there is none */
}

static void lines_come_in_pieces(void **state) {
    (void)state;
    struct ax_tracker_process p;
    start(&p,
          "printf 'one\ntwo\n\npar' >&3; sleep 0.2; printf 'ti' >&3; sleep 0.2; printf 'al\n' >&3");
    expect_line(&p, "one");
    expect_line(&p, "two");
    expect_line(&p, "");
    expect_line(&p, "partial");
    expect_none(&p, 20, true);
    assert_true(ax_tracker_process_end(&p, 20));
}

static void waiting_ends(void **state) {
    (void)state;
    struct ax_tracker_process p;
    start(&p, "printf part >&3; read x <&3; echo ial >&3; sleep 60");
    for (int i = 0; i < 2; i++) {
        const double from = ax_clock_now();
        expect_none(&p, 0.3, false);
        const double took = ax_clock_now() - from;
        assert_true(took >= 0.3 && took < 10);
    }
    assert_true(ax_tracker_process_send(&p, "x\n", 2));
    expect_line(&p, "partial");
    expect_none(&p, 0, false);
    assert_false(ax_tracker_process_end(&p, 0));
}

static void the_longest_line(void **state) {
    (void)state;
    struct ax_tracker_process p;
    char line[AX_TRACKER_LINE];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\0';
    start(&p, "printf '%08191d\n' 0 | tr 0 x >&3; printf '%08192d\n' 0 >&3");
    expect_line(&p, line);
    expect_none(&p, 20, true); /* one more does not fit */
    (void)ax_tracker_process_end(&p, 20);
}

/* What is sent arrives in order, whether or not it is read immediately. */
static void all_that_is_sent_arrives(void **state) {
    (void)state;
    enum { N = 20000 };
    struct ax_tracker_process p;
    char script[256], line[64], *text;
    size_t n, at = 0;
    const size_t len = (size_t)snprintf(script, sizeof script,
                                        "until [ -e %s ]; do sleep 0.02; done; ", in_scratch("go"));
    snprintf(script + len, sizeof script - len, "cat <&3 >%s", in_scratch("sent"));
    start(&p, script);
    for (int i = 0; i < N; i++) {
        snprintf(line, sizeof line, "{\"this is line\": %5d}\n", i);
        assert_true(ax_tracker_process_send(&p, line, strlen(line)));
    }
    assert_true(p.pending.len > 0); /* a socket does not take that much */
    put_text("go", "");
    assert_true(ax_tracker_process_end(&p, 20));
    assert_int_equal(ax_read_file(in_scratch("sent"), 1 << 24, &text, &n), AX_OK);
    for (int i = 0; i < N; i++, at += strlen(line)) {
        snprintf(line, sizeof line, "{\"this is line\": %5d}\n", i);
        assert_memory_equal(text + at, line, strlen(line));
    }
    assert_int_equal(n, at);
    ax_free(text);
}

static void unread_data_is_bounded(void **state) {
    (void)state;
    static char piece[AX_TRACKER_PENDING];
    struct ax_tracker_process p;
    start(&p, "sleep 60");
    assert_false(ax_tracker_process_send(&p, piece, AX_TRACKER_PENDING + 1));
    assert_int_equal(p.pending.len, 0);
    assert_true(ax_tracker_process_send(&p, piece, AX_TRACKER_PENDING));
    const size_t left = AX_TRACKER_PENDING - p.pending.len;
    assert_false(ax_tracker_process_send(&p, piece, left + 1));
    assert_int_equal(p.pending.len, AX_TRACKER_PENDING - left);
    assert_true(ax_tracker_process_send(&p, piece, left)); /* it just fits */
    assert_int_equal(p.pending.len, AX_TRACKER_PENDING);
    assert_false(ax_tracker_process_send(&p, piece, 1));
    const double from = ax_clock_now();
    assert_false(ax_tracker_process_end(&p, 0.2));
    const double took = ax_clock_now() - from;
    assert_true(took >= 0.2 && took < 10);
    assert_true(p.pid == 0 && p.socket == -1 && p.pending.data == NULL);
}

static void the_dead_take_nothing(void **state) {
    (void)state;
    struct ax_tracker_process p;
    start(&p, "exit 0");
    expect_none(&p, 20, true);
    assert_true(ax_tracker_process_send(&p, "x\n", 2));
    assert_int_equal(p.pending.len, 0);
    assert_true(ax_tracker_process_end(&p, 20));
}

static void exit_codes_count(void **state) {
    (void)state;
    struct ax_tracker_process p;
    start(&p, "exit 3");
    assert_false(ax_tracker_process_end(&p, 20));
    start(&p, "kill -9 $$");
    assert_false(ax_tracker_process_end(&p, 20));
    start(&p, "cat <&3 >/dev/null"); /* ends when it is told that no more comes */
    assert_true(ax_tracker_process_end(&p, 20));
}

/* Signals that end the run do not reach it; its standard streams are nowhere. */
static void it_outlives_the_runs_signals(void **state) {
    (void)state;
    struct ax_tracker_process p;
    start(&p, "echo $$ >&3; read x <&3; echo out; echo err >&2; read y; echo \"in $?\" >&3; "
              "read z <&3; echo alive >&3");
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)p.pid);
    expect_line(&p, pid);
    assert_int_equal(getpgid(p.pid), p.pid);
    kill(p.pid, SIGINT);
    kill(p.pid, SIGTERM);
    kill(p.pid, SIGUSR1);
    assert_true(ax_tracker_process_send(&p, "x\nz\n", 4));
    expect_line(&p, "in 1");
    expect_line(&p, "alive");
    assert_true(ax_tracker_process_end(&p, 20));
}

/* Its own children end with it. */
static void the_group_is_killed(void **state) {
    (void)state;
    struct ax_tracker_process p;
    start(&p, "sleep 60 & echo $! >&3; wait");
    bool gone;
    const char *line = ax_tracker_process_line(&p, 20, &gone);
    assert_non_null(line);
    const pid_t child = (pid_t)strtol(line, NULL, 10);
    assert_int_equal(kill(child, 0), 0);
    assert_false(ax_tracker_process_end(&p, 0.05));
    char path[64], stat[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
    for (int i = 0; i < 2000; i++) { /* gone, or a zombie that nobody waits for */
        FILE *f = fopen(path, "re");
        stat[0] = '\0';
        if (f) {
            (void)!fgets(stat, sizeof stat, f);
            fclose(f);
        }
        if (!stat[0] || strstr(stat, ") Z ") || strstr(stat, ") X "))
            return;
        usleep(5000);
    }
    fail_msg("%s", stat);
}

/* Of a run without trackers there is nothing to close. */
static void no_tracker(void **state) {
    (void)state;
    struct ax_config cfg;
    struct ax_trackers *t = (struct ax_trackers *)&cfg;
    load_ok(&cfg, "base_model: m\ndatasets: [{path: a}]\n", NULL);
    assert_int_equal(ax_tracker_open(&t, &cfg, &ax_tracker_patience), AX_OK);
    assert_null(t);
    ax_tracker_describe(t, NULL, "out");
    ax_tracker_close(t, true);
    ax_config_free(&cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_tracker),
        cmocka_unit_test(programs_are_found_or_named),
        cmocka_unit_test(lines_come_in_pieces),
        cmocka_unit_test(waiting_ends),
        cmocka_unit_test(the_longest_line),
        cmocka_unit_test(all_that_is_sent_arrives),
        cmocka_unit_test(unread_data_is_bounded),
        cmocka_unit_test(the_dead_take_nothing),
        cmocka_unit_test(exit_codes_count),
        cmocka_unit_test(it_outlives_the_runs_signals),
        cmocka_unit_test(the_group_is_killed),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
