/* Text of others on standard output: a terminal gets no control characters, a file all bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <pty.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/term.h"

static const char text[] = "a\x1b]0;t\a\x7f\xc2\x9b"
                           "2J\xc3\xa9\tb\nc";

/* Prints the text with standard output in `to`. */
static void print_to(int to) {
    fflush(stdout);
    const int old = dup(STDOUT_FILENO);
    assert_true(old >= 0 && dup2(to, STDOUT_FILENO) >= 0);
    const enum ax_status st = ax_term_print(text, sizeof text - 1);
    fflush(stdout);
    dup2(old, STDOUT_FILENO);
    close(old);
    assert_int_equal(st, AX_OK);
}

static void a_terminal_is_not_controlled(void **state) {
    (void)state;
    int ours, theirs;
    char got[128];
    assert_int_equal(openpty(&ours, &theirs, NULL, NULL, NULL), 0);
    print_to(theirs);
    const ssize_t n = read(ours, got, sizeof got - 1);
    assert_true(n > 0);
    got[n] = '\0';
    assert_null(memchr(got, 0x1b, (size_t)n));
    assert_null(strstr(got, "\xc2\x9b"));
    assert_non_null(strstr(got, "a\xe2\x90\x9b]0;t\xe2\x90\x87\xe2\x90\xa1\xef\xbf\xbd"
                                "2J\xc3\xa9"));
    assert_non_null(strstr(got, "b\r\nc"));
    close(ours);
    close(theirs);
}

static void a_pipe_gets_all_bytes(void **state) {
    (void)state;
    int ends[2];
    char got[128];
    assert_int_equal(pipe(ends), 0);
    print_to(ends[1]);
    assert_int_equal(read(ends[0], got, sizeof got), sizeof text - 1);
    assert_memory_equal(got, text, sizeof text - 1);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_is_not_controlled),
        cmocka_unit_test(a_pipe_gets_all_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
