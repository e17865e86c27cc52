/* The schedule generator: one stage's part of the pipeline's clock, with its units and messages. */
#include "parallel/schedule/schedule.h"

#include "base/mem.h"
#include "kernels/arena.h"

static const char *const names[AX_ACT_COUNT] = {
    [AX_ACT_BEGIN] = "begin",
    [AX_ACT_GATHER] = "gather",
    [AX_ACT_FORWARD] = "forward",
    [AX_ACT_BACKWARD] = "backward",
    [AX_ACT_WEIGHTS] = "weights",
    [AX_ACT_RELEASE] = "release",
    [AX_ACT_END] = "end",
    [AX_ACT_SEND_OUTPUT] = "send output",
    [AX_ACT_RECEIVE_INPUT] = "receive input",
    [AX_ACT_SEND_GRADIENT] = "send gradient",
    [AX_ACT_RECEIVE_GRADIENT] = "receive gradient",
    [AX_ACT_TRAVEL] = "travel",
    [AX_ACT_WAIT] = "wait",
    [AX_ACT_REDUCE] = "reduce",
    [AX_ACT_TIE] = "tie",
    [AX_ACT_NORM] = "norm",
    [AX_ACT_CLIP] = "clip",
    [AX_ACT_UPDATE] = "update",
};

const char *ax_action_name(enum ax_action_kind kind) {
    return names[kind];
}

/* A pass of this stage that has begun: its chunk (of the stage's) and micro-batch. */
struct pass {
    bool open;
    int chunk, microbatch;
};

struct builder {
    struct ax_schedule *s;
    const struct ax_schedule_options *o;
    struct ax_ticks ticks;
    struct pass slots[AX_ARENA_MAX_SLOTS];
    int messages;              /* since they last traveled */
    int inputs, used;          /* received and used: they alternate between two inboxes */
    struct ax_chunk_pass sent; /* whose gradient is in the outbox; chunk −1: none */
    int kept; /* unit that stays unsharded because its backward follows; −1 = none */
};

/* What a stage does in a tick, or chunk −1; stages are counted around. */
static struct ax_chunk_pass in_tick(const struct builder *b, int tick, int stage) {
    return ax_ticks_at(&b->ticks, tick, stage % b->o->pipeline.stages);
}

