/* What ranks print, line by line: prefixed, cut where it must be, or held until it matters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "parallel/job/launch.h"

static int rank_end[2], shown[2]; /* pipes: of the rank's output, and of what is printed */

static int open_pipes(void **state) {
    (void)state;
    return pipe2(rank_end, O_CLOEXEC | O_NONBLOCK) || pipe2(shown, O_CLOEXEC | O_NONBLOCK);
}

static int close_pipes(void **state) {
    (void)state;
    close(rank_end[0]);
    close(rank_end[1]); /* −1 if the test has closed it */
    close(shown[0]);
    close(shown[1]);
    return 0;
}

static void say(const char *text) {
    assert_int_equal(write(rank_end[1], text, strlen(text)), strlen(text));
}

static void end(void) {
    close(rank_end[1]);
    rank_end[1] = -1;
}

/* What has been printed since the last call. */
static const char *printed(void) {
    static char out[1 << 15];
    ssize_t n, at = 0;
    while ((n = read(shown[0], out + at, sizeof out - 1 - (size_t)at)) > 0)
        at += n;
    out[at] = '\0';
    return out;
}

static void complete_lines_are_printed(void **state) {
    (void)state;
    struct ax_launch_stream s = {.fd = rank_end[0], .target = shown[1]};
    s.line[sizeof s.line - 1] = '!';
    say("one\ntwo\n\nthr");
    assert_true(ax_launch_stream_read(&s, 3));
    assert_string_equal(printed(), "[3] one\n[3] two\n[3] \n");
    assert_true(ax_launch_stream_read(&s, 3)); /* nothing there, and not ended */
    assert_string_equal(printed(), "");
    say("ee\nfo");
    assert_true(ax_launch_stream_read(&s, 3));
    assert_string_equal(printed(), "[3] three\n");
    say("u"); /* a byte is read alone, too */
    assert_true(ax_launch_stream_read(&s, 3));
    assert_string_equal(printed(), "");
    say("r");
    end();
    assert_true(ax_launch_stream_read(&s, 3));
    assert_string_equal(printed(), "");
    assert_false(ax_launch_stream_read(&s, 3)); /* the end ends its last line */
    assert_string_equal(printed(), "[3] four\n");
    assert_false(ax_launch_stream_read(&s, 3));
    assert_string_equal(printed(), "");
    assert_int_equal(s.line[sizeof s.line - 1], '!');
}

static void long_lines_are_cut(void **state) {
    (void)state;
    enum { MOST = sizeof((struct ax_launch_stream *)0)->line - 1 };
    static char text[MOST + 100], expected[2 * MOST];
    struct ax_launch_stream s = {.fd = rank_end[0], .target = shown[1]};
    for (int i = 0; i < MOST + 7; i++)
        text[i] = (char)('a' + i % 26);
    snprintf(text + MOST + 7, 8, "\nnext\n");
    say(text);
    assert_true(ax_launch_stream_read(&s, 0));
    snprintf(expected, sizeof expected, "[0] %.*s\n", MOST, text);
    assert_string_equal(printed(), expected);
    assert_true(ax_launch_stream_read(&s, 0));
    snprintf(expected, sizeof expected, "[0] %.*s\n[0] next\n", 7, text + MOST);
    assert_string_equal(printed(), expected);
    /* what is there of a line is moved, and the rest has the space that is left */
    memset(text, 'y', MOST);
    memcpy(text, "x\n", 2);
    memcpy(text + MOST, "\nz\n", 4);
    say(text);
    assert_true(ax_launch_stream_read(&s, 0));
    assert_string_equal(printed(), "[0] x\n");
    assert_true(ax_launch_stream_read(&s, 0));
    snprintf(expected, sizeof expected, "[0] %.*s\n", MOST - 2, text + 2);
    assert_string_equal(printed(), expected);
    assert_true(ax_launch_stream_read(&s, 0));
    assert_string_equal(printed(), "[0] z\n");
}

/* The longest line of the log is told as one, with its beginning. */
static void the_longest_log_line_is_held(void **state) {
    (void)state;
    static char text[AX_LOG_LINE + 1], expected[AX_LOG_LINE + 32];
    struct ax_launch_stream s = {.fd = rank_end[0], .target = -1};
    const int saved = dup(STDERR_FILENO);
    memset(text, 'x', AX_LOG_LINE - 1);
    memcpy(text, "error ", 6);
    text[AX_LOG_LINE - 1] = '\n';
    say(text);
    assert_true(ax_launch_stream_read(&s, 0));
    say("bye\n");
    assert_true(ax_launch_stream_read(&s, 0));
    assert_int_equal(dup2(shown[1], STDERR_FILENO), STDERR_FILENO);
    ax_launch_stream_tell(&s, 0);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    snprintf(expected, sizeof expected, "[0] %s[0] bye\n", text);
    assert_string_equal(printed(), expected);
}

/* Without a target the last lines are held, and told once. */
static void held_lines_are_told(void **state) {
    (void)state;
    enum { MOST = sizeof((struct ax_launch_stream *)0)->held };
    struct ax_launch_stream s = {.fd = rank_end[0], .target = -1};
    char line[16], expected[MOST * 2];
    const int lines = 3000, whole = MOST / 10; /* of ten bytes each, with the newline */
    const int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    for (int i = 0; i < lines; i++) {
        snprintf(line, sizeof line, "line %04d\n", i);
        say(line);
        assert_true(ax_launch_stream_read(&s, 12));
    }
    assert_string_equal(printed(), "");
    assert_int_equal(s.n_held, 10 * whole);
    assert_int_equal(dup2(shown[1], STDERR_FILENO), STDERR_FILENO);
    ax_launch_stream_tell(&s, 12);
    ax_launch_stream_tell(&s, 12);
    dup2(saved, STDERR_FILENO);
    close(saved);
    size_t at = 0;
    for (int i = lines - whole; i < lines; i++)
        at += (size_t)snprintf(expected + at, sizeof expected - at, "[12] line %04d\n", i);
    assert_string_equal(printed(), expected);
    assert_int_equal(s.n_held, 0);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, open_pipes, close_pipes)
    const struct CMUnitTest tests[] = {T(complete_lines_are_printed), T(long_lines_are_cut),
                                       T(the_longest_log_line_is_held), T(held_lines_are_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
