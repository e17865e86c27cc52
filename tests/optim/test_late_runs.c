/* Runs on a device whose results the host reads a step late: it enqueues a step's gradients before
 * it reads the result of the step before; and whatever happens in a step (no finite loss or
 * gradient, a spike, a watchdog that warns or stops), the run tells and leaves what it does on cpu,
 * where the result is read first: every line of its metrics, every warning, every file, the error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>

#include "base/hash/hash.h"
#include "kernels/queue.h"
#include "tests/optim/train_runs.h"
#include "tests/run_readout.h"
#include "tests/tiny.h"

#define PASSES 64 /* of training; two per step */

/* ---- what happens in a step ---- */

/* Passes are known by their labels, in the order of the run on cpu: elsewhere a step may be
 * computed twice. */
static struct {
    bool recording;
    int n;
    uint64_t passes[PASSES];
    int first, last; /* steps that are spoiled */
    bool gradient;   /* an element of it, else the loss … */
    float value;     /* … becomes this */
    int spoiled;     /* how often that was */
    /* what the host does when it enqueues the first pass of this step; 0 = none */
    int step;
    void (*then)(const struct train_case *c);
    int enqueued; /* passes so far */
    const struct train_case *c;
} plan;

/* Its views: labels, scalars, gradient. */
static enum ax_status spoil(struct ax_queue *q, const void *args, void *const *at) {
    const size_t *bytes = args;
    const uint64_t hash = ax_hash64(at[0], *bytes, 1);
    int pass = 0;
    (void)q;
    while (pass < plan.n && plan.passes[pass] != hash)
        pass++;
    if (plan.recording && (pass < plan.n || plan.n == PASSES))
        return ax_error(AX_ERR_FAILED, "pass %d of %d is one of the others", plan.n, PASSES);
    if (pass == plan.n && !plan.recording) /* after the step that ended the run on cpu */
        return AX_OK;
    if (plan.recording)
        plan.passes[plan.n++] = hash;
    const int step = pass / 2 + 1;
    if (pass % 2 == 0 || step < plan.first || step > plan.last)
        return AX_OK;
    struct ax_step_scalars *s = at[1];
    plan.spoiled++;
    if (plan.gradient)
        ((float *)at[2])[3] = plan.value;
    else
        s->loss = plan.value;
    return AX_OK;
}

static void (*tell)(struct ax_queue *q); /* hears of each training pass; or NULL */

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    AX_TRY(ax_objective_sft.head.token_grad(ctx, p, c));
    struct ax_queue *q = p->model->rt->q;
    if (ax_runtime_planning(p->model->rt) || p->recompute == AX_RECOMPUTE_INFERENCE)
        return AX_OK;
    if (tell)
        tell(q);
    if (plan.enqueued++ == 2 * (plan.step - 1))
        plan.then(plan.c);
    const size_t bytes = ax_tensor_bytes(&p->batch->labels);
    const struct ax_view views[] = {ax_view_of(&p->batch->labels, AX_VIEW_READ),
                                    {p->scalars, sizeof *p->scalars, AX_VIEW_UPDATE},
                                    ax_view_of(&c->g_logprob, AX_VIEW_UPDATE)};
    return ax_queue_call(q, spoil, &bytes, sizeof bytes, views, 3);
}

static const struct ax_objective objective = {.name = "sft",
                                              .head = {.linear = true, .token_grad = token_grad}};

/* ---- equal runs ---- */

static char *targets[] = {"q_proj", "down_proj"};
static const struct ax_peft_config lora = {
    .r = 3, .alpha = 6, .dropout = 0.25, .targets = {2, targets}};

static void spoil_steps(int first, int last, float value) {
    plan.first = first;
    plan.last = last;
    plan.value = value;
}

static void set_one(struct train_case *c) {
    (void)c;
    spoil_steps(4, 4, NAN);
}

/* The first is due for an evaluation, the second has just begun when the first is settled. */
static void set_two(struct train_case *c) {
    (void)c;
    spoil_steps(5, 6, INFINITY);
}

static void set_before_save(struct train_case *c) {
    c->o.save.limit = 1;
    spoil_steps(2, 3, NAN);
}

static void set_last(struct train_case *c) {
    c->o.metrics.logging_steps = 3;
    c->o.metrics.tensorboard = true;
    spoil_steps(8, 9, NAN);
}

static void set_three(struct train_case *c) {
    (void)c;
    spoil_steps(4, 6, NAN);
}

static void set_gradient(struct train_case *c) {
    plan.gradient = true;
    c->o.step.max_norm = 0.1;
    spoil_steps(5, 5, -INFINITY);
}

static void set_spike(struct train_case *c) {
    c->o.max_steps = 24;
    spoil_steps(19, 20, 40);
}

/* A loss below the mean is none, and one far above it in the first steps is not known as one. */
static void set_no_spike(struct train_case *c) {
    c->o.max_steps = 22;
    spoil_steps(18, 18, -40);
}

