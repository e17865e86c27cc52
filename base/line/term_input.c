/* Only async-signal-safe functions are called, because a signal handler uses this file. */
#include "base/line/term_input.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* Pasted text arrives between ESC [200~ and ESC [201~. */
static const char paste_on[] = "\x1b[?2004h", paste_off[] = "\x1b[?2004l";
static const int ending[] = {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
#define ENDING (sizeof ending / sizeof *ending)

static struct {
    enum ax_term_input input;
    struct termios found;
    struct sigaction old[ENDING];
} term;

static bool apply(enum ax_term_input input) {
    struct termios t = term.found;
    if (input != AX_TERM_AS_FOUND) {
        t.c_lflag &= ~(tcflag_t)(ECHO | ICANON | IEXTEN);
        t.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON);
        t.c_cc[VMIN] = 1;
        t.c_cc[VTIME] = 0;
    }
    if (input == AX_TERM_KEYS)
        t.c_lflag &= ~(tcflag_t)ISIG;
    const bool keys = input == AX_TERM_KEYS;
    const char *paste = keys ? paste_on : paste_off;
    /* TCSADRAIN does not discard input */
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &t) == 0 &&
           write(STDOUT_FILENO, paste, strlen(paste)) > 0;
}

/* Another process group has the terminal. */
static bool in_background(void) {
    const pid_t front = tcgetpgrp(STDIN_FILENO);
    return front >= 0 && front != getpgrp();
}

/* Restores the terminal and raises the signal again. A suspended process continues here; after `bg` SIGTTOU stops it
 * when it changes the terminal, until `fg` or a signal that ends it. */
static void on_signal(int sig) {
    const int saved = errno;
    struct sigaction now, usual = {.sa_handler = SIG_DFL};
    sigset_t one, all;
    if (!in_background())
        (void)apply(AX_TERM_AS_FOUND);
    sigaction(sig, &usual, &now);
    sigemptyset(&one);
    sigaddset(&one, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    sigaction(sig, &now, NULL);
    sigemptyset(&all);
    for (size_t i = 0; i < ENDING; i++)
        sigaddset(&all, ending[i]);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    (void)apply(term.input);
    errno = saved;
}

enum ax_status ax_term_set_input(enum ax_term_input input) {
    if (input == term.input)
        return AX_OK;
    if (term.input == AX_TERM_AS_FOUND) {
        if (tcgetattr(STDIN_FILENO, &term.found) != 0)
            return ax_error(AX_ERR_IO, "standard input: cannot read the terminal's settings: %m");
        struct sigaction now = {.sa_handler = on_signal};
        sigfillset(&now.sa_mask);
        sigdelset(&now.sa_mask, SIGTTOU);
        for (size_t i = 0; i < ENDING; i++) {
            sigaction(ending[i], &now, &term.old[i]);
            if (term.old[i].sa_handler == SIG_IGN) /* as under nohup */
                sigaction(ending[i], &term.old[i], NULL);
        }
    }
    term.input = input;
    const bool ok = apply(input);
    if (input == AX_TERM_AS_FOUND)
        for (size_t i = 0; i < ENDING; i++)
            sigaction(ending[i], &term.old[i], NULL);
    return ok ? AX_OK : ax_error(AX_ERR_IO, "standard input: cannot change the terminal: %m");
}
