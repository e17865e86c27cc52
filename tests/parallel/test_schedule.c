/* The action tables of all stages, executed on paper side by side: everything that a unit needs has
 * happened before it runs, every message is awaited by someone, and nobody waits for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "parallel/schedule.h"

#define MAX_UNITS  9
#define MAX_MICRO  6
#define MAX_STAGES 4

enum { NONE = -1 };

struct stage {
    struct ax_schedule s;
    int first, end, at;       /* units; next action */
    int gathered[MAX_UNITS];  /* users that need it whole now */
    int forwards[MAX_MICRO];  /* units done; they run in order */
    int backwards[MAX_MICRO]; /* units done; they run in reverse */
    bool begun[MAX_MICRO], ended[MAX_MICRO], input[MAX_MICRO], output_grad[MAX_MICRO];
    int slot_owner[MAX_MICRO];
    int reduced[MAX_UNITS], updated[MAX_UNITS];
    int clips, ties;
    int outbox; /* micro-batch whose gradient waits to be sent */
    bool posted;
};

struct paper {
    int units, micro, stages;
    bool forward_only, tied;
    struct stage stage[MAX_STAGES];
};

static void check_gathers(struct paper *p, struct stage *t, const struct ax_action *a) {
    t->gathered[a->unit] += a->kind == AX_ACT_GATHER ? 1 : -1;
    assert_true(t->gathered[a->unit] >= 0);
    int blocks = 0;
    for (int u = 1; u < p->units - 1; u++) {
        blocks += t->gathered[u] > 0;
        /* blocks take turns in two buffers */
        assert_false(u + 2 < p->units - 1 && t->gathered[u] > 0 && t->gathered[u + 2] > 0);
    }
    assert_true(blocks <= 2);
}

static void check_compute(struct stage *t, const struct ax_action *a) {
    const int m = a->microbatch, n = t->end - t->first;
    assert_true(t->begun[m] && !t->ended[m] && t->input[m]);
    assert_int_equal(t->slot_owner[a->slot], m);
    assert_true(t->gathered[a->unit] > 0);
    if (a->kind == AX_ACT_FORWARD) {
        assert_int_equal(a->unit, t->first + t->forwards[m]);
        t->forwards[m]++;
        return;
    }
    assert_int_equal(t->forwards[m], n);
    assert_true(t->output_grad[m]);
    assert_int_equal(a->unit, t->end - 1 - t->backwards[m]);
    t->backwards[m]++;
    if (a->unit == t->first && t->first > 0) {
        assert_int_equal(t->outbox, NONE); /* the one before has been sent */
        t->outbox = m;
    }
}

static void check_ends(struct paper *p, struct stage *t, const struct ax_action *a) {
    const int m = a->microbatch, n = t->end - t->first;
    assert_in_range(a->slot, 0, t->s.n_slots - 1);
    if (a->kind == AX_ACT_BEGIN) {
        assert_false(t->begun[m]);
        assert_int_equal(t->slot_owner[a->slot], NONE);
        t->begun[m] = true;
        t->slot_owner[a->slot] = m;
        t->input[m] = t->first == 0;
        t->output_grad[m] = t->end == p->units;
        return;
    }
    assert_true(t->begun[m] && !t->ended[m]);
    assert_int_equal(t->forwards[m], n);
    assert_int_equal(t->backwards[m], p->forward_only ? 0 : n);
    t->ended[m] = true;
    t->slot_owner[a->slot] = NONE;
}

/* Its gradient of this micro-batch is complete, and only this micro-batch is in it. */
static void check_reduce(struct paper *p, struct stage *t, const struct ax_action *a) {
    const int u = a->unit, m = a->microbatch;
    const bool copy = u < t->first;
    assert_true(t->backwards[m] >= (copy ? 1 : t->end - u));
    assert_int_equal(t->reduced[u]++, m);
    assert_int_equal(a->last, m == p->micro - 1);
}

/* The exchange of stage `r` in which `send` goes to (or `receive` comes from) this one. */
static bool other_side(struct paper *p, int at, const struct ax_action *a) {
    const bool next = a->kind == AX_ACT_NEXT;
    struct stage *t = &p->stage[at], *peer = &p->stage[next ? at + 1 : at - 1];
    const struct ax_action *b = &peer->s.actions[peer->at];
    if (peer->at >= peer->s.n || b->kind != (next ? AX_ACT_PREVIOUS : AX_ACT_NEXT))
        return false;
    if (!peer->posted || b->receive != a->microbatch || b->microbatch != a->receive)
        return false;
    struct stage *down = next ? peer : t, *up = next ? t : peer;
    const int grad = next ? a->receive : a->microbatch;
    const int activation = next ? a->microbatch : a->receive;
    if (activation >= 0) {
        assert_int_equal(up->forwards[activation], up->end - up->first);
        assert_true(down->begun[activation] && !down->input[activation]);
        down->input[activation] = true;
    }
    if (grad >= 0) {
        assert_int_equal(down->outbox, grad);
        down->outbox = NONE;
        assert_false(up->output_grad[grad]);
        up->output_grad[grad] = true;
    }
    return true;
}

