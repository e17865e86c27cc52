/* Ranks as threads: rendezvous of a world's threads, communicators and fabrics on top of them, and the threads
 * that use these. */
#include "parallel/fabric/comm_local.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fit.h"
#include "base/mem.h"
#include "base/threads.h"
#include "parallel/fabric/contract.h"
#include "parallel/fabric/reduce.h"

/* ---- rendezvous ---- */

/* A collective is a rendezvous of a group's n ranks, a message one of two. Each rank records its
 * description and continues; the last one to arrive does the work for all, so buffers can be shared
 * and sums have one order; waiting blocks until the work is done. One lock guards a world; the work
 * itself happens outside it. */

struct part {
    bool here;
    struct ax_collective what; /* its count arrays point into counts */
    int64_t *counts;           /* [2][n] */
};

struct key {
    uint64_t number; /* counts the group's collectives, or the messages between two ranks; from 1 */
    int from, to;    /* coords in the group; −1 for a collective */
};

struct rendezvous {
    struct rendezvous *next;
    struct key key;
    /* number of parts; of parts that arrived; of parts that have not yet taken the result */
    int n, arrived, left;
    bool moving, done;
    struct part *parts;  /* [n of the group]; a message has [0] its sender, [1] receiver */
    const void **inputs; /* [n of the group] for the sums */
};

struct group {
    struct group *next;
    enum ax_role role;
    int n;
    int *ranks;            /* [n] world ranks by coord */
    bool *opened, *closed; /* [n] */
    struct rendezvous *open, *spare;
};

struct world {
    struct ax_local_options options;
    int n;
    pthread_mutex_t lock;  /* guards everything below */
    pthread_cond_t *woken; /* [n] each rank sleeps on its own */
    bool *ended;           /* [n] */
    bool failed;
    char failure[AX_ERROR_TEXT]; /* what every later wait reports */
    struct group *groups;
};

/* ---- what the last rank to arrive does for all: copies and ordered sums between buffers ---- */

static void copy_bytes(void *to, const void *from, size_t bytes) {
    if (to != from && bytes > 0)
        memcpy(to, from, bytes);
}

/* Rank 0's result is everyone's. Its buffer may be its input: each element is read before it is
 * written. */
static void all_reduce(const struct rendezvous *m, size_t bytes) {
    const struct ax_collective *first = &m->parts[0].what;
    for (int r = 0; r < m->n; r++)
        m->inputs[r] = m->parts[r].what.send;
    ax_reduce_ordered(first->reduction, first->dtype, first->recv, m->inputs, m->n, first->count);
    for (int r = 1; r < m->n; r++)
        copy_bytes(m->parts[r].what.recv, first->recv, bytes);
}

static void all_gather(const struct rendezvous *m, size_t bytes) {
    for (int from = 0; from < m->n; from++)
        for (int to = 0; to < m->n; to++)
            copy_bytes((char *)m->parts[to].what.recv + (size_t)from * bytes,
                       m->parts[from].what.send, bytes);
}

static void reduce_scatter(const struct rendezvous *m, size_t bytes) {
    for (int to = 0; to < m->n; to++) {
        const struct ax_collective *what = &m->parts[to].what;
        for (int r = 0; r < m->n; r++)
            m->inputs[r] = (const char *)m->parts[r].what.send + (size_t)to * bytes;
        ax_reduce_ordered(what->reduction, what->dtype, what->recv, m->inputs, m->n, what->count);
    }
}

/* Each pair has a count of its own. */
static void all_to_all_v(const struct rendezvous *m, size_t bytes) {
    const size_t size = ax_dtype_size(m->parts[0].what.dtype);
    (void)bytes;
    for (int to = 0; to < m->n; to++) {
        char *recv = m->parts[to].what.recv;
        for (int from = 0; from < m->n; from++) {
            const struct ax_collective *what = &m->parts[from].what;
            const char *send = what->send;
            for (int before = 0; before < to; before++)
                send += (size_t)what->send_counts[before] * size;
            const size_t own = (size_t)what->send_counts[to] * size;
            copy_bytes(recv, send, own);
            recv += own;
        }
    }
}

