#include "data/tools/beside.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"

/* Seconds that a call waits for the processes that there are; then another one is started for it. */
#define PATIENCE 0.1

/* An answer and a host: its calls there are asked one after the other. */
struct bond {
    int64_t rollout;
    struct lane *lane; /* that has its calls; NULL: any may have the next one */
};

/* Calls of a host. */
struct queue {
    struct ax_tool_host *host;
    struct ax_tool_call *first; /* those that wait */
    struct bond *bonds;         /* [n_bonds] */
    struct lane **lanes;        /* [n_lanes], host->n at most */
    size_t n_bonds, n_lanes, n_idle;
};

/* A process of a host, or the sandbox, and the thread that asks it. */
struct lane {
    struct ax_tool_beside *all;
    struct queue *queue;
    size_t place; /* of the process, among the host's */
    struct ax_worker worker;
};

struct ax_tool_beside {
    struct ax_tools *tools;
    pthread_mutex_t lock;        /* of all below, and of what queues have */
    pthread_cond_t given, ended; /* for lanes; for the caller */
    struct queue **queues;       /* [n]; only the caller adds any */
    size_t n;
    struct ax_tool_call *done; /* in the order in which they ended */
    bool closes;
    struct ax_error_record error; /* the first of a lane */
};

static void append(struct ax_tool_call **list, struct ax_tool_call *c) {
    while (*list)
        list = &(*list)->next;
    *list = c;
}

/* ---- in a lane's thread ---- */

static enum ax_status look(void *ctx) {
    struct ax_tool_beside *b = ctx;
    pthread_mutex_lock(&b->lock);
    const bool closes = b->closes;
    pthread_mutex_unlock(&b->lock);
    return closes ? ax_error(AX_INTERRUPTED, "asked to stop") : AX_OK;
}

/* The first call that the lane may have; of the sandbox, all that wait. */
static struct ax_tool_call *take_waiting(struct lane *l) {
    struct queue *q = l->queue;
    struct ax_tool_call **at = &q->first, *c = q->first;
    if (!q->host->children) {
        q->first = NULL;
        return c;
    }
    while (*at && q->bonds[(*at)->bond].lane && q->bonds[(*at)->bond].lane != l)
        at = &(*at)->next;
    c = *at;
    if (!c)
        return NULL;
    *at = c->next;
    c->next = NULL;
    q->bonds[c->bond].lane = l;
    return c;
}

static enum ax_status run_list(struct lane *l, struct ax_tool_call *list) {
    struct ax_watch watch = {.look = look, .ctx = l->all};
    struct ax_tool_request *requests;
    struct ax_tool_result *results = NULL;
    size_t n = 0;
    for (struct ax_tool_call *c = list; c; c = c->next)
        n++;
    AX_TRY(ax_alloc(&requests, n, sizeof *requests));
    enum ax_status st = ax_alloc(&results, n, sizeof *results);
    n = 0;
    for (struct ax_tool_call *c = list; st == AX_OK && c; c = c->next) {
        requests[n] = c->request;
        requests[n++].worker = l->place;
    }
    if (st == AX_OK)
        st = ax_tools_run(l->all->tools, n, requests, &watch, results);
    n = 0;
    for (struct ax_tool_call *c = list; results && c; c = c->next)
        *c->result = results[n++];
    ax_free(requests);
    ax_free(results);
    return st;
}

/* With the lock. */
static void settle(struct lane *l, struct ax_tool_call *list, enum ax_status st) {
    struct ax_tool_beside *b = l->all;
    const struct queue *q = l->queue;
    for (struct ax_tool_call *c = list; c && !q->host->binds; c = c->next)
        q->bonds[c->bond].lane = NULL;
    if (st == AX_OK)
        append(&b->done, list);
    else if (st != AX_INTERRUPTED && b->error.st == AX_OK)
        ax_error_save(&b->error, st);
    ax_error_clear();
    pthread_cond_broadcast(&b->ended);
}

static enum ax_status serve(void *arg) {
    struct lane *l = arg;
    struct ax_tool_beside *b = l->all;
    pthread_mutex_lock(&b->lock);
    while (!b->closes) {
        struct ax_tool_call *list = take_waiting(l);
        if (!list) {
            pthread_cond_wait(&b->given, &b->lock);
            continue;
        }
        l->queue->n_idle--;
        pthread_mutex_unlock(&b->lock);
        const enum ax_status st = run_list(l, list);
        pthread_mutex_lock(&b->lock);
        l->queue->n_idle++;
        settle(l, list, st);
    }
    pthread_mutex_unlock(&b->lock);
    return AX_OK;
}

/* ---- opening and closing ---- */

enum ax_status ax_tool_beside_open(struct ax_tool_beside **out, struct ax_tools *t) {
    struct ax_tool_beside *b;
    AX_TRY(ax_alloc(&b, 1, sizeof *b));
    b->tools = t;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->given, NULL);
    ax_cond_init(&b->ended);
    *out = b;
    return AX_OK;
}

static void close_queue(struct queue *q) {
    for (size_t i = 0; i < q->n_lanes; i++) {
        (void)ax_worker_join(&q->lanes[i]->worker);
        ax_free(q->lanes[i]);
    }
    ax_free(q->lanes);
    ax_free(q->bonds);
    ax_free(q);
}

