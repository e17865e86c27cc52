/* `axtrain bench`: what it measures, and what the kinds share.
 *
 * Each kind is a file (ops.c, step.c, generate.c, eval.c) that parses its options with ax_bench_parse
 * and reports figures with ax_bench_add. bench.c runs one kind, or a short set of all, and finishes the
 * report (report.c). result.h processes the figures. tests/bench/bench.c has more kinds. */
#ifndef AX_CMD_BENCH_BENCH_H
#define AX_CMD_BENCH_BENCH_H

#include "cmd/args/args.h"
#include "cmd/bench/result.h"
#include "optim/plan/peak.h"
#include "optim/step/step.h"

/* ---- the report ---- */

struct ax_bench {
    bool json;
    const char *out, *compare, *tolerance; /* as on the command line; NULL = none */
    int64_t threads;                       /* 0 = all available to this process */
    const char *backend;                   /* ax_bench_backend; NULL = cpu */
    bool several;                          /* more than one kind: figures only */
    double allowed;                        /* tolerance as a fraction */
    struct ax_bench_list old, results;
    json_t *details; /* per kind, the part of its JSON that is not figures */
    /* measured on first use */
    double bandwidth;
    struct ax_peak peak;
};

/* Parses the kind's options and the common ones; loads the older results, so a bad file is reported
 * before anything is timed. */
enum ax_status ax_bench_parse(struct ax_bench *b, int argc, char **argv, int n,
                              const struct ax_arg *own);
/* Prints the figure, unless JSON is requested. */
enum ax_status ax_bench_add(struct ax_bench *b, const struct ax_bench_figure *f, const char *name,
                            ...) __attribute__((format(printf, 3, 4)));
/* For --json: `value` (owned by the report, NULL = out of memory) under the kind's name. */
enum ax_status ax_bench_detail(struct ax_bench *b, const char *kind, json_t *value);
/* May a kind print more than its figures? */
bool ax_bench_tells(const struct ax_bench *b);
/* Output and comparison: AX_ERR_FAILED if anything is worse. */
enum ax_status ax_bench_finish(struct ax_bench *b);
void ax_bench_free(struct ax_bench *b);

/* Figures of cuda are compared with its own peaks, of all others with the cpu's. AX_ERR_UNSUPPORTED: cuda cannot
 * be used here. */
enum ax_status ax_bench_backend(struct ax_bench *b, const char *backend);
/* Bytes read and written per second by a copy; FLOP per second of the fastest matrix products
 * (ax_measure_peak), in this process on b->threads. */
enum ax_status ax_bench_bandwidth(struct ax_bench *b, double *bytes);
enum ax_status ax_bench_peak(struct ax_bench *b, double *flops);

/* Reorders the values and returns the middle one, or the mean of the middle two. */
double ax_bench_median(double *values, size_t n);

/* ---- the model: model.c ---- */

/* --model DIR (or a config.json: random weights), or --arch NAME: random weights. */
struct ax_bench_model {
    const char *dir, *arch_name; /* as on the command line */
    char name[64];               /* name of the folder or architecture, for the names of figures */
    struct ax_json_doc config;   /* config.json of --arch */
    struct ax_arch arch;
    struct ax_hf hf; /* dir NULL: random weights */
};
#define AX_BENCH_MODEL_ARGS(m)                                                                     \
    {"--model", AX_ARG_STRING, &(m)->dir, 0, 0}, {                                                 \
        "--arch", AX_ARG_STRING, &(m)->arch_name, 0, 0                                             \
    }
/* `weights`: also loads those of a folder. */
enum ax_status ax_bench_model_open(struct ax_bench_model *m, const char *kind, bool weights);
void ax_bench_model_close(struct ax_bench_model *m); /* safe on a zeroed one */
/* The folder's weights, or random ones. */
enum ax_status ax_bench_model_fill(const struct ax_bench_model *m, struct ax_model *model);
/* Writes the model with random weights to a folder. */
enum ax_status ax_bench_model_write(const struct ax_bench_model *m, const char *dir);
/* The given dtype, or the fastest compute dtype of this CPU. */
enum ax_status ax_bench_dtype(const char *given, enum ax_dtype *out);

/* Random ids in every batch of a step, the same for every run. */
enum ax_status ax_bench_batches(struct ax_step *s);

/* ---- the kinds: argv[0] is the kind ---- */

typedef enum ax_status ax_bench_kind(struct ax_bench *b, int argc, char **argv);
ax_bench_kind ax_bench_ops, ax_bench_step, ax_bench_generate, ax_bench_eval;

#endif
