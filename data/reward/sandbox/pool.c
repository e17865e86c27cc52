/* The owner of a worker: starts the process, gives out jobs, collects results, restarts. One thread, which
 * waits for all sockets. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/hash/hash.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "data/reward/sandbox/frame.h"
#include "data/reward/sandbox/sandbox.h"

/* ---- the worker: a process with sockets and nothing else of ours ---- */

/* A socket to each of its threads. */
struct process {
    pid_t pid; /* 0: none */
    int sockets[AX_SANDBOX_MAX_THREADS];
    int n;
    char *module; /* path of the compiled interpreter */
};

#define SUFFIX ".module"
enum { FIRST_SOCKET = 3 };

static const char *program_of(const struct ax_sandbox_options *o) {
    return o->program ? o->program : "/proc/self/exe";
}

static enum ax_status spawn(struct process *p, const struct ax_sandbox_options *o,
                            const int *theirs, int threads) {
    const char *zip = o->python.library ? o->python.library : "-";
    char count[16], *const none[] = {NULL};
    (void)snprintf(count, sizeof count, "%d", threads);
    const char *const argv[] = {"axtrain", "sandbox", "worker", o->wasmtime, o->python.wasm,
                                zip,       p->module, count,    NULL};
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for a process");
    int bad = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0);
    for (int fd = 1; fd <= 2 && !bad; fd++)
        bad = posix_spawn_file_actions_adddup2(&actions, 0, fd);
    for (int i = 0; i < p->n && !bad; i++) /* their numbers are above all of these */
        bad = posix_spawn_file_actions_adddup2(&actions, theirs[i], FIRST_SOCKET + i);
    bad = bad ? bad : posix_spawn_file_actions_addclosefrom_np(&actions, FIRST_SOCKET + p->n);
    bad = bad ? bad
              : posix_spawn(&p->pid, program_of(o), &actions, NULL, (char *const *)(uintptr_t)argv,
                            none);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (bad) {
        p->pid = 0;
        return ax_error(AX_ERR_FAILED, "cannot start the sandbox's worker: %s", strerror(bad));
    }
    return AX_OK;
}

static void close_all(int *fds, int n) {
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            (void)close(fds[i]);
}

/* Ours, and theirs at numbers that no theirs will get in the process. */
static enum ax_status make_sockets(struct process *p, int *theirs, int n) {
    p->n = 0;
    for (int i = 0; i < n; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            return ax_error(AX_ERR_FAILED, "cannot make a socket for the sandbox: %m");
        p->sockets[i] = pair[0];
        theirs[i] = fcntl(pair[1], F_DUPFD_CLOEXEC, FIRST_SOCKET + AX_SANDBOX_MAX_THREADS);
        (void)close(pair[1]);
        p->n = i + 1;
        if (theirs[i] < 0)
            return ax_error(AX_ERR_FAILED, "cannot make a socket for the sandbox: %m");
    }
    return AX_OK;
}

