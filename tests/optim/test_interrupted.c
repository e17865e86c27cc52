/* Straight = interrupted: a run that is killed, stopped or loses a save, and then goes on, tells
 * and leaves exactly what the same run tells and leaves in one piece: every line of its metrics,
 * every warning, every checkpoint that is kept, the trained model, the exit code, the error.
 *
 * A method, a mesh or an option that resuming must carry over is one line of `configs`. What may
 * differ is in `forgive`, with the reason. AXTRAIN_SWEEP=1 interrupts at every step, evaluation and
 * call instead of every few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/arch/classifier.h"
#include "optim/losses/kto.h"
#include "optim/losses/preference.h"
#include "optim/losses/reward.h"
#include "tests/run_readout.h"
#include "tests/sweep.h"
#include "tests/train_case.h"

#define MAX_STEPS 64

/* ---- what is made to happen in a step ---- */

/* In which place of the data each step of the straight run was, so that a run that goes on knows
 * which step it is in. Shared with the children. */
static int64_t *places;                  /* [MAX_STEPS], −1 behind the last */
static int64_t (*all_places)[MAX_STEPS]; /* of each configuration, and of one for optimizers */

static struct {
    struct ax_loader *loader;
    bool recording;
    int64_t bad, bad_end; /* steps whose loss is … */
    float value;          /* … this */
    int64_t step;         /* in which a signal comes; 0 = none */
    int sig;
    int evaluations; /* before the one in which it comes; −1 = none */
    uint64_t blocks; /* of memory that the case does not own */
} plan;

static int64_t step_now(void) {
    struct ax_loader_state at;
    int64_t i = 0;
    ax_loader_save(plan.loader, &at);
    const int64_t place = at.epoch * 1000000 + at.index;
    while (i < MAX_STEPS - 1 && places[i] >= 0 && places[i] != place)
        i++;
    AX_ASSERT(plan.recording ? i < MAX_STEPS - 1 : places[i] == place);
    places[i] = place;
    return i + 1;
}

static struct ax_sft_options sft;
static struct ax_objective trained, objective; /* the latter with what is made to happen */

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    AX_TRY(trained.head.token_grad(ctx, p, c));
    if (ax_runtime_planning(p->model->rt) || p->recompute == AX_RECOMPUTE_INFERENCE)
        return AX_OK;
    const int64_t step = step_now();
    if (step == plan.step) {
        plan.step = 0;
        raise(plan.sig);
    }
    if (step >= plan.bad && step < plan.bad_end)
        p->scalars->loss = plan.value;
    return AX_OK;
}

static struct ax_example_source eval_source;

static enum ax_status eval_chunk(void *ctx, int64_t epoch, int64_t chunk,
                                 struct ax_source_place place, struct ax_corpus *out,
                                 struct ax_source_place *next) {
    /* the first time, rows are counted */
    if (chunk == 0 && plan.evaluations >= 0 && plan.evaluations-- == 0)
        raise(plan.sig);
    return eval_source.chunk(ctx, epoch, chunk, place, out, next);
}

/* ---- methods ---- */

static struct ax_preference preference;
static struct ax_kto kto;
static struct ax_reward reward;

static struct ax_objective as_sft(void) {
    return (struct ax_objective){
        .name = "sft",
        .head = {.linear = true, .token_grad = ax_objective_sft.head.token_grad, .ctx = &sft}};
}

static struct ax_objective as_dpo(void) {
    const struct ax_preference_options o = {
        .beta = 0.3, .reference = true, .weight = {[AX_PREFER_SIGMOID] = 1, [AX_PREFER_SFT] = 0.2}};
    return ax_objective_preference(&preference, "dpo", &o);
}

static struct ax_objective as_kto(void) {
    const struct ax_kto_options o = {.beta = 0.3, .desirable_weight = 1, .undesirable_weight = 1.5};
    return ax_objective_kto(&kto, &o);
}

static struct ax_objective as_reward(void) {
    return ax_objective_reward(&reward, 0.05);
}

