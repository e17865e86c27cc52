/* From the command to the first forward pass, with prepared data.
 *
 * Starts `axtrain sft` and watches it from outside: its output folder appears when configuration,
 * tokenizer and data are open, run.json when memory is planned, and metrics.jsonl when the model is
 * loaded and the first step is next; then it is stopped. The parts of the first phase are timed in
 * this process. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/stop.h"
#include "cmd/train/data/data.h"
#include "tests/bench/input.h"

#define MAX_ROUNDS 100
#define PATIENCE   600.0 /* seconds to wait for a start */

extern char **environ;

enum phase {
    OPENED,  /* command → output folder */
    PLANNED, /* → run.json */
    LOADED,  /* → metrics.jsonl */
    PHASES
};
static const char *const phase_names[PHASES] = {"sft-open", "sft-plan", "sft-load"};

enum part { CONFIG, TOKENIZER, DATA, PARTS };
static const char *const part_names[PARTS] = {"config", "tokenizer", "data-and-tokenizer"};

struct startup {
    struct ax_bench *r;
    struct ax_bench_model m;
    struct ax_bench_input in;
    const char *data, *work;
    int64_t rounds;
    char *axtrain;
    char *said, *marks[PHASES]; /* paths: the child's output; the files that mark the phases */
    double help[MAX_ROUNDS], phases[PHASES][MAX_ROUNDS], parts[PARTS][MAX_ROUNDS];
    double total[MAX_ROUNDS];
};

/* ---- processes ---- */

static enum ax_status spawn(const struct startup *s, char *const *argv, pid_t *child) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    int failed = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, s->said, flags, 0600);
    if (failed == 0)
        failed = posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
    if (failed == 0)
        failed = posix_spawn(child, s->axtrain, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return failed == 0 ? AX_OK
                       : ax_error(AX_ERR_FAILED, "bench startup: cannot start axtrain: %s",
                                  strerror(failed));
}

static enum ax_status failed_start(const struct startup *s) {
    char *text;
    size_t len;
    AX_TRY(ax_read_file(s->said, 1 << 20, &text, &len));
    const enum ax_status st = ax_error(AX_ERR_FAILED, "bench startup: the run ended early: %.1500s",
                                       len > 1500 ? text + len - 1500 : text);
    ax_free(text);
    return st;
}

static enum ax_status time_help(struct startup *s, double *seconds) {
    char *const argv[] = {"axtrain", "--help", NULL};
    pid_t child;
    int status;
    const double start = ax_clock_now();
    AX_TRY(spawn(s, argv, &child));
    if (waitpid(child, &status, 0) < 0 || status != 0)
        return failed_start(s);
    *seconds = ax_clock_now() - start;
    return AX_OK;
}

/* Checks every 0.2 ms, so that the child gets the CPU. */
static enum ax_status await(struct startup *s, pid_t child, const char *path, bool *alive) {
    const struct timespec pause = {.tv_nsec = 200000};
    const double start = ax_clock_now();
    while (!ax_path_exists(path)) {
        int status;
        AX_TRY(ax_bench_may_go_on()); /* Ctrl-C also ends the child */
        if (waitpid(child, &status, WNOHANG) == child) {
            *alive = false;
            return failed_start(s);
        }
        if (ax_clock_now() - start > PATIENCE)
            return ax_error(AX_ERR_FAILED, "bench startup: %s did not appear within %.0f s", path,
                            PATIENCE);
        nanosleep(&pause, NULL);
    }
    return AX_OK;
}

static enum ax_status time_sft(struct startup *s, int64_t round) {
    char *const argv[] = {"axtrain", "sft", s->in.config, "--quiet", NULL};
    pid_t child;
    bool alive = true;
    enum ax_status st = AX_OK;
    AX_TRY(ax_remove_tree(s->in.output));
    const double start = ax_clock_now();
    double before = start;
    AX_TRY(spawn(s, argv, &child));
    for (int p = 0; p < PHASES && st == AX_OK; p++) {
        st = await(s, child, s->marks[p], &alive);
        const double now = ax_clock_now();
        s->phases[p][round] = now - before;
        before = now;
    }
    s->total[round] = before - start;
    if (alive) {
        kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
    }
    return st;
}