/* The root may give its data in either buffer. */
static void broadcast(const struct rendezvous *m, size_t bytes) {
    const struct ax_collective *root = &m->parts[m->parts[0].what.root].what;
    const void *data = root->send ? root->send : root->recv;
    for (int r = 0; r < m->n; r++)
        copy_bytes(m->parts[r].what.recv, data, bytes);
}

static void send_recv(const struct rendezvous *m, size_t bytes) {
    copy_bytes(m->parts[1].what.recv, m->parts[0].what.send, bytes);
}

static void move_all(const struct rendezvous *m) {
    static void (*const moves[AX_COLLECTIVE_COUNT])(const struct rendezvous *m, size_t bytes) = {
        [AX_ALL_REDUCE] = all_reduce,         [AX_ALL_GATHER] = all_gather,
        [AX_REDUCE_SCATTER] = reduce_scatter, [AX_ALL_TO_ALL_V] = all_to_all_v,
        [AX_SEND_RECV] = send_recv,           [AX_BROADCAST] = broadcast};
    const struct ax_collective *what = &m->parts[0].what;
    moves[what->kind](m, (size_t)what->count * ax_dtype_size(what->dtype));
}

/* ---- a world, its groups and their rendezvous ----
 *
 * Functions here that do not take the world's lock need it, except create_world and free_world, while
 * no rank runs. */

static void wake_all(struct world *w) {
    for (int r = 0; r < w->n; r++)
        pthread_cond_broadcast(&w->woken[r]);
}

/* Records the failure unless there is one already; wakes all ranks. */
static void set_failure(struct world *w, const char *text) {
    if (w->failed)
        return;
    w->failed = true;
    snprintf(w->failure, sizeof w->failure, "%s", text);
    wake_all(w);
}

/* The same with the lock. */
static void fail_world(struct world *w, const char *text) {
    pthread_mutex_lock(&w->lock);
    set_failure(w, text);
    pthread_mutex_unlock(&w->lock);
}

/* The body of a rank has returned. */
static void end_rank(struct world *w, int rank) {
    pthread_mutex_lock(&w->lock);
    w->ended[rank] = true;
    wake_all(w);
    pthread_mutex_unlock(&w->lock);
}

static int coord_of(const struct rendezvous *m, int i) {
    return m->key.from < 0 ? i : i == 0 ? m->key.from : m->key.to;
}

static struct ax_comm_place place_of(const struct group *g, const struct rendezvous *m) {
    const bool message = m->key.from >= 0;
    return (struct ax_comm_place){.role = g->role,
                                  .number = m->key.number,
                                  .from = message ? g->ranks[m->key.from] : -1,
                                  .to = message ? g->ranks[m->key.to] : -1};
}

/* Checks that all parts agree. Called once, by the last to arrive. */
static enum ax_status check_parts(const struct group *g, const struct rendezvous *m) {
    const struct ax_comm_place place = place_of(g, m);
    struct ax_comm_part *parts;
    int *ranks;
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&parts, (size_t)m->n, sizeof *parts));
    AX_TRY_GOTO(ax_alloc(&ranks, (size_t)m->n, sizeof *ranks), st, free_parts);
    for (int i = 0; i < m->n; i++) {
        parts[i] = ax_comm_part_of(&m->parts[i].what);
        ranks[i] = g->ranks[coord_of(m, i)];
    }
    AX_TRY_GOTO(ax_comm_check_parts(&place, parts, ranks, m->n), st, done);
    if (parts[0].kind == AX_ALL_TO_ALL_V)
        for (int i = 0; i < m->n * m->n && st == AX_OK; i++) {
            const int from = i / m->n, to = i % m->n;
            st = ax_comm_check_counts(&place, parts, ranks[from],
                                      m->parts[from].what.send_counts[to], ranks[to],
                                      m->parts[to].what.recv_counts[from]);
        }
done:
    ax_free(ranks);
free_parts:
    ax_free(parts);
    return st;
}

static void rendezvous_free(struct group *g, struct rendezvous *m) {
    for (int i = 0; m->parts && i < g->n; i++)
        ax_free(m->parts[i].counts);
    ax_free(m->parts);
    ax_free(m->inputs);
    ax_free(m);
}

