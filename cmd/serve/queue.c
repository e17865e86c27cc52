/* The jobs of an engine: how they come, wait, run and end. */
#include "base/clock.h"
#include "base/threads.h"
#include "cmd/serve/engine.h"

/* ---- what connections ask ---- */

enum ax_status ax_serve_unready(enum ax_serve_state state, int *status) {
    if (status)
        *status = 503;
    return ax_error(AX_ERR_FAILED, "the server is %s",
                    state == AX_SERVE_LOADING ? "loading" : "stopping");
}

enum ax_status ax_serve_submit(struct ax_serve_job *j) {
    struct ax_serve_engine *e = j->engine;
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&e->lock);
    const bool full = e->n_pending > 0 &&
                      (e->n_pending + j->n_units > e->most || e->bytes + j->bytes > e->most_bytes);
    if (e->state != AX_SERVE_READY) {
        st = ax_serve_unready(e->state, &j->r.status);
    } else if (full) {
        j->r.status = 429;
        e->refused++;
        st =
            ax_error(AX_ERR_FAILED, "%lld answers are pending; try again", (long long)e->n_pending);
    } else if (j->n_units > 0) {
        struct ax_serve_job **at = &e->waiting;
        while (*at)
            at = &(*at)->next;
        *at = j;
        ax_serve_job_count(j);
        pthread_cond_signal(&e->wake);
    }
    e->jobs += st == AX_OK;
    pthread_mutex_unlock(&e->lock);
    return st;
}

bool ax_serve_job_wait(struct ax_serve_job *j, double seconds) {
    return ax_cond_wait_until(&j->changed, &j->engine->lock, ax_clock_now() + seconds);
}

/* With the lock: a job that has not begun is as if it had never come. */
static void take_back(struct ax_serve_job *j) {
    struct ax_serve_engine *e = j->engine;
    for (struct ax_serve_job **at = &e->waiting; *at; at = &(*at)->next)
        if (*at == j) {
            *at = j->next;
            e->n_pending -= j->pending;
            e->left += (uint64_t)j->pending;
            e->bytes -= j->bytes;
            j->pending = 0;
            return;
        }
}

void ax_serve_job_abort(struct ax_serve_job *j) {
    const int64_t before = j->pending;
    j->leaves = true;
    take_back(j);
    for (int64_t i = 0; before > 0 && j->pending == 0 && i < j->n_choices; i++)
        if (!j->choices[i].finish)
            j->choices[i].finish = "abort";
    pthread_cond_signal(&j->changed);
}

void ax_serve_leave(struct ax_serve_job *j) {
    struct ax_serve_engine *e = j->engine;
    pthread_mutex_lock(&e->lock);
    j->leaves = true;
    take_back(j);
    while (j->pending > 0)
        pthread_cond_wait(&j->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* ---- what the engine does, with the lock ---- */

void ax_serve_job_count(struct ax_serve_job *j) {
    j->pending = j->n_units;
    j->engine->n_pending += j->n_units;
    j->engine->bytes += j->bytes;
}

void ax_serve_job_begin(struct ax_serve_job *j, struct ax_sequence ***last) {
    struct ax_serve_engine *e = j->engine;
    struct ax_serve_job **at = &e->running;
    while (*at)
        at = &(*at)->next;
    *at = j;
    j->next = NULL;
    j->version = e->version;
    j->number = e->begun++;
    for (int64_t i = 0; i < j->n_units; i++) {
        **last = &j->units[i].s;
        *last = &j->units[i].s.next;
    }
    **last = NULL;
}

/* A job that nothing is computed for any more. */
static void let_go(struct ax_serve_job *j) {
    struct ax_serve_engine *e = j->engine;
    if (e->follows) {
        j->next = e->ended;
        e->ended = j;
    }
    pthread_cond_signal(&j->changed);
}

void ax_serve_unit_end(struct ax_serve_job *j) {
    struct ax_serve_engine *e = j->engine;
    e->n_pending--;
    if (--j->pending == 0) {
        struct ax_serve_job **at = &e->running;
        while (*at != j)
            at = &(*at)->next;
        *at = j->next;
        e->bytes -= j->bytes;
        let_go(j);
    } else if (j->r.stream) {
        pthread_cond_signal(&j->changed);
    }
}

void ax_serve_jobs_fail(struct ax_serve_engine *e) {
    struct ax_serve_job *const lists[] = {e->waiting, e->running};
    for (int k = 0; k < 2; k++)
        for (struct ax_serve_job *j = lists[k], *next; j; j = next) {
            next = j->next;
            j->failed = true;
            j->pending = 0;
            let_go(j);
        }
    e->waiting = e->running = NULL;
    e->n_pending = 0;
}