static void set_watchdog(struct train_case *c) {
    c->o.metrics.logging_steps = 2;
    c->o.watchdog = 0.5; /* the loss begins near ln 97 */
    c->o.watchdog_patience = 3;
}

static void set_far_above(struct train_case *c) {
    c->o.watchdog = NAN;
    c->o.watchdog_patience = 3;
    spoil_steps(5, 6, 90);
}

static void set_diverging(struct train_case *c) {
    set_far_above(c);
    spoil_steps(5, 7, 90);
}

static void set_experts(struct train_case *c) {
    ax_arch_free(&c->arch);
    assert_int_equal(tiny_arch(&c->arch, "mixtral", true,
                               ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3"),
                     AX_OK);
    c->o.step.balance_coef = 0.01;
    spoil_steps(4, 4, NAN);
}

static void set_lora(struct train_case *c) {
    c->o.step.model.adapter = &lora;
    c->o.step.lr_groups = ax_lr_groups_loraplus(1e-2, 16, 1e-3);
    c->o.step.neftune_alpha = 5;
    spoil_steps(5, 5, NAN);
}

static void set_relora(struct train_case *c) {
    c->o.step.model.adapter = &lora;
    c->o.step.relora = (struct ax_relora_options){.interval = 2};
    spoil_steps(3, 4, NAN);
}

static void set_stochastic(struct train_case *c) {
    c->o.step.model.dtype = c->o.save.hf.dtype = AX_BF16;
    c->o.step.opt.moments = AX_MOMENTS_8BIT;
    spoil_steps(6, 6, NAN);
}

static void ask_to_stop(const struct train_case *c) {
    (void)c;
    raise(SIGTERM);
}

/* The run is then resumed. */
static void set_stop(struct train_case *c) {
    c->o.save.resume = AX_RESUME_NEWEST;
    c->o.metrics.logging_steps = 3;
    plan.step = 4;
    plan.then = ask_to_stop;
    spoil_steps(4, 4, NAN);
}

static void ask_for_save(const struct train_case *c) {
    assert_int_equal(ax_write_file_atomic(c->o.save.trigger_file, "", 0), AX_OK);
}

static void set_trigger(struct train_case *c) {
    static char path[128];
    snprintf(path, sizeof path, "%s/save", c->dir);
    c->o.save.trigger_file = path;
    c->o.save.trigger_interval = 2;
    plan.step = 3; /* saved after the fourth */
    plan.then = ask_for_save;
}

static void set_early_stop(struct train_case *c) {
    c->o.eval.when = c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c->o.eval.greater_is_better = true; /* of the loss: never better after the first */
    c->o.eval.patience = 2;
    spoil_steps(2, 3, NAN);
}

static void set_best(struct train_case *c) {
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c->o.save.when = (struct ax_cadence){.when = AX_WHEN_BEST};
    c->o.save.first_step = true;
    c->o.epochs = 1.5;
    c->o.max_steps = 0;
}

static struct ax_example_source train_source;

static enum ax_status one_epoch(void *ctx, int64_t epoch, int64_t chunk,
                                struct ax_source_place place, struct ax_corpus *out,
                                struct ax_source_place *next) {
    if (epoch > 0)
        return ax_error(AX_ERR_DATA, "rows.jsonl: lost");
    return train_source.chunk(ctx, epoch, chunk, place, out, next);
}

/* Data that end while a result is pending. */
static void set_lost_data(struct train_case *c) {
    train_source = c->doc_source;
    c->doc_source.chunk = one_epoch;
    c->o.data.countable = false;
    c->o.max_steps = 30;
    c->o.save.when = c->o.eval.when = (struct ax_cadence){.when = AX_NEVER};
    spoil_steps(3, 3, NAN);
}

static const struct config {
    const char *name;
    void (*set)(struct train_case *c);
    int warnings;
} configs[] = {
    {"one bad step", set_one, 1},
    {"two bad steps", set_two, 2},
    {"bad steps before a save", set_before_save, 2},
    {"bad steps at the end", set_last, 3},
    {"three bad steps", set_three, 2},
    {"a bad gradient", set_gradient, 1},
    {"a spike", set_spike, 2},
    {"no spike", set_no_spike, 0},
    {"a watchdog that stops", set_watchdog, 1},
    {"losses far above", set_far_above, 1},
    {"a run that diverges", set_diverging, 1},
    {"experts", set_experts, 1},
    {"LoRA+ with NEFTune", set_lora, 1},
    {"ReLoRA", set_relora, 2},
    {"bf16, 8-bit moments", set_stochastic, 1},
    {"a stop", set_stop, 1},
    {"a save on request", set_trigger, 0},
    {"an early stop", set_early_stop, 2},
    {"the best are saved", set_best, 0},
    {"lost data", set_lost_data, 1},
};

static void open_config(struct train_case *c, const struct config *config) {
    open_case(c, AX_F32, true);
    c->o.step.objective = &objective;
    c->o.max_steps = 9;
    c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 3};
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 5};
    c->o.eval.keep_best = true;
    plan.gradient = false;
    plan.spoiled = plan.step = plan.enqueued = 0;
    plan.c = c;
    spoil_steps(0, -1, 0);
    config->set(c);
}

