/* The schedule generator: one stage's part of the pipeline's clock, with its units and messages. */
#include "parallel/schedule.h"

#include "base/mem.h"
#include "kernels/arena.h"

static const char *const names[AX_ACT_COUNT] = {
    [AX_ACT_BEGIN] = "begin",
    [AX_ACT_GATHER] = "gather",
    [AX_ACT_FORWARD] = "forward",
    [AX_ACT_BACKWARD] = "backward",
    [AX_ACT_RELEASE] = "release",
    [AX_ACT_END] = "end",
    [AX_ACT_SEND_OUTPUT] = "send output",
    [AX_ACT_RECEIVE_INPUT] = "receive input",
    [AX_ACT_SEND_GRADIENT] = "send gradient",
    [AX_ACT_RECEIVE_GRADIENT] = "receive gradient",
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
    struct ax_order order;
    struct pass slots[AX_ARENA_MAX_SLOTS];
    int messages; /* since the last wait */
    int kept;     /* unit that stays unsharded because its backward follows; −1 = none */
};

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

/* True if unit 0 is here only as the head's matrix. */
static bool has_copy(const struct builder *b) {
    return b->o->tied && is_last(b) && !is_first(b);
}

static enum ax_status put_backward(struct builder *b, int slot) {
    const struct ax_chunks *chunks = &b->o->chunks;
    const struct ax_chunk *c = &chunks->list[b->slots[slot].chunk];
    const bool with_copy = has_copy(b) && c == &chunks->list[chunks->n - 1];
    if (b->kept != c->end - 1)
        AX_TRY(put(b, AX_ACT_GATHER, c->end - 1, slot));
    for (int u = c->end - 1; u >= c->first; u--) {
        if (u > c->first)
            AX_TRY(put(b, AX_ACT_GATHER, u - 1, slot));
        AX_TRY(put(b, AX_ACT_BACKWARD, u, slot));
        AX_TRY(put(b, AX_ACT_RELEASE, u, slot));
        AX_TRY(put(b, AX_ACT_REDUCE, u, slot));
        if (u == c->end - 1 && with_copy)
            AX_TRY(put(b, AX_ACT_REDUCE, 0, slot));
    }
    b->kept = -1;
    AX_TRY(put(b, AX_ACT_END, -1, slot));
    b->slots[slot].open = false;
    return AX_OK;
}

/* ---- between two ticks ---- */

static enum ax_status put_message(struct builder *b, enum ax_action_kind kind, int number,
                                  int microbatch) {
    b->messages++;
    /* a gradient is sent after its pass has ended, from the outbox */
    if (kind != AX_ACT_SEND_GRADIENT)
        return put(b, kind, -1, slot_of(b, number, microbatch));
    return put_action(b->s, &(struct ax_action){.kind = kind,
                                                .unit = -1,
                                                .chunk = number / b->o->pipeline.stages,
                                                .microbatch = microbatch,
                                                .slot = -1});
}

/* What the next stage does in a tick. */
static const struct ax_chunk_pass *next_stage(const struct builder *b,
                                              const struct ax_chunk_pass *tick) {
    return &tick[(b->o->stage + 1) % b->o->pipeline.stages];
}

static bool runs(const struct ax_chunk_pass *a, bool backward) {
    return a->chunk >= 0 && a->backward == backward;
}

/* Gradients of the last tick. */
static enum ax_status put_gradients(struct builder *b, const struct ax_chunk_pass *own,
                                    const struct ax_chunk_pass *next) {
    if (runs(own, true) && own->chunk > 0)
        AX_TRY(put_message(b, AX_ACT_SEND_GRADIENT, own->chunk, own->microbatch));
    if (runs(next, true) && next->chunk > 0)
        AX_TRY(put_message(b, AX_ACT_RECEIVE_GRADIENT, next->chunk - 1, next->microbatch));
    return AX_OK;
}

/* What is used in the next one. */
static enum ax_status put_activations(struct builder *b) {
    const struct ax_chunk_pass *own = &b->order.now[b->o->stage],
                               *next = next_stage(b, b->order.now);
    if (runs(own, false))
        AX_TRY(put_begin(b, own));
    if (runs(next, false) && next->chunk > 0)
        AX_TRY(put_message(b, AX_ACT_SEND_OUTPUT, next->chunk - 1, next->microbatch));
    if (runs(own, false) && own->chunk > 0)
        AX_TRY(put_message(b, AX_ACT_RECEIVE_INPUT, own->chunk, own->microbatch));
    return AX_OK;
}

static enum ax_status put_wait(struct builder *b) {
    const bool any = b->messages > 0;
    b->messages = 0;
    return any ? put_whole(b, AX_ACT_WAIT, -1) : AX_OK;
}

/* In the last chunk a pass has what its backward needs as soon as it is forward. */
static bool backward_follows(const struct builder *b, const struct ax_chunk_pass *a) {
    const struct ax_chunk_pass next = ax_order_next(&b->order, b->o->stage);
    return next.backward && next.chunk == a->chunk && next.microbatch == a->microbatch;
}

static enum ax_status put_passes(struct builder *b) {
    struct ax_chunk_pass own_before = {.chunk = -1}, next_before = {.chunk = -1};
    for (bool any = true; any;) {
        any = ax_order_tick(&b->order);
        AX_TRY(put_gradients(b, &own_before, &next_before));
        AX_TRY(put_activations(b));
        AX_TRY(put_wait(b));
        own_before = b->order.now[b->o->stage];
        next_before = *next_stage(b, b->order.now);
        if (own_before.chunk < 0)
            continue;
        const int slot = slot_of(b, own_before.chunk, own_before.microbatch);
        AX_TRY(own_before.backward ? put_backward(b, slot)
                                   : put_forward(b, slot, backward_follows(b, &own_before)));
    }
    return AX_OK;
}

/* ---- the end of a step ---- */

static enum ax_status put_for_units(struct builder *b, enum ax_action_kind kind) {
    for (int c = 0; c < b->o->chunks.n; c++)
        for (int u = b->o->chunks.list[c].first; u < b->o->chunks.list[c].end; u++)
            AX_TRY(put_whole(b, kind, u));
    return AX_OK;
}

static enum ax_status put_updates(struct builder *b) {
    if (b->o->tied && is_first(b) != is_last(b))
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
    struct builder b = {.s = s, .o = o, .kept = -1};
    enum ax_status st;
    *s = (struct ax_schedule){0};
    AX_TRY(ax_pipeline_slots(&o->pipeline, o->stage, &s->n_slots));
    AX_TRY(ax_order_create(&b.order, &o->pipeline));
    AX_ASSERT(o->chunks.n == b.order.chunks);
    AX_TRY_GOTO(put_passes(&b), st, done);
    AX_TRY_GOTO(put_updates(&b), st, done);
    if (o->gather_once) {
        thin_out(s, AX_ACT_GATHER, true);
        thin_out(s, AX_ACT_RELEASE, false);
    }
    if (o->reduce_once)
        thin_out(s, AX_ACT_REDUCE, false);
done:
    ax_order_free(&b.order);
    if (st != AX_OK)
        ax_schedule_free(s);
    return st;
}

void ax_schedule_free(struct ax_schedule *s) {
    ax_free(s->actions);
    *s = (struct ax_schedule){0};
}
