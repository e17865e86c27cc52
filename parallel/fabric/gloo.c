/* The gloo fabric: ranks in processes. Communicators start collectives, complete them when they are waited for, and
 * sum in rank order. */
#include <string.h>

#include "base/fault.h"
#include "base/hash/hash.h"
#include "base/mem.h"
#include "parallel/fabric/gloo.h"
#include "parallel/fabric/reduce.h"

/* ---- starting ---- */

/* Posts everything that can be sent immediately: to each peer a header (the description) and the data, whose slot
 * contains the description, so that data of ranks that disagree never match. All-reduce = reduce-scatter of even
 * slices + all-gather of the sums. */

/* A message's place depends on its direction; for a collective any peer and direction will do. */
static struct ax_comm_place place_of(const struct ax_gloo_op *op, int peer, bool sends) {
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

static enum ax_status lost_peer(const struct ax_gloo_op *op, int peer, bool sends,
                                enum ax_gloo_result how, const char *text) {
    const struct ax_gloo_member *me = op->comm->state;
    const struct ax_comm_place place = place_of(op, peer, sends);
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
    return r == AX_GLOO_DONE ? AX_OK : lost_peer(op, peer, true, r, text);
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
    return r == AX_GLOO_DONE ? AX_OK : lost_peer(op, peer, false, r, text);
}

/* Waits for one transfer; NULL: none. */
static enum ax_gloo_result finish_transfer(const struct ax_gloo_op *op, struct ax_gloo_transfer **t,
                                           char *text) {
    const struct ax_gloo_member *me = op->comm->state;
    if (!*t)
        return AX_GLOO_DONE;
    const enum ax_gloo_result r = me->world->gloo->wait(*t, text);
    me->world->gloo->transfer_free(*t);
    *t = NULL;
    return r;
}

/* Waits for everything of a phase, in both directions. */
static enum ax_status finish_phase(struct ax_gloo_op *op, enum ax_gloo_phase phase) {
    char text[AX_GLOO_TEXT];
    for (int r = 0; r < op->comm->size; r++) {
        enum ax_gloo_result how = finish_transfer(op, &op->lanes[r].recv[phase], text);
        if (how != AX_GLOO_DONE)
            return lost_peer(op, r, false, how, text);
        how = finish_transfer(op, &op->lanes[r].send[phase], text);
        if (how != AX_GLOO_DONE)
            return lost_peer(op, r, true, how, text);
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

static void copy_bytes(void *to, const void *from, size_t bytes) {
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
    copy_bytes(recv + (size_t)op->comm->rank * bytes, op->what.send, bytes);
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
    const struct ax_comm_place place = place_of(op, me, true);
    const char *send = what->send;
    char *recv = what->recv;
    AX_TRY(ax_comm_check_counts(&place, &op->part, own, what->send_counts[me], own,
                                what->recv_counts[me]));
    for (int r = 0; r < op->comm->size; r++) {
        const size_t out = (size_t)what->send_counts[r] * size;
        const size_t in = (size_t)what->recv_counts[r] * size;
        if (r == me) {
            copy_bytes(recv, send, out);
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
        copy_bytes(what->recv, what->send, bytes);
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
        copy_bytes(what->recv, what->send, bytes);
    for (int r = 0; r < op->comm->size; r++)
        if (r != op->comm->rank)
            AX_TRY(post_send(op, r, AX_GLOO_DATA, what->recv, bytes));
    return AX_OK;
}

/* Posts headers and all data that can be sent immediately. */
static enum ax_status post_op(struct ax_gloo_op *op) {
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

/* Sends the sums of this rank's slice of an all-reduce, in recv, to all. */
static enum ax_status post_sums(struct ax_gloo_op *op) {
    const size_t size = ax_dtype_size(op->what.dtype);
    int64_t mine;
    const char *sums =
        (const char *)op->what.recv + (size_t)ax_gloo_slice(op, op->comm->rank, &mine) * size;
    for (int r = 0; r < op->comm->size; r++)
        if (r != op->comm->rank)
            AX_TRY(post_send(op, r, AX_GLOO_SUMS, sums, (size_t)mine * size));
    return AX_OK;
}

/* ---- completing: compares the headers, waits for the data and sums ---- */

/* Receives everyone's header; an error names all ranks that have not started the collective. */
static enum ax_status receive_headers(struct ax_gloo_op *op) {
    const struct ax_gloo_member *me = op->comm->state;
    char text[AX_GLOO_TEXT], first_text[AX_GLOO_TEXT] = "";
    enum ax_gloo_result first = AX_GLOO_DONE;
    int *missing, n = 0, peer = 0;
    AX_TRY(ax_alloc(&missing, (size_t)op->comm->size, sizeof *missing));
    for (int r = 0; r < op->comm->size; r++) {
        const enum ax_gloo_result how =
            finish_transfer(op, &op->lanes[r].recv[AX_GLOO_HEADER], text);
        if (how == AX_GLOO_DONE)
            continue;
        if (n == 0) {
            peer = r;
            first = how;
            memcpy(first_text, text, sizeof text);
        }
        if (n == 0 || first == AX_GLOO_LATE) /* timeouts end all, broken links only one */
            missing[n++] = me->group->ranks[r];
    }
    enum ax_status st = AX_OK;
    if (n > 0) {
        const struct ax_comm_place place = place_of(op, peer, false);
        st = ax_gloo_lost(me->world, &place, &op->part, missing, n, first, first_text);
    }
    ax_free(missing);
    return st;
}

static enum ax_status compare_message(const struct ax_gloo_op *op) {
    const struct ax_gloo_member *me = op->comm->state;
    const int from = op->what.recv_peer;
    if (from < 0 || from == op->comm->rank)
        return AX_OK;
    const struct ax_comm_place place = place_of(op, from, false);
    const struct ax_comm_part parts[2] = {op->lanes[from].in.part, op->part};
    const int ranks[2] = {me->group->ranks[from], me->group->ranks[op->comm->rank]};
    return ax_comm_check_parts(&place, parts, ranks, 2);
}

static enum ax_status compare_parts(const struct ax_gloo_op *op) {
    const struct ax_gloo_member *me = op->comm->state;
    const int n = op->comm->size, own = op->comm->rank;
    struct ax_comm_part *parts;
    if (ax_gloo_is_message(op))
        return compare_message(op);
    const struct ax_comm_place place = place_of(op, own, true);
    AX_TRY(ax_alloc(&parts, (size_t)n, sizeof *parts));
    for (int r = 0; r < n; r++)
        parts[r] = r == own ? op->part : op->lanes[r].in.part;
    enum ax_status st = ax_comm_check_parts(&place, parts, me->group->ranks, n);
    ax_free(parts);
    for (int r = 0; op->what.kind == AX_ALL_TO_ALL_V && r < n && st == AX_OK; r++)
        if (r != own)
            st = ax_comm_check_counts(&place, &op->part, me->group->ranks[r],
                                      op->lanes[r].in.for_you, me->group->ranks[own],
                                      op->what.recv_counts[r]);
    return st;
}

/* Advances to the sums of this rank's part, and posts those of an all-reduce to all. */
static enum ax_status advance_op(struct ax_gloo_op *op) {
    const struct ax_collective *what = &op->what;
    const int n = op->comm->size;
    if (op->summed)
        return AX_OK;
    AX_TRY(receive_headers(op));
    AX_TRY(compare_parts(op));
    AX_TRY(finish_phase(op, AX_GLOO_HEADER));
    AX_TRY(finish_phase(op, AX_GLOO_DATA));
    op->summed = true;
    if (what->kind == AX_REDUCE_SCATTER)
        ax_reduce_ordered(what->reduction, what->dtype, what->recv, op->inputs, n, what->count);
    if (what->kind != AX_ALL_REDUCE)
        return AX_OK;
    int64_t mine;
    const size_t size = ax_dtype_size(what->dtype);
    char *sums = (char *)what->recv + (size_t)ax_gloo_slice(op, op->comm->rank, &mine) * size;
    ax_reduce_ordered(what->reduction, what->dtype, sums, op->inputs, n, mine);
    return post_sums(op);
}

/* ---- a communicator ---- */

static void drop_transfers(struct ax_gloo_op *op) {
    const struct ax_gloo_member *me = op->comm->state;
    for (int r = 0; op->lanes && r < op->comm->size; r++)
        for (int phase = 0; phase < AX_GLOO_PHASES; phase++) {
            struct ax_gloo_lane *lane = &op->lanes[r];
            me->world->gloo->transfer_free(lane->send[phase]);
            me->world->gloo->transfer_free(lane->recv[phase]);
            lane->send[phase] = lane->recv[phase] = NULL;
        }
}

static void op_free(struct ax_gloo_op *op) {
    drop_transfers(op);
    ax_free(op->lanes);
    ax_free(op->counts);
    ax_free(op->inputs);
    ax_free(op->staging);
    ax_free(op);
}

static enum ax_status op_make(struct ax_comm *c, struct ax_gloo_op **out) {
    struct ax_gloo_op *op;
    enum ax_status st;
    const size_t n = (size_t)c->size;
    AX_TRY(ax_alloc(&op, 1, sizeof *op));
    op->comm = c;
    AX_TRY_GOTO(ax_alloc(&op->lanes, n, sizeof *op->lanes), st, fail);
    AX_TRY_GOTO(ax_alloc(&op->counts, 2 * n, sizeof *op->counts), st, fail);
    AX_TRY_GOTO(ax_alloc(&op->inputs, n, sizeof *op->inputs), st, fail);
    *out = op;
    return AX_OK;
fail:
    op_free(op);
    return st;
}

static enum ax_status take_op(struct ax_comm *c, struct ax_gloo_op **out) {
    struct ax_gloo_member *me = c->state;
    struct ax_gloo_op *op = me->spare;
    if (op)
        me->spare = op->next;
    else
        AX_TRY(op_make(c, &op));
    op->next = NULL;
    op->summed = false;
    struct ax_gloo_order *o = me->order;
    if (o->last)
        o->last->next = op;
    else
        o->first = op;
    o->last = op;
    *out = op;
    return AX_OK;
}

static void unlink_op(struct ax_gloo_order *o, struct ax_gloo_op *op) {
    struct ax_gloo_op **at = &o->first, *before = NULL;
    while (*at != op) {
        before = *at;
        at = &(*at)->next;
    }
    *at = op->next;
    if (o->last == op)
        o->last = before;
}

/* After an error nothing may be written to buffers: the caller is about to release them. */
static enum ax_status stop_order(struct ax_gloo_order *o, enum ax_status st) {
    for (struct ax_gloo_op *op = o->first; st != AX_OK && op; op = op->next)
        drop_transfers(op);
    o->stopped |= st != AX_OK;
    return st;
}

static enum ax_status check_running(const struct ax_gloo_member *me) {
    if (!me->order->stopped)
        return AX_OK;
    return ax_error(AX_ERR_PEER, "rank %d has stopped after an earlier error", me->world->rank);
}

static enum ax_status gloo_start(struct ax_comm *c, struct ax_queue *q,
                                 const struct ax_collective *what, struct ax_ticket ticket) {
    struct ax_gloo_member *me = c->state;
    struct ax_gloo_op *op;
    (void)q;
    AX_TRY(check_running(me));
    AX_TRY(take_op(c, &op));
    op->id = ticket.id;
    op->what = *what;
    op->part = ax_comm_part_of(what);
    if (what->kind == AX_ALL_TO_ALL_V) {
        const size_t bytes = (size_t)c->size * sizeof *op->counts;
        memcpy(op->counts, what->send_counts, bytes);
        memcpy(op->counts + c->size, what->recv_counts, bytes);
        op->what.send_counts = op->counts;
        op->what.recv_counts = op->counts + c->size;
    }
    if (what->kind != AX_SEND_RECV) {
        op->sent = op->received = ++me->collectives;
    } else {
        op->sent = what->send_peer >= 0 ? ++me->sent[what->send_peer] : 0;
        op->received = what->recv_peer >= 0 ? ++me->received[what->recv_peer] : 0;
    }
    return stop_order(me->order, post_op(op));
}

/* Completes earlier all-reduces first: others may be waiting for their sums. */
static enum ax_status complete_op(struct ax_gloo_order *o, struct ax_gloo_op *op) {
    for (struct ax_gloo_op *at = o->first; at != op; at = at->next)
        if (at->what.kind == AX_ALL_REDUCE)
            AX_TRY(advance_op(at));
    AX_TRY(advance_op(op));
    return finish_phase(op, AX_GLOO_SUMS);
}

static enum ax_status gloo_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    (void)q;
    struct ax_gloo_member *me = c->state;
    struct ax_gloo_op *op = me->order->first;
    AX_TRY(check_running(me));
    while (op && (op->comm != c || op->id != ticket.id))
        op = op->next;
    AX_ASSERT(op); /* each ticket is waited for once */
    AX_TRY(stop_order(me->order, complete_op(me->order, op)));
    unlink_op(me->order, op);
    op->next = me->spare;
    me->spare = op;
    return AX_OK;
}

static void member_free(struct ax_gloo_member *me) {
    me->world->members--;
    ax_free(me->sent);
    ax_free(me->received);
    ax_free(me);
}

static void gloo_comm_free(struct ax_comm *c) {
    struct ax_gloo_member *me = c->state;
    for (struct ax_gloo_op *op = me->order->first, *next; op; op = next) {
        next = op->next;
        if (op->comm != c)
            continue;
        unlink_op(me->order, op);
        op_free(op);
    }
    while (me->spare) {
        struct ax_gloo_op *op = me->spare;
        me->spare = op->next;
        op_free(op);
    }
    member_free(me);
}

static const struct ax_comm_ops gloo_ops = {
    .name = "gloo", .start = gloo_start, .wait = gloo_wait, .free = gloo_comm_free};

static enum ax_status gloo_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                                const int *ranks, int n, bool apart) {
    struct ax_gloo_member *me;
    struct ax_gloo_group *group;
    enum ax_status st;
    const size_t size = (size_t)n;
    AX_TRY(ax_alloc(&me, 1, sizeof *me));
    me->world = f->state;
    me->world->members++;
    me->order = apart ? &me->own : &me->world->order;
    me->instance = me->world->opened[role]++;
    AX_TRY_GOTO(ax_alloc(&me->sent, size, sizeof *me->sent), st, fail);
    AX_TRY_GOTO(ax_alloc(&me->received, size, sizeof *me->received), st, fail);
    AX_TRY_GOTO(ax_gloo_connect(me->world, ranks, n, role, me->instance, &group), st, fail);
    me->group = group;
    *c = (struct ax_comm){
        .ops = &gloo_ops, .role = role, .rank = group->rank, .size = n, .state = me};
    return AX_OK;
fail:
    member_free(me);
    return st;
}

/* ---- the fabric ---- */

static void gloo_fail(struct ax_fabric *f, enum ax_status st) {
    ax_gloo_world_fail(f->state, st);
}

static void gloo_free(struct ax_fabric *f) {
    ax_gloo_world_close(f->state);
    f->state = NULL;
}

static const struct ax_fabric_ops gloo_fabric_ops = {
    .name = "gloo", .stages = true, .open = gloo_open, .fail = gloo_fail, .free = gloo_free};

enum ax_status ax_gloo_open(struct ax_fabric *f, struct ax_store_client *store, int local_world,
                            double timeout) {
    struct ax_gloo_world *w;
    AX_TRY(ax_gloo_world_open(&w, store, timeout));
    *f = (struct ax_fabric){.ops = &gloo_fabric_ops,
                            .world = w->world,
                            .rank = w->rank,
                            .local_world = local_world,
                            .timeout = timeout,
                            .state = w};
    return AX_OK;
}
