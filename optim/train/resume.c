/* What a checkpoint stores about a run, and what a run starts with: the base, or a checkpoint. It continues
 * bit-identical to a run that never stopped. Random numbers need no state: they are functions of seed and
 * step. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/net/endpoint.h"
#include "base/stop.h"
#include "kernels/finite.h"
#include "model/adapter/load.h"
#include "model/adapter/pissa.h"
#include "optim/train/run.h"

/* ---- the state of a run ---- */

static json_t *watch_json(const struct ax_train_watch *w) {
    json_t *losses = json_array();
    const int64_t n = ax_train_watch_size(w);
    bool ok = losses != NULL;
    for (int64_t i = 0; ok && i < n; i++)
        ok = json_array_append_new(losses, json_real(w->window[i])) == 0;
    if (!ok) { /* a checkpoint with fewer losses could not be read */
        json_decref(losses);
        return NULL;
    }
    return json_pack("{sI sI sI so}", "seen", (json_int_t)w->n, "bad_in_a_row",
                     (json_int_t)w->bad_in_a_row, "above_in_a_row", (json_int_t)w->above_in_a_row,
                     "losses", losses);
}

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for the state of the run");
}

/* Takes `v`; NULL: there was no memory for it. */
static enum ax_status put(json_t *run, const char *key, json_t *v) {
    return json_object_set_new(run, key, v) == 0 ? AX_OK : no_memory();
}

/* The algorithms of its products, where there is a choice: other ones have other bits. */
static enum ax_status put_choices(const struct ax_train *t, json_t *run) {
    struct ax_buf text = {0};
    enum ax_status st = ax_queue_choices(t->rt->q, &text);
    if (st == AX_OK && text.len > 0)
        st = put(run, "products", json_string(text.data));
    ax_buf_free(&text);
    return st;
}

static enum ax_status put_rollout(const struct ax_train *t, json_t *run) {
    json_t *rollout;
    AX_TRY(ax_rollout_to_json(&t->rollout, &rollout));
    return put(run, "rollout", rollout);
}

/* What only some runs have, and the compute dtype of this one, which the configuration may leave to the machine. */
static enum ax_status put_parts(const struct ax_train *t, json_t *run) {
    AX_TRY(put(run, "compute_dtype", json_string(ax_dtype_info(t->step.o.model.dtype)->name)));
    if (t->o->remote)
        AX_TRY(put(run, "teacher", json_string(ax_remote_teacher_model(t->o->remote))));
    if (*t->base)
        AX_TRY(put(run, "base", json_string(t->base)));
    AX_TRY(put_choices(t, run));
    if (isfinite(t->out->loss))
        AX_TRY(put(run, "loss", json_real(t->out->loss)));
    if (ax_train_has_rollout(t->o))
        AX_TRY(put_rollout(t, run));
    if (ax_train_runs_ahead(t->o))
        AX_TRY(put(run, "ahead", ax_train_ahead_json(t)));
    if (ax_train_has_value(t->o))
        AX_TRY(put(run, "value_updates", json_integer(t->value.step.count)));
    return AX_OK;
}

/* What is evaluated on, as a text that differs where the examples do. */
#define EXAMPLES_TEXT 24
static void put_examples(const struct ax_train *t, char text[EXAMPLES_TEXT]) {
    const struct ax_loader *l = t->o->data.eval;
    snprintf(text, EXAMPLES_TEXT, "%016llx", l ? (unsigned long long)ax_loader_examples(l) : 0ULL);
}

enum ax_status ax_train_describe(const struct ax_train *t, json_t **out) {
    char examples[EXAMPLES_TEXT];
    struct ax_loader_state at;
    json_t *data;
    *out = NULL;
    put_examples(t, examples);
    ax_loader_save(t->o->data.train, &at);
    AX_TRY(ax_loader_state_to_json(&at, &data));
    json_t *run = json_pack(
        "{sI sI sI sf sI sI so s{ss ss sb sI sf sI sI sf} s{sb sb} s{sI sf} so sO*}", "step",
        (json_int_t)t->done, "total_steps", (json_int_t)t->schedule.total, "updates",
        (json_int_t)t->step.count, "epoch", t->epoch, "tokens", (json_int_t)t->tokens,
        "trained_tokens", (json_int_t)t->trained, "data", data, "best", "metric",
        ax_train_best_by(t), "data", examples, "greater_is_better", t->o->eval.greater_is_better,
        "step", (json_int_t)t->best_step, "value", t->best, "evaluations_since",
        (json_int_t)t->worse, "kept_step", (json_int_t)t->kept.step, "kept_value", t->kept.value,
        "evaluation", "owed", t->pending_eval, "epoch_ended", t->epoch_ended, "logging", "steps",
        (json_int_t)t->window.steps, "loss", t->window.loss, "watch", watch_json(&t->watch),
        "config", (json_t *)(uintptr_t)t->o->config);
    const enum ax_status st = run ? put_parts(t, run) : no_memory();
    if (st != AX_OK)
        json_decref(run);
    else
        *out = run;
    return st;
}

