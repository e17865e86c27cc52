/* The training loop: sequences, a step, its report, evaluation, saves. The whole way of a step is told in
 * optim/step/step.c.
 *
 * Where work is done when a call returns, the host reads the result before the update. Where it is
 * done late, the device decides about the update by itself, and the host reads the result of step N
 * when it has enqueued the gradients of step N + 1: the device is never idle because the host waits.
 * A step with an implausible loss is skipped by the device; then the next one's gradients are
 * dropped, and the step is done again in the first order. So a run reports, warns and writes the
 * same on every device. */
#include "optim/train/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/stop.h"
#include "optim/metrics/trace.h"
#include "optim/plan/peak.h"
#include "optim/train/run.h"

/* ---- a timeline of some steps, of all ranks, on one clock: its zero is when all have reached the first of them ---- */

static bool is_profiled(const struct ax_train *t) {
    const int64_t first = t->o->profile_first;
    return t->o->profile_steps > 0 && !t->timeline.over && t->done >= first &&
           t->done < first + t->o->profile_steps;
}

/* Call before and after each step: records ops and transfers of `profile_steps` steps, and then, or
 * at the run's `last` step, writes output_dir/timeline.json (trace.h), all ranks together. A
 * failure to write is only a warning. */
static enum ax_status begin_timeline(struct ax_train *t) {
    double now = 0;
    if (t->timeline.on || !is_profiled(t))
        return AX_OK;
    if (ax_queue_is_late(t->rt->q)) {
        ax_log_warn("profiler_steps: this device computes after the calls that a timeline times; "
                    "none is written");
        t->timeline.over = true;
        return AX_OK;
    }
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_MAX, &now, 1)); /* all are here */
    t->timeline.zero = ax_clock_now();
    t->timeline.first = t->done;
    t->timeline.on = true;
    t->rt->q->timeline = &t->timeline.spans;
    return AX_OK;
}

static enum ax_status take_spans(void *ctx, int rank, const char *data, int64_t bytes) {
    (void)rank;
    return ax_trace_join(ctx, data, (size_t)bytes);
}

/* On rank 0 the file's text. */
static enum ax_status merge_spans(struct ax_train *t, struct ax_trace *all) {
    struct ax_trace own = {0};
    AX_TRY(ax_trace_begin(all));
    enum ax_status st =
        ax_trace_timeline(&own, t->rt->mesh.rank, &t->timeline.spans, t->timeline.zero);
    st = ax_team_agree(&t->team, st);
    if (st == AX_OK)
        st = ax_team_collect(&t->team, own.text.data, (int64_t)own.text.len, take_spans, all);
    ax_trace_free(&own);
    AX_TRY(st);
    return ax_trace_end(all);
}

static enum ax_status write_timeline(const struct ax_train *t, const struct ax_trace *all) {
    char *path;
    if (!ax_train_is_main(t))
        return AX_OK;
    AX_TRY(ax_path_join(&path, t->o->save.output_dir, "timeline.json"));
    if (ax_write_file_atomic(path, all->text.data, all->text.len) != AX_OK)
        ax_log_warn("profiler_steps: %s", ax_error_text());
    else
        ax_log_info("timeline: %s has steps %lld to %lld", path, (long long)t->timeline.first + 1,
                    (long long)t->done);
    ax_error_clear();
    ax_free(path);
    return AX_OK;
}

static enum ax_status end_timeline(struct ax_train *t, bool last) {
    struct ax_trace all = {0};
    if (!t->timeline.on || (!last && is_profiled(t)))
        return AX_OK;
    t->rt->q->timeline = NULL;
    t->timeline.on = false;
    t->timeline.over = true;
    AX_TRY(ax_train_save_poll(t, AX_SAVE_WAIT)); /* the team is the saver's until then */
    if (t->timeline.spans.lost > 0)
        ax_log_warn("profiler_steps: %zu ops at the end are not in the timeline",
                    t->timeline.spans.lost);
    enum ax_status st = merge_spans(t, &all);
    if (st == AX_OK)
        st = write_timeline(t, &all);
    ax_trace_free(&all);
    ax_timeline_free(&t->timeline.spans);
    return st;
}

