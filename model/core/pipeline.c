#include "model/core/pipeline.h"

size_t ax_message_bytes(const struct ax_message *what) {
    size_t bytes = 0;
    for (int i = 0; i < what->n; i++)
        bytes += ax_arena_round(ax_tensor_bytes(&what->parts[i]));
    return bytes;
}

struct ax_message ax_message_at(const struct ax_message *what, void AX_DEVICE *memory) {
    struct ax_message placed = *what;
    char AX_DEVICE *at = memory;
    for (int i = 0; i < what->n; i++) {
        placed.parts[i].data = at;
        at += ax_arena_round(ax_tensor_bytes(&what->parts[i]));
    }
    return placed;
}

enum ax_status ax_message_copy(struct ax_queue *q, const struct ax_message *to,
                               const struct ax_message *from) {
    AX_ASSERT(to->n == from->n);
    for (int i = 0; i < to->n; i++)
        AX_TRY(ax_run_copy(q, &(struct ax_copy){to->parts[i], from->parts[i]}));
    return AX_OK;
}

int ax_pipe_peer(const struct ax_runtime *rt, int steps) {
    const int stages = rt->mesh.size[AX_ROLE_PP];
    return (rt->mesh.coord[AX_ROLE_PP] + steps + stages) % stages;
}

static enum ax_status start(struct ax_runtime *rt, const struct ax_message *what, int to, int from,
                            struct ax_message_tickets *tickets) {
    enum ax_status st = AX_OK;
    if (what->batch)
        ax_contract_scale(&rt->contracts, what->batch->T, what->batch->cap);
    tickets->n = what->n;
    for (int i = 0; i < what->n && st == AX_OK; i++) {
        const struct ax_tensor *t = &what->parts[i];
        const struct ax_collective message = {.kind = AX_SEND_RECV,
                                              .dtype = t->dtype,
                                              .send = to >= 0 ? t->data : NULL,
                                              .recv = from >= 0 ? t->data : NULL,
                                              .count = ax_tensor_numel(t),
                                              .send_peer = to,
                                              .recv_peer = from};
        st = ax_comm_start(&rt->comms[AX_ROLE_PP], rt->q, &message, &tickets->parts[i]);
    }
    ax_contract_scale(&rt->contracts, 1, 1);
    return st;
}

enum ax_status ax_pipe_send(struct ax_runtime *rt, int peer, const struct ax_message *what,
                            struct ax_message_tickets *tickets) {
    return start(rt, what, peer, -1, tickets);
}

enum ax_status ax_pipe_receive(struct ax_runtime *rt, int peer, const struct ax_message *what,
                               struct ax_message_tickets *tickets) {
    return start(rt, what, -1, peer, tickets);
}

enum ax_status ax_pipe_travel(struct ax_runtime *rt) {
    return ax_comm_travel(&rt->comms[AX_ROLE_PP], rt->q);
}

enum ax_status ax_pipe_wait(struct ax_runtime *rt, const struct ax_message_tickets *tickets) {
    for (int i = 0; i < tickets->n; i++)
        AX_TRY(ax_comm_wait(&rt->comms[AX_ROLE_PP], rt->q, tickets->parts[i]));
    return AX_OK;
}
