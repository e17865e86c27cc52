/* One step of a run: its sequences, the step itself, its report.
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

static void start(struct ax_train_cost *c, const struct ax_train *t) {
    c->waits -= t->rt->q->counters.waits;
    c->save -= t->saver.waited;
    c->flops -= ax_queue_product_flops(&t->rt->q->counters);
}

static void stop(struct ax_train_cost *c, const struct ax_train *t) {
    c->waits += t->rt->q->counters.waits;
    c->save += t->saver.waited;
    c->flops += ax_queue_product_flops(&t->rt->q->counters);
}

static enum ax_status report(struct ax_train *t, const struct ax_step_result *r,
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

static enum ax_status epoch_after(struct ax_train *t, double *epochs, bool *end) {
    return ax_train_epoch_after(&t->schedule, &t->sequences, &t->o->data, epochs, end);
}

/* The step of t->sequences is the run's last one so far. */
static enum ax_status done(struct ax_train *t, const struct ax_step_result *r,
                           const struct ax_train_cost *c) {
    t->done++;
    t->tokens += t->sequences.n_tokens;
    t->trained += t->sequences.n_trained;
    AX_TRY(epoch_after(t, &t->epoch, &t->epoch_ended));
    if (isfinite(r->loss) && r->weight_total > 0)
        t->out->loss = r->loss;
    return report(t, r, c);
}

/* Reads the result before the update. */
static enum ax_status decide(struct ax_train *t, struct ax_train_cost *c) {
    struct ax_step_result r;
    start(c, t);
    AX_TRY(ax_step_decide(&t->step, &r));
    AX_TRY(ax_train_watch_step(t, &r));
    AX_TRY(ax_step_update(&t->step, ax_lr_at(&t->schedule.lr, t->done), &r));
    stop(c, t);
    return done(t, &r, c);
}

static enum ax_status begin(struct ax_train *t, struct ax_train_cost *c) {
    start(c, t);
    t->step.kl = t->sequences.kl;
    AX_TRY(ax_step_begin(&t->step));
    stop(c, t);
    return AX_OK;
}

/* Gradients of t->sequences, in place of those of any other step. */
static enum ax_status begin_again(struct ax_train *t, struct ax_train_cost *c) {
    c->waits = c->waits_before;
    AX_TRY(ax_step_drop(&t->step));
    AX_TRY(ax_train_sequences_fill(&t->sequences, &t->step));
    return begin(t, c);
}

/* ---- a step late ---- */

static void swap_sequences(struct ax_train *t) {
    const struct ax_train_sequences other = t->late.sequences;
    t->late.sequences = t->sequences;
    t->sequences = other;
}

/* The step of t->sequences, which was pending, has this result. */
static enum ax_status take(struct ax_train *t, const struct ax_step_result *r) {
    struct ax_train_cost *c = &t->late.cost;
    if (r->skipped) {
        AX_TRY(begin_again(t, c));
        return decide(t, c);
    }
    AX_TRY(ax_train_watch_step(t, r));
    return done(t, r, c);
}

/* *again: gradients of the step after it are lost. */
static enum ax_status settle(struct ax_train *t, bool *again) {
    struct ax_step_result r;
    t->late.pending = false;
    start(&t->late.cost, t);
    AX_TRY(ax_step_answer(&t->step, &r));
    stop(&t->late.cost, t);
    *again = r.skipped;
    swap_sequences(t);
    const enum ax_status st = take(t, &r);
    swap_sequences(t);
    return st;
}

enum ax_status ax_train_settle(struct ax_train *t) {
    bool again;
    return t->late.pending ? settle(t, &again) : AX_OK;
}

/* Enqueues the update, whatever the result. */
static enum ax_status finish(struct ax_train *t, struct ax_train_cost *c) {
    const double lr = ax_lr_at(&t->schedule.lr, t->done);
    start(c, t);
    AX_TRY(ax_step_finish(&t->step, lr, ax_train_watch_bound(t)));
    stop(c, t);
    c->seconds = ax_clock_now() - c->begin;
    double epochs;
    AX_TRY(epoch_after(t, &epochs, &t->late.epoch_end));
    t->late.pending = true;
    t->late.cost = *c;
    swap_sequences(t);
    return AX_OK;
}

/* An error of the step after the pending one does not hide that one's result. */
static enum ax_status fail(struct ax_train *t, enum ax_status st) {
    struct ax_error_record first;
    ax_error_save(&first, st);
    (void)ax_train_settle(t);
    return ax_error_restore(&first);
}

enum ax_status ax_train_step(struct ax_train *t) {
    struct ax_train_cost c = {.begin = ax_clock_now()};
    bool again = false;
    start(&c, t);
    bool stopped = false;
    const enum ax_status st = ax_train_has_rollout(t->o)
                                  ? ax_train_rollout_next(t, &stopped)
                                  : ax_train_sequences_next(&t->sequences, &t->step, &t->o->data);
    if (st != AX_OK)
        return fail(t, st);
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
    stop(&c, t);
    c.waits_before = c.waits;
    AX_TRY(begin(t, &c));
    if (t->late.pending)
        AX_TRY(settle(t, &again));
    if (again)
        AX_TRY(begin_again(t, &c));
    return ax_queue_is_late(t->rt->q) ? finish(t, &c) : decide(t, &c);
}