/* ---- in this process ---- */

static enum ax_status time_parts(struct startup *s, int64_t round) {
    struct ax_config cfg;
    struct ax_setup_tokenizer tokenizer;
    struct ax_setup_data data;
    const double start = ax_clock_now();
    AX_TRY(ax_config_load(&cfg, s->in.config, 0, NULL));
    const double config = ax_clock_now();
    enum ax_status st;
    AX_TRY_GOTO(ax_setup_tokenizer_open(&tokenizer, &cfg), st, done);
    const double tokens = ax_clock_now();
    ax_setup_tokenizer_close(&tokenizer);
    const double open = ax_clock_now();
    AX_TRY_GOTO(ax_setup_data_open(&data, &cfg, false), st, done);
    s->parts[DATA][round] = ax_clock_now() - open;
    ax_setup_data_close(&data);
    s->parts[CONFIG][round] = config - start;
    s->parts[TOKENIZER][round] = tokens - config;
done:
    ax_config_free(&cfg);
    return st;
}

/* ---- all ---- */

static enum ax_status add(struct startup *s, const char *what, double *seconds) {
    const double median = ax_bench_median(seconds, (size_t)s->rounds);
    const struct ax_bench_figure f = {1e3 * median, "ms", true, -1};
    return ax_bench_add(s->r, &f, "startup/%s/%s", s->m.name, what);
}

static enum ax_status report(struct startup *s) {
    const double help = ax_bench_median(s->help, (size_t)s->rounds);
    const struct ax_bench_figure f = {1e3 * help, "ms", true, -1};
    AX_TRY(ax_bench_add(s->r, &f, "startup/help"));
    for (int p = 0; p < PARTS; p++)
        AX_TRY(add(s, part_names[p], s->parts[p]));
    for (int p = 0; p < PHASES; p++)
        AX_TRY(add(s, phase_names[p], s->phases[p]));
    return add(s, "sft-to-first-forward", s->total);
}

static enum ax_status run(struct startup *s) {
    static const char *const names[PHASES] = {NULL, "run.json", "metrics.jsonl"};
    AX_TRY(ax_bench_axtrain(&s->axtrain));
    AX_TRY(ax_bench_model_open(&s->m, "startup", false));
    AX_TRY(ax_bench_input_make(&s->in, &s->m, s->data, s->work));
    AX_TRY(ax_path_join(&s->said, s->in.dir, "said"));
    AX_TRY(ax_strdup(&s->marks[OPENED], s->in.output));
    for (int p = PLANNED; p < PHASES; p++)
        AX_TRY(ax_path_join(&s->marks[p], s->in.output, names[p]));
    AX_TRY(time_parts(s, 0)); /* prepares the data */
    AX_TRY(time_sft(s, 0));   /* reads the files into the page cache */
    for (int64_t round = 0; round < s->rounds; round++) {
        AX_TRY(time_help(s, &s->help[round]));
        AX_TRY(time_parts(s, round));
        AX_TRY(time_sft(s, round));
    }
    return report(s);
}

enum ax_status ax_bench_startup(struct ax_bench *r, int argc, char **argv) {
    struct startup s = {.r = r, .rounds = 5};
    const struct ax_arg own[] = {
        AX_BENCH_MODEL_ARGS(&s.m),
        {"--data", AX_ARG_STRING, &s.data, 0, 0},
        {"--work", AX_ARG_STRING, &s.work, 0, 0},
        {"--rounds", AX_ARG_INT, &s.rounds, 1, MAX_ROUNDS},
    };
    AX_TRY(ax_bench_parse(r, argc, argv, sizeof own / sizeof *own, own));
    ax_stop_watch(); /* so that temporary files are removed and the child is ended */
    const enum ax_status st = run(&s);
    ax_stop_unwatch();
    for (int p = 0; p < PHASES; p++)
        ax_free(s.marks[p]);
    ax_free(s.said);
    ax_free(s.axtrain);
    ax_bench_input_remove(&s.in);
    ax_bench_model_close(&s.m);
    return st;
}