/* ---- what a step costs ---- */

static void start_cost(struct ax_train_cost *c, const struct ax_train *t) {
    c->waits -= t->rt->q->counters.waits;
    c->save -= t->saver.waited;
    c->flops -= ax_queue_product_flops(&t->rt->q->counters);
}

static void stop_cost(struct ax_train_cost *c, const struct ax_train *t) {
    c->waits += t->rt->q->counters.waits;
    c->save += t->saver.waited;
    c->flops += ax_queue_product_flops(&t->rt->q->counters);
}

/* The record of a step, but for what ranks compare. */
static struct ax_step_figures figures_of(struct ax_train *t, const struct ax_step_result *r,
                                         const struct ax_train_cost *c) {
    const bool trains = r->weight_total > 0; /* else it has no loss, not one of 0 */
    struct ax_step_figures f = {.step = t->done,
                                .epoch = t->epoch,
                                .loss = trains ? r->loss : NAN,
                                .grad_norm = trains ? r->grad_norm : NAN,
                                .learning_rate = r->lr,
                                .tokens = t->sequences.n_tokens,
                                .computed_tokens = t->sequences.n_computed,
                                .trained_tokens = t->sequences.n_trained,
                                .seconds = c->seconds > 0 ? c->seconds : ax_clock_now() - c->begin,
                                .waits = c->waits,
                                .flops = c->flops,
                                .skipped = r->skipped,
                                .works_late = ax_queue_is_late(t->rt->q),
                                .memory = ax_mem_rss(),
                                .peak_memory = ax_mem_peak_rss()};
    f.phases[f.n_phases++] = (struct ax_phase_seconds){"data", c->data};
    for (int p = 0; p < AX_TIME_COUNT; p++)
        f.phases[f.n_phases++] =
            (struct ax_phase_seconds){ax_step_phase_name((enum ax_step_phase)p), r->seconds[p]};
    f.phases[f.n_phases++] = (struct ax_phase_seconds){"save", c->save};
    memcpy(f.measures, r->measures, sizeof f.measures);
    if (t->step.model.expert_loads.data)
        f.experts = &r->experts;
    f.aux_loss = r->aux_loss;
    f.sequence_loss = r->sequence_loss;
    f.mtp_loss = r->mtp_loss;
    f.index_loss = r->index_loss;
    if (c->samples) {
        f.figures = &t->rollout.figures;
        f.phases[f.n_phases++] = (struct ax_phase_seconds){"rollout", t->rollout.seconds};
        f.phases[f.n_phases++] = (struct ax_phase_seconds){"reward", t->rollout.reward_seconds};
    }
    if (ax_train_has_value(t->o))
        f.figures = &t->value.figures;
    ax_train_ahead_put_saved(t, f.seconds);
    return f;
}

/* ---- one step after the other ---- */

static enum ax_status epoch_after_step(struct ax_train *t, double *epochs, bool *end) {
    return ax_train_epoch_after(&t->schedule, &t->sequences, &t->o->data, epochs, end);
}

/* The step of t->sequences is the run's last one so far. */
static enum ax_status end_step(struct ax_train *t, const struct ax_step_result *r,
                               const struct ax_train_cost *c) {
    t->done++;
    t->tokens += t->sequences.n_tokens;
    t->trained += t->sequences.n_trained;
    AX_TRY(epoch_after_step(t, &t->epoch, &t->epoch_ended));
    if (isfinite(r->loss) && r->weight_total > 0)
        t->out->loss = r->loss;
    struct ax_step_figures f = figures_of(t, r, c);
    ax_train_elastic_record(t, &f);
    t->window = ax_metrics_window_after(
        t->window, f.loss, ax_metrics_logs(t->done, t->schedule.logging_steps, t->schedule.total));
    AX_TRY(ax_train_elastic_note(t, AX_AFTER_NOTHING));
    AX_TRY(ax_train_compare_ranks(t, f.seconds, &f.ranks));
    ax_metrics_step(t->metrics, &f);
    return AX_OK;
}

