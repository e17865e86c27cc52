/* Communicators and fabrics on top of rendezvous (local_rendezvous.h), and the threads that use
 * them. */
#include "parallel/fabric/comm_local.h"

#include <stdio.h>

#include "base/mem.h"
#include "base/threads.h"
#include "parallel/fabric/local_rendezvous.h"

/* A pending collective: one rendezvous, or two if messages are sent and received. */
struct ticket {
    struct ticket *next;
    uint64_t id;
    struct ax_local_rendezvous *rendezvous[2];
    int parts[2]; /* this rank's in each */
};

/* One rank's end of a group. */
struct member {
    struct ax_local_world *world;
    struct ax_local_group *group;
    uint64_t collectives;
    uint64_t *sent, *received; /* [n] messages to and from each */
    struct ticket *open, *spare;
};

static enum ax_status join(struct member *me, struct ticket *t, int slot, struct ax_local_key key,
                           int part, const struct ax_collective *what) {
    t->parts[slot] = part;
    return ax_local_arrive(me->world, me->group, key, part, what, &t->rendezvous[slot]);
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
        return join(me, t, 0, (struct ax_local_key){++me->collectives, -1, -1}, c->rank, what);
    const int to = what->send_peer, from = what->recv_peer;
    if (to >= 0)
        AX_TRY(join(me, t, 0, (struct ax_local_key){++me->sent[to], c->rank, to}, 0, what));
    if (from >= 0)
        AX_TRY(join(me, t, 1, (struct ax_local_key){++me->received[from], from, c->rank}, 1, what));
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
            AX_TRY(ax_local_wait(me->world, me->group, t->rendezvous[i], t->parts[i]));
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
                ax_local_cancel(me->world, me->group, t->rendezvous[i], t->parts[i]);
    ax_local_group_close(me->world, me->group, c->rank);
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
    AX_TRY_GOTO(ax_local_group_open(me->world, role, ranks, n, rank, &me->group), st, fail);
    *c = (struct ax_comm){.ops = &local_ops, .role = role, .rank = rank, .size = n, .state = me};
    return AX_OK;
fail:
    ax_free(me->sent);
    ax_free(me->received);
    ax_free(me);
    return st;
}

static void fabric_fail(struct ax_fabric *f, enum ax_status st) {
    char text[2048];
    if (st == AX_ERR_PEER)
        snprintf(text, sizeof text, "%s", ax_error_text()); /* already names the rank */
    else
        snprintf(text, sizeof text, "rank %d failed: %.2000s", f->rank, ax_error_text());
    ax_local_world_fail(f->state, text);
}

static void fabric_free(struct ax_fabric *f) {
    ax_local_world_end(f->state, f->rank);
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

static void note_failure(struct run *run, enum ax_status st) {
    pthread_mutex_lock(&run->lock);
    if (run->first.st == AX_OK || (run->first.st == AX_ERR_PEER && st != AX_ERR_PEER))
        ax_error_save(&run->first, st);
    pthread_mutex_unlock(&run->lock);
}

static enum ax_status rank_main(void *arg) {
    struct rank *r = arg;
    const enum ax_status st = r->run->body(&r->fabric, r->run->ctx);
    if (st != AX_OK) {
        r->fabric.ops->fail(&r->fabric, st);
        if (st != AX_ERR_PEER)
            ax_error_prefix(st, "rank %d", r->fabric.rank);
        note_failure(r->run, st);
    }
    r->fabric.ops->free(&r->fabric);
    return st;
}

enum ax_status ax_local_run(int world, const struct ax_local_options *o, ax_local_body body,
                            void *ctx) {
    AX_ASSERT(world > 0);
    struct run run = {.body = body, .ctx = ctx};
    struct ax_local_world *w;
    struct rank *ranks;
    enum ax_status st;
    AX_TRY(ax_local_world_create(&w, world, o));
    AX_TRY_GOTO(ax_alloc(&ranks, (size_t)world, sizeof *ranks), st, free_world);
    pthread_mutex_init(&run.lock, NULL);
    for (int r = 0; r < world; r++) {
        ranks[r].run = &run;
        ranks[r].fabric =
            (struct ax_fabric){.ops = &fabric_ops,
                               .world = world,
                               .rank = r,
                               .local_world = world,
                               .timeout = o && o->timeout > 0 ? o->timeout : AX_LOCAL_TIMEOUT,
                               .state = w};
        st = ax_worker_start(&ranks[r].worker, rank_main, &ranks[r]);
        if (st != AX_OK) { /* the others must not wait for it */
            fabric_fail(&ranks[r].fabric, st);
            note_failure(&run, st);
            break;
        }
    }
    for (int r = 0; r < world; r++)
        (void)ax_worker_join(&ranks[r].worker); /* its failure is recorded */
    pthread_mutex_destroy(&run.lock);
    st = run.first.st == AX_OK ? AX_OK : ax_error_restore(&run.first);
    ax_free(ranks);
free_world:
    ax_local_world_free(w);
    return st;
}
