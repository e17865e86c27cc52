/* Starting posts everything that can be sent immediately: to each peer a header (the description)
 * and the data, whose slot contains the description, so that data of ranks that disagree never
 * match. All-reduce = reduce-scatter of even slices + all-gather of the sums. */
#include <string.h>

#include "base/fault.h"
#include "base/hash/hash.h"
#include "base/mem.h"
#include "parallel/fabric/gloo.h"

struct ax_comm_place ax_gloo_place(const struct ax_gloo_op *op, int peer, bool sends) {
    const struct ax_gloo_member *me = op->comm->state;
    struct ax_comm_place place = {
        .role = op->comm->role, .number = sends ? op->sent : op->received, .from = -1, .to = -1};
    if (ax_gloo_is_message(op)) {
        place.from = me->group->ranks[sends ? op->comm->rank : peer];
        place.to = me->group->ranks[sends ? peer : op->comm->rank];
    }
    return place;
}

/* Equal on both sides for the same transfer, and practically never otherwise. Slots of data include
 * the description; those of headers do not, because headers must match to be compared. */
static uint64_t slot_of(const struct ax_gloo_op *op, bool sends, enum ax_gloo_phase phase,
                        size_t bytes) {
    const struct ax_gloo_member *me = op->comm->state;
    const uint64_t names[] = {(uint64_t)op->comm->role, me->instance,
                              ax_gloo_is_message(op),   sends ? op->sent : op->received,
                              (uint64_t)phase,          (uint64_t)bytes};
    const uint64_t slot = ax_hash64(names, sizeof names, 0);
    return phase == AX_GLOO_HEADER ? slot : ax_hash64(&op->part, sizeof op->part, slot);
}

static enum ax_status lost(const struct ax_gloo_op *op, int peer, bool sends,
                           enum ax_gloo_result how, const char *text) {
    const struct ax_gloo_member *me = op->comm->state;
    const struct ax_comm_place place = ax_gloo_place(op, peer, sends);
    return ax_gloo_lost(me->world, &place, &op->part, &me->group->ranks[peer], 1, how, text);
}

static enum ax_status post_send(struct ax_gloo_op *op, int peer, enum ax_gloo_phase phase,
                                const void *data, size_t bytes) {
    const struct ax_gloo_member *me = op->comm->state;
    char text[AX_GLOO_TEXT] = "fault injected";
    if (bytes == 0)
        return AX_OK;
    enum ax_gloo_result r = AX_GLOO_BROKEN;
    if (ax_fault_point(AX_FAULT_SEND) == AX_FAULT_NONE)
        r = me->world->gloo->send(me->group->link, peer, slot_of(op, true, phase, bytes), data,
                                  bytes, &op->lanes[peer].send[phase], text);
    return r == AX_GLOO_DONE ? AX_OK : lost(op, peer, true, r, text);
}

static enum ax_status post_recv(struct ax_gloo_op *op, int peer, enum ax_gloo_phase phase,
                                void *data, size_t bytes) {
    const struct ax_gloo_member *me = op->comm->state;
    char text[AX_GLOO_TEXT] = "fault injected";
    if (bytes == 0)
        return AX_OK;
    enum ax_gloo_result r = AX_GLOO_BROKEN;
    if (ax_fault_point(AX_FAULT_RECV) == AX_FAULT_NONE)
        r = me->world->gloo->recv(me->group->link, peer, slot_of(op, false, phase, bytes), data,
                                  bytes, &op->lanes[peer].recv[phase], text);
    return r == AX_GLOO_DONE ? AX_OK : lost(op, peer, false, r, text);
}

enum ax_gloo_result ax_gloo_finish(const struct ax_gloo_op *op, struct ax_gloo_transfer **t,
                                   char *text) {
    const struct ax_gloo_member *me = op->comm->state;
    if (!*t)
        return AX_GLOO_DONE;
    const enum ax_gloo_result r = me->world->gloo->wait(*t, text);
    me->world->gloo->transfer_free(*t);
    *t = NULL;
    return r;
}

