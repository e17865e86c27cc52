/* The action tables of all stages, executed on paper side by side: everything that a unit needs has
 * happened before it runs, every message is awaited by someone, and nobody waits for ever. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "parallel/schedule/schedule.h"

#define MAX_UNITS    14
#define MAX_MICRO    9
#define MAX_STAGES   4
#define MAX_VIRTUAL  3
#define MAX_MESSAGES (4 * MAX_MICRO * MAX_VIRTUAL)

enum { NONE = -1 };

/* What happened to a chunk's pass. */
struct pass {
    bool begun, ended, input, output_grad, output_sent;
    int forwards, backwards, weights; /* units done: in order, in reverse twice */
    struct ticket {
        bool open, sends;
        int peer, number, inbox;
    } tickets[4]; /* of its messages, by their actions */
};

struct message {
    bool gradient;
    int chunk, micro; /* that computed it, of all chunks */
    int group;        /* that it travels in on this side */
};

/* From one stage to another: number i of one list is number i of the other. */
struct link {
    struct message sent[MAX_MESSAGES], expected[MAX_MESSAGES];
    int n_sent, n_expected;
};

struct stage {
    struct ax_schedule s;
    struct ax_chunks chunks;
    int at;                  /* next action */
    int gathered[MAX_UNITS]; /* users that need it whole now */
    struct pass passes[MAX_VIRTUAL][MAX_MICRO];
    bool taken[64]; /* slots */
    int n_taken, most_taken;
    int reduced[MAX_UNITS], updated[MAX_UNITS];
    int clips, ties, normed;
    bool outbox; /* contains a gradient that has not arrived */
    bool inbox[2];
    bool halved;
    int n_open; /* messages started that may not travel yet */
    /* Groups of messages follow each other, as on a device's stream: those done; those that may travel */
    int done, groups;
};

struct paper {
    int units, chunks;
    bool tied;
    struct ax_pipeline pipeline;
    struct stage stage[MAX_STAGES];
    struct link links[MAX_STAGES][MAX_STAGES]; /* from, to */
};

static struct pass *pass_of(struct stage *t, const struct ax_action *a) {
    assert_in_range(a->chunk, 0, t->chunks.n - 1);
    assert_in_range(a->microbatch, 0, MAX_MICRO - 1);
    return &t->passes[a->chunk][a->microbatch];
}

static void check_gathers(struct paper *p, struct stage *t, const struct ax_action *a) {
    t->gathered[a->unit] += a->kind == AX_ACT_GATHER ? 1 : -1;
    assert_true(t->gathered[a->unit] >= 0);
    int blocks = 0;
    for (int u = 1; u < p->units - 1; u++) {
        blocks += t->gathered[u] > 0;
        /* blocks alternate between two buffers */
        for (int v = u + 2; v < p->units - 1; v += 2)
            assert_false(t->gathered[u] > 0 && t->gathered[v] > 0);
    }
    assert_true(blocks <= 2);
}

static void check_compute(struct stage *t, const struct ax_action *a) {
    struct pass *f = pass_of(t, a);
    const struct ax_chunk *c = &t->chunks.list[a->chunk];
    const int n = c->end - c->first;
    assert_true(f->begun && !f->ended && f->input);
    assert_int_equal(t->n_open, 0);
    if (a->kind == AX_ACT_WEIGHTS) { /* which reads no weights */
        assert_true(t->halved && f->backwards == n);
        assert_int_equal(a->unit, c->end - 1 - f->weights++);
        return;
    }
    assert_true(t->gathered[a->unit] > 0);
    if (a->kind == AX_ACT_FORWARD) {
        assert_int_equal(a->unit, c->first + f->forwards);
        f->forwards++;
        return;
    }
    assert_int_equal(f->forwards, n);
    assert_true(f->output_grad && f->output_sent);
    assert_int_equal(a->unit, c->end - 1 - f->backwards);
    f->backwards++;
    if (a->unit == c->first && c->first > 0) {
        assert_false(t->outbox); /* the one before has been sent */
        t->outbox = true;
    }
}

