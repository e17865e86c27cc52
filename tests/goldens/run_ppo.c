#include "tests/goldens/run_ppo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/text/tokenizer/tokenizer.h"

#define MAX_MICRO 64   /* of a rollout batch */
#define MAX_WIDTH 4096 /* of a completion */

/* One of the two models, with the loss of each micro-batch of a step. */
struct side {
    struct ax_run *r;
    struct ax_step step;
    struct ax_head_objective inner; /* the product's */
    int n, turn;                    /* micro-batches of a step; of them, whose turn came */
    double loss[MAX_MICRO + 1];     /* up to each, and at the end */
    struct ax_step_measures measures[MAX_MICRO + 1];
    struct ax_run_start start;
};

struct replay {
    struct ax_ppo p;
    struct ax_run *r;
    struct ax_value_options values;
    struct side policy, value;
};

/* ---- settings ---- */

static enum ax_status read_counts(struct ax_run *r, struct ax_ppo_settings *s) {
    int64_t rows, accumulation, mini, epochs, episodes;
    const struct {
        const char *key;
        int64_t *to;
    } counts[] = {{"per_device_train_batch_size", &rows},
                  {"gradient_accumulation_steps", &accumulation},
                  {"num_mini_batches", &mini},
                  {"num_ppo_epochs", &epochs},
                  {"total_episodes", &episodes},
                  {"response_length", &s->width}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        AX_TRY(ax_json_i64(ax_run_setting(r, counts[i].key), 1, 1 << 16, counts[i].to));
    if (accumulation * mini > MAX_MICRO || s->width > MAX_WIDTH)
        return ax_json_error(r->settings, "more than %d micro-batches or %d tokens", MAX_MICRO,
                             MAX_WIDTH);
    s->rows = (int)rows;
    s->accumulation = (int)accumulation;
    s->micro = (int)(accumulation * mini);
    s->epochs = (int)epochs;
    s->batches = (int)ax_json_size(r->steps);
    if (episodes != (int64_t)s->batches * s->micro * rows)
        return ax_json_error(r->settings, "the batches do not make up total_episodes");
    return AX_OK;
}

/* A setting, or what the reference has without it: `defaults` are all that the run had. */
static struct ax_json in_effect(const struct ax_run *r, const char *key) {
    (void)ax_run_setting(r, key);
    return ax_json_get(ax_json_get(ax_json_root(&r->doc), "defaults"), key);
}

static enum ax_status read_settings(struct replay *t, struct ax_policy_options *o) {
    struct ax_ppo_settings *s = &t->p.s;
    const struct ax_json penalty = in_effect(t->r, "missing_eos_penalty"),
                         estimator = in_effect(t->r, "kl_estimator");
    const char *kl;
    bool whitens;
    double temperature;
    const struct {
        const char *key;
        double *to;
    } numbers[] = {{"gamma", &s->gamma},
                   {"lam", &s->lambda},
                   {"kl_coef", &s->kl_coef},
                   {"cliprange", &o->epsilon},
                   {"cliprange_value", &t->values.cliprange},
                   {"vf_coef", &t->values.coef},
                   {"temperature", &temperature}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        AX_TRY(ax_json_f64(in_effect(t->r, numbers[i].key), numbers[i].to));
    AX_TRY(ax_json_str(estimator, &kl));
    AX_TRY(ax_json_bool_or(in_effect(t->r, "whiten_rewards"), false, &whitens));
    if (whitens || ax_kl_estimator_find(kl) < 0)
        return ax_json_error(estimator, "whiten_rewards, or kl_estimator %s, is not supported", kl);
    s->kl = (enum ax_kl_estimator)ax_kl_estimator_find(kl);
    s->penalizes = json_is_number(penalty.v);
    s->penalty = json_number_value(penalty.v);
    o->epsilon_high = o->epsilon;
    t->r->objective = ax_objective_policy(&t->r->policy, o);
    t->r->objective.temperature = temperature + 1e-7;
    return read_counts(t->r, s);
}

/* Both completions of each record, for ax_run_compare_data. */
static enum ax_status open_completions(struct replay *t) {
    struct ax_run_rollouts *o = &t->r->rollouts;
    const char *name;
    struct ax_tokenizer *tokenizer;
    char *dir;
    *o = (struct ax_run_rollouts){.batches = t->p.s.micro, .iterations = 1, .rows = t->p.s.rows};
    o->o.group = 2;
    AX_TRY(ax_run_rollouts_open(t->r));
    AX_TRY(ax_json_str(ax_json_get(ax_json_root(&t->r->doc), "model"), &name));
    AX_TRY(ax_run_path(t->r, name, &dir));
    const enum ax_status st = ax_tokenizer_load(&tokenizer, dir);
    ax_free(dir);
    AX_TRY(st);
    t->p.s.eos = o->eos;
    t->p.s.pad = ax_tokenizer_special_id(tokenizer, AX_PAD);
    ax_tokenizer_free(tokenizer);
    return AX_OK;
}

static void compare_completions(struct replay *t) {
    char where[64];
    for (int k = 0; k < t->r->n_micro; k++)
        for (int i = 0; i < t->p.s.rows; i++) {
            const struct ax_run_micro *m = &t->r->micro[k];
            const json_t *want = t->r->rollouts.ids[ax_run_completion_of(t->r, k, i)];
            const int64_t n = ax_ppo_row(&t->p, k, i)->n, all = (int64_t)json_array_size(want);
            double differ = fabs((double)(n - (all < t->p.s.width ? all : t->p.s.width)));
            for (int64_t j = 0; j < n; j++)
                differ += json_integer_value(json_array_get(want, (size_t)j)) !=
                          m->docs[i].tokens[m->prompt[i] + j];
            snprintf(where, sizeof where, "micro-batch %d of the run, document %d", k + 1, i + 1);
            ax_golden_note(t->r->report, "tokens of completions that differ", differ, 0, where);
        }
}

static void size_step(struct replay *t, struct ax_run *r, const struct ax_objective *o) {
    const struct ax_run_sizes sizes = ax_run_sizes(r);
    r->step.objective = o;
    r->step.max_norm = 0;
    r->step.n_microbatches = t->p.s.accumulation;
    r->step.tokens = sizes.tokens;
    r->step.n_docs = sizes.docs;
    r->step.max_len = sizes.longest;
}

static enum ax_status open_run(struct replay *t, const char *name) {
    struct ax_run *r = t->r, *v = t->p.value;
    struct ax_policy_options o = ax_policy_defaults("bnpo");
    const char *reward, *start;
    o.token_advantages = o.old = true;
    AX_TRY(ax_run_open_case(r, name, "updates"));
    AX_TRY(ax_run_open_case(v, name, "updates"));
    AX_TRY(ax_run_open_model(r, "model"));
    AX_TRY(ax_run_open_model(v, "value_model_start"));
    AX_TRY(ax_json_str(ax_json_get(ax_json_root(&r->doc), "reward_model"), &reward));
    AX_TRY(ax_json_str(ax_json_get(ax_json_root(&r->doc), "value_model_start"), &start));
    if (strcmp(reward, start) != 0)
        return ax_error(AX_ERR_UNSUPPORTED, "value_model_start is not the reward model");
    AX_TRY(read_settings(t, &o));
    v->objective = ax_objective_value(&t->values);
    AX_TRY(open_completions(t));
    AX_TRY(ax_ppo_read(&t->p));
    compare_completions(t);
    r->prefix = "policy.";
    v->prefix = "value.";
    r->n_steps = v->n_steps = t->p.s.batches;
    r->uses = v->uses = t->p.s.epochs;
    size_step(t, r, &t->r->objective);
    size_step(t, v, &v->objective);
    return ax_run_compare_data(r);
}

/* ---- steps ---- */

static enum ax_status read_sums(struct side *s, int at) {
    struct ax_step_scalars now;
    AX_TRY(ax_queue_read(s->step.rt->q, s->step.scalars, &now, sizeof now, NULL));
    s->loss[at] = now.loss;
    return ax_queue_read(s->step.rt->q, s->step.measures, &s->measures[at], sizeof s->measures[at],
                         NULL);
}

/* The reference takes a mean over each micro-batch, and a mean of these. */
static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    struct side *s = ctx;
    const int m = (int)(p->batch - s->step.batches);
    if (!ax_runtime_planning(s->step.rt) && m == s->turn && m < s->n) {
        const double inv_weight = 1 / (p->batch->weight_total * s->n);
        AX_TRY(read_sums(s, m));
        AX_TRY(ax_queue_write(s->step.rt->q, &s->step.scalars->inv_weight, &inv_weight,
                              sizeof inv_weight));
        s->turn++;
    }
    return s->inner.token_grad(s->inner.ctx, p, c);
}

static enum ax_status run_step(struct side *s, int first, double lr, struct ax_step_result *out) {
    s->turn = 0;
    for (int m = 0; m < s->n; m++)
        AX_TRY(ax_batch_fill(&s->step.batches[m], s->step.rt->q, s->step.model.arch.vocab_size,
                             s->r->micro[first + m].n, s->r->micro[first + m].docs));
    AX_TRY(ax_step_run(&s->step, lr, out));
    if (!ax_runtime_planning(s->step.rt) && out->skipped)
        return ax_error(AX_ERR_FAILED, "a step of %smodel was skipped", s->r->prefix);
    return read_sums(s, s->n);
}

/* What a micro-batch added to a measure. */
struct share {
    double sum, of;
};
static struct share share_of(const struct side *s, int m, const char *name) {
    const char *const *names = s->r->objective.measures;
    int i = 0;
    while (strcmp(names[i], name) != 0)
        i++;
    return (struct share){s->measures[m + 1].sum[i] - s->measures[m].sum[i],
                          s->measures[m + 1].of[i] - s->measures[m].of[i]};
}

/* Sums over the micro-batches of an update; TRL takes approxkl's mean over padding, too. */
struct means {
    double policy, value, clipped, value_clipped, kl, n;
};
static void add_means(const struct replay *t, int m, struct means *sum) {
    const struct share clipped = share_of(&t->policy, m, "clip_ratio/region_mean"),
                       kl = share_of(&t->policy, m, "approx_kl"),
                       value = share_of(&t->value, m, "loss/value_avg"),
                       value_clipped = share_of(&t->value, m, "val/clipfrac_avg");
    sum->policy += (t->policy.loss[m + 1] - t->policy.loss[m]) * t->policy.n;
    sum->value += value.sum / value.of;
    sum->clipped += clipped.sum / clipped.of;
    sum->value_clipped += value_clipped.sum / value_clipped.of;
    sum->kl += kl.sum / (double)(t->p.s.rows * t->p.s.width);
    sum->n++;
}

static enum ax_status compare_step(struct replay *t, struct ax_json update, int step,
                                   const struct ax_step_result got[2], struct means *sum) {
    const struct ax_json recorded =
                             ax_json_at(ax_json_get(update, "optimizer_steps"), (size_t)step),
                         losses = ax_json_get(update, "micro_losses");
    double norm, lr, want;
    /* hypot would need glibc 2.35. */
    const double both =
        sqrt(got[0].grad_norm * got[0].grad_norm + got[1].grad_norm * got[1].grad_norm);
    char where[64];
    AX_TRY(ax_json_f64(ax_json_get(recorded, "grad_norm"), &norm));
    AX_TRY(ax_json_f64(ax_json_get(recorded, "learning_rate"), &lr));
    snprintf(where, sizeof where, "update with rate %g, step %d", lr, step + 1);
    ax_golden_note(t->r->report, "grad norm (relative)", fabs(both - norm) / norm, t->r->grad_norm,
                   where);
    ax_golden_note(t->r->report, "learning rate (relative)", fabs(got[0].lr - lr) / lr, 1e-6,
                   where);
    for (int m = 0; m < t->policy.n; m++) {
        const double loss =
            (t->policy.loss[m + 1] - t->policy.loss[m] + t->value.loss[m + 1] - t->value.loss[m]) *
            t->policy.n;
        AX_TRY(ax_json_f64(ax_json_at(losses, (size_t)(step * t->policy.n + m)), &want));
        ax_golden_note(t->r->report, "loss of each micro-batch",
                       fabs(loss - want) / fmax(1, fabs(want)), t->r->loss, where);
        add_means(t, m, sum);
    }
    return AX_OK;
}

static void compare_update(struct replay *t, int b, const struct means *sum) {
    const struct ax_json update = ax_json_at(t->r->steps, (size_t)b);
    struct ax_run_metrics got = {0};
    ax_ppo_rollout_metrics(&t->p, b, &got);
    ax_run_metric_add(&got, "loss/policy_avg", sum->policy / sum->n);
    ax_run_metric_add(&got, "loss/value_avg", sum->value / sum->n);
    ax_run_metric_add(&got, "policy/clipfrac_avg", sum->clipped / sum->n);
    ax_run_metric_add(&got, "val/clipfrac_avg", sum->value_clipped / sum->n);
    ax_run_metric_add(&got, "policy/approxkl_avg", sum->kl / sum->n);
    ax_run_metric_add(&got, "lr", ax_lr_at(&t->r->lr, b));
    ax_run_compare_metrics(t->r, ax_json_get(update, "metrics"), &got, b, -1);
}

/* All epochs on one batch of completions, at one learning rate. */
static enum ax_status one_update(struct replay *t, int b) {
    const bool planning = ax_runtime_planning(t->policy.step.rt);
    const double lr = ax_lr_at(&t->r->lr, b);
    const int steps = t->p.s.micro / t->p.s.accumulation;
    struct means sum = {0};
    AX_TRY(ax_ppo_rate(&t->p, b, &t->policy.step.model, &t->value.step.model));
    if (!planning)
        AX_TRY(ax_ppo_compare_batch(&t->p, b));
    for (int i = 0; i < (planning ? 1 : t->p.s.epochs * steps); i++) {
        const int first = b * t->p.s.micro + i % steps * t->p.s.accumulation;
        struct ax_step_result got[2];
        AX_TRY(run_step(&t->policy, first, lr, &got[0]));
        AX_TRY(run_step(&t->value, first, lr, &got[1]));
        if (!planning)
            AX_TRY(compare_step(t, ax_json_at(t->r->steps, (size_t)b), i, got, &sum));
    }
    if (!planning)
        compare_update(t, b, &sum);
    return AX_OK;
}

static enum ax_status create(struct side *s, struct ax_runtime *rt) {
    AX_TRY(ax_step_create(&s->step, rt, &s->r->arch, &s->r->step));
    AX_TRY(ax_model_load(&s->step.model, &s->r->hf));
    return ax_runtime_planning(rt) ? AX_OK : ax_run_start_read(&s->start, &s->step.model);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct replay *t = ctx;
    const bool planning = ax_runtime_planning(rt);
    enum ax_status st;
    AX_TRY_GOTO(create(&t->policy, rt), st, done);
    AX_TRY_GOTO(create(&t->value, rt), st, done);
    AX_TRY_GOTO(ax_ppo_judge(&t->p, &t->policy.step.model, &t->value.step.model), st, done);
    for (int b = 0; b < (planning ? 1 : t->p.s.batches); b++)
        AX_TRY_GOTO(one_update(t, b), st, done);
    if (planning)
        goto done;
    AX_TRY_GOTO(ax_run_compare_final(t->r, &t->policy.step.model, &t->policy.start), st, done);
    st = ax_run_compare_final(t->p.value, &t->value.step.model, &t->value.start);
done:
    ax_step_free(&t->value.step);
    ax_step_free(&t->policy.step);
    return st;
}

static void wrap(struct replay *t, struct side *s, struct ax_run *r) {
    s->r = r;
    s->n = t->p.s.accumulation;
    s->inner = r->objective.head;
    r->objective.head.token_grad = token_grad;
    r->objective.head.ctx = s;
}

static const struct ax_run_family value_family = {
    .name = "ppo", .loss = 1e-5, .grad_norm = 1e-5, .head = &ax_classifier_reward};

static enum ax_status repeat(struct ax_run *r, const char *name) {
    struct ax_run value = {
        .family = &value_family, .o = r->o, .report = r->report, .dtype = r->dtype};
    struct replay *t;
    enum ax_status st;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    t->r = t->p.policy = r;
    t->p.value = &value;
    const struct ax_runtime_options ro = {.backend = r->o->backend, .threads = r->o->threads};
    AX_TRY_GOTO(ax_strdup(&value.root, r->root), st, done);
    AX_TRY_GOTO(open_run(t, name), st, done);
    wrap(t, &t->policy, r);
    wrap(t, &t->value, &value);
    AX_TRY_GOTO(ax_runtime_run(&ro, body, t, NULL), st, done);
done:
    ax_run_start_free(&t->policy.start);
    ax_run_start_free(&t->value.start);
    ax_ppo_free(&t->p);
    ax_run_close(&value);
    ax_free(t);
    return st;
}

/* For information only. */
static const char *const ratios[] = {"val/ratio*", "policy/entropy_avg", NULL};

const struct ax_run_family ax_run_family_ppo = {.name = "ppo",
                                                .loss = 1e-5,
                                                .grad_norm = 1e-5,
                                                .ignore = ratios,
                                                .record = ax_run_answer_record,
                                                .repeat = repeat};