/* ---- is it the same run? ---- */

static char *value_text(const json_t *v) {
    return v ? json_dumps(v,
                          JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(15))
             : NULL;
}

/* A server may have moved. */
static bool are_urls(const json_t *was, const json_t *is) {
    return ax_endpoint_is_url(json_string_value(was)) && ax_endpoint_is_url(json_string_value(is));
}

static enum ax_status compare_key(const struct ax_train_options *o, const char *dir,
                                  const char *key, const json_t *was, const json_t *is) {
    if (was && is && json_equal((json_t *)(uintptr_t)was, (json_t *)(uintptr_t)is))
        return AX_OK;
    char *before = value_text(was), *now = value_text(is);
    enum ax_status st = AX_OK;
    if (o->is_fixed && o->is_fixed(key) && !are_urls(was, is))
        st = ax_error(
            AX_ERR_CONFIG,
            "%s was %s in the run that wrote %s and is %s now: a different run. Change it back, or "
            "start over with another output_dir and without resume_from_checkpoint.",
            key, before ? before : "unset", dir, now ? now : "unset");
    else if (strncmp(key, "resume_", 7) != 0)
        ax_log_info("changed since the checkpoint: %s from %s to %s", key,
                    before ? before : "unset", now ? now : "unset");
    ax_free(before);
    ax_free(now);
    return st;
}

static enum ax_status compare_maps(const struct ax_train_options *o, const char *dir,
                                   const char *above, const json_t *was, const json_t *is);

/* What a map holds is compared key by key (`trl.num_generations`), unless it is one key's value. */
static enum ax_status compare_value(const struct ax_train_options *o, const char *dir,
                                    const char *path, const json_t *was, const json_t *is) {
    const bool maps = json_is_object(was ? was : is) && json_is_object(is ? is : was);
    return maps && !(o->is_fixed && o->is_fixed(path)) ? compare_maps(o, dir, path, was, is)
                                                       : compare_key(o, dir, path, was, is);
}

/* The maps at path `above`; NULL: there is none. A key that the run did not have, maybe because no axtrain had it
 * then, was at its default. */
static enum ax_status compare_maps(const struct ax_train_options *o, const char *dir,
                                   const char *above, const json_t *was, const json_t *is) {
    const char *key;
    json_t *v;
    char path[512];
    json_object_foreach((json_t *)(uintptr_t)was, key, v) {
        snprintf(path, sizeof path, "%s%s%s", above, above[0] ? "." : "", key);
        AX_TRY(compare_value(o, dir, path, v, json_object_get(is, key)));
    }
    json_object_foreach((json_t *)(uintptr_t)is, key, v) {
        snprintf(path, sizeof path, "%s%s%s", above, above[0] ? "." : "", key);
        if (!json_object_get(was, key) && !(o->is_default && o->is_default(path, v)))
            AX_TRY(compare_value(o, dir, path, NULL, v));
    }
    return AX_OK;
}

static enum ax_status compare_config(const struct ax_train_options *o, const char *dir,
                                     const json_t *was) {
    return was && o->config ? compare_maps(o, dir, "", was, o->config) : AX_OK;
}

/* Another URL may be the same teacher's, or another's. */
static void compare_teacher(const struct ax_train *t, const char *dir, struct ax_json run) {
    const char *was = json_string_value(ax_json_get(run, "teacher").v);
    const char *is = t->o->remote ? ax_remote_teacher_model(t->o->remote) : NULL;
    if (was && is && strcmp(was, is) != 0)
        ax_log_warn("the teacher was \"%s\" in the run that wrote %s and is \"%s\" now", was, dir,
                    is);
}

/* ---- resuming ---- */

