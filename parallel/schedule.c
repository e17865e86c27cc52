/* The schedule generator: 1F1B over the units of one stage. */
#include "parallel/schedule.h"

#include "base/mem.h"
#include "parallel/param.h"

static const char *const names[AX_ACT_COUNT] = {
    [AX_ACT_BEGIN] = "begin",       [AX_ACT_GATHER] = "gather",     [AX_ACT_FORWARD] = "forward",
    [AX_ACT_BACKWARD] = "backward", [AX_ACT_RELEASE] = "release",   [AX_ACT_END] = "end",
    [AX_ACT_NEXT] = "next",         [AX_ACT_PREVIOUS] = "previous", [AX_ACT_REDUCE] = "reduce",
    [AX_ACT_TIE] = "tie",           [AX_ACT_NORM] = "norm",         [AX_ACT_CLIP] = "clip",
    [AX_ACT_UPDATE] = "update",
};

const char *ax_action_name(enum ax_action_kind kind) {
    return names[kind];
}

void ax_schedule_stage_units(int n_units, int n_stages, int stage, int *first, int *end) {
    int64_t block, blocks;
    ax_split_range(n_units - 2, n_stages, stage, &block, &blocks);
    *first = stage == 0 ? 0 : (int)block + 1;
    *end = stage == n_stages - 1 ? n_units : (int)(block + blocks) + 1;
}

/* Forwards that run before the first backward. */
static int warm_up(int stage, int n_stages, int n_microbatches) {
    const int w = n_stages - stage - 1;
    return w < n_microbatches ? w : n_microbatches;
}

int ax_schedule_slots(int stage, int n_stages, int n_microbatches) {
    const int w = warm_up(stage, n_stages, n_microbatches) + 1;
    return w < n_microbatches ? w : n_microbatches;
}

struct builder {
    struct ax_schedule *s;
    const struct ax_schedule_options *o;
    bool first_stage, last_stage;
};

static int slot_of(const struct builder *b, int m) {
    return m < 0 ? -1 : m % b->s->n_slots;
}

static enum ax_status put_action(struct ax_schedule *s, const struct ax_action *a) {
    if (s->n == s->cap) {
        const int cap = s->cap ? s->cap * 2 : 256;
        AX_TRY(ax_regrow(&s->actions, (size_t)s->cap, (size_t)cap, sizeof *s->actions));
        s->cap = cap;
    }
    s->actions[s->n++] = *a;
    return AX_OK;
}

static enum ax_status put(struct builder *b, enum ax_action_kind kind, int unit, int m) {
    return put_action(b->s, &(struct ax_action){.kind = kind,
                                                .unit = unit,
                                                .microbatch = m,
                                                .slot = slot_of(b, m),
                                                .receive = -1,
                                                .receive_slot = -1,
                                                .last = m == b->o->n_microbatches - 1});
}

/* A no-op if there is no such stage or nothing to exchange. */
static enum ax_status put_exchange(struct builder *b, enum ax_action_kind kind, int send,
                                   int receive) {
    const bool no_stage = kind == AX_ACT_NEXT ? b->last_stage : b->first_stage;
    if (no_stage || (send < 0 && receive < 0))
        return AX_OK;
    return put_action(b->s, &(struct ax_action){.kind = kind,
                                                .unit = -1,
                                                .microbatch = send,
                                                .slot = slot_of(b, send),
                                                .receive = receive,
                                                .receive_slot = slot_of(b, receive)});
}

/* True if the stage's last unit stays unsharded because its backward follows immediately. */
static bool keeps_last(const struct builder *b) {
    return b->last_stage && !b->o->forward_only;
}

/* Gathers run one unit ahead, so that compute can hide them. */
static enum ax_status put_forward(struct builder *b, int m) {
    const int first = b->o->first_unit, end = b->o->end_unit;
    AX_TRY(put(b, AX_ACT_GATHER, first, m));
    for (int u = first; u < end; u++) {
        if (u + 1 < end)
            AX_TRY(put(b, AX_ACT_GATHER, u + 1, m));
        AX_TRY(put(b, AX_ACT_FORWARD, u, m));
        if (u + 1 < end || !keeps_last(b))
            AX_TRY(put(b, AX_ACT_RELEASE, u, m));
    }
    return AX_OK;
}

/* True if unit 0 is here only as the head's matrix. */
static bool has_copy(const struct builder *b) {
    return b->o->tied && b->last_stage && !b->first_stage;
}

