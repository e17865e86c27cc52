#include "tests/comm_cases.h"

#include <math.h>
#include <string.h>

#include "kernels/queue.h"

enum { MAX_RANKS = 16, MAX_COUNT = 3000 };

static const enum ax_dtype travel[] = {AX_F64, AX_F32, AX_BF16, AX_I32, AX_I64, AX_U8};
enum { TRAVEL = sizeof travel / sizeof *travel };

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
    return f->ops->open(f, c, role, ranks, f->world);
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
        AX_TRY(ax_comm_run(c, NULL, &what));
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
        AX_TRY(ax_comm_run(c, NULL, &what));
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
        AX_TRY(ax_comm_run(c, NULL, &what));
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
    struct ax_ticket ticket;
    AX_TRY(ax_comm_start(c, NULL, &what, &ticket));
    int64_t expected[MAX_RANKS];
    memcpy(expected, in, sizeof in);
    memset(out, 0xFF, sizeof out); /* count arrays may go once it is started */
    memset(in, 0xFF, sizeof in);
    AX_TRY(ax_comm_wait(c, NULL, ticket));
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
    AX_TRY(ax_comm_run(c, NULL, &what));
    for (int64_t e = 0; e < count; e++)
        ENSURE(ax_load(dtype, recv, e) == value(before, 9 + e));
    const bool sends = c->rank % 2 == 0 && c->rank + 1 < c->size, receives = c->rank % 2 == 1;
    if (!sends && !receives)
        return AX_OK; /* the others go on without it */
    what.send_peer = sends ? next : -1;
    what.recv_peer = receives ? before : -1;
    what.send = sends ? send : NULL;
    fill(dtype, send, c->rank, 1, count);
    AX_TRY(ax_comm_run(c, NULL, &what));
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
        AX_TRY(ax_comm_run(c, NULL, &what));
        for (int64_t e = 0; e < count; e++)
            ENSURE(ax_load(dtype, recv, e) == value(root, 2 + e));
    }
    return AX_OK;
}

/* Sixteen at once, waited for from the last to the first. */
static enum ax_status many_at_once(struct ax_comm *c) {
    enum { MANY = 16 };
    static _Thread_local float send[MANY][40], recv[MANY][40];
    struct ax_ticket tickets[MANY];
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
        AX_TRY(ax_comm_start(c, NULL, &what, &tickets[i]));
    }
    for (int i = MANY - 1; i >= 0; i--) {
        AX_TRY(ax_comm_wait(c, NULL, tickets[i]));
        for (int e = 0; e < 40 - i; e++)
            ENSURE(recv[i][e] == (i % 2 ? value(before, i + e) : reduced(AX_SUM, c->size, i + e)));
    }
    return AX_OK;
}

static enum ax_status ordered(struct ax_comm *c, enum ax_collective_kind kind, enum ax_dtype dtype,
                              unsigned char *out) {
    char send[MAX_RANKS * 8], recv[8];
    for (int i = 0; i < c->size; i++) /* 1, ε, ε …: in another order ε would survive */
        ax_store(dtype, send, i, c->rank == 0 ? 1 : dtype == AX_F64 ? 1e-16 : 5e-8);
    const struct ax_collective what = {
        .kind = kind, .dtype = dtype, .send = send, .recv = recv, .count = 1};
    AX_TRY(ax_comm_run(c, NULL, &what));
    memcpy(out, recv, ax_dtype_size(dtype));
    return AX_OK;
}

enum ax_status comm_cases_ordered_sum(struct ax_comm *c, unsigned char *out) {
    memset(out, 0, 64);
    for (int i = 0; i < 8; i++) {
        static const enum ax_dtype dtypes[] = {AX_F64, AX_F32, AX_BF16, AX_F16};
        AX_TRY(ordered(c, i < 4 ? AX_ALL_REDUCE : AX_REDUCE_SCATTER, dtypes[i % 4], out + 8 * i));
    }
    return AX_OK;
}

/* In rank order every ε is lost beside the 1. */
static enum ax_status sums_in_rank_order(struct ax_comm *c) {
    unsigned char bytes[64];
    AX_TRY(comm_cases_ordered_sum(c, bytes));
    ENSURE(ax_load(AX_F64, bytes, 0) == 1 && ax_load(AX_F32, bytes + 8, 0) == 1);
    ENSURE(ax_load(AX_F64, bytes + 32, 0) == 1 && ax_load(AX_F32, bytes + 40, 0) == 1);
    return AX_OK;
}

/* Four numbers that BF16 cannot add one by one: 256 + 1 + 1 + 1 is rounded once, to 260. */
static enum ax_status narrow_sums_are_rounded_once(struct ax_comm *c) {
    uint16_t x = ax_f32_to_bf16(c->rank == 0 ? 256 : c->rank < 4 ? 1 : 0);
    const struct ax_collective what = {
        .kind = AX_ALL_REDUCE, .dtype = AX_BF16, .send = &x, .recv = &x, .count = 1};
    AX_TRY(ax_comm_run(c, NULL, &what));
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
        AX_TRY(ax_comm_run(c, NULL, &what));
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
    AX_TRY_GOTO(sums_in_rank_order(&c), st, done);
    AX_TRY_GOTO(narrow_sums_are_rounded_once(&c), st, done);
    AX_TRY_GOTO(nan_wins_a_maximum(&c), st, done);
done:
    ax_comm_free(&c);
    return st;
}
