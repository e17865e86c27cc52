/* Communicators on NCCL, and a thread that watches their transfers. */
#include "parallel/fabric/comm_nccl.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/threads.h"
#include "kernels/cuda/nccl.h"
#include "parallel/fabric/flight.h"

#define LOOK     0.2 /* seconds between two looks at transfers */
#define MESSAGES 64  /* that are started and not enqueued */

struct member {
    struct ax_nccl *nccl; /* NULL: nothing has moved on GPUs yet */
    struct world *world;
    struct member *next;
    struct ax_comm by_host; /* the same group on the host's fabric, for the host's memory */
    enum ax_role role;
    uint64_t ended; /* the last ticket that is enqueued; under the world's lock */
    uint64_t done;  /* the last one that the flight record has as done */
    struct ax_flight *_Atomic flight;
    uint64_t seen; /* the one that the watch waits for, 0: none */
    double since;
    /* Messages travel together as soon as one is waited for: alone, in a stream's order, a message from
     * a rank that first waits for one from here would never arrive. */
    int n_messages;
    struct ax_nccl_message messages[MESSAGES]; /* in bytes */
    uint64_t tickets[MESSAGES];
};

struct world {
    struct ax_fabric *host;
    const struct ax_memory *memory; /* that transfers move */
    unsigned roles;                 /* that are connected from the beginning */
    bool said;                      /* that it is not registered */
    double timeout;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct member *members;
    bool stop, given_up;
    struct ax_error_record lost; /* why transfers were given up */
    struct ax_worker watch;
};

/* ---- watching ---- */

/* A transfer that takes longer than ranks may wait for each other, or that NCCL says has failed. */
static enum ax_status look(struct member *m, double now, double timeout) {
    bool done = true;
    if (m->seen > 0)
        AX_TRY(ax_nccl_check(m->nccl, m->seen, &done));
    if (done) {
        m->seen = m->ended;
        m->since = now;
        return AX_OK;
    }
    if (now - m->since < timeout)
        return AX_OK;
    return ax_error(
        AX_ERR_PEER,
        "rank %d: transfer %llu of the group %s was not done within %g s. Another rank has "
        "ended, or does something else: see its output.",
        m->world->host->rank, (unsigned long long)m->seen, ax_role_name(m->role), timeout);
}

/* On the device nothing tells the host when a transfer is done: the watch asks. */
static void record_done(struct world *w) {
    for (struct member *m = w->members; m; m = m->next) {
        m->done = ax_nccl_done(m->nccl, m->done);
        ax_flight_done_to(m->flight, m->role, m->done);
    }
}

static void give_up(struct world *w) {
    if (!w->given_up)
        record_done(w); /* afterwards all have ended */
    w->given_up = true;
    for (struct member *m = w->members; m; m = m->next)
        ax_nccl_abort(m->nccl, &w->lost);
}

static enum ax_status watch(void *arg) {
    struct world *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        const double now = ax_clock_now();
        for (struct member *m = w->members; m && w->lost.st == AX_OK; m = m->next) {
            const enum ax_status st = look(m, now, w->timeout);
            if (st != AX_OK)
                ax_error_save(&w->lost, st);
        }
        if (w->lost.st == AX_OK)
            record_done(w);
        else
            give_up(w);
        (void)ax_cond_wait_until(&w->changed, &w->lock, ax_clock_now() + LOOK);
    }
    pthread_mutex_unlock(&w->lock);
    return AX_OK;
}

static enum ax_status lost(struct world *w) {
    pthread_mutex_lock(&w->lock);
    const enum ax_status st = w->lost.st;
    pthread_mutex_unlock(&w->lock);
    return st == AX_OK ? AX_OK : ax_error_restore(&w->lost);
}

/* ---- communicators ---- */

/* What ranks of a group tell each other before it is open. */
static enum ax_status say(struct ax_comm *by_host, const struct ax_collective *what) {
    const struct ax_ticket ticket = {0}; /* of no collective that counts */
    AX_TRY(by_host->ops->start(by_host, NULL, what, ticket));
    return by_host->ops->wait(by_host, NULL, ticket);
}

/* The first rank names the group; the host's fabric tells the others. */
static enum ax_status name_group(struct ax_comm *by_host, char id[AX_NCCL_ID]) {
    const struct ax_collective what = {
        .kind = AX_BROADCAST, .dtype = AX_U8, .send = id, .recv = id, .count = AX_NCCL_ID};
    if (by_host->rank == 0)
        AX_TRY(ax_nccl_id(id));
    return say(by_host, &what);
}

