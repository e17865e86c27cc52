#include "model/parallel/tp_hops.h"

static int tp_size(const struct ax_tp_hops *h) {
    return h->rt->mesh.size[AX_ROLE_TP];
}

static int own_rank(const struct ax_tp_hops *h) {
    return h->rt->mesh.coord[AX_ROLE_TP];
}

/* The rank `n` further on. */
static int further(const struct ax_tp_hops *h, int n) {
    return (own_rank(h) + tp_size(h) + n) % tp_size(h);
}

struct ax_tensor ax_tp_hops_rows(const struct ax_tp_hops *h, const struct ax_tensor *t, int rank) {
    return ax_tensor_rows(t, rank * h->own.shape[0], h->own.shape[0]);
}

static struct ax_tensor take(struct ax_runtime *rt, const char *name, const struct ax_tensor *own,
                             int64_t times) {
    return ax_stack_take(&rt->arena.scratch, name,
                         ax_tensor_2d(own->dtype, NULL, times * own->shape[0], own->shape[1]));
}

static enum ax_status exchange(struct ax_tp_hops *h, const struct ax_tensor *sent, int to,
                               const struct ax_tensor *received, int from) {
    const struct ax_collective what = {.kind = AX_SEND_RECV,
                                       .dtype = sent->dtype,
                                       .send = sent->data,
                                       .recv = received->data,
                                       .count = ax_tensor_numel(sent),
                                       .send_peer = to,
                                       .recv_peer = from};
    return ax_comm_start(&h->rt->comms[AX_ROLE_TP], h->rt->q, &what, &h->ticket);
}

static enum ax_status settle(struct ax_tp_hops *h) {
    if (h->ticket.id > 0)
        AX_TRY(ax_comm_wait(&h->rt->comms[AX_ROLE_TP], h->rt->q, h->ticket));
    h->ticket.id = 0;
    return AX_OK;
}

/* ---- gather ---- */

static enum ax_status gather_from(struct ax_tp_hops *h, int hop) {
    const int from = further(h, -hop);
    const struct ax_tensor rows = ax_tp_hops_rows(h, &h->all, from);
    return exchange(h, &h->own, further(h, hop), &rows, from);
}

enum ax_status ax_tp_hops_gather(struct ax_tp_hops *h, struct ax_runtime *rt,
                                 const struct ax_tensor *own, bool copied) {
    AX_ASSERT(ax_tensor_is_dense(own));
    *h = (struct ax_tp_hops){.rt = rt, .own = *own};
    h->all = take(rt, "gathered rows", own, tp_size(h));
    AX_TRY(gather_from(h, 1));
    const struct ax_tensor rows = ax_tp_hops_rows(h, &h->all, own_rank(h));
    return copied ? ax_run_copy(rt->q, &(struct ax_copy){rows, *own}) : AX_OK;
}

enum ax_status ax_tp_hops_next(struct ax_tp_hops *h, int *rank, struct ax_tensor *rows) {
    const int hop = h->hop++;
    *rank = further(h, -hop);
    *rows = hop == 0 ? h->own : ax_tp_hops_rows(h, &h->all, *rank);
    if (hop == 0)
        return AX_OK;
    AX_TRY(settle(h));
    return hop + 1 < tp_size(h) ? gather_from(h, hop + 1) : AX_OK;
}

/* ---- sum ---- */

enum ax_status ax_tp_hops_sum(struct ax_tp_hops *h, struct ax_runtime *rt,
                              const struct ax_tensor *own) {
    AX_ASSERT(ax_tensor_is_dense(own));
    *h = (struct ax_tp_hops){.rt = rt, .own = *own};
    h->all = take(rt, "partial sums", own, tp_size(h));
    h->received = take(rt, "others' parts of sums", own, tp_size(h) - 1);
    return AX_OK;
}

int ax_tp_hops_due(const struct ax_tp_hops *h) {
    return further(h, h->hop + 1);
}

enum ax_status ax_tp_hops_send(struct ax_tp_hops *h) {
    const int hop = h->hop++, to = further(h, hop + 1);
    if (to == own_rank(h))
        return AX_OK;
    const struct ax_tensor rows = ax_tp_hops_rows(h, &h->all, to),
                           into = ax_tp_hops_rows(h, &h->received, hop);
    AX_TRY(settle(h));
    return exchange(h, &rows, to, &into, further(h, -hop - 1));
}

/* Rank `rank`'s part of this rank's rows. */
static struct ax_tensor part_of(const struct ax_tp_hops *h, int rank) {
    const int hop = (own_rank(h) - rank - 1 + tp_size(h)) % tp_size(h);
    return rank == own_rank(h) ? ax_tp_hops_rows(h, &h->all, rank)
                               : ax_tp_hops_rows(h, &h->received, hop);
}

enum ax_status ax_tp_hops_finish(struct ax_tp_hops *h, const struct ax_tensor *addend) {
    struct ax_queue *q = h->rt->q;
    struct ax_tensor sum = h->own;
    AX_TRY(settle(h));
    sum.dtype = ax_dtype_accum(h->own.dtype);
    if (sum.dtype != h->own.dtype)
        sum = ax_stack_take(&h->rt->arena.scratch, "sums of parts", sum);
    for (int rank = 0; rank < tp_size(h); rank++) {
        const struct ax_tensor part = part_of(h, rank);
        AX_TRY(rank == 0 ? ax_run_copy(q, &(struct ax_copy){sum, part})
                         : ax_run_add(q, &(struct ax_add){sum, part, 1}));
    }
    if (sum.data != h->own.data)
        AX_TRY(ax_run_copy(q, &(struct ax_copy){h->own, sum}));
    return addend ? ax_run_add(q, &(struct ax_add){h->own, *addend, 1}) : AX_OK;
}
