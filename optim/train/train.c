/* The training loop: sequences, a step, its report, evaluation, saves. */
#include "optim/train/train.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/stop.h"
#include "optim/plan/peak.h"
#include "parallel/fabric/flight.h"
#include "optim/train/run.h"

/* ---- evaluation ---- */

static bool is_better(const struct ax_train *t, double now, double before) {
    return t->o->eval.greater_is_better ? now > before : now < before;
}

/* Evaluates, and decides whether this is the best evaluation so far and whether to stop early. */
static enum ax_status judge_evaluation(struct ax_train *t, double *value, bool *best) {
    AX_TRY(ax_train_evaluate(t, value));
    *best = false;
    if (t->pending_eval)
        return AX_OK;
    *best = isfinite(*value) && (t->best_step == 0 || is_better(t, *value, t->best));
    if (*best) {
        t->best = *value;
        t->best_step = t->out->best_step = t->done;
    }
    t->worse = *best ? 0 : t->worse + 1;
    t->stop_early = t->o->eval.patience > 0 && t->worse >= t->o->eval.patience;
    return AX_OK;
}

static bool is_cadence_due(const struct ax_cadence *c, int64_t every, int64_t step,
                           bool epoch_end) {
    return c->when == AX_EACH_EPOCH ? epoch_end : every > 0 && step % every == 0;
}

static bool evaluates_after(const struct ax_train *t, int64_t step, bool epoch_end) {
    const struct ax_train_options *o = t->o;
    return o->data.eval && o->eval.when.when != AX_NEVER &&
           (step == t->schedule.total ||
            is_cadence_due(&o->eval.when, t->schedule.eval_every, step, epoch_end));
}

static bool saves_after(const struct ax_train *t, int64_t step, bool epoch_end) {
    return is_cadence_due(&t->o->save.when, t->schedule.save_every, step, epoch_end);
}

/* Removes the trigger file that requested this save, if one did. */
static bool take_trigger(const struct ax_train *t) {
    if (t->vote.trigger && ax_train_is_main(t) && ax_unlink(t->o->save.trigger_file) != AX_OK) {
        ax_log_warn("%s", ax_error_text());
        ax_error_clear();
    }
    return t->vote.trigger;
}

static bool wants_save(const struct ax_train *t, bool best) {
    const struct ax_train_save *s = &t->o->save;
    if (saves_after(t, t->done, t->epoch_ended) || take_trigger(t))
        return true;
    if ((s->first_step && t->done == 1) || (s->when.when == AX_WHEN_BEST && best))
        return true;
    const bool end = t->done == t->schedule.total || t->stop_early;
    return end && s->when.when != AX_NEVER && s->when.when != AX_WHEN_BEST;
}

/* Evaluates and saves if due. The model kept at the end is the best of those saved. If a stop
 * request interrupts the evaluation, it is pending: the resumed run calls this again for the saved
 * step. */
static enum ax_status after_step(struct ax_train *t) {
    const bool last = t->done == t->schedule.total;
    const bool eval = evaluates_after(t, t->done, t->epoch_ended);
    double value = 0;
    bool best = false;
    if (eval)
        AX_TRY(judge_evaluation(t, &value, &best));
    if (t->pending_eval || !wants_save(t, best))
        return AX_OK;
    AX_TRY(ax_train_save_poll(t, AX_SAVE_WAIT));
    t->kept_before = t->kept;
    if (eval && isfinite(value) && (t->kept.step == 0 || is_better(t, value, t->kept.value)))
        t->kept = (struct ax_train_kept){t->done, value};
    return t->saved == t->done ? AX_OK : ax_train_save_start(t, last || t->stop_early);
}

/* ---- a step ---- */

/* All ranks measure at the same time, each with its share of the CPUs; the peak is their sum. */
static enum ax_status measure_peak(struct ax_train *t) {
    struct ax_peak peak = {0};
    char text[96], ranks[32] = "";
    struct ax_runtime_options o = t->runtime;
    o.threads = t->rt->q->threads;
    enum ax_status st = t->o->measure_peak(&o, &peak);
    if (st == AX_ERR_NOMEM) { /* the plan has no memory for it: then there is no MFU */
        ax_error_clear();
        peak.flops = 0;
        st = AX_OK;
    }
    AX_TRY(st);
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_SUM, &peak.flops, 1));
    ax_metrics_set_peak(t->metrics, peak.flops);
    if (peak.flops == 0)
        return AX_OK;
    if (t->rt->mesh.world > 1)
        snprintf(ranks, sizeof ranks, " on %d ranks", t->rt->mesh.world);
    ax_metrics_event(t->metrics, AX_EVENT_PEAK, t->done, "%s%s, for MFU and HFU",
                     ax_peak_text(&peak, text, sizeof text), ranks);
    return AX_OK;
}