static void check_ends(struct paper *p, struct stage *t, const struct ax_action *a) {
    struct pass *f = pass_of(t, a);
    const struct ax_chunk *c = &t->chunks.list[a->chunk];
    assert_in_range(a->slot, 0, t->s.n_slots - 1);
    const bool begins = a->kind == AX_ACT_BEGIN;
    assert_int_equal(t->taken[a->slot], !begins);
    t->taken[a->slot] = begins;
    t->n_taken += begins ? 1 : -1;
    if (begins) {
        assert_false(f->begun);
        f->begun = true;
        f->input = c->first == 0;
        f->output_grad = f->output_sent = c->end == p->units;
        t->most_taken = t->n_taken > t->most_taken ? t->n_taken : t->most_taken;
        return;
    }
    assert_true(f->begun && !f->ended);
    assert_int_equal(f->forwards, c->end - c->first);
    assert_int_equal(f->backwards, c->end - c->first);
    assert_int_equal(f->weights, t->halved ? c->end - c->first : 0);
    f->ended = true;
}

/* Its gradient of this micro-batch is complete, and only this micro-batch is in it. */
static void check_reduce(struct paper *p, struct stage *t, const struct ax_action *a) {
    const int u = a->unit, m = a->microbatch;
    const struct ax_chunk *c = &t->chunks.list[a->chunk];
    const struct pass *f = pass_of(t, a);
    assert_true((t->halved ? f->weights : f->backwards) >= (u < c->first ? 1 : c->end - u));
    assert_int_equal(t->reduced[u]++, m);
    assert_int_equal(a->last, m == p->pipeline.n_microbatches - 1);
}

static void check_message(struct paper *p, int at, const struct ax_action *a) {
    struct stage *t = &p->stage[at];
    struct pass *f = pass_of(t, a);
    const struct ax_chunk *c = &t->chunks.list[a->chunk];
    const int stages = p->pipeline.stages, number = a->chunk * stages + at;
    const bool sends = a->kind == AX_ACT_SEND_OUTPUT || a->kind == AX_ACT_SEND_GRADIENT;
    const bool up = a->kind == AX_ACT_SEND_GRADIENT || a->kind == AX_ACT_RECEIVE_INPUT;
    const bool gradient = a->kind == AX_ACT_SEND_GRADIENT || a->kind == AX_ACT_RECEIVE_GRADIENT;
    const int peer = (at + (up ? stages - 1 : 1)) % stages;
    struct ticket *ticket = &f->tickets[a->kind - AX_ACT_SEND_OUTPUT];
    assert_true(up ? number > 0 : number + 1 < stages * p->chunks);
    assert_false(ticket->open);
    *ticket = (struct ticket){true, sends, peer, 0, a->inbox};
    struct message m = {gradient, number, a->microbatch, t->groups};
    if (sends) {
        struct link *l = &p->links[at][peer];
        if (gradient)
            assert_true(t->outbox && f->backwards == c->end - c->first);
        else
            assert_true(f->forwards == c->end - c->first && f->backwards == 0);
        ticket->number = l->n_sent;
        l->sent[l->n_sent++] = m;
    } else {
        struct link *l = &p->links[peer][at];
        m.chunk += gradient ? 1 : -1;
        if (gradient) {
            assert_true(f->begun && f->backwards == 0 && !f->output_grad);
        } else {
            assert_true(!f->input && !t->inbox[a->inbox]);
            t->inbox[a->inbox] = true;
        }
        ticket->number = l->n_expected;
        l->expected[l->n_expected++] = m;
    }
    t->n_open++;
}

/* Both sides have come to the groups that it travels in. */
static bool meets(const struct paper *p, int from, int to, int number) {
    const struct link *l = &p->links[from][to];
    const struct stage *a = &p->stage[from], *b = &p->stage[to];
    return number < l->n_sent && number < l->n_expected && l->sent[number].group <= a->done &&
           l->expected[number].group <= b->done && l->sent[number].group < a->groups &&
           l->expected[number].group < b->groups;
}

static bool has_traveled(const struct paper *p, int at) {
    const int group = p->stage[at].done;
    for (int r = 0; r < p->pipeline.stages; r++) {
        const struct link *out = &p->links[at][r], *in = &p->links[r][at];
        for (int i = 0; i < out->n_sent; i++)
            if (out->sent[i].group == group && !meets(p, at, r, i))
                return false;
        for (int i = 0; i < in->n_expected; i++)
            if (in->expected[i].group == group && !meets(p, r, at, i))
                return false;
    }
    return true;
}

static bool travel(struct paper *p) {
    bool moved = false;
    for (int r = 0; r < p->pipeline.stages; r++)
        for (; p->stage[r].done < p->stage[r].groups && has_traveled(p, r); moved = true)
            p->stage[r].done++;
    return moved;
}