/* Reads the result before the update. */
static enum ax_status decide_step(struct ax_train *t, struct ax_train_cost *c) {
    struct ax_step_result r;
    start_cost(c, t);
    AX_TRY(ax_step_decide(&t->step, &r));
    AX_TRY(ax_train_watch_step(t, &r));
    const double waited = t->saver.waited;
    AX_TRY(ax_step_update(&t->step, ax_lr_at(&t->schedule.lr, t->done), &r));
    r.seconds[AX_TIME_OPTIMIZER] -= t->saver.waited - waited; /* phases do not overlap */
    stop_cost(c, t);
    return end_step(t, &r, c);
}

static enum ax_status begin_step(struct ax_train *t, struct ax_train_cost *c) {
    start_cost(c, t);
    t->step.kl = t->sequences.kl;
    AX_TRY(ax_step_begin(&t->step));
    stop_cost(c, t);
    return AX_OK;
}

/* Gradients of t->sequences, in place of those of any other step. */
static enum ax_status repeat_step(struct ax_train *t, struct ax_train_cost *c) {
    c->waits = c->waits_before;
    ax_step_drop(&t->step);
    AX_TRY(ax_train_sequences_fill(&t->sequences, &t->step));
    return begin_step(t, c);
}

/* ---- a step late ---- */

static void swap_sequences(struct ax_train *t) {
    const struct ax_train_sequences other = t->late.sequences;
    t->late.sequences = t->sequences;
    t->sequences = other;
}

/* The step of t->sequences, which was pending, has this result. */
static enum ax_status take_result(struct ax_train *t, const struct ax_step_result *r) {
    struct ax_train_cost *c = &t->late.cost;
    if (r->skipped) {
        AX_TRY(repeat_step(t, c));
        return decide_step(t, c);
    }
    AX_TRY(ax_train_watch_step(t, r));
    return end_step(t, r, c);
}

/* *again: gradients of the step after it are lost. */
static enum ax_status settle_step(struct ax_train *t, bool *again) {
    struct ax_step_result r;
    t->late.pending = false;
    start_cost(&t->late.cost, t);
    AX_TRY(ax_step_answer(&t->step, &r));
    stop_cost(&t->late.cost, t);
    *again = r.skipped;
    swap_sequences(t);
    const enum ax_status st = take_result(t, &r);
    swap_sequences(t);
    return st;
}

/* Waits for the pending result, if there is one. */
static enum ax_status settle_late(struct ax_train *t) {
    bool again;
    return t->late.pending ? settle_step(t, &again) : AX_OK;
}

/* Enqueues the update, whatever the result. */
static enum ax_status finish_step(struct ax_train *t, struct ax_train_cost *c) {
    const double lr = ax_lr_at(&t->schedule.lr, t->done);
    start_cost(c, t);
    AX_TRY(ax_step_finish(&t->step, lr, ax_train_watch_bound(t)));
    stop_cost(c, t);
    c->seconds = ax_clock_now() - c->begin;
    double epochs;
    AX_TRY(epoch_after_step(t, &epochs, &t->late.epoch_end));
    t->late.pending = true;
    t->late.cost = *c;
    swap_sequences(t);
    return AX_OK;
}

/* An error of the step after the pending one does not hide that one's result. */
static enum ax_status fail_step(struct ax_train *t, enum ax_status st) {
    struct ax_error_record first;
    ax_error_save(&first, st);
    (void)settle_late(t);
    return ax_error_restore(&first);
}

/* *stopped: there is no step, as a rank was asked to stop while it sampled, or waited for a server. */
static enum ax_status fill_step(struct ax_train *t, bool *stopped) {
    if (!ax_train_has_rollout(t->o))
        return ax_train_sequences_next(&t->sequences, &t->step, &t->o->data, t->o->remote, stopped);
    if (ax_rollout_is_used_up(&t->rollout) || ax_train_has_value(t->o))
        AX_TRY(settle_late(t)); /* sampled by weights that are known to be the next ones */
    return ax_train_rollout_next(t, stopped);
}

