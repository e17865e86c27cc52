/* Any rank may have been asked to stop, while another one waits for a program. So all ranks vote, those that wait
 * about ten times a second, the others as often as they do, until none waits or one was asked to stop. */
#include "model/text/together.h"

/* The first of those with the same sequences, as functions need not repeat themselves. */
bool ax_together_runs(const struct ax_mesh *m) {
    return m->coord[AX_ROLE_TP] == 0 && m->coord[AX_ROLE_CP] == 0 && m->coord[AX_ROLE_PP] == 0;
}

static enum ax_status vote(struct ax_together *t, bool waits, bool *others_wait) {
    double v[] = {t->stop_now && t->stop_now(t->ctx) ? 1 : 0, waits ? 1 : 0};
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, v, 2));
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
enum ax_status ax_together_note_stop(enum ax_status st, bool *stopped) {
    if (st != AX_INTERRUPTED)
        return st;
    ax_error_clear();
    *stopped = true;
    return AX_OK;
}

struct ax_reward_watch ax_together_watch(struct ax_together *t) {
    return (struct ax_reward_watch){.watch = {.look = look, .ctx = t}, .settle = settle};
}

enum ax_status ax_together_settle(struct ax_together *t) {
    return settle(t);
}