enum ax_status ax_gloo_finish_phase(struct ax_gloo_op *op, enum ax_gloo_phase phase) {
    char text[AX_GLOO_TEXT];
    for (int r = 0; r < op->comm->size; r++) {
        enum ax_gloo_result how = ax_gloo_finish(op, &op->lanes[r].recv[phase], text);
        if (how != AX_GLOO_DONE)
            return lost(op, r, false, how, text);
        how = ax_gloo_finish(op, &op->lanes[r].send[phase], text);
        if (how != AX_GLOO_DONE)
            return lost(op, r, true, how, text);
    }
    return AX_OK;
}

static enum ax_status post_headers(struct ax_gloo_op *op) {
    const struct ax_collective *what = &op->what;
    for (int r = 0; r < op->comm->size; r++) {
        struct ax_gloo_lane *lane = &op->lanes[r];
        if (r == op->comm->rank)
            continue;
        lane->out = (struct ax_gloo_header){.part = op->part};
        if (what->kind == AX_ALL_TO_ALL_V)
            lane->out.for_you = what->send_counts[r];
        if (!ax_gloo_is_message(op) || r == what->recv_peer)
            AX_TRY(post_recv(op, r, AX_GLOO_HEADER, &lane->in, sizeof lane->in));
        if (!ax_gloo_is_message(op) || r == what->send_peer)
            AX_TRY(post_send(op, r, AX_GLOO_HEADER, &lane->out, sizeof lane->out));
    }
    return AX_OK;
}