static bool runs(const struct ax_chunk_pass *a, enum ax_pass_kind kind) {
    return a->chunk >= 0 && a->kind == kind;
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

/* An action of the pass in a slot. */
static enum ax_status put(struct builder *b, enum ax_action_kind kind, int unit, int slot) {
    const struct pass *p = &b->slots[slot];
    return put_action(
        b->s, &(struct ax_action){.kind = kind,
                                  .unit = unit,
                                  .chunk = p->chunk,
                                  .microbatch = p->microbatch,
                                  .slot = slot,
                                  .last = p->microbatch == b->o->pipeline.n_microbatches - 1});
}

/* An action of the step. */
static enum ax_status put_whole(struct builder *b, enum ax_action_kind kind, int unit) {
    return put_action(
        b->s,
        &(struct ax_action){.kind = kind, .unit = unit, .chunk = -1, .microbatch = -1, .slot = -1});
}

static int find_slot(const struct builder *b, bool open, int chunk, int microbatch) {
    int i = 0;
    while (i < b->s->n_slots &&
           (b->slots[i].open != open ||
            (open && (b->slots[i].chunk != chunk || b->slots[i].microbatch != microbatch))))
        i++;
    AX_ASSERT(i < b->s->n_slots);
    return i;
}

/* The slot of this stage's pass; `number` is that of the chunk among all. */
static int slot_of(const struct builder *b, int number, int microbatch) {
    return find_slot(b, true, number / b->o->pipeline.stages, microbatch);
}

/* ---- one pass ---- */

static enum ax_status put_begin(struct builder *b, const struct ax_chunk_pass *a) {
    const int slot = find_slot(b, false, 0, 0);
    b->slots[slot] = (struct pass){true, a->chunk / b->o->pipeline.stages, a->microbatch};
    return put(b, AX_ACT_BEGIN, -1, slot);
}

/* Gathers run one unit ahead, so that compute can hide them. */
static enum ax_status put_forward(struct builder *b, int slot, bool backward_follows) {
    const struct ax_chunk *c = &b->o->chunks.list[b->slots[slot].chunk];
    b->kept = backward_follows ? c->end - 1 : -1;
    AX_TRY(put(b, AX_ACT_GATHER, c->first, slot));
    for (int u = c->first; u < c->end; u++) {
        if (u + 1 < c->end)
            AX_TRY(put(b, AX_ACT_GATHER, u + 1, slot));
        AX_TRY(put(b, AX_ACT_FORWARD, u, slot));
        if (u != b->kept)
            AX_TRY(put(b, AX_ACT_RELEASE, u, slot));
    }
    return AX_OK;
}

static bool is_first(const struct builder *b) {
    return b->o->stage == 0;
}

static bool is_last(const struct builder *b) {
    return b->o->stage == b->o->pipeline.stages - 1;
}

/* True if the last stage's units use unit 0. */
static bool shares(const struct builder *b) {
    return b->o->tied || b->o->predicts;
}

/* True if unit 0 is here only because of them. */
static bool has_copy(const struct builder *b) {
    return shares(b) && is_last(b) && !is_first(b);
}

/* The backwards of the first stage are whole: nobody waits for a half of them. */
static bool halves(const struct builder *b) {
    return ax_pipeline_halves(&b->o->pipeline) && !is_first(b);
}

static enum ax_status put_reduce(struct builder *b, int unit, int slot) {
    const struct ax_chunks *chunks = &b->o->chunks;
    const int end = chunks->list[chunks->n - 1].end, user = end - (b->o->predicts ? 2 : 1);
    AX_TRY(put(b, AX_ACT_REDUCE, unit, slot));
    return has_copy(b) && b->slots[slot].chunk == chunks->n - 1 && unit == user
               ? put(b, AX_ACT_REDUCE, 0, slot)
               : AX_OK;
}

static enum ax_status put_end(struct builder *b, int slot) {
    b->slots[slot].open = false;
    return put(b, AX_ACT_END, -1, slot);
}

static enum ax_status put_backward(struct builder *b, int slot) {
    const struct ax_chunk *c = &b->o->chunks.list[b->slots[slot].chunk];
    if (b->kept != c->end - 1)
        AX_TRY(put(b, AX_ACT_GATHER, c->end - 1, slot));
    for (int u = c->end - 1; u >= c->first; u--) {
        if (u > c->first)
            AX_TRY(put(b, AX_ACT_GATHER, u - 1, slot));
        AX_TRY(put(b, AX_ACT_BACKWARD, u, slot));
        AX_TRY(put(b, AX_ACT_RELEASE, u, slot));
        if (!halves(b))
            AX_TRY(put_reduce(b, u, slot));
    }
    b->kept = -1;
    return halves(b) ? AX_OK : put_end(b, slot);
}

static enum ax_status put_weights(struct builder *b, int slot) {
    const struct ax_chunk *c = &b->o->chunks.list[b->slots[slot].chunk];
    for (int u = c->end - 1; u >= c->first; u--) {
        AX_TRY(put(b, AX_ACT_WEIGHTS, u, slot));
        AX_TRY(put_reduce(b, u, slot));
    }
    return put_end(b, slot);
}

/* ---- between two ticks ---- */

/* A message of a chunk (its number among all), or the wait for it. */
static struct ax_action about(const struct builder *b, enum ax_action_kind kind, int number,
                              int microbatch) {
    return (struct ax_action){.kind = kind,
                              .unit = -1,
                              .chunk = number / b->o->pipeline.stages,
                              .microbatch = microbatch,
                              .slot = -1};
}

static enum ax_status put_message(struct builder *b, enum ax_action_kind kind, int number,
                                  int microbatch) {
    struct ax_action a = about(b, kind, number, microbatch);
    b->messages++;
    if (kind == AX_ACT_RECEIVE_INPUT)
        a.inbox = b->inputs++ % 2;
    else if (kind != AX_ACT_SEND_GRADIENT) /* which is in the outbox: its pass may have ended */
        a.slot = slot_of(b, number, microbatch);
    return put_action(b->s, &a);
}

static enum ax_status put_wait(struct builder *b, enum ax_action_kind message,
                               const struct ax_chunk_pass *of) {
    struct ax_action a = about(b, AX_ACT_WAIT, of->chunk, of->microbatch);
    a.message = message;
    if (message == AX_ACT_RECEIVE_INPUT)
        a.inbox = b->used++ % 2;
    if (message != AX_ACT_SEND_GRADIENT)
        a.slot = slot_of(b, of->chunk, of->microbatch);
    return put_action(b->s, &a);
}

static enum ax_status put_wait_for_outbox(struct builder *b) {
    const struct ax_chunk_pass of = b->sent;
    b->sent.chunk = -1;
    return of.chunk < 0 ? AX_OK : put_wait(b, AX_ACT_SEND_GRADIENT, &of);
}

/* Gradients of the last tick. */
static enum ax_status put_gradients(struct builder *b, int tick) {
    const struct ax_chunk_pass own = in_tick(b, tick - 1, b->o->stage),
                               next = in_tick(b, tick - 1, b->o->stage + 1);
    if (runs(&own, AX_PASS_BACKWARD) && own.chunk > 0) {
        b->sent = own;
        AX_TRY(put_message(b, AX_ACT_SEND_GRADIENT, own.chunk, own.microbatch));
    }
    if (runs(&next, AX_PASS_BACKWARD) && next.chunk > 0)
        AX_TRY(put_message(b, AX_ACT_RECEIVE_GRADIENT, next.chunk - 1, next.microbatch));
    return AX_OK;
}

/* Is the input that a stage uses in a tick sent just before tick `now`? */
static bool is_due(const struct builder *b, int now, int tick, int stage) {
    const struct ax_chunk_pass use = in_tick(b, tick, stage),
                               made = in_tick(b, tick - 1, stage + b->o->pipeline.stages - 1);
    const bool late = runs(&made, AX_PASS_FORWARD) && made.chunk == use.chunk - 1 &&
                      made.microbatch == use.microbatch;
    return runs(&use, AX_PASS_FORWARD) && use.chunk > 0 && now == (late ? tick : tick - 1);
}

/* What is used in this tick and the one after. */
static enum ax_status put_activations(struct builder *b, int now) {
    const int stage = b->o->stage;
    for (int tick = now; tick <= now + 1; tick++) {
        const struct ax_chunk_pass own = in_tick(b, tick, stage),
                                   next = in_tick(b, tick, stage + 1);
        if (is_due(b, now, tick, stage + 1))
            AX_TRY(put_message(b, AX_ACT_SEND_OUTPUT, next.chunk - 1, next.microbatch));
        if (is_due(b, now, tick, stage))
            AX_TRY(put_message(b, AX_ACT_RECEIVE_INPUT, own.chunk, own.microbatch));
    }
    return AX_OK;
}

static enum ax_status put_messages(struct builder *b, int tick) {
    AX_TRY(put_gradients(b, tick));
    AX_TRY(put_activations(b, tick));
    const bool any = b->messages > 0;
    b->messages = 0;
    return any ? put_whole(b, AX_ACT_TRAVEL, -1) : AX_OK;
}

/* For what the pass uses, and memory that it will write. */
static enum ax_status put_waits(struct builder *b, const struct ax_chunk_pass *own) {
    const int last = b->o->chunks.n * b->o->pipeline.stages - 1;
    if (own->kind == AX_PASS_FORWARD && own->chunk > 0)
        return put_wait(b, AX_ACT_RECEIVE_INPUT, own);
    if (own->kind != AX_PASS_BACKWARD)
        return AX_OK;
    if (own->chunk < last) {
        AX_TRY(put_wait(b, AX_ACT_SEND_OUTPUT, own));
        AX_TRY(put_wait(b, AX_ACT_RECEIVE_GRADIENT, own));
    }
    return put_wait_for_outbox(b);
}

/* In the last chunk a pass has what its backward needs as soon as it is forward. */
static bool backward_follows(const struct builder *b, int tick, const struct ax_chunk_pass *a) {
    struct ax_chunk_pass next = {.chunk = -1};
    while (++tick < b->ticks.n && next.chunk < 0)
        next = in_tick(b, tick, b->o->stage);
    return runs(&next, AX_PASS_BACKWARD) && next.chunk == a->chunk &&
           next.microbatch == a->microbatch;
}

static enum ax_status put_pass(struct builder *b, int tick, const struct ax_chunk_pass *a) {
    if (a->kind == AX_PASS_FORWARD)
        AX_TRY(put_begin(b, a));
    AX_TRY(put_waits(b, a));
    /* on the first stage the pass of a second half has ended */
    if (a->kind == AX_PASS_WEIGHTS && !halves(b))
        return AX_OK;
    const int slot = slot_of(b, a->chunk, a->microbatch);
    if (a->kind == AX_PASS_FORWARD)
        return put_forward(b, slot, backward_follows(b, tick, a));
    return a->kind == AX_PASS_BACKWARD ? put_backward(b, slot) : put_weights(b, slot);
}

static enum ax_status put_passes(struct builder *b) {
    for (int tick = 0; tick <= b->ticks.n; tick++) {
        const struct ax_chunk_pass own = in_tick(b, tick, b->o->stage);
        AX_TRY(put_messages(b, tick));
        if (own.chunk >= 0)
            AX_TRY(put_pass(b, tick, &own));
    }
    return put_wait_for_outbox(b);
}

/* ---- the end of a step ---- */

static enum ax_status put_for_units(struct builder *b, enum ax_action_kind kind) {
    for (int c = 0; c < b->o->chunks.n; c++)
        for (int u = b->o->chunks.list[c].first; u < b->o->chunks.list[c].end; u++)
            AX_TRY(put_whole(b, kind, u));
    return AX_OK;
}

static enum ax_status put_updates(struct builder *b) {
    if (shares(b) && is_first(b) != is_last(b))
        AX_TRY(put_whole(b, AX_ACT_TIE, 0));
    AX_TRY(put_for_units(b, AX_ACT_NORM));
    b->s->first_update = b->s->n;
    AX_TRY(put_whole(b, AX_ACT_CLIP, -1));
    if (has_copy(b))
        AX_TRY(put_whole(b, AX_ACT_UPDATE, 0));
    return put_for_units(b, AX_ACT_UPDATE);
}

/* Of each unit's actions of a kind, only the first or the last stays. */
static void thin_out(struct ax_schedule *s, enum ax_action_kind kind, bool first) {
    const int updates = s->first_update;
    int kept = 0;
    for (int i = 0; i < s->n; i++) {
        const struct ax_action *a = &s->actions[i];
        bool more = false;
        const int end = first ? kept : s->n;
        for (int k = first ? 0 : i + 1; k < end && a->kind == kind && !more; k++)
            more = s->actions[k].kind == kind && s->actions[k].unit == a->unit;
        s->first_update -= more && i < updates;
        if (!more)
            s->actions[kept++] = *a;
    }
    s->n = kept;
}

enum ax_status ax_schedule_create(struct ax_schedule *s, const struct ax_schedule_options *o) {
    struct builder b = {.s = s, .o = o, .kept = -1, .sent = {.chunk = -1}};
    enum ax_status st;
    *s = (struct ax_schedule){0};
    AX_TRY(ax_pipeline_slots(&o->pipeline, o->stage, &s->n_slots));
    AX_TRY_GOTO(ax_ticks_create(&b.ticks, &o->pipeline), st, done);
    AX_TRY_GOTO(put_passes(&b), st, done);
    AX_TRY_GOTO(put_updates(&b), st, done);
    if (o->gather_once) {
        thin_out(s, AX_ACT_GATHER, true);
        thin_out(s, AX_ACT_RELEASE, false);
    }
    if (o->reduce_once)
        thin_out(s, AX_ACT_REDUCE, false);
done:
    ax_ticks_free(&b.ticks);
    if (st != AX_OK)
        ax_schedule_free(s);
    return st;
}

void ax_schedule_free(struct ax_schedule *s) {
    ax_free(s->actions);
    *s = (struct ax_schedule){0};
}
