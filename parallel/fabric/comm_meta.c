/* The communicator of the dry run: any group size, moves nothing; ax_comm_start has counted. */
#include "parallel/fabric/comm.h"

static enum ax_status meta_start(struct ax_comm *c, struct ax_queue *q,
                                 const struct ax_collective *what, struct ax_ticket ticket) {
    (void)c;
    (void)q;
    (void)what;
    (void)ticket;
    return AX_OK;
}

static enum ax_status meta_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    (void)c;
    (void)q;
    (void)ticket;
    return AX_OK;
}

static const struct ax_comm_ops meta_ops = {.name = "meta", .start = meta_start, .wait = meta_wait};

void ax_comm_meta_init(struct ax_comm *c, enum ax_role role, int rank, int size) {
    *c = (struct ax_comm){.ops = &meta_ops, .role = role, .rank = rank, .size = size};
}
