/* Messages between pipeline stages. */
#ifndef AX_MODEL_CORE_PIPELINE_H
#define AX_MODEL_CORE_PIPELINE_H

#include "model/core/batch.h"
#include "parallel/runtime.h"

/* Rows that this rank sends to another stage, or receives from it. */
struct ax_stage_rows {
    const struct ax_tensor *rows;
    /* the batch whose length the rows have; NULL: the length never changes */
    const struct ax_batch *batch;
};

/* The stage `steps` after this one; the first follows the last. */
int ax_pipe_peer(const struct ax_runtime *rt, int steps);
/* Two stages must start their messages in the same order, but neither has to wait for another
 * message. Messages travel from ax_pipe_travel on, or when one is waited for. */
enum ax_status ax_pipe_send(struct ax_runtime *rt, int peer, struct ax_stage_rows what,
                            struct ax_ticket *ticket);
enum ax_status ax_pipe_receive(struct ax_runtime *rt, int peer, struct ax_stage_rows what,
                               struct ax_ticket *ticket);
enum ax_status ax_pipe_travel(struct ax_runtime *rt);
enum ax_status ax_pipe_wait(struct ax_runtime *rt, struct ax_ticket ticket);

#endif
