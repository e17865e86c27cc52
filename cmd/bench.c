/* `axtrain bench`: one kind of benchmark, or a short set of all. */
#include <stdio.h>
#include <string.h>

#include "cmd/bench/bench.h"
#include "cmd/commands.h"

#define MAX_WORDS 24

static const struct {
    const char *name, *command; /* used in messages */
    ax_bench_kind *run;
    bool has_model;
    const char *short_set[MAX_WORDS - 5]; /* the options it gets in the short set */
} kinds[] = {
    {"ops",
     "bench ops",
     ax_bench_ops,
     false,
     {"--op", "gemm", "--op", "attention_forward", "--op", "attention_backward", "--op",
      "rmsnorm_forward", "--op", "swiglu_forward", "--op", "adamw"}},
    {"step", "bench step", ax_bench_step, true, {"--batch", "1", "--seq", "512", "--steps", "3"}},
    {"generate",
     "bench generate",
     ax_bench_generate,
     true,
     {"--prompt-tokens", "64", "--new-tokens", "16", "--rounds", "1"}},
    {"eval",
     "bench eval",
     ax_bench_eval,
     true,
     {"--batch", "16", "--seq", "128", "--prompt-tokens", "32", "--new-tokens", "4", "--rounds",
      "1"}},
};
#define N_KINDS ((int)(sizeof kinds / sizeof *kinds))

static enum ax_status run_kind(struct ax_bench *b, int argc, char **argv) {
    struct ax_nearest nearest = {.given = argv[0], .within = 4};
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(argv[0], kinds[i].name) == 0) {
            argv[0] = (char *)(uintptr_t)kinds[i].command;
            return kinds[i].run(b, argc, argv);
        }
        ax_nearest_try(&nearest, kinds[i].name);
    }
    static const char expected[] = "ops, step, generate, eval";
    if (strcmp(argv[0], "pipeline") == 0 || strcmp(argv[0], "startup") == 0)
        return ax_error(AX_ERR_CONFIG,
                        "bench %s: a program of the source measures this now: "
                        "build/tests/bench/bench %s",
                        argv[0], argv[0]);
    return nearest.name
               ? ax_error(AX_ERR_CONFIG, "bench: \"%s\" is not one of %s; did you mean %s?",
                          argv[0], expected, nearest.name)
               : ax_error(AX_ERR_CONFIG, "bench: \"%s\" is not one of %s", argv[0], expected);
}

/* ---- the short set ---- */

static enum ax_status run_short(struct ax_bench *b, int kind, const struct ax_bench_model *m,
                                const char *threads) {
    const char *words[MAX_WORDS];
    int n = 0;
    words[n++] = kinds[kind].command;
    for (const char *const *w = kinds[kind].short_set; *w; w++)
        words[n++] = *w;
    if (kinds[kind].has_model) {
        words[n++] = m->dir ? "--model" : "--arch";
        words[n++] = m->dir ? m->dir : m->arch_name;
    }
    if (threads) {
        words[n++] = "--threads";
        words[n++] = threads;
    }
    return kinds[kind].run(b, n, (char **)(uintptr_t)words);
}

static enum ax_status run_all(struct ax_bench *b, int argc, char **argv) {
    struct ax_bench_model m = {0};
    const char *threads = NULL;
    const struct ax_arg own[] = {
        AX_BENCH_MODEL_ARGS(&m),
        {"--threads", AX_ARG_STRING, &threads, 0, 0},
    };
    AX_TRY(ax_bench_parse(b, argc, argv, sizeof own / sizeof *own, own));
    if (!m.dir && !m.arch_name)
        m.arch_name = "smollm2-135m";
    enum ax_status st =
        ax_bench_model_open(&m, "(all)", false); /* a mistake is said before ops are timed */
    ax_bench_model_close(&m);
    b->several = true;
    for (int i = 0; i < N_KINDS && st == AX_OK; i++)
        st = run_short(b, i, &m, threads);
    return st;
}

enum ax_status ax_cmd_bench(int argc, char **argv) {
    struct ax_bench b = {0};
    const bool all = argc < 2 || argv[1][0] == '-';
    enum ax_status st = all ? run_all(&b, argc, argv) : run_kind(&b, argc - 1, argv + 1);
    if (st == AX_OK)
        st = ax_bench_finish(&b);
    ax_bench_free(&b);
    return st;
}