static void copy(void *to, const void *from, size_t bytes) {
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

int64_t ax_gloo_slice(const struct ax_gloo_op *op, int rank, int64_t *n) {
    const int64_t count = op->what.count, each = (count + op->comm->size - 1) / op->comm->size;
    const int64_t first = each * rank < count ? each * rank : count;
    *n = count - first < each ? count - first : each;
    return first;
}

static enum ax_status stage(struct ax_gloo_op *op, size_t bytes) {
    if (bytes <= op->staging_bytes)
        return AX_OK;
    char *larger;
    AX_TRY(ax_alloc(&larger, bytes, 1));
    ax_free(op->staging);
    op->staging = larger;
    op->staging_bytes = bytes;
    return AX_OK;
}

/* This rank's part of every other's data goes to staging; the sums of an all-reduce to their final
 * place. */
static enum ax_status post_reduce(struct ax_gloo_op *op, size_t size) {
    const struct ax_collective *what = &op->what;
    const int n = op->comm->size, me = op->comm->rank;
    const bool all = what->kind == AX_ALL_REDUCE;
    int64_t mine = what->count, theirs = what->count;
    if (all)
        (void)ax_gloo_slice(op, me, &mine);
    const size_t own = (size_t)mine * size;
    char *staging = what->staging;
    if (!staging) {
        AX_TRY(stage(op, own * (size_t)(n - 1)));
        staging = op->staging;
    }
    for (int r = 0; r < n; r++) {
        const int64_t first = all ? ax_gloo_slice(op, r, &theirs) : r * what->count;
        const char *send = (const char *)what->send + (size_t)first * size;
        op->inputs[r] = r == me ? send : staging;
        if (r == me)
            continue;
        AX_TRY(post_recv(op, r, AX_GLOO_DATA, staging, own));
        staging += own;
        AX_TRY(post_send(op, r, AX_GLOO_DATA, send, (size_t)theirs * size));
        if (all)
            AX_TRY(post_recv(op, r, AX_GLOO_SUMS, (char *)what->recv + (size_t)first * size,
                             (size_t)theirs * size));
    }
    return AX_OK;
}

static enum ax_status post_gather(struct ax_gloo_op *op, size_t bytes) {
    char *recv = op->what.recv;
    copy(recv + (size_t)op->comm->rank * bytes, op->what.send, bytes);
    for (int r = 0; r < op->comm->size; r++) {
        if (r == op->comm->rank)
            continue;
        AX_TRY(post_recv(op, r, AX_GLOO_DATA, recv + (size_t)r * bytes, bytes));
        AX_TRY(post_send(op, r, AX_GLOO_DATA, op->what.send, bytes));
    }
    return AX_OK;
}

static enum ax_status post_all_to_all(struct ax_gloo_op *op, size_t size) {
    const struct ax_collective *what = &op->what;
    const struct ax_gloo_member *member = op->comm->state;
    const int me = op->comm->rank, own = member->group->ranks[me];
    const struct ax_comm_place place = ax_gloo_place(op, me, true);
    const char *send = what->send;
    char *recv = what->recv;
    AX_TRY(ax_comm_check_counts(&place, &op->part, own, what->send_counts[me], own,
                                what->recv_counts[me]));
    for (int r = 0; r < op->comm->size; r++) {
        const size_t out = (size_t)what->send_counts[r] * size;
        const size_t in = (size_t)what->recv_counts[r] * size;
        if (r == me) {
            copy(recv, send, out);
        } else {
            AX_TRY(post_recv(op, r, AX_GLOO_DATA, recv, in));
            AX_TRY(post_send(op, r, AX_GLOO_DATA, send, out));
        }
        send += out;
        recv += in;
    }
    return AX_OK;
}

static enum ax_status post_message(struct ax_gloo_op *op, size_t bytes) {
    const struct ax_collective *what = &op->what;
    const int me = op->comm->rank;
    AX_ASSERT((what->send_peer == me) == (what->recv_peer == me));
    if (what->send_peer == me) {
        copy(what->recv, what->send, bytes);
        return AX_OK;
    }
    if (what->recv_peer >= 0)
        AX_TRY(post_recv(op, what->recv_peer, AX_GLOO_DATA, what->recv, bytes));
    if (what->send_peer >= 0)
        AX_TRY(post_send(op, what->send_peer, AX_GLOO_DATA, what->send, bytes));
    return AX_OK;
}

static enum ax_status post_broadcast(struct ax_gloo_op *op, size_t bytes) {
    const struct ax_collective *what = &op->what;
    if (op->comm->rank != what->root)
        return post_recv(op, what->root, AX_GLOO_DATA, what->recv, bytes);
    if (what->send)
        copy(what->recv, what->send, bytes);
    for (int r = 0; r < op->comm->size; r++)
        if (r != op->comm->rank)
            AX_TRY(post_send(op, r, AX_GLOO_DATA, what->recv, bytes));
    return AX_OK;
}

enum ax_status ax_gloo_post(struct ax_gloo_op *op) {
    const size_t size = ax_dtype_size(op->what.dtype), bytes = (size_t)op->what.count * size;
    AX_TRY(post_headers(op));
    switch (op->what.kind) {
    case AX_ALL_REDUCE:
    case AX_REDUCE_SCATTER:
        return post_reduce(op, size);
    case AX_ALL_GATHER:
        return post_gather(op, bytes);
    case AX_ALL_TO_ALL_V:
        return post_all_to_all(op, size);
    case AX_SEND_RECV:
        return post_message(op, bytes);
    default:
        return post_broadcast(op, bytes);
    }
}

enum ax_status ax_gloo_post_sums(struct ax_gloo_op *op) {
    const size_t size = ax_dtype_size(op->what.dtype);
    int64_t mine;
    const char *sums =
        (const char *)op->what.recv + (size_t)ax_gloo_slice(op, op->comm->rank, &mine) * size;
    for (int r = 0; r < op->comm->size; r++)
        if (r != op->comm->rank)
            AX_TRY(post_send(op, r, AX_GLOO_SUMS, sums, (size_t)mine * size));
    return AX_OK;
}