static enum ax_status read_watch(struct ax_train_watch *w, struct ax_json v) {
    AX_TRY(ax_json_i64(ax_json_get(v, "seen"), 0, INT64_MAX, &w->n));
    AX_TRY(ax_json_i64(ax_json_get(v, "bad_in_a_row"), 0, INT64_MAX, &w->bad_in_a_row));
    AX_TRY(ax_json_i64(ax_json_get(v, "above_in_a_row"), 0, INT64_MAX, &w->above_in_a_row));
    const struct ax_json losses = ax_json_get(v, "losses");
    const int64_t n = ax_train_watch_size(w);
    if ((int64_t)ax_json_size(losses) != n)
        return ax_json_error(losses, "expected %lld losses", (long long)n);
    for (int64_t i = 0; i < n; i++)
        AX_TRY(ax_json_f64(ax_json_at(losses, (size_t)i), &w->window[i]));
    return AX_OK;
}

static enum ax_status read_logging(struct ax_train *t, struct ax_json run) {
    const struct ax_json window = ax_json_get(run, "logging");
    AX_TRY(ax_json_i64_or(ax_json_get(window, "steps"), 0, INT64_MAX, 0, &t->window.steps));
    AX_TRY(ax_json_f64_or(ax_json_get(window, "loss"), 0, &t->window.loss));
    return ax_json_f64_or(ax_json_get(run, "loss"), NAN, &t->out->loss);
}

/* If the data changed, the epoch restarts, because positions in it no longer mean anything. */
static enum ax_status read_position(const struct ax_train *t, const char *dir, const json_t *v) {
    struct ax_loader *loader = t->o->data.train;
    struct ax_loader_state at;
    enum ax_status st = ax_loader_state_from_json(&at, v);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s", dir);
    st = ax_loader_restore(loader, &at);
    if (st == AX_OK)
        return AX_OK;
    if (!t->o->save.resume_with_changes)
        return ax_error(st,
                        "%s: %s. Change them back, or set resume_with_changes: true to begin "
                        "epoch %lld again with the new data",
                        dir, ax_error_text(), (long long)at.epoch);
    ax_error_clear();
    ax_log_warn("resume_with_changes: the data differ from those of %s, so epoch %lld begins again",
                dir, (long long)at.epoch);
    ax_loader_start_epoch(loader, at.epoch);
    return AX_OK;
}

/* Values of another metric, or on other data, cannot be compared with those to come. */
static enum ax_status forget_other_best(struct ax_train *t, struct ax_json best) {
    const struct ax_train_eval *e = &t->o->eval;
    char examples[EXAMPLES_TEXT];
    const char *metric, *data;
    bool greater;
    put_examples(t, examples);
    AX_TRY(ax_json_str_or(ax_json_get(best, "metric"), ax_train_best_by(t), &metric));
    AX_TRY(ax_json_str_or(ax_json_get(best, "data"), examples, &data));
    AX_TRY(ax_json_bool_or(ax_json_get(best, "greater_is_better"), e->greater_is_better, &greater));
    const bool same = strcmp(metric, ax_train_best_by(t)) == 0 && greater == e->greater_is_better;
    if (same && strcmp(data, examples) == 0)
        return AX_OK;
    if (ax_train_is_main(t) && e->keep_best && t->best_step > 0)
        ax_log_warn("the best evaluation so far was %s: the best one is chosen among those from "
                    "now on",
                    same ? "on other data" : "by another metric");
    t->best_step = t->worse = 0;
    t->kept = (struct ax_train_kept){0};
    return AX_OK;
}

/* A checkpoint that lies elsewhere names the best one of another folder; at the end that of output_dir is read. */
static enum ax_status forget_absent_best(struct ax_train *t) {
    char *best;
    if (t->kept.step == 0 || !(t->o->eval.keep_best || t->o->eval.load_best))
        return AX_OK;
    AX_TRY(ax_checkpoint_path(&best, t->o->save.output_dir, t->kept.step));
    if (!ax_path_is_dir(best)) {
        if (ax_train_is_main(t))
            ax_log_warn("the checkpoint of the best evaluation so far would be %s, which is not "
                        "there: the best one is chosen among those that are saved from now on",
                        best);
        t->kept = (struct ax_train_kept){0};
    }
    ax_free(best);
    return AX_OK;
}

/* Steps of another size than the plan's have taken another part of an epoch, and the plan counts steps. */
static void warn_of_epochs(const struct ax_train *t) {
    const struct ax_train_schedule *s = &t->schedule;
    const double end = t->epoch + (double)(s->total - t->done) / s->of_epoch;
    if (!ax_train_is_main(t) || !s->countable || strcmp(s->limit, "num_epochs") != 0 ||
        ax_train_has_rollout(t->o) || t->done >= s->total ||
        fabs(end - t->o->epochs) < 0.02 + 2 / s->of_epoch)
        return;
    ax_log_warn(
        "num_epochs: training ends at epoch %.2f instead of %g: it counts steps as they are "
        "now, and those before the checkpoint were of another size",
        end, t->o->epochs);
}

