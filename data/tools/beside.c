#include "data/tools/beside.h"

#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/threads.h"

/* A process or the sandbox, and the thread that asks it. */
struct lane {
    struct ax_tool_beside *all;
    struct ax_worker worker;
    const void *process;
    bool together;              /* calls that wait run together */
    struct ax_tool_call *first; /* those that wait */
};

struct ax_tool_beside {
    struct ax_tools *tools;
    pthread_mutex_t lock;        /* of all below, and of lanes' members but for `worker` */
    pthread_cond_t given, ended; /* for lanes; for the caller */
    struct lane **lanes;         /* [n] */
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

/* The next call, or all that wait. */
static struct ax_tool_call *take_waiting(struct lane *l) {
    struct ax_tool_call *c = l->first;
    if (l->together) {
        l->first = NULL;
    } else {
        l->first = c->next;
        c->next = NULL;
    }
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
    for (struct ax_tool_call *c = list; st == AX_OK && c; c = c->next)
        requests[n++] = c->request;
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
static void settle(struct ax_tool_beside *b, struct ax_tool_call *list, enum ax_status st) {
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
        if (!l->first) {
            pthread_cond_wait(&b->given, &b->lock);
            continue;
        }
        struct ax_tool_call *list = take_waiting(l);
        pthread_mutex_unlock(&b->lock);
        const enum ax_status st = run_list(l, list);
        pthread_mutex_lock(&b->lock);
        settle(b, list, st);
    }
    pthread_mutex_unlock(&b->lock);
    return AX_OK;
}

/* ---- opening and closing ---- */

enum ax_status ax_tool_beside_open(struct ax_tool_beside **out, struct ax_tools *t) {
    struct ax_tool_beside *b;
    pthread_condattr_t attr;
    AX_TRY(ax_alloc(&b, 1, sizeof *b));
    b->tools = t;
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->given, &attr);
    pthread_cond_init(&b->ended, &attr);
    pthread_condattr_destroy(&attr);
    *out = b;
    return AX_OK;
}

void ax_tool_beside_close(struct ax_tool_beside *b) {
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->closes = true;
    pthread_cond_broadcast(&b->given);
    pthread_mutex_unlock(&b->lock);
    for (size_t i = 0; i < b->n; i++) {
        (void)ax_worker_join(&b->lanes[i]->worker);
        ax_free(b->lanes[i]);
    }
    pthread_cond_destroy(&b->given);
    pthread_cond_destroy(&b->ended);
    pthread_mutex_destroy(&b->lock);
    ax_free(b->lanes);
    ax_free(b);
}

/* ---- the caller's side ---- */

static enum ax_status add_lane(struct ax_tool_beside *b, const void *process, struct lane **out) {
    AX_TRY(ax_regrow(&b->lanes, b->n, b->n + 1, sizeof(struct lane *)));
    AX_TRY(ax_alloc(&b->lanes[b->n], 1, sizeof **out));
    struct lane *l = b->lanes[b->n];
    *l = (struct lane){.all = b, .process = process, .together = process == b->tools};
    const enum ax_status st = ax_worker_start(&l->worker, serve, l);
    if (st == AX_OK)
        b->n++;
    else
        ax_free(l);
    *out = l;
    return st;
}

/* Only the caller adds lanes, so that their list needs no lock here. */
static enum ax_status lane_of(struct ax_tool_beside *b, const void *process, struct lane **out) {
    for (size_t i = 0; i < b->n; i++)
        if (b->lanes[i]->process == process) {
            *out = b->lanes[i];
            return AX_OK;
        }
    return add_lane(b, process, out);
}

enum ax_status ax_tool_beside_begin(struct ax_tool_beside *b, struct ax_tool_call *c) {
    const void *process = ax_tools_process(b->tools, &c->request);
    struct lane *l = NULL;
    if (process)
        AX_TRY(lane_of(b, process, &l));
    else
        AX_TRY(ax_tools_run(b->tools, 1, &c->request, NULL, c->result));
    c->next = NULL;
    pthread_mutex_lock(&b->lock);
    append(l ? &l->first : &b->done, c);
    pthread_cond_broadcast(&b->given);
    pthread_mutex_unlock(&b->lock);
    return AX_OK;
}

static struct timespec after(double seconds) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int64_t ns = at.tv_nsec + (int64_t)(seconds * 1e9);
    at.tv_sec += (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

enum ax_status ax_tool_beside_take(struct ax_tool_beside *b, double seconds,
                                   struct ax_tool_call **c) {
    const struct timespec until = after(seconds);
    int late = seconds <= 0;
    pthread_mutex_lock(&b->lock);
    while (!b->done && b->error.st == AX_OK && !late)
        late = pthread_cond_timedwait(&b->ended, &b->lock, &until);
    const struct ax_error_record error = b->error;
    b->error.st = AX_OK; /* said once */
    *c = b->done;
    if (*c)
        b->done = (*c)->next;
    pthread_mutex_unlock(&b->lock);
    return error.st == AX_OK ? AX_OK : ax_error_restore(&error);
}