/* False: the message's group is not done. */
static bool has_arrived(struct paper *p, int at, const struct ax_action *a) {
    struct stage *t = &p->stage[at];
    struct pass *f = pass_of(t, a);
    struct ticket *ticket = &f->tickets[a->message - AX_ACT_SEND_OUTPUT];
    const struct link *l =
        ticket->sends ? &p->links[at][ticket->peer] : &p->links[ticket->peer][at];
    const struct message *m =
        ticket->sends ? &l->sent[ticket->number] : &l->expected[ticket->number];
    assert_true(ticket->open);
    assert_int_equal(t->n_open, 0);
    if (m->group >= t->done)
        return false;
    ticket->open = false;
    if (a->message == AX_ACT_SEND_OUTPUT)
        f->output_sent = true;
    if (a->message == AX_ACT_SEND_GRADIENT)
        t->outbox = false;
    if (a->message == AX_ACT_RECEIVE_GRADIENT)
        f->output_grad = true;
    if (a->message == AX_ACT_RECEIVE_INPUT) {
        assert_true(f->begun && a->inbox == ticket->inbox);
        f->input = true;
        t->inbox[a->inbox] = false;
    }
    return true;
}

static void check_update(struct paper *p, struct stage *t, const struct ax_action *a) {
    if (a->kind == AX_ACT_CLIP) {
        for (int u = 0; u < p->units; u++)
            assert_int_equal(t->gathered[u], 0);
        t->clips++;
        return;
    }
    assert_int_equal(t->clips, 1);
    assert_int_equal(t->updated[a->unit]++, 0);
}

/* Runs the stage's next action; false: it waits for another stage. */
static bool step(struct paper *p, int at) {
    struct stage *t = &p->stage[at];
    const struct ax_action *a = &t->s.actions[t->at];
    assert_int_equal(t->at >= t->s.first_update,
                     a->kind == AX_ACT_CLIP || a->kind == AX_ACT_UPDATE);
    switch (a->kind) {
    case AX_ACT_BEGIN:
    case AX_ACT_END:
        check_ends(p, t, a);
        break;
    case AX_ACT_GATHER:
    case AX_ACT_RELEASE:
        check_gathers(p, t, a);
        break;
    case AX_ACT_FORWARD:
    case AX_ACT_BACKWARD:
    case AX_ACT_WEIGHTS:
        check_compute(t, a);
        break;
    case AX_ACT_SEND_OUTPUT:
    case AX_ACT_RECEIVE_INPUT:
    case AX_ACT_SEND_GRADIENT:
    case AX_ACT_RECEIVE_GRADIENT:
        check_message(p, at, a);
        break;
    case AX_ACT_TRAVEL:
        assert_true(t->n_open > 0);
        t->n_open = 0;
        t->groups++;
        break;
    case AX_ACT_WAIT:
        if (!has_arrived(p, at, a))
            return false;
        break;
    case AX_ACT_REDUCE:
        check_reduce(p, t, a);
        break;
    case AX_ACT_TIE:
        assert_true(p->tied && p->pipeline.stages > 1);
        assert_true(at == 0 || at == p->pipeline.stages - 1);
        assert_int_equal(t->reduced[0], p->pipeline.n_microbatches);
        t->ties++;
        break;
    case AX_ACT_NORM:
        assert_true(ax_chunks_have(&t->chunks, a->unit)); /* a tied copy counts on stage 0 only */
        assert_int_equal(t->reduced[a->unit], p->pipeline.n_microbatches);
        t->normed++;
        break;
    case AX_ACT_CLIP:
    case AX_ACT_UPDATE:
        check_update(p, t, a);
        break;
    case AX_ACT_COUNT:
        fail();
    }
    t->at++;
    return true;
}

static void execute(struct paper *p) {
    const int stages = p->pipeline.stages;
    for (bool moved = true; moved;) {
        moved = travel(p);
        for (int r = 0; r < stages; r++)
            while (p->stage[r].at < p->stage[r].s.n && step(p, r))
                moved = true;
    }
    for (int r = 0; r < stages; r++)
        if (p->stage[r].at < p->stage[r].s.n)
            fail_msg("%d units, %d micro-batches: stage %d of %d waits for ever at %s", p->units,
                     p->pipeline.n_microbatches, r, stages,
                     ax_action_name(p->stage[r].s.actions[p->stage[r].at].kind));
}

