/* Evaluations of a run: the loss on the evaluation data or, where the model samples what it trains on,
 * what its completions of the evaluation prompts are worth, by rewards or a teacher. */
#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "optim/train/run.h"

static void show_progress(void *ctx, int64_t rows_done) {
    struct ax_train *t = ctx;
    ax_metrics_doing(t->metrics, "evaluating", rows_done, t->eval_sequences);
}

static bool asked_to_stop(void *ctx) {
    (void)ctx;
    return ax_stop_requested() != AX_STOP_NONE;
}

/* An evaluation can take minutes, so its progress is shown; streams cannot be counted. */
static void count_evaluation(struct ax_train *t) {
    struct ax_loader_count n;
    if (ax_loader_count_epoch(t->o->data.eval, 0, 1, &n) == AX_OK)
        t->eval_sequences = n.sequences;
    ax_error_clear();
}

const char *const ax_best_by_names[AX_BEST_BY_MEASURE] = {[AX_BEST_BY_LOSS] = "loss",
                                                          [AX_BEST_BY_PERPLEXITY] = "perplexity",
                                                          [AX_BEST_BY_ACCURACY] = "accuracy",
                                                          [AX_BEST_BY_REWARD] = "reward"};

const char *ax_train_best_by(const struct ax_train *t) {
    const struct ax_train_eval *e = &t->o->eval;
    return e->metric == AX_BEST_BY_MEASURE ? t->o->step.objective->measures[e->measure]
                                           : ax_best_by_names[e->metric];
}

static double chosen_metric(const struct ax_train *t, const struct ax_eval_result *r) {
    const double values[] = {[AX_BEST_BY_MEASURE] = r->measures[t->o->eval.measure],
                             [AX_BEST_BY_LOSS] = r->loss,
                             [AX_BEST_BY_PERPLEXITY] = r->perplexity,
                             [AX_BEST_BY_ACCURACY] = r->accuracy,
                             [AX_BEST_BY_REWARD] = ax_figures_get(&r->figures, "reward")};
    return values[t->o->eval.metric];
}

static enum ax_status eval_options(struct ax_train *t, struct ax_eval_options *eo) {
    *eo = ax_train_eval_options(t->o);
    eo->progress = show_progress;
    eo->stop = asked_to_stop;
    eo->ctx = t;
    eo->references = &t->refs.logprobs;
    eo->teacher = ax_step_teacher(&t->step);
    eo->remote = eo->distill ? t->o->remote : NULL;
    return ax_train_eval_kl(t, &eo->kl);
}

static enum ax_status evaluate_data(struct ax_train *t, struct ax_eval_result *r) {
    struct ax_eval_options eo;
    AX_TRY(eval_options(t, &eo));
    return ax_evaluate(&t->step.model, t->o->data.eval, &eo, r);
}

/* Samples, and with a teacher finds the loss of what is sampled. */
static enum ax_status evaluate_rollout(struct ax_train *t, struct ax_rollout *rollout,
                                       struct ax_eval_result *r) {
    const struct ax_rollout_models models = ax_train_rollout_models(t);
    struct ax_eval_options eo;
    rollout->progress = (struct ax_reward_progress){t->done, t->schedule.total, t->epoch};
    AX_TRY(ax_rollout_evaluate(rollout, &models, t->o->data.eval, &r->stopped));
    if (!r->stopped && t->o->step.objective->head.distill) {
        AX_TRY(eval_options(t, &eo));
        AX_TRY(ax_train_evaluate_sampled(t, rollout, &eo, r));
    }
    r->figures = rollout->figures;
    if (!r->stopped && rollout->teacher && !t->o->rollout.rewards)
        ax_train_evaluate_taught(rollout, r);
    return AX_OK;
}

static enum ax_status evaluate_completions(struct ax_train *t, struct ax_eval_result *r) {
    struct ax_rollout rollout;
    const double start = ax_clock_now();
    const struct ax_rollout_options o =
        ax_rollout_for_evaluation(&t->o->rollout, t->eval_sequences);
    *r = (struct ax_eval_result){.loss = NAN, .perplexity = NAN, .accuracy = NAN};
    show_progress(t, 0);
    enum ax_status st = ax_rollout_create(&rollout, &o);
    if (st == AX_OK)
        st = evaluate_rollout(t, &rollout, r);
    r->seconds = ax_clock_now() - start;
    ax_rollout_free(&rollout);
    return st;
}

/* ---- answers to prompts, shown after an evaluation ---- */

static enum ax_status put_sample(const struct ax_train *t, int i, const struct ax_sequence *s,
                                 struct ax_buf *prompt, struct ax_buf *answer) {
    const struct ax_samples *o = &t->o->samples;
    AX_TRY(o->text(o->ctx, s->prompt, s->n_prompt, prompt));
    AX_TRY(o->text(o->ctx, s->tokens, s->n_new, answer));
    ax_metrics_sample(t->metrics, t->done, i + 1, prompt, answer);
    return AX_OK;
}

/* Only warns if a sample cannot be shown: training continues. */
static void put_sampled(void *ctx, int i, const struct ax_sequence *s) {
    struct ax_buf prompt = {0}, answer = {0};
    if (put_sample(ctx, i, s, &prompt, &answer) != AX_OK)
        ax_log_warn("sample %d: %s", i + 1, ax_error_text());
    ax_error_clear();
    ax_buf_free(&prompt);
    ax_buf_free(&answer);
}

/* Samples answers to the prompts in the options. */
static enum ax_status show_samples(struct ax_train *t) {
    if (t->o->samples.n == 0)
        return AX_OK;
    ax_metrics_doing(t->metrics, "sampling", 0, 0);
    return ax_samples_run(&t->step.model, &t->o->samples, put_sampled, t);
}

/* ---- tasks ---- */

static enum ax_status run_tasks(struct ax_train *t, struct ax_eval_result *r) {
    const struct ax_tasks *o = &t->o->tasks;
    if (o->lanes == 0 || r->stopped)
        return AX_OK;
    ax_metrics_doing(t->metrics, "evaluating tasks", 0, 0);
    return o->run(o->ctx, &t->step.model, &t->between, &r->figures, &r->stopped);
}

/* ---- an evaluation ---- */

enum ax_status ax_train_evaluate(struct ax_train *t, double *value) {
    struct ax_eval_result r;
    *value = NAN;
    if (!t->out->evaluated)
        count_evaluation(t);
    AX_TRY(ax_train_has_rollout(t->o) ? evaluate_completions(t, &r) : evaluate_data(t, &r));
    AX_TRY(run_tasks(t, &r));
    t->pending_eval = r.stopped;
    if (r.stopped)
        return AX_OK;
    ax_metrics_eval(t->metrics, t->done, t->epoch, &r);
    if (!t->out->evaluated)
        t->out->first_eval = r;
    t->out->last_eval = r;
    t->out->evaluated = true;
    *value = chosen_metric(t, &r);
    return show_samples(t);
}
