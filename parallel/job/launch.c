#include "parallel/job/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "parallel/job/elastic.h"
#include "parallel/job/notes.h"
#include "parallel/job/store.h"
#include "parallel/job/token.h"

bool ax_launch_started_this(void) {
    return getenv("AXTRAIN_PROGRESS_FD") != NULL;
}

/* ---- lines of ranks: prefixed with the rank, or held until it is known that they matter ---- */

static void print_line(int target, int rank, const char *line, size_t n) {
    char out[AX_LOG_LINE + 32];
    int len = snprintf(out, sizeof out, "[%d] %.*s\n", rank, (int)n, line);
    for (int at = 0; at < len;) {
        const ssize_t w = write(target, out + at, (size_t)(len - at));
        if (w < 0 && errno != EINTR)
            return; /* nobody reads it */
        at += w > 0 ? (int)w : 0;
    }
}

/* Keeps the last lines that fit. */
static void hold_line(struct ax_launch_stream *s, const char *line, size_t n) {
    while (s->n_held + n + 1 > sizeof s->held) {
        const char *end = memchr(s->held, '\n', s->n_held);
        const size_t first = end ? (size_t)(end - s->held) + 1 : s->n_held;
        memmove(s->held, s->held + first, s->n_held - first);
        s->n_held -= first;
    }
    memcpy(s->held + s->n_held, line, n);
    s->held[s->n_held + n] = '\n';
    s->n_held += n + 1;
}

static void take_line(struct ax_launch_stream *s, int rank, const char *line, size_t n) {
    if (s->target >= 0)
        print_line(s->target, rank, line, n);
    else
        hold_line(s, line, n);
}

static void take_lines(struct ax_launch_stream *s, int rank, bool last) {
    size_t at = 0;
    for (const char *end; (end = memchr(s->line + at, '\n', s->len - at));) {
        take_line(s, rank, s->line + at, (size_t)(end - s->line) - at);
        at = (size_t)(end - s->line) + 1;
    }
    const bool full = at == 0 && s->len == sizeof s->line - 1;
    if ((last || full) && s->len > at) {
        take_line(s, rank, s->line + at, s->len - at);
        at = s->len;
    }
    memmove(s->line, s->line + at, s->len - at);
    s->len -= at;
}