/* Runs the next step, or none if a rank that samples was asked to stop. If the device works late,
 * the update is only enqueued and its result is pending; the result of the step before is read
 * after this step's gradients have been enqueued. */
static enum ax_status run_step(struct ax_train *t) {
    struct ax_train_cost c = {.begin = ax_clock_now()};
    bool again = false, stopped = false;
    if (!t->late.pending) /* else its waits are not over */
        ax_train_ranks_begin_step(t);
    start_cost(&c, t);
    const enum ax_status st = fill_step(t, &stopped);
    if (st != AX_OK)
        return fail_step(t, st);
    if (stopped)
        return AX_OK;
    c.data = ax_clock_now() - c.begin;
    c.samples = ax_train_has_rollout(t->o) && t->rollout.turn == 1;
    if (c.samples)
        c.data -= t->rollout.seconds + t->rollout.reward_seconds;
    if (!t->late.pending) /* else it is not due */
        AX_TRY(ax_step_restart_if_due(&t->step, t->done));
    AX_TRY(ax_train_estimate_kl(t));
    AX_TRY(ax_train_value_step(t));
    stop_cost(&c, t);
    c.waits_before = c.waits;
    AX_TRY(begin_step(t, &c));
    if (t->late.pending)
        AX_TRY(settle_step(t, &again));
    if (again)
        AX_TRY(repeat_step(t, &c));
    return ax_queue_is_late(t->rt->q) ? finish_step(t, &c) : decide_step(t, &c);
}

/* ---- evaluations and saves after a step ---- */

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

/* Removes the trigger file that requested a save, if one did; also where one is due anyway. */
static bool take_trigger(const struct ax_train *t) {
    if (t->vote.trigger && ax_train_is_main(t) && ax_unlink(t->o->save.trigger_file) != AX_OK) {
        ax_log_warn("%s", ax_error_text());
        ax_error_clear();
    }
    return t->vote.trigger;
}

static bool wants_save(const struct ax_train *t, bool best) {
    const struct ax_train_save *s = &t->o->save;
    if (take_trigger(t) || saves_after(t, t->done, t->epoch_ended))
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
    const bool owed = t->elastic.after == AX_AFTER_EVALUATION; /* only the save */
    const bool eval = evaluates_after(t, t->done, t->epoch_ended);
    double value = t->best; /* if the evaluation was the best so far; else of no interest */
    bool best = t->best_step == t->done;
    t->elastic.after = AX_AFTER_ALL;
    if (eval && !owed)
        AX_TRY(judge_evaluation(t, &value, &best));
    if (t->pending_eval)
        return AX_OK;
    if (eval)
        AX_TRY(ax_train_elastic_evaluated(t));
    if (!owed && !wants_save(t, best)) {
        ax_train_elastic_mark(t, AX_AFTER_ALL);
        return AX_OK;
    }
    AX_TRY(ax_train_save_poll(t, AX_SAVE_WAIT));
    t->kept_before = t->kept;
    if ((owed ? best : eval) && isfinite(value) &&
        (t->kept.step == 0 || is_better(t, value, t->kept.value)))
        t->kept = (struct ax_train_kept){t->done, value};
    if (t->saved < t->done)
        AX_TRY(ax_train_save_start(t, last || t->stop_early));
    return ax_train_elastic_note(t, AX_AFTER_ALL);
}

/* ---- around a step ---- */

/* All ranks measure at the same time, each with its share of the CPUs; the peak is their sum. They do so for a share
 * of the run at the pace of its first step, which took `seconds`. */
