/* The number of steps of a run, and what follows from it. */
#include "optim/train/schedule.h"

#include <math.h>

#include "base/log.h"
#include "optim/train/options.h"

static int64_t turns_of(const struct ax_train_options *o) {
    return ax_train_has_rollout(o) ? (int64_t)o->rollout.steps * o->rollout.iterations : 1;
}

static int64_t drop_unit(const struct ax_train_options *o, int data_ranks) {
    const int64_t per_step = ax_train_sequences_per_step(o, data_ranks);
    return o->data.drop_last      ? per_step
           : o->data.drop_partial ? per_step / o->step.n_microbatches
                                  : 1;
}

int64_t ax_train_schedule_used(const struct ax_train_schedule *s, int64_t n) {
    return s->keeps_short && n < s->unit ? n : n / s->unit * s->unit;
}

static int64_t steps_of(const struct ax_train_schedule *s, int64_t n, int64_t per_step) {
    return (ax_train_schedule_used(s, n) + per_step - 1) / per_step;
}

/* Counts each epoch separately, when it is asked for: packing makes the number of sequences vary
 * slightly. */
static enum ax_status count_epoch(struct ax_train_schedule *s, const struct ax_train_data *d,
                                  int64_t epoch) {
    while (s->n_epochs <= epoch) {
        struct ax_loader_count n;
        AX_TRY(ax_regrow(&s->sequences, (size_t)s->n_epochs, (size_t)s->n_epochs + 1,
                         sizeof *s->sequences));
        AX_TRY(ax_loader_count_epoch(d->train, s->n_epochs, 1, &n));
        s->sequences[s->n_epochs++] = n.sequences;
        s->doc_tokens = n.examples > 0 ? (double)n.tokens / (double)n.examples : 0;
    }
    return AX_OK;
}

/* Rounds down if short steps are dropped, else up; but a number very close to an integer is that
 * integer, as when the third of 2.3 epochs is computed as 0.2999… of one. */
static int64_t whole_steps(double steps, bool drop_last) {
    const double nearest = rint(steps);
    if (fabs(steps - nearest) < 1e-6)
        return (int64_t)nearest;
    return (int64_t)(drop_last ? floor(steps) : ceil(steps));
}

static enum ax_status steps_of_epoch(struct ax_train_schedule *s, const struct ax_train_options *o,
                                     int64_t per_step, int64_t epoch, int64_t *steps) {
    AX_TRY(count_epoch(s, &o->data, epoch));
    *steps = steps_of(s, s->sequences[epoch], per_step) * turns_of(o);
    if (*steps == 0 && ax_train_has_rollout(o))
        return ax_error(AX_ERR_DATA,
                        "datasets: there are only %lld prompts, but %lld are sampled at a time; "
                        "lower micro_batch_size or gradient_accumulation_steps",
                        (long long)s->sequences[epoch], (long long)per_step);
    if (*steps == 0)
        return ax_error(AX_ERR_DATA,
                        "datasets: there are only %lld rows to train on, but one step takes "
                        "%lld; lower micro_batch_size or gradient_accumulation_steps",
                        (long long)s->sequences[epoch], (long long)per_step);
    return AX_OK;
}

/* The steps of the run and of an epoch: o->epochs, but no more than max_steps; or as many epochs as
 * those take. */
static enum ax_status count_steps(struct ax_train_schedule *s, const struct ax_train_options *o,
                                  int64_t per_step) {
    const int64_t most = o->max_steps > 0 ? o->max_steps : INT64_MAX;
    int64_t steps;
    AX_TRY(steps_of_epoch(s, o, per_step, 0, &steps));
    s->total = o->epochs > 0 ? 0 : most;
    s->of_epoch = steps < s->total ? (double)steps : (double)s->total;
    double left = o->epochs;
    for (int64_t e = 0; left > 0 && s->total < most; e++, left -= 1) {
        AX_TRY(steps_of_epoch(s, o, per_step, e, &steps));
        s->total += left < 1 ? whole_steps(left * (double)steps, o->data.drop_last) : steps;
    }
    s->total = s->total > 0 ? s->total : 1;
    s->limit = s->total < most ? "num_epochs" : "max_steps";
    s->total = s->total < most ? s->total : most;
    s->of_epoch = o->epochs > 0 ? (double)s->total / o->epochs : s->of_epoch;
    return AX_OK;
}

static int64_t cadence_steps(const struct ax_cadence *c, const struct ax_train_schedule *s) {
    const bool part = c->when == AX_EACH_PART;
    if (c->when != AX_EACH_STEPS && !part)
        return 0;
    const double all = part ? s->of_epoch : (double)s->total;
    const double steps = part || c->steps < 1 ? ceil(c->steps * all - 1e-9) : floor(c->steps);
    return steps < 1 ? 1 : (int64_t)steps;
}

