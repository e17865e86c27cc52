/* Models beside the policy: PPO's value model, which trains, too; what drafts, the reference, teachers and models that
 * reward. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/adapter/load.h"
#include "optim/train/run.h"

/* ---- PPO's value model ---- */

/* A step of its own beside the policy's, on the same completions, with the same mesh and optimizer.
 * The two share no parameter, so it makes no difference which goes first. */

static const struct ax_model *base_to_lend(const struct ax_step *s) {
    return ax_step_keeps_base(&s->o) ? &s->model : NULL;
}

/* The model whose frozen weights others may read; NULL if it changes them. */
static const struct ax_model *lender_of(const struct ax_train *t, enum ax_lender which) {
    return which == AX_LENDER_POLICY  ? base_to_lend(&t->step)
           : which == AX_LENDER_VALUE ? base_to_lend(&t->value.step)
                                      : NULL;
}

/* With an adapter of its own, or all of its weights train, whatever the policy trains. */
static struct ax_step_options value_options(const struct ax_train *t) {
    struct ax_step_options o = t->step.o;
    o.objective = t->o->value.objective;
    o.model.adapter = t->o->value.adapter;
    o.model.lender = t->o->value.on_policy ? base_to_lend(&t->step) : NULL;
    if (!o.model.adapter) {
        o.model.base_store = AX_STORAGE_PLAIN;
        o.model.store_experts = false;
    }
    if (!t->o->value.on_policy)
        o.model.coded = NULL;
    o.model.unfrozen = NULL;
    o.model.qat = NULL;
    o.relora = (struct ax_relora_options){0};
    o.balance_coef = o.sequence_coef = o.router_bias_speed = 0;
    o.model.indexers = AX_INDEXERS_FROZEN;
    return o;
}

enum ax_status ax_train_value_create(struct ax_train *t) {
    if (!ax_train_has_value(t->o))
        return AX_OK;
    const struct ax_step_options o = value_options(t);
    const enum ax_status st = ax_step_create(&t->value.step, t->step.rt, t->o->value.arch, &o);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "the value model");
}

static enum ax_status load_value(struct ax_train *t) {
    struct ax_model *m = &t->value.step.model;
    if (!ax_train_has_value(t->o))
        return AX_OK;
    AX_TRY(ax_train_sequences_create(&t->value.sequences, &t->value.step));
    AX_TRY(t->o->value.weights ? ax_model_load(m, t->o->value.weights)
                               : ax_model_init_random(m, t->o->step.seed + !t->o->value.on_policy));
    return t->o->value.adapter ? ax_adapter_init(m, t->o->step.seed + 1) : AX_OK;
}

enum ax_status ax_train_value_plan(struct ax_train *t) {
    struct ax_step *s = &t->value.step;
    struct ax_step_result r;
    if (!ax_train_has_value(t->o))
        return AX_OK;
    for (int m = 0; m < s->o.n_microbatches; m++)
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, 0, NULL));
    return ax_step_run(s, 0, &r);
}

void ax_train_value_free(struct ax_train *t) {
    ax_train_sequences_free(&t->value.sequences);
    ax_step_free(&t->value.step);
}

/* ---- a step of the value model ---- */

/* In each line of metrics, behind those of a generation's first. */
static void put_value_figures(struct ax_train *t, const struct ax_step_result *r) {
    struct ax_figures *f = &t->value.figures;
    const char *const *names = t->o->value.objective->measures;
    f->n = 0;
    if (t->rollout.turn == 1)
        *f = t->rollout.figures;
    for (int i = 0; names[i]; i++)
        ax_figures_add(f, names[i], r->measures[i]);
    ax_figures_add(f, "val/grad_norm", r->grad_norm);
}

enum ax_status ax_train_value_step(struct ax_train *t) {
    struct ax_train_value *v = &t->value;
    struct ax_step_result r;
    if (!ax_train_has_value(t->o))
        return AX_OK;
    memcpy(v->sequences.longest, t->sequences.longest,
           (size_t)v->sequences.n_batches * sizeof *v->sequences.longest);
    AX_TRY(ax_train_sequences_fill(&v->sequences, &v->step));
    AX_TRY(ax_step_run(&v->step, ax_lr_at(&t->schedule.lr, t->done), &r));
    put_value_figures(t, &r);
    return AX_OK;
}

/* ---- the value model in checkpoints ---- */

static void before_value_update(void *ctx, int unit) {
    struct ax_train *t = ctx;
    ax_saver_before_update(&t->saver, t->value.first_unit + unit);
}

static void rename_part(struct ax_train_value *v, struct ax_state_part *part, int i) {
    (void)snprintf(v->names[i], sizeof *v->names, AX_VALUE_PREFIX "%s", part->name);
    part->name = v->names[i];
    part->unit += v->first_unit;
}