static enum ax_status rendezvous_make(struct group *g, struct rendezvous **out) {
    struct rendezvous *m;
    enum ax_status st;
    const size_t n = (size_t)g->n;
    AX_TRY(ax_alloc(&m, 1, sizeof *m));
    AX_TRY_GOTO(ax_alloc(&m->parts, n, sizeof *m->parts), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->inputs, n, sizeof *m->inputs), st, fail);
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(ax_alloc(&m->parts[i].counts, 2 * n, sizeof(int64_t)), st, fail);
    *out = m;
    return AX_OK;
fail:
    rendezvous_free(g, m);
    return st;
}

static void free_list(struct group *g, struct rendezvous *m) {
    while (m) {
        struct rendezvous *next = m->next;
        rendezvous_free(g, m);
        m = next;
    }
}

static void group_free(struct group *g) {
    free_list(g, g->open);
    free_list(g, g->spare);
    ax_free(g->ranks);
    ax_free(g->opened);
    ax_free(g->closed);
    ax_free(g);
}

static enum ax_status group_make(struct world *w, enum ax_role role, const int *ranks, int n,
                                 struct group **out) {
    struct group *g;
    enum ax_status st;
    const size_t size = (size_t)n;
    AX_TRY(ax_alloc(&g, 1, sizeof *g));
    g->role = role;
    g->n = n;
    AX_TRY_GOTO(ax_alloc(&g->ranks, size, sizeof *g->ranks), st, fail);
    AX_TRY_GOTO(ax_alloc(&g->opened, size, sizeof *g->opened), st, fail);
    AX_TRY_GOTO(ax_alloc(&g->closed, size, sizeof *g->closed), st, fail);
    memcpy(g->ranks, ranks, size * sizeof *ranks);
    g->next = w->groups;
    w->groups = g;
    *out = g;
    return AX_OK;
fail:
    group_free(g);
    return st;
}

/* The group that member `me` has not opened yet; the first member to arrive creates it. */
static enum ax_status open_group(struct world *w, enum ax_role role, const int *ranks, int n,
                                 int me, struct group **out) {
    struct group *found = NULL; /* the oldest: the list is newest first */
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&w->lock);
    for (struct group *g = w->groups; g; g = g->next)
        if (g->role == role && g->n == n && !g->opened[me] &&
            memcmp(g->ranks, ranks, (size_t)n * sizeof *ranks) == 0)
            found = g;
    if (!found)
        AX_TRY_GOTO(group_make(w, role, ranks, n, &found), st, done);
    found->opened[me] = true;
    *out = found;
done:
    pthread_mutex_unlock(&w->lock);
    return st;
}

static void close_group(struct world *w, struct group *g, int me) {
    pthread_mutex_lock(&w->lock);
    g->closed[me] = true;
    bool all = true;
    for (int i = 0; i < g->n; i++)
        all &= g->closed[i];
    if (all) {
        struct group **at = &w->groups;
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
        group_free(g);
    }
    wake_all(w);
    pthread_mutex_unlock(&w->lock);
}

static void free_world(struct world *w) {
    while (w->groups) {
        struct group *g = w->groups;
        w->groups = g->next;
        group_free(g);
    }
    for (int r = 0; r < w->n; r++)
        pthread_cond_destroy(&w->woken[r]);
    pthread_mutex_destroy(&w->lock);
    ax_free(w->woken);
    ax_free(w->ended);
    ax_free(w);
}

static enum ax_status create_world(struct world **out, int n, const struct ax_local_options *o) {
    struct world *w;
    enum ax_status st;
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    if (o)
        w->options = *o;
    if (w->options.timeout <= 0)
        w->options.timeout = AX_LOCAL_TIMEOUT;
    pthread_mutex_init(&w->lock, NULL);
    AX_TRY_GOTO(ax_alloc(&w->ended, (size_t)n, sizeof *w->ended), st, fail);
    AX_TRY_GOTO(ax_alloc(&w->woken, (size_t)n, sizeof *w->woken), st, fail);
    for (; w->n < n; w->n++)
        ax_cond_init(&w->woken[w->n]);
    *out = w;
    return AX_OK;
fail:
    free_world(w);
    return st;
}