/* A share of one step is two, as in axolotl: a warmup over one step is a step at rate 0 and then the full rate. */
static int64_t warmup_steps(const struct ax_train_options *o, int64_t total) {
    if (o->warmup >= 0)
        return o->warmup;
    const double share =
        o->warmup_ratio < 0 ? fmin(0.03 * (double)total, 100) : o->warmup_ratio * (double)total;
    const int64_t n = (int64_t)floor(share);
    return n == 1 ? 2 : n;
}

enum ax_status ax_train_schedule_make(struct ax_train_schedule *s, const struct ax_train_options *o,
                                      int data_ranks) {
    *s = (struct ax_train_schedule){0};
    enum ax_status st = AX_OK;
    s->countable = o->data.countable;
    s->unit = drop_unit(o, data_ranks);
    s->keeps_short = o->data.keeps_short;
    if (s->countable) {
        AX_TRY_GOTO(count_steps(s, o, ax_train_sequences_per_step(o, data_ranks)), st, fail);
    } else if (o->max_steps > 0) {
        s->total = o->max_steps;
        s->of_epoch = (double)s->total;
        s->limit = "max_steps";
    } else {
        return ax_error(AX_ERR_CONFIG, "max_steps: set it; the length of streamed data is unknown");
    }
    s->lr = o->lr;
    s->lr.total = s->total;
    s->lr.warmup = warmup_steps(o, s->total);
    if (s->lr.stable < 0)
        s->lr.stable = s->total - s->lr.warmup - s->lr.decay;
    s->eval_every = cadence_steps(&o->eval.when, s);
    s->save_every = cadence_steps(&o->save.when, s);
    s->logging_steps = o->metrics.logging_steps;
    if (s->logging_steps == 0) {
        const int64_t n = s->total / 200;
        s->logging_steps = n < 1 ? 1 : n < 10 ? n : 10;
    }
    return AX_OK;
fail:
    ax_train_schedule_free(s);
    return st;
}

/* Epochs are those of the prompts before the next ones; the last of an epoch, if they are too few for a generation,
 * count, too. */
enum ax_status ax_train_schedule_progress(struct ax_train_schedule *s,
                                          const struct ax_train_data *d, int64_t step,
                                          struct ax_rollout *r) {
    struct ax_loader_state at;
    ax_loader_save(d->train, &at);
    r->progress =
        (struct ax_reward_progress){.step = step, .total = s->total, .epoch = (double)at.epoch};
    if (!d->countable)
        return AX_OK;
    AX_TRY(count_epoch(s, d, at.epoch));
    const int64_t prompts = s->sequences[at.epoch];
    r->progress.epoch +=
        at.index + r->o->prompts > prompts ? 1 : (double)at.index / (double)prompts;
    return AX_OK;
}

void ax_train_schedule_warn(const struct ax_train_schedule *s, const struct ax_train_options *o) {
    const struct ax_lr_schedule *lr = &s->lr;
    const double highest = ax_lr_at(lr, s->total - 1);
    if (lr->kind != AX_LR_CONSTANT && lr->warmup >= s->total && highest < 0.9999 * lr->base_lr)
        ax_log_warn("warmup_steps: the run ends after step %lld, but the warmup takes %lld: the "
                    "learning rate only gets to %.4g of %.4g",
                    (long long)s->total, (long long)lr->warmup, highest, lr->base_lr);
    if (o->step.qat_after >= s->total)
        ax_log_warn("qat.fake_quant_after_n_steps: the run ends after step %lld, but quantization "
                    "starts after step %lld: nothing is trained for it",
                    (long long)s->total, (long long)o->step.qat_after);
}

void ax_train_schedule_free(struct ax_train_schedule *s) {
    ax_free(s->sequences);
    *s = (struct ax_train_schedule){0};
}

enum ax_status ax_train_epoch_after(struct ax_train_schedule *s, const struct ax_train_sequences *r,
                                    const struct ax_train_data *d, double *epochs, bool *last) {
    *last = false;
    *epochs = (double)r->epoch;
    if (!s->countable)
        return AX_OK;
    AX_TRY(count_epoch(s, d, r->epoch));
    const int64_t n = s->sequences[r->epoch], after = r->index + r->n;
    *last = after >= ax_train_schedule_used(s, n);
    *epochs += *last ? 1 : (double)after / (double)n;
    return AX_OK;
}
