/* The terminal's input modes, and that whatever ends or suspends the process restores it first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/line/term_input.h"
#include "tests/terminal_text.h"

#define ON  "\x1b[?2004h"
#define OFF "\x1b[?2004l"

enum { TIMES = 3 }; /* that a process is suspended */

static int master, slave;
static struct termios as_found;

static int open_terminal(void **state) {
    (void)state;
    master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        return -1;
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    return slave < 0 || tcgetattr(slave, &as_found) != 0;
}

static int close_terminal(void **state) {
    (void)state;
    return close(slave) | close(master);
}

static bool is_as_found(void) {
    struct termios now;
    assert_int_equal(tcgetattr(slave, &now), 0);
    return now.c_iflag == as_found.c_iflag && now.c_oflag == as_found.c_oflag &&
           now.c_lflag == as_found.c_lflag && memcmp(now.c_cc, as_found.c_cc, sizeof now.c_cc) == 0;
}

/* What the terminal was sent since the last call. */
static const char *sent(void) {
    static char text[256];
    terminal_text(master, slave, text, sizeof text);
    return text;
}

/* A process of its own group, so that it can be suspended, with the terminal as stdin and stdout. */
static pid_t start(void (*body)(void)) {
    const pid_t child = fork();
    if (child != 0)
        return child;
    setpgid(0, 0);
    dup2(slave, STDIN_FILENO);
    dup2(slave, STDOUT_FILENO);
    body();
    _exit(7);
}

static void raise_in_child(void) {
    (void)!ax_term_set_input(AX_TERM_KEYS);
    raise(SIGSTOP); /* the test looks, or sends a signal */
    for (int i = 0; i < TIMES; i++) {
        raise(SIGTSTP);
        raise(SIGSTOP);
    }
    (void)!ax_term_set_input(AX_TERM_AS_FOUND);
}

static bool is_keys(void) {
    struct termios now, t = as_found;
    t.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN | ISIG);
    t.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON);
    assert_int_equal(tcgetattr(slave, &now), 0);
    return now.c_iflag == t.c_iflag && now.c_lflag == t.c_lflag && now.c_cc[VMIN] == 1 &&
           now.c_cc[VTIME] == 0;
}

static void waits_for(pid_t child, int stopped_by) {
    int status;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == stopped_by);
}

static void modes_set_flags(void **state) {
    (void)state;
    struct termios now;
    struct sigaction before[2], after[2];
    const int in = dup(STDIN_FILENO), out = dup(STDOUT_FILENO);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGHUP, &ignore, NULL);
    sigaction(SIGTERM, NULL, &before[0]);
    sigaction(SIGTSTP, NULL, &before[1]);
    dup2(slave, STDIN_FILENO);
    dup2(slave, STDOUT_FILENO);
    const enum ax_status quiet = ax_term_set_input(AX_TERM_QUIET);
    const bool same = ax_term_set_input(AX_TERM_QUIET) == AX_OK;
    tcgetattr(slave, &now);
    sigaction(SIGTERM, NULL, &after[0]);
    sigaction(SIGHUP, NULL, &after[1]);
    const enum ax_status keys = ax_term_set_input(AX_TERM_KEYS);
    const bool raw = is_keys();
    const enum ax_status found = ax_term_set_input(AX_TERM_AS_FOUND);
    const bool back = is_as_found();
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    close(in);
    close(out);
    assert_int_equal(quiet, AX_OK);
    assert_int_equal(keys, AX_OK);
    assert_int_equal(found, AX_OK);
    assert_true(same && raw && back);
    assert_string_equal(sent(), OFF ON OFF); /* one for each change */
    assert_int_equal(now.c_lflag, as_found.c_lflag & ~(tcflag_t)(ECHO | ICANON | IEXTEN));
    assert_true(now.c_lflag & ISIG);
    assert_true(after[0].sa_handler != before[0].sa_handler);
    assert_true(after[1].sa_handler == SIG_IGN); /* as under nohup */
    sigaction(SIGTERM, NULL, &after[0]);
    sigaction(SIGTSTP, NULL, &after[1]);
    for (int i = 0; i < 2; i++)
        assert_true(after[i].sa_handler == before[i].sa_handler);
    signal(SIGHUP, SIG_DFL);
}