static enum ax_status find_or_make(struct group *g, struct key key, struct rendezvous **out) {
    for (struct rendezvous *m = g->open; m; m = m->next)
        if (m->key.number == key.number && m->key.from == key.from && m->key.to == key.to) {
            *out = m;
            return AX_OK;
        }
    struct rendezvous *m = g->spare;
    if (m)
        g->spare = m->next;
    else
        AX_TRY(rendezvous_make(g, &m));
    m->key = key;
    m->n = m->left = key.from < 0 ? g->n : 2;
    m->arrived = 0;
    m->moving = m->done = false;
    m->next = g->open;
    g->open = m;
    *out = m;
    return AX_OK;
}

static void record_part(struct part *part, const struct ax_collective *what, int n) {
    part->here = true;
    part->what = *what;
    if (what->kind != AX_ALL_TO_ALL_V)
        return;
    const size_t bytes = (size_t)n * sizeof *part->counts;
    memcpy(part->counts, what->send_counts, bytes);
    memcpy(part->counts + n, what->recv_counts, bytes);
    part->what.send_counts = part->counts;
    part->what.recv_counts = part->counts + n;
}

/* Records part i of a rendezvous; the last part to arrive does the work before it returns. */
static enum ax_status arrive(struct world *w, struct group *g, struct key key, int i,
                             const struct ax_collective *what, struct rendezvous **out) {
    enum ax_status st = AX_OK;
    struct rendezvous *m = NULL;
    pthread_mutex_lock(&w->lock);
    if (w->failed) {
        st = ax_error(AX_ERR_PEER, "%s", w->failure);
        goto done;
    }
    AX_TRY_GOTO(find_or_make(g, key, &m), st, done);
    record_part(&m->parts[i], what, g->n);
    *out = m;
    if (++m->arrived < m->n)
        goto done;
    st = check_parts(g, m);
    if (st != AX_OK) {
        set_failure(w, ax_error_text());
        goto done;
    }
    m->moving = true;
    pthread_mutex_unlock(&w->lock);
    move_all(m);
    pthread_mutex_lock(&w->lock);
    m->done = true;
    for (int p = 0; p < m->n; p++)
        pthread_cond_broadcast(&w->woken[g->ranks[coord_of(m, p)]]);
done:
    pthread_mutex_unlock(&w->lock);
    return st;
}

/* The last rank to take its part back clears the table. */
static void take_back(struct group *g, struct rendezvous *m, int i) {
    m->parts[i].here = false;
    if (--m->left > 0)
        return;
    struct rendezvous **at = &g->open;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    m->next = g->spare;
    g->spare = m;
}

/* Writes the world ranks that have not arrived to `ranks`; only those that never will if `gone`. */
static int absent_ranks(const struct world *w, const struct group *g, const struct rendezvous *m,
                        bool gone, int *ranks) {
    int n = 0;
    for (int i = 0; i < m->n; i++) {
        const int coord = coord_of(m, i), rank = g->ranks[coord];
        if (!m->parts[i].here && (!gone || g->closed[coord] || w->ended[rank]))
            ranks[n++] = rank;
    }
    return n;
}

/* If this rendezvous can never complete, says why and tells every rank. */
static enum ax_status is_hopeless(struct world *w, struct group *g, struct rendezvous *m, int i,
                                  bool late) {
    if (w->failed)
        return ax_error(AX_ERR_PEER, "%s", w->failure);
    int *ranks;
    AX_TRY(ax_alloc(&ranks, (size_t)m->n, sizeof *ranks));
    const struct ax_comm_place place = place_of(g, m);
    const struct ax_comm_part part = ax_comm_part_of(&m->parts[i].what);
    char why[64] = "ended without it";
    int n = absent_ranks(w, g, m, true, ranks);
    if (n == 0 && late) {
        n = absent_ranks(w, g, m, false, ranks);
        snprintf(why, sizeof why, "did not arrive within %g s", w->options.timeout);
    }
    enum ax_status st = AX_OK;
    if (n > 0) {
        st = ax_comm_missing(&place, &part, ranks, n, why);
        set_failure(w, ax_error_text());
    }
    ax_free(ranks);
    return st;
}

