/* The worker: a process with a socket for each of its threads, from descriptor 3.
 *
 *     axtrain sandbox worker LIBRARY INTERPRETER ZIP|- MODULE THREADS
 *
 * With 0 threads it writes the compiled interpreter to MODULE, and ends; else it loads it, confines
 * itself, and each thread answers the jobs that come through its socket until that is closed. Its
 * first frame, through the first socket, says that it is ready, or why not. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash/hash.h"
#include "base/io.h"
#include "base/threads.h"
#include "data/reward/sandbox/frame.h"
#include "data/reward/sandbox/pristine.h"
#include "data/reward/sandbox/sandbox.h"

/* ---- the system calls that a worker may make once it runs programs: memory without new code, the
 * sockets that it has, waiting, and its own end ---- */

#if defined __x86_64__
#define MACHINE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define MACHINE AUDIT_ARCH_AARCH64
#endif

static const int allowed[] = {
    SYS_read,         SYS_write,          SYS_pread64,
    SYS_futex,        SYS_madvise,        SYS_munmap,
    SYS_brk,          SYS_mremap,         SYS_close,
    SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_rt_sigaction,
    SYS_tgkill,       SYS_gettid,         SYS_getpid,
    SYS_sigaltstack,  SYS_exit,           SYS_exit_group,
    SYS_sched_yield,  SYS_clock_gettime,  SYS_restart_syscall,
    SYS_getrandom,
};
enum { N_ALLOWED = sizeof allowed / sizeof *allowed };

/* Calls whose third argument must not make memory executable. */
static const int guarded[] = {SYS_mmap, SYS_mprotect};
enum { N_GUARDED = sizeof guarded / sizeof *guarded };

#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define RETURN(what)          BPF_STMT(BPF_RET | BPF_K, what)
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(value), yes, no)
#define HAS(bits, yes, no)    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, (unsigned)(bits), yes, no)

/* For all threads of the process, for ever. Any other system call kills it. */
static enum ax_status seccomp_enter(void) {
#ifdef MACHINE
    struct sock_filter code[4 + 2 * N_ALLOWED + 5 * N_GUARDED + 4 + 1];
    size_t n = 0;
    code[n++] = (struct sock_filter)LOAD(arch);
    code[n++] = (struct sock_filter)EQUAL(MACHINE, 1, 0);
    code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)LOAD(nr);
    for (int i = 0; i < N_ALLOWED; i++) {
        code[n++] = (struct sock_filter)EQUAL(allowed[i], 0, 1);
        code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    }
    for (int i = 0; i < N_GUARDED; i++) {
        code[n++] = (struct sock_filter)EQUAL(guarded[i], 0, 4);
        code[n++] = (struct sock_filter)LOAD(args[2]);
        code[n++] = (struct sock_filter)HAS(PROT_EXEC, 0, 1);
        code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
        code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)EQUAL(SYS_ioctl, 0, 3);
    code[n++] = (struct sock_filter)LOAD(args[1]);
    code[n++] = (struct sock_filter)EQUAL(AX_PAGEMAP_SCAN, 0, 1);
    code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)RETURN(SECCOMP_RET_KILL_PROCESS);
    const struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return ax_error(AX_ERR_UNSUPPORTED, "the kernel refuses to confine the sandbox: %s",
                        strerror(errno));
    return AX_OK;
#else
    return ax_error(AX_ERR_UNSUPPORTED, "the sandbox supports only x86-64 and aarch64");
#endif
}

enum { FIRST_SOCKET = 3, THREAD_STACK = 16 << 20 };

