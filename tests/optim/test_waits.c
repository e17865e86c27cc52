/* How often the host waits for the device in a step, whatever the step is, and that the device
 * counts its updates as the host does; that a result may be read a step late, and a step whose loss
 * is above a bound be done again. Counted on cpu, where the counter counts calls, whether or not
 * they would sleep, and on a device that does its work late. (Steps with experts on several ranks:
 * tests/model/test_moe_ranks.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/tiny.h"

#define STEPS 5
#define EMPTY 2 /* this step has nothing to train on */

static const int64_t lengths[] = {9, 1, 14, 0};
static char *targets[] = {"q_proj", "down_proj"};
static const struct ax_peft_config lora = {
    .r = 3, .alpha = 6, .dropout = 0.25, .targets = {2, targets}};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

struct waits {
    enum ax_status (*steps)(struct waits *w, struct ax_step *s);
    struct ax_step_result straight[STEPS];
    const char *type, *extra;
    int n_micro;
    bool adapter, groups;
    struct ax_arch arch;
};

/* Fills a step; `empty`: with no token to train on. */
static enum ax_status fill(struct ax_step *s, int64_t step, bool empty) {
    AX_TRY(tiny_fill(s, lengths, (uint64_t)step));
    for (int m = 0; m < s->o.n_microbatches && empty; m++)
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, 0, NULL));
    return AX_OK;
}

static enum ax_status straight(struct waits *w, struct ax_step *s) {
    int64_t updates = 0;
    for (int64_t i = 0; i < STEPS; i++) {
        struct ax_step_result r;
        struct ax_step_scalars now;
        AX_TRY(fill(s, i, i == EMPTY));
        const uint64_t before = s->rt->q->counters.waits;
        (void)usleep(20000); /* what lies between steps is no phase's time */
        const double start = ax_clock_now();
        AX_TRY(ax_step_run(s, 1e-2, &r));
        const double took = ax_clock_now() - start;
        double phases = 0;
        for (int t = 0; t < AX_TIMES; t++)
            phases += r.seconds[t];
        assert_true(phases <= took);
        assert_int_equal(s->rt->q->counters.waits - before, 1);
        AX_TRY(ax_queue_read(s->rt->q, s->scalars, &now, sizeof now, NULL));
        assert_int_equal(now.step, updates + 1); /* the number of this update, skipped or not */
        assert_true(r.skipped == (i == EMPTY) && (r.weight_total > 0) == !r.skipped);
        updates += !r.skipped;
        assert_int_equal(s->count, updates);
        assert_true(r.lr == 1e-2 && r.seconds[AX_TIME_FORWARD] > 0 &&
                    r.seconds[AX_TIME_BACKWARD] > 0 && r.seconds[AX_TIME_OPTIMIZER] > 0);
        w->straight[i] = r;
    }
    return AX_OK;
}

static void expect_equal(const struct ax_step_result *r, const struct ax_step_result *want) {
    assert_memory_equal(&r->loss, &want->loss, sizeof r->loss);
    assert_memory_equal(&r->grad_norm, &want->grad_norm, sizeof r->grad_norm);
    assert_true(r->skipped == want->skipped && r->weight_total == want->weight_total);
    assert_true(r->aux_loss == want->aux_loss && r->lr == want->lr);
}

/* Each result is read when the next step's gradients are enqueued. Between that of one step and
 * that of the next the host does not wait. */
static enum ax_status a_step_late(struct waits *w, struct ax_step *s) {
    struct ax_step_result r;
    int64_t updates = 0;
    for (int64_t i = 0; i <= STEPS; i++) {
        const uint64_t before = s->rt->q->counters.waits;
        AX_TRY(fill(s, i, i == EMPTY));
        if (i < STEPS)
            AX_TRY(ax_step_begin(s));
        assert_int_equal(s->rt->q->counters.waits - before, 0);
        if (i > 0) {
            AX_TRY(ax_step_answer(s, &r));
            assert_int_equal(s->rt->q->counters.waits - before, 1);
            expect_equal(&r, &w->straight[i - 1]);
            updates += !r.skipped;
            assert_int_equal(s->count, updates);
        }
        if (i > 0 && r.skipped && i < STEPS) { /* as its begin knew nothing of that */
            ax_step_drop(s);
            AX_TRY(ax_step_begin(s));
        }
        if (i < STEPS)
            AX_TRY(ax_step_finish(s, 1e-2, INFINITY));
        assert_int_equal(s->rt->q->counters.waits - before, i > 0);
    }
    return AX_OK;
}