static int count(const struct run_readout *r, const char *part) {
    int n = 0;
    for (size_t i = 0; i < r->n; i++)
        n += strstr(r->lines[i], part) != NULL;
    return n;
}

static void run_on(struct train_case *c, const char *backend, struct run_readout *out) {
    struct ax_train_result r;
    c->o.runtime.backend = backend;
    plan.recording = strcmp(backend, "cpu") == 0;
    if (plan.recording)
        plan.n = 0;
    enum ax_status st = train_case_run(c, &r);
    const int64_t stopped = st == AX_SAVED_REQUEUE ? r.steps : 0;
    if (st == AX_SAVED_REQUEUE)
        st = train_case_run(c, &r);
    assert_int_equal(run_readout_open(out, c->out), AX_OK);
    assert_int_equal(run_readout_add(out, "exit %d after %lld and %lld steps, loss %.17g: %s",
                                     ax_status_info(st)->exit_code, (long long)stopped,
                                     (long long)r.steps, r.loss,
                                     st == AX_OK ? "" : ax_error_text()),
                     AX_OK);
}

static void what_happens_is_told_as_on_cpu(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        struct train_case near, far;
        struct run_readout a, b;
        open_config(&near, &configs[i]);
        run_on(&near, "cpu", &a);
        const int expected = plan.last - plan.first + 1;
        if (plan.spoiled != expected || count(&a, "\"warning\"") != configs[i].warnings)
            fail_msg("%s: %d steps spoiled, %d warnings", configs[i].name, plan.spoiled,
                     count(&a, "\"warning\""));
        open_config(&far, &configs[i]);
        run_on(&far, "far", &b);
        const char *difference = run_readout_compare(&a, &b);
        if (difference)
            fail_msg("%s: %s", configs[i].name, difference);
        run_readout_close(&a);
        run_readout_close(&b);
        train_case_close(&near);
        train_case_close(&far);
    }
}

/* ---- what the host waits for ---- */

static struct {
    char happened[PASSES]; /* g: a pass was enqueued; r: a step was reported */
    uint64_t waits[PASSES];
    size_t n;
    struct ax_queue *q;
} diary;

static void note(char what) {
    assert_true(diary.n < PASSES - 1);
    diary.waits[diary.n] = diary.q->counters.waits;
    diary.happened[diary.n++] = what;
}

static void hear_pass(struct ax_queue *q) {
    diary.q = q;
    note('g');
}

static void begin_records(void *ctx, int64_t resume_step) {
    (void)ctx;
    (void)resume_step;
}

static void hear_record(void *ctx, const char *json, size_t n) {
    (void)ctx;
    if (memmem(json, n, "grad_norm", 9))
        note('r');
}

static void keep_diary(const char *backend, int steps, double save_every) {
    const struct config nothing = {"nothing happens", set_three, 0};
    struct train_case c;
    struct ax_train_result r;
    memset(&diary, 0, sizeof diary);
    open_config(&c, &nothing);
    spoil_steps(0, -1, 0);
    c.o.max_steps = steps;
    c.o.eval.when = (struct ax_cadence){.when = AX_NEVER};
    c.o.save.when = (struct ax_cadence){save_every > 0 ? AX_EACH_STEPS : AX_NEVER, save_every};
    c.o.metrics.sink = (struct ax_metrics_sink){NULL, begin_records, hear_record};
    c.o.runtime.backend = backend;
    plan.recording = true;
    plan.n = 0;
    tell = hear_pass;
    run_ok(&c, &r);
    tell = NULL;
    train_case_close(&c);
}

/* From a report on, over the update of the next step and the gradients of the one after it, up to
 * the wait for the next result, the host does not wait: one wait from report to report, and that
 * one is after the passes. */
static void the_host_waits_for_the_step_before(void **state) {
    (void)state;
    keep_diary("far", 6, 0);
    assert_string_equal(diary.happened, "ggggrggrggrggrggrr");
    for (size_t i = 1; i < diary.n; i++)
        assert_int_equal(diary.waits[i] - diary.waits[i - 1], diary.happened[i] == 'r');
    keep_diary("far", 6, 2); /* a save wants the result */
    assert_string_equal(diary.happened, "ggggrrggggrrggggrr");
    keep_diary("cpu", 6, 0);
    assert_string_equal(diary.happened, "ggrggrggrggrggrggr");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_happens_is_told_as_on_cpu),
        cmocka_unit_test(the_host_waits_for_the_step_before),
    };
    if (ax_ops_cpu() == NULL) {
        print_message("no cpu backend on this machine\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, quiet, NULL);
}
