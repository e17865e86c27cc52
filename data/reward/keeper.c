#include "data/reward/keeper.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/proc.h"

enum { CANNOT_START = 127 };

#define END_SECONDS 2.0 /* for all to be gone that was killed */

/* ---- the child ---- */

/* Signals that are meant for the run are blocked in it. It ends with the keeper, whose only thread
 * starts it. */
static void become_child(char **argv, pid_t keeper, int report) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGUSR1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != keeper)
        raise(SIGKILL);
    (void)setpgid(0, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigprocmask(SIG_SETMASK, &blocked, NULL);
    if (strchr(argv[0], '/'))
        execv(argv[0], argv); /* execvp would take a file of another format for a shell's */
    else
        execvp(argv[0], argv);
    const int why = errno;
    (void)!write(report, &why, sizeof why);
    raise(SIGKILL);
}

/* *why: 0, or why it could not be started. */
static pid_t start(char **argv, int *why) {
    int report[2];
    const pid_t keeper = getpid();
    *why = 0;
    if (pipe2(report, O_CLOEXEC) != 0) {
        *why = errno;
        return 0;
    }
    const pid_t pid = fork();
    if (pid == 0)
        become_child(argv, keeper, report[1]);
    if (pid < 0)
        *why = errno;
    close(report[1]);
    while (pid > 0 && read(report[0], why, sizeof *why) < 0 && errno == EINTR)
        ;
    close(report[0]);
    return pid;
}

/* The child's ends of its streams are the child's alone. */
static void leave_streams(void) {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
}

/* ---- its end ---- */

static pid_t parent_of(const char *process) {
    char path[64], text[512];
    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", process);
    if (!ax_proc_read(path, text, sizeof text))
        return 0;
    const char *end = strrchr(text, ')'); /* "PID (NAME) STATE PARENT …" */
    return end && strlen(end) > 4 ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

static void kill_children(void) {
    const pid_t self = getpid();
    DIR *dir = opendir("/proc");
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        if (isdigit((unsigned char)e->d_name[0]) && parent_of(e->d_name) == self)
            (void)kill((pid_t)strtol(e->d_name, NULL, 10), SIGKILL);
    if (dir)
        closedir(dir);
}

struct child {
    pid_t pid;
    bool ended;
    int status;
};

/* Takes note of all that have ended; false: there is no child any more. */
static bool reap(struct child *c) {
    int status;
    for (;;) {
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == 0)
            return true;
        if (pid < 0 && errno != EINTR)
            return false;
        if (pid == c->pid) {
            c->ended = true;
            c->status = status;
        }
    }
}

/* Those of a process that was killed become children here, and are found next time. */
static void end_all(struct child *c) {
    const double until = ax_clock_now() + END_SECONDS;
    while (reap(c) && ax_clock_now() < until) {
        kill_children();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* As the child has ended. */
static int end_alike(const struct child *c) {
    const struct rlimit none = {0, 0};
    sigset_t all;
    if (!c->ended)
        return CANNOT_START;
    if (!WIFSIGNALED(c->status))
        return WEXITSTATUS(c->status);
    (void)setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(c->status), SIG_DFL);
    raise(WTERMSIG(c->status));
    sigfillset(&all);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    return CANNOT_START;
}

/* ---- between ---- */

int ax_reward_keeper(char **argv) {
    sigset_t all;
    int why;
    /* who signals every process of the run does not mean the one that has to clean up */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    (void)fcntl(AX_REWARD_KEEPER_CONTROL, F_SETFD, FD_CLOEXEC);
    struct child child = {.pid = start(argv, &why)};
    const int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    leave_streams();
    (void)!send(AX_REWARD_KEEPER_CONTROL, &why, sizeof why, MSG_NOSIGNAL);
    struct pollfd fds[] = {{AX_REWARD_KEEPER_CONTROL, POLLIN, 0}, {signals, POLLIN, 0}};
    while (why == 0 && fds[0].revents == 0 && reap(&child) && !child.ended) {
        struct signalfd_siginfo info;
        (void)poll(fds, 2, 1000);
        while (read(signals, &info, sizeof info) > 0)
            ;
    }
    end_all(&child);
    return end_alike(&child);
}
