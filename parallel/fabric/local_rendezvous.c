/* Rendezvous of threads. Start with ax_local_arrive and ax_local_wait. */
#include "parallel/fabric/local_rendezvous.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "parallel/fabric/comm_check.h"

/* Requires the lock, like all functions here that take a world first and do not lock. */
static void wake_all(struct ax_local_world *w) {
    for (int r = 0; r < w->n; r++)
        pthread_cond_broadcast(&w->woken[r]);
}

static void set_failure(struct ax_local_world *w, const char *text) {
    if (w->failed)
        return;
    w->failed = true;
    snprintf(w->failure, sizeof w->failure, "%s", text);
    wake_all(w);
}

void ax_local_world_fail(struct ax_local_world *w, const char *text) {
    pthread_mutex_lock(&w->lock);
    set_failure(w, text);
    pthread_mutex_unlock(&w->lock);
}

void ax_local_world_end(struct ax_local_world *w, int rank) {
    pthread_mutex_lock(&w->lock);
    w->ended[rank] = true;
    wake_all(w);
    pthread_mutex_unlock(&w->lock);
}

static int coord_of(const struct ax_local_rendezvous *m, int i) {
    return m->key.from < 0 ? i : i == 0 ? m->key.from : m->key.to;
}

static struct ax_comm_place place_of(const struct ax_local_group *g,
                                     const struct ax_local_rendezvous *m) {
    const bool message = m->key.from >= 0;
    return (struct ax_comm_place){.role = g->role,
                                  .number = m->key.number,
                                  .from = message ? g->ranks[m->key.from] : -1,
                                  .to = message ? g->ranks[m->key.to] : -1};
}

