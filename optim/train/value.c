/* PPO's value model in a run: a step of its own beside the policy's, on the same completions, with the
 * same mesh and optimizer. The two share no parameter, so it makes no difference which goes first. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/adapter/load.h"
#include "optim/train/run.h"

/* ---- memory ---- */

static const struct ax_model *lends(const struct ax_step *s) {
    return ax_step_keeps_base(&s->o) ? &s->model : NULL;
}

const struct ax_model *ax_train_lender(const struct ax_train *t, enum ax_lender which) {
    return which == AX_LENDER_POLICY  ? lends(&t->step)
           : which == AX_LENDER_VALUE ? lends(&t->value.step)
                                      : NULL;
}

/* With an adapter of its own, or all of its weights train, whatever the policy trains. */
static struct ax_step_options value_options(const struct ax_train *t) {
    struct ax_step_options o = t->step.o;
    o.objective = t->o->value.objective;
    o.model.adapter = t->o->value.adapter;
    o.model.lender = t->o->value.on_policy ? lends(&t->step) : NULL;
    if (!o.model.adapter) {
        o.model.base_store = AX_STORAGE_PLAIN;
        o.model.store_experts = false;
    }
    o.model.unfrozen = NULL;
    o.model.qat = NULL;
    o.relora = (struct ax_relora_options){0};
    o.balance_coef = o.sequence_coef = o.router_bias_speed = 0;
    return o;
}

enum ax_status ax_train_value_create(struct ax_train *t) {
    if (!ax_train_has_value(t->o))
        return AX_OK;
    const struct ax_step_options o = value_options(t);
    const enum ax_status st = ax_step_create(&t->value.step, t->step.rt, t->o->value.arch, &o);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "the value model");
}

enum ax_status ax_train_value_load(struct ax_train *t) {
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

/* ---- a step ---- */

void ax_train_value_clear(struct ax_train *t) {
    struct ax_train_sequences *r = &t->value.sequences;
    memset(r->n_docs, 0, (size_t)r->n_batches * sizeof *r->n_docs);
}

/* Labels and columns are in place: of a completion's places. */
void ax_train_value_append(struct ax_train *t, int m, int64_t at, const struct ax_completion *c) {
    struct ax_train_sequences *r = &t->value.sequences;
    const int64_t from = c->n_prompt - 1, n = ax_rollout_places(&t->rollout, c);
    const float *const columns[] = {t->rollout.values, t->rollout.returns};
    int32_t *tokens = r->tokens + m * r->cap_tokens + at;
    int32_t *labels = r->labels + m * r->cap_tokens + at;
    struct ax_document *doc = &r->docs[m * r->cap_docs + r->n_docs[m]++];
    AX_ASSERT(at + c->n <= r->cap_tokens && r->n_docs[m] <= r->cap_docs);
    *doc = (struct ax_document){.n = c->n, .tokens = tokens, .labels = labels};
    memcpy(tokens, t->rollout.ids + c->start, (size_t)c->n * sizeof *tokens);
    for (int64_t i = 0; i < c->n; i++)
        labels[i] = i >= from && i < from + n ? 0 : AX_NO_LABEL;
    AX_ASSERT(r->columns->n == 2);
    for (int k = 0; k < 2; k++) {
        doc->columns[k] = ax_train_column_at(r, m, k, at);
        memcpy(ax_train_column_at(r, m, k, at), columns[k] + c->start,
               (size_t)c->n * sizeof *columns[k]);
    }
}

/* In each line of metrics, behind those of a generation's first. */
static void put_value_figures(struct ax_train *t, const struct ax_step_result *r) {
    struct ax_figures *f = &t->value.figures;
    const char *const *names = t->o->value.objective->measures;
    f->n = 0;
    if (t->rollout.turn == 1)
        *f = t->rollout.figures;
    for (int i = 0; names[i] && f->n < AX_FIGURES_MAX; i++, f->n++) {
        (void)snprintf(f->names[f->n], sizeof f->names[0], "%s", names[i]);
        f->values[f->n] = r->measures[i];
    }
    AX_ASSERT(f->n < AX_FIGURES_MAX);
    (void)snprintf(f->names[f->n], sizeof f->names[0], "val/grad_norm");
    f->values[f->n++] = r->grad_norm;
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

/* ---- checkpoints ---- */

static void before_update(void *ctx, int unit) {
    struct ax_train *t = ctx;
    ax_saver_before_update(&t->saver, t->value.first_unit + unit);
}

static void rename_part(struct ax_train_value *v, struct ax_state_part *part, int i) {
    (void)snprintf(v->names[i], sizeof *v->names, "value.%s", part->name);
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
    v->step.before_update = before_update;
    v->step.before_update_ctx = t;
done:
    ax_state_parts_free(&own);
    return st;
}
