/* One step of a run: its sequences, the step itself, its report. The whole way is told in optim/step/step.c.
 *
 * Where work is done when a call returns, the host reads the result before the update. Where it is
 * done late, the device decides about the update by itself, and the host reads the result of step N
 * when it has enqueued the gradients of step N + 1: the device is never idle because the host waits.
 * A step with an implausible loss is skipped by the device; then the next one's gradients are
 * dropped, and the step is done again in the first order. So a run reports, warns and writes the
 * same on every device. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "optim/train/run.h"

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

static enum ax_status report_step(struct ax_train *t, const struct ax_step_result *r,
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
    if (c->samples) {
        f.figures = &t->rollout.figures;
        f.phases[f.n_phases++] = (struct ax_phase_seconds){"rollout", t->rollout.seconds};
        f.phases[f.n_phases++] = (struct ax_phase_seconds){"reward", t->rollout.reward_seconds};
    }
    if (ax_train_has_value(t->o))
        f.figures = &t->value.figures;
    AX_TRY(ax_train_compare_ranks(t, f.seconds, &f.ranks));
    ax_metrics_step(t->metrics, &f);
    return AX_OK;
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
    return report_step(t, r, c);
}

/* Reads the result before the update. */
static enum ax_status decide_step(struct ax_train *t, struct ax_train_cost *c) {
    struct ax_step_result r;
    start_cost(c, t);
    AX_TRY(ax_step_decide(&t->step, &r));
    AX_TRY(ax_train_watch_step(t, &r));
    AX_TRY(ax_step_update(&t->step, ax_lr_at(&t->schedule.lr, t->done), &r));
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
    AX_TRY(ax_step_drop(&t->step));
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

enum ax_status ax_train_settle(struct ax_train *t) {
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
    (void)ax_train_settle(t);
    return ax_error_restore(&first);
}

/* *stopped: there is no step, as a rank was asked to stop while it sampled. */
static enum ax_status fill_step(struct ax_train *t, bool *stopped) {
    if (!ax_train_has_rollout(t->o))
        return ax_train_sequences_next(&t->sequences, &t->step, &t->o->data);
    if (ax_rollout_is_used_up(&t->rollout) || ax_train_has_value(t->o))
        AX_TRY(ax_train_settle(t)); /* sampled by weights that are known to be the next ones */
    return ax_train_rollout_next(t, stopped);
}

enum ax_status ax_train_step(struct ax_train *t) {
    struct ax_train_cost c = {.begin = ax_clock_now()};
    bool again = false;
    start_cost(&c, t);
    bool stopped = false;
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
