/* Pipeline stages: what goes from one to the next. */
#ifndef AX_MODEL_CORE_PIPELINE_H
#define AX_MODEL_CORE_PIPELINE_H

#include "model/core/batch.h"
#include "parallel/runtime.h"

/* Rows of this rank for another stage, or from it. */
struct ax_stage_rows {
    const struct ax_tensor *rows;
    const struct ax_batch *batch; /* whose length they have; NULL: always the same */
};

/* The stage `steps` after this one, where the first follows the last. */
int ax_pipe_peer(const struct ax_runtime *rt, int steps);
/* Two stages must start their messages in the same order; none has to wait for another. Each may travel
 * from ax_pipe_travel on, or when one is waited for. */
enum ax_status ax_pipe_send(struct ax_runtime *rt, int peer, struct ax_stage_rows what,
                            struct ax_ticket *ticket);
enum ax_status ax_pipe_receive(struct ax_runtime *rt, int peer, struct ax_stage_rows what,
                               struct ax_ticket *ticket);
enum ax_status ax_pipe_travel(struct ax_runtime *rt);
enum ax_status ax_pipe_wait(struct ax_runtime *rt, struct ax_ticket ticket);

#endif