static struct ax_objective as_prm(void) {
    return ax_objective_prm(&sft);
}

/* ---- configurations ---- */

static struct ax_peft_config lora = {.r = 3, .alpha = 6, .dropout = 0.1, .all_linear = true};

static void set_evaluating(struct train_case *c) {
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c->o.eval.metric = AX_BEST_BY_ACCURACY;
    c->o.eval.greater_is_better = true;
    c->o.eval.keep_best = c->o.eval.load_best = true;
    c->o.save.limit = 2;
}

static void set_epochs(struct train_case *c) {
    c->o.max_steps = 0;
    c->o.epochs = 2.5;
    c->o.eval.when = c->o.save.when = (struct ax_cadence){.when = AX_EACH_EPOCH};
    c->o.save.first_step = true;
}

static void set_one_bad_step(struct train_case *c) {
    c->o.save.when.steps = 1;
    c->o.eval.when = (struct ax_cadence){.when = AX_NEVER};
    plan.bad = 4;
    plan.bad_end = 5;
    plan.value = NAN;
}

static void set_three_bad_steps(struct train_case *c) {
    set_one_bad_step(c);
    plan.bad_end = 7;
}

static void set_spike(struct train_case *c) {
    c->o.max_steps = 22;
    c->o.save.when.steps = 5;
    c->o.eval.when = (struct ax_cadence){.when = AX_NEVER};
    plan.bad = 19;
    plan.bad_end = 20;
    plan.value = 40; /* the sum of a few losses of about ln 97 */
}

static void set_watchdog(struct train_case *c) {
    c->o.save.when.steps = 1;
    c->o.metrics.logging_steps = 2;
    c->o.watchdog = 0.5; /* the loss begins near ln 97 */
    c->o.watchdog_patience = 3;
}

static void set_early_stop(struct train_case *c) {
    c->o.eval.when = c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c->o.eval.greater_is_better = true; /* of the loss: never better after the first */
    c->o.eval.patience = 2;
    c->o.eval.keep_best = true;
    c->o.save.limit = 1;
}

static void set_save_best(struct train_case *c) {
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c->o.save.when = (struct ax_cadence){.when = AX_WHEN_BEST};
}

static void set_lora(struct train_case *c) {
    c->o.step.model.adapter = &lora;
    c->o.step.neftune_alpha = 5;
}

static void set_entropy_weights(struct train_case *c) {
    (void)c;
    sft.entropy_k = 20;
    sft.entropy_alpha = 0.5;
}

/* The others are not in checkpoints. */
static void set_unfrozen(struct train_case *c) {
    static char *names[] = {"^model.layers.1.", "^model.norm"};
    static const struct ax_peft_names unfrozen = {2, names};
    c->o.step.model.unfrozen = &unfrozen;
}

/* Restarts with a save just before, with one in between, and with a best model of either kind. */
static void set_relora(struct train_case *c) {
    set_lora(c);
    c->o.step.relora = (struct ax_relora_options){.interval = 3};
    c->o.save.when.steps = 2;
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    c->o.eval.keep_best = c->o.eval.load_best = true;
    c->o.save.limit = 2;
}

static void set_relora_8bit(struct train_case *c) {
    set_lora(c);
    c->o.step.relora = (struct ax_relora_options){.interval = 4};
    c->o.step.opt.moments = AX_MOMENTS_8BIT;
}

/* Owes an evaluation in the middle of an epoch, at whose end it saves. */
static void set_epochs_and_steps(struct train_case *c) {
    set_epochs(c);
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 3};
}

static void set_plain(struct train_case *c) {
    (void)c;
}

/* Has a reference and a best model, and skips a step. */
static void set_preferences(struct train_case *c) {
    set_evaluating(c);
    c->o.eval.metric = AX_BEST_BY_LOSS;
    c->o.eval.greater_is_better = false;
    plan.bad = 4;
    plan.bad_end = 5;
    plan.value = NAN;
}

