/* What a person at a terminal sees of a run: every byte that is written, in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "optim/metrics/metrics.h"
#include "tests/terminal_text.h"

static char dir[64];
static int master, slave, saved;

static int setup(void **state) {
    (void)state;
    struct termios t;
    const struct winsize size = {.ws_row = 20, .ws_col = 201};
    strcpy(dir, "/tmp/axtrain-metrics-XXXXXX");
    master = posix_openpt(O_RDWR | O_NOCTTY);
    if (!mkdtemp(dir) || master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        return -1;
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    if (slave < 0 || ioctl(slave, TIOCSWINSZ, &size) != 0 || tcgetattr(slave, &t) != 0)
        return -1;
    cfmakeraw(&t);
    setenv("TERM", "xterm", 1);
    return tcsetattr(slave, TCSANOW, &t);
}

static int teardown(void **state) {
    (void)state;
    close(slave);
    close(master);
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

/* Standard error is the terminal from here … */
static void begin(void) {
    saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(slave, STDERR_FILENO) == STDERR_FILENO);
}

/* … to here; returns what it got. */
static const char *end(void) {
    static char text[1 << 14];
    dup2(saved, STDERR_FILENO);
    close(saved);
    terminal_text(master, slave, text, sizeof text);
    return text;
}

static struct ax_metrics *open_metrics(bool progress) {
    struct ax_metrics *m = NULL;
    const struct ax_metrics_options o = {.total_steps = 4,
                                         .logging_steps = 2,
                                         .flops_per_token = 1e9,
                                         .peak_flops = 1e12,
                                         .devices = 2,
                                         .progress = progress,
                                         .color = AX_COLOR_NEVER};
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    return m;
}

static void step(struct ax_metrics *m, int64_t step) {
    const struct ax_step_figures f = {.step = step,
                                      .epoch = 0.25 * (double)step,
                                      .loss = 3 / (double)step,
                                      .grad_norm = 2,
                                      .learning_rate = 1e-4,
                                      .tokens = 100 * step,
                                      .computed_tokens = 100 * step,
                                      .trained_tokens = 40,
                                      .seconds = 2,
                                      .memory = (uint64_t)3 << 30,
                                      .peak_memory = (uint64_t)4 << 30};
    ax_metrics_step(m, &f);
}

#define CLEAR    "\x1b[K"
#define BAR(...) "\r" __VA_ARGS__ CLEAR
#define FIRST    "  0 % [........................................]  0/4  loading 3/7"
#define AT_1                                                                                       \
    " 25 % [##########..............................]  1/4  saving 2/5  loss 3  lr 0.0001  "       \
    "norm 2  50 tok/s (25 each)  MFU 5 %  3.00 GiB  ETA 6.0 s"
#define AT_2                                                                                       \
    " 50 % [####################....................]  2/4  evaluating  loss 1.5  lr 0.0001  "     \
    "norm 2  100 tok/s (50 each)  MFU 10 %  3.00 GiB  ETA 4.0 s"
#define AFTER_EVAL                                                                                 \
    " 50 % [####################....................]  2/4  loss 1.5  lr 0.0001  norm 2  "         \
    "100 tok/s (50 each)  MFU 10 %  3.00 GiB  ETA 4.0 s"
#define LAST                                                                                       \
    "100 % [########################################]  4/4  loss 0.75  lr 0.0001  norm 2  "        \
    "150 tok/s (75 each)  MFU 15 %  3.00 GiB"