static enum ax_status read_run(struct ax_train *t, const struct ax_checkpoint *c) {
    struct ax_json run = ax_json_get(ax_json_root(&c->manifest), "run");
    AX_TRY(compare_config(t->o, c->dir, ax_json_get(run, "config").v));
    if (ax_train_is_main(t))
        compare_teacher(t, c->dir, run);
    AX_TRY(ax_json_i64(ax_json_get(run, "step"), 0, INT64_MAX, &t->done));
    AX_TRY(ax_json_i64(ax_json_get(run, "updates"), 0, INT64_MAX, &t->updates));
    AX_TRY(ax_json_f64(ax_json_get(run, "epoch"), &t->epoch));
    AX_TRY(ax_json_i64(ax_json_get(run, "tokens"), 0, INT64_MAX, &t->tokens));
    AX_TRY(ax_json_i64(ax_json_get(run, "trained_tokens"), 0, INT64_MAX, &t->trained));
    const struct ax_json best = ax_json_get(run, "best");
    AX_TRY(ax_json_i64(ax_json_get(best, "step"), 0, INT64_MAX, &t->best_step));
    AX_TRY(ax_json_f64(ax_json_get(best, "value"), &t->best));
    AX_TRY(ax_json_i64(ax_json_get(best, "evaluations_since"), 0, INT64_MAX, &t->worse));
    AX_TRY(ax_json_i64(ax_json_get(best, "kept_step"), 0, INT64_MAX, &t->kept.step));
    AX_TRY(ax_json_f64(ax_json_get(best, "kept_value"), &t->kept.value));
    AX_TRY(forget_other_best(t, best));
    AX_TRY(forget_absent_best(t));
    const struct ax_json evaluation = ax_json_get(run, "evaluation");
    AX_TRY(ax_json_bool_or(ax_json_get(evaluation, "owed"), false, &t->pending_eval));
    AX_TRY(ax_json_bool_or(ax_json_get(evaluation, "epoch_ended"), false, &t->epoch_ended));
    AX_TRY(read_watch(&t->watch, ax_json_get(run, "watch")));
    AX_TRY(read_logging(t, run));
    t->stop_early = t->o->eval.patience > 0 && t->worse >= t->o->eval.patience;
    if (ax_train_has_rollout(t->o))
        AX_TRY(ax_rollout_from_json(&t->rollout, ax_json_get(run, "rollout")));
    if (ax_train_runs_ahead(t->o))
        AX_TRY(ax_train_ahead_read(t, ax_json_get(run, "ahead")));
    if (ax_train_has_value(t->o))
        AX_TRY(ax_json_i64(ax_json_get(run, "value_updates"), 0, INT64_MAX, &t->value.updates));
    AX_TRY(ax_train_elastic_read(t, c->dir, run));
    warn_of_epochs(t);
    return read_position(t, c->dir, ax_json_get(run, "data").v);
}

/* Of a damaged checkpoint, unless that has been done. */
static enum ax_status hint_at_older(const struct ax_train *t, enum ax_status st) {
    if (st != AX_ERR_DATA)
        return st;
    return ax_error_prefix(st, t->o->save.resume == AX_RESUME_NEWEST_GOOD
                                   ? "resume_from_checkpoint"
                                   : "resume_from_checkpoint (latest-good falls back to the "
                                     "previous one)");
}

enum ax_status ax_train_read_run(struct ax_train *t, const char *dir) {
    struct ax_checkpoint c;
    if (ax_train_is_main(t))
        AX_TRY(ax_folder_recover(dir));
    AX_TRY(hint_at_older(t, ax_checkpoint_open(&c, dir)));
    const enum ax_status st = read_run(t, &c);
    ax_checkpoint_close(&c);
    return st;
}

/* Removes checkpoints that an interrupted run did not get to remove; only after the one to resume
 * from was verified. */
static void prune_checkpoints(const struct ax_train *t) {
    const struct ax_train_save *save = &t->o->save;
    const int64_t keep[] = {t->done, t->kept.step};
    if (save->resume != AX_RESUME_FOLDER)
        ax_checkpoint_prune(save->output_dir, save->limit, t->o->eval.keep_best ? 2 : 1, keep);
}