static void set_head(struct train_case *c, const struct ax_classifier *head) {
    assert_int_equal(ax_classifier_choose(&c->arch, head), AX_OK);
    c->arch.new_head = false; /* drawn like all of the model */
}

static void set_reward(struct train_case *c) {
    set_head(c, &ax_classifier_reward);
}

static void set_prm(struct train_case *c) {
    set_head(c, &ax_classifier_prm);
}

static const struct config {
    const char *name;
    void (*set)(struct train_case *c);
    enum ax_dtype dtype;
    bool packed;
    bool keeps_best; /* a save that fails changes what is kept, as it should */
    struct ax_objective (*method)(void);
} configs[] = {
    {"packed", set_plain, AX_F32, true, false, as_sft},
    {"bf16, one a row", set_plain, AX_BF16, false, false, as_sft},
    {"best model at the end", set_evaluating, AX_F32, true, true, as_sft},
    {"epochs", set_epochs, AX_F32, true, false, as_sft},
    {"epochs, one a row", set_epochs, AX_F32, false, false, as_sft},
    {"evaluates in steps, saves in epochs", set_epochs_and_steps, AX_F32, true, false, as_sft},
    {"a step skipped", set_one_bad_step, AX_F32, true, false, as_sft},
    {"a step skipped, bf16", set_one_bad_step, AX_BF16, true, false, as_sft},
    {"three bad steps", set_three_bad_steps, AX_F32, true, false, as_sft},
    {"spike", set_spike, AX_F32, true, false, as_sft},
    {"watchdog", set_watchdog, AX_F32, true, false, as_sft},
    {"early stop", set_early_stop, AX_F32, true, true, as_sft},
    {"saves the best", set_save_best, AX_F32, true, true, as_sft},
    {"LoRA", set_lora, AX_BF16, true, false, as_sft},
    {"EAFT", set_entropy_weights, AX_F32, true, false, as_sft},
    {"some layers", set_unfrozen, AX_BF16, true, false, as_sft},
    {"ReLoRA", set_relora, AX_BF16, true, true, as_sft},
    {"ReLoRA, 8-bit moments", set_relora_8bit, AX_BF16, false, false, as_sft},
    {"dpo", set_preferences, AX_F32, true, true, as_dpo},
    {"dpo, LoRA, a pair a row", set_lora, AX_BF16, false, false, as_dpo},
    {"kto", set_epochs_and_steps, AX_F32, true, false, as_kto},
    {"reward model", set_reward, AX_F32, true, false, as_reward},
    {"process reward model", set_prm, AX_BF16, true, false, as_prm},
};
#define N_CONFIGS (sizeof configs / sizeof *configs)

/* Whatever an optimizer keeps, and however the masters are kept. */
static const struct optimizer_case {
    const char *name;
    enum ax_moments moments;
    const char *slots; /* what the manifest has to name, and the masters */
} optimizers[] = {
    {"adamw", AX_MOMENTS_FULL, "exp_avg exp_avg_sq"},
    {"adamw", AX_MOMENTS_BF16, "exp_avg exp_avg_sq"},
    {"adamw", AX_MOMENTS_BF16_NEAREST, "exp_avg exp_avg_sq"},
    {"adamw", AX_MOMENTS_8BIT, "exp_avg exp_avg_sq exp_avg_scale exp_avg_sq_scale"},
    {"sgd", AX_MOMENTS_FULL, "momentum_buffer"},
    {"lion", AX_MOMENTS_FULL, "exp_avg"},
    {"lion", AX_MOMENTS_BF16, "exp_avg"},
    {"adafactor", AX_MOMENTS_FULL, "exp_avg_sq_row exp_avg_sq_col exp_avg_sq"},
    {"muon", AX_MOMENTS_FULL, "momentum_buffer exp_avg exp_avg_sq"},
};
#define N_OPTIMIZERS (sizeof optimizers / sizeof *optimizers)
static const struct optimizer_case *optimizer; /* the one that set_optimizer takes */
static enum ax_masters masters;

