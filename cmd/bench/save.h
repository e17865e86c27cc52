/* Saving a checkpoint: how fast, and for how long it holds up training. */
#ifndef AX_CMD_BENCH_SAVE_H
#define AX_CMD_BENCH_SAVE_H

#include "cmd/bench/input.h"

/* Weights and AdamW's state to in->output, of a model that is open (m->hf), behind a training step
 * of 512 tokens. AX_ERR_IO where the disk has no room. */
enum ax_status ax_bench_save(struct ax_bench *r, const struct ax_bench_model *m,
                             const struct ax_bench_input *in, enum ax_dtype dtype);

#endif
