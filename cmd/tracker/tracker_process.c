#include "cmd/tracker/tracker_process.h"

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

#define CHILD_SOCKET 3

extern char **environ;

/* ---- start ---- */

static int prepare(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr, int socket) {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGUSR1);
    int rc = posix_spawn_file_actions_adddup2(files, socket, CHILD_SOCKET);
    for (int fd = STDIN_FILENO; rc == 0 && fd <= STDERR_FILENO; fd++)
        rc = posix_spawn_file_actions_addopen(files, fd, "/dev/null", O_RDWR, 0);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(attr, &blocked);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(attr, 0);
    return rc == 0 ? posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP)
                   : rc;
}

static int spawn(pid_t *pid, const char *const *argv, int socket) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int rc = posix_spawn_file_actions_init(&files);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attr);
    if (rc == 0) {
        rc = prepare(&files, &attr, socket);
        if (rc == 0)
            rc = posix_spawnp(pid, argv[0], &files, &attr, (char *const *)(uintptr_t)argv, environ);
        (void)posix_spawnattr_destroy(&attr);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return rc;
}

enum ax_status ax_tracker_process_start(struct ax_tracker_process *p, const char *const *argv) {
    int ends[2];
    *p = (struct ax_tracker_process){.socket = -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return ax_error(AX_ERR_FAILED, "%s: cannot make a socket: %m", argv[0]);
    const int rc = spawn(&p->pid, argv, ends[1]);
    close(ends[1]);
    if (rc == 0) {
        p->socket = ends[0];
        return AX_OK;
    }
    close(ends[0]);
    p->pid = 0;
    return ax_error(AX_ERR_CONFIG, "%s: cannot start it: %s", argv[0], strerror(rc));
}

/* ---- sending ---- */

/* Sends as much of the pending data as possible; drops it if the process is dead. */
static void flush(struct ax_tracker_process *p) {
    size_t done = 0;
    while (done < p->pending.len) {
        const ssize_t n = send(p->socket, p->pending.data + done, p->pending.len - done,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            done = p->pending.len;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (done > 0) {
        memmove(p->pending.data, p->pending.data + done, p->pending.len - done);
        p->pending.len -= done;
    }
}

bool ax_tracker_process_send(struct ax_tracker_process *p, const void *data, size_t n) {
    flush(p);
    if (n > AX_TRACKER_PENDING - p->pending.len)
        return false;
    if (ax_buf_append(&p->pending, data, n) != AX_OK) {
        ax_error_clear();
        return false;
    }
    flush(p);
    return true;
}

/* ---- receiving ---- */

/* The next complete line received, or NULL. */
static const char *take_line(struct ax_tracker_process *p) {
    memmove(p->said, p->said + p->taken, p->n_said - p->taken);
    p->n_said -= p->taken;
    p->taken = 0;
    char *end = memchr(p->said, '\n', p->n_said);
    if (!end)
        return NULL;
    *end = '\0';
    p->taken = (size_t)(end - p->said) + 1;
    return p->said;
}

/* False at the end of the process's output, or if its line is too long. */
static bool receive(struct ax_tracker_process *p) {
    const ssize_t n =
        recv(p->socket, p->said + p->n_said, sizeof p->said - p->n_said, MSG_DONTWAIT);
    if (n > 0)
        p->n_said += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

const char *ax_tracker_process_line(struct ax_tracker_process *p, double seconds, bool *gone) {
    const double until = ax_clock_now() + seconds;
    *gone = false;
    for (;;) {
        const char *line = take_line(p);
        if (line)
            return line;
        flush(p);
        const double left = until - ax_clock_now();
        struct pollfd wait = {.fd = p->socket,
                              .events = (short)(POLLIN | (p->pending.len > 0 ? POLLOUT : 0))};
        if (poll(&wait, 1, left > 0 ? (int)(1000 * left) + 1 : 0) == 0 && left <= 0)
            return NULL;
        *gone = (wait.revents & (POLLIN | POLLHUP | POLLERR)) && !receive(p);
        if (*gone)
            return NULL;
        if (left <= 0 && !memchr(p->said, '\n', p->n_said))
            return NULL;
    }
}

/* ---- end ---- */

bool ax_tracker_process_end(struct ax_tracker_process *p, double seconds) {
    const double until = ax_clock_now() + seconds;
    const struct timespec nap = {.tv_nsec = 5000000};
    int status = 0;
    if (p->pid == 0)
        return true;
    pid_t ended = 0;
    for (bool told = false;; nanosleep(&nap, NULL)) {
        flush(p);
        if (!told && p->pending.len == 0)
            told = shutdown(p->socket, SHUT_WR) == 0 || errno != EINTR;
        ended = waitpid(p->pid, &status, WNOHANG);
        if (ended != 0 || ax_clock_now() >= until)
            break;
    }
    const bool by_itself = ended == p->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended == 0) {
        (void)kill(-p->pid, SIGKILL); /* and processes that it started */
        while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
            continue;
    }
    close(p->socket);
    ax_buf_free(&p->pending);
    *p = (struct ax_tracker_process){.socket = -1};
    return by_itself;
}
