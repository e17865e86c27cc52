/* What all communicators share: checking, counting, and ideal traffic per collective. */
#include "parallel/comm.h"

#include "parallel/contract.h"

static const char *const kind_names[AX_COLLECTIVE_COUNT] = {
    [AX_ALL_REDUCE] = "all_reduce",         [AX_ALL_GATHER] = "all_gather",
    [AX_REDUCE_SCATTER] = "reduce_scatter", [AX_ALL_TO_ALL_V] = "all_to_all_v",
    [AX_SEND_RECV] = "send_recv",           [AX_BROADCAST] = "broadcast",
};

const char *ax_collective_name(enum ax_collective_kind kind) {
    return kind_names[kind];
}

/* Bytes this rank sends under a ring algorithm (Patarasuk & Yuan 2009): all-gather and
 * reduce-scatter (n−1)·count, all-reduce 2·(n−1)/n·count; a broadcast is forwarded by every rank
 * except the one before the root. */
double ax_comm_ideal_bytes(const struct ax_collective *what, int rank, int size) {
    double n = size, elements = 0;
    switch (what->kind) {
    case AX_ALL_REDUCE:
        elements = 2 * (n - 1) / n * (double)what->count;
        break;
    case AX_ALL_GATHER:
    case AX_REDUCE_SCATTER:
        elements = (n - 1) * (double)what->count;
        break;
    case AX_ALL_TO_ALL_V:
        for (int r = 0; r < size; r++)
            elements += r == rank ? 0 : (double)what->send_counts[r];
        break;
    case AX_SEND_RECV:
        elements = what->send_peer >= 0 && what->send_peer != rank ? (double)what->count : 0;
        break;
    case AX_BROADCAST:
        elements = (rank + 1) % size != what->root ? (double)what->count : 0;
        break;
    case AX_COLLECTIVE_COUNT:
        break;
    }
    return elements * (double)ax_dtype_size(what->dtype);
}

enum ax_status ax_comm_start(struct ax_comm *c, struct ax_queue *q,
                             const struct ax_collective *what, struct ax_ticket *ticket) {
    AX_ASSERT(what->kind < AX_COLLECTIVE_COUNT && what->count >= 0);
    AX_ASSERT(what->kind != AX_BROADCAST || (what->root >= 0 && what->root < c->size));
    AX_ASSERT(what->kind != AX_ALL_TO_ALL_V || (what->send_counts && what->recv_counts));
    AX_ASSERT(what->kind != AX_SEND_RECV ||
              (what->send_peer < c->size && what->recv_peer < c->size));
    if (c->contracts)
        AX_TRY(ax_contract_note(c->contracts, c, what));
    c->sequence++;
    c->calls[what->kind]++;
    c->bytes_sent += ax_comm_ideal_bytes(what, c->rank, c->size);
    return c->ops->start(c, q, what, ticket);
}

enum ax_status ax_comm_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    return c->ops->wait(c, q, ticket);
}

enum ax_status ax_comm_run(struct ax_comm *c, struct ax_queue *q,
                           const struct ax_collective *what) {
    struct ax_ticket ticket;
    AX_TRY(ax_comm_start(c, q, what, &ticket));
    return ax_comm_wait(c, q, ticket);
}

enum ax_status ax_comm_sum(struct ax_comm *c, struct ax_queue *q, enum ax_dtype dtype, void *data,
                           int64_t count) {
    const struct ax_collective what = {
        .kind = AX_ALL_REDUCE, .dtype = dtype, .send = data, .recv = data, .count = count};
    return ax_comm_run(c, q, &what);
}

void ax_comm_free(struct ax_comm *c) {
    if (c->ops && c->ops->free)
        c->ops->free(c);
    c->ops = NULL;
}