/* Waits until the work is done and releases part i. AX_ERR_PEER: it will never be done. */
static enum ax_status wait_for(struct world *w, struct group *g, struct rendezvous *m, int i) {
    const double deadline = ax_clock_now() + w->options.timeout;
    pthread_cond_t *woken = &w->woken[g->ranks[coord_of(m, i)]];
    enum ax_status st = AX_OK;
    bool late = false;
    pthread_mutex_lock(&w->lock);
    while (!m->done) {
        if (m->moving) {
            pthread_cond_wait(woken, &w->lock);
            continue;
        }
        AX_TRY_GOTO(is_hopeless(w, g, m, i, late), st, done);
        late = !ax_cond_wait_until(woken, &w->lock, deadline);
    }
    take_back(g, m, i);
done:
    pthread_mutex_unlock(&w->lock);
    return st;
}

/* Releases part i, done or not: its buffers can be freed afterwards. */
static void cancel(struct world *w, struct group *g, struct rendezvous *m, int i) {
    pthread_mutex_lock(&w->lock);
    while (m->moving && !m->done)
        pthread_cond_wait(&w->woken[g->ranks[coord_of(m, i)]], &w->lock);
    if (!m->done)
        m->arrived = -m->n; /* no rank can be the last one now */
    take_back(g, m, i);
    pthread_mutex_unlock(&w->lock);
}

/* ---- communicators ---- */

/* A pending collective: one rendezvous, or two if messages are sent and received. */
struct ticket {
    struct ticket *next;
    uint64_t id;
    struct rendezvous *rendezvous[2];
    int parts[2]; /* this rank's in each */
};

/* One rank's end of a group. */
struct member {
    struct world *world;
    struct group *group;
    uint64_t collectives;
    uint64_t *sent, *received; /* [n] messages to and from each */
    struct ticket *open, *spare;
};

static enum ax_status join_rendezvous(struct member *me, struct ticket *t, int slot, struct key key,
                                      int part, const struct ax_collective *what) {
    t->parts[slot] = part;
    return arrive(me->world, me->group, key, part, what, &t->rendezvous[slot]);
}

static enum ax_status local_start(struct ax_comm *c, struct ax_queue *q,
                                  const struct ax_collective *what, struct ax_ticket ticket) {
    struct member *me = c->state;
    struct ticket *t = me->spare;
    (void)q;
    if (t)
        me->spare = t->next;
    else
        AX_TRY(ax_alloc(&t, 1, sizeof *t));
    *t = (struct ticket){.next = me->open, .id = ticket.id};
    me->open = t;
    if (what->kind != AX_SEND_RECV)
        return join_rendezvous(me, t, 0, (struct key){++me->collectives, -1, -1}, c->rank, what);
    const int to = what->send_peer, from = what->recv_peer;
    if (to >= 0)
        AX_TRY(join_rendezvous(me, t, 0, (struct key){++me->sent[to], c->rank, to}, 0, what));
    if (from >= 0)
        AX_TRY(
            join_rendezvous(me, t, 1, (struct key){++me->received[from], from, c->rank}, 1, what));
    return AX_OK;
}

static enum ax_status local_wait(struct ax_comm *c, struct ax_queue *q, struct ax_ticket ticket) {
    (void)q;
    struct member *me = c->state;
    struct ticket **at = &me->open;
    while (*at && (*at)->id != ticket.id)
        at = &(*at)->next;
    struct ticket *t = *at;
    AX_ASSERT(t); /* each ticket is waited for once */
    for (int i = 0; i < 2; i++) {
        if (t->rendezvous[i])
            AX_TRY(wait_for(me->world, me->group, t->rendezvous[i], t->parts[i]));
        t->rendezvous[i] = NULL;
    }
    *at = t->next;
    t->next = me->spare;
    me->spare = t;
    return AX_OK;
}

static void free_tickets(struct ticket *t) {
    while (t) {
        struct ticket *next = t->next;
        ax_free(t);
        t = next;
    }
}

static void local_free(struct ax_comm *c) {
    struct member *me = c->state;
    for (struct ticket *t = me->open; t; t = t->next)
        for (int i = 0; i < 2; i++)
            if (t->rendezvous[i])
                cancel(me->world, me->group, t->rendezvous[i], t->parts[i]);
    close_group(me->world, me->group, c->rank);
    free_tickets(me->open);
    free_tickets(me->spare);
    ax_free(me->sent);
    ax_free(me->received);
    ax_free(me);
}

static const struct ax_comm_ops local_ops = {
    .name = "local", .start = local_start, .wait = local_wait, .free = local_free};

