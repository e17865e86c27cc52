/* Executes the action table: one small function per kind of action. */
#include "optim/step.h"

#include "model/pipeline.h"
#include "model/tensor_parallel.h"

static enum ax_status act_begin(struct ax_step *s, const struct ax_action *a) {
    s->passes[a->microbatch].slot = &s->slots[a->slot];
    return ax_pass_begin(&s->passes[a->microbatch]);
}

static enum ax_status act_end(struct ax_step *s, const struct ax_action *a) {
    ax_pass_end(&s->passes[a->microbatch]);
    return AX_OK;
}

static enum ax_status act_gather(struct ax_step *s, const struct ax_action *a) {
    const int also = ax_model_unit_needs(&s->model, a->unit);
    AX_TRY(ax_unit_gather(&s->model.units[a->unit], s->rt));
    return also < 0 ? AX_OK : ax_unit_gather(&s->model.units[also], s->rt);
}

static enum ax_status act_release(struct ax_step *s, const struct ax_action *a) {
    const int also = ax_model_unit_needs(&s->model, a->unit);
    ax_unit_release(&s->model.units[a->unit]);
    if (also >= 0)
        ax_unit_release(&s->model.units[also]);
    return AX_OK;
}

static enum ax_status act_forward(struct ax_step *s, const struct ax_action *a) {
    return ax_pass_forward(&s->passes[a->microbatch], a->unit);
}

/* The gradient for the previous stage of micro-batch m. */
static struct ax_tensor outgoing(const struct ax_step *s, int m) {
    const int64_t T = s->batches[m].T;
    return ax_tensor_rows(&s->outbox, 0, ax_tp_rows(s->rt, T));
}

/* The outbox keeps it, because the micro-batch's slot may be reused before it is sent. */
static enum ax_status act_backward(struct ax_step *s, const struct ax_action *a) {
    AX_TRY(ax_pass_backward(&s->passes[a->microbatch], a->unit));
    if (a->unit == 0 || a->unit != s->model.first_unit)
        return AX_OK;
    return ax_run_copy(s->rt->q,
                       &(struct ax_copy){outgoing(s, a->microbatch), s->slots[a->slot].grad});
}

static int stage_of(const struct ax_step *s) {
    return s->rt->mesh.coord[AX_ROLE_PP];
}

/* The rows of micro-batch m, or nothing if m < 0: then it has no slot either. */
static struct ax_stage_rows rows_of(const struct ax_step *s, int m, const struct ax_tensor *rows) {
    return m < 0 ? (struct ax_stage_rows){0} : (struct ax_stage_rows){rows, &s->batches[m]};
}

static enum ax_status act_next(struct ax_step *s, const struct ax_action *a) {
    const int last = s->model.end_unit - 1;
    const struct ax_tensor *out = a->microbatch < 0 ? NULL : &s->slots[a->slot].residual[last];
    const struct ax_tensor *in = a->receive < 0 ? NULL : &s->slots[a->receive_slot].grad;
    return ax_stage_exchange(s->rt, stage_of(s) + 1, rows_of(s, a->microbatch, out),
                             rows_of(s, a->receive, in));
}

static enum ax_status act_previous(struct ax_step *s, const struct ax_action *a) {
    const int before = s->model.first_unit - 1;
    const struct ax_tensor out = a->microbatch >= 0 ? outgoing(s, a->microbatch) : s->outbox;
    const struct ax_tensor *in =
        a->receive < 0 ? NULL : &s->slots[a->receive_slot].residual[before];
    return ax_stage_exchange(s->rt, stage_of(s) - 1, rows_of(s, a->microbatch, &out),
                             rows_of(s, a->receive, in));
}

static enum ax_status act_reduce(struct ax_step *s, const struct ax_action *a) {
    return ax_unit_reduce(&s->model.units[a->unit], s->rt, a->last);
}

/* Both copies of a tied matrix get the sum of their gradients (a + b = b + a: they stay equal). */
static enum ax_status act_tie(struct ax_step *s, const struct ax_action *a) {
    const struct ax_unit *unit = &s->model.units[a->unit];
    const int stages = s->rt->mesh.size[AX_ROLE_PP];
    struct ax_stack *scratch = &s->rt->arena.scratch;
    for (int k = 0; k < unit->n_segments; k++) {
        const struct ax_tensor *grad = &unit->segments[k].grad;
        if (!grad->data)
            continue;
        const size_t mark = ax_stack_mark(scratch);
        struct ax_tensor other = *grad;
        other.data = ax_stack_push(scratch, "gradient of the tied copy", ax_tensor_bytes(grad));
        AX_TRY(ax_stage_exchange(s->rt, stage_of(s) == 0 ? stages - 1 : 0,
                                 (struct ax_stage_rows){.rows = grad},
                                 (struct ax_stage_rows){.rows = &other}));
        AX_TRY(ax_run_add(s->rt->q, &(struct ax_add){*grad, other, 1}));
        ax_stack_release(scratch, mark);
    }
    return AX_OK;
}

