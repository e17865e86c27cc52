#include "tests/comm_cases.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/hash/hash.h"
#include "kernels/queue.h"

enum { MAX_RANKS = 16, MAX_COUNT = 3000 };

static const enum ax_dtype travel[] = {AX_F64, AX_F32, AX_BF16, AX_I32, AX_I64, AX_U8};
enum { TRAVEL = sizeof travel / sizeof *travel };

_Thread_local struct ax_queue *comm_cases_queue;

static struct ax_queue *queue(void) {
    return comm_cases_queue ? comm_cases_queue : &host_queue;
}

/* A collective that was started. On a device's queue it moves copies of what the case has, in scratch, which
 * are released in the reverse order. */
struct started {
    struct ax_ticket ticket;
    struct span {
        char *host;
        char AX_DEVICE *device;
        size_t bytes;
    } sent, received; /* parts of one where they overlap */
    size_t mark;
};

static size_t bytes_of(const struct ax_comm *c, const struct ax_collective *what, bool received) {
    const int64_t *counts = received ? what->recv_counts : what->send_counts;
    const bool parts = what->kind == (received ? AX_ALL_GATHER : AX_REDUCE_SCATTER);
    int64_t n = what->count * (parts ? c->size : 1);
    for (int r = 0; what->kind == AX_ALL_TO_ALL_V && r < c->size; r++)
        n += counts[r];
    return (size_t)n * ax_dtype_size(what->dtype);
}

static void extend(struct span *to, const struct span *by) {
    char *end = to->host + to->bytes, *other = by->host + by->bytes;
    to->host = by->host < to->host ? by->host : to->host;
    to->bytes = (size_t)((other > end ? other : end) - to->host);
}

static enum ax_status copy_there(struct span *s) {
    s->device = ax_stack_push(queue()->scratch, "case", s->bytes);
    return ax_queue_write(queue(), s->device, s->host, s->bytes);
}

static enum ax_status move_there(const struct ax_comm *c, struct ax_collective *what,
                                 struct started *s) {
    s->mark = ax_stack_mark(queue()->scratch);
    if (what->send)
        s->sent = (struct span){(char *)(uintptr_t)what->send, NULL, bytes_of(c, what, false)};
    s->received = (struct span){what->recv, NULL, bytes_of(c, what, true)};
    const bool overlap = s->sent.host && s->sent.host < s->received.host + s->received.bytes &&
                         s->received.host < s->sent.host + s->sent.bytes;
    if (overlap)
        extend(&s->received, &s->sent);
    AX_TRY(copy_there(&s->received));
    if (overlap)
        s->sent = s->received;
    else if (what->send)
        AX_TRY(copy_there(&s->sent));
    what->recv = s->received.device + ((char *)what->recv - s->received.host);
    if (what->send)
        what->send = s->sent.device + ((const char *)what->send - s->sent.host);
    return AX_OK;
}

static enum ax_status start(struct ax_comm *c, const struct ax_collective *what,
                            struct started *s) {
    struct ax_collective there = *what;
    *s = (struct started){0};
    if (comm_cases_queue)
        AX_TRY(move_there(c, &there, s));
    return ax_comm_start(c, queue(), &there, &s->ticket);
}

/* The host looks at what has arrived. */
static enum ax_status wait_for(struct ax_comm *c, const struct started *s) {
    AX_TRY(ax_comm_wait(c, queue(), s->ticket));
    AX_TRY(ax_queue_finish(queue()));
    if (!comm_cases_queue)
        return AX_OK;
    AX_TRY(ax_queue_read(queue(), s->received.device, s->received.host, s->received.bytes, NULL));
    ax_stack_release(queue()->scratch, s->mark);
    return AX_OK;
}

static enum ax_status run(struct ax_comm *c, const struct ax_collective *what) {
    struct started s;
    AX_TRY(start(c, what, &s));
    return wait_for(c, &s);
}

/* Element i of rank r: a small integer, exact in every type, so that sums of 16 are too. */
static double value(int r, int64_t i) {
    return (double)((i * 7 + r * 3 + (i >> 4)) % 13 + (r == 2 ? 2 : 0));
}

static void fill(enum ax_dtype dtype, void *data, int r, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        ax_store(dtype, data, i, value(r, first + i));
}

static double reduced(enum ax_reduction reduction, int ranks, int64_t i) {
    double x = value(0, i);
    for (int r = 1; r < ranks; r++)
        x = reduction == AX_SUM ? x + value(r, i) : fmax(x, value(r, i));
    return x;
}

