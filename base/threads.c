#include "base/threads.h"

#include <string.h>
#include <time.h>

static void *worker_main(void *arg) {
    struct ax_worker *w = arg;
    ax_error_clear();
    enum ax_status st = w->run(w->arg);
    ax_error_save(&w->error, st);
    return NULL;
}

enum ax_status ax_worker_start(struct ax_worker *w, enum ax_status (*run)(void *), void *arg) {
    memset(w, 0, sizeof *w);
    w->run = run;
    w->arg = arg;
    int err = pthread_create(&w->thread, NULL, worker_main, w);
    if (err != 0)
        return ax_error(AX_ERR_FAILED, "cannot start a thread: %s", strerror(err));
    w->started = 1;
    return AX_OK;
}

enum ax_status ax_worker_join(struct ax_worker *w) {
    if (!w->started)
        return AX_OK;
    int err = pthread_join(w->thread, NULL);
    AX_ASSERT(err == 0);
    w->started = 0;
    if (w->error.st == AX_OK)
        return AX_OK; /* keeps this thread's error record */
    return ax_error_restore(&w->error);
}

void ax_cond_init(pthread_cond_t *c) {
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(c, &clock);
    pthread_condattr_destroy(&clock);
}

bool ax_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    const time_t whole = (time_t)until;
    const struct timespec at = {whole, (long)((until - (double)whole) * 1e9)};
    return pthread_cond_timedwait(c, lock, &at) == 0;
}