/* On all ranks or on none: NCCL promises nothing where some have registered what they move. */
static enum ax_status register_memory(struct member *m) {
    struct world *w = m->world;
    const bool here = ax_nccl_register(m->nccl, w->memory) == AX_OK;
    double refused = here ? 0 : 1;
    if (!here && !w->said)
        ax_log_info("cuda: transfers copy by way of NCCL's buffers, which is slower: %s",
                    ax_error_text());
    w->said = w->said || !here;
    ax_error_clear();
    const struct ax_collective what = {.kind = AX_ALL_REDUCE,
                                       .reduction = AX_MAX,
                                       .dtype = AX_F64,
                                       .send = &refused,
                                       .recv = &refused,
                                       .count = 1};
    AX_TRY(say(&m->by_host, &what));
    if (refused != 0)
        ax_nccl_deregister(m->nccl);
    return AX_OK;
}

/* All ranks of the group at the same place among its collectives. */
static enum ax_status connect(struct member *m) {
    struct world *w = m->world;
    char id[AX_NCCL_ID] = "";
    AX_TRY(name_group(&m->by_host, id));
    AX_TRY(ax_nccl_join(&m->nccl, id, m->by_host.rank, m->by_host.size, w->timeout));
    const enum ax_status st = register_memory(m);
    if (st != AX_OK) {
        ax_nccl_abort(m->nccl, NULL);
        ax_nccl_leave(m->nccl);
        m->nccl = NULL;
        return st;
    }
    pthread_mutex_lock(&w->lock);
    m->next = w->members;
    w->members = m;
    pthread_mutex_unlock(&w->lock);
    return AX_OK;
}

static enum ax_status exchange(struct ax_comm *c, const struct ax_collective *what) {
    const struct member *m = c->state;
    const size_t size = ax_dtype_size(what->dtype);
    const char AX_DEVICE *send = what->send;
    char AX_DEVICE *recv = what->recv;
    struct ax_nccl_message *list;
    AX_TRY(ax_alloc(&list, (size_t)c->size, sizeof *list));
    for (int r = 0; r < c->size; r++) {
        list[r] = (struct ax_nccl_message){.to = r,
                                           .from = r,
                                           .send = send,
                                           .recv = recv,
                                           .n_send = what->send_counts[r],
                                           .n_recv = what->recv_counts[r]};
        send += (size_t)what->send_counts[r] * size;
        recv += (size_t)what->recv_counts[r] * size;
    }
    const enum ax_status st = ax_nccl_exchange(m->nccl, what->dtype, c->size, list);
    ax_free(list);
    return st;
}

static enum ax_status enqueue(struct ax_comm *c, const struct ax_collective *what) {
    const struct member *m = c->state;
    const bool max = what->reduction == AX_MAX;
    switch (what->kind) {
    case AX_ALL_REDUCE:
        return ax_nccl_all_reduce(m->nccl, what->dtype, max, what->send, what->recv, what->count);
    case AX_ALL_GATHER:
        return ax_nccl_all_gather(m->nccl, what->dtype, what->send, what->recv, what->count);
    case AX_REDUCE_SCATTER:
        return ax_nccl_reduce_scatter(m->nccl, what->dtype, max, what->send, what->recv,
                                      what->count);
    case AX_ALL_TO_ALL_V:
        return exchange(c, what);
    case AX_BROADCAST:
        return ax_nccl_broadcast(m->nccl, what->dtype, what->send, what->recv, what->count,
                                 what->root);
    case AX_SEND_RECV: /* see start_message */
    case AX_COLLECTIVE_COUNT:
        break;
    }
    return AX_OK;
}

static enum ax_status end(struct member *m, uint64_t ticket) {
    pthread_mutex_lock(&m->world->lock);
    const enum ax_status st = ax_nccl_end(m->nccl, ticket);
    if (st == AX_OK)
        m->ended = ticket;
    pthread_mutex_unlock(&m->world->lock);
    return st;
}

static enum ax_status send_messages(struct member *m) {
    const int n = m->n_messages;
    if (n == 0)
        return AX_OK;
    m->n_messages = 0;
    AX_TRY(ax_nccl_exchange(m->nccl, AX_U8, n, m->messages));
    for (int i = 0; i < n; i++)
        AX_TRY(end(m, m->tickets[i]));
    return AX_OK;
}

static enum ax_status start_message(struct member *m, const struct ax_collective *what,
                                    uint64_t ticket) {
    const int64_t bytes = what->count * (int64_t)ax_dtype_size(what->dtype);
    if (m->n_messages == MESSAGES)
        AX_TRY(send_messages(m));
    m->messages[m->n_messages] = (struct ax_nccl_message){
        what->send_peer, what->recv_peer, what->send, what->recv, bytes, bytes};
    m->tickets[m->n_messages++] = ticket;
    return AX_OK;
}

