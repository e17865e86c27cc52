/* Waiting: compares the headers, waits for the data and sums in rank order. Then the communicator's
 * tickets, open and free. */
#include <string.h>

#include "base/mem.h"
#include "parallel/fabric/gloo.h"
#include "parallel/fabric/reduce.h"

/* Receives everyone's header; an error names all ranks that have not started the collective. */
static enum ax_status receive_headers(struct ax_gloo_op *op) {
    const struct ax_gloo_member *me = op->comm->state;
    char text[AX_GLOO_TEXT], first_text[AX_GLOO_TEXT] = "";
    enum ax_gloo_result first = AX_GLOO_DONE;
    int *missing, n = 0, peer = 0;
    AX_TRY(ax_alloc(&missing, (size_t)op->comm->size, sizeof *missing));
    for (int r = 0; r < op->comm->size; r++) {
        const enum ax_gloo_result how =
            ax_gloo_finish(op, &op->lanes[r].recv[AX_GLOO_HEADER], text);
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
        const struct ax_comm_place place = ax_gloo_place(op, peer, false);
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
    const struct ax_comm_place place = ax_gloo_place(op, from, false);
    const struct ax_comm_part parts[2] = {op->lanes[from].in.part, op->part};
    const int ranks[2] = {me->group->ranks[from], me->group->ranks[op->comm->rank]};
    return ax_comm_check_parts(&place, parts, ranks, 2);
}

static enum ax_status compare(const struct ax_gloo_op *op) {
    const struct ax_gloo_member *me = op->comm->state;
    const int n = op->comm->size, own = op->comm->rank;
    struct ax_comm_part *parts;
    if (ax_gloo_is_message(op))
        return compare_message(op);
    const struct ax_comm_place place = ax_gloo_place(op, own, true);
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
static enum ax_status advance(struct ax_gloo_op *op) {
    const struct ax_collective *what = &op->what;
    const int n = op->comm->size;
    if (op->summed)
        return AX_OK;
    AX_TRY(receive_headers(op));
    AX_TRY(compare(op));
    AX_TRY(ax_gloo_finish_phase(op, AX_GLOO_HEADER));
    AX_TRY(ax_gloo_finish_phase(op, AX_GLOO_DATA));
    op->summed = true;
    if (what->kind == AX_REDUCE_SCATTER)
        ax_reduce_ordered(what->reduction, what->dtype, what->recv, op->inputs, n, what->count);
    if (what->kind != AX_ALL_REDUCE)
        return AX_OK;
    int64_t mine;
    const size_t size = ax_dtype_size(what->dtype);
    char *sums = (char *)what->recv + (size_t)ax_gloo_slice(op, op->comm->rank, &mine) * size;
    ax_reduce_ordered(what->reduction, what->dtype, sums, op->inputs, n, mine);
    return ax_gloo_post_sums(op);
}

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
static enum ax_status stop(struct ax_gloo_order *o, enum ax_status st) {
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
    return stop(me->order, ax_gloo_post(op));
}

/* Completes earlier all-reduces first: others may be waiting for their sums. */
static enum ax_status complete(struct ax_gloo_order *o, struct ax_gloo_op *op) {
    for (struct ax_gloo_op *at = o->first; at != op; at = at->next)
        if (at->what.kind == AX_ALL_REDUCE)
            AX_TRY(advance(at));
    AX_TRY(advance(op));
    return ax_gloo_finish_phase(op, AX_GLOO_SUMS);
}

static enum ax_status gloo_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    (void)q;
    struct ax_gloo_member *me = c->state;
    struct ax_gloo_op *op = me->order->first;
    AX_TRY(check_running(me));
    while (op && (op->comm != c || op->id != ticket.id))
        op = op->next;
    AX_ASSERT(op); /* each ticket is waited for once */
    AX_TRY(stop(me->order, complete(me->order, op)));
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

enum ax_status ax_gloo_comm_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
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