/* Lines go above the bar, which is drawn at most every tenth of a second, and at the end. */
static void bar_and_lines(void **state) {
    (void)state;
    static const char *const expected[] = {
        "started: after 1 s\n",
        BAR(FIRST),
        "\r" CLEAR "saved: checkpoint-1\n",
        BAR(AT_1),
        BAR(AFTER_EVAL), /* a step ends what was done before */
        "\r" CLEAR "warning: hot\n",
        BAR(AT_2),
        "\r" CLEAR "eval at step 2: loss 1.25, accuracy 50.0 %, 4.0 s\n",
        BAR(AFTER_EVAL),
        BAR(LAST),
        BAR(LAST),
        "\n",
    };
    const struct timespec pause = {.tv_nsec = 110000000};
    const char *text = NULL;
    double took = 1;
    for (int tries = 0; took >= 0.09 && tries < 100; tries++) { /* not on a machine that stalls */
        begin();
        struct ax_metrics *m = open_metrics(true);
        ax_metrics_event(m, AX_EVENT_STARTED, 0, "after %d s", 1); /* no bar yet */
        double from = ax_clock_now();
        ax_metrics_doing(m, "loading", 3, 7);
        ax_metrics_doing(m, "loading", 4, 7); /* too soon */
        step(m, 1);
        ax_metrics_doing(m, "saving", 2, 5);
        took = ax_clock_now() - from;
        ax_metrics_event(m, AX_EVENT_SAVED, 1, "checkpoint-%d", 1);
        nanosleep(&pause, NULL);
        from = ax_clock_now();
        step(m, 2);
        ax_metrics_doing(m, "evaluating", 0, 0);
        took += ax_clock_now() - from;
        ax_metrics_event(m, AX_EVENT_WARNING, 2, "hot");
        ax_metrics_eval(m, 2, 0.5,
                        &(struct ax_eval_result){.loss = 1.25, .accuracy = 0.5, .seconds = 4});
        from = ax_clock_now();
        step(m, 3);
        step(m, 4);
        took += ax_clock_now() - from;
        ax_metrics_close(m);
        text = end();
    }
    assert_true(took < 0.09);
    size_t at = 0;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; at += strlen(expected[i++]))
        if (strncmp(text + at, expected[i], strlen(expected[i])) != 0)
            fail_msg("expected \"%s\", got \"%s\"", expected[i], text + at);
    assert_string_equal(text + at, "");
}

/* --quiet: nothing at all. */
static void quiet_is_quiet(void **state) {
    (void)state;
    begin();
    struct ax_metrics *m = open_metrics(false);
    ax_metrics_doing(m, "loading", 3, 7);
    for (int64_t s = 1; s <= 4; s++)
        step(m, s);
    ax_metrics_event(m, AX_EVENT_SAVED, 4, "x");
    ax_metrics_eval(m, 4, 1, &(struct ax_eval_result){.loss = 1});
    ax_metrics_close(m);
    assert_string_equal(end(), "");
}

static struct ax_buf text_of(char *text) {
    return (struct ax_buf){.data = text, .len = strlen(text)};
}

/* A terminal that cannot redraw a line gets those of a log, and no bar; nothing of an answer controls it. */
static void dumb_terminals_get_lines(void **state) {
    (void)state;
    setenv("TERM", "dumb", 1);
    begin();
    struct ax_metrics *m = open_metrics(true);
    ax_metrics_doing(m, "loading", 3, 7);
    for (int64_t s = 1; s <= 4; s++)
        step(m, s);
    ax_metrics_event(m, AX_EVENT_SAVED, 4, "x");
    const struct ax_buf prompt = text_of((char[]){"a\tb"}), worth = text_of((char[]){"right 1"}),
                        answer = text_of((char[]){"\x1b[2J\xc2\x9b"
                                                  "2J\xc2\xa0."});
    ax_metrics_show(m, 4, 1, &prompt, &answer, &worth);
    ax_metrics_close(m);
    setenv("TERM", "xterm", 1);
    assert_string_equal(end(), "step=2/4 epoch=0.5 loss=2.25 grad_norm=2 learning_rate=0.0001 "
                               "tokens_per_second=100 tokens_per_second_per_device=50 eta_s=4\n"
                               "step=4/4 epoch=1 loss=0.875 grad_norm=2 learning_rate=0.0001 "
                               "tokens_per_second=150 tokens_per_second_per_device=75\n"
                               "saved: x\n"
                               "sample 1 at step 4: a b \xe2\x86\x92  [2J\xef\xbf\xbd"
                               "2J\xc2\xa0. "
                               "(right 1)\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bar_and_lines),
        cmocka_unit_test(quiet_is_quiet),
        cmocka_unit_test(dumb_terminals_get_lines),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
