/* Executes the action table: one small function per kind of action. */
#include "optim/step.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

static const char *const phase_names[AX_TIME_COUNT] = {"forward", "backward", "optimizer"};

const char *ax_step_phase_name(enum ax_step_phase phase) {
    return phase_names[phase];
}

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

static enum ax_status act_backward(struct ax_step *s, const struct ax_action *a) {
    return ax_pass_backward(&s->passes[a->microbatch], a->unit);
}

static enum ax_status act_reduce(struct ax_step *s, const struct ax_action *a) {
    return ax_unit_reduce(&s->model.units[a->unit], s->rt);
}

/* Σ over the ranks of a role of one double in device memory. */
static enum ax_status sum_double(struct ax_step *s, enum ax_role role, double *value) {
    const struct ax_collective what = {
        .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = value, .recv = value, .count = 1};
    return ax_comm_run(&s->rt->comms[role], s->rt->q, &what);
}

/* Every element once: this rank's shards, summed over the ranks that hold the others. */
static enum ax_status act_clip(struct ax_step *s, const struct ax_action *a) {
    (void)a;
    for (int u = 0; u < s->model.n_units; u++) {
        for (int k = 0; k < s->model.units[u].n_segments; k++) {
            const struct ax_segment *seg = &s->model.units[u].segments[k];
            if (seg->trainable)
                AX_TRY(ax_run_sumsq(s->rt->q, &(struct ax_sumsq){seg->grad, s->scalars}));
        }
    }
    AX_TRY(sum_double(s, AX_ROLE_FSDP, &s->scalars->sumsq));
    return ax_run_clip(s->rt->q, &(struct ax_clip){s->scalars});
}

static enum ax_status act_update(struct ax_step *s, const struct ax_action *a) {
    for (int i = 0; i < s->model.n_params; i++)
        if (s->model.params[i].unit == a->unit)
            AX_TRY(ax_param_update(&s->model, i, &s->states[i], s->o.optimizer, &s->o.opt,
                                   s->scalars));
    return AX_OK;
}

static const struct {
    enum ax_status (*run)(struct ax_step *s, const struct ax_action *a);
    enum ax_step_phase phase;
} handlers[AX_ACT_COUNT] = {
    [AX_ACT_BEGIN] = {act_begin, AX_TIME_FORWARD},
    [AX_ACT_GATHER] = {act_gather, AX_TIME_FORWARD},
    [AX_ACT_FORWARD] = {act_forward, AX_TIME_FORWARD},
    [AX_ACT_BACKWARD] = {act_backward, AX_TIME_BACKWARD},
    [AX_ACT_RELEASE] = {act_release, AX_TIME_BACKWARD},
    [AX_ACT_END] = {act_end, AX_TIME_BACKWARD},
    [AX_ACT_REDUCE] = {act_reduce, AX_TIME_BACKWARD},
    [AX_ACT_CLIP] = {act_clip, AX_TIME_OPTIMIZER},
    [AX_ACT_UPDATE] = {act_update, AX_TIME_OPTIMIZER},
};

static enum ax_status execute(struct ax_step *s, int first, int end) {
    for (int i = first; i < end; i++) {
        const struct ax_action *a = &s->schedule.actions[i];
        const double start = ax_clock_now();
        AX_TRY(handlers[a->kind].run(s, a));
        s->seconds[handlers[a->kind].phase] += ax_clock_now() - start;
    }
    return AX_OK;
}

/* Σ weight over all micro-batches and data ranks, before anything is computed. */
static enum ax_status weigh(struct ax_step *s, double *total) {
    double sum = 0;
    for (int m = 0; m < s->o.n_microbatches; m++)
        sum += s->batches[m].weight_total;
    AX_TRY(ax_queue_write(s->rt->q, &s->scalars->inv_weight, &sum, sizeof sum));
    AX_TRY(sum_double(s, AX_ROLE_BATCH, &s->scalars->inv_weight));
    return ax_queue_read(s->rt->q, &s->scalars->inv_weight, total, sizeof *total, &sum);
}

