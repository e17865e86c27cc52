/* Whether a call that waits for other processes is still wanted: its caller is asked, ten times a second. */
#ifndef AX_DATA_REWARD_SANDBOX_WATCH_H
#define AX_DATA_REWARD_SANDBOX_WATCH_H

#include "base/clock.h"
#include "base/status.h"

struct ax_watch {
    /* AX_OK: go on. Another status, such as AX_INTERRUPTED, ends the call with it. */
    enum ax_status (*look)(void *ctx);
    void *ctx;
    double next; /* when to look again; 0 before the first time */
};
#define AX_WATCH_SECONDS 0.1

/* The time until which a call may wait before it looks; `until` without a watch. */
static inline double ax_watch_until(const struct ax_watch *w, double until) {
    return w && w->next < until ? w->next : until;
}

/* Looks if it is time to. NULL: nobody has to be asked. */
static inline enum ax_status ax_watch_look(struct ax_watch *w) {
    if (!w || ax_clock_now() < w->next)
        return AX_OK;
    const enum ax_status st = w->look(w->ctx);
    w->next = ax_clock_now() + AX_WATCH_SECONDS;
    return st;
}

#endif
