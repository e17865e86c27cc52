/* What all communicators share: checking, counting, and ideal traffic per collective. */
#include "parallel/fabric/comm.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/recording.h"
#include "kernels/timeline.h"
#include "parallel/fabric/contract.h"
#include "parallel/fabric/flight.h"

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

size_t ax_comm_staging(const struct ax_collective *what, int size) {
    int64_t part = 0;
    if (what->kind == AX_REDUCE_SCATTER)
        part = what->count;
    if (what->kind == AX_ALL_REDUCE)
        part = (what->count + size - 1) / size;
    return (size_t)(size - 1) * (size_t)part * ax_dtype_size(what->dtype);
}

/* What the device's side is told of a collective. */
struct call {
    struct ax_comm *comm;
    struct ax_ticket ticket;
    struct ax_collective what;
    int64_t *counts; /* the caller may change its own */
};

static enum ax_status copy_counts(struct call *call) {
    const size_t n = (size_t)call->comm->size;
    AX_TRY(ax_alloc(&call->counts, 2 * n, sizeof *call->counts));
    memcpy(call->counts, call->what.send_counts, n * sizeof *call->counts);
    memcpy(call->counts + n, call->what.recv_counts, n * sizeof *call->counts);
    call->what.send_counts = call->counts;
    call->what.recv_counts = call->counts + n;
    return AX_OK;
}

static enum ax_status start_now(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *call = args;
    struct ax_collective what = call->what;
    (void)at;
    what.send = ax_queue_address(q, what.send);
    what.recv = ax_queue_address(q, what.recv);
    what.staging = ax_queue_address(q, what.staging);
    const enum ax_status st = call->comm->ops->start(call->comm, q, &what, call->ticket);
    ax_free(call->counts);
    return st;
}

static enum ax_status record_start(const struct ax_comm *c, struct ax_recording *r,
                                   const struct ax_collective *what) {
    const bool message = what->kind == AX_SEND_RECV;
    struct ax_transfer_event t = {.lane = (int)c->role,
                                  .kind = (int)what->kind,
                                  .to = message ? what->send_peer : -1,
                                  .from = message ? what->recv_peer : -1,
                                  .ticket = c->sequence,
                                  .bytes = ax_comm_ideal_bytes(what, c->rank, c->size)};
    if (message)
        t.bytes = (double)what->count * (double)ax_dtype_size(what->dtype);
    return ax_record_start(r, &t);
}

static void note_start(const struct ax_comm *c, struct ax_timeline *t,
                       const struct ax_collective *what) {
    const double now = ax_timeline_now(t);
    ax_timeline_add(
        t, &(struct ax_timeline_span){.kind = AX_SPAN_START,
                                      .what = (int)what->kind,
                                      .lane = (int)c->role,
                                      .ticket = c->sequence,
                                      .begin = now,
                                      .end = now,
                                      .bytes = ax_comm_ideal_bytes(what, c->rank, c->size)});
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
    c->moves |= q->ops->device != &ax_device_host;
    c->calls[what->kind]++;
    c->bytes_sent[what->kind] += ax_comm_ideal_bytes(what, c->rank, c->size);
    ax_flight_note(c->flight, c, what);
    if (q->timeline && c->size > 1)
        note_start(c, q->timeline, what);
    struct call call = {.comm = c, .what = *what, .ticket = {c->sequence}};
    *ticket = call.ticket;
    if (q->recording && c->size > 1)
        AX_TRY(record_start(c, q->recording, what));
    if (ax_queue_is_meta(q))
        return AX_OK;
    if (c->ops->enqueues)
        return c->ops->start(c, q, what, call.ticket);
    if (what->kind == AX_ALL_TO_ALL_V)
        AX_TRY(copy_counts(&call));
    return ax_queue_call(q, start_now, &call, sizeof call, NULL, 0);
}

enum ax_status ax_comm_travel(struct ax_comm *c, struct ax_queue *q) {
    return c->ops->travel && !ax_queue_is_meta(q) ? c->ops->travel(c, q) : AX_OK;
}

double ax_comm_waited(struct ax_comm *c) {
    return c->ops && c->ops->waited ? c->ops->waited(c) : c->waited;
}

enum ax_status ax_comm_skip(struct ax_comm *c, const struct ax_collective *what) {
    return c->contracts ? ax_contract_note(c->contracts, c, what) : AX_OK;
}

static enum ax_status wait_now(struct ax_queue *q, const void *args, void *const *at) {
    const struct call *call = args;
    const double begin = ax_clock_now();
    (void)at;
    const enum ax_status st = call->comm->ops->wait(call->comm, q, call->ticket);
    call->comm->waited += ax_clock_now() - begin;
    if (st == AX_OK)
        ax_flight_done(call->comm->flight, call->comm, call->ticket);
    else
        ax_flight_write(call->comm->flight);
    return st;
}

enum ax_status ax_comm_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    c->waits++;
    if (q->recording && c->size > 1)
        AX_TRY(ax_record_wait(q->recording, (int)c->role, ticket.id));
    struct ax_timeline_span span = {
        .kind = AX_SPAN_WAIT, .lane = (int)c->role, .ticket = ticket.id};
    if (q->timeline)
        span.begin = ax_timeline_now(q->timeline);
    AX_TRY(c->ops->enqueues
               ? c->ops->wait(c, q, ticket)
               : ax_queue_call(q, wait_now, &(struct call){.comm = c, .ticket = ticket},
                               sizeof(struct call), NULL, 0));
    if (q->timeline && c->size > 1) {
        span.end = ax_timeline_now(q->timeline);
        ax_timeline_add(q->timeline, &span);
    }
    return AX_OK;
}

enum ax_status ax_comm_run(struct ax_comm *c, struct ax_queue *q,
                           const struct ax_collective *what) {
    const size_t staging = c->stages ? ax_comm_staging(what, c->size) : 0;
    struct ax_collective staged = *what;
    struct ax_ticket ticket;
    size_t mark = 0;
    if (staging > 0) {
        mark = ax_stack_mark(q->scratch);
        staged.staging = ax_stack_push(q->scratch, "others' parts of sums", staging);
    }
    AX_TRY(ax_comm_start(c, q, &staged, &ticket));
    AX_TRY(ax_comm_wait(c, q, ticket));
    if (staging > 0)
        ax_stack_release(q->scratch, mark);
    return AX_OK;
}

enum ax_status ax_comm_sum(struct ax_comm *c, struct ax_queue *q, enum ax_dtype dtype,
                           void AX_DEVICE *data, int64_t count) {
    const struct ax_collective what = {
        .kind = AX_ALL_REDUCE, .dtype = dtype, .send = data, .recv = data, .count = count};
    return ax_comm_run(c, q, &what);
}

enum ax_status ax_comm_max(struct ax_comm *c, struct ax_queue *q, enum ax_dtype dtype,
                           void AX_DEVICE *data, int64_t count) {
    const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                       .reduction = AX_MAX,
                                       .dtype = dtype,
                                       .send = data,
                                       .recv = data,
                                       .count = count};
    return ax_comm_run(c, q, &what);
}

void ax_comm_free(struct ax_comm *c) {
    if (c->ops && c->ops->free)
        c->ops->free(c);
    c->ops = NULL;
}