enum ax_status comm_cases_open(struct ax_fabric *f, enum ax_role role, struct ax_comm *c) {
    int ranks[MAX_RANKS];
    for (int r = 0; r < f->world; r++)
        ranks[r] = r;
    return f->ops->open(f, c, role, ranks, f->world, false);
}

/* From one buffer to another, and in place. */
static enum ax_status all_reduce(struct ax_comm *c, enum ax_dtype dtype, int64_t count) {
    static _Thread_local double send[MAX_COUNT], recv[MAX_COUNT];
    for (int i = 0; i < 4; i++) {
        const enum ax_reduction reduction = i & 1 ? AX_MAX : AX_SUM;
        void *to = i & 2 ? send : recv;
        fill(dtype, send, c->rank, 0, count);
        const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                           .reduction = reduction,
                                           .dtype = dtype,
                                           .send = send,
                                           .recv = to,
                                           .count = count};
        AX_TRY(run(c, &what));
        for (int64_t e = 0; e < count; e++)
            ENSURE(ax_load(dtype, to, e) == reduced(reduction, c->size, e));
        for (int64_t e = 0; to == recv && e < count; e++)
            ENSURE(ax_load(dtype, send, e) == value(c->rank, e));
    }
    return AX_OK;
}

static enum ax_status all_gather(struct ax_comm *c, enum ax_dtype dtype, int64_t count) {
    static _Thread_local double send[MAX_COUNT], recv[MAX_RANKS * MAX_COUNT];
    const size_t bytes = (size_t)count * ax_dtype_size(dtype);
    for (int in_place = 0; in_place < 2; in_place++) {
        memset(recv, 0xFF, sizeof recv);
        void *from = in_place ? (char *)recv + (size_t)c->rank * bytes : (char *)send;
        fill(dtype, from, c->rank, 5, count);
        const struct ax_collective what = {
            .kind = AX_ALL_GATHER, .dtype = dtype, .send = from, .recv = recv, .count = count};
        AX_TRY(run(c, &what));
        for (int r = 0; r < c->size; r++)
            for (int64_t e = 0; e < count; e++)
                ENSURE(ax_load(dtype, recv, r * count + e) == value(r, 5 + e));
    }
    return AX_OK;
}

static enum ax_status reduce_scatter(struct ax_comm *c, enum ax_dtype dtype, int64_t count) {
    static _Thread_local double send[MAX_RANKS * MAX_COUNT], recv[MAX_COUNT];
    for (int i = 0; i < 4; i++) {
        const enum ax_reduction reduction = i & 1 ? AX_MAX : AX_SUM;
        const int64_t at = c->rank * count;
        void *to = i & 2 ? (char *)send + (size_t)at * ax_dtype_size(dtype) : (char *)recv;
        fill(dtype, send, c->rank, 0, count * c->size);
        const struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                           .reduction = reduction,
                                           .dtype = dtype,
                                           .send = send,
                                           .recv = to,
                                           .count = count};
        AX_TRY(run(c, &what));
        for (int64_t e = 0; e < count; e++)
            ENSURE(ax_load(dtype, to, e) == reduced(reduction, c->size, at + e));
    }
    return AX_OK;
}

/* Uneven parts, some empty. */
static int64_t part(int64_t unit, int from, int to) {
    return (from * 3 + to * 5) % 4 * unit;
}

static enum ax_status all_to_all_v(struct ax_comm *c, enum ax_dtype dtype, int64_t unit) {
    static _Thread_local double send[4 * MAX_COUNT], recv[4 * MAX_COUNT];
    int64_t out[MAX_RANKS], in[MAX_RANKS], at = 0;
    for (int r = 0; r < c->size; r++) {
        out[r] = part(unit, c->rank, r);
        in[r] = part(unit, r, c->rank);
        fill(dtype, (char *)send + (size_t)at * ax_dtype_size(dtype), c->rank, r, out[r]);
        at += out[r];
    }
    const struct ax_collective what = {.kind = AX_ALL_TO_ALL_V,
                                       .dtype = dtype,
                                       .send = send,
                                       .recv = recv,
                                       .send_counts = out,
                                       .recv_counts = in};
    struct started s;
    AX_TRY(start(c, &what, &s));
    int64_t expected[MAX_RANKS];
    memcpy(expected, in, sizeof in);
    memset(out, 0xFF, sizeof out); /* count arrays may go once it is started */
    memset(in, 0xFF, sizeof in);
    AX_TRY(wait_for(c, &s));
    at = 0;
    for (int r = 0; r < c->size; r++)
        for (int64_t e = 0; e < expected[r]; e++, at++)
            ENSURE(ax_load(dtype, recv, at) == value(r, c->rank + e));
    return AX_OK;
}