static void set_optimizer(struct train_case *c) {
    struct ax_step_options *o = &c->o.step;
    assert_int_equal(ax_optimizer_find(optimizer->name, &o->optimizer, &o->opt), AX_OK);
    o->opt.moments = optimizer->moments;
    o->model.masters = masters;
    o->neftune_alpha = 5;
    if (optimizer->moments == AX_MOMENTS_BF16_NEAREST)
        o->opt.beta2 = 0.99;
    if (o->optimizer == &ax_optimizer_sgd)
        o->opt.momentum = 0.9;
    c->o.eval.when = (struct ax_cadence){.when = AX_NEVER};
}

static void open_config(struct train_case *c, const struct config *config) {
    sft = (struct ax_sft_options){0};
    trained = config->method();
    objective = trained;
    objective.head.token_grad = token_grad;
    plan.blocks = ax_mem_live_blocks();
    if (train_case_open_for(c, config->dtype, config->packed, &objective) != AX_OK)
        fail_msg("%s", ax_error_text());
    plan.bad = plan.bad_end = 0;
    c->o.max_steps = 12;
    c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 3};
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 4};
    c->o.save.resume = AX_RESUME_NEWEST;
    c->o.metrics.logging_steps = 5;
    c->o.metrics.tensorboard = true;
    config->set(c);
    eval_source = c->eval_doc_source;
    c->eval_doc_source.chunk = eval_chunk;
    plan.loader = c->loader;
}

/* ---- lives of a run ---- */

/* What happens in a run's first life. */
struct interruption {
    int64_t step;   /* signal `sig` comes in this step … */
    int evaluation; /* … or in this evaluation, from 1 (before the first step) … */
    int sig;
    const char *fault; /* … or file operations fail */
};

struct life {
    bool killed;
    int code;
    int64_t steps;
    char result[1500]; /* exit code, error, what the command prints */
};

/* Calls of each kind of file operation, counted by the child that ended last. */
static uint64_t *calls; /* [AX_FAULT_OP_COUNT] */

static void write_result(const struct train_case *c, enum ax_status st,
                         const struct ax_train_result *r) {
    char path[160], text[1500];
    for (int op = 0; op < AX_FAULT_OP_COUNT; op++)
        calls[op] = ax_fault_count((enum ax_fault_op)op);
    (void)ax_fault_configure(NULL);
    snprintf(path, sizeof path, "%s/result", c->dir);
    const int n = snprintf(
        text, sizeof text, "%lld\nexit %d, %s%lld of %lld steps, loss %.17g, early %d",
        (long long)r->steps, ax_status_info(st)->exit_code, st == AX_OK ? "" : ax_error_text(),
        (long long)r->steps, (long long)r->total_steps, r->loss, r->stopped_early);
    if (ax_write_file_atomic(path, text, (size_t)n) != AX_OK)
        _exit(98);
}

static struct life live(struct train_case *c, const struct interruption *what) {
    struct life life = {0};
    char path[160], *text;
    size_t n;
    int status;
    plan.step = what ? what->step : 0;
    plan.sig = what ? what->sig : 0;
    plan.evaluations = what && what->evaluation > 0 ? what->evaluation : -1;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct ax_train_result r;
        if (ax_fault_configure(what ? what->fault : NULL) != AX_OK)
            _exit(99);
        const enum ax_status st = train_case_run(c, &r);
        write_result(c, st, &r);
        c->dir[0] = '\0'; /* stays */
        train_case_close(c);
        AX_ASSERT(ax_mem_live_blocks() == plan.blocks);
        _exit(ax_status_info(st)->exit_code);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    life.killed = WIFSIGNALED(status);
    if (life.killed) {
        if (WTERMSIG(status) != SIGKILL)
            fail_msg("signal %d", WTERMSIG(status));
        return life;
    }
    life.code = WEXITSTATUS(status);
    snprintf(path, sizeof path, "%s/result", c->dir);
    assert_int_equal(ax_read_file(path, 1 << 16, &text, &n), AX_OK);
    life.steps = strtoll(text, NULL, 10);
    snprintf(life.result, sizeof life.result, "%s", strchr(text, '\n') + 1);
    ax_free(text);
    assert_int_equal(ax_unlink(path), AX_OK);
    return life;
}

