/* Pipeline stages: what goes from one to the next. */
#ifndef AX_MODEL_PIPELINE_H
#define AX_MODEL_PIPELINE_H

#include "model/batch.h"
#include "parallel/runtime.h"

/* Rows of this rank for a neighboring stage, or from it. */
struct ax_stage_rows {
    const struct ax_tensor *rows; /* NULL: nothing */
    const struct ax_batch *batch; /* whose length they have; NULL: always the same */
};

/* Sends and receives; the two may be of batches that differ in length. */
enum ax_status ax_stage_exchange(struct ax_runtime *rt, int peer, struct ax_stage_rows send,
                                 struct ax_stage_rows receive);

#endif