/* Σ over the ranks of a role of one double in device memory. */
static enum ax_status sum_double(struct ax_step *s, enum ax_role role, double AX_DEVICE *value) {
    return ax_comm_sum(&s->rt->comms[role], s->rt->q, AX_F64, value, 1);
}

/* True if a unit does not train in this step. */
static bool rests(const struct ax_step *s, int unit) {
    return s->o.lisa.layers > 0 && !s->lisa.active[unit];
}

/* Only what this rank owns enters the norm; the table omits the copy of a tied matrix. */
static enum ax_status act_norm(struct ax_step *s, const struct ax_action *a) {
    const struct ax_unit *unit = &s->model.units[a->unit];
    if (rests(s, a->unit))
        return AX_OK;
    for (int k = 0; k < unit->n_segments; k++) {
        const struct ax_segment *seg = &unit->segments[k];
        if (seg->trainable && ax_segment_owned(seg, &s->rt->mesh))
            AX_TRY(ax_run_sumsq(s->rt->q, &(struct ax_sumsq){seg->grad, s->scalars}));
    }
    return AX_OK;
}

/* A loss that is not finite skips the update: the gradient may still be finite (token of
 * probability 0). */
static enum ax_status act_clip(struct ax_step *s, const struct ax_action *a) {
    (void)a;
    AX_TRY(sum_double(s, AX_ROLE_WORLD, &s->scalars->sumsq));
    AX_TRY(sum_double(s, AX_ROLE_LOSS, &s->scalars->loss));
    AX_TRY(sum_double(s, AX_ROLE_PP, &s->scalars->loss));
    AX_TRY(sum_double(s, AX_ROLE_LOSS, &s->scalars->aux_loss));
    return ax_run_clip(s->rt->q, &(struct ax_clip){s->scalars});
}

/* Zeroes gradients as an update does, without updating. */
static enum ax_status drop_gradients(struct ax_step *s, int unit) {
    const struct ax_unit *u = &s->model.units[unit];
    for (int k = 0; k < u->n_segments; k++)
        if (u->segments[k].grad.data)
            AX_TRY(ax_run_fill(s->rt->q, &(struct ax_fill){u->segments[k].grad, 0}));
    return AX_OK;
}

/* Sets the step number for the next updates. */
static enum ax_status set_step(struct ax_step *s, int64_t step) {
    for (int g = 0; g < ax_lr_group_count(&s->o.lr_groups); g++)
        AX_TRY(ax_queue_write(s->rt->q, &s->scalars[g].step, &step, sizeof step));
    return AX_OK;
}

static enum ax_status act_update(struct ax_step *s, const struct ax_action *a) {
    if (rests(s, a->unit))
        return drop_gradients(s, a->unit);
    if (s->before_update)
        s->before_update(s->before_update_ctx, a->unit);
    if (s->o.lisa.layers > 0)
        AX_TRY(set_step(s, s->lisa.updates[a->unit] + 1));
    for (int i = 0; i < s->model.n_params; i++)
        if (s->model.params[i].unit == a->unit)
            AX_TRY(
                ax_param_update(&s->model, i, &s->states[i], s->o.optimizer, &s->o.opt,
                                s->scalars + ax_lr_group_of(&s->o.lr_groups, &s->model.params[i])));
    return AX_OK;
}

static const struct {
    enum ax_status (*run)(struct ax_step *s, const struct ax_action *a);
    enum ax_step_phase phase;
    bool of_tokens; /* its collectives are as long as the micro-batch */
} handlers[AX_ACT_COUNT] = {
    [AX_ACT_BEGIN] = {act_begin, AX_TIME_FORWARD},
    [AX_ACT_GATHER] = {act_gather, AX_TIME_FORWARD},
    [AX_ACT_FORWARD] = {act_forward, AX_TIME_FORWARD, true},
    [AX_ACT_BACKWARD] = {act_backward, AX_TIME_BACKWARD, true},
    [AX_ACT_RELEASE] = {act_release, AX_TIME_BACKWARD},
    [AX_ACT_END] = {act_end, AX_TIME_BACKWARD},
    [AX_ACT_NEXT] = {act_next, AX_TIME_FORWARD},
    [AX_ACT_PREVIOUS] = {act_previous, AX_TIME_BACKWARD},
    [AX_ACT_REDUCE] = {act_reduce, AX_TIME_BACKWARD},
    [AX_ACT_TIE] = {act_tie, AX_TIME_BACKWARD},
    [AX_ACT_NORM] = {act_norm, AX_TIME_OPTIMIZER},
    [AX_ACT_CLIP] = {act_clip, AX_TIME_OPTIMIZER},
    [AX_ACT_UPDATE] = {act_update, AX_TIME_OPTIMIZER},
};