static void check_links(const struct paper *p) {
    for (int r = 0; r < p->pipeline.stages; r++)
        for (int q = 0; q < p->pipeline.stages; q++) {
            const struct link *l = &p->links[r][q];
            assert_int_equal(l->n_sent, l->n_expected);
            for (int i = 0; i < l->n_sent; i++) {
                assert_int_equal(l->sent[i].gradient, l->expected[i].gradient);
                assert_int_equal(l->sent[i].chunk, l->expected[i].chunk);
                assert_int_equal(l->sent[i].micro, l->expected[i].micro);
            }
        }
}

static void check_end(const struct paper *p, int r) {
    const struct stage *t = &p->stage[r];
    const int stages = p->pipeline.stages;
    const bool last = r == stages - 1;
    int units = 0;
    assert_int_equal(t->ties, stages > 1 && p->tied && (r == 0 || last));
    assert_int_equal(t->clips, 1);
    assert_int_equal(t->n_taken, 0);
    assert_int_equal(t->most_taken, t->s.n_slots); /* planned is what is needed */
    assert_true(!t->outbox && !t->inbox[0] && !t->inbox[1] && t->n_open == 0);
    assert_int_equal(t->done, t->groups);
    for (int u = 0; u < p->units; u++) {
        const bool copy = u == 0 && p->tied && r > 0 && last;
        units += ax_chunks_have(&t->chunks, u);
        assert_int_equal(t->gathered[u], 0);
        assert_int_equal(t->updated[u], ax_chunks_have(&t->chunks, u) || copy);
    }
    assert_int_equal(t->normed, units);
    for (int c = 0; c < t->chunks.n; c++)
        for (int m = 0; m < p->pipeline.n_microbatches; m++)
            for (int k = 0; k < 4; k++)
                assert_true(t->passes[c][m].ended && !t->passes[c][m].tickets[k].open);
}

static void open_paper(struct paper *p) {
    int owners[MAX_UNITS] = {0};
    const int stages = p->pipeline.stages;
    p->chunks = ax_pipeline_chunks(&p->pipeline);
    int bounds[MAX_UNITS + 1];
    double cost[MAX_UNITS];
    for (int u = 0; u < p->units; u++) /* sometimes a stage has nothing but the head */
        cost[u] = u == 0 ? 0.1 : u + 1 < p->units ? 1 : p->tied ? 0.5 : 4;
    assert_int_equal(ax_chunks_split(cost, p->units, stages * p->chunks, bounds), AX_OK);
    for (int r = 0; r < stages; r++) {
        struct stage *t = &p->stage[r];
        t->chunks = ax_chunks_of(bounds, stages, p->chunks, r);
        assert_int_equal(t->chunks.n, p->chunks);
        t->halved = ax_pipeline_halves(&p->pipeline) && r > 0;
        for (int u = 0; u < p->units; u++)
            owners[u] += ax_chunks_have(&t->chunks, u);
        const struct ax_schedule_options o = {
            .pipeline = p->pipeline, .stage = r, .chunks = t->chunks, .tied = p->tied};
        assert_int_equal(ax_schedule_create(&t->s, &o), AX_OK);
    }
    for (int u = 0; u < p->units; u++)
        assert_int_equal(owners[u], 1); /* chunks tile the units */
}

static void close_paper(struct paper *p) {
    for (int r = 0; r < p->pipeline.stages; r++)
        ax_schedule_free(&p->stage[r].s);
}

static int run_paper(int units, struct ax_pipeline pipeline, bool tied) {
    static struct paper p;
    p = (struct paper){.units = units, .pipeline = pipeline, .tied = tied};
    if (ax_pipeline_chunks(&pipeline) * pipeline.stages > units - 2)
        return 0;
    open_paper(&p);
    execute(&p);
    check_links(&p);
    for (int r = 0; r < pipeline.stages; r++)
        check_end(&p, r);
    close_paper(&p);
    return pipeline.stages;
}