/* The worker's first frame. */
static enum ax_status wait_ready(struct process *p) {
    struct ax_frame *f;
    char data[4096];
    size_t n = 0, size = 0;
    while (size == 0 || n < size) {
        const ssize_t got = recv(p->sockets[0], data + n, sizeof data - n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ax_error(AX_ERR_FAILED, "the sandbox's worker died while it started");
        n += (size_t)got;
        size = ax_frame_size(data, n);
        if (size > sizeof data)
            return ax_error(AX_ERR_FAILED, "the sandbox's worker is another program");
    }
    AX_TRY(ax_alloc(&f, 1, sizeof *f));
    enum ax_status st = ax_frame_get(f, data, n);
    if (st == AX_OK && (f->numbers[0] >= AX_STATUS_COUNT || f->n_parts != 1))
        st = ax_error(AX_ERR_FAILED, "the sandbox's worker is another program");
    if (st == AX_OK && f->numbers[0] != AX_OK)
        st = ax_error((enum ax_status)f->numbers[0], "%.*s", (int)f->parts[0].n, f->parts[0].data);
    ax_free(f);
    return st;
}

/* Kills it, if it is there; returns how it ended (waitpid's status). */
static int end_process(struct process *p) {
    int how = 0;
    close_all(p->sockets, p->n);
    p->n = 0;
    if (p->pid > 0) {
        /* it may have ended by itself: that is what is reported then */
        if (waitpid(p->pid, &how, WNOHANG) == 0) {
            (void)kill(p->pid, SIGKILL);
            while (waitpid(p->pid, &how, 0) < 0 && errno == EINTR)
                ;
        }
        p->pid = 0;
    }
    return how;
}

static void free_process(struct process *p) {
    ax_free(p->module);
    p->module = NULL;
}

/* Starts the worker, and waits until it is ready. With 0 threads, to compile; it has a socket then, too. */
static enum ax_status start_process(struct process *p, const struct ax_sandbox_options *o,
                                    int threads) {
    int theirs[AX_SANDBOX_MAX_THREADS] = {0};
    enum ax_status st = make_sockets(p, theirs, threads ? threads : 1);
    if (st == AX_OK)
        st = spawn(p, o, theirs, threads);
    close_all(theirs, p->n);
    if (st == AX_OK)
        st = wait_ready(p);
    if (st != AX_OK)
        (void)end_process(p);
    return st;
}

/* ---- the cache ---- */

static enum ax_status hash_file(const char *path, uint64_t *hash) {
    struct ax_mapping m;
    if (!path)
        return AX_OK;
    AX_TRY(ax_map_file(&m, path));
    *hash = ax_hash64(m.data, m.len, *hash);
    ax_unmap_file(&m);
    return AX_OK;
}

/* What of the machine native code depends on: the line of /proc/cpuinfo that lists its features. */
static uint64_t hash_cpu(uint64_t hash) {
    char text[8192];
    if (!ax_proc_read("/proc/cpuinfo", text, sizeof text))
        return hash;
    const char *line = strstr(text, "\nflags");
    line = line ? line : strstr(text, "\nFeatures");
    return line ? ax_hash64(line, strcspn(line + 1, "\n") + 1, hash) : hash;
}

/* "INTERPRETER-REST.module": what the interpreter is, and all else that the native code depends on.
 * This program takes the snapshot, so that another build of it makes another. */
static enum ax_status module_path(const struct ax_sandbox_options *o, char **out) {
    uint64_t python = 0, rest = 0;
    AX_TRY(hash_file(o->python.wasm, &python));
    AX_TRY(hash_file(o->python.library, &rest));
    AX_TRY(hash_file(o->wasmtime, &rest));
    AX_TRY(hash_file(program_of(o), &rest));
    return ax_sprintf(out, "%s/%016llx-%016llx" SUFFIX, o->cache, (unsigned long long)python,
                      (unsigned long long)hash_cpu(rest));
}

/* Of an interpreter, the module that was compiled last is kept. */
static void remove_older(const char *folder, const char *module) {
    enum { PREFIX = 17 };
    const char *name = strrchr(module, '/') + 1;
    struct ax_dir d;
    ax_dir_open(&d, folder);
    for (const char *other; (other = ax_dir_next(&d)) != NULL;)
        if (strlen(other) == strlen(name) && strncmp(other, name, PREFIX) == 0 &&
            strcmp(other, name) != 0)
            (void)unlinkat(dirfd(d.dir), other, 0);
    ax_dir_end_or_warn(&d, AX_OK);
}

/* What is loaded from here is run as code. */
static enum ax_status check_private(const char *folder) {
    struct stat s;
    if (stat(folder, &s) != 0)
        return ax_error(AX_ERR_IO, "%s: %m", folder);
    if (s.st_uid != geteuid() || (s.st_mode & 077) != 0)
        return ax_error(AX_ERR_CONFIG,
                        "%s: code is kept here, so it must belong to you and be closed to others "
                        "(chmod 700)",
                        folder);
    return AX_OK;
}

static enum ax_status make_private(const char *folder) {
    if (ax_path_exists(folder))
        return check_private(folder);
    AX_TRY(ax_mkdir_parents_private(folder));
    if (chmod(folder, 0700) != 0)
        return ax_error(AX_ERR_IO, "%s: %m", folder);
    return check_private(folder);
}

/* Sees to it that the compiled interpreter is in the cache. Takes seconds if it is not. */
static enum ax_status prepare_module(struct process *p, const struct ax_sandbox_options *o) {
    struct ax_lock lock = {0};
    char *lock_path;
    enum ax_status st = AX_OK;
    AX_TRY(make_private(o->cache));
    if (!p->module)
        AX_TRY(module_path(o, &p->module));
    if (ax_path_exists(p->module))
        return AX_OK;
    AX_TRY(ax_path_join(&lock_path, o->cache, "lock"));
    ax_lock_take(&lock, lock_path, AX_LOCK_EXCLUSIVE);
    if (!ax_path_exists(p->module)) {
        ax_log_info("sandbox: compiling the interpreter, once (about half a minute)");
        st = start_process(p, o, 0);
        (void)end_process(p);
        if (ax_path_exists(p->module))
            remove_older(o->cache, p->module);
    }
    ax_lock_drop(&lock);
    ax_free(lock_path);
    return st;
}

/* ---- the owner ---- */

/* A job in progress, and what was sent and received of it. */
struct lane {
    size_t job; /* NO_JOB: none */
    struct ax_buf in, out;
    size_t sent;
    double deadline;
};
#define NO_JOB SIZE_MAX

/* A program that kills its worker is tried again, alone; the second time is its verdict. Where the
 * worker was killed by someone else, that many times. */
enum { MAX_DEATHS = 2, MAX_KILLS = 20 };
struct ending {
    int deaths, kills;
    bool done;
};

enum { N_STRINGS = 5 };

struct ax_sandbox {
    struct ax_sandbox_options options;
    char *strings[N_STRINGS]; /* that the options refer to */
    struct process process;
    atomic_int ready_pid; /* 0 while the worker starts */
    struct lane lanes[AX_SANDBOX_MAX_THREADS];
    struct ax_sandbox_stats stats;
    double *times; /* [n_times] of the runs that stats count */
    size_t n_times, times_cap;
    struct ax_frame frame; /* large */
    /* ---- of a call of ax_sandbox_run ---- */
    const struct ax_sandbox_job *jobs;
    struct ax_sandbox_result *results;
    struct ending *endings; /* [n] */
    size_t n, next, done;
};

static enum ax_status start(struct ax_sandbox *s) {
    AX_TRY(start_process(&s->process, &s->options, s->options.threads));
    s->ready_pid = s->process.pid;
    return AX_OK;
}

static int end(struct ax_sandbox *s) {
    s->ready_pid = 0;
    return end_process(&s->process);
}

/* What is in the cache may be for another processor: then it is compiled again. */
static enum ax_status start_first(struct ax_sandbox *s) {
    AX_TRY(prepare_module(&s->process, &s->options));
    const enum ax_status st = start(s);
    if (st != AX_ERR_DATA)
        return st;
    if (ax_path_exists(s->process.module)) /* or another build removed it */
        AX_TRY(ax_unlink(s->process.module));
    AX_TRY(prepare_module(&s->process, &s->options));
    return start(s);
}

/* Strings of the options: workers are started again later. */
static enum ax_status own_options(struct ax_sandbox *s) {
    struct ax_sandbox_options *o = &s->options;
    const char **const strings[N_STRINGS] = {&o->program, &o->wasmtime, &o->python.wasm,
                                             &o->python.library, &o->cache};
    for (int i = 0; i < N_STRINGS; i++) {
        if (*strings[i])
            AX_TRY(ax_strdup(&s->strings[i], *strings[i]));
        *strings[i] = s->strings[i];
    }
    return AX_OK;
}

enum ax_status ax_sandbox_open(struct ax_sandbox **out, const struct ax_sandbox_options *o) {
    struct ax_sandbox *s;
    AX_ASSERT(o->threads > 0 && o->threads <= AX_SANDBOX_MAX_THREADS);
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->options = *o;
    for (int i = 0; i < AX_SANDBOX_MAX_THREADS; i++)
        s->lanes[i].job = NO_JOB;
    enum ax_status st = own_options(s);
    if (st == AX_OK)
        st = start_first(s);
    if (st == AX_OK)
        *out = s;
    else
        ax_sandbox_close(s);
    return st;
}

void ax_sandbox_close(struct ax_sandbox *s) {
    if (!s)
        return;
    (void)end(s);
    free_process(&s->process);
    for (int i = 0; i < AX_SANDBOX_MAX_THREADS; i++) {
        ax_buf_free(&s->lanes[i].in);
        ax_buf_free(&s->lanes[i].out);
    }
    for (int i = 0; i < N_STRINGS; i++)
        ax_free(s->strings[i]);
    ax_free(s->times);
    ax_free(s);
}

int ax_sandbox_pid(const struct ax_sandbox *s) {
    return s->ready_pid;
}

/* ---- results ---- */

static enum ax_status note_time(struct ax_sandbox *s, double seconds) {
    AX_TRY(ax_grow(&s->times, s->n_times, &s->times_cap, sizeof *s->times));
    s->times[s->n_times++] = seconds;
    return AX_OK;
}

static enum ax_status finish(struct ax_sandbox *s, size_t job) {
    const struct ax_sandbox_result *r = &s->results[job];
    s->endings[job].done = true;
    s->done++;
    s->stats.runs++;
    s->stats.verdicts[r->verdict]++;
    return note_time(s, r->seconds);
}

/* A verdict of the owner: no test has passed. */
static enum ax_status fail(struct ax_sandbox *s, size_t job, enum ax_verdict verdict,
                           double seconds) {
    struct ax_sandbox_result *r = &s->results[job];
    const struct ax_sandbox_job *j = &s->jobs[job];
    *r = (struct ax_sandbox_result){.verdict = verdict, .seconds = seconds};
    for (size_t i = 1; j->kind == AX_SANDBOX_CHECK && i < j->n_parts; i++)
        AX_TRY(ax_buf_append(&r->passed, "", 1));
    return finish(s, job);
}

/* ---- restarting ---- */

static void clear(struct lane *l) {
    l->job = NO_JOB;
    l->in.len = l->out.len = l->sent = 0;
}

/* Whoever kills workers may kill one that starts. */
static enum ax_status start_again(struct ax_sandbox *s) {
    enum { TRIES = 10 };
    enum ax_status st = AX_ERR_FAILED;
    for (int i = 0; i < TRIES && st == AX_ERR_FAILED; i++)
        st = start(s);
    return st;
}

/* The worker is gone, killed by us because of `stuck`, or not (NO_JOB). */
static enum ax_status restart(struct ax_sandbox *s, size_t stuck) {
    const bool ours = stuck != NO_JOB;
    const int how = end(s);
    const bool killed = WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL;
    s->stats.restarts++;
    for (int i = 0; i < s->options.threads; i++) {
        struct lane *l = &s->lanes[i];
        const size_t job = l->job;
        clear(l);
        if (job == NO_JOB)
            continue;
        struct ending *e = &s->endings[job];
        e->kills += !ours && killed;
        e->deaths += !ours && !killed;
        if (job == stuck)
            AX_TRY(fail(s, job, AX_VERDICT_TIME, s->options.seconds));
        else if (e->deaths >= MAX_DEATHS || e->kills >= MAX_KILLS)
            AX_TRY(fail(s, job, AX_VERDICT_CRASH, 0));
        else if (job < s->next)
            s->next = job; /* those after it that are done are left out */
    }
    return start_again(s);
}

/* ---- giving out ---- */

static int running(const struct ax_sandbox *s, size_t *suspects) {
    int n = 0;
    *suspects = 0;
    for (int i = 0; i < s->options.threads; i++) {
        const size_t job = s->lanes[i].job;
        n += job != NO_JOB;
        *suspects += job != NO_JOB && s->endings[job].deaths > 0;
    }
    return n;
}

static bool is_running(const struct ax_sandbox *s, size_t job) {
    for (int i = 0; i < s->options.threads; i++)
        if (s->lanes[i].job == job)
            return true;
    return false;
}

/* Moves `next` to a job that has to be run. */
static bool find_next(struct ax_sandbox *s) {
    while (s->next < s->n && (s->endings[s->next].done || is_running(s, s->next)))
        s->next++;
    return s->next < s->n;
}

/* Gives the lane the next job. A program whose worker died while it ran is run alone, so that the
 * second time it is the only one to blame. */
static enum ax_status give(struct ax_sandbox *s, struct lane *l) {
    size_t suspects;
    const int n = running(s, &suspects);
    if (!find_next(s) || suspects > 0 || (s->endings[s->next].deaths > 0 && n > 0))
        return AX_OK;
    clear(l);
    AX_TRY(ax_frame_put_job(&l->out, &s->jobs[s->next]));
    l->job = s->next++;
    l->deadline = ax_clock_now() + s->options.seconds;
    return AX_OK;
}

/* ---- talking ---- */

/* false: the worker is gone, or talks nonsense. */
static bool send_more(struct lane *l, int socket) {
    const ssize_t n =
        send(socket, l->out.data + l->sent, l->out.len - l->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    l->sent += (size_t)n;
    return true;
}

static enum ax_status receive(struct ax_sandbox *s, struct lane *l, int socket, bool *alive) {
    char data[65536];
    const ssize_t n = recv(socket, data, sizeof data, MSG_DONTWAIT);
    *alive = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
    if (n <= 0)
        return AX_OK;
    AX_TRY(ax_buf_append(&l->in, data, (size_t)n));
    const size_t size = ax_frame_size(l->in.data, l->in.len);
    if (l->job == NO_JOB || size > AX_FRAME_MAX || (size > 0 && l->in.len > size)) {
        *alive = false;
        return AX_OK;
    }
    if (size == 0 || l->in.len < size)
        return AX_OK;
    enum ax_status st = ax_frame_get(&s->frame, l->in.data, size);
    if (st == AX_OK)
        st = ax_frame_get_result(&s->results[l->job], &s->frame, &s->jobs[l->job]);
    if (st == AX_ERR_DATA) {
        *alive = false;
        ax_error_clear();
        return AX_OK;
    }
    AX_TRY(st);
    const size_t job = l->job;
    clear(l);
    return finish(s, job);
}

/* Waits for something to happen, and handles it. */
static enum ax_status step(struct ax_sandbox *s) {
    struct pollfd fds[AX_SANDBOX_MAX_THREADS];
    struct ax_watch *watch = s->options.watch ? *s->options.watch : NULL;
    const int n = s->options.threads;
    AX_TRY(ax_watch_look(watch));
    double first = ax_watch_until(watch, ax_clock_now() + 60);
    for (int i = 0; i < n; i++) {
        struct lane *l = &s->lanes[i];
        if (l->job == NO_JOB)
            AX_TRY(give(s, l));
        const bool sends = l->job != NO_JOB && l->sent < l->out.len;
        fds[i] = (struct pollfd){s->process.sockets[i], (short)(POLLIN | (sends ? POLLOUT : 0)), 0};
        first = l->job != NO_JOB && l->deadline < first ? l->deadline : first;
    }
    const double left = first - ax_clock_now();
    if (poll(fds, (nfds_t)n, left > 0 ? (int)(left * 1e3) + 1 : 0) < 0 && errno != EINTR)
        return ax_error(AX_ERR_FAILED, "cannot wait for the sandbox: %m");
    bool alive = true;
    for (int i = 0; i < n && alive; i++) {
        if (fds[i].revents & POLLOUT)
            alive = send_more(&s->lanes[i], fds[i].fd);
        if (alive && (fds[i].revents & (POLLIN | POLLHUP | POLLERR)))
            AX_TRY(receive(s, &s->lanes[i], fds[i].fd, &alive));
    }
    if (!alive)
        return restart(s, NO_JOB);
    for (int i = 0; i < n; i++)
        if (s->lanes[i].job != NO_JOB && s->lanes[i].deadline < ax_clock_now())
            return restart(s, s->lanes[i].job);
    return AX_OK;
}

enum ax_status ax_sandbox_run(struct ax_sandbox *s, const struct ax_sandbox_job *jobs, size_t n,
                              struct ax_sandbox_result *results) {
    const double start = ax_clock_now();
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&s->endings, n, sizeof *s->endings));
    s->jobs = jobs;
    s->results = results;
    s->n = n;
    s->next = s->done = 0;
    if (s->process.pid == 0)
        st = start_again(s);
    while (s->done < n && st == AX_OK)
        st = step(s);
    for (int i = 0; i < s->options.threads; i++)
        clear(&s->lanes[i]);
    if (st != AX_OK) /* it may still run what nobody waits for */
        (void)end(s);
    ax_free(s->endings);
    s->endings = NULL;
    s->stats.seconds += ax_clock_now() - start;
    return st;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void ax_sandbox_take_stats(struct ax_sandbox *s, struct ax_sandbox_stats *out) {
    *out = s->stats;
    if (s->n_times > 0) {
        qsort(s->times, s->n_times, sizeof *s->times, by_value);
        out->p50 = s->times[(s->n_times - 1) / 2];
        out->p99 = s->times[(s->n_times - 1) * 99 / 100];
    }
    s->stats = (struct ax_sandbox_stats){0};
    s->n_times = 0;
}