/* Runs actions [first, end), and has the device time their phases. */
static enum ax_status execute(struct ax_step *s, int first, int end) {
    AX_TRY(ax_queue_time(s->rt->q, s->times, -1));
    for (int i = first; i < end; i++) {
        const struct ax_action *a = &s->schedule.actions[i];
        const enum ax_step_phase phase = handlers[a->kind].phase;
        if (handlers[a->kind].of_tokens)
            ax_contract_scale(s->rt, s->batches[a->microbatch].T, s->batches[a->microbatch].cap);
        AX_TRY(handlers[a->kind].run(s, a));
        ax_contract_scale(s->rt, 1, 1);
        if (i + 1 == end || handlers[a[1].kind].phase != phase)
            AX_TRY(ax_queue_time(s->rt->q, s->times, (int)phase));
    }
    return AX_OK;
}

/* Σ weight over all micro-batches and data ranks, before any compute. */
static enum ax_status weigh(struct ax_step *s) {
    double sum = 0;
    for (int m = 0; m < s->o.n_microbatches; m++)
        sum += s->batches[m].weight_total;
    AX_TRY(ax_queue_write(s->rt->q, &s->scalars->weight, &sum, sizeof sum));
    return sum_double(s, AX_ROLE_BATCH, &s->scalars->weight);
}

enum ax_status ax_step_begin(struct ax_step *s) {
    const struct ax_times none = {0};
    if (s->o.lisa.layers > 0)
        ax_lisa_begin(&s->lisa, s->count);
    AX_TRY(ax_queue_write(s->rt->q, s->times, &none, sizeof none));
    AX_TRY(ax_contract_enter(s->rt, s->contract));
    AX_TRY(weigh(s));
    AX_TRY(ax_run_begin_step(s->rt->q, &(struct ax_begin_step){s->scalars, s->begun}));
    s->begun = true;
    AX_TRY(execute(s, 0, s->schedule.first_update));
    return ax_contract_leave(s->rt);
}

enum ax_status ax_step_clip(struct ax_step *s, double hold_above) {
    s->known_skipped = s->counted = false;
    AX_TRY(ax_contract_enter(s->rt, "clip"));
    AX_TRY(ax_queue_write(s->rt->q, &s->scalars->hold_above, &hold_above, sizeof hold_above));
    AX_TRY(execute(s, s->schedule.first_update, s->schedule.first_update + 1));
    return ax_contract_leave(s->rt);
}

/* Sets the step's learning rate, and what the other groups of parameters see. */
static enum ax_status set_rates(struct ax_step *s, double lr) {
    const int64_t words = (int64_t)(sizeof *s->scalars / sizeof(int32_t));
    struct ax_queue *q = s->rt->q;
    AX_TRY(ax_queue_write(q, &s->scalars->lr, &lr, sizeof lr));
    for (int g = 1; g < ax_lr_group_count(&s->o.lr_groups); g++) {
        const double own = lr * s->o.lr_groups.factor[g];
        const struct ax_copy copy = {ax_tensor_1d(AX_I32, s->scalars + g, words),
                                     ax_tensor_1d(AX_I32, s->scalars, words)};
        AX_TRY(ax_run_copy(q, &copy));
        AX_TRY(ax_queue_write(q, &s->scalars[g].lr, &own, sizeof own));
    }
    return AX_OK;
}

enum ax_status ax_step_apply(struct ax_step *s, double lr) {
    AX_TRY(set_rates(s, lr));
    AX_TRY(execute(s, s->schedule.first_update + 1, s->schedule.n));
    s->begun = false;
    if (s->o.lisa.layers > 0)
        AX_TRY(set_step(s, s->count + 1));
    s->counted = !s->known_skipped;
    s->count += s->counted;
    if (s->o.lisa.layers > 0 && s->counted)
        ax_lisa_count(&s->lisa);
    return AX_OK;
}

enum ax_status ax_step_drop(struct ax_step *s) {
    for (int unit = s->model.first_unit; unit < s->model.end_unit; unit++)
        AX_TRY(drop_gradients(s, unit));
    return AX_OK;
}

enum ax_status ax_step_set_scalars(struct ax_step *s) {
    const struct ax_step_scalars last = {
        .step = s->count, .seed = s->o.seed, .max_norm = s->o.max_norm, .clip = 1};
    s->begun = false;
    return ax_queue_write(s->rt->q, s->scalars, &last, sizeof last);
}

enum ax_status ax_step_restore(struct ax_step *s, int64_t count) {
    s->count = count;
    AX_TRY(ax_step_set_scalars(s));
    if (s->o.lisa.layers > 0)
        ax_lisa_restore(&s->lisa, count);
    for (int i = 0; i < s->model.n_params; i++) {
        int64_t updates = count;
        if (s->o.lisa.layers > 0) {
            updates = s->lisa.updates[s->model.params[i].unit];
            AX_TRY(set_step(s, updates));
        }
        AX_TRY(ax_param_round(&s->model, i, &s->states[i], updates > 0 ? s->scalars : NULL));
    }
    AX_TRY(set_step(s, count));
    return ax_queue_finish(s->rt->q);
}
