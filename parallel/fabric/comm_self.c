/* The communicator of a group of one: every collective is a copy, or a no-op if send is recv. */
#include "parallel/fabric/comm.h"

static enum ax_status self_start(struct ax_comm *c, struct ax_queue *q,
                                 const struct ax_collective *what, struct ax_ticket ticket) {
    (void)c;
    (void)ticket;
    int64_t n = what->kind == AX_ALL_TO_ALL_V ? what->send_counts[0] : what->count;
    const bool exchange = what->kind == AX_SEND_RECV; /* with itself, or with no one */
    AX_ASSERT(!exchange || (what->send_peer <= 0 && what->send_peer == what->recv_peer));
    if ((!exchange || what->send_peer == 0) && what->send && what->send != what->recv)
        return ax_queue_copy(q, what->recv, what->send, (size_t)n * ax_dtype_size(what->dtype));
    return AX_OK;
}

static enum ax_status self_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    (void)c;
    (void)q;
    (void)ticket;
    return AX_OK;
}

static const struct ax_comm_ops self_ops = {
    .name = "self", .enqueues = true, .start = self_start, .wait = self_wait};

void ax_comm_self_init(struct ax_comm *c, enum ax_role role) {
    *c = (struct ax_comm){.ops = &self_ops, .role = role, .rank = 0, .size = 1};
}
