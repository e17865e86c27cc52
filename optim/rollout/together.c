/* Ranks that wait for each other: a request to stop ends what some of them run on all.
 *
 * Any rank may have got it, while another one waits for a program. So all ranks vote, those that wait
 * about ten times a second, the others as often as they do, until none waits or one was asked to stop. */
#include "optim/rollout/rollout.h"

/* The first of those with the same sequences, as functions need not repeat themselves. */
bool ax_rollout_runs(const struct ax_mesh *m) {
    return m->coord[AX_ROLE_TP] == 0 && m->coord[AX_ROLE_CP] == 0 && m->coord[AX_ROLE_PP] == 0;
}

static enum ax_status vote(struct ax_runtime *rt, bool waits, bool *others_wait) {
    double v[] = {ax_rollout_stop_now(NULL) ? 1 : 0, waits ? 1 : 0};
    AX_TRY(ax_runtime_combine(rt, AX_ROLE_WORLD, AX_MAX, v, 2));
    *others_wait = v[1] > 0;
    return v[0] > 0 ? ax_error(AX_INTERRUPTED, "asked to stop") : AX_OK;
}

static enum ax_status look(void *ctx) {
    bool ignored;
    return vote(ctx, true, &ignored);
}

static enum ax_status settle(void *ctx) {
    bool wait = true;
    while (wait)
        AX_TRY(vote(ctx, false, &wait));
    return AX_OK;
}

/* All ranks have it at the same place. */
enum ax_status ax_rollout_note_stop(enum ax_status st, bool *stopped) {
    if (st != AX_INTERRUPTED)
        return st;
    ax_error_clear();
    *stopped = true;
    return AX_OK;
}

struct ax_reward_watch ax_rollout_watch(struct ax_runtime *rt) {
    return (struct ax_reward_watch){.watch = {.look = look, .ctx = rt}, .settle = settle};
}

enum ax_status ax_rollout_settle(struct ax_runtime *rt) {
    return settle(rt);
}