/* Checks that all parts agree. Called once, by the last to arrive. */
static enum ax_status check(const struct ax_local_group *g, const struct ax_local_rendezvous *m) {
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

static void rendezvous_free(struct ax_local_group *g, struct ax_local_rendezvous *m) {
    for (int i = 0; m->parts && i < g->n; i++)
        ax_free(m->parts[i].counts);
    ax_free(m->parts);
    ax_free(m->inputs);
    ax_free(m);
}

static enum ax_status rendezvous_make(struct ax_local_group *g, struct ax_local_rendezvous **out) {
    struct ax_local_rendezvous *m;
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

static void free_rendezvous(struct ax_local_group *g, struct ax_local_rendezvous *m) {
    while (m) {
        struct ax_local_rendezvous *next = m->next;
        rendezvous_free(g, m);
        m = next;
    }
}

static void group_free(struct ax_local_group *g) {
    free_rendezvous(g, g->open);
    free_rendezvous(g, g->spare);
    ax_free(g->ranks);
    ax_free(g->opened);
    ax_free(g->closed);
    ax_free(g);
}

static enum ax_status group_make(struct ax_local_world *w, enum ax_role role, const int *ranks,
                                 int n, struct ax_local_group **out) {
    struct ax_local_group *g;
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

enum ax_status ax_local_group_open(struct ax_local_world *w, enum ax_role role, const int *ranks,
                                   int n, int me, struct ax_local_group **out) {
    struct ax_local_group *found = NULL; /* the oldest: the list is newest first */
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&w->lock);
    for (struct ax_local_group *g = w->groups; g; g = g->next)
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

void ax_local_group_close(struct ax_local_world *w, struct ax_local_group *g, int me) {
    pthread_mutex_lock(&w->lock);
    g->closed[me] = true;
    bool all = true;
    for (int i = 0; i < g->n; i++)
        all &= g->closed[i];
    if (all) {
        struct ax_local_group **at = &w->groups;
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
        group_free(g);
    }
    wake_all(w);
    pthread_mutex_unlock(&w->lock);
}

enum ax_status ax_local_world_create(struct ax_local_world **out, int n,
                                     const struct ax_local_options *o) {
    struct ax_local_world *w;
    enum ax_status st;
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    if (o)
        w->options = *o;
    if (w->options.timeout <= 0)
        w->options.timeout = AX_LOCAL_TIMEOUT;
    pthread_mutex_init(&w->lock, NULL);
    AX_TRY_GOTO(ax_alloc(&w->ended, (size_t)n, sizeof *w->ended), st, fail);
    AX_TRY_GOTO(ax_alloc(&w->woken, (size_t)n, sizeof *w->woken), st, fail);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (; w->n < n; w->n++)
        pthread_cond_init(&w->woken[w->n], &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = w;
    return AX_OK;
fail:
    ax_local_world_free(w);
    return st;
}

void ax_local_world_free(struct ax_local_world *w) {
    if (!w)
        return;
    while (w->groups) {
        struct ax_local_group *g = w->groups;
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

static enum ax_status find_or_make(struct ax_local_group *g, struct ax_local_key key,
                                   struct ax_local_rendezvous **out) {
    for (struct ax_local_rendezvous *m = g->open; m; m = m->next)
        if (m->key.number == key.number && m->key.from == key.from && m->key.to == key.to) {
            *out = m;
            return AX_OK;
        }
    struct ax_local_rendezvous *m = g->spare;
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

static void record_part(struct ax_local_part *part, const struct ax_collective *what, int n) {
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

enum ax_status ax_local_arrive(struct ax_local_world *w, struct ax_local_group *g,
                               struct ax_local_key key, int i, const struct ax_collective *what,
                               struct ax_local_rendezvous **out) {
    enum ax_status st = AX_OK;
    struct ax_local_rendezvous *m = NULL;
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
    st = check(g, m);
    if (st != AX_OK) {
        set_failure(w, ax_error_text());
        goto done;
    }
    m->moving = true;
    pthread_mutex_unlock(&w->lock);
    ax_local_move(m);
    pthread_mutex_lock(&w->lock);
    m->done = true;
    for (int p = 0; p < m->n; p++)
        pthread_cond_broadcast(&w->woken[g->ranks[coord_of(m, p)]]);
done:
    pthread_mutex_unlock(&w->lock);
    return st;
}

/* The last rank to take its part back clears the table. */
static void take_back(struct ax_local_group *g, struct ax_local_rendezvous *m, int i) {
    m->parts[i].here = false;
    if (--m->left > 0)
        return;
    struct ax_local_rendezvous **at = &g->open;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    m->next = g->spare;
    g->spare = m;
}

/* Writes the world ranks that have not arrived to `ranks`; only those that never will if `gone`. */
static int absent(const struct ax_local_world *w, const struct ax_local_group *g,
                  const struct ax_local_rendezvous *m, bool gone, int *ranks) {
    int n = 0;
    for (int i = 0; i < m->n; i++) {
        const int coord = coord_of(m, i), rank = g->ranks[coord];
        if (!m->parts[i].here && (!gone || g->closed[coord] || w->ended[rank]))
            ranks[n++] = rank;
    }
    return n;
}

/* If this rendezvous can never complete, says why and tells every rank. */
static enum ax_status hopeless(struct ax_local_world *w, struct ax_local_group *g,
                               struct ax_local_rendezvous *m, int i, bool late) {
    if (w->failed)
        return ax_error(AX_ERR_PEER, "%s", w->failure);
    int *ranks;
    AX_TRY(ax_alloc(&ranks, (size_t)m->n, sizeof *ranks));
    const struct ax_comm_place place = place_of(g, m);
    const struct ax_comm_part part = ax_comm_part_of(&m->parts[i].what);
    char why[64] = "ended without it";
    int n = absent(w, g, m, true, ranks);
    if (n == 0 && late) {
        n = absent(w, g, m, false, ranks);
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

static struct timespec to_timespec(double seconds) {
    const time_t whole = (time_t)seconds;
    return (struct timespec){.tv_sec = whole, .tv_nsec = (long)((seconds - (double)whole) * 1e9)};
}

enum ax_status ax_local_wait(struct ax_local_world *w, struct ax_local_group *g,
                             struct ax_local_rendezvous *m, int i) {
    const struct timespec deadline = to_timespec(ax_clock_now() + w->options.timeout);
    pthread_cond_t *woken = &w->woken[g->ranks[coord_of(m, i)]];
    enum ax_status st = AX_OK;
    bool late = false;
    pthread_mutex_lock(&w->lock);
    while (!m->done) {
        if (m->moving) {
            pthread_cond_wait(woken, &w->lock);
            continue;
        }
        AX_TRY_GOTO(hopeless(w, g, m, i, late), st, done);
        late = pthread_cond_timedwait(woken, &w->lock, &deadline) == ETIMEDOUT;
    }
    take_back(g, m, i);
done:
    pthread_mutex_unlock(&w->lock);
    return st;
}

void ax_local_cancel(struct ax_local_world *w, struct ax_local_group *g,
                     struct ax_local_rendezvous *m, int i) {
    pthread_mutex_lock(&w->lock);
    while (m->moving && !m->done)
        pthread_cond_wait(&w->woken[g->ranks[coord_of(m, i)]], &w->lock);
    if (!m->done)
        m->arrived = -m->n; /* no rank can be the last one now */
    take_back(g, m, i);
    pthread_mutex_unlock(&w->lock);
}