void ax_tool_beside_close(struct ax_tool_beside *b) {
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->closes = true;
    pthread_cond_broadcast(&b->given);
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; i < b->n; i++)
        close_queue(b->queues[i]);
    pthread_cond_destroy(&b->given);
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    ax_free(b->queues);
    ax_free(b);
}

/* ---- the caller's side ---- */

/* With the lock. */
static enum ax_status add_lane(struct ax_tool_beside *b, struct queue *q) {
    AX_TRY(ax_regrow(&q->lanes, q->n_lanes, q->n_lanes + 1, sizeof(struct lane *)));
    AX_TRY(ax_alloc(&q->lanes[q->n_lanes], 1, sizeof(struct lane)));
    struct lane *l = q->lanes[q->n_lanes];
    *l = (struct lane){.all = b, .queue = q, .place = q->n_lanes};
    const enum ax_status st = ax_worker_start(&l->worker, serve, l);
    if (st != AX_OK) {
        ax_free(l);
        return st;
    }
    q->n_lanes++;
    q->n_idle++;
    if (q->host->needed < q->n_lanes)
        q->host->needed = q->n_lanes;
    return AX_OK;
}

static enum ax_status queue_of(struct ax_tool_beside *b, struct ax_tool_host *host,
                               struct queue **out) {
    for (size_t i = 0; i < b->n; i++)
        if ((*out = b->queues[i])->host == host)
            return AX_OK;
    AX_TRY(ax_regrow(&b->queues, b->n, b->n + 1, sizeof(struct queue *)));
    AX_TRY(ax_alloc(&b->queues[b->n], 1, sizeof **out));
    *out = b->queues[b->n++];
    (*out)->host = host;
    return AX_OK;
}

static enum ax_status bond_of(struct queue *q, int64_t rollout, size_t *out) {
    for (*out = 0; *out < q->n_bonds; ++*out)
        if (q->bonds[*out].rollout == rollout)
            return AX_OK;
    AX_TRY(ax_regrow(&q->bonds, q->n_bonds, q->n_bonds + 1, sizeof *q->bonds));
    q->bonds[q->n_bonds++] = (struct bond){.rollout = rollout};
    return AX_OK;
}

/* With the lock. */
static enum ax_status hand_over(struct ax_tool_beside *b, struct ax_tool_host *host,
                                struct ax_tool_call *c) {
    struct queue *q;
    AX_TRY(queue_of(b, host, &q));
    AX_TRY(bond_of(q, c->request.rollout, &c->bond));
    while (q->n_lanes == 0 || q->n_lanes < host->needed)
        AX_TRY(add_lane(b, q));
    append(&q->first, c);
    pthread_cond_broadcast(&b->given);
    return AX_OK;
}

enum ax_status ax_tool_beside_begin(struct ax_tool_beside *b, struct ax_tool_call *c) {
    struct ax_tool_host *host = ax_tools_host(b->tools, &c->request);
    c->next = NULL;
    c->since = ax_clock_now();
    if (!host)
        AX_TRY(ax_tools_run(b->tools, 1, &c->request, NULL, c->result));
    pthread_mutex_lock(&b->lock);
    const enum ax_status st = host ? hand_over(b, host, c) : AX_OK;
    if (!host)
        append(&b->done, c);
    pthread_mutex_unlock(&b->lock);
    return st;
}

/* How many calls have waited for too long of which another process would relieve this one: it may have them, or, if
 * answers are bound to theirs, later ones; *soon: seconds until there may be one more. */
static size_t count_waiting(const struct queue *q, double now, double *soon) {
    size_t n = 0;
    for (const struct ax_tool_call *c = q->first; c; c = c->next) {
        const double left = c->since + PATIENCE - now;
        if (q->bonds[c->bond].lane && !q->host->binds)
            continue;
        n += left <= 0;
        if (left > 0 && left < *soon)
            *soon = left;
    }
    return n;
}

/* With the lock. */
static enum ax_status start_more(struct ax_tool_beside *b, double *soon) {
    const double now = ax_clock_now();
    for (size_t i = 0; i < b->n; i++) {
        struct queue *q = b->queues[i];
        const bool full = q->n_lanes == q->host->n;
        const size_t n = full ? 0 : count_waiting(q, now, soon);
        while (q->n_idle < n && q->n_lanes < q->host->n)
            AX_TRY(add_lane(b, q));
    }
    return AX_OK;
}

/* With the lock: until a call has ended, or these seconds have. */
static enum ax_status wait_for_end(struct ax_tool_beside *b, double seconds) {
    const double until = ax_clock_now() + seconds;
    for (;;) {
        double soon = until - ax_clock_now();
        AX_TRY(start_more(b, &soon));
        if (b->done || b->error.st != AX_OK || soon <= 0)
            return AX_OK;
        (void)ax_cond_wait_until(&b->ended, &b->lock, ax_clock_now() + soon);
    }
}

enum ax_status ax_tool_beside_take(struct ax_tool_beside *b, double seconds,
                                   struct ax_tool_call **c) {
    *c = NULL;
    pthread_mutex_lock(&b->lock);
    const enum ax_status st = wait_for_end(b, seconds);
    const struct ax_error_record error = b->error;
    b->error.st = AX_OK; /* said once */
    *c = b->done;
    if (*c)
        b->done = (*c)->next;
    pthread_mutex_unlock(&b->lock);
    AX_TRY(st);
    return error.st == AX_OK ? AX_OK : ax_error_restore(&error);
}
