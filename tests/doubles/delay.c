/* Ranks tell each other when they started a transfer, beside its data: each then knows when it arrives. */
#include "tests/doubles/delay.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- clocks ---- */

struct rank {
    struct ax_fabric *inner;
    const struct ax_delay_options *o;
    struct ax_fabric_ops ops;
    double (*computed)(void);
    double past;  /* with turns: seconds of its clock until … */
    double since; /* … its thread had computed this long */
    double exposed[AX_ROLE_COUNT];
};

static double processor_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(const struct rank *r) {
    return r->o->turns ? r->past + r->computed() - r->since : ax_clock_now();
}

/* What the thread does from here on to `set` is no computing of the rank. */
static void set(struct rank *r, double time) {
    r->past = time;
    r->since = r->computed();
}

static void sleep_until(struct rank *r, double time) {
    if (r->o->turns) {
        set(r, time);
        return;
    }
    const time_t whole = (time_t)time;
    const struct timespec due = {.tv_sec = whole, .tv_nsec = (long)((time - (double)whole) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
        ;
}

/* ---- transfers ---- */

struct stamp {
    double started, bytes;
};

/* One way of a transfer: a collective, or one direction of a message. */
struct part {
    int way; /* −1: none; else see way_of */
    /* in which the ranks tell each other, of ahead and back; 0: settled */
    struct ax_ticket told[2];
    double due;
    struct stamp own, *others; /* [size], or [1] of a message */
};

struct transfer {
    struct transfer *newer;
    struct ax_ticket outer, inner;
    struct part parts[2];
    struct stamp stamps[]; /* [2·size] */
};

struct member {
    struct rank *rank;
    struct ax_comm data, ahead, back; /* of the inner fabric: back goes against a message */
    struct transfer *oldest;
    double *free_at; /* [1 + 2·size] by way */
};

static int way_of(const struct ax_comm *c, int to, int from) {
    return to >= 0 ? 1 + to : from >= 0 ? 1 + c->size + from : 0;
}

static enum ax_status tell(struct ax_comm *c, struct ax_queue *q, struct ax_collective what,
                           struct ax_ticket *ticket) {
    what.dtype = AX_F64;
    what.count = sizeof(struct stamp) / sizeof(double);
    *ticket = (struct ax_ticket){++c->sequence};
    return c->ops->start(c, q, &what, *ticket);
}

static enum ax_status tell_all(struct member *me, struct ax_queue *q, struct part *p) {
    return tell(&me->ahead, q,
                (struct ax_collective){.kind = AX_ALL_GATHER, .send = &p->own, .recv = p->others},
                &p->told[0]);
}

static enum ax_status tell_peer(struct member *me, struct ax_queue *q, struct part *p, int to,
                                int from) {
    struct ax_comm *out = to >= 0 ? &me->ahead : &me->back;
    struct ax_comm *in = to >= 0 ? &me->back : &me->ahead;
    const int peer = to >= 0 ? to : from;
    AX_TRY(tell(out, q,
                (struct ax_collective){
                    .kind = AX_SEND_RECV, .send = &p->own, .send_peer = peer, .recv_peer = -1},
                &p->told[out == &me->back]));
    return tell(in, q,
                (struct ax_collective){
                    .kind = AX_SEND_RECV, .recv = p->others, .send_peer = -1, .recv_peer = peer},
                &p->told[in == &me->back]);
}

static enum ax_status start(struct ax_comm *c, struct ax_queue *q, const struct ax_collective *what,
                            struct ax_ticket ticket) {
    struct member *me = c->state;
    const double time = now(me->rank);
    const bool message = what->kind == AX_SEND_RECV;
    struct transfer *t, **end = &me->oldest;
    const size_t bytes = sizeof *t + 2 * (size_t)c->size * sizeof(struct stamp);
    AX_TRY(ax_alloc(&t, 1, bytes));
    t->outer = ticket;
    t->inner = (struct ax_ticket){++me->data.sequence};
    while (*end)
        end = &(*end)->newer;
    *end = t;
    AX_TRY(me->data.ops->start(&me->data, q, what, t->inner));
    for (int i = 0; i < 2; i++) {
        struct part *p = &t->parts[i];
        const int to = message && i == 0 ? what->send_peer : -1;
        const int from = message && i == 1 ? what->recv_peer : -1;
        const bool none = message ? (to < 0 && from < 0) || what->send_peer == c->rank : i == 1;
        p->way = none ? -1 : way_of(c, to, from);
        p->others = t->stamps + i * c->size;
        p->own =
            (struct stamp){time, message ? (double)what->count * (double)ax_dtype_size(what->dtype)
                                         : ax_comm_ideal_bytes(what, c->rank, c->size)};
        if (!none)
            AX_TRY(message ? tell_peer(me, q, p, to, from) : tell_all(me, q, p));
    }
    if (me->rank->o->turns)
        set(me->rank, time); /* moving data is no computing */
    return AX_OK;
}

static enum ax_status listen(struct ax_comm *c, struct ax_queue *q, struct ax_ticket *ticket) {
    const struct ax_ticket told = *ticket;
    *ticket = (struct ax_ticket){0};
    return told.id > 0 ? c->ops->wait(c, q, told) : AX_OK;
}

static enum ax_status settle(struct member *me, struct ax_queue *q, struct part *p) {
    const struct ax_delay_link *link = &me->rank->o->link;
    struct stamp all = p->own;
    if (p->told[0].id == 0)
        return AX_OK;
    AX_TRY(listen(&me->ahead, q, &p->told[0]));
    AX_TRY(listen(&me->back, q, &p->told[1]));
    for (int i = 0; i < (p->way == 0 ? me->data.size : 1); i++) {
        all.started = p->others[i].started > all.started ? p->others[i].started : all.started;
        all.bytes = p->others[i].bytes > all.bytes ? p->others[i].bytes : all.bytes;
    }
    double *free_at = &me->free_at[p->way];
    *free_at = *free_at > all.started ? *free_at : all.started;
    *free_at += link->bytes_per_second > 0 ? all.bytes / link->bytes_per_second : 0;
    p->due = *free_at + link->latency;
    return AX_OK;
}

/* With those before it on the same way, which all that take part have started before. */
static enum ax_status settle_way(struct member *me, struct ax_queue *q, const struct transfer *last,
                                 int way) {
    struct transfer *t = me->oldest;
    for (bool more = way >= 0; more; t = t->newer) {
        for (int i = 0; i < 2; i++)
            if (t->parts[i].way == way)
                AX_TRY(settle(me, q, &t->parts[i]));
        more = t != last;
    }
    return AX_OK;
}

static enum ax_status arrive(struct member *me, struct ax_queue *q, struct transfer *t) {
    AX_TRY(me->data.ops->wait(&me->data, q, t->inner));
    for (int i = 0; i < 2; i++)
        AX_TRY(settle_way(me, q, t, t->parts[i].way));
    return AX_OK;
}

static enum ax_status wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    struct member *me = c->state;
    struct rank *r = me->rank;
    const double begin = now(r);
    struct transfer **at = &me->oldest;
    while (*at && (*at)->outer.id != ticket.id)
        at = &(*at)->newer;
    struct transfer *t = *at;
    AX_ASSERT(t); /* each ticket is waited for once */
    if (r->o->turns)
        pthread_mutex_unlock(r->o->turns);
    const enum ax_status st = arrive(me, q, t);
    if (r->o->turns)
        pthread_mutex_lock(r->o->turns);
    AX_TRY(st);
    double due = begin;
    for (int i = 0; i < 2; i++)
        due = t->parts[i].due > due ? t->parts[i].due : due;
    sleep_until(r, due);
    r->exposed[c->role] += now(r) - begin;
    *at = t->newer;
    ax_free(t);
    return AX_OK;
}

static enum ax_status travel(struct ax_comm *c, struct ax_queue *q) {
    struct member *me = c->state;
    return me->data.ops->travel ? me->data.ops->travel(&me->data, q) : AX_OK;
}

static void close(struct member *me) {
    ax_comm_free(&me->data);
    ax_comm_free(&me->ahead);
    ax_comm_free(&me->back);
    while (me->oldest) {
        struct transfer *t = me->oldest;
        me->oldest = t->newer;
        ax_free(t);
    }
    ax_free(me->free_at);
    ax_free(me);
}

static void comm_free(struct ax_comm *c) {
    close(c->state);
}

static const struct ax_comm_ops comm_ops = {
    .name = "delay", .start = start, .wait = wait, .travel = travel, .free = comm_free};

/* ---- the fabric ---- */

static enum ax_status fabric_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                                  const int *ranks, int n, bool apart) {
    struct rank *r = f->state;
    struct ax_fabric *inner = r->inner;
    struct member *me;
    enum ax_status st;
    if (apart && r->o->turns)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "delay: ranks that take turns cannot communicate in other threads");
    if (apart)
        return inner->ops->open(inner, c, role, ranks, n, true);
    AX_TRY(ax_alloc(&me, 1, sizeof *me));
    me->rank = r;
    AX_TRY_GOTO(ax_alloc(&me->free_at, 1 + 2 * (size_t)n, sizeof *me->free_at), st, fail);
    AX_TRY_GOTO(inner->ops->open(inner, &me->data, role, ranks, n, false), st, fail);
    AX_TRY_GOTO(inner->ops->open(inner, &me->ahead, role, ranks, n, false), st, fail);
    AX_TRY_GOTO(inner->ops->open(inner, &me->back, role, ranks, n, false), st, fail);
    *c = (struct ax_comm){
        .ops = &comm_ops, .role = role, .rank = me->data.rank, .size = n, .state = me};
    return AX_OK;
