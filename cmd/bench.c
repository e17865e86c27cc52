/* `axtrain bench`: one kind of benchmark, or a short set of all. */
#include "cmd/bench.h"

#include <stdio.h>
#include <string.h>

#include "cmd/commands.h"

#define MAX_WORDS 16

static const struct {
    const char *name;
    ax_bench_kind *run;
    bool has_model, has_threads;
    const char *short_set[8]; /* its options there */
} kinds[] = {
    {"ops", ax_bench_ops, false, true, {NULL}},
    {"step", ax_bench_step, true, true, {"--batch", "1", "--seq", "512", "--steps", "3", NULL}},
    {"generate",
     ax_bench_generate,
     true,
     true,
     {"--prompt-tokens", "64", "--new-tokens", "16", "--rounds", "1", NULL}},
    {"pipeline", ax_bench_pipeline, true, true, {NULL}},
    {"startup", ax_bench_startup, true, false, {"--rounds", "3", NULL}},
};
#define N_KINDS (sizeof kinds / sizeof *kinds)

static enum ax_status run_kind(struct ax_bench *b, int argc, char **argv) {
    int nearest = 8, at = 0;
    for (int i = 0; i < (int)N_KINDS; i++) {
        const int far = ax_edit_distance(argv[0], kinds[i].name);
        if (far == 0)
            return kinds[i].run(b, argc, argv);
        if (far < nearest) {
            nearest = far;
            at = i;
        }
    }
    return ax_error(AX_ERR_CONFIG,
                    "bench: \"%s\" is not one of ops, step, generate, pipeline, startup%s%s%s",
                    argv[0], nearest <= 3 ? "; did you mean " : "",
                    nearest <= 3 ? kinds[at].name : "", nearest <= 3 ? "?" : "");
}

struct common {
    const char *model, *arch, *threads;
};

/* A kind's command line in the short set. */
static enum ax_status run_short(struct ax_bench *b, size_t kind, const struct common *c) {
    const char *words[MAX_WORDS];
    int n = 0;
    words[n++] = kinds[kind].name;
    for (const char *const *w = kinds[kind].short_set; *w; w++)
        words[n++] = *w;
    if (kinds[kind].has_model) {
        words[n++] = c->model ? "--model" : "--arch";
        words[n++] = c->model ? c->model : c->arch;
    }
    if (kinds[kind].has_threads && c->threads) {
        words[n++] = "--threads";
        words[n++] = c->threads;
    }
    return kinds[kind].run(b, n, (char **)(uintptr_t)words);
}

static enum ax_status run_all(struct ax_bench *b, int argc, char **argv) {
    struct common c = {0};
    const struct ax_arg own[] = {
        {"--model", AX_ARG_STRING, &c.model, 0, 0},
        {"--arch", AX_ARG_STRING, &c.arch, 0, 0},
        {"--threads", AX_ARG_STRING, &c.threads, 0, 0},
    };
    AX_TRY(ax_bench_parse(b, argc, argv, sizeof own / sizeof *own, own));
    if (c.model && c.arch)
        return ax_error(AX_ERR_CONFIG, "bench: give either --model DIR or --arch NAME");
    if (!c.model && !c.arch)
        c.arch = "smollm2-135m";
    b->several = true;
    for (size_t i = 0; i < N_KINDS; i++)
        AX_TRY(run_short(b, i, &c));
    return AX_OK;
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
