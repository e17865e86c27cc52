#include "model/pipeline.h"

int ax_pipe_peer(const struct ax_runtime *rt, int steps) {
    const int stages = rt->mesh.size[AX_ROLE_PP];
    return (rt->mesh.coord[AX_ROLE_PP] + steps + stages) % stages;
}

static enum ax_status start(struct ax_runtime *rt, struct ax_pipe_messages *list,
                            struct ax_stage_rows what, int to, int from) {
    const struct ax_tensor *rows = what.rows;
    const struct ax_collective message = {.kind = AX_SEND_RECV,
                                          .dtype = rows->dtype,
                                          .send = to >= 0 ? rows->data : NULL,
                                          .recv = from >= 0 ? rows->data : NULL,
                                          .count = ax_tensor_numel(rows),
                                          .send_peer = to,
                                          .recv_peer = from};
    AX_ASSERT(list->n < (int)(sizeof list->tickets / sizeof *list->tickets));
    if (what.batch)
        ax_contract_scale(rt, what.batch->T, what.batch->cap);
    const enum ax_status st =
        ax_comm_start(&rt->comms[AX_ROLE_PP], rt->q, &message, &list->tickets[list->n]);
    ax_contract_scale(rt, 1, 1);
    list->n += st == AX_OK;
    return st;
}

enum ax_status ax_pipe_send(struct ax_runtime *rt, struct ax_pipe_messages *list, int peer,
                            struct ax_stage_rows what) {
    return start(rt, list, what, peer, -1);
}

enum ax_status ax_pipe_receive(struct ax_runtime *rt, struct ax_pipe_messages *list, int peer,
                               struct ax_stage_rows what) {
    return start(rt, list, what, -1, peer);
}

enum ax_status ax_pipe_wait(struct ax_runtime *rt, struct ax_pipe_messages *list) {
    const int n = list->n;
    list->n = 0;
    for (int i = 0; i < n; i++)
        AX_TRY(ax_comm_wait(&rt->comms[AX_ROLE_PP], rt->q, list->tickets[i]));
    return AX_OK;
}