/* True if the result of the step that was enqueued last is needed before the next one. */
static bool needs_result(const struct ax_train *t, bool first) {
    const struct ax_train_options *o = t->o;
    const int64_t step = t->done + 1, restarts = o->step.relora.interval;
    const bool epoch_end = t->late.epoch_end;
    if (!t->late.pending)
        return false;
    return step == t->schedule.total || evaluates_after(t, step, epoch_end) ||
           saves_after(t, step, epoch_end) || t->vote.trigger ||
           (first && (o->save.first_step || o->measure_peak)) ||
           (restarts > 0 && step % restarts == 0);
}

/* Saves the current step, unless it is saved already, and reports the stop. */
static enum ax_status stop_run(struct ax_train *t, enum ax_stop why) {
    AX_TRY(ax_train_timeline_end(t, true));
    AX_TRY(ax_train_save_poll(t, AX_SAVE_WAIT));
    if (t->saved < t->done) {
        AX_TRY(ax_train_save_start(t, true));
        AX_TRY(ax_train_save_poll(t, AX_SAVE_LAST));
    }
    const enum ax_resume resume = t->o->save.resume;
    const bool same = resume == AX_RESUME_NEWEST || resume == AX_RESUME_NEWEST_GOOD;
    const char *asked = why == AX_STOP_INTERRUPT ? "interrupted" : "asked to stop";
    ax_metrics_event(t->metrics, AX_EVENT_STOPPED, t->done, "%s", asked);
    return ax_error(why == AX_STOP_INTERRUPT ? AX_INTERRUPTED : AX_SAVED_REQUEUE,
                    "%s after step %lld of %lld%s", asked, (long long)t->done,
                    (long long)t->schedule.total,
                    t->done == 0 ? "; nothing to save yet"
                    : same       ? ", saved; run the same command to resume"
                                 : ", saved; resume with resume_from_checkpoint: auto");
}

static enum ax_status run_steps(struct ax_train *t) {
    AX_TRY(ax_train_take_vote(t, false));
    for (bool first = true; t->pending_eval || (t->done < t->schedule.total && !t->stop_early);
         first = false) {
        if (t->vote.stop != AX_STOP_NONE) {
            AX_TRY(ax_train_settle(t));
            return stop_run(t, t->vote.stop);
        }
        const int64_t before = t->done;
        AX_TRY(ax_train_timeline_begin(t));
        AX_TRY(ax_train_step(t));
        AX_TRY(ax_train_timeline_end(t, false));
        AX_TRY(ax_train_take_vote(t, true));
        if (t->done == before && !t->late.pending)
            continue;
        if (needs_result(t, first))
            AX_TRY(ax_train_settle(t));
        if (first && t->o->measure_peak)
            AX_TRY(measure_peak(t));
        AX_TRY(ax_train_save_poll(t, AX_SAVE_LOOK));
        if (!t->late.pending)
            AX_TRY(after_step(t));
        if (t->pending_eval || t->saved == t->done || t->saving == t->done)
            AX_TRY(ax_train_take_vote(t, false)); /* time has passed */
    }
    AX_TRY(ax_train_timeline_end(t, true));
    AX_TRY(ax_train_save_poll(t, AX_SAVE_LAST));
    t->out->stopped_early = t->stop_early;
    ax_train_watch_end(t);
    AX_TRY(ax_train_publish(t));
    if (t->stop_early) /* after the model is written: a run killed earlier resumes here */
        ax_metrics_event(t->metrics, AX_EVENT_STOPPED, t->done,
                         "early: no better evaluation in %lld", (long long)t->worse);
    ax_metrics_event(t->metrics, AX_EVENT_FINISHED, t->done, "%s", t->o->save.output_dir);
    AX_TRY(ax_train_watch_trained(t));
    return ax_train_worth_end(t);
}

/* ---- the run ---- */

static enum ax_status open_metrics(struct ax_train *t) {
    struct ax_metrics_options mo = t->o->metrics;
    const int64_t doc = (int64_t)t->schedule.doc_tokens;
    mo.total_steps = t->schedule.total;
    mo.logging_steps = t->schedule.logging_steps;
    mo.resume_step = t->done;
    mo.window = t->window;
    mo.flops_per_token = ax_step_flops_per_token(&t->step, doc > 0 ? doc : t->o->data.doc_tokens);
    mo.devices = t->rt->mesh.world;
    mo.measures = t->o->step.objective->measures;
    mo.completions = ax_train_has_rollout(t->o);
    return ax_metrics_open(&t->metrics, t->o->save.output_dir, &mo);
}

static void before_update(void *ctx, int unit) {
    ax_saver_before_update(ctx, unit);
}

struct run {
    struct ax_train *t;
    struct ax_step_options so;
    const char *resume_from; /* NULL: from the start */
};

