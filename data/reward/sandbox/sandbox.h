/* Runs untrusted Python programs, such as the answers of a model that is being trained.
 *
 * A program sees no file, environment, network, process or real clock (wasi.h). Its instructions
 * and its memory are limited, and the same program ends in the same way everywhere. It runs in
 * CPython compiled to WebAssembly, in a worker: this program as a process of its own, which may
 * make hardly any system call. A worker that dies is restarted, and what it ran is run again.
 *
 * Reading order: wasmtime.h, wasi.h (the world of a guest), engine.h (instances), snapshot.h (an
 * interpreter that is ready), pristine.h (the same state again for each run), harness.py (what runs
 * inside), run.h (one program, or a candidate and its tests), frame.h, worker.c (the process, which
 * runs them), pool.c (its owner). */
#ifndef AX_DATA_REWARD_SANDBOX_SANDBOX_H
#define AX_DATA_REWARD_SANDBOX_SANDBOX_H

#include "data/reward/sandbox/run.h"
#include "data/reward/sandbox/snapshot.h"
#include "data/reward/sandbox/watch.h"

struct ax_sandbox_options {
    const char *program; /* this executable; NULL: /proc/self/exe */
    const char *wasmtime;
    struct ax_interpreter python;
    const char *cache; /* folder for the compiled interpreter; created, and must be private */
    int threads;       /* programs that run at a time, ≤ AX_SANDBOX_MAX_THREADS */
    double seconds;    /* a program that takes longer is stuck: its worker is killed */
    /* points to what ax_sandbox_run asks whether to go on, which may be NULL; NULL: nobody */
    struct ax_watch *const *watch;
};
#define AX_SANDBOX_MAX_THREADS 64
#define AX_SANDBOX_SECONDS     10.0

/* Paths of the parts that bootstrap installs, unless AXTRAIN_WASMTIME and AXTRAIN_SANDBOX_PYTHON
 * name others. */
struct ax_sandbox_parts {
    char *wasmtime, *python, *library; /* owned; library = NULL: none needed */
};
/* `wasmtime` and `python` may be NULL. AX_ERR_UNSUPPORTED names what is missing and how to get it. */
enum ax_status ax_sandbox_find(struct ax_sandbox_parts *p, const char *wasmtime,
                               const char *python);
void ax_sandbox_parts_free(struct ax_sandbox_parts *p);

struct ax_sandbox;

/* Copies the options' strings. Compiles the interpreter if the cache does not have it, and starts the worker. */
enum ax_status ax_sandbox_open(struct ax_sandbox **out, const struct ax_sandbox_options *o);
void ax_sandbox_close(struct ax_sandbox *s); /* NULL is fine */

/* Runs all jobs, and fills results[n], which are zeroed before and freed by the caller. Only a
 * sandbox that does not work is an error, and what the watch says. */
enum ax_status ax_sandbox_run(struct ax_sandbox *s, const struct ax_sandbox_job *jobs, size_t n,
                              struct ax_sandbox_result *results);

/* Statistics since the last call. */
struct ax_sandbox_stats {
    uint64_t runs, verdicts[AX_VERDICT_COUNT], restarts;
    double seconds;  /* time spent in ax_sandbox_run */
    double p50, p99; /* seconds of a run */
};
void ax_sandbox_take_stats(struct ax_sandbox *s, struct ax_sandbox_stats *out);

/* process id of the worker, 0 while it starts; for tests */
int ax_sandbox_pid(const struct ax_sandbox *s);

/* The hidden command that a worker is: argv as worker.c says. */
enum ax_status ax_sandbox_worker(int argc, char **argv);

#endif