/* Ctrl-Z gives the shell its terminal, and `fg` the process its keys, as often as one likes. */
static void suspending_restores(void **state) {
    (void)state;
    int status;
    const pid_t child = start(raise_in_child);
    waits_for(child, SIGSTOP);
    assert_true(is_keys());
    assert_string_equal(sent(), ON);
    for (int i = 0; i < TIMES; i++) {
        kill(child, SIGCONT);
        waits_for(child, SIGTSTP);
        assert_true(is_as_found());
        assert_string_equal(sent(), OFF);
        kill(child, SIGCONT);
        waits_for(child, SIGSTOP);
        assert_true(is_keys());
        assert_string_equal(sent(), ON);
    }
    kill(child, SIGCONT);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    assert_true(is_as_found());
    assert_string_equal(sent(), OFF);
}

static void ending_restores(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGHUP, SIGQUIT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        int status;
        signal(signals[i], SIG_DFL); /* nohup ignores one, "&" in a script another */
        const pid_t child = start(raise_in_child);
        waits_for(child, SIGSTOP);
        assert_true(is_keys());
        kill(child, signals[i]);
        kill(child, SIGCONT);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        assert_true(is_as_found());
        assert_string_equal(sent(), ON OFF);
    }
}

/* A job of the shell below. */
static void job(void) {
    signal(SIGTTOU, SIG_DFL);
    raise(SIGSTOP); /* the shell gives it the terminal */
    (void)!ax_term_set_input(AX_TERM_KEYS);
    raise(SIGTSTP);
    raise(SIGSTOP); /* the shell looks */
    raise(SIGTSTP);
}

static bool stopped_by(pid_t child, int sig) {
    int status;
    return waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) &&
           WSTOPSIG(status) == sig;
}

/* Gives the terminal to a process group, and lets the job continue. */
static void go_on(pid_t front, pid_t child) {
    tcsetpgrp(slave, front);
    kill(child, SIGCONT);
}

/* What a shell with a terminal of its own sees of a job, as the number of the first step that went wrong. */
static int shell_sees(void) {
    int status;
    signal(SIGTTOU, SIG_IGN);
    if (setsid() < 0 || open_terminal(NULL) != 0 || ioctl(slave, TIOCSCTTY, 0) != 0)
        return 1;
    const pid_t child = start(job), self = getpgrp();
    if (!stopped_by(child, SIGSTOP))
        return 2;
    go_on(child, child);
    if (!stopped_by(child, SIGTSTP) || !is_as_found())
        return 3;
    go_on(self, child); /* bg */
    if (!stopped_by(child, SIGTTOU) || !is_as_found())
        return 4;
    go_on(child, child); /* fg */
    if (!stopped_by(child, SIGSTOP) || !is_keys())
        return 5;
    kill(child, SIGCONT);
    if (!stopped_by(child, SIGTSTP) || !is_as_found())
        return 6;
    go_on(self, child);
    if (!stopped_by(child, SIGTTOU))
        return 7;
    kill(child, SIGTERM);
    kill(child, SIGCONT);
    if (waitpid(child, &status, WUNTRACED) != child || !WIFSIGNALED(status) || !is_as_found())
        return 8;
    return 0;
}

/* `bg` leaves the shell its terminal, and `fg` gives the keys back; the job can be ended in between. */
static void background_waits(void **state) {
    (void)state;
    int status;
    const pid_t shell = fork();
    if (shell == 0)
        _exit(shell_sees());
    assert_int_equal(waitpid(shell, &status, 0), shell);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void files_have_no_modes(void **state) {
    (void)state;
    const int in = dup(STDIN_FILENO), file = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(file, STDIN_FILENO);
    const enum ax_status st = ax_term_set_input(AX_TERM_KEYS);
    dup2(in, STDIN_FILENO);
    close(in);
    close(file);
    assert_int_equal(st, AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "standard input: cannot read the terminal's settings"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes_set_flags),     cmocka_unit_test(suspending_restores),
        cmocka_unit_test(ending_restores),     cmocka_unit_test(background_waits),
        cmocka_unit_test(files_have_no_modes),
    };
    return cmocka_run_group_tests(tests, open_terminal, close_terminal);
}