static enum ax_status measure_peak(struct ax_train *t, double seconds) {
    const double run = seconds * (double)(t->schedule.total - t->done);
    const double limit = fmin(AX_PEAK_SECONDS, AX_PEAK_SHARE * run);
    struct ax_peak peak = {0};
    char text[AX_PEAK_TEXT], ranks[32] = "";
    struct ax_runtime_options o = t->runtime;
    o.threads = t->rt->q->threads;
    enum ax_status st = t->o->measure_peak(&o, limit, &peak);
    if (st == AX_ERR_NOMEM) { /* the plan has no memory for it: then there is no MFU */
        ax_error_clear();
        peak.flops = 0;
        st = AX_OK;
    }
    AX_TRY(st);
    double rates[] = {peak.flops, peak.slowest};
    AX_TRY(ax_runtime_combine(t->rt, AX_ROLE_WORLD, AX_SUM, rates, 2));
    peak.flops = rates[0];
    peak.slowest = rates[1];
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
           saves_after(t, step, epoch_end) || t->vote.trigger || ax_train_elastic_is_due(t, step) ||
           (first && (o->save.first_step || o->measure_peak)) ||
           (restarts > 0 && step % restarts == 0);
}

/* Saves the current step, unless it is saved already, and reports the stop. */
static enum ax_status stop_run(struct ax_train *t, enum ax_stop why) {
    AX_TRY(end_timeline(t, true));
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

/* They wait while a step is computed, and are answered before the next one. */
static enum ax_status answer_requests(struct ax_train *t, bool last) {
    bool any;
    AX_TRY(ax_train_requests_look(t, last, &any));
    if (!any)
        return AX_OK;
    AX_TRY(settle_late(t));
    return ax_train_requests_answer(t);
}

static enum ax_status run_steps(struct ax_train *t) {
    AX_TRY(ax_train_take_vote(t, false));
    AX_TRY(ax_train_unmoved_begin(t));
    for (bool first = true; t->pending_eval || (t->done < t->schedule.total && !t->stop_early);
         first = false) {
        if (t->vote.stop != AX_STOP_NONE) {
            AX_TRY(settle_late(t));
            return stop_run(t, t->vote.stop);
        }
        AX_TRY(answer_requests(t, false));
        const int64_t before = t->done;
        const double began = ax_clock_now();
        AX_TRY(begin_timeline(t));
        AX_TRY(run_step(t));
        AX_TRY(end_timeline(t, false));
        AX_TRY(ax_train_inject_damage(t));
        AX_TRY(ax_train_take_vote(t, true));
        if (t->done == before && !t->late.pending)
            continue;
        if (t->vote.compare)
            AX_TRY(ax_train_compare_replicas(t));
        AX_TRY(ax_train_unmoved_look(t));
        if (needs_result(t, first))
            AX_TRY(settle_late(t));
        if (first && t->o->measure_peak)
            AX_TRY(measure_peak(t, ax_clock_now() - began));
        AX_TRY(ax_train_save_poll(t, AX_SAVE_LOOK));
        if (!t->late.pending)
            AX_TRY(after_step(t));
        AX_TRY(ax_train_elastic_save(t));
        if (t->pending_eval || t->saved == t->done || t->saving == t->done)
            AX_TRY(ax_train_take_vote(t, false)); /* time has passed */
    }
    AX_TRY(end_timeline(t, true));
    AX_TRY(answer_requests(t, true));
    AX_TRY(ax_train_check_weights(t));
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
    mo.evaluates = t->pending_eval || t->elastic.after == AX_AFTER_NOTHING;
    mo.flops_per_token = ax_step_flops_per_token(&t->step, doc > 0 ? doc : t->o->data.doc_tokens);
    mo.devices = t->rt->mesh.world;
    mo.measures = t->o->step.objective->measures;
    mo.completions = ax_train_has_rollout(t->o);
    const bool lacks = ax_train_elastic_lacks_record(t);
    if (lacks)
        mo.window = t->elastic.before;
    AX_TRY(ax_train_saved_before(t, &mo.saved));
    const enum ax_status st = ax_metrics_open(&t->metrics, t->o->save.output_dir, &mo);
    ax_free(mo.saved.path);
    AX_TRY(st);
    if (lacks)
        ax_metrics_step(t->metrics, &t->elastic.last);
    return AX_OK;
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
    ax_train_elastic_say(t);
    if (t->pending_eval || t->elastic.after != AX_AFTER_ALL)
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
    st = ax_train_ahead_end(t, st);
    ax_train_elastic_rescue(t, st);
    t->out->train_seconds = ax_clock_now() - start;
    t->out->save_waited = t->saver.waited;
    struct ax_error_record first;
    ax_error_save(&first, st);                        /* later errors must not replace it */
    if (ax_train_save_poll(t, AX_SAVE_LAST) != AX_OK) /* in flight when the error occurred */
        ax_metrics_event(t->metrics, AX_EVENT_WARNING, t->done, "%s", ax_error_text());
    ax_train_save_free(t);
    json_decref(t->elastic.run);
    ax_metrics_close(t->metrics);
    ax_train_sequences_free(&t->sequences);
    ax_train_sequences_free(&t->late.sequences);
    ax_train_references_free(&t->refs);
    ax_timeline_free(&t->timeline.spans);
    ax_train_value_free(t);
    ax_train_rollout_free(t);
    ax_train_unmoved_free(t);
    ax_step_free(&t->step);
    return ax_error_restore(&first);
}

static void say_short_epoch(const struct ax_train *t) {
    const int64_t per_step = ax_train_sequences_per_step(t->o, t->mesh.size[AX_ROLE_BATCH]);
    const int64_t n = t->schedule.n_epochs > 0 ? t->schedule.sequences[0] : per_step;
    if (n < per_step && ax_train_is_main(t))
        ax_log_info(
            "datasets: an epoch has %lld row%s, fewer than the %lld of a step: each epoch is "
            "one step",
            (long long)n, n == 1 ? "" : "s", (long long)per_step);
}

static enum ax_status prepare_run(struct ax_train *t, struct run *run, char **resume) {
    AX_TRY(ax_train_schedule_make(&t->schedule, t->o, t->mesh.size[AX_ROLE_BATCH]));
    say_short_epoch(t);
    AX_TRY(
        ax_team_agree(&t->team, ax_train_is_main(t) ? ax_train_folder_judge(&t->o->save) : AX_OK));
    AX_TRY(ax_train_choose_memory(t, &run->so));
    AX_TRY(ax_train_folder_open(t, &run->so, resume));
    return ax_train_ahead_begin(t);
}

static enum ax_status train(struct ax_train *t, struct run *run, char **resume_from) {
    AX_TRY(prepare_run(t, run, resume_from));
    run->resume_from = *resume_from;
    if (t->out->nothing_to_do)
        return AX_OK;
    return ax_runtime_run(&t->runtime, run_on, run, &t->out->plan);
}

/* Other ranks must not wait for one that has failed before the runtime is open. */
static void tell_ranks(struct ax_fabric *fabric, enum ax_status st) {
    if (fabric && st != AX_OK)
        fabric->ops->fail(fabric, st);
}

enum ax_status ax_train(const struct ax_train_options *o, struct ax_train_result *out) {
    *out = (struct ax_train_result){.loss = NAN};
    struct ax_train_options part = *o; /* of this rank's part, if some ranks only sample */
    struct ax_train t = {.o = o->rollout_ranks > 0 ? &part : o,
                         .out = out,
                         .lock = {.fd = -1},
                         .replicas = {.compared = -1}};
    struct run run = {.t = &t, .so = ax_train_step_options(o)};
    char *resume_from = NULL;
    enum ax_status st = ax_train_ranks_split(&t, &part);
    if (st == AX_OK)
        st = ax_rollout_create(&t.rollout, &t.o->rollout);
    if (st == AX_OK)
        st = ax_train_ahead_create(&t);
    if (st == AX_OK)
        st = ax_train_ranks_open(&t);
    if (st == AX_OK)
        st = ax_train_only_samples(&t) ? ax_train_sample(&t) : train(&t, &run, &resume_from);
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
    ax_train_ahead_free(&t);
    ax_rollout_free(&t.rollout);
    if (st != AX_SAVED_REQUEUE && st != AX_INTERRUPTED) /* else it is on its way to the end */
        ax_stop_unwatch();
    return st;
}