static enum ax_status nccl_start(struct ax_comm *c, struct ax_queue *q,
                                 const struct ax_collective *what, struct ax_ticket ticket) {
    struct member *m = c->state;
    if (!q->ops->device->own_fabric)
        return m->by_host.ops->start(&m->by_host, q, what, ticket);
    AX_TRY(lost(m->world));
    m->flight = c->flight;
    if (!m->nccl)
        AX_TRY(connect(m));
    AX_TRY(ax_nccl_begin(m->nccl, q));
    if (what->kind == AX_SEND_RECV)
        return start_message(m, what, ticket.id);
    AX_TRY(send_messages(m));
    AX_TRY(enqueue(c, what));
    return end(m, ticket.id);
}

static enum ax_status nccl_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    struct member *m = c->state;
    if (!q->ops->device->own_fabric) {
        const double begin = ax_clock_now();
        AX_TRY(m->by_host.ops->wait(&m->by_host, q, ticket));
        c->waited += ax_clock_now() - begin;
        ax_flight_done(c->flight, c, ticket);
        return AX_OK;
    }
    AX_TRY(lost(m->world));
    AX_TRY(send_messages(m));
    return ax_nccl_wait(m->nccl, q, ticket.id);
}

static enum ax_status nccl_travel(struct ax_comm *c, struct ax_queue *q) {
    struct member *m = c->state;
    if (!q->ops->device->own_fabric)
        return AX_OK;
    AX_TRY(lost(m->world));
    return send_messages(m);
}

static double nccl_waited(struct ax_comm *c) {
    struct member *m = c->state;
    return c->waited + (m->nccl ? ax_nccl_waited(m->nccl) : 0);
}

static void nccl_free(struct ax_comm *c) {
    struct member *m = c->state;
    struct world *w = m->world;
    pthread_mutex_lock(&w->lock);
    for (struct member **at = &w->members; *at; at = &(*at)->next)
        if (*at == m) {
            *at = m->next;
            break;
        }
    pthread_mutex_unlock(&w->lock);
    ax_nccl_leave(m->nccl);
    ax_comm_free(&m->by_host);
    ax_free(m);
}

static const struct ax_comm_ops comm_ops = {.name = "nccl",
                                            .enqueues = true,
                                            .start = nccl_start,
                                            .wait = nccl_wait,
                                            .travel = nccl_travel,
                                            .waited = nccl_waited,
                                            .free = nccl_free};

static enum ax_status nccl_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                                const int *ranks, int n, bool apart) {
    struct world *w = f->state;
    struct member *m;
    AX_TRY(ax_alloc(&m, 1, sizeof *m));
    *m = (struct member){.world = w, .role = role};
    enum ax_status st = w->host->ops->open(w->host, &m->by_host, role, ranks, n, apart);
    if (st == AX_OK && w->roles & 1u << role)
        st = connect(m);
    if (st != AX_OK) {
        ax_comm_free(&m->by_host);
        ax_free(m);
        return st;
    }
    *c = m->by_host;
    c->ops = &comm_ops;
    c->role = role;
    c->state = m;
    return AX_OK;
}

/* ---- the fabric ---- */

static void nccl_fail(struct ax_fabric *f, enum ax_status st) {
    struct world *w = f->state;
    w->host->ops->fail(w->host, st);
    pthread_mutex_lock(&w->lock);
    if (w->lost.st == AX_OK)
        w->lost = (struct ax_error_record){.st = AX_ERR_PEER, .text = "this rank has given up"};
    give_up(w);
    pthread_mutex_unlock(&w->lock);
}

static void fabric_free(struct ax_fabric *f) {
    struct world *w = f->state;
    AX_ASSERT(!w->members); /* communicators go before their fabric */
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    (void)ax_worker_join(&w->watch);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    ax_free(w);
    f->state = NULL;
}

static const struct ax_fabric_ops fabric_ops = {
    .name = "nccl", .open = nccl_open, .fail = nccl_fail, .free = fabric_free};

enum ax_status ax_nccl_fabric_open(struct ax_fabric *f, struct ax_fabric *host,
                                   const struct ax_memory *memory, unsigned roles) {
    struct world *w;
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    *w = (struct world){.host = host, .memory = memory, .roles = roles, .timeout = host->timeout};
    pthread_mutex_init(&w->lock, NULL);
    ax_cond_init(&w->changed);
    *f = *host;
    f->ops = &fabric_ops;
    f->state = w;
    const enum ax_status st = ax_worker_start(&w->watch, watch, w);
    if (st == AX_OK)
        return AX_OK;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    ax_free(w);
    f->state = NULL;
    return st;
}