static enum ax_status fabric_open(struct ax_fabric *f, struct ax_comm *c, enum ax_role role,
                                  const int *ranks, int n, bool apart) {
    (void)apart; /* each communicator has its own lists, under the world's lock */
    struct member *me;
    enum ax_status st;
    int rank = 0;
    while (rank < n && ranks[rank] != f->rank)
        rank++;
    AX_ASSERT(rank < n);
    AX_TRY(ax_alloc(&me, 1, sizeof *me));
    me->world = f->state;
    AX_TRY_GOTO(ax_alloc(&me->sent, (size_t)n, sizeof *me->sent), st, fail);
    AX_TRY_GOTO(ax_alloc(&me->received, (size_t)n, sizeof *me->received), st, fail);
    AX_TRY_GOTO(open_group(me->world, role, ranks, n, rank, &me->group), st, fail);
    *c = (struct ax_comm){.ops = &local_ops, .role = role, .rank = rank, .size = n, .state = me};
    return AX_OK;
fail:
    ax_free(me->sent);
    ax_free(me->received);
    ax_free(me);
    return st;
}

static void fabric_fail(struct ax_fabric *f, enum ax_status st) {
    char text[AX_ERROR_TEXT];
    if (st == AX_ERR_PEER)
        snprintf(text, sizeof text, "%s", ax_error_text()); /* already names the rank */
    else
        ax_fit(text, sizeof text, "rank %d failed: %s", f->rank, ax_error_text());
    fail_world(f->state, text);
}

static void fabric_free(struct ax_fabric *f) {
    end_rank(f->state, f->rank);
}

static const struct ax_fabric_ops fabric_ops = {
    .name = "local", .open = fabric_open, .fail = fabric_fail, .free = fabric_free};

struct run {
    ax_local_body body;
    void *ctx;
    pthread_mutex_t lock;
    struct ax_error_record first; /* the failure to report */
};

struct rank {
    struct ax_worker worker;
    struct ax_fabric fabric;
    struct run *run;
};

/* Tells the other ranks, which must not wait for this one, and notes the failure if it is the one to
 * report. */
static void note_failure(struct rank *r, enum ax_status st) {
    struct run *run = r->run;
    r->fabric.ops->fail(&r->fabric, st);
    if (st != AX_ERR_PEER)
        ax_error_prefix(st, "rank %d", r->fabric.rank);
    pthread_mutex_lock(&run->lock);
    if (run->first.st == AX_OK || (run->first.st == AX_ERR_PEER && st != AX_ERR_PEER))
        ax_error_save(&run->first, st);
    pthread_mutex_unlock(&run->lock);
}

static enum ax_status rank_main(void *arg) {
    struct rank *r = arg;
    const enum ax_status st = r->run->body(&r->fabric, r->run->ctx);
    if (st != AX_OK)
        note_failure(r, st);
    r->fabric.ops->free(&r->fabric);
    return st;
}

enum ax_status ax_local_run(int world, const struct ax_local_options *o, ax_local_body body,
                            void *ctx) {
    AX_ASSERT(world > 0);
    struct run run = {.body = body, .ctx = ctx};
    struct world *w;
    struct rank *ranks;
    enum ax_status st;
    AX_TRY(create_world(&w, world, o));
    AX_TRY_GOTO(ax_alloc(&ranks, (size_t)world, sizeof *ranks), st, no_ranks);
    pthread_mutex_init(&run.lock, NULL);
    for (int r = 0; r < world; r++) {
        ranks[r].run = &run;
        ranks[r].fabric = (struct ax_fabric){.ops = &fabric_ops,
                                             .world = world,
                                             .rank = r,
                                             .local_world = world,
                                             .timeout = w->options.timeout,
                                             .state = w};
        st = ax_worker_start(&ranks[r].worker, rank_main, &ranks[r]);
        if (st != AX_OK) {
            note_failure(&ranks[r], st);
            break;
        }
    }
    for (int r = 0; r < world; r++)
        (void)ax_worker_join(&ranks[r].worker); /* its failure is recorded */
    pthread_mutex_destroy(&run.lock);
    st = run.first.st == AX_OK ? AX_OK : ax_error_restore(&run.first);
    ax_free(ranks);
no_ranks:
    free_world(w);
    return st;
}