bool ax_train_has_buffers(const struct ax_train *t) {
    const struct ax_model *m = &t->step.model;
    bool any = false;
    for (int i = 0; i < m->n_params; i++)
        any = any || m->params[i].buffer;
    return any && !ax_train_saved_adapter(t->o);
}

/* Buffers are no part of the state but of the model beside it; beside an adapter there is no model. */
static enum ax_status load_buffers(struct ax_train *t, const char *dir) {
    struct ax_model *m = &t->step.model;
    struct ax_hf hf;
    if (!ax_train_has_buffers(t))
        return AX_OK;
    AX_TRY(ax_hf_open(&hf, dir));
    const enum ax_status st = ax_model_load_buffers(m, &hf);
    ax_hf_close(&hf);
    return st;
}

static enum ax_status resume_choices(struct ax_train *t, const struct ax_checkpoint *c) {
    const char *text = json_string_value(json_object_get(c->run, "products"));
    return text ? ax_choices_resume(t->rt, text) : AX_OK;
}

/* Is `dir` where this run saves its step? One elsewhere, in memory too, is not what `auto` resumes from. */
static enum ax_status is_own(const struct ax_train *t, const char *dir, bool *own) {
    struct stat a, b;
    char *path;
    AX_TRY(ax_checkpoint_path(&path, t->o->save.output_dir, t->done));
    *own =
        stat(dir, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    ax_free(path);
    return AX_OK;
}

static enum ax_status load_checkpoint(struct ax_train *t, const char *dir) {
    struct ax_checkpoint c = {0};
    enum ax_status st;
    bool own;
    AX_TRY_GOTO(ax_team_agree(&t->team, ax_checkpoint_open(&c, dir)), st, done);
    AX_TRY_GOTO(ax_checkpoint_verify(&c, &t->team), st, done);
    AX_TRY_GOTO(ax_checkpoint_load(&c, &t->contents.parts), st, done);
    AX_TRY_GOTO(load_buffers(t, dir), st, done);
    AX_TRY_GOTO(resume_choices(t, &c), st, done);
    AX_TRY_GOTO(ax_step_restore(&t->step, t->updates), st, done);
    if (ax_train_has_value(t->o))
        AX_TRY_GOTO(ax_step_restore(&t->value.step, t->value.updates), st, done);
    AX_TRY_GOTO(is_own(t, dir, &own), st, done);
    t->saved = own ? t->done : 0;
    if (ax_train_is_main(t) && !t->elastic.resumed)
        prune_checkpoints(t);
done:
    ax_checkpoint_close(&c);
    return hint_at_older(t, st);
}

enum ax_status ax_train_start_adapter(struct ax_model *m, const struct ax_train_options *o) {
    if (o->start)
        return ax_adapter_load(m, o->start);
    AX_TRY(ax_adapter_init(m, o->step.seed));
    return ax_adapter_pissa_start(m, o->weights, o->step.seed);
}

static enum ax_status load_adapter(struct ax_model *m, const char *dir) {
    struct ax_peft peft;
    AX_TRY(ax_peft_open(&peft, dir));
    const enum ax_status st = ax_adapter_load(m, &peft);
    ax_peft_close(&peft);
    return st;
}

enum ax_status ax_train_load_weights(struct ax_train *t, const char *dir) {
    struct ax_model *m = &t->step.model;
    struct ax_hf hf;
    if (ax_train_saved_adapter(t->o))
        return load_adapter(m, dir);
    AX_TRY(ax_hf_open(&hf, dir));
    const enum ax_status st = ax_model_load(m, &hf);
    ax_hf_close(&hf);
    if (st != AX_OK || !t->o->step.model.adapter)
        return st;
    return ax_adapter_init(m, t->o->step.seed); /* the weights contain the trained one */
}

/* ---- what a run starts with ---- */

/* Loads the teacher, which checkpoints do not contain; on resume, too. */
static enum ax_status load_teacher(struct ax_train *t) {
    struct ax_teacher *teacher = ax_train_teacher(t);
    if (!teacher)
        return AX_OK;
    AX_TRY(t->o->teacher_weights ? ax_model_load(&teacher->model, t->o->teacher_weights)
                                 : ax_model_init_random(&teacher->model, t->o->step.seed + 1));
    return t->o->teacher_adapter ? ax_adapter_load(&teacher->model, t->o->teacher_adapter) : AX_OK;
}

/* Does the checkpoint's state have the tensor? The value model's are there with a prefix. */
static bool is_in_state(const struct ax_train *t, const char *prefix, const char *name) {
    const struct ax_state_parts *parts = &t->contents.parts;
    const size_t n = strlen(prefix);
    for (int i = 0; i < parts->n; i++)
        if (strncmp(parts->list[i].name, prefix, n) == 0 &&
            strcmp(parts->list[i].name + n, name) == 0)
            return true;
    return false;
}

/* The folder that a weight was read from. */
static const char *folder_of(const struct ax_train *t, const struct ax_model *m,
                             const struct ax_param *p, const char *resume_from) {
    const struct ax_train_options *o = t->o;
    const bool policy = m == &t->step.model;
    const struct ax_hf *base = policy ? o->weights : o->value.weights;
    const bool stored = is_in_state(t, policy ? "" : AX_VALUE_PREFIX, p->name) ||
                        (policy && p->buffer && ax_train_has_buffers(t));
    return resume_from && stored                ? resume_from
           : policy && o->start && p->trainable ? o->start->dir
           : base                               ? base->dir
                                                : "fresh weights";
}

/* Names the first weight that is infinite or NaN. */
static enum ax_status check_model(const struct ax_train *t, const struct ax_model *m,
                                  const char *resume_from) {
    struct ax_nonfinite bad;
    int param;
    AX_TRY(ax_train_first_nonfinite(m, &param, &bad));
    if (param == m->n_params)
        return AX_OK;
    const struct ax_param *p = &m->params[param];
    return ax_error(AX_ERR_DATA,
                    "%s: %stensor %s: element %lld is %g, and a model cannot be trained from that; "
                    "get another copy",
                    folder_of(t, m, p, resume_from),
                    m == &t->step.model ? "" : "the value model's ", p->name, (long long)bad.at,
                    bad.value);
}

static enum ax_status check_weights(const struct ax_train *t, const char *resume_from) {
    AX_TRY(check_model(t, &t->step.model, resume_from));
    return ax_train_has_value(t->o) ? check_model(t, &t->value.step.model, resume_from) : AX_OK;
}

/* Checkpoints omit frozen weights. */
static bool has_frozen_weights(const struct ax_model *m) {
    for (int i = 0; i < m->n_params; i++)
        if (!m->params[i].trainable && !m->params[i].buffer)
            return true;
    return false;
}

/* Its name is the same, but the folder may have been trained anew. */
static enum ax_status compare_base(const struct ax_train *t, const char *dir) {
    const char *wish = getenv("AXTRAIN_BASE");
    struct ax_checkpoint c;
    AX_TRY(ax_checkpoint_open(&c, dir));
    const char *was = json_string_value(json_object_get(c.run, "base"));
    const bool same = !was || strcmp(was, t->base) == 0 || (wish && strcmp(wish, "any") == 0);
    ax_checkpoint_close(&c);
    return same ? AX_OK
                : ax_error(AX_ERR_CONFIG,
                           "the weights of %s are others than in the run that wrote %s: give that "
                           "base, or insist with AXTRAIN_BASE=any in the environment",
                           t->o->weights->dir, dir);
}

/* Checkpoints have neither frozen weights nor the reference. */
static enum ax_status check_base(struct ax_train *t, const char *resume_from) {
    const struct ax_train_options *o = t->o;
    const bool samples = ax_train_has_rollout(o) && ax_rollout_refers(&o->rollout);
    const bool read = samples || ax_train_has_reference(o) || has_frozen_weights(&t->step.model);
    if (!o->weights || !read)
        return AX_OK;
    AX_TRY(ax_base_values(o->weights, t->base));
    return resume_from ? hint_at_older(t, compare_base(t, resume_from)) : AX_OK;
}

enum ax_status ax_train_load(struct ax_train *t, const char *resume_from) {
    const struct ax_train_options *o = t->o;
    const bool refers = ax_train_has_reference(o);
    AX_TRY(check_base(t, resume_from));
    if (!resume_from || refers || has_frozen_weights(&t->step.model))
        AX_TRY(ax_train_load_base(o, &t->step.model));
    if (o->step.model.adapter) /* also on resume: PiSSA changes the base */
        AX_TRY(ax_train_start_adapter(&t->step.model, o));
    AX_TRY(load_teacher(t));
    AX_TRY(ax_train_rollout_load(t));
    if (refers) {
        ax_stop_watch();
        AX_TRY(ax_train_refer(t));
    }
    if (resume_from)
        AX_TRY(load_checkpoint(t, resume_from));
    AX_TRY(check_weights(t, resume_from));
    if (!refers)
        ax_stop_watch();
    return AX_OK;
}
