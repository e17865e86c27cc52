/* The part of a rank that samples alone (rollout_ranks): it takes weights, draws generations with them ahead of the ranks
 * that train (ahead.c), rewards them, and sends them. These ranks share a generation's prompts as data ranks do, and each
 * has the entire model. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/text/json.h"
#include "optim/train/run.h"

struct sampler {
    struct ax_train *t;
    struct ax_runtime *rt;
    struct ax_model policy;
    struct ax_drafter drafter;
    struct ax_teacher reference; /* unless a new adapter trains, whose base it is */
    int trainers;
    int64_t version;                /* of the weights that it has; −1: none yet */
    struct ax_handover_order order; /* the last one */
};

/* ---- models ---- */

static bool has_reference_copy(const struct ax_train_options *o) {
    return ax_rollout_refers(&o->rollout) && ax_train_copies_reference(o);
}

/* The policy as it is trained, without what only training needs. */
static struct ax_model_options policy_options(const struct ax_train_options *o) {
    const struct ax_step_options so = ax_train_step_options(o);
    struct ax_model_options mo = so.model;
    mo.train = mo.count_loads = false;
    mo.max_positions = ax_step_positions(&so);
    mo.sharding = (struct ax_sharding){0};
    mo.offload = (struct ax_offload){0};
    return mo;
}

static enum ax_status create_models(struct sampler *s) {
    const struct ax_train_options *o = s->t->o;
    const struct ax_model_options mo = policy_options(o);
    AX_TRY(ax_model_create(&s->policy, o->arch, s->rt, &mo));
    if (o->rollout.drafts)
        AX_TRY(ax_drafter_create(&s->drafter, &s->policy, &mo));
    return has_reference_copy(o)
               ? ax_train_create_reference(o, &s->reference, &s->policy, mo.max_positions)
               : AX_OK;
}

static enum ax_status load_models(struct sampler *s) {
    const struct ax_train_options *o = s->t->o;
    AX_TRY(ax_train_load_base(o, &s->policy));
    if (o->step.model.adapter)
        AX_TRY(ax_train_start_adapter(&s->policy, o));
    if (o->rollout.drafts)
        AX_TRY(ax_train_load_base(o, &s->drafter.model));
    return has_reference_copy(o) ? ax_train_load_reference(o, &s->reference.model) : AX_OK;
}

static struct ax_rollout_models models_of(struct sampler *s) {
    const struct ax_train_options *o = s->t->o;
    return (struct ax_rollout_models){.policy = &s->policy,
                                      .reference = has_reference_copy(o) ? &s->reference.model
                                                   : ax_rollout_refers(&o->rollout) ? &s->policy
                                                                                    : NULL};
}

/* ---- letters ---- */

static enum ax_status finish_outgoing(struct sampler *s, struct ax_train_outgoing *out) {
    for (int i = 0; out->text && i < s->trainers; i++)
        AX_TRY(ax_team_sent(&s->t->all, &out->letters[i]));
    ax_free(out->text);
    out->text = NULL;
    return AX_OK;
}

