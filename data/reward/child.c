/* Read ax_child_ask first. In order: its start, what it writes to standard error, its end, a question. */
#include "data/reward/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "data/reward/answer.h"
#include "data/reward/keeper.h"

extern char **environ;

/* ---- its start ---- */

static void close_end(int *fd) {
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* A channel whose ends have numbers that spawn will not overwrite. `ends`: {ours, theirs}. */
static bool make_channel(int ends[2], int number) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(pair[i], F_DUPFD_CLOEXEC, AX_REWARD_KEEPER_CONTROL + 1);
        (void)close(pair[i]);
    }
    if (ends[0] < 0 || ends[1] < 0)
        return false;
    if (number < 3)
        (void)shutdown(ends[0], number == 0 ? SHUT_RD : SHUT_WR);
    return true;
}

enum { N_CHANNELS = 4 }; /* stdin, stdout, stderr, AX_REWARD_KEEPER_CONTROL */

/* The keeper, too, is not meant by signals for the run; it blocks all others itself. */
static int prepare_keeper(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr,
                          const int *theirs) {
    sigset_t all;
    sigfillset(&all);
    int bad = 0;
    for (int fd = 0; fd < N_CHANNELS && !bad; fd++)
        bad = posix_spawn_file_actions_adddup2(files, theirs[fd], fd);
    bad = bad ? bad : posix_spawn_file_actions_addclosefrom_np(files, N_CHANNELS);
    bad = bad ? bad : posix_spawnattr_setsigmask(attr, &all);
    bad = bad ? bad : posix_spawnattr_setpgroup(attr, 0);
    return bad ? bad
               : posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
}

static int spawn(pid_t *pid, const char *program, const char *const *argv, char *const *envp,
                 const int *theirs) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int bad = posix_spawn_file_actions_init(&files);
    if (bad)
        return bad;
    bad = posix_spawnattr_init(&attr);
    if (!bad) {
        bad = prepare_keeper(&files, &attr, theirs);
        bad = bad ? bad
                  : posix_spawn(pid, program, &files, &attr, (char *const *)(uintptr_t)argv,
                                envp ? envp : environ);
        (void)posix_spawnattr_destroy(&attr);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return bad;
}