/* Every step is held back at first, though the next one has begun, and then done again. */
static enum ax_status held(struct waits *w, struct ax_step *s) {
    for (int64_t i = 0; i < STEPS; i++) {
        struct ax_step_result r;
        const int64_t updates = s->count;
        AX_TRY(fill(s, i, i == EMPTY));
        AX_TRY(ax_step_begin(s));
        AX_TRY(ax_step_finish(s, 1e-2, nextafter(w->straight[i].loss, -INFINITY)));
        if (i % 2 == 0) {
            AX_TRY(fill(s, i + 1, false));
            AX_TRY(ax_step_begin(s));
        }
        AX_TRY(ax_step_answer(s, &r));
        assert_true(r.skipped && r.loss == w->straight[i].loss);
        assert_int_equal(s->count, updates);
        ax_step_drop(s);
        AX_TRY(fill(s, i, i == EMPTY));
        AX_TRY(ax_step_begin(s));
        if (i == STEPS - 1) { /* a bound that is not exceeded */
            AX_TRY(ax_step_finish(s, 1e-2, w->straight[i].loss));
            AX_TRY(ax_step_answer(s, &r));
        } else {
            AX_TRY(ax_step_decide(s, &r));
            AX_TRY(ax_step_update(s, 1e-2, &r));
        }
        expect_equal(&r, &w->straight[i]);
        assert_int_equal(s->count, updates + !r.skipped);
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct waits *w = ctx;
    struct ax_step s;
    struct ax_step_result r;
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_SELECTIVE, w->n_micro, lengths);
    o.model.adapter = w->adapter ? &lora : NULL;
    if (w->groups)
        o.lr_groups = ax_lr_groups_loraplus(2e-4, 16, 2.5e-5);
    AX_TRY(ax_step_create(&s, rt, &w->arch, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 8), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, 8), st, done);
    AX_TRY_GOTO(fill(&s, 0, false), st, done);
    if (ax_runtime_planning(rt))
        AX_TRY_GOTO(ax_step_run(&s, 1e-2, &r), st, done);
    else
        AX_TRY_GOTO(w->steps(w, &s), st, done);
done:
    ax_step_free(&s);
    return st;
}

static struct waits cases[] = {
    {.type = "llama", .extra = "", .n_micro = 1},
    {.type = "llama", .extra = "", .n_micro = 3},
    {.type = "qwen2", .extra = "", .n_micro = 2},
    {.type = "llama", .extra = "", .n_micro = 2, .adapter = true},
    {.type = "llama", .extra = "", .n_micro = 1, .adapter = true, .groups = true},
    {.type = "mixtral",
     .extra = ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3",
     .n_micro = 2},
};

static void run_cases(enum ax_status (*steps)(struct waits *w, struct ax_step *s)) {
    static const char *const backends[] = {"cpu", "far"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        must(tiny_arch(&cases[i].arch, cases[i].type, false, cases[i].extra));
        cases[i].steps = steps;
        for (int b = 0; b < 2; b++) {
            const struct ax_runtime_options ro = {.backend = backends[b], .threads = 1};
            must(ax_runtime_run(&ro, body, &cases[i], NULL));
        }
        ax_arch_free(&cases[i].arch);
    }
}

static void a_step_waits_once(void **state) {
    (void)state;
    run_cases(straight);
}

static void a_result_may_be_read_late(void **state) {
    (void)state;
    run_cases(a_step_late);
}

static void a_held_step_is_done_again(void **state) {
    (void)state;
    run_cases(held);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_once), /* first: the others compare with its results */
        cmocka_unit_test(a_result_may_be_read_late),
        cmocka_unit_test(a_held_step_is_done_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