/* To all that train; they had the one before in its place when they gave the weights for this one. */
static enum ax_status send_generation(struct sampler *s) {
    const struct ax_train *t = s->t;
    struct ax_train_outgoing *out =
        &t->ahead.outgoing[t->rollout.generation % (t->o->rollout.staleness + 1)];
    json_t *letter;
    if (t->mesh.rank > 0)
        return AX_OK;
    AX_TRY(finish_outgoing(s, out));
    AX_TRY(ax_rollout_to_letter(&t->rollout, t->o->data.train, &letter));
    out->text = json_dumps(letter, JSON_COMPACT);
    json_decref(letter);
    if (!out->text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a generation");
    if (!out->letters)
        AX_TRY(ax_alloc(&out->letters, (size_t)s->trainers, sizeof *out->letters));
    for (int i = 0; i < s->trainers; i++) {
        out->letters[i] =
            (struct ax_team_letter){.data = out->text, .bytes = (int64_t)strlen(out->text)};
        AX_TRY(ax_team_send(&s->t->all, i, &out->letters[i]));
    }
    return AX_OK;
}

/* ---- the loop ---- */

static enum ax_status take_order(struct sampler *s) {
    const int from = s->t->mesh.rank % s->trainers;
    AX_TRY(ax_handover_receive(&s->t->all, from, &s->policy, &s->order));
    s->version = s->order.end ? s->version : s->order.version;
    return AX_OK;
}

static enum ax_status draw(struct sampler *s, double waited) {
    struct ax_train *t = s->t;
    const struct ax_rollout_models m = models_of(s);
    bool stopped;
    t->rollout.version = s->version;
    AX_TRY(
        ax_train_schedule_progress(&t->schedule, &t->o->data, t->rollout.generation, &t->rollout));
    AX_TRY(ax_rollout_generate(&t->rollout, &m, t->o->data.train, &stopped));
    AX_ASSERT(!stopped); /* signals are not for it */
    ax_figures_add(&t->rollout.figures, "backpressure_s", waited);
    return send_generation(s);
}

static enum ax_status sample_on(struct sampler *s) {
    struct ax_train *t = s->t;
    while (!s->order.end && t->rollout.generation < t->schedule.total) {
        const int64_t oldest = t->rollout.generation - t->o->rollout.staleness;
        const double start = ax_clock_now();
        while (!s->order.end && s->version < (oldest > 0 ? oldest : 0))
            AX_TRY(take_order(s));
        if (!s->order.end)
            AX_TRY(draw(s, ax_clock_now() - start));
    }
    while (!s->order.end)
        AX_TRY(take_order(s));
    for (int64_t i = 0; i <= t->o->rollout.staleness; i++)
        AX_TRY(finish_outgoing(s, &t->ahead.outgoing[i]));
    return AX_OK;
}

static enum ax_status sample(struct sampler *s) {
    const struct ax_rollout_models m = models_of(s);
    struct ax_rollout plan = {.o = &s->t->o->rollout};
    bool stopped;
    if (ax_runtime_planning(s->rt)) {
        if (s->t->o->step.model.adapter)
            AX_TRY(ax_train_start_adapter(&s->policy, s->t->o));
        return ax_rollout_generate(&plan, &m, NULL, &stopped);
    }
    AX_TRY(load_models(s));
    return sample_on(s);
}

static enum ax_status run_sampler(struct ax_runtime *rt, void *ctx) {
    struct sampler *s = ctx;
    s->rt = rt;
    enum ax_status st = create_models(s);
    if (st == AX_OK)
        st = sample(s);
    if (has_reference_copy(s->t->o))
        ax_teacher_free(&s->reference);
    ax_drafter_free(&s->drafter);
    ax_model_free(&s->policy);
    return st;
}

/* ---- where it begins ---- */

static enum ax_status read_start(struct ax_train *t, struct ax_json v) {
    struct ax_loader_state at;
    AX_TRY(ax_json_bool(ax_json_get(v, "nothing_to_do"), &t->out->nothing_to_do));
    AX_TRY(ax_json_i64(ax_json_get(v, "total"), 0, INT64_MAX, &t->schedule.total));
    AX_TRY(ax_json_i64(ax_json_get(v, "generation"), 0, INT32_MAX, &t->rollout.generation));
    AX_TRY(ax_loader_state_from_json(&at, ax_json_get(v, "data").v));
    return ax_loader_restore(t->o->data.train, &at);
}

static enum ax_status receive_start(struct ax_train *t) {
    struct ax_json_doc doc;
    char *text;
    int64_t n;
    AX_TRY(ax_team_receive(&t->all, 0, &text, &n));
    enum ax_status st = ax_json_parse(&doc, "start", text, (size_t)n);
    ax_free(text);
    AX_TRY(st);
    st = read_start(t, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_train_sample(struct ax_train *t) {
    struct sampler s = {.t = t, .trainers = t->all.size - t->mesh.world, .version = -1};
    AX_TRY(receive_start(t));
    if (t->out->nothing_to_do)
        return AX_OK;
    ax_stop_ignore();
    AX_TRY(ax_runtime_run(&t->runtime, run_sampler, &s, &t->out->plan));
    if (s.order.status == AX_OK)
        return AX_OK;
    return ax_error((enum ax_status)s.order.status, "asked to stop, with the ranks that train");
}