/* To the next and from the one before, around; then only from even ranks to the next. */
static enum ax_status messages(struct ax_comm *c, enum ax_dtype dtype, int64_t count) {
    static _Thread_local double send[MAX_COUNT], recv[MAX_COUNT];
    const int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    struct ax_collective what = {.kind = AX_SEND_RECV,
                                 .dtype = dtype,
                                 .send = send,
                                 .recv = recv,
                                 .count = count,
                                 .send_peer = next,
                                 .recv_peer = before};
    fill(dtype, send, c->rank, 9, count);
    AX_TRY(run(c, &what));
    for (int64_t e = 0; e < count; e++)
        ENSURE(ax_load(dtype, recv, e) == value(before, 9 + e));
    const bool sends = c->rank % 2 == 0 && c->rank + 1 < c->size, receives = c->rank % 2 == 1;
    if (!sends && !receives)
        return AX_OK; /* the others go on without it */
    what.send_peer = sends ? next : -1;
    what.recv_peer = receives ? before : -1;
    what.send = sends ? send : NULL;
    fill(dtype, send, c->rank, 1, count);
    AX_TRY(run(c, &what));
    for (int64_t e = 0; receives && e < count; e++)
        ENSURE(ax_load(dtype, recv, e) == value(before, 1 + e));
    return AX_OK;
}

static enum ax_status broadcast(struct ax_comm *c, enum ax_dtype dtype, int64_t count) {
    static _Thread_local double send[MAX_COUNT], recv[MAX_COUNT];
    for (int root = 0; root < c->size; root++) {
        const bool apart = root % 2 == 1 && c->rank == root; /* else in place */
        memset(recv, 0xFF, sizeof recv);
        fill(dtype, send, root, 2, apart ? count : 0);
        fill(dtype, recv, root, 2, apart || c->rank != root ? 0 : count);
        const struct ax_collective what = {.kind = AX_BROADCAST,
                                           .dtype = dtype,
                                           .send = apart ? send : NULL,
                                           .recv = recv,
                                           .count = count,
                                           .root = root};
        AX_TRY(run(c, &what));
        for (int64_t e = 0; e < count; e++)
            ENSURE(ax_load(dtype, recv, e) == value(root, 2 + e));
    }
    return AX_OK;
}

/* Sixteen transfers in flight, waited for from the last to the first. */
static enum ax_status many_at_once(struct ax_comm *c) {
    enum { MANY = 16 };
    static _Thread_local float send[MANY][40], recv[MANY][40];
    struct started started[MANY];
    const int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    for (int i = 0; i < MANY; i++) {
        fill(AX_F32, send[i], c->rank, i, 40);
        const struct ax_collective what = {.kind = i % 2 ? AX_SEND_RECV : AX_ALL_REDUCE,
                                           .dtype = AX_F32,
                                           .send = send[i],
                                           .recv = recv[i],
                                           .count = 40 - i,
                                           .send_peer = next,
                                           .recv_peer = before};
        AX_TRY(start(c, &what, &started[i]));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        AX_TRY(wait_for(c, &started[i]));
        for (int e = 0; e < 40 - i; e++)
            ENSURE(recv[i][e] == (i % 2 ? value(before, i + e) : reduced(AX_SUM, c->size, i + e)));
    }
    return AX_OK;
}

enum ax_status comm_cases_sum_bits(struct ax_comm *c, uint64_t *hash) {
    enum { COUNT = 777 };
    static _Thread_local double send[MAX_RANKS * COUNT], recv[MAX_RANKS * COUNT];
    *hash = 0;
    for (int i = 0; i < 4 * TRAVEL; i++) {
        const enum ax_dtype dtype = travel[i / 4];
        const bool all = i & 1;
        for (int64_t e = 0; e < COUNT * c->size; e++) {
            const int64_t key[2] = {c->rank, e};
            const double x = (double)(ax_hash64(key, sizeof key, 7) >> 11) * 0x1p-53;
            ax_store(dtype, send, e, ax_dtype_info(dtype)->is_float ? x - 0.3 : x * 100);
        }
        const int64_t n = all ? COUNT * c->size : COUNT;
        const struct ax_collective what = {.kind = all ? AX_ALL_REDUCE : AX_REDUCE_SCATTER,
                                           .reduction = i & 2 ? AX_MAX : AX_SUM,
                                           .dtype = dtype,
                                           .send = send,
                                           .recv = recv,
                                           .count = n};
        AX_TRY(run(c, &what));
        *hash = ax_hash64(recv, (size_t)n * ax_dtype_size(dtype), *hash);
    }
    return AX_OK;
}

