/* Saving a checkpoint: its speed, and how long it blocks training. */
#ifndef AX_CMD_BENCH_SAVE_H
#define AX_CMD_BENCH_SAVE_H

#include "cmd/bench/input.h"

/* Saves weights and AdamW's state to in->output, for an open model (m->hf), after a training step
 * of 512 tokens. AX_ERR_IO if there is not enough disk space. */
enum ax_status ax_bench_save(struct ax_bench *r, const struct ax_bench_model *m,
                             const struct ax_bench_input *in, enum ax_dtype dtype);

#endif