static enum ax_status begin_run(struct ax_train *t, const char *resume_from) {
    const struct ax_train_options *o = t->o;
    AX_TRY(ax_train_sequences_create(&t->sequences, &t->step));
    if (ax_queue_is_late(t->rt->q))
        AX_TRY(ax_train_sequences_create(&t->late.sequences, &t->step));
    t->sequences.references = t->late.sequences.references = &t->refs.logprobs;
    AX_TRY(ax_train_save_create(t));
    t->step.before_update = before_update;
    t->step.before_update_ctx = &t->saver;
    AX_TRY(ax_train_load(t, resume_from));
    t->out->resumed_from = t->done;
    if (ax_train_is_main(t))
        AX_TRY(open_metrics(t));
    const bool evaluates = o->data.eval && o->eval.when.when != AX_NEVER;
    ax_metrics_event(t->metrics, AX_EVENT_STARTED, t->done,
                     "first forward %.2f s after the command", ax_clock_since_start());
    double value; /* of the base model, which is never the best */
    if (t->done > 0)
        ax_metrics_event(t->metrics, AX_EVENT_RESUMED, t->done, "%s", resume_from);
    if (t->pending_eval)
        return after_step(t);
    if (!evaluates || t->done > 0)
        return AX_OK;
    ax_log_info("evaluating before the first step");
    return ax_train_evaluate(t, &value);
}

static enum ax_status run_on(struct ax_runtime *rt, void *ctx) {
    struct run *run = ctx;
    struct ax_train *t = run->t;
    if (ax_runtime_planning(rt))
        return ax_train_plan_once(rt, t->o, &run->so);
    t->rt = rt;
    ax_arena_populate(&rt->arena); /* while weights are read */
    AX_TRY(ax_step_create(&t->step, rt, t->o->arch, &run->so));
    const double start = ax_clock_now();
    enum ax_status st = ax_train_value_create(t);
    if (st == AX_OK)
        st = ax_train_rollout_create(t);
    if (st == AX_OK)
        st = begin_run(t, run->resume_from);
    if (st == AX_OK)
        st = run_steps(t);
    t->out->train_seconds = ax_clock_now() - start;
    t->out->save_waited = t->saver.waited;
    struct ax_error_record first;
    ax_error_save(&first, st);                        /* later errors must not replace it */
    if (ax_train_save_poll(t, AX_SAVE_WAIT) != AX_OK) /* in flight when the error occurred */
        ax_log_warn("%s", ax_error_text());
    ax_train_save_free(t);
    ax_metrics_close(t->metrics);
    ax_train_sequences_free(&t->sequences);
    ax_train_sequences_free(&t->late.sequences);
    ax_train_references_free(&t->refs);
    ax_timeline_free(&t->timeline.spans);
    ax_train_value_free(t);
    ax_train_rollout_free(t);
    ax_step_free(&t->step);
    return ax_error_restore(&first);
}

static enum ax_status prepare_run(struct ax_train *t, struct run *run, char **resume) {
    AX_TRY(ax_train_ranks_open(t));
    AX_TRY(ax_train_schedule_make(&t->schedule, t->o, t->mesh.size[AX_ROLE_BATCH]));
    AX_TRY(
        ax_team_agree(&t->team, ax_train_is_main(t) ? ax_train_folder_judge(&t->o->save) : AX_OK));
    AX_TRY(ax_train_choose_memory(t, &run->so));
    return ax_train_folder_open(t, &run->so, resume);
}

/* Where ranks say what they did last if they wait in vain. */
static enum ax_status record_flights(const struct ax_train_options *o) {
    char *dir;
    if (!o->runtime.fabric || !o->save.output_dir)
        return AX_OK;
    AX_TRY(ax_path_join(&dir, o->save.output_dir, "flight"));
    ax_flight_to(dir);
    ax_free(dir);
    return AX_OK;
}

/* Other ranks must not wait for one that has failed before the runtime is open. */
static void tell_ranks(struct ax_fabric *fabric, enum ax_status st) {
    if (fabric && st != AX_OK)
        fabric->ops->fail(fabric, st);
}

enum ax_status ax_train(const struct ax_train_options *o, struct ax_train_result *out) {
    *out = (struct ax_train_result){.loss = NAN};
    struct ax_train t = {.o = o, .out = out, .lock = {.fd = -1}};
    struct run run = {.t = &t, .so = ax_train_step_options(o)};
    char *resume_from = NULL;
    ax_stop_watch();
    enum ax_status st = ax_rollout_create(&t.rollout, &o->rollout);
    if (st == AX_OK)
        st = record_flights(o);
    if (st == AX_OK)
        st = prepare_run(&t, &run, &resume_from);
    run.resume_from = resume_from;
    if (st == AX_OK && !out->nothing_to_do)
        st = ax_runtime_run(&t.runtime, run_on, &run, &out->plan);
    tell_ranks(o->runtime.fabric, st);
    ax_train_ranks_close(&t);
    out->steps = t.done;
    out->total_steps = t.schedule.total;
    out->limit = t.schedule.limit;
    if (out->nothing_to_do) {
        out->resumed_from = t.done;
        out->stopped_early = t.stop_early;
    }
    ax_free(resume_from);
    ax_claim_release(&t.lock);
    ax_train_schedule_free(&t.schedule);
    ax_rollout_free(&t.rollout);
    ax_stop_unwatch();
    return st;
}