fail:
    close(me);
    return st;
}

static void fabric_fail(struct ax_fabric *f, enum ax_status st) {
    const struct rank *r = f->state;
    r->inner->ops->fail(r->inner, st);
}

static void fabric_free(struct ax_fabric *f) {
    struct rank *r = f->state;
    if (r->o->turns)
        pthread_mutex_unlock(r->o->turns);
    ax_free(r);
}

enum ax_status ax_delay_open(struct ax_fabric *f, struct ax_fabric *inner,
                             const struct ax_delay_options *o) {
    struct rank *r;
    AX_TRY(ax_alloc(&r, 1, sizeof *r));
    r->inner = inner;
    r->o = o;
    r->computed = o->computed ? o->computed : processor_time;
    r->ops = (struct ax_fabric_ops){.name = "delay",
                                    .stages = inner->ops->stages,
                                    .open = fabric_open,
                                    .fail = fabric_fail,
                                    .free = fabric_free};
    *f = *inner;
    f->ops = &r->ops;
    f->state = r;
    if (o->turns)
        pthread_mutex_lock(o->turns);
    set(r, 0);
    return AX_OK;
}

double ax_delay_now(const struct ax_fabric *f) {
    return now(f->state);
}

double ax_delay_exposed(const struct ax_fabric *f, enum ax_role role) {
    const struct rank *r = f->state;
    return r->exposed[role];
}

