/* Input of the data, file and startup benchmarks: a model folder, records, and the configuration
 * of a training run with both, in a temporary folder. Whatever is not given is generated: random
 * weights, word problems (data/records/problems/problems.h), a vocabulary of the model's size. */
#ifndef AX_CMD_BENCH_INPUT_H
#define AX_CMD_BENCH_INPUT_H

#include "cmd/bench/bench.h"

struct ax_bench_input {
    char *dir;               /* temporary */
    char *model;             /* the model's folder: given, or in dir */
    char *data;              /* records: given, or in dir */
    char *config;            /* the configuration, in dir */
    char *prepared, *output; /* its dataset_prepared_path and output_dir, in dir */
};

/* The model of --arch only. */
enum ax_status ax_bench_input_model(struct ax_bench_input *in, const struct ax_bench_model *m,
                                    const char *work);
/* `m` is open. data NULL: generated; work NULL: TMPDIR, or /tmp. */
enum ax_status ax_bench_input_make(struct ax_bench_input *in, const struct ax_bench_model *m,
                                   const char *data, const char *work);
void ax_bench_input_remove(struct ax_bench_input *in); /* safe on a zeroed one */

/* tokenizer.json and tokenizer_config.json in `dir`: a byte-level BPE of `size` tokens, with merges
 * of the most frequent English letters. Words become tokens of up to four letters. */
enum ax_status ax_bench_vocab_write(const char *dir, int64_t size);

#endif
