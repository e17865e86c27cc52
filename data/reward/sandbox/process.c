#include "data/reward/sandbox/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/proc.h"
#include "data/reward/sandbox/frame.h"

#define SUFFIX ".module"
enum { FIRST_SOCKET = 3 };

static const char *program_of(const struct ax_sandbox_options *o) {
    return o->program ? o->program : "/proc/self/exe";
}

/* ---- a process with sockets and nothing else of ours ---- */

static enum ax_status spawn(struct ax_sandbox_process *p, const struct ax_sandbox_options *o,
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
static enum ax_status make_sockets(struct ax_sandbox_process *p, int *theirs, int n) {
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
static enum ax_status wait_ready(struct ax_sandbox_process *p) {
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

/* With 0 threads, to compile; it has a socket then, too. */
static enum ax_status start(struct ax_sandbox_process *p, const struct ax_sandbox_options *o,
                            int threads) {
    int theirs[AX_SANDBOX_MAX_THREADS] = {0};
    enum ax_status st = make_sockets(p, theirs, threads ? threads : 1);
    if (st == AX_OK)
        st = spawn(p, o, theirs, threads);
    close_all(theirs, p->n);
    if (st == AX_OK)
        st = wait_ready(p);
    if (st != AX_OK)
        (void)ax_sandbox_process_end(p);
    return st;
}

enum ax_status ax_sandbox_process_start(struct ax_sandbox_process *p,
                                        const struct ax_sandbox_options *o) {
    return start(p, o, o->threads);
}

int ax_sandbox_process_end(struct ax_sandbox_process *p) {
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

void ax_sandbox_process_free(struct ax_sandbox_process *p) {
    ax_free(p->module);
    p->module = NULL;
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
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir)) != NULL;) {
        const size_t n = strlen(e->d_name);
        if (n == strlen(name) && strncmp(e->d_name, name, PREFIX) == 0 &&
            strcmp(e->d_name, name) != 0)
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir)
        (void)closedir(dir);
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

enum ax_status ax_sandbox_process_prepare(struct ax_sandbox_process *p,
                                          const struct ax_sandbox_options *o) {
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
        st = start(p, o, 0);
        (void)ax_sandbox_process_end(p);
        if (ax_path_exists(p->module))
            remove_older(o->cache, p->module);
    }
    ax_lock_drop(&lock);
    ax_free(lock_path);
    return st;
}