/* ---- threads ---- */

struct run {
    struct ax_delay_options o;
    ax_local_body body;
    void *ctx;
};

static enum ax_status run_rank(struct ax_fabric *inner, void *ctx) {
    const struct run *run = ctx;
    struct ax_fabric f;
    AX_TRY(ax_delay_open(&f, inner, &run->o));
    const enum ax_status st = run->body(&f, run->ctx);
    if (st != AX_OK)
        f.ops->fail(&f, st);
    f.ops->free(&f);
    return st;
}

static enum ax_status run_ranks(int world, const struct ax_delay_options *o, ax_local_body body,
                                void *ctx) {
    struct run run = {.o = *o, .body = body, .ctx = ctx};
    return ax_local_run(world, NULL, run_rank, &run);
}

enum ax_status ax_delay_run(int world, struct ax_delay_link link, bool turns, ax_local_body body,
                            void *ctx) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct ax_delay_options o = {.link = link, .turns = turns ? &lock : NULL};
    return run_ranks(world, &o, body, ctx);
}

enum ax_status ax_delay_run_told(int world, struct ax_delay_link link, double (*computed)(void),
                                 ax_local_body body, void *ctx) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct ax_delay_options o = {.link = link, .turns = &lock, .computed = computed};
    return run_ranks(world, &o, body, ctx);
}