bool ax_launch_stream_read(struct ax_launch_stream *s, int rank) {
    const ssize_t n = read(s->fd, s->line + s->len, sizeof s->line - 1 - s->len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    s->len += n > 0 ? (size_t)n : 0;
    take_lines(s, rank, n <= 0);
    return n > 0;
}

void ax_launch_stream_tell(struct ax_launch_stream *s, int rank) {
    for (size_t at = 0; at < s->n_held;) {
        const char *line = s->held + at, *end = memchr(line, '\n', s->n_held - at);
        print_line(STDERR_FILENO, rank, line, (size_t)(end - line));
        at += (size_t)(end - line) + 1;
    }
    s->n_held = 0;
}

/* ---- one rank's process: its environment, its streams, and that it dies with the launcher ---- */

enum { VARIABLES = 11, NUMBERS = 9, MAX_TEXT = 320, MAX_WORDS = 16 };

struct start {
    char text[VARIABLES][MAX_TEXT], words[sizeof((struct ax_notes_mesh *)NULL)->words];
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

/* Where the store is. */
static const char *address_of(const struct ax_launch_options *o) {
    const bool loopback = !o->master_addr || (o->hosts == 1 && ax_net_is_any(o->master_addr));
    return loopback ? "127.0.0.1" : o->master_addr;
}

static enum ax_status make_env(struct start *s, const struct ax_launch_rank *r,
                               const struct ax_launch_options *o,
                               const struct ax_launch_attempt *a) {
    const struct {
        const char *name;
        int value;
    } numbers[NUMBERS] = {{"RANK", r->rank},
                          {"WORLD_SIZE", o->ranks * o->hosts},
                          {"LOCAL_RANK", r->local_rank},
                          {"LOCAL_WORLD_SIZE", o->ranks},
                          {"MASTER_PORT", a->port},
                          {"AXTRAIN_TOKEN_FD", a->token_fd},
                          {"AXTRAIN_PROGRESS_FD", a->progress_fd},
                          {"AXTRAIN_RESTART_COUNT", a->restart},
                          {"AXTRAIN_PLACE", r->place}};
    size_t n = 0, kept = 0;
    for (int i = 0; i < NUMBERS; i++)
        snprintf(s->text[i], MAX_TEXT, "%s=%d", numbers[i].name, numbers[i].value);
    snprintf(s->text[NUMBERS], MAX_TEXT, "MASTER_ADDR=%s", address_of(o));
    snprintf(s->text[NUMBERS + 1], MAX_TEXT, "AXTRAIN_ELASTIC=%s", a->memory ? a->memory : "");
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

static enum ax_status make_argv(struct start *s, const struct ax_launch_options *o,
                                const struct ax_launch_attempt *a) {
    size_t n = 0;
    while (o->command[n])
        n++;
    AX_TRY(ax_alloc(&s->argv, n + 2 + MAX_WORDS, sizeof *s->argv));
    s->argv[0] = (char *)(uintptr_t) "axtrain";
    memcpy(s->argv + 1, o->command, n * sizeof *s->argv);
    snprintf(s->words, sizeof s->words, "%s", a->words);
    char *rest = s->words;
    const size_t last = n + MAX_WORDS;
    for (char *word; n < last && (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            s->argv[++n] = word;
    return AX_OK;
}

/* In the child: only calls that are safe after a fork of a process with threads. Its own process
 * group, because Ctrl-C reaches it through the launcher; but a terminal gives its input only to the
 * launcher's. */
static void become_rank(const struct start *s) {
    if (!s->joins)
        setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == s->launcher) {
        if (s->null >= 0)
            dup2(s->null, STDIN_FILENO);
        for (int i = 0; i < 2; i++)
            if (s->streams[i] >= 0)
                dup2(s->streams[i], STDOUT_FILENO + i);
        ax_stop_block(); /* until it has handlers */
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

static enum ax_status start_rank(struct ax_launch_rank *r, const struct ax_launch_options *o,
                                 const struct ax_launch_attempt *a) {
    struct start s = {.streams = {-1, -1}, .null = -1, .launcher = getpid()};
    enum ax_status st;
    s.joins = r->in_group = r->rank == 0 && isatty(STDIN_FILENO);
    if (r->rank != 0)
        s.null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    AX_TRY_GOTO(make_env(&s, r, o, a), st, done);
    AX_TRY_GOTO(make_argv(&s, o, a), st, done);
    AX_TRY_GOTO(open_streams(r, o->all_output, s.streams), st, done);
    const pid_t pid = fork();
    if (pid == 0)
        become_rank(&s);
    if (pid < 0)
        st = ax_error(AX_ERR_FAILED, "rank %d: cannot start its process: %s", r->rank,
                      strerror(errno));
    else
        r->pid = pid;
    if (pid > 0 && !s.joins)
        (void)setpgid(
            pid, pid); /* as the child does: no signal to the group may come before there is one */
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

static void close_rank(struct ax_launch_rank *r) {
    for (int i = 0; i < 2; i++)
        if (r->streams[i].fd >= 0)
            close(r->streams[i].fd);
}

/* ---- the ranks of a job ---- */

/* The others hear of a lost rank from their connections; who has not ended by then is killed. */
static const double GRACE_SECONDS = 3, DRAIN_SECONDS = 0.5;
/* … unless ranks are writing what they have of the state. */
static const double WRITE_SECONDS = 60;

/* Restarts in a row without a new checkpoint. */
enum { MOST_IDLE = 2 };

static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { N_FORWARDED = sizeof forwarded / sizeof *forwarded };

struct job {
    const struct ax_launch_options *o; /* `now`: the caller's, but for the number of ranks */
    struct ax_launch_options now;
    struct ax_elastic elastic;
    char token[AX_TOKEN_MAX + 1];
    int signals;
    int passed_on; /* the last signal; 0: none */
    struct ax_launch_attempt attempt;
    int64_t saved; /* step of the newest checkpoint before this attempt */
    int idle;      /* attempts in a row that saved nothing */
    int restarts;  /* with the same ranks, of those allowed */
    char words[sizeof((struct ax_notes_mesh *)NULL)->words]; /* the attempt's */
    struct ax_store_server *server;
    struct ax_launch_rank *ranks; /* [o->ranks] */
    struct pollfd *polls;         /* [1 + 2·ranks] */
    double failed_at;             /* 0: no rank has failed */
    bool stopping;                /* a rank has ended because it was asked to */
};

/* ---- one rank's end ---- */

static bool ended_well(int status) {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return code == 0 || code == ax_status_info(AX_SAVED_REQUEUE)->exit_code ||
           code == ax_status_info(AX_INTERRUPTED)->exit_code;
}

static bool was_asked_to_stop(int status) {
    return WIFEXITED(status) && WEXITSTATUS(status) == ax_status_info(AX_SAVED_REQUEUE)->exit_code;
}

static enum ax_status status_of(int code) {
    for (enum ax_status st = AX_OK; st < AX_STATUS_COUNT; st++)
        if (ax_status_info(st)->exit_code == code)
            return st;
    return AX_ERR_FAILED;
}

/* Ranks that noticed the failure of another exit with AX_ERR_PEER, those that we killed by our
 * signal: the cause is the first of the others to end, or the first rank if several say the same. */
static int weigh_end(const struct ax_launch_rank *r) {
    if (r->killed)
        return 0;
    return WIFEXITED(r->status) && status_of(WEXITSTATUS(r->status)) == AX_ERR_PEER ? 1 : 2;
}

static struct ax_launch_rank *find_cause(const struct job *j) {
    struct ax_launch_rank *cause = NULL;
    for (int i = 0; i < j->o->ranks; i++) {
        struct ax_launch_rank *r = &j->ranks[i];
        if (!r->ended || ended_well(r->status))
            continue;
        if (!cause || weigh_end(r) > weigh_end(cause) ||
            (weigh_end(r) == weigh_end(cause) && r->status != cause->status &&
             r->ended_at < cause->ended_at))
            cause = r;
    }
    return cause;
}

/* A rank that was stopped until its end; NULL: none was. Those that only noticed that somebody is
 * missing blame each other. */
static const struct ax_launch_rank *find_stopped(const struct job *j) {
    for (int i = 0; i < j->o->ranks; i++)
        if (j->ranks[i].stopped != 0)
            return &j->ranks[i];
    return NULL;
}

/* Whether there is a checkpoint of this job. */
static bool has_saved(const struct job *j) {
    struct ax_notes notes;
    ax_notes_read(j->attempt.progress_fd, &notes);
    return notes.saved > 0;
}

/* The job's status, with one line. */
static enum ax_status judge_job(struct job *j) {
    struct ax_launch_rank *cause = find_cause(j);
    const struct ax_launch_rank *stopped;
    bool interrupted = false;
    if (cause && j->stopping && weigh_end(cause) < 2)
        cause = NULL; /* it only noticed that another was gone */
    for (int i = 0; i < j->o->ranks && !cause; i++) {
        const int status = j->ranks[i].status;
        interrupted |= WEXITSTATUS(status) == ax_status_info(AX_INTERRUPTED)->exit_code;
    }
    if (interrupted)
        return ax_error(AX_INTERRUPTED, "the ranks were interrupted");
    if (j->stopping && !cause)
        return ax_error(AX_SAVED_REQUEUE, "the ranks were asked to stop%s",
                        has_saved(j) ? ", and have saved what they had; the same command resumes"
                                     : "; run the same command again");
    if (!cause)
        return AX_OK;
    ax_launch_stream_tell(&cause->streams[1], cause->rank);
    if (weigh_end(cause) < 2 && (stopped = find_stopped(j)) != NULL)
        return ax_error(AX_ERR_PEER,
                        "rank %d (process %d) was stopped by signal %d (%s) and did not go on; the "
                        "others waited for it in vain",
                        stopped->rank, (int)stopped->pid, stopped->stopped,
                        strsignal(stopped->stopped));
    if (WIFSIGNALED(cause->status) && WTERMSIG(cause->status) == j->passed_on)
        return ax_error(j->passed_on == SIGINT ? AX_INTERRUPTED : AX_ERR_FAILED,
                        "the ranks were ended by signal %d (%s)", j->passed_on,
                        strsignal(j->passed_on));
    if (WIFSIGNALED(cause->status)) {
        char most[32];
        return ax_error(AX_ERR_PEER,
                        "rank %d (process %d) was killed by signal %d (%s); it had used up to %s",
                        cause->rank, (int)cause->pid, WTERMSIG(cause->status),
                        strsignal(WTERMSIG(cause->status)),
                        ax_format_bytes(most, sizeof most, (double)cause->memory));
    }
    const int code = WEXITSTATUS(cause->status);
    const enum ax_status st = status_of(code);
    return ax_error(st, "rank %d (process %d) exited with code %d (%s)", cause->rank,
                    (int)cause->pid, code, ax_status_info(st)->meaning);
}

/* ---- watching ---- */

/* A stopped rank cannot say so itself, and the others would wait for it. */
static void note_stop(struct ax_launch_rank *r) {
    r->stopped = WIFCONTINUED(r->status) ? 0 : WSTOPSIG(r->status);
    if (r->stopped == 0)
        ax_log_info("rank %d goes on", r->rank);
    else
        ax_log_warn("rank %d (process %d) was stopped by signal %d (%s); the others wait for it. "
                    "`kill -CONT %d` lets it go on",
                    r->rank, (int)r->pid, r->stopped, strsignal(r->stopped), (int)r->pid);
}

static void send_to(struct ax_launch_rank *r, int sig) {
    if (r->ended || r->pid == 0)
        return;
    r->killed |= sig == SIGKILL;
    kill(sig == SIGKILL && !r->in_group ? -r->pid : r->pid, sig);
}

static void send_all(struct job *j, int sig, bool from_terminal) {
    for (int i = 0; i < j->o->ranks; i++)
        if (!from_terminal || !j->ranks[i].in_group)
            send_to(&j->ranks[i], sig);
}

static void reap_ranks(struct job *j) {
    struct rusage used;
    for (int i = 0; i < j->o->ranks; i++) {
        struct ax_launch_rank *r = &j->ranks[i];
        if (r->ended || r->pid == 0 ||
            wait4(r->pid, &r->status, WNOHANG | WUNTRACED | WCONTINUED, &used) != r->pid)
            continue;
        if (!WIFEXITED(r->status) && !WIFSIGNALED(r->status)) {
            note_stop(r);
            continue;
        }
        r->ended = true;
        r->ended_at = ax_clock_now();
        r->memory = (uint64_t)used.ru_maxrss * 1024;
        if (!ended_well(r->status) && j->failed_at == 0)
            j->failed_at = r->ended_at;
        if (was_asked_to_stop(r->status) && !j->stopping) {
            j->stopping =
                true; /* the others may wait for it, if it was the only one that was asked */
            if (j->passed_on == 0)
                send_all(j, SIGUSR1, false);
        }
    }
}

/* They would not end by themselves. */
static void kill_stopped(struct job *j) {
    for (int i = 0; i < j->o->ranks; i++)
        if (j->ranks[i].stopped != 0)
            send_to(&j->ranks[i], SIGKILL);
}

static void take_signals(struct job *j) {
    struct signalfd_siginfo info;
    while (read(j->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) {
            j->passed_on = (int)info.ssi_signo;
            send_all(j, j->passed_on, info.ssi_code == SI_KERNEL);
        }
}

static bool all_ended(const struct job *j, double *last) {
    for (int i = 0; i < j->o->ranks; i++) {
        if (!j->ranks[i].ended && j->ranks[i].pid != 0)
            return false;
        *last = j->ranks[i].ended_at > *last ? j->ranks[i].ended_at : *last;
    }
    return true;
}

/* Polls signals and streams for a moment, or until something comes. True while a stream is open. */
static bool poll_once(struct job *j, int ms) {
    bool open = false;
    j->polls[0] = (struct pollfd){.fd = j->signals, .events = POLLIN};
    for (int i = 0; i < 2 * j->o->ranks; i++) {
        const int fd = j->ranks[i / 2].streams[i % 2].fd;
        j->polls[1 + i] = (struct pollfd){.fd = fd, .events = POLLIN}; /* −1 is skipped */
        open |= fd >= 0;
    }
    if (poll(j->polls, 1 + 2 * (nfds_t)j->o->ranks, ms) <= 0)
        return open;
    for (int i = 0; i < 2 * j->o->ranks; i++) {
        struct ax_launch_stream *s = &j->ranks[i / 2].streams[i % 2];
        if (j->polls[1 + i].revents == 0 || ax_launch_stream_read(s, j->ranks[i / 2].rank))
            continue;
        close(s->fd);
        s->fd = -1;
    }
    take_signals(j);
    return open;
}

static bool still_writes(const struct job *j) {
    struct ax_notes notes;
    bool writes = false;
    ax_notes_read(j->attempt.progress_fd, &notes);
    for (int i = 0; i < j->o->ranks && i < AX_NOTES_RANKS; i++)
        writes |= notes.writes[i] && !j->ranks[i].ended;
    return writes;
}

static void end_slow_ranks(struct job *j) {
    const double late = j->failed_at > 0 ? ax_clock_now() - j->failed_at : 0;
    if (late > WRITE_SECONDS || (late > GRACE_SECONDS && !still_writes(j)))
        send_all(j, SIGKILL, false);
}

static void watch_ranks(struct job *j) {
    double last = 0;
    bool open = true;
    while (!all_ended(j, &last)) {
        (void)poll_once(j, 200);
        reap_ranks(j);
        if (j->failed_at > 0)
            kill_stopped(j);
        end_slow_ranks(j);
    }
    while (open && ax_clock_now() < last + DRAIN_SECONDS) /* a rank's children may keep them open */
        open = poll_once(j, 20);
}

/* ---- a job ---- */

static enum ax_status serve_store(struct job *j) {
    unsigned char key[AX_STORE_KEY_BYTES];
    const struct ax_launch_options *o = j->o;
    char job[16];
    int fd;
    j->attempt.port = o->master_port;
    if (o->host != 0)
        return AX_OK;
    if (o->hosts > 1)
        ax_net_warn_loopback(address_of(o));
    AX_TRY(ax_net_listen(address_of(o), o->master_port, 1, &fd, &j->attempt.port));
    snprintf(job, sizeof job, "%d", j->attempt.restart);
    ax_token_key(key, j->token, job);
    return ax_store_serve(&j->server, fd, o->ranks * o->hosts, key, o->timeout);
}

static enum ax_status attempt_job(struct job *j) {
    const struct ax_launch_options *o = j->o;
    enum ax_status st = serve_store(j);
    memset(j->ranks, 0, (size_t)o->ranks * sizeof *j->ranks);
    for (int i = 0; i < o->ranks; i++)
        j->ranks[i].streams[0].fd = j->ranks[i].streams[1].fd = -1;
    j->failed_at = 0;
    j->stopping = false;
    for (int i = 0; i < o->ranks && st == AX_OK; i++) {
        j->ranks[i].rank = o->host * o->ranks + i;
        j->ranks[i].local_rank = i;
        j->ranks[i].place = j->elastic.places[i];
        st = start_rank(&j->ranks[i], o, &j->attempt);
    }
    if (st != AX_OK)
        send_all(j, SIGKILL, false);
    watch_ranks(j);
    if (st == AX_OK)
        st = judge_job(j);
    for (int i = 0; i < o->ranks; i++)
        close_rank(&j->ranks[i]);
    ax_store_stop(j->server, 0);
    j->server = NULL;
    return st;
}

/* An elastic job that has lost ranks goes on with those that are left. */
static bool shrink_job(struct job *j, struct ax_notes *notes, enum ax_status *st) {
    struct ax_error_record cause;
    struct ax_launch_attempt *a = &j->attempt;
    const struct ax_launch_rank *first = find_cause(j);
    const int before = j->o->ranks;
    const char *words;
    if (!notes->elastic || !first || ax_elastic_lose(&j->elastic, before, j->ranks) == 0)
        return false;
    ax_error_save(&cause, *st);
    if (!ax_elastic_next(&j->elastic, notes, &j->now.ranks, &words)) {
        *st = ax_error(*st, "%s; elastic: %d left, and no mesh of as few ranks has the same batch",
                       cause.text, j->elastic.n_places);
        return false;
    }
    if (words)
        snprintf(j->words, sizeof j->words, "%s", words);
    a->words = j->words;
    ax_log_warn("%s, in step %lld; elastic: %d of %d ranks go on%s%s", cause.text,
                (long long)notes->done[first->rank] + 1, j->now.ranks, before,
                words ? " with " : "", words ? words : ", with a spare");
    return true;
}

/* Steps done and writers are those of an attempt. */
static void begin_notes(struct job *j, struct ax_notes *notes) {
    for (int i = 0; i < AX_NOTES_RANKS; i++)
        notes->reached = notes->done[i] > notes->reached ? notes->done[i] : notes->reached;
    memset(notes->done, 0, sizeof notes->done);
    memset(notes->writes, 0, sizeof notes->writes);
    ax_notes_write(j->attempt.progress_fd, notes);
}

/* What is wrong with the configuration or the data would be wrong again, as would what two restarts
 * did not get past. */
static bool may_restart(struct job *j, enum ax_status *st) {
    struct ax_notes notes;
    if ((*st != AX_ERR_PEER && *st != AX_ERR_FAILED) || j->passed_on != 0)
        return false;
    ax_notes_read(j->attempt.progress_fd, &notes);
    if (!notes.elastic && j->restarts == j->o->restarts)
        return false;
    j->idle = notes.saved > j->saved ? 0 : j->idle + (j->attempt.restart > 0);
    j->saved = notes.saved;
    if (j->idle >= MOST_IDLE) {
        struct ax_error_record cause;
        ax_error_save(&cause, *st);
        *st = ax_error(*st,
                       "%s; %d restarts saved no new checkpoint, so the job is not started again",
                       cause.text, MOST_IDLE);
        return false;
    }
    if (!shrink_job(j, &notes, st)) {
        if (j->restarts == j->o->restarts)
            return false;
        ax_log_warn("%s; starting again (%d of %d)", ax_error_text(), ++j->restarts,
                    j->o->restarts);
    }
    ax_error_clear();
    begin_notes(j, &notes);
    j->attempt.restart++;
    return true;
}

static enum ax_status open_token(struct job *j) {
    const struct ax_launch_options *o = j->o;
    if (o->hosts > 1)
        AX_TRY(ax_token_find(j->token));
    if (o->hosts > 1 && !*j->token)
        return ax_token_needed(o->master_addr);
    if (o->hosts == 1)
        AX_TRY(ax_token_random(j->token));
    const ssize_t n = (ssize_t)strlen(j->token);
    j->attempt.progress_fd = ax_notes_create();
    j->attempt.token_fd = memfd_create("token", 0); /* inherited, and nowhere on a disk */
    if (j->attempt.token_fd < 0 || write(j->attempt.token_fd, j->token, (size_t)n) != n)
        return ax_error(AX_ERR_IO, "cannot make a descriptor for the token: %s", strerror(errno));
    return AX_OK;
}

static enum ax_status open_signals(struct job *j, sigset_t *before) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int i = 0; i < N_FORWARDED; i++)
        sigaddset(&set, forwarded[i]);
    sigprocmask(SIG_BLOCK, &set, before);
    j->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return j->signals >= 0 ? AX_OK
                           : ax_error(AX_ERR_IO, "cannot watch signals: %s", strerror(errno));
}

enum ax_status ax_launch_run(const struct ax_launch_options *o) {
    struct job j = {.now = *o,
                    .signals = -1,
                    .elastic = {.lock = -1},
                    .attempt = {.token_fd = -1, .progress_fd = -1, .words = ""}};
    sigset_t before;
    enum ax_status st;
    AX_TRY_GOTO(open_signals(&j, &before), st, done);
    j.o = &j.now;
    AX_TRY_GOTO(open_token(&j), st, done);
    AX_TRY_GOTO(ax_elastic_open(&j.elastic, o->ranks, o->spares, o->hosts == 1 && o->trains), st,
                done);
    j.attempt.memory = j.elastic.dir;
    AX_TRY_GOTO(ax_alloc(&j.ranks, (size_t)o->ranks, sizeof *j.ranks), st, done);
    AX_TRY_GOTO(ax_alloc(&j.polls, 1 + 2 * (size_t)o->ranks, sizeof *j.polls), st, done);
    st = attempt_job(&j);
    while (may_restart(&j, &st))
        st = attempt_job(&j);
done:
    ax_elastic_close(&j.elastic);
    if (j.attempt.token_fd >= 0)
        close(j.attempt.token_fd);
    if (j.attempt.progress_fd >= 0)
        close(j.attempt.progress_fd);
    if (j.signals >= 0)
        close(j.signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    ax_free(j.ranks);
    ax_free(j.polls);
    return st;
}
