/* What the benchmarks of data, files and start-up run on: a model folder, rows, and the
 * configuration of a training run with both, in a temporary folder. What is not given is made up:
 * random weights, word problems (data/problems/problems.h), a vocabulary of the model's size. */
#ifndef AX_CMD_BENCH_INPUT_H
#define AX_CMD_BENCH_INPUT_H

#include "cmd/bench/bench.h"

struct ax_bench_input {
    char *dir;               /* temporary */
    char *model;             /* a folder: the given one, or in dir */
    char *data;              /* rows: the given ones, or in dir */
    char *config;            /* in dir, as are … */
    char *prepared, *output; /* … its dataset_prepared_path and output_dir */
};

/* Of --arch: the model alone. */
enum ax_status ax_bench_input_model(struct ax_bench_input *in, const struct ax_bench_model *m,
                                    const char *work);
/* `m` is open. data NULL: made up; work NULL: TMPDIR, or /tmp. */
enum ax_status ax_bench_input_make(struct ax_bench_input *in, const struct ax_bench_model *m,
                                   const char *data, const char *work);
void ax_bench_input_remove(struct ax_bench_input *in); /* safe on a zeroed one */

/* tokenizer.json and tokenizer_config.json in `dir`: a byte-level BPE of `size` tokens, its merges
 * made of the letters that are frequent in English. Words become tokens of up to four letters. */
enum ax_status ax_bench_vocab_write(const char *dir, int64_t size);

#endif
