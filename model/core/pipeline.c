#include "model/core/pipeline.h"

int ax_pipe_peer(const struct ax_runtime *rt, int steps) {
    const int stages = rt->mesh.size[AX_ROLE_PP];
    return (rt->mesh.coord[AX_ROLE_PP] + steps + stages) % stages;
}

static enum ax_status start(struct ax_runtime *rt, struct ax_stage_rows what, int to, int from,
                            struct ax_ticket *ticket) {
    const struct ax_tensor *rows = what.rows;
    const struct ax_collective message = {.kind = AX_SEND_RECV,
                                          .dtype = rows->dtype,
                                          .send = to >= 0 ? rows->data : NULL,
                                          .recv = from >= 0 ? rows->data : NULL,
                                          .count = ax_tensor_numel(rows),
                                          .send_peer = to,
                                          .recv_peer = from};
    if (what.batch)
        ax_contract_scale(&rt->contracts, what.batch->T, what.batch->cap);
    const enum ax_status st = ax_comm_start(&rt->comms[AX_ROLE_PP], rt->q, &message, ticket);
    ax_contract_scale(&rt->contracts, 1, 1);
    return st;
}

enum ax_status ax_pipe_send(struct ax_runtime *rt, int peer, struct ax_stage_rows what,
                            struct ax_ticket *ticket) {
    return start(rt, what, peer, -1, ticket);
}

enum ax_status ax_pipe_receive(struct ax_runtime *rt, int peer, struct ax_stage_rows what,
                               struct ax_ticket *ticket) {
    return start(rt, what, -1, peer, ticket);
}

enum ax_status ax_pipe_travel(struct ax_runtime *rt) {
    return ax_comm_travel(&rt->comms[AX_ROLE_PP], rt->q);
}

enum ax_status ax_pipe_wait(struct ax_runtime *rt, struct ax_ticket ticket) {
    return ax_comm_wait(&rt->comms[AX_ROLE_PP], rt->q, ticket);
}