/* Behind the policy's. */
enum ax_status ax_train_value_parts(struct ax_train *t, int first_unit) {
    struct ax_train_value *v = &t->value;
    struct ax_state_parts own = {0};
    enum ax_status st;
    if (!ax_train_has_value(t->o))
        return AX_OK;
    v->first_unit = first_unit;
    AX_TRY_GOTO(ax_param_states_parts(&v->step.model, v->step.states, &own), st, done);
    const size_t before = (size_t)t->contents.parts.n, more = (size_t)own.n;
    AX_TRY_GOTO(ax_alloc(&v->names, more, sizeof *v->names), st, done);
    for (int i = 0; i < own.n; i++)
        rename_part(v, &own.list[i], i);
    AX_TRY_GOTO(ax_regrow(&t->contents.parts.list, before, before + more, sizeof *own.list), st,
                done);
    memcpy(t->contents.parts.list + before, own.list, more * sizeof *own.list);
    t->contents.parts.n += own.n;
    v->step.before_update = before_value_update;
    v->step.before_update_ctx = t;
done:
    ax_state_parts_free(&own);
    return st;
}

/* ---- the reference ---- */

static bool has_reference(const struct ax_train *t) {
    return ax_train_has_rollout(t->o) && t->o->rollout_ranks == 0 &&
           ax_rollout_refers(&t->o->rollout);
}

static bool has_reference_copy(const struct ax_train *t) {
    return has_reference(t) && ax_train_copies_reference(t->o);
}

static struct ax_model *reference_model(struct ax_train *t) {
    return has_reference_copy(t) ? &t->reference.model : has_reference(t) ? &t->step.model : NULL;
}

enum ax_status ax_train_load_base(const struct ax_train_options *o, struct ax_model *m) {
    return o->weights ? ax_model_load(m, o->weights) : ax_model_init_random(m, o->step.seed);
}

/* An adapter that was there is a part of the reference, on the base that it shares with the one that trains. */
enum ax_status ax_train_create_reference(const struct ax_train_options *o, struct ax_teacher *t,
                                         const struct ax_model *policy, int64_t max_positions) {
    const struct ax_teacher_options copy = {.arch = o->arch,
                                            .max_positions = max_positions,
                                            .adapter = o->step.model.adapter,
                                            .on_base = ax_step_keeps_base(&o->step),
                                            .base_store = o->step.model.base_store,
                                            .store_experts = o->step.model.store_experts,
                                            .coded = o->step.model.coded};
    return ax_teacher_create(t, &copy, policy);
}

enum ax_status ax_train_load_reference(const struct ax_train_options *o, struct ax_model *m) {
    AX_TRY(ax_train_load_base(o, m));
    return o->start ? ax_adapter_load(m, o->start) : AX_OK;
}

/* ---- all models beside the one that trains ---- */

enum ax_status ax_train_rollout_create(struct ax_train *t) {
    const struct ax_rollout_options *o = &t->o->rollout;
    struct ax_teacher_options teacher = ax_step_teacher_options(&t->step.o, o->teacher);
    if (o->most_read > teacher.max_positions)
        teacher.max_positions = o->most_read;
    if (o->drafts)
        AX_TRY(ax_drafter_create(&t->drafter, &t->step.model, &t->step.o.model));
    if (has_reference_copy(t))
        AX_TRY(ax_train_create_reference(t->o, &t->reference, &t->step.model,
                                         ax_step_positions(&t->step.o)));
    if (o->teacher)
        AX_TRY(ax_teacher_create(&t->teacher, &teacher, &t->step.model));
    for (int i = 0; i < o->n_models; i++)
        AX_TRY(ax_reward_model_create(o->models[i], &t->step.model,
                                      lender_of(t, o->models[i]->lender)));
    return AX_OK;
}

enum ax_status ax_train_rollout_load(struct ax_train *t) {
    const struct ax_rollout_options *o = &t->o->rollout;
    if (o->drafts)
        AX_TRY(ax_train_load_base(t->o, &t->drafter.model));
    if (has_reference_copy(t))
        AX_TRY(ax_train_load_reference(t->o, &t->reference.model));
    for (int i = 0; i < o->n_models; i++)
        AX_TRY(ax_reward_model_load(o->models[i]));
    return load_value(t);
}

void ax_train_rollout_free(struct ax_train *t) {
    for (int i = 0; i < t->o->rollout.n_models; i++)
        ax_reward_model_free(t->o->rollout.models[i]);
    ax_drafter_free(&t->drafter);
    ax_teacher_free(&t->reference);
    ax_teacher_free(&t->teacher);
}

struct ax_rollout_models ax_train_rollout_models(struct ax_train *t) {
    return (struct ax_rollout_models){.policy = &t->step.model,
                                      .reference = reference_model(t),
                                      .value =
                                          ax_train_has_value(t->o) ? &t->value.step.model : NULL,
                                      .teacher = t->o->rollout.teacher ? &t->teacher.model : NULL};
}

struct ax_teacher *ax_train_teacher(struct ax_train *t) {
    return t->o->rollout.teacher ? &t->teacher : ax_step_teacher(&t->step);
}