static void check_update(struct paper *p, struct stage *t, const struct ax_action *a) {
    const bool copy = a->unit == 0 && t->first > 0;
    if (a->kind == AX_ACT_CLIP) {
        for (int u = t->first; u < t->end; u++) {
            assert_int_equal(t->reduced[u], p->micro);
            assert_int_equal(t->gathered[u], 0);
        }
        t->clips++;
        return;
    }
    assert_int_equal(t->clips, 1);
    assert_true(copy ? p->tied : a->unit >= t->first && a->unit < t->end);
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
        check_compute(t, a);
        break;
    case AX_ACT_NEXT:
    case AX_ACT_PREVIOUS: {
        t->posted = true;
        if (!other_side(p, at, a))
            return false;
        struct stage *peer = &p->stage[a->kind == AX_ACT_NEXT ? at + 1 : at - 1];
        peer->posted = t->posted = false;
        peer->at++;
        break;
    }
    case AX_ACT_REDUCE:
        check_reduce(p, t, a);
        break;
    case AX_ACT_TIE:
        assert_true(p->tied && p->stages > 1 && (at == 0 || at == p->stages - 1));
        assert_int_equal(t->reduced[0], p->micro);
        t->ties++;
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
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < p->stages; r++)
            while (p->stage[r].at < p->stage[r].s.n && step(p, r))
                moved = true;
    }
    for (int r = 0; r < p->stages; r++)
        if (p->stage[r].at < p->stage[r].s.n)
            fail_msg("%d units, %d micro-batches: stage %d of %d waits for ever at %s", p->units,
                     p->micro, r, p->stages,
                     ax_action_name(p->stage[r].s.actions[p->stage[r].at].kind));
}

static void check_end(const struct paper *p, int r) {
    const struct stage *t = &p->stage[r];
    const bool edge = p->stages > 1 && p->tied && (r == 0 || r == p->stages - 1);
    assert_int_equal(t->ties, edge && !p->forward_only);
    assert_int_equal(t->clips, !p->forward_only);
    assert_int_equal(t->outbox, NONE);
    for (int u = 0; u < p->units; u++) {
        const bool copy = u == 0 && p->tied && r > 0 && r == p->stages - 1;
        const bool mine = (u >= t->first && u < t->end) || copy;
        assert_int_equal(t->gathered[u], 0);
        assert_int_equal(t->updated[u], mine && !p->forward_only);
    }
    for (int m = 0; m < p->micro; m++)
        assert_true(t->ended[m]);
}

static void open_paper(struct paper *p) {
    int end = 0;
    for (int r = 0; r < p->stages; r++) {
        struct stage *t = &p->stage[r];
        ax_schedule_stage_units(p->units, p->stages, r, &t->first, &t->end);
        assert_int_equal(t->first, end); /* stages tile the units */
        end = t->end;
        const struct ax_schedule_options o = {t->first, t->end,          r,      p->stages,
                                              p->micro, p->forward_only, p->tied};
        assert_int_equal(ax_schedule_create(&t->s, &o), AX_OK);
        const int in_flight = p->stages - r < p->micro ? p->stages - r : p->micro;
        assert_int_equal(t->s.n_slots, p->forward_only ? 1 : in_flight);
        t->outbox = NONE;
        for (int i = 0; i < MAX_MICRO; i++)
            t->slot_owner[i] = NONE;
    }
    assert_int_equal(end, p->units);
}

static void every_table_can_be_executed(void **state) {
    (void)state;
    int tables = 0;
    const uint64_t live = ax_mem_live_blocks();
    for (int units = 3; units <= MAX_UNITS; units++)
        for (int stages = 1; stages <= MAX_STAGES && stages <= units - 2; stages++)
            for (int micro = 1; micro <= MAX_MICRO; micro++)
                for (int kind = 0; kind < 4; kind++) {
                    static struct paper p;
                    p = (struct paper){.units = units,
                                       .micro = micro,
                                       .stages = stages,
                                       .forward_only = kind & 1,
                                       .tied = kind & 2};
                    open_paper(&p);
                    execute(&p);
                    for (int r = 0; r < stages; r++) {
                        check_end(&p, r);
                        ax_schedule_free(&p.stage[r].s);
                        tables++;
                    }
                }
    assert_int_equal(ax_mem_live_blocks(), live);
    print_message("%d tables\n", tables);
}

static const struct ax_schedule_options one_stage = {
    .end_unit = 5, .n_stages = 1, .n_microbatches = 2};

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
    assert_int_equal(count[AX_ACT_NEXT] + count[AX_ACT_PREVIOUS] + count[AX_ACT_TIE], 0);
    ax_schedule_free(&s);
}

static void no_memory_is_clean(void **state) {
    (void)state;
    struct ax_schedule s;
    const struct ax_schedule_options o = {.end_unit = 30, .n_stages = 1, .n_microbatches = 2};
    const uint64_t live = ax_mem_live_blocks();
    for (int k = 1; k <= 2; k++) { /* over 256 actions need a second block */
        assert_int_equal(ax_fault_configure(k == 1 ? "malloc:1:enomem" : "malloc:2:enomem"), AX_OK);
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
        cmocka_unit_test(every_table_can_be_executed), cmocka_unit_test(gathers_run_one_ahead),
        cmocka_unit_test(one_stage_moves_nothing),     cmocka_unit_test(no_memory_is_clean),
        cmocka_unit_test(actions_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