enum ax_status ax_step_gradients(struct ax_step *s, struct ax_step_result *out) {
    *out = (struct ax_step_result){0};
    memset(s->seconds, 0, sizeof s->seconds);
    AX_TRY(weigh(s, &out->weight_total));
    struct ax_step_scalars now = {.inv_weight = out->weight_total > 0 ? 1 / out->weight_total : 0,
                                  .max_norm = s->o.max_norm,
                                  .step = s->count + 1,
                                  .seed = s->o.seed};
    AX_TRY(ax_queue_write(s->rt->q, s->scalars, &now, sizeof now));
    AX_TRY(execute(s, 0, s->schedule.first_update + 1));
    AX_TRY(sum_double(s, AX_ROLE_LOSS, &s->scalars->loss));
    AX_TRY(ax_queue_read(s->rt->q, s->scalars, &now, sizeof now, &now));
    out->loss = now.loss;
    out->grad_norm = now.grad_norm;
    out->skipped = now.skip != 0;
    memcpy(out->seconds, s->seconds, sizeof out->seconds);
    return AX_OK;
}

enum ax_status ax_step_update(struct ax_step *s, double lr, struct ax_step_result *out) {
    out->lr = lr;
    AX_TRY(ax_queue_write(s->rt->q, &s->scalars->lr, &lr, sizeof lr));
    AX_TRY(execute(s, s->schedule.first_update + 1, s->schedule.n));
    AX_TRY(ax_queue_finish(s->rt->q));
    s->count += !out->skipped;
    memcpy(out->seconds, s->seconds, sizeof out->seconds);
    return AX_OK;
}

enum ax_status ax_step_run(struct ax_step *s, double lr, struct ax_step_result *out) {
    AX_TRY(ax_step_gradients(s, out));
    return ax_step_update(s, lr, out);
}

static enum ax_status create(struct ax_step *s, const struct ax_arch *arch) {
    struct ax_arena *arena = &s->rt->arena;
    const struct ax_model_options mo = {
        .dtype = s->o.dtype, .train = true, .masters = s->o.masters, .max_positions = s->o.max_len};
    AX_TRY(ax_model_create(&s->model, arch, s->rt, &mo));
    AX_TRY(ax_param_states_create(&s->states, &s->model, s->o.optimizer, &s->o.opt));
    AX_TRY(ax_schedule_create(&s->schedule, s->model.n_units, s->o.n_microbatches, false));
    AX_ASSERT(s->schedule.n_slots <= arena->n_slots);
    const size_t ranks_before = (size_t)s->rt->mesh.coord[AX_ROLE_BATCH];
    const size_t n = (size_t)s->o.n_microbatches, slots = (size_t)s->schedule.n_slots;
    AX_TRY(ax_alloc(&s->batches, n, sizeof *s->batches));
    AX_TRY(ax_alloc(&s->passes, n, sizeof *s->passes));
    AX_TRY(ax_alloc(&s->slots, slots, sizeof *s->slots));
    s->scalars = ax_stack_push(&arena->persistent, "step scalars", sizeof *s->scalars);
    for (size_t i = 0; i < slots; i++)
        AX_TRY(ax_slot_create(&s->slots[i], &s->model, &arena->slots[i]));
    for (size_t m = 0; m < n; m++) {
        ax_batch_allocate(&s->batches[m], &arena->persistent, s->o.tokens, s->o.n_docs,
                          s->o.max_len);
        s->passes[m] =
            (struct ax_pass){.model = &s->model,
                             .batch = &s->batches[m],
                             .scalars = s->scalars,
                             .recompute = s->o.recompute,
                             .objective = &s->o.objective->head,
                             .inv_temperature = 1,
                             .neftune_alpha = s->o.neftune_alpha,
                             .first_token = (int64_t)(ranks_before * n + m) * s->o.tokens};
    }
    return AX_OK;
}

enum ax_status ax_step_create(struct ax_step *s, struct ax_runtime *rt, const struct ax_arch *arch,
                              const struct ax_step_options *o) {
    *s = (struct ax_step){.rt = rt, .o = *o};
    enum ax_status st = create(s, arch);
    if (st != AX_OK)
        ax_step_free(s);
    return st;
}

void ax_step_free(struct ax_step *s) {
    for (int i = 0; s->slots && i < s->schedule.n_slots; i++)
        ax_slot_free(&s->slots[i]);
    ax_free(s->states);
    ax_free(s->slots);
    ax_free(s->passes);
    ax_free(s->batches);
    ax_schedule_free(&s->schedule);
    ax_model_free(&s->model);
    *s = (struct ax_step){0};
}
