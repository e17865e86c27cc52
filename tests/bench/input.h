/* Input of the data, file and startup benchmarks: a model folder, records, and the configuration
 * of a training run with both, in a temporary folder. Whatever is not given is generated: random
 * weights, word problems (data/records/problems/problems.h), a vocabulary of the model's size. */
#ifndef AX_TESTS_BENCH_INPUT_H
#define AX_TESTS_BENCH_INPUT_H

#include "cmd/bench/bench.h"

struct ax_bench_input {
    char *dir;               /* temporary */
    char *model;             /* the model's folder: given, or in dir */
    char *data;              /* records: given, or in dir */
    char *config;            /* the configuration, in dir */
    char *prepared, *output; /* its dataset_prepared_path and output_dir, in dir */
};

/* `m` is open. data NULL: generated; work NULL: TMPDIR, or /tmp. */
enum ax_status ax_bench_input_make(struct ax_bench_input *in, const struct ax_bench_model *m,
                                   const char *data, const char *work);
void ax_bench_input_remove(struct ax_bench_input *in); /* safe on a zeroed one */

/* AX_INTERRUPTED after a stop signal, for which the kinds watch (base/stop.h), so that they clean up. */
enum ax_status ax_bench_may_go_on(void);
/* The program that is measured: AX_TEST_BIN, or the one of the build folder. ax_free. */
enum ax_status ax_bench_axtrain(char **out);

/* The kinds: argv[0] is the kind. */
ax_bench_kind ax_bench_pipeline, ax_bench_startup;

#endif