/* Plain calls: io.h's have fault points and errors with paths. */
static bool read_all(int fd, char *data, size_t n) {
    while (n > 0) {
        const ssize_t got = read(fd, data, n);
        if (got <= 0)
            return false;
        data += got;
        n -= (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const char *data, size_t n) {
    while (n > 0) {
        const ssize_t sent = write(fd, data, n);
        if (sent <= 0)
            return false;
        data += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* ---- compiling ---- */

static enum ax_status write_module(const struct ax_wasmtime *lib, const struct ax_buf *snapshot,
                                   const char *path) {
    struct ax_engine e;
    struct ax_wasm_bytes code = {0};
    AX_TRY(ax_engine_create(&e, lib, 1, AX_SANDBOX_MEMORY));
    enum ax_status st = ax_engine_compile(&e, snapshot->data, snapshot->len);
    if (st == AX_OK)
        st = ax_engine_serialize(&e, &code);
    if (st == AX_OK)
        st = ax_write_file_atomic(path, code.data, code.n);
    if (code.data)
        lib->bytes_delete(&code);
    ax_engine_free(&e);
    return st;
}

static enum ax_status compile(const struct ax_wasmtime *lib, const struct ax_interpreter *python,
                              const char *path) {
    struct ax_buf snapshot = {0};
    enum ax_status st = ax_snapshot_take(lib, python, AX_SANDBOX_MEMORY, &snapshot);
    if (st == AX_OK)
        st = write_module(lib, &snapshot, path);
    ax_buf_free(&snapshot);
    return st;
}

/* ---- a thread's runs ---- */

/* A thread's two instances, which are kept from run to run. */
struct runner {
    const struct ax_engine *engine;
    const struct ax_pristine *pristine;
    struct ax_bytes library;   /* the interpreter's zip; data = NULL: none */
    struct ax_guest guests[2]; /* the program or candidate; the tests */
    char *out, *err;           /* [AX_SANDBOX_OUT], [AX_SANDBOX_ERR] */
};
static enum ax_status open_runner(struct runner *r, const struct ax_engine *e,
                                  const struct ax_pristine *p, struct ax_bytes library) {
    *r = (struct runner){.engine = e, .pristine = p, .library = library};
    AX_TRY(ax_alloc(&r->out, AX_SANDBOX_OUT, 1));
    return ax_alloc(&r->err, AX_SANDBOX_ERR, 1);
}

/* ---- how it ended ---- */

/* A page near the end of the stack is never written, unless the stack grows into it. */
static bool is_stack_full(const struct runner *r, const struct ax_guest *g) {
    const struct ax_pristine *p = r->pristine;
    size_t size;
    const unsigned char *memory = ax_guest_memory(g, &size);
    const size_t top = (size_t)(uint32_t)p->globals[AX_SNAPSHOT_STACK_POINTER];
    /* the top is aligned, at most a page below the end */
    const size_t canary = 4096, lowest = top - AX_SNAPSHOT_STACK + canary;
    return memcmp(memory + lowest, p->memory + lowest, canary) != 0;
}

static enum ax_verdict verdict_of(const struct runner *r, const struct ax_guest *g,
                                  enum ax_guest_end end) {
    static const enum ax_verdict of_guest[] = {
        [AX_GUEST_RETURNED] = AX_VERDICT_TRAP,    [AX_GUEST_STOPPED] = AX_VERDICT_TRAP,
        [AX_GUEST_NO_FUEL] = AX_VERDICT_FUEL,     [AX_GUEST_NO_STACK] = AX_VERDICT_STACK,
        [AX_GUEST_NO_MEMORY] = AX_VERDICT_MEMORY, [AX_GUEST_TRAP] = AX_VERDICT_TRAP};
    static const enum ax_verdict of_wasi[] = {
        [AX_WASI_RUNS] = AX_VERDICT_TRAP, [AX_WASI_EXIT] = AX_VERDICT_EXIT,
        [AX_WASI_FUEL] = AX_VERDICT_FUEL, [AX_WASI_OUTPUT] = AX_VERDICT_OUTPUT,
        [AX_WASI_PEER] = AX_VERDICT_TRAP, [AX_WASI_CLOCK] = AX_VERDICT_TRAP};
    if (is_stack_full(r, g))
        return AX_VERDICT_STACK;
    return end == AX_GUEST_STOPPED ? of_wasi[g->wasi.end] : of_guest[end];
}

/* ---- a program ---- */

static struct ax_bytes text(const char *s) {
    return (struct ax_bytes){s, strlen(s)};
}

static struct ax_wasi world(struct runner *r, const struct ax_sandbox_job *job,
                            const struct ax_bytes *input, size_t n) {
    return (struct ax_wasi){.input = input,
                            .n_input = n,
                            .out = {.data = r->out, .cap = job->limits.out},
                            .err = {.data = r->err, .cap = job->limits.err},
                            .library = r->library,
                            .library_path = AX_SNAPSHOT_LIBRARY_PATH,
                            .seed = job->seed,
                            .fuel_limit = job->limits.fuel};
}

static enum ax_status begin(struct runner *r, int which, const struct ax_sandbox_job *job,
                            const struct ax_wasi *wasi) {
    AX_TRY(ax_pristine_guest(r->pristine, r->engine, &r->guests[which]));
    return ax_guest_begin(&r->guests[which], wasi, job->limits.memory);
}

static enum ax_status run_program(struct runner *r, const struct ax_sandbox_job *job,
                                  struct ax_sandbox_result *result) {
    const struct ax_bytes input[] = {text("program"), job->parts[0], job->parts[1]};
    const struct ax_wasi wasi = world(r, job, input, 3);
    struct ax_guest *g = &r->guests[0];
    uint32_t ignored;
    AX_TRY(begin(r, 0, job, &wasi));
    result->verdict = verdict_of(r, g, ax_guest_call(g, &ignored));
    return AX_OK;
}

/* ---- a candidate and its tests ---- */

struct check {
    struct runner *r;
    struct ax_bytes message;
    bool dead; /* the candidate */
    enum ax_verdict verdict;
};

/* Enters the candidate's instance with the input it has; *reply is in its memory. False: it is
 * dead. */
static bool enter_candidate(struct check *c, struct ax_bytes *reply) {
    struct ax_guest *g = &c->r->guests[0];
    uint32_t object;
    if (c->dead)
        return false;
    const enum ax_guest_end end = ax_guest_call(g, &object);
    c->dead = end != AX_GUEST_RETURNED || is_stack_full(c->r, g) ||
              !ax_guest_bytes(g, object, AX_WASI_MAX_MESSAGE, reply);
    if (c->dead)
        c->verdict = verdict_of(c->r, g, end);
    return !c->dead;
}

/* A message of the tests to the candidate. */
static bool ask_candidate(void *ctx, struct ax_bytes message, struct ax_bytes *reply) {
    struct check *c = ctx;
    c->message = message;
    ax_wasi_restart(&c->r->guests[0].wasi, &c->message, 1);
    if (enter_candidate(c, reply) && reply->n == 0) { /* harness.py always answers */
        c->dead = true;
        c->verdict = AX_VERDICT_TRAP;
    }
    return !c->dead;
}

/* Runs one test, over a channel that has nothing of those before it. Its instance says "1" if it passed, with the
 * hash of what it ran, which must be this test. False if there can be no further one. */
static bool run_test(struct check *c, const struct ax_bytes *input, size_t n, char *passed) {
    struct ax_guest *g = &c->r->guests[1];
    char want[1 + 32] = {'1'};
    struct ax_bytes reply = {0};
    struct ax_sha256 hash;
    uint32_t object;
    ax_wasi_restart(&g->wasi, input, n);
    if (ax_guest_call(g, &object) != AX_GUEST_RETURNED || is_stack_full(c->r, g))
        return false;
    ax_sha256_init(&hash);
    ax_sha256_update(&hash, input[n - 1].data, input[n - 1].n);
    ax_sha256_final(&hash, (unsigned char *)want + 1);
    *passed = ax_guest_bytes(g, object, sizeof want, &reply) && reply.n == sizeof want &&
              memcmp(reply.data, want, sizeof want) == 0;
    return !c->dead;
}

static enum ax_status run_tests(struct check *c, const struct ax_sandbox_job *job, char *passed) {
    char err[256]; /* nobody reads what tests print */
    struct ax_bytes input[2] = {text("tests"), job->parts[0]};
    struct ax_wasi wasi = world(c->r, job, input, 2);
    struct ax_guest *g = &c->r->guests[1];
    wasi.err = (struct ax_wasi_output){.data = err, .cap = sizeof err};
    wasi.ask = ask_candidate;
    wasi.ask_ctx = c;
    AX_TRY(begin(c->r, 1, job, &wasi));
    bool goes_on = true;
    for (size_t i = 1; i < job->n_parts && goes_on; i++) {
        input[1] = job->parts[i];
        goes_on =
            i == 1 ? run_test(c, input, 2, &passed[0]) : run_test(c, &input[1], 1, &passed[i - 1]);
    }
    ax_wasi_restart(&g->wasi, NULL, 0);
    return AX_OK;
}

static enum ax_status run_check(struct runner *r, const struct ax_sandbox_job *job,
                                struct ax_sandbox_result *result) {
    const struct ax_bytes input[] = {text("candidate"), job->parts[0]};
    const struct ax_wasi wasi = world(r, job, input, 2);
    struct check c = {.r = r, .verdict = AX_VERDICT_EXIT};
    struct ax_bytes ignored;
    for (size_t i = 1; i < job->n_parts; i++)
        AX_TRY(ax_buf_append(&result->passed, "", 1));
    AX_TRY(begin(r, 0, job, &wasi));
    if (enter_candidate(&c, &ignored))
        AX_TRY(run_tests(&c, job, result->passed.data));
    result->verdict = c.verdict;
    return AX_OK;
}

/* The result's buffers are the runner's: they are valid until the next run, and not to be freed, but for
 * `passed`. */
static enum ax_status run_job(struct runner *r, const struct ax_sandbox_job *job,
                              struct ax_sandbox_result *result) {
    const double start = ax_clock_now();
    const struct ax_guest *g = &r->guests[0];
    *result = (struct ax_sandbox_result){0};
    AX_TRY(job->kind == AX_SANDBOX_PROGRAM ? run_program(r, job, result)
                                           : run_check(r, job, result));
    if (result->verdict == AX_VERDICT_EXIT)
        result->exit_code = g->wasi.exit_code;
    result->fuel = ax_guest_fuel_used(g);
    result->seconds = ax_clock_now() - start;
    result->out = (struct ax_buf){.data = r->out, .len = g->wasi.out.n};
    result->err = (struct ax_buf){.data = r->err, .len = g->wasi.err.n};
    return AX_OK;
}

/* ---- threads ---- */

struct lane {
    struct ax_worker thread;
    struct runner runner;
    struct worker *worker;
    int socket;
    char *in; /* [cap]: the frame of a job */
    size_t cap;
};

struct worker {
    struct ax_engine engine;
    struct ax_pristine pristine;
    struct ax_mapping library;
    struct lane lanes[AX_SANDBOX_MAX_THREADS];
    int n;
    pthread_barrier_t stage; /* all threads are there; all are confined */
};

static enum ax_status answer(struct lane *l, const char *data, size_t n, struct ax_buf *out) {
    struct ax_frame *f;
    struct ax_sandbox_job job;
    struct ax_sandbox_result result = {0};
    AX_TRY(ax_alloc(&f, 1, sizeof *f));
    enum ax_status st = ax_frame_get(f, data, n);
    if (st == AX_OK)
        st = ax_frame_get_job(&job, f);
    if (st == AX_OK)
        st = run_job(&l->runner, &job, &result);
    if (st == AX_OK)
        st = ax_frame_put_result(out, &result);
    ax_buf_free(&result.passed);
    ax_free(f);
    return st;
}

/* Reads a frame of *n bytes into l->in; false at the end. */
static bool next_frame(struct lane *l, size_t *n) {
    char head[4];
    if (!read_all(l->socket, head, sizeof head))
        return false;
    *n = ax_frame_size(head, sizeof head);
    if (*n > AX_FRAME_MAX)
        return false;
    if (*n > l->cap && ax_regrow(&l->in, l->cap, *n, 1) != AX_OK)
        return false;
    l->cap = *n > l->cap ? *n : l->cap;
    memcpy(l->in, head, sizeof head);
    return read_all(l->socket, l->in + sizeof head, *n - sizeof head);
}

static enum ax_status serve(void *arg) {
    struct lane *l = arg;
    struct ax_buf out = {0};
    enum ax_status st = AX_OK;
    size_t n;
    (void)pthread_barrier_wait(&l->worker->stage);
    (void)pthread_barrier_wait(&l->worker->stage);
    while (st == AX_OK && next_frame(l, &n)) {
        out.len = 0;
        st = answer(l, l->in, n, &out);
        if (st == AX_OK && !write_all(l->socket, out.data, out.len))
            break;
    }
    ax_buf_free(&out);
    if (st != AX_OK)
        (void)raise(SIGABRT); /* the owner counts it as a death of its program */
    return st;
}

static enum ax_status load(struct worker *w, const struct ax_wasmtime *lib, const char *module) {
    struct ax_guest first = {0};
    AX_TRY(ax_engine_create(&w->engine, lib, 2 * w->n, AX_SANDBOX_MEMORY));
    AX_TRY(ax_engine_load(&w->engine, module));
    AX_TRY(ax_guest_open(&first, &w->engine, "run"));
    const enum ax_status st = ax_pristine_take(&w->pristine, &first);
    ax_guest_close(&first);
    return st;
}

static enum ax_status start_lanes(struct worker *w) {
    const struct ax_bytes library = {(const char *)w->library.data, w->library.len};
    pthread_attr_t attr;
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
    (void)pthread_setattr_default_np(&attr);
    (void)pthread_attr_destroy(&attr);
    (void)pthread_barrier_init(&w->stage, NULL, (unsigned)w->n + 1);
    for (int i = 0; i < w->n; i++) {
        struct lane *l = &w->lanes[i];
        l->worker = w;
        l->socket = FIRST_SOCKET + i;
        AX_TRY(open_runner(&l->runner, &w->engine, &w->pristine, library));
        AX_TRY(ax_worker_start(&l->thread, serve, l));
    }
    (void)pthread_barrier_wait(&w->stage);
    return AX_OK;
}

/* Nothing that a program could make this process do reaches beyond it. */
static enum ax_status confine(void) {
    const struct rlimit none = {0, 0};
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (setrlimit(RLIMIT_CORE, &none) != 0 || setrlimit(RLIMIT_FSIZE, &none) != 0 ||
        setrlimit(RLIMIT_NPROC, &none) != 0 || setrlimit(RLIMIT_NOFILE, &none) != 0 ||
        chdir("/") != 0)
        return ax_error(AX_ERR_FAILED, "cannot confine the sandbox: %m");
    return seccomp_enter();
}

static enum ax_status say(enum ax_status st) {
    struct ax_buf out = {0};
    const struct ax_frame f = {
        .numbers = {st}, .n_parts = 1, .parts = {{ax_error_text(), strlen(ax_error_text())}}};
    const enum ax_status put = ax_frame_put(&out, &f);
    if (put == AX_OK)
        (void)write_all(FIRST_SOCKET, out.data, out.len);
    ax_buf_free(&out);
    return put;
}

static enum ax_status start(struct worker *w, char **argv) {
    const struct ax_wasmtime *lib;
    const struct ax_interpreter python = {argv[2], strcmp(argv[3], "-") != 0 ? argv[3] : NULL};
    AX_TRY(ax_wasmtime_open(argv[1], &lib));
    if (w->n == 0)
        return compile(lib, &python, argv[4]);
    if (python.library)
        AX_TRY(ax_map_file(&w->library, python.library));
    AX_TRY(load(w, lib, argv[4]));
    AX_TRY(start_lanes(w));
    return confine();
}

enum ax_status ax_sandbox_worker(int argc, char **argv) {
    static struct worker w; /* threads refer to it until the process ends */
    const int n = argc == 6 ? atoi(argv[5]) : -1;
    if (n < 0 || n > AX_SANDBOX_MAX_THREADS || fcntl(FIRST_SOCKET, F_GETFD) < 0)
        return ax_error(AX_ERR_CONFIG, "sandbox worker: only axtrain itself starts this");
    w.n = n;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* it would notice after the program that it runs */
    enum ax_status st = start(&w, argv);
    const enum ax_status said = say(st);
    ax_error_clear(); /* the owner reports it */
    if (st != AX_OK || said != AX_OK)
        return st != AX_OK ? st : said;
    if (n > 0)
        (void)pthread_barrier_wait(&w.stage);
    for (int i = 0; i < n && st == AX_OK; i++)
        st = ax_worker_join(&w.lanes[i].thread);
    return st;
}