static void every_table_can_be_executed(void **state) {
    (void)state;
    int tables = 0;
    const uint64_t live = ax_mem_live_blocks();
    for (int units = 3; units <= MAX_UNITS; units++)
        for (int stages = 1; stages <= MAX_STAGES && stages <= units - 2; stages++)
            for (int micro = 1; micro <= MAX_MICRO; micro++)
                for (int tied = 0; tied < 2; tied++) {
                    struct ax_pipeline p = {.stages = stages, .n_microbatches = micro};
                    for (; ax_pipeline_name(p.kind); p.kind++) {
                        const int most = p.kind == AX_PIPELINE_INTERLEAVED ? MAX_VIRTUAL : 1;
                        for (p.virtual_stages = 1; p.virtual_stages <= most; p.virtual_stages++)
                            tables += run_paper(units, p, tied);
                    }
                }
    assert_int_equal(ax_mem_live_blocks(), live);
    print_message("%d tables\n", tables);
}

/* What each schedule is chosen for. */
static void schedules_keep_and_wait_as_they_say(void **state) {
    (void)state;
    const struct {
        struct ax_pipeline p;
        int slots[4], ticks;
    } cases[] = {
        {{AX_PIPELINE_1F1B, 0, 4, 8}, {4, 3, 2, 1}, 2 * (8 + 3)},
        {{AX_PIPELINE_AFAB, 0, 4, 8}, {8, 8, 8, 8}, 2 * (8 + 3)},
        {{AX_PIPELINE_INTERLEAVED, 0, 4, 8}, {11, 9, 7, 5}, 2 * (2 * 8 + 3)},
        {{AX_PIPELINE_INTERLEAVED, 3, 4, 8}, {15, 13, 11, 9}, 2 * (3 * 8 + 3)},
        {{AX_PIPELINE_INTERLEAVED, 2, 4, 6}, {12, 11, 9, 7}, 2 * (2 * 6 + 3)}, /* one group */
        {{AX_PIPELINE_INTERLEAVED, 2, 4, 9}, {12, 10, 8, 6}, 2 * (2 * 9 + 3)}, /* of 5 and 4 */
        {{AX_PIPELINE_INTERLEAVED, 5, 1, 3}, {1}, 2 * 3},
        {{AX_PIPELINE_AFAB, 0, 1, 3}, {1}, 2 * 3},
        {{AX_PIPELINE_ZERO_BUBBLE, 0, 4, 8}, {4, 4, 4, 4}, 3 * 8 + 3},
        {{AX_PIPELINE_ZERO_BUBBLE, 0, 4, 2}, {2, 2, 2, 2}, 3 * 2 + 5},
        {{AX_PIPELINE_ZERO_BUBBLE, 0, 1, 3}, {1}, 2 * 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_order o;
        int ticks = 0, slots;
        assert_int_equal(ax_order_create(&o, &cases[i].p), AX_OK);
        while (ax_order_tick(&o))
            ticks++;
        ax_order_free(&o);
        assert_int_equal(ticks, cases[i].ticks);
        for (int r = 0; r < cases[i].p.stages; r++) {
            assert_int_equal(ax_pipeline_slots(&cases[i].p, r, &slots), AX_OK);
            assert_int_equal(slots, cases[i].slots[r]);
        }
    }
}

/* Halved backwards leave a third of the idle time, if all three kinds of passes take as long; with as many
 * passes in flight on every stage as on 1f1b's first. */
static void zero_bubble_waits_a_third(void **state) {
    (void)state;
    double cost[8], idle, halved;
    for (int i = 0; i < 8; i++)
        cost[i] = 5;
    for (int stages = 1; stages <= 8; stages++)
        for (int n = stages; n <= 3 * stages; n++) {
            struct ax_pipeline p = {AX_PIPELINE_1F1B, 0, stages, n};
            assert_int_equal(ax_order_idle(&p, cost, &idle), AX_OK);
            p.kind = AX_PIPELINE_ZERO_BUBBLE;
            assert_int_equal(ax_order_idle(&p, cost, &halved), AX_OK);
            assert_true(fabs(idle / (1 - idle) - 3 * halved / (1 - halved)) < 1e-12);
        }
}

/* Any number of micro-batches goes through any number of chunks. */
static void no_order_is_stuck(void **state) {
    (void)state;
    for (int stages = 2; stages <= 8; stages++)
        for (int v = 1; v <= 5; v++)
            for (int micro = 1; micro <= 3 * stages; micro++) {
                const struct ax_pipeline p = {AX_PIPELINE_INTERLEAVED, v, stages, micro};
                struct ax_order o;
                int passes = 0;
                assert_int_equal(ax_order_create(&o, &p), AX_OK);
                while (ax_order_tick(&o))
                    for (int r = 0; r < stages; r++)
                        passes += o.now[r].chunk >= 0;
                ax_order_free(&o);
                assert_int_equal(passes, 2 * stages * v * micro);
            }
}

static void too_many_stashes_are_refused(void **state) {
    (void)state;
    const struct {
        struct ax_pipeline p;
        const char *nearest;
    } cases[] = {
        {{AX_PIPELINE_AFAB, 0, 2, 65}, "Nearest: 64 micro-batches."},
        {{AX_PIPELINE_1F1B, 0, 80, 100}, "Nearest: 64 stages."},
        {{AX_PIPELINE_INTERLEAVED, 8, 8, 64}, "Nearest: 7 virtual stages per rank."},
        {{AX_PIPELINE_ZERO_BUBBLE, 0, 80, 100}, "Nearest: 64 stages."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int slots;
        assert_int_equal(ax_pipeline_slots(&cases[i].p, 0, &slots), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), cases[i].nearest));
    }
}

