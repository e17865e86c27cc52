/* What people read: figures with units, log lines, the terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "tests/terminal_text.h"
#include "tests/skip.h"

static void figures_keep_three_digits(void **state) {
    (void)state;
    char b[32];
    assert_string_equal(ax_format_bytes(b, sizeof b, 0), "0 B");
    assert_string_equal(ax_format_bytes(b, sizeof b, 1023), "1023 B");
    assert_string_equal(ax_format_bytes(b, sizeof b, 1024), "1.00 KiB");
    assert_string_equal(ax_format_bytes(b, sizeof b, 1.5 * 1073741824.0), "1.50 GiB");
    assert_string_equal(ax_format_bytes(b, sizeof b, 1048575.9), "1.00 MiB");
    assert_string_equal(ax_format_count(b, sizeof b, 999), "999");
    assert_string_equal(ax_format_count(b, sizeof b, 999.7), "1.00 k");
    assert_string_equal(ax_format_count(b, sizeof b, 12.34e9), "12.3 G");
    assert_string_equal(ax_format_count(b, sizeof b, 134.5e6), "134 M");
    assert_string_equal(ax_format_count(b, sizeof b, 999.99e6), "1.00 G");
    assert_string_equal(ax_format_seconds(b, sizeof b, 0.0125), "12.5 ms");
    assert_string_equal(ax_format_seconds(b, sizeof b, 1.0), "1.0 s");
    assert_string_equal(ax_format_seconds(b, sizeof b, 59.96), "1m 00s");
    assert_string_equal(ax_format_seconds(b, sizeof b, 200), "3m 20s");
    assert_string_equal(ax_format_seconds(b, sizeof b, 3599.7), "1h 00m");
    assert_string_equal(ax_format_seconds(b, sizeof b, 7384), "2h 03m");
    assert_string_equal(ax_format_seconds(b, sizeof b, 90000), "1d 01h");
    assert_string_equal(ax_format_seconds(b, sizeof b, INFINITY), "unknown");
    assert_string_equal(ax_format_seconds(b, sizeof b, NAN), "unknown");
}

static void the_clock_goes_forward(void **state) {
    (void)state;
    double t = ax_clock_now();
    usleep(2000);
    double dt = ax_clock_now() - t;
    assert_true(dt >= 0.002 && dt < 60.0);
    const double age = ax_clock_since_start(); /* in the kernel's hundredths */
    usleep(30000);
    const double later = ax_clock_since_start();
    assert_true(age > -0.02 && age < 60.0);
    assert_true(later - age >= 0.029 && later - age < 60.0);
}

/* Runs `say` with stderr going to a pipe; returns what it wrote. */
static size_t capture(void (*say)(void), char *out, size_t size) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    say();
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], out, size - 1);
    close(ends[0]);
    assert_true(n >= 0);
    out[n] = '\0';
    return (size_t)n;
}

static void say_levels(void) {
    ax_log_error("disk full path=%s", "/data");
    ax_log_warn("slow step=%d", 3);
    ax_log_info("step=%d loss=%.2f", 4, 2.5);
    ax_log_debug("not shown");
}

static void say_much(void) {
    ax_log_warn("%05000d", 1);
}

static void log_lines_follow_the_level(void **state) {
    (void)state;
    char text[8192];
    capture(say_levels, text, sizeof text);
    assert_string_equal(text,
                        "error disk full path=/data\nwarn slow step=3\ninfo step=4 loss=2.50\n");
    ax_log_set_level(AX_LOG_ERROR);
    assert_int_equal(ax_log_get_level(), AX_LOG_ERROR);
    capture(say_levels, text, sizeof text);
    assert_string_equal(text, "error disk full path=/data\n");
    ax_log_set_level(AX_LOG_INFO);
    assert_int_equal(capture(say_much, text, sizeof text), 4096);
    assert_int_equal(text[4095], '\n');
}

static void colors_ask_the_environment(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_false(ax_term_is_tty(ends[1]));
    assert_int_equal(ax_term_width(ends[1]), 80);
    assert_int_equal(ax_term_height(ends[1]), 24);
    assert_false(ax_term_use_color(ends[1], AX_COLOR_AUTO));
    assert_true(ax_term_use_color(ends[1], AX_COLOR_ALWAYS));
    close(ends[0]);
    close(ends[1]);
    int tty = posix_openpt(O_RDWR | O_NOCTTY);
    if (tty < 0 || grantpt(tty) != 0 || unlockpt(tty) != 0)
        skip_because("kernel, pseudo-terminals");
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    assert_true(ax_term_use_color(tty, AX_COLOR_AUTO));
    assert_false(ax_term_use_color(tty, AX_COLOR_NEVER));
    struct winsize w = {.ws_row = 20, .ws_col = 133};
    assert_int_equal(ioctl(tty, TIOCSWINSZ, &w), 0);
    assert_int_equal(ax_term_width(tty), 133);
    assert_int_equal(ax_term_height(tty), 20);
    w = (struct winsize){.ws_row = 1, .ws_col = 1};
    assert_int_equal(ioctl(tty, TIOCSWINSZ, &w), 0);
    assert_int_equal(ax_term_width(tty), 1);
    assert_int_equal(ax_term_height(tty), 1);
    w = (struct winsize){.ws_row = 0, .ws_col = 0}; /* not known */
    assert_int_equal(ioctl(tty, TIOCSWINSZ, &w), 0);
    assert_int_equal(ax_term_width(tty), 80);
    assert_int_equal(ax_term_height(tty), 24);
    setenv("TERM", "dumb", 1);
    assert_false(ax_term_use_color(tty, AX_COLOR_AUTO));
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    assert_false(ax_term_use_color(tty, AX_COLOR_AUTO));
    assert_true(ax_term_use_color(tty, AX_COLOR_ALWAYS));
    close(tty);
}

static void say_progress(void) {
    for (int64_t done = 0; done <= 3; done++)
        ax_term_progress("answers", done, 3);
}

/* On a terminal each count is over the last one, and the last one goes; elsewhere there is none. */
static void counts_are_for_terminals(void **state) {
    (void)state;
    char text[256];
    assert_int_equal(capture(say_progress, text, sizeof text), 0);
    int tty = posix_openpt(O_RDWR | O_NOCTTY);
    if (tty < 0 || grantpt(tty) != 0 || unlockpt(tty) != 0)
        skip_because("kernel, pseudo-terminals");
    const int end = open(ptsname(tty), O_RDWR | O_NOCTTY), saved = dup(STDERR_FILENO);
    assert_true(end >= 0);
    setenv("TERM", "xterm", 1);
    assert_int_equal(dup2(end, STDERR_FILENO), STDERR_FILENO);
    say_progress();
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    terminal_text(tty, end, text, sizeof text);
    assert_string_equal(text, "\ranswers 0/3\x1b[K\ranswers 1/3\x1b[K\ranswers 2/3\x1b[K\r\x1b[K");
    close(saved);
    close(end);
    close(tty);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_keep_three_digits),  cmocka_unit_test(the_clock_goes_forward),
        cmocka_unit_test(log_lines_follow_the_level), cmocka_unit_test(colors_ask_the_environment),
        cmocka_unit_test(counts_are_for_terminals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
