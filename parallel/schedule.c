/* The schedule generator for one stage: every micro-batch forward and backward in turn. */
#include "parallel/schedule.h"

#include "base/mem.h"

static const char *const names[AX_ACT_COUNT] = {
    [AX_ACT_BEGIN] = "begin",       [AX_ACT_GATHER] = "gather",   [AX_ACT_FORWARD] = "forward",
    [AX_ACT_BACKWARD] = "backward", [AX_ACT_RELEASE] = "release", [AX_ACT_END] = "end",
    [AX_ACT_REDUCE] = "reduce",     [AX_ACT_CLIP] = "clip",       [AX_ACT_UPDATE] = "update",
};

const char *ax_action_name(enum ax_action_kind kind) {
    return names[kind];
}

static enum ax_status put(struct ax_schedule *s, enum ax_action_kind kind, int unit,
                          int microbatch) {
    if (s->n == s->cap) {
        int cap = s->cap ? s->cap * 2 : 256;
        AX_TRY(ax_regrow(&s->actions, (size_t)s->cap, (size_t)cap, sizeof *s->actions));
        s->cap = cap;
    }
    s->actions[s->n++] = (struct ax_action){kind, unit, microbatch, 0};
    return AX_OK;
}

/* Gathers run one unit ahead of what needs them, so that they can be hidden behind it. The last
 * unit stays whole from its forward to its backward. */
static enum ax_status put_forward(struct ax_schedule *s, int n_units, int m, bool keep_last) {
    AX_TRY(put(s, AX_ACT_BEGIN, -1, m));
    AX_TRY(put(s, AX_ACT_GATHER, 0, m));
    for (int u = 0; u < n_units; u++) {
        if (u + 1 < n_units)
            AX_TRY(put(s, AX_ACT_GATHER, u + 1, m));
        AX_TRY(put(s, AX_ACT_FORWARD, u, m));
        if (u + 1 < n_units || !keep_last)
            AX_TRY(put(s, AX_ACT_RELEASE, u, m));
    }
    return AX_OK;
}

static enum ax_status put_backward(struct ax_schedule *s, int n_units, int m, bool last) {
    for (int u = n_units - 1; u >= 0; u--) {
        if (u > 0)
            AX_TRY(put(s, AX_ACT_GATHER, u - 1, m));
        AX_TRY(put(s, AX_ACT_BACKWARD, u, m));
        AX_TRY(put(s, AX_ACT_RELEASE, u, m));
        if (last)
            AX_TRY(put(s, AX_ACT_REDUCE, u, -1));
    }
    return AX_OK;
}

enum ax_status ax_schedule_create(struct ax_schedule *s, int n_units, int n_microbatches,
                                  bool forward_only) {
    AX_ASSERT(n_units > 0 && n_microbatches > 0);
    *s = (struct ax_schedule){.n_slots = 1};
    enum ax_status st;
    for (int m = 0; m < n_microbatches; m++) {
        AX_TRY_GOTO(put_forward(s, n_units, m, !forward_only), st, fail);
        if (!forward_only)
            AX_TRY_GOTO(put_backward(s, n_units, m, m == n_microbatches - 1), st, fail);
        AX_TRY_GOTO(put(s, AX_ACT_END, -1, m), st, fail);
    }
    s->first_update = s->n;
    if (forward_only)
        return AX_OK;
    AX_TRY_GOTO(put(s, AX_ACT_CLIP, -1, -1), st, fail);
    for (int u = 0; u < n_units; u++)
        AX_TRY_GOTO(put(s, AX_ACT_UPDATE, u, -1), st, fail);
    return AX_OK;
fail:
    ax_schedule_free(s);
    return st;
}

void ax_schedule_free(struct ax_schedule *s) {
    ax_free(s->actions);
    *s = (struct ax_schedule){0};
}
