/* The action table, executed on paper: everything a unit needs has happened before it runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/mem.h"
#include "parallel/schedule.h"

#define MAX_UNITS 9
#define MAX_MICRO 5

struct paper {
    int units, micro;
    bool forward_only;
    int gathered[MAX_UNITS];  /* users that need it whole now */
    int forwards[MAX_MICRO];  /* units done; they run in order */
    int backwards[MAX_MICRO]; /* units done; they run in reverse */
    bool begun[MAX_MICRO], ended[MAX_MICRO];
    bool slot_taken[MAX_MICRO];
    int reduced[MAX_UNITS], updated[MAX_UNITS];
    int clips, whole_most;
    int count[AX_ACT_COUNT];
};

static void check_gathers(struct paper *p, const struct ax_action *a) {
    p->gathered[a->unit] += a->kind == AX_ACT_GATHER ? 1 : -1;
    assert_true(p->gathered[a->unit] >= 0);
    int whole = 0;
    for (int u = 0; u < p->units; u++) {
        whole += p->gathered[u] > 0;
    }
    p->whole_most = whole > p->whole_most ? whole : p->whole_most;
}

static void check_compute(struct paper *p, const struct ax_action *a) {
    const int m = a->microbatch;
    assert_true(p->begun[m] && !p->ended[m] && p->slot_taken[a->slot]);
    assert_true(p->gathered[a->unit] > 0);
    assert_int_equal(p->reduced[a->unit], 0);
    if (a->kind == AX_ACT_FORWARD) {
        assert_int_equal(a->unit, p->forwards[m]);
        p->forwards[m]++;
    } else {
        assert_int_equal(p->forwards[m], p->units);
        assert_int_equal(a->unit, p->units - 1 - p->backwards[m]);
        p->backwards[m]++;
    }
}

static void check_ends(struct paper *p, const struct ax_action *a) {
    const int m = a->microbatch;
    if (a->kind == AX_ACT_BEGIN) {
        assert_false(p->begun[m] || p->slot_taken[a->slot]);
        p->begun[m] = p->slot_taken[a->slot] = true;
    } else {
        assert_true(p->begun[m] && !p->ended[m] && p->slot_taken[a->slot]);
        assert_int_equal(p->forwards[m], p->units);
        assert_int_equal(p->backwards[m], p->forward_only ? 0 : p->units);
        p->ended[m] = true;
        p->slot_taken[a->slot] = false;
    }
}

/* Gradients of a unit are complete, and its memory is free, when they are reduced. */
static void check_reduce(struct paper *p, int unit) {
    for (int m = 0; m < p->micro; m++) {
        assert_true(p->backwards[m] >= p->units - unit);
    }
    assert_int_equal(p->reduced[unit]++, 0);
}

static void check_update(struct paper *p, const struct ax_action *a) {
    if (a->kind == AX_ACT_CLIP) {
        for (int u = 0; u < p->units; u++) {
            assert_int_equal(p->reduced[u], 1);
            assert_int_equal(p->gathered[u], 0);
        }
        p->clips++;
    } else {
        assert_int_equal(p->clips, 1);
        assert_int_equal(p->updated[a->unit]++, 0);
    }
}

static void execute(struct paper *p, const struct ax_schedule *s) {
    for (int i = 0; i < s->n; i++) {
        const struct ax_action *a = &s->actions[i];
        p->count[a->kind]++;
        assert_in_range(a->slot, 0, s->n_slots - 1);
        assert_int_equal(i >= s->first_update, a->kind == AX_ACT_CLIP || a->kind == AX_ACT_UPDATE);
        switch (a->kind) {
        case AX_ACT_BEGIN:
        case AX_ACT_END:
            check_ends(p, a);
            break;
        case AX_ACT_GATHER:
        case AX_ACT_RELEASE:
            check_gathers(p, a);
            break;
        case AX_ACT_FORWARD:
        case AX_ACT_BACKWARD:
            check_compute(p, a);
            break;
        case AX_ACT_REDUCE:
            check_reduce(p, a->unit);
            break;
        case AX_ACT_CLIP:
        case AX_ACT_UPDATE:
            check_update(p, a);
            break;
        case AX_ACT_COUNT:
            fail();
        }
    }
}

static void check_end(const struct paper *p, const struct ax_schedule *s) {
    const int u = p->units, m = p->micro, train = !p->forward_only;
    for (int i = 0; i < u; i++) {
        assert_int_equal(p->gathered[i], 0);
        assert_int_equal(p->reduced[i], train);
        assert_int_equal(p->updated[i], train);
    }
    for (int i = 0; i < m; i++) {
        assert_true(p->ended[i]);
    }
    assert_int_equal(p->count[AX_ACT_BEGIN], m);
    assert_int_equal(p->count[AX_ACT_END], m);
    assert_int_equal(p->count[AX_ACT_FORWARD], m * u);
    assert_int_equal(p->count[AX_ACT_BACKWARD], train * m * u);
    /* the last unit stays whole from its forward to its backward */
    assert_int_equal(p->count[AX_ACT_GATHER], m * (train ? 2 * u - 1 : u));
    assert_int_equal(p->count[AX_ACT_RELEASE], p->count[AX_ACT_GATHER]);
    assert_int_equal(p->clips, train);
    assert_int_equal(s->n, train ? m * 6 * u + 2 * u + 1 : m * (3 * u + 2));
    assert_int_equal(p->whole_most, u > 1 ? 2 : 1); /* two full buffers are enough */
}

static void every_table_can_be_executed(void **state) {
    (void)state;
    int tables = 0;
    const uint64_t live = ax_mem_live_blocks();
    for (int units = 1; units <= MAX_UNITS; units++) {
        for (int micro = 1; micro <= MAX_MICRO; micro++) {
            for (int forward_only = 0; forward_only < 2; forward_only++) {
                struct ax_schedule s;
                struct paper p = {.units = units, .micro = micro, .forward_only = forward_only};
                assert_int_equal(ax_schedule_create(&s, units, micro, forward_only), AX_OK);
                execute(&p, &s);
                check_end(&p, &s);
                ax_schedule_free(&s);
                tables++;
            }
        }
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    print_message("%d tables\n", tables);
}

/* The next unit is on its way while one computes. */
static void gathers_run_one_ahead(void **state) {
    (void)state;
    struct ax_schedule s;
    assert_int_equal(ax_schedule_create(&s, 5, 2, false), AX_OK);
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

static void no_memory_is_clean(void **state) {
    (void)state;
    struct ax_schedule s;
    const uint64_t live = ax_mem_live_blocks();
    for (int k = 1; k <= 2; k++) { /* 400 actions need a second block */
        assert_int_equal(ax_fault_configure(k == 1 ? "malloc:1:enomem" : "malloc:2:enomem"), AX_OK);
        assert_int_equal(ax_schedule_create(&s, 30, 2, false), AX_ERR_NOMEM);
        assert_null(s.actions);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
}

static void actions_have_names(void **state) {
    (void)state;
    for (enum ax_action_kind a = 0; a < AX_ACT_COUNT; a++) {
        assert_true(strlen(ax_action_name(a)) > 0);
        for (enum ax_action_kind b = 0; b < a; b++) {
            assert_string_not_equal(ax_action_name(a), ax_action_name(b));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_can_be_executed),
        cmocka_unit_test(gathers_run_one_ahead),
        cmocka_unit_test(no_memory_is_clean),
        cmocka_unit_test(actions_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