/* 1 and then ε, ε …: in rank order every ε is lost, in others they would add up first. */
static enum ax_status sums_in_rank_order(struct ax_comm *c) {
    static const enum ax_dtype dtypes[] = {AX_F64, AX_F32};
    for (int i = 0; i < 4; i++) {
        const enum ax_dtype dtype = dtypes[i % 2];
        char send[MAX_RANKS * 8], recv[8];
        for (int e = 0; e < c->size; e++)
            ax_store(dtype, send, e, c->rank == 0 ? 1 : dtype == AX_F64 ? 1e-16 : 5e-8);
        const struct ax_collective what = {.kind = i < 2 ? AX_ALL_REDUCE : AX_REDUCE_SCATTER,
                                           .dtype = dtype,
                                           .send = send,
                                           .recv = recv,
                                           .count = 1};
        AX_TRY(run(c, &what));
        ENSURE(ax_load(dtype, recv, 0) == 1);
    }
    return AX_OK;
}

/* Four numbers that BF16 cannot add one by one: 256 + 1 + 1 + 1 is rounded once, to 260. */
static enum ax_status narrow_sums_are_rounded_once(struct ax_comm *c) {
    uint16_t x = ax_f32_to_bf16(c->rank == 0 ? 256 : c->rank < 4 ? 1 : 0);
    const struct ax_collective what = {
        .kind = AX_ALL_REDUCE, .dtype = AX_BF16, .send = &x, .recv = &x, .count = 1};
    AX_TRY(run(c, &what));
    const float exact = 256 + (float)(c->size < 4 ? c->size - 1 : 3);
    ENSURE(x == ax_f32_to_bf16(exact));
    return AX_OK;
}

static enum ax_status nan_wins_a_maximum(struct ax_comm *c) {
    for (int where = 0; where < 2; where++) {
        float x = c->rank == where ? NAN : 3;
        const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                           .reduction = AX_MAX,
                                           .dtype = AX_F32,
                                           .send = &x,
                                           .recv = &x,
                                           .count = 1};
        AX_TRY(run(c, &what));
        ENSURE(isnan(x));
    }
    return AX_OK;
}

enum ax_status comm_cases_run(struct ax_fabric *f, void *ctx) {
    (void)ctx;
    static const int64_t counts[] = {0, 1, 5, 1024, MAX_COUNT};
    struct ax_comm c;
    enum ax_status st;
    AX_TRY(comm_cases_open(f, AX_ROLE_FSDP, &c));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int d = 0; d < TRAVEL; d++) {
            AX_TRY_GOTO(all_reduce(&c, travel[d], counts[i]), st, done);
            AX_TRY_GOTO(all_gather(&c, travel[d], counts[i]), st, done);
            AX_TRY_GOTO(reduce_scatter(&c, travel[d], counts[i]), st, done);
            AX_TRY_GOTO(all_to_all_v(&c, travel[d], counts[i] / MAX_RANKS), st, done);
            AX_TRY_GOTO(messages(&c, travel[d], counts[i]), st, done);
            AX_TRY_GOTO(broadcast(&c, travel[d], counts[i]), st, done);
        }
    AX_TRY_GOTO(many_at_once(&c), st, done);
    if (comm_cases_queue) /* a device's fabric has an order and a rounding of its own */
        goto done;
    AX_TRY_GOTO(sums_in_rank_order(&c), st, done);
    AX_TRY_GOTO(narrow_sums_are_rounded_once(&c), st, done);
    AX_TRY_GOTO(nan_wins_a_maximum(&c), st, done);
done:
    ax_comm_free(&c);
    return st;
}

/* ---- faults ---- */

static enum ax_status spoilt_gather(struct ax_comm *c, int64_t count, enum ax_dtype dtype) {
    double send[8] = {0}, recv[64];
    const struct ax_collective what = {
        .kind = AX_ALL_GATHER, .dtype = dtype, .send = send, .recv = recv, .count = count};
    return run(c, &what);
}