static void read_out(struct run_readout *r, const struct train_case *c, const struct life *last) {
    if (run_readout_open(r, c->out) != AX_OK ||
        run_readout_add(r, "result: %s", last->result) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void drop_checkpoint(struct run_readout *r, int64_t step) {
    char prefix[64];
    snprintf(prefix, sizeof prefix, "checkpoint-%lld/", (long long)step);
    run_readout_drop(r, prefix, "");
}

static bool has_checkpoint(const struct run_readout *r, int64_t step) {
    char prefix[64];
    snprintf(prefix, sizeof prefix, "checkpoint-%lld/", (long long)step);
    for (size_t i = 0; i < r->n; i++)
        if (strncmp(r->lines[i], prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* The one checkpoint before `step` that `one` has and the other does not; 0: none. */
static int64_t evicted(const struct run_readout *one, const struct run_readout *other,
                       int64_t step) {
    for (size_t i = 0; i < one->n; i++) {
        const char *name = one->lines[i];
        const int64_t k =
            strncmp(name, "checkpoint-", 11) == 0 ? strtoll(name + 11, NULL, 10) : INT64_MAX;
        if (k < step && !has_checkpoint(other, k))
            return k;
    }
    return 0;
}

/* What may differ, and why. */
static void forgive(struct run_readout *straight, struct run_readout *other,
                    const struct life *first, bool keeps_best) {
    /* Being asked to stop saves immediately, at a step at which the uninterrupted run may not
     * save; if an evaluation of this step is still pending, the checkpoint says so. */
    if (!first->killed && first->code != 0) {
        char run[80];
        snprintf(run, sizeof run, "checkpoint-%lld/state/manifest.json run",
                 (long long)first->steps);
        if (!has_checkpoint(straight, first->steps) && has_checkpoint(other, first->steps)) {
            drop_checkpoint(straight, evicted(straight, other, first->steps)); /* for its place */
            drop_checkpoint(other, first->steps);
        } else if (keeps_best) { /* before its evaluation: beside what was the best until then */
            const int64_t best = evicted(other, straight, first->steps);
            drop_checkpoint(straight, evicted(straight, other, first->steps));
            drop_checkpoint(other, best);
        }
        run_readout_drop(straight, run, "");
        run_readout_drop(other, run, "");
    }
    /* A checkpoint that could not be written is missing, which a warning says. */
    for (size_t i = 0; i < other->n; i++) {
        const char *lost = strstr(other->lines[i], "was not saved"), *name;
        if (lost && (name = strstr(other->lines[i], "checkpoint-")) != NULL)
            drop_checkpoint(straight, strtoll(name + 11, NULL, 10));
    }
    run_readout_drop(other, "metrics.jsonl: ", "was not saved");
}

/* ---- straight against interrupted ---- */

struct straight {
    const struct config *config; /* NULL: did not run yet */
    struct train_case c;
    struct life life;
    int64_t steps;
    uint64_t calls[AX_FAULT_OP_COUNT];
    int n; /* interrupted runs compared with it */
};

static struct straight straights[N_CONFIGS]; /* run once, for all tests */

static void open_straight(struct straight *s, const struct config *config, int64_t *at) {
    places = at;
    if (s->config != NULL)
        return;
    *s = (struct straight){.config = config};
    memset(places, 0xff, MAX_STEPS * sizeof *places);
    open_config(&s->c, config);
    plan.recording = true;
    s->life = live(&s->c, NULL);
    plan.recording = false;
    s->steps = s->life.steps;
    memcpy(s->calls, calls, sizeof s->calls);
    assert_true(s->steps >= 5);
}

/* Lives until it ends as the straight run does; false: nothing happened in the first life. */
static bool compare(struct straight *s, const struct interruption *what) {
    struct train_case c;
    struct run_readout a, b;
    open_config(&c, s->config);
    const struct life first = live(&c, what);
    struct life last = first;
    for (int lives = 1; strcmp(last.result, s->life.result) != 0 && lives < 3; lives++)
        last = live(&c, NULL);
    read_out(&a, &s->c, &s->life);
    read_out(&b, &c, &last);
    forgive(&a, &b, &first, s->config->keeps_best);
    const char *difference = run_readout_compare(&a, &b);
    if (difference)
        fail_msg("%s: signal %d in step %lld or evaluation %d, fault %s; first life: %s\n%s",
                 s->config->name, what->sig, (long long)what->step, what->evaluation,
                 what->fault ? what->fault : "none", first.killed ? "killed" : first.result,
                 difference);
    run_readout_close(&a);
    run_readout_close(&b);
    train_case_close(&c);
    s->n++;
    return first.killed || strcmp(first.result, s->life.result) != 0;
}

/* `each` on every configuration; `stride` without a sweep, from another place for each of them. */
static void on_every_config(void (*each)(struct straight *s, int first, int stride), int stride,
                            int at_least) {
    int n = 0;
    for (size_t i = 0; i < N_CONFIGS; i++) {
        struct straight *s = &straights[i];
        open_straight(s, &configs[i], all_places[i]);
        s->n = 0;
        each(s, sweeping() ? 1 : 1 + (int)i % stride, sweeping() ? 1 : stride);
        n += s->n;
    }
    print_message("%d runs interrupted\n", n);
    assert_true(n >= at_least);
}

static void in_steps(struct straight *s, int first, int stride, int sig) {
    for (int64_t step = first; step <= s->steps; step += stride)
        compare(s, &(struct interruption){.step = step, .sig = sig});
}

static void kill_in_steps(struct straight *s, int first, int stride) {
    in_steps(s, first, stride, SIGKILL);
}

static void stop_in_steps(struct straight *s, int first, int stride) {
    in_steps(s, first, stride, first % 2 ? SIGTERM : SIGINT);
}

static void stop_in_evaluations(struct straight *s, int first, int stride) {
    for (int k = first; compare(s, &(struct interruption){.evaluation = k, .sig = SIGTERM});
         k += stride)
        ;
}

/* Calls of the saves and of publishing: two of them, others for each configuration, or all. */
static void at_calls(struct straight *s, enum ax_fault_op op, const char *kind) {
    char fault[64];
    const uint64_t n = s->calls[op], stride = sweeping() || n < 2 ? 1 : (n + 1) / 2;
    for (uint64_t k = 1 + (uint64_t)(s - straights) % stride; k <= n; k += stride) {
        snprintf(fault, sizeof fault, "%s:%llu:%s", ax_fault_op_name(op), (unsigned long long)k,
                 kind);
        compare(s, &(struct interruption){.fault = fault});
    }
}

/* Of calls that are rare every other configuration has the renames and the next one the syncs. */
static void kill_in_saves(struct straight *s, int first, int stride) {
    (void)first;
    (void)stride;
    static const enum ax_fault_op rare[] = {AX_FAULT_RENAME, AX_FAULT_FSYNC},
                                  often[] = {AX_FAULT_OPEN, AX_FAULT_WRITE, AX_FAULT_CLOSE,
                                             AX_FAULT_MKDIR, AX_FAULT_UNLINK};
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++)
        if (sweeping() || s->config == configs || ((size_t)(s - straights) + i) % 2 == 0)
            at_calls(s, rare[i], "kill");
    for (size_t i = 0; s->config == configs && i < sizeof often / sizeof *often; i++)
        at_calls(s, often[i], "kill");
}

static void fail_saves(struct straight *s, int first, int stride) {
    (void)first;
    (void)stride;
    if (!s->config->keeps_best)
        at_calls(s, AX_FAULT_FSYNC, "enospc");
}

static void test_killed_in_a_step(void **state) {
    (void)state;
    on_every_config(kill_in_steps, 6, 30);
}

static void test_stopped_in_a_step(void **state) {
    (void)state;
    on_every_config(stop_in_steps, 8, 30);
}

static void test_stopped_in_an_evaluation(void **state) {
    (void)state;
    on_every_config(stop_in_evaluations, 3, 20);
}

/* The checkpoint of the stop is that step's, evaluated or not. */
static void test_a_saved_step_is_not_saved_again(void **state) {
    (void)state;
    open_straight(&straights[0], &configs[0], all_places[0]);
    for (int k = 2, stopped = 0;; k++) { /* the first comes before any step */
        struct train_case c;
        struct stat before, after;
        char path[200];
        open_config(&c, &configs[0]);
        const struct life first = live(&c, &(struct interruption){.evaluation = k, .sig = SIGTERM});
        stopped += first.code != 0;
        snprintf(path, sizeof path, "%s/checkpoint-%lld/state/manifest.json", c.out,
                 (long long)first.steps);
        assert_int_equal(stat(path, &before), 0);
        assert_int_equal(live(&c, NULL).code, 0);
        assert_int_equal(stat(path, &after), 0);
        train_case_close(&c);
        assert_int_equal(before.st_ino, after.st_ino);
        if (first.code == 0) {
            assert_true(stopped > 0);
            return;
        }
    }
}

static void test_killed_in_a_save(void **state) {
    (void)state;
    on_every_config(kill_in_saves, 5, 30);
}

static void test_failed_save(void **state) {
    (void)state;
    on_every_config(fail_saves, 1, 30);
}

static void assert_slot(const struct run_readout *r, const char *slot) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"slot\":\"%s\"", slot);
    for (size_t i = 0; i < r->n; i++)
        if (strstr(r->lines[i], "manifest.json") && strstr(r->lines[i], quoted))
            return;
    fail_msg("%s: no manifest has the slot %s", optimizer->name, slot);
}

static void assert_slots(const struct straight *s) {
    char list[96], *rest = list;
    struct run_readout r;
    read_out(&r, &s->c, &s->life);
    snprintf(list, sizeof list, "master %s%s",
             masters == AX_MASTERS_REMAINDER ? "master_remainder " : "", optimizer->slots);
    for (const char *slot; (slot = strsep(&rest, " ")) != NULL;)
        assert_slot(&r, slot);
    run_readout_close(&r);
}

static void test_every_optimizer_resumes(void **state) {
    (void)state;
    for (size_t i = 0; i < N_OPTIMIZERS; i++) {
        for (int m = AX_MASTERS_ACCUM; m <= AX_MASTERS_STOCHASTIC; m++) {
            struct straight s = {0};
            optimizer = &optimizers[i];
            masters = (enum ax_masters)m;
            const struct config config = {optimizer->name, set_optimizer, AX_BF16,
                                          i % 2 == 0,      false,         as_sft};
            open_straight(&s, &config, all_places[N_CONFIGS]);
            assert_slots(&s);
            compare(&s, &(struct interruption){.step = 8, .sig = SIGKILL});
            train_case_close(&s.c);
        }
    }
}

static int set_up(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    const size_t bytes = (N_CONFIGS + 1) * sizeof *all_places + AX_FAULT_OP_COUNT * sizeof *calls;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all_places = shared;
    calls = (uint64_t *)(all_places + N_CONFIGS + 1);
    return shared == MAP_FAILED;
}

static int close_straights(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CONFIGS; i++)
        if (straights[i].config != NULL)
            train_case_close(&straights[i].c);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_in_a_step),
        cmocka_unit_test(test_stopped_in_a_step),
        cmocka_unit_test(test_stopped_in_an_evaluation),
        cmocka_unit_test(test_a_saved_step_is_not_saved_again),
        cmocka_unit_test(test_killed_in_a_save),
        cmocka_unit_test(test_failed_save),
        cmocka_unit_test(test_every_optimizer_resumes),
    };
    return cmocka_run_group_tests(tests, set_up, close_straights);
}