static enum ax_status put_backward(struct builder *b, int m) {
    const int first = b->o->first_unit, end = b->o->end_unit;
    if (!keeps_last(b))
        AX_TRY(put(b, AX_ACT_GATHER, end - 1, m));
    for (int u = end - 1; u >= first; u--) {
        if (u > first)
            AX_TRY(put(b, AX_ACT_GATHER, u - 1, m));
        AX_TRY(put(b, AX_ACT_BACKWARD, u, m));
        AX_TRY(put(b, AX_ACT_RELEASE, u, m));
        AX_TRY(put(b, AX_ACT_REDUCE, u, m));
        if (u == end - 1 && has_copy(b))
            AX_TRY(put(b, AX_ACT_REDUCE, 0, m));
    }
    return put(b, AX_ACT_END, -1, m);
}

/* A micro-batch takes its slot before its input arrives. */
static enum ax_status put_begin(struct builder *b, int m) {
    return m < b->o->n_microbatches ? put(b, AX_ACT_BEGIN, -1, m) : AX_OK;
}

static int or_none(const struct builder *b, int m) {
    return m < b->o->n_microbatches ? m : -1;
}

static enum ax_status put_forwards_only(struct builder *b) {
    for (int m = 0; m < b->o->n_microbatches; m++) {
        AX_TRY(put_begin(b, m));
        AX_TRY(put_exchange(b, AX_ACT_PREVIOUS, -1, m));
        AX_TRY(put_forward(b, m));
        AX_TRY(put_exchange(b, AX_ACT_NEXT, m, -1));
        AX_TRY(put(b, AX_ACT_END, -1, m));
    }
    return AX_OK;
}

static enum ax_status put_1f1b(struct builder *b) {
    const int n = b->o->n_microbatches, w = warm_up(b->o->stage, b->o->n_stages, n);
    AX_TRY(put_begin(b, 0));
    AX_TRY(put_exchange(b, AX_ACT_PREVIOUS, -1, 0));
    for (int m = 0; m < w; m++) {
        AX_TRY(put_forward(b, m));
        AX_TRY(put_exchange(b, AX_ACT_NEXT, m, -1));
        AX_TRY(put_begin(b, m + 1));
        AX_TRY(put_exchange(b, AX_ACT_PREVIOUS, -1, or_none(b, m + 1)));
    }
    for (int m = w; m < n; m++) {
        AX_TRY(put_forward(b, m));
        AX_TRY(put_exchange(b, AX_ACT_NEXT, m, m - w));
        AX_TRY(put_backward(b, m - w));
        AX_TRY(put_begin(b, m + 1));
        AX_TRY(put_exchange(b, AX_ACT_PREVIOUS, m - w, or_none(b, m + 1)));
    }
    for (int m = n - w; m < n; m++) {
        AX_TRY(put_exchange(b, AX_ACT_NEXT, -1, m));
        AX_TRY(put_backward(b, m));
        AX_TRY(put_exchange(b, AX_ACT_PREVIOUS, m, -1));
    }
    return AX_OK;
}

static enum ax_status put_updates(struct builder *b) {
    if (b->o->tied && b->o->n_stages > 1 && (b->first_stage || b->last_stage))
        AX_TRY(put(b, AX_ACT_TIE, 0, -1));
    for (int u = b->o->first_unit; u < b->o->end_unit; u++)
        AX_TRY(put(b, AX_ACT_NORM, u, -1));
    b->s->first_update = b->s->n;
    AX_TRY(put(b, AX_ACT_CLIP, -1, -1));
    if (has_copy(b))
        AX_TRY(put(b, AX_ACT_UPDATE, 0, -1));
    for (int u = b->o->first_unit; u < b->o->end_unit; u++)
        AX_TRY(put(b, AX_ACT_UPDATE, u, -1));
    return AX_OK;
}

enum ax_status ax_schedule_create(struct ax_schedule *s, const struct ax_schedule_options *o) {
    AX_ASSERT(o->end_unit > o->first_unit && o->n_microbatches > 0);
    *s = (struct ax_schedule){
        .n_slots =
            o->forward_only ? 1 : ax_schedule_slots(o->stage, o->n_stages, o->n_microbatches)};
    struct builder b = {s, o, o->stage == 0, o->stage == o->n_stages - 1};
    enum ax_status st;
    if (o->forward_only) {
        AX_TRY_GOTO(put_forwards_only(&b), st, fail);
        s->first_update = s->n;
        return AX_OK;
    }
    AX_TRY_GOTO(put_1f1b(&b), st, fail);
    AX_TRY_GOTO(put_updates(&b), st, fail);
    return AX_OK;
fail:
    ax_schedule_free(s);
    return st;
}

void ax_schedule_free(struct ax_schedule *s) {
    ax_free(s->actions);
    *s = (struct ax_schedule){0};
}