static const struct ax_schedule_options one_stage = {.pipeline = {.stages = 1, .n_microbatches = 2},
                                                     .chunks = {1, {{0, 5}}}};

/* The next unit is on its way while one computes. */
static void gathers_run_one_ahead(void **state) {
    (void)state;
    struct ax_schedule s;
    assert_int_equal(ax_schedule_create(&s, &one_stage), AX_OK);
    for (int i = 1; i < s.first_update; i++) {
        const struct ax_action *a = &s.actions[i], *before = &s.actions[i - 1];
        const int next = a->kind == AX_ACT_FORWARD ? a->unit + 1 : a->unit - 1;
        if ((a->kind == AX_ACT_FORWARD && next < 5) || (a->kind == AX_ACT_BACKWARD && next >= 0)) {
            assert_int_equal(before->kind, AX_ACT_GATHER);
            assert_int_equal(before->unit, next);
        }
    }
    ax_schedule_free(&s);
}

/* One stage: per micro-batch each unit is gathered for forward and for backward, the last only
 * once, and no message is sent. */
static void one_stage_moves_nothing(void **state) {
    (void)state;
    struct ax_schedule s;
    int count[AX_ACT_COUNT] = {0};
    assert_int_equal(ax_schedule_create(&s, &one_stage), AX_OK);
    for (int i = 0; i < s.n; i++)
        count[s.actions[i].kind]++;
    assert_int_equal(count[AX_ACT_GATHER], 2 * 9);
    assert_int_equal(count[AX_ACT_RELEASE], 2 * 9);
    assert_int_equal(count[AX_ACT_REDUCE], 2 * 5);
    for (enum ax_action_kind a = AX_ACT_SEND_OUTPUT; a <= AX_ACT_WAIT; a++)
        assert_int_equal(count[a], 0);
    assert_int_equal(count[AX_ACT_TIE], 0);
    ax_schedule_free(&s);
}

static void no_memory_is_clean(void **state) {
    (void)state;
    struct ax_schedule s;
    const struct ax_schedule_options o = {.pipeline = {.stages = 1, .n_microbatches = 2},
                                          .chunks = {1, {{0, 30}}}};
    const uint64_t live = ax_mem_live_blocks();
    for (int k = 1; k <= 9;
         k++) { /* the clock and its ticks; over 256 actions need a second block */
        char fault[32];
        snprintf(fault, sizeof fault, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(fault), AX_OK);
        assert_int_equal(ax_schedule_create(&s, &o), AX_ERR_NOMEM);
        assert_null(s.actions);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
}

static void actions_have_names(void **state) {
    (void)state;
    for (enum ax_action_kind a = 0; a < AX_ACT_COUNT; a++) {
        assert_true(strlen(ax_action_name(a)) > 0);
        for (enum ax_action_kind b = 0; b < a; b++)
            assert_string_not_equal(ax_action_name(a), ax_action_name(b));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_can_be_executed),
        cmocka_unit_test(schedules_keep_and_wait_as_they_say),
        cmocka_unit_test(zero_bubble_waits_a_third),
        cmocka_unit_test(no_order_is_stuck),
        cmocka_unit_test(too_many_stashes_are_refused),
        cmocka_unit_test(gathers_run_one_ahead),
        cmocka_unit_test(one_stage_moves_nothing),
        cmocka_unit_test(no_memory_is_clean),
        cmocka_unit_test(actions_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
