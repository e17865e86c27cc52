/* Being asked to stop at any moment: start-up, loading, a step, a save, the end. The same run
 * started again always ends with the same bits, and no finished step is lost. A second signal
 * ends it immediately, and a kill before a save is complete loses nothing but that save.
 * AXTRAIN_SWEEP=1: 200 moments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "ckpt/state/checkpoint.h"
#include "tests/sweep.h"
#include "tests/train_case.h"

#define STEPS 12
#define TRIES 3 /* signals that one run gets at most */

static void open_case(struct train_case *c) {
    if (train_case_open(c, AX_F32, true) != AX_OK)
        fail_msg("%s", ax_error_text());
    c->o.max_steps = STEPS;
    c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 4};
    c->o.save.resume = AX_RESUME_NEWEST;
}

/* Runs in a child, which is returned. */
static pid_t start(struct train_case *c) {
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ax_train_result r;
        _exit(ax_status_info(train_case_run(c, &r))->exit_code);
    }
    return child;
}

static int end_of(pid_t child) {
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static uint64_t outcome(const struct train_case *c) {
    const uint64_t model = train_case_hash(c, "model.safetensors");
    const uint64_t state = train_case_hash(c, "checkpoint-12/state/rank-00000.safetensors");
    assert_true(model != 0 && state != 0);
    return model ^ state * 31;
}

/* Nobody does anything by hand in between. */
static void finishes(struct train_case *c, uint64_t want) {
    assert_int_equal(end_of(start(c)), 0);
    assert_true(outcome(c) == want);
}

static uint64_t straight_run(double *seconds) {
    struct train_case c;
    open_case(&c);
    const double begin = ax_clock_now();
    assert_int_equal(end_of(start(&c)), 0);
    *seconds = ax_clock_now() - begin;
    const uint64_t hash = outcome(&c);
    train_case_close(&c);
    return hash;
}

/* Step of the newest checkpoint, which is good; 0 = none. */
static int64_t newest(const struct train_case *c) {
    struct ax_checkpoint_list l;
    struct ax_checkpoint cp;
    char *path;
    int64_t step = 0;
    assert_int_equal(ax_checkpoint_list(&l, c->out), AX_OK);
    if (l.n > 0) {
        step = l.steps[l.n - 1];
        assert_int_equal(ax_checkpoint_path(&path, c->out, step), AX_OK);
        assert_int_equal(ax_checkpoint_open(&cp, path), AX_OK);
        assert_int_equal(ax_checkpoint_verify(&cp, NULL), AX_OK);
        ax_checkpoint_close(&cp);
        ax_free(path);
    }
    ax_checkpoint_list_free(&l);
    return step;
}

/* Steps that were done, by metrics.jsonl. */
static int64_t last_step(const struct train_case *c) {
    char path[160], *text;
    size_t n;
    int64_t step = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->out);
    if (!ax_path_exists(path))
        return 0;
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &n), AX_OK);
    for (const char *p = text; (p = strstr(p, "{\"step\": ")) != NULL; p++)
        step = strtoll(p + 9, NULL, 10);
    ax_free(text);
    return step;
}

/* ---- any moment ---- */

struct tally {
    int signals, unheard, early, saved, finished;
};

/* One signal after `delay` seconds; whether the run has ended all the same. */
static bool preempt(struct train_case *c, int sig, double delay, struct tally *t) {
    const pid_t child = start(c);
    usleep((useconds_t)(delay * 1e6));
    kill(child, sig);
    const int status = end_of(child);
    t->signals++;
    if (WIFSIGNALED(status)) { /* it did not listen yet, or no more: as if it had not been there */
        assert_int_equal(WTERMSIG(status), sig);
        t->unheard++;
        return false;
    }
    if (WEXITSTATUS(status) == 0) {
        t->finished++;
        return true;
    }
    assert_int_equal(WEXITSTATUS(status), 75);
    assert_int_equal(newest(c), last_step(c)); /* all that was done is there */
    t->early += newest(c) == 0;
    t->saved += newest(c) > 0;
    return false;
}

static void test_signal_at_any_moment(void **state) {
    (void)state;
    const int moments = sweeping() ? 200 : 24;
    const struct ax_rng_key key = {75, 1, 1};
    struct tally t = {0};
    double seconds;
    const uint64_t want = straight_run(&seconds);
    while (t.signals < moments) {
        struct train_case c;
        bool ended = false;
        open_case(&c);
        for (int i = 0; i < TRIES && !ended; i++) {
            const double part = (double)ax_rng_below(key, (uint64_t)t.signals, 1000) / 1000;
            const int late = t.finished, soon = t.unheard + t.early;
            ended = preempt(&c, t.signals % 2 ? SIGUSR1 : SIGTERM, seconds * part, &t);
            /* other work on the machine makes runs longer and shorter */
            seconds *= t.finished > late ? 0.8 : t.unheard + t.early > soon ? 1.2 : 1;
        }
        finishes(&c, want);
        train_case_close(&c);
    }
    print_message("%d signals: %d not listened to, %d before the first step, %d saved, %d at the "
                  "end\n",
                  t.signals, t.unheard, t.early, t.saved, t.finished);
    assert_true(t.saved > moments / 8);
}

/* ---- in the middle of a save ---- */

static bool disk_hangs;

/* The C library's, for this program: where it is wished, the save of step 8 gets no further. */
int fsync(int fd) {
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (disk_hangs && readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/checkpoint-8."))
        for (;;)
            pause();
    return (int)syscall(SYS_fsync, fd);
}

static void wait_for(const struct train_case *c, const char *prefix) {
    for (int i = 0; i < 5000; i++) {
        DIR *d = opendir(c->out);
        bool found = false;
        for (const struct dirent *e; d && (e = readdir(d)) != NULL;)
            found = found || strncmp(e->d_name, prefix, strlen(prefix)) == 0;
        if (d)
            closedir(d);
        if (found)
            return;
        usleep(2000);
    }
    fail_msg("no %s in %s", prefix, c->out);
}

static void two_signals(int first, int then, useconds_t between, uint64_t want) {
    struct train_case c;
    open_case(&c);
    disk_hangs = true;
    const pid_t child = start(&c);
    disk_hangs = false;
    wait_for(&c, "checkpoint-8.tmp-");
    kill(child, first);
    usleep(between);
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0); /* it waits for the save */
    const double begin = ax_clock_now();
    kill(child, then);
    const int status = end_of(child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == then);
    print_message("signals %d and %d: gone after %.3f s\n", first, then, ax_clock_now() - begin);
    assert_int_equal(newest(&c), 4);
    finishes(&c, want);
    train_case_close(&c);
}

/* The grace is shorter than the save where the second one is SIGKILL. A second SIGTERM counts when
 * it is a second after the first. */
static void test_second_signal_and_short_grace(void **state) {
    (void)state;
    double seconds;
    const uint64_t want = straight_run(&seconds);
    two_signals(SIGINT, SIGINT, 20000, want);
    two_signals(SIGTERM, SIGTERM, 1200000, want);
    two_signals(SIGTERM, SIGKILL, 30000, want);
    two_signals(SIGUSR1, SIGKILL, 100000, want);
}

static int quiet(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signal_at_any_moment),
        cmocka_unit_test(test_second_signal_and_short_grace),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
