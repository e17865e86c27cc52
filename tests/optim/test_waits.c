/* How often the host waits for the device in a step, whatever the step is, and that the device
 * counts its updates as the host does. Counted on cpu, where the counter counts calls, whether or
 * not they would sleep, and on a device that does its work late. (Steps with experts on several ranks: tests/model/test_moe_ranks.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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
    const char *type, *extra;
    int n_micro;
    bool adapter, groups, lisa;
    struct ax_arch arch;
};

/* Fills a step; `empty`: with no token to train on. */
static enum ax_status fill(struct ax_step *s, int64_t step, bool empty) {
    AX_TRY(tiny_fill(s, lengths, (uint64_t)step));
    for (int m = 0; m < s->o.n_microbatches && empty; m++)
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, 0, NULL));
    return AX_OK;
}

static enum ax_status steps(struct ax_step *s) {
    int64_t updates = 0;
    for (int64_t i = 0; i < STEPS; i++) {
        struct ax_step_result r;
        struct ax_step_scalars now;
        AX_TRY(fill(s, i, i == EMPTY));
        const uint64_t before = s->rt->q->counters.waits;
        AX_TRY(ax_step_run(s, 1e-2, &r));
        assert_int_equal(s->rt->q->counters.waits - before, 1);
        AX_TRY(ax_queue_read(s->rt->q, s->scalars, &now, sizeof now, NULL));
        assert_int_equal(now.step, updates + 1); /* the number of this update, skipped or not */
        assert_true(r.skipped == (i == EMPTY) && (r.weight_total > 0) == !r.skipped);
        updates += !r.skipped;
        assert_int_equal(s->count, updates);
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct waits *w = ctx;
    struct ax_step s;
    struct ax_step_result r;
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_SELECTIVE, w->n_micro, lengths);
    o.adapter = w->adapter ? &lora : NULL;
    if (w->groups)
        o.lr_groups = ax_lr_groups_loraplus(2e-4, 16, 2.5e-5);
    if (w->lisa)
        o.lisa = (struct ax_lisa_options){.layers = 1, .interval = 2};
    AX_TRY(ax_step_create(&s, rt, &w->arch, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 8), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, 8), st, done);
    AX_TRY_GOTO(fill(&s, 0, false), st, done);
    if (ax_runtime_planning(rt))
        AX_TRY_GOTO(ax_step_run(&s, 1e-2, &r), st, done);
    else
        AX_TRY_GOTO(steps(&s), st, done);
done:
    ax_step_free(&s);
    return st;
}

static void a_step_waits_once(void **state) {
    (void)state;
    struct waits cases[] = {
        {"llama", "", 1, .lisa = false},
        {"llama", "", 3, .lisa = false},
        {"qwen2", "", 2, .lisa = true},
        {"llama", "", 2, .adapter = true},
        {"llama", "", 1, .adapter = true, .groups = true},
        {"mixtral", ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3", 2, .lisa = false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
        must(tiny_arch(&cases[i].arch, cases[i].type, false, cases[i].extra));
        must(ax_runtime_run(&ro, body, &cases[i], NULL));
        ro.backend = "far";
        must(ax_runtime_run(&ro, body, &cases[i], NULL));
        ax_arch_free(&cases[i].arch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_waits_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
