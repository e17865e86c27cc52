/* The result of a step: what the host asks the device for, and what follows from the answer. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "optim/step/step.h"

static const char *const phase_names[AX_TIME_COUNT] = {"forward", "backward", "optimizer"};
_Static_assert((int)AX_TIME_COUNT <= AX_TIMES, "a device has too few sums of times");

const char *ax_step_phase_name(enum ax_step_phase phase) {
    return phase_names[phase];
}

/* The device's memory of a step's result, from `balance`. */
struct answer {
    struct ax_expert_balance balance;
    struct ax_step_measures measures;
    struct ax_times times;
    struct ax_step_scalars now;
};

static enum ax_status ask(struct ax_step *s) {
    const struct answer cap = {.now = {.weight = 1}}; /* while planning */
    return ax_queue_read_later(s->rt->q, s->balance, sizeof cap, &cap, &s->ticket);
}

/* The update that was counted did not happen. */
static void take_back(struct ax_step *s) {
    s->counted = false;
    s->count--;
}

enum ax_status ax_step_answer(struct ax_step *s, struct ax_step_result *out) {
    struct answer a;
    AX_TRY(ax_queue_settle(s->rt->q, s->ticket, &a, sizeof a));
    *out = (struct ax_step_result){.loss = a.now.loss,
                                   .grad_norm = a.now.grad_norm,
                                   .lr = a.now.lr,
                                   .aux_loss = a.now.aux_loss,
                                   .sequence_loss = a.now.sequence_loss,
                                   .weight_total = a.now.weight,
                                   .experts = a.balance,
                                   .skipped = a.now.skip != 0};
    memcpy(out->seconds, a.times.seconds, sizeof out->seconds);
    ax_measures_mean(&a.measures, out->measures);
    s->known_skipped = out->skipped;
    if (out->skipped && s->counted)
        take_back(s);
    return AX_OK;
}

enum ax_status ax_step_decide(struct ax_step *s, struct ax_step_result *out) {
    AX_TRY(ax_step_clip(s, INFINITY));
    AX_TRY(ask(s));
    return ax_step_answer(s, out);
}

/* Nothing is asked of the device after it, so the time of the update is the host's. */
enum ax_status ax_step_update(struct ax_step *s, double lr, struct ax_step_result *out) {
    const double start = ax_clock_now();
    AX_TRY(ax_step_apply(s, lr));
    out->lr = lr;
    out->seconds[AX_TIME_OPTIMIZER] += ax_clock_now() - start;
    return AX_OK;
}

enum ax_status ax_step_finish(struct ax_step *s, double lr, double hold_above) {
    AX_TRY(ax_step_clip(s, hold_above));
    AX_TRY(ax_step_apply(s, lr));
    return ask(s);
}

enum ax_status ax_step_gradients(struct ax_step *s, struct ax_step_result *out) {
    AX_TRY(ax_step_begin(s));
    return ax_step_decide(s, out);
}

enum ax_status ax_step_run(struct ax_step *s, double lr, struct ax_step_result *out) {
    AX_TRY(ax_step_begin(s));
    AX_TRY(ax_step_finish(s, lr, INFINITY));
    return ax_step_answer(s, out);
}