static enum ax_status spoilt_reduce(struct ax_comm *c, enum ax_reduction reduction) {
    double x = 1;
    const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                       .reduction = reduction,
                                       .dtype = AX_F64,
                                       .send = &x,
                                       .recv = &x,
                                       .count = 1};
    return run(c, &what);
}

static enum ax_status spoilt_broadcast(struct ax_comm *c, int root) {
    float x = 1;
    const struct ax_collective what = {
        .kind = AX_BROADCAST, .dtype = AX_F32, .recv = &x, .count = 1, .root = root};
    return run(c, &what);
}

const struct comm_fault comm_faults[DEED_COUNT] = {
    [DEED_OTHER_COUNT] = {AX_ERR_PEER,
                          {"tp: collective 2: rank 2 started all_gather of 5 float32",
                           "all_gather of 3 float32"}},
    [DEED_OTHER_TYPE] = {AX_ERR_PEER,
                         {"rank 2 started all_gather of 3 int32", "all_gather of 3 float32"}},
    [DEED_OTHER_KIND] = {AX_ERR_PEER,
                         {"rank 2 started all_reduce sum of 1 float64", "all_gather of 3 float32"}},
    [DEED_OTHER_ROOT] = {AX_ERR_PEER,
                         {"tp: collective 1: rank 2 started broadcast from 1 of the group",
                          "broadcast from 0"}},
    [DEED_OTHER_REDUCTION] = {AX_ERR_PEER,
                              {"tp: collective 3: rank 2 started all_reduce max",
                               "all_reduce sum"}},
    [DEED_SKIPS] = {AX_ERR_PEER,
                    {"tp: collective 2: rank 2 started all_reduce sum of 1 float64",
                     "all_gather of 3 float32"}},
    [DEED_SKIPS_LAST] = {AX_ERR_PEER,
                         {"tp: collective 3 (all_reduce sum of 1 float64): rank 2",
                          "ended without it"}},
    [DEED_SLEEPS] = {AX_ERR_PEER,
                     {"tp: collective 2 (all_gather of 3 float32): rank 2",
                      "did not arrive within "}},
    [DEED_FAILS_ITSELF] = {AX_ERR_DATA, {"rank 2 failed: ", "rows.jsonl:7: no such field"}},
    [DEED_LEAVES] = {AX_ERR_PEER, {"tp: collective 2", "rank 2 ended without it"}},
    [DEED_NEVER_OPENS] = {AX_ERR_PEER, {"tp: collective 1 (broadcast", "rank 2 ended without it"}},
    [DEED_DIES] = {AX_ERR_PEER, {"tp: collective 2", "rank 2 is gone: its process ended"}},
};

/* Broadcast, gather, reduce, and what the deed is. */
static enum ax_status steps(struct ax_comm *c, enum comm_deed deed) {
    AX_TRY(spoilt_broadcast(c, deed == DEED_OTHER_ROOT));
    if (deed == DEED_FAILS_ITSELF)
        return ax_error(AX_ERR_DATA, "rows.jsonl:7: no such field");
    if (deed == DEED_LEAVES)
        return AX_OK;
    if (deed == DEED_DIES)
        raise(SIGKILL);
    if (deed == DEED_SLEEPS)
        nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
    if (deed == DEED_OTHER_KIND)
        AX_TRY(spoilt_reduce(c, AX_SUM));
    else if (deed != DEED_SKIPS)
        AX_TRY(spoilt_gather(c, deed == DEED_OTHER_COUNT ? 5 : 3,
                             deed == DEED_OTHER_TYPE ? AX_I32 : AX_F32));
    if (deed == DEED_SKIPS_LAST)
        return AX_OK;
    return spoilt_reduce(c, deed == DEED_OTHER_REDUCTION ? AX_MAX : AX_SUM);
}

enum ax_status comm_cases_misbehave(struct ax_fabric *f, void *ctx) {
    const enum comm_deed deed = f->rank == 2 ? *(const enum comm_deed *)ctx : DEED_COUNT;
    struct ax_comm c;
    if (deed == DEED_NEVER_OPENS)
        return AX_OK;
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    const enum ax_status st = steps(&c, deed);
    if (st != AX_OK)
        f->ops->fail(f, st);
    ax_comm_free(&c);
    return st;
}