/* What the keeper says of the child's start, an errno. */
static int hear_start(int control) {
    int why;
    ssize_t n;
    do {
        n = recv(control, &why, sizeof why, MSG_WAITALL);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof why ? why : ECHILD;
}

enum ax_status ax_child_start(struct ax_child *c, const char *program, const char *const *argv) {
    int ends[N_CHANNELS][2];
    int bad = 0;
    for (int i = 0; i < N_CHANNELS; i++)
        ends[i][0] = ends[i][1] = -1;
    for (int i = 0; i < N_CHANNELS && !bad; i++)
        bad = make_channel(ends[i], i) ? 0 : errno;
    const int theirs[N_CHANNELS] = {ends[0][1], ends[1][1], ends[2][1], ends[3][1]};
    pid_t pid = 0;
    bad = bad ? bad : spawn(&pid, program, argv, c->envp, theirs);
    const char *which = bad ? program : argv[2];
    for (int i = 0; i < N_CHANNELS; i++)
        close_end(&ends[i][1]);
    bad = bad ? bad : hear_start(ends[3][0]);
    for (int i = 0; i < N_CHANNELS && bad; i++)
        close_end(&ends[i][0]);
    while (bad && pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (bad)
        return ax_error(AX_ERR_CONFIG, "cannot start %s: %s", which, strerror(bad));
    const uint64_t starts = c->starts + 1;
    *c = (struct ax_child){.pid = pid,
                           .to = ends[0][0],
                           .from = ends[1][0],
                           .errors = ends[2][0],
                           .control = ends[3][0],
                           .starts = starts,
                           .what = c->what,
                           .envp = c->envp};
    return AX_OK;
}

/* ---- what it writes to standard error ---- */

static void end_line(struct ax_child *c, const char *who) {
    if (++c->lines <= AX_CHILD_LINES)
        ax_log_info("%s: %s: %.*s", c->what, who, (int)c->n_said, c->said);
    c->n_said = 0;
}

/* One read; false: there is nothing now. */
static bool listen_once(struct ax_child *c, const char *who) {
    char data[8192];
    const ssize_t n = c->errors < 0 ? 0 : recv(c->errors, data, sizeof data, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_end(&c->errors);
    for (ssize_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)data[i];
        if (byte != '\n')
            c->said[c->n_said++] = byte < ' ' || byte == 0x7f ? ' ' : (char)byte;
        if (byte == '\n' || c->n_said == sizeof c->said)
            end_line(c, who);
    }
    return n > 0;
}

/* What it has written so far: no more than fits the socket, or it might never end. */
static void listen_to_end(struct ax_child *c, const char *who) {
    for (int i = 0; i < 64 && listen_once(c, who); i++)
        ;
    if (c->n_said > 0)
        end_line(c, who);
    if (c->lines > AX_CHILD_LINES)
        ax_log_info("%s: %s: … %zu more lines", c->what, who, c->lines - AX_CHILD_LINES);
    c->lines = 0;
}

/* ---- its end ---- */

/* Waits for its end, and leaves its status to be waited for; false: it is still there. */
static bool wait_end(struct ax_child *c, const char *who, double seconds) {
    const double until = ax_clock_now() + seconds;
    const struct timespec nap = {.tv_nsec = 2000000};
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            return true;
        if (ax_clock_now() >= until)
            return false;
        (void)listen_once(c, who);
        nanosleep(&nap, NULL);
    }
}

#define KEEPER_SECONDS 5.0 /* for the keeper to end, which then is ended, too */

/* Has it killed with the processes that it started; returns how it ended. */
static int finish(struct ax_child *c, const char *who) {
    int status = 0;
    close_end(&c->control);
    if (!wait_end(c, who, KEEPER_SECONDS))
        (void)kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    listen_to_end(c, who);
    close_end(&c->to);
    close_end(&c->from);
    close_end(&c->errors);
    ax_buf_free(&c->line);
    *c = (struct ax_child){.to = -1,
                           .from = -1,
                           .errors = -1,
                           .control = -1,
                           .starts = c->starts,
                           .what = c->what,
                           .envp = c->envp};
    return status;
}

void ax_child_end_input(struct ax_child *c) {
    if (c->pid != 0)
        close_end(&c->to);
}

void ax_child_end(struct ax_child *c, const char *who, double seconds) {
    if (c->pid == 0)
        return;
    ax_child_end_input(c);
    (void)wait_end(c, who, seconds);
    (void)finish(c, who);
}

/* Its output has ended. */
static void bury(struct ax_child *c, const char *who, struct ax_reward_outcome *outcome) {
    const bool ended = wait_end(c, who, 1);
    const int status = finish(c, who);
    if (!ended)
        ax_reward_fail(outcome, AX_REWARD_DEATH, "it closed its standard output");
    else if (WIFSIGNALED(status))
        ax_reward_fail(outcome, AX_REWARD_DEATH, "signal %d, %s", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        ax_reward_fail(outcome, AX_REWARD_DEATH, "exit code %d", WEXITSTATUS(status));
}

/* ---- a question ---- */

/* A child that does not read may still have answered. */
static void send_more(struct ax_child *c, const struct ax_question *q, size_t *sent) {
    const ssize_t n = send(c->to, q->text + *sent, q->n - *sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0)
        *sent += (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        *sent = q->n;
}

static enum ax_status receive(struct ax_child *c, const struct ax_question *q, bool *ended) {
    char data[65536];
    const size_t room = q->max_answer + 1 - c->line.len;
    const ssize_t n = recv(c->from, data, room < sizeof data ? room : sizeof data, MSG_DONTWAIT);
    *ended = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    return n > 0 ? ax_buf_append(&c->line, data, (size_t)n) : AX_OK;
}

/* Waits until `until` for something to happen, and handles it. */
static enum ax_status step(struct ax_child *c, const struct ax_question *q, double until,
                           size_t *sent, bool *ended) {
    struct pollfd fds[3] = {
        {*sent < q->n ? c->to : -1, POLLOUT, 0}, {c->from, POLLIN, 0}, {c->errors, POLLIN, 0}};
    const double left = until - ax_clock_now();
    const int ms = left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(left * 1e3) + 1;
    if (poll(fds, 3, ms) < 0)
        return errno == EINTR ? AX_OK : ax_error(AX_ERR_FAILED, "cannot wait for a child: %m");
    if (fds[2].revents)
        (void)listen_once(c, q->who);
    if (fds[0].revents)
        send_more(c, q, sent);
    return fds[1].revents ? receive(c, q, ended) : AX_OK;
}

/* What has been received is one line, the beginning of one, or neither. */
static bool is_complete(struct ax_child *c, const struct ax_question *q,
                        struct ax_reward_outcome *outcome) {
    const char *newline = c->line.len ? memchr(c->line.data, '\n', c->line.len) : NULL;
    if (newline && newline + 1 == c->line.data + c->line.len) {
        c->line.len--;
        return true;
    }
    if (newline)
        ax_reward_fail(outcome, AX_REWARD_RUBBISH, "more than one line");
    else if (c->line.len > q->max_answer)
        ax_reward_fail(outcome, AX_REWARD_RUBBISH, "a line of more than %zu bytes", q->max_answer);
    return newline || c->line.len > q->max_answer;
}

enum ax_status ax_child_ask(struct ax_child *c, const struct ax_question *q,
                            struct ax_reward_outcome *outcome) {
    const double until = ax_clock_now() + q->seconds;
    enum ax_status st = AX_OK;
    size_t sent = 0;
    bool ended = false, late = false;
    outcome->failure = AX_REWARD_FINE;
    c->line.len = 0;
    while (st == AX_OK && !ended && !is_complete(c, q, outcome)) {
        if (late) {
            ax_reward_fail(outcome, AX_REWARD_TIMEOUT, "no answer within %g s", q->seconds);
            break;
        }
        st = ax_watch_look(q->watch);
        late = ax_clock_now() >= until;
        if (st == AX_OK)
            st = step(c, q, ax_watch_until(q->watch, until), &sent, &ended);
    }
    if (ended)
        bury(c, q->who, outcome);
    else if (st != AX_OK || outcome->failure != AX_REWARD_FINE)
        (void)finish(c, q->who);
    else
        listen_to_end(c, q->who);
    return st;
}

/* ---- Python ---- */

/* The text of python.py. */
__asm__(".pushsection .rodata\n"
        ".global ax_reward_script, ax_reward_script_end\n"
        "ax_reward_script: .incbin \"data/reward/python.py\"\n"
        "ax_reward_script_end: .byte 0\n"
        ".popsection\n");
extern const char ax_reward_script[], ax_reward_script_end[];

/* The script comes through standard input, which from then on is a stream that functions cannot
 * reach. `-c` puts the current folder in front of the path: it comes back when ours are imported. */
static const char boot[] =
    "import os, sys\n"
    "sys.path[:] = [p for p in sys.path if p]\n"
    "stream = os.fdopen(os.dup(0), 'rb')\n"
    "exec(compile(stream.read(int(stream.readline())), 'axtrain rewards', 'exec'))\n";

enum ax_status ax_child_start_python(struct ax_child *c, const char *program, const char *python) {
    const char *const argv[] = {"axtrain", AX_REWARD_KEEPER, python, "-c", boot, NULL};
    return ax_child_start(c, program, argv);
}

enum ax_status ax_child_put_script(struct ax_buf *out) {
    const size_t n = (size_t)(ax_reward_script_end - ax_reward_script);
    AX_TRY(ax_buf_printf(out, "%zu\n", n));
    return ax_buf_append(out, ax_reward_script, n);
}
