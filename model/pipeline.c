#include "model/pipeline.h"

static enum ax_status start(struct ax_runtime *rt, int peer, struct ax_stage_rows what, bool send,
                            struct ax_ticket *ticket) {
    const struct ax_tensor *rows = what.rows;
    const struct ax_collective message = {.kind = AX_SEND_RECV,
                                          .dtype = rows->dtype,
                                          .send = send ? rows->data : NULL,
                                          .recv = send ? NULL : rows->data,
                                          .count = ax_tensor_numel(rows),
                                          .send_peer = send ? peer : -1,
                                          .recv_peer = send ? -1 : peer};
    if (what.batch)
        ax_contract_scale(rt, what.batch->T, what.batch->cap);
    const enum ax_status st = ax_comm_start(&rt->comms[AX_ROLE_PP], rt->q, &message, ticket);
    ax_contract_scale(rt, 1, 1);
    return st;
}

enum ax_status ax_stage_exchange(struct ax_runtime *rt, int peer, struct ax_stage_rows send,
                                 struct ax_stage_rows receive) {
    struct ax_comm *c = &rt->comms[AX_ROLE_PP];
    struct ax_ticket sent, received;
    if (send.rows)
        AX_TRY(start(rt, peer, send, true, &sent));
    if (receive.rows)
        AX_TRY(start(rt, peer, receive, false, &received));
    if (send.rows)
        AX_TRY(ax_comm_wait(c, rt->q, sent));
    return receive.rows ? ax_comm_wait(c, rt->q, received) : AX_OK;
}
