/* One rank's process: its environment, its streams, and that it dies with the launcher. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "parallel/job/launch.h"

enum { VARIABLES = 9, MAX_TEXT = 320 };

struct start {
    char text[VARIABLES][MAX_TEXT];
    char **env, **argv;
    int streams[2], null; /* null −1: the launcher's own input */
    bool joins;           /* the launcher's process group */
    pid_t launcher;
};

/* What other launchers leave behind would contradict these ranks. */
static bool is_replaced(const struct start *s, const char *variable) {
    static const char *const dropped[] = {"TORCHELASTIC_",
                                          "AXTRAIN_TOKEN=", "AXTRAIN_TOKEN_FILE=", "AXTRAIN_PORT="};
    for (int i = 0; i < VARIABLES; i++)
        if (strncmp(variable, s->text[i], strcspn(s->text[i], "=") + 1) == 0)
            return true;
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        if (strncmp(variable, dropped[i], strlen(dropped[i])) == 0)
            return true;
    return false;
}

static enum ax_status make_env(struct start *s, const struct ax_launch_rank *r,
                               const struct ax_launch_options *o,
                               const struct ax_launch_attempt *a) {
    const struct {
        const char *name;
        int value;
    } numbers[VARIABLES - 1] = {{"RANK", r->rank},
                                {"WORLD_SIZE", o->ranks * o->hosts},
                                {"LOCAL_RANK", r->local_rank},
                                {"LOCAL_WORLD_SIZE", o->ranks},
                                {"MASTER_PORT", a->port},
                                {"AXTRAIN_TOKEN_FD", a->token_fd},
                                {"AXTRAIN_PROGRESS_FD", a->progress_fd},
                                {"AXTRAIN_RESTART_COUNT", a->restart}};
    size_t n = 0, kept = 0;
    for (int i = 0; i < VARIABLES - 1; i++)
        snprintf(s->text[i], MAX_TEXT, "%s=%d", numbers[i].name, numbers[i].value);
    snprintf(s->text[VARIABLES - 1], MAX_TEXT, "MASTER_ADDR=%s",
             o->master_addr ? o->master_addr : "127.0.0.1");
    while (environ[n])
        n++;
    AX_TRY(ax_alloc(&s->env, n + VARIABLES + 1, sizeof *s->env));
    for (size_t i = 0; i < n; i++)
        if (!is_replaced(s, environ[i]))
            s->env[kept++] = environ[i];
    for (int i = 0; i < VARIABLES; i++)
        s->env[kept++] = s->text[i];
    return AX_OK;
}

static enum ax_status make_argv(struct start *s, const struct ax_launch_options *o, int restart) {
    size_t n = 0;
    while (o->command[n])
        n++;
    AX_TRY(ax_alloc(&s->argv, n + 3, sizeof *s->argv));
    s->argv[0] = (char *)(uintptr_t) "axtrain";
    memcpy(s->argv + 1, o->command, n * sizeof *s->argv);
    if (restart > 0 && o->restart_word)
        s->argv[n + 1] = (char *)(uintptr_t)o->restart_word;
    return AX_OK;
}

/* In the child: only calls that are safe after a fork of a process with threads. Its own process
 * group, because Ctrl-C reaches it through the launcher; but a terminal gives its input only to the
 * launcher's. */
static void become(const struct start *s) {
    sigset_t none;
    if (!s->joins)
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == s->launcher) {
        if (s->null >= 0)
            dup2(s->null, STDIN_FILENO);
        for (int i = 0; i < 2; i++)
            if (s->streams[i] >= 0)
                dup2(s->streams[i], STDOUT_FILENO + i);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execve("/proc/self/exe", s->argv, s->env);
    }
    raise(SIGKILL);
}

/* Rank 0 writes where the launcher writes, unless all ranks' lines are prefixed. */
static enum ax_status open_streams(struct ax_launch_rank *r, bool all, int theirs[2]) {
    for (int i = 0; i < 2; i++) {
        struct ax_launch_stream *s = &r->streams[i];
        int ends[2];
        *s = (struct ax_launch_stream){.fd = -1, .target = all ? STDOUT_FILENO + i : -1};
        theirs[i] = -1;
        if (r->rank == 0 && !all)
            continue;
        if (pipe2(ends, O_CLOEXEC) != 0)
            return ax_error(AX_ERR_IO, "rank %d: cannot make a pipe: %s", r->rank, strerror(errno));
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
        s->fd = ends[0];
        theirs[i] = ends[1];
    }
    return AX_OK;
}

enum ax_status ax_launch_rank_start(struct ax_launch_rank *r, const struct ax_launch_options *o,
                                    const struct ax_launch_attempt *a) {
    struct start s = {.streams = {-1, -1}, .null = -1, .launcher = getpid()};
    enum ax_status st;
    s.joins = r->in_group = r->rank == 0 && isatty(STDIN_FILENO);
    if (r->rank != 0)
        s.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    AX_TRY_GOTO(make_env(&s, r, o, a), st, done);
    AX_TRY_GOTO(make_argv(&s, o, a->restart), st, done);
    AX_TRY_GOTO(open_streams(r, o->all_output, s.streams), st, done);
    const pid_t pid = fork();
    if (pid == 0)
        become(&s);
    if (pid < 0)
        st = ax_error(AX_ERR_FAILED, "rank %d: cannot start its process: %s", r->rank,
                      strerror(errno));
    else
        r->pid = pid;
done:
    for (int i = 0; i < 2; i++)
        if (s.streams[i] >= 0)
            close(s.streams[i]);
    if (s.null >= 0)
        close(s.null);
    ax_free(s.env);
    ax_free(s.argv);
    return st;
}

void ax_launch_rank_close(struct ax_launch_rank *r) {
    for (int i = 0; i < 2; i++)
        if (r->streams[i].fd >= 0)
            close(r->streams[i].fd);
}
