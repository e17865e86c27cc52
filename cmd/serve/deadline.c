#include "cmd/serve/deadline.h"

#include <pthread.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/threads.h"

struct ax_deadline {
    struct ax_deadlines *all;
    int fd;
    double since; /* when it began to wait; 0: it does not */
    struct ax_deadline *next;
};

struct ax_deadlines {
    double seconds;
    struct ax_worker worker;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    /* under the lock: */
    struct ax_deadline *first;
    bool ends;
};

static void shut_late(struct ax_deadlines *d) {
    const double now = ax_clock_now();
    for (struct ax_deadline *c = d->first; c; c = c->next)
        if (c->since > 0 && now > c->since + d->seconds)
            (void)shutdown(c->fd, SHUT_RDWR);
}

static enum ax_status look(void *arg) {
    struct ax_deadlines *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->ends) {
        (void)ax_cond_wait_until(&d->ended, &d->lock, ax_clock_now() + d->seconds / 4);
        shut_late(d);
    }
    pthread_mutex_unlock(&d->lock);
    return AX_OK;
}

enum ax_status ax_deadlines_start(struct ax_deadlines **out, double seconds) {
    struct ax_deadlines *d;
    *out = NULL;
    AX_TRY(ax_alloc(&d, 1, sizeof *d));
    d->seconds = seconds;
    pthread_mutex_init(&d->lock, NULL);
    ax_cond_init(&d->ended);
    *out = d;
    return ax_worker_start(&d->worker, look, d);
}

void ax_deadlines_stop(struct ax_deadlines *d) {
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    d->ends = true;
    pthread_cond_signal(&d->ended);
    pthread_mutex_unlock(&d->lock);
    (void)ax_worker_join(&d->worker);
    AX_ASSERT(!d->first);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->ended);
    ax_free(d);
}

struct ax_deadline *ax_deadline_add(struct ax_deadlines *d, int fd) {
    struct ax_deadline *c;
    if (ax_alloc(&c, 1, sizeof *c) != AX_OK) {
        ax_error_clear();
        return NULL;
    }
    pthread_mutex_lock(&d->lock);
    *c = (struct ax_deadline){.all = d, .fd = fd, .since = ax_clock_now(), .next = d->first};
    d->first = c;
    pthread_mutex_unlock(&d->lock);
    return c;
}

void ax_deadline_wait(struct ax_deadline *c, bool waits) {
    if (!c)
        return;
    pthread_mutex_lock(&c->all->lock);
    c->since = waits ? ax_clock_now() : 0;
    pthread_mutex_unlock(&c->all->lock);
}

void ax_deadline_remove(struct ax_deadline *c) {
    if (!c)
        return;
    struct ax_deadlines *d = c->all;
    pthread_mutex_lock(&d->lock);
    struct ax_deadline **at = &d->first;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    pthread_mutex_unlock(&d->lock);
    ax_free(c);
}
