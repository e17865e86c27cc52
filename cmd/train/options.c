/* Reads the keys of a run into options: batches, steps, evaluation, saving, resuming, precision,
 * memory. */
#include <math.h>
#include <string.h>

#include "model/convert/base_model.h"
#include "cmd/train/mesh.h"
#include "cmd/train/setup.h"
#include "parallel/job/notes.h"
#include "cmd/tracker/tracker.h"
#include "kernels/backend.h"
#include "parallel/fabric/team.h"

#define PAD 8 /* micro-batches are padded to a multiple of this, for full tiles in GEMMs */

/* ---- resuming, precision and memory ---- */

/* A job that its launcher has started again goes on from its own checkpoints, if there are some. */
static void read_resume(struct ax_train_save *save, const struct ax_run_keys *k) {
    const bool restarted = ax_notes_restarted();
    const char *from = k->resume;
    if (k->resumes || restarted)
        save->resume = AX_RESUME_NEWEST;
    if (!from || strcmp(from, "false") == 0)
        return;
    if (strcmp(from, "auto") == 0 || strcmp(from, "true") == 0) {
        save->resume = AX_RESUME_NEWEST;
    } else if (strcmp(from, "latest-good") == 0) {
        save->resume = AX_RESUME_NEWEST_GOOD;
    } else {
        save->resume = restarted ? AX_RESUME_NEWEST : AX_RESUME_FOLDER;
        save->resume_dir = from;
    }
}

/* What trains faster on this machine; a run that resumes goes on as it began. */
static enum ax_status choose_dtype(enum ax_dtype *out, const struct ax_train_options *o) {
    *out = ax_backend_prefers_bf16(o->runtime.backend) ? AX_BF16 : AX_F32;
    return ax_train_resumed_dtype(&o->save, out);
}

/* By default rank 0 chooses, for all: others may be other machines. */
static enum ax_status read_dtype(enum ax_dtype *out, const struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    const bool leads = !s->fabric || s->fabric->rank == 0;
    *out = AX_F32;
    if (ax_config_holds(cfg, "float32"))
        return AX_OK;
    *out = AX_BF16;
    if (ax_config_holds(cfg, "bfloat16 || fp16 || float16"))
        return AX_OK;
    if (ax_config_holds(cfg, "bf16 != auto")) {
        *out = ax_config_holds(cfg, "bf16") ? AX_BF16 : AX_F32;
        return AX_OK;
    }
    return ax_team_choice(s->fabric, leads ? choose_dtype(out, &s->o) : AX_OK, out, sizeof *out);
}

static void read_recompute(struct ax_train_options *o, const struct ax_config *cfg) {
    const bool all = ax_config_holds(
        cfg, "gradient_checkpointing == true || fsdp_config.activation_checkpointing");
    o->recompute_auto = ax_config_holds(cfg, "gradient_checkpointing == auto");
    o->step.recompute = all ? AX_RECOMPUTE_ON
                        : ax_config_holds(cfg, "gradient_checkpointing == false")
                            ? AX_RECOMPUTE_OFF
                            : AX_RECOMPUTE_SELECTIVE;
}

/* ---- ranks ---- */

static enum ax_status find_choices(char **out) {
    char *cache;
    AX_TRY(ax_base_model_cache(&cache));
    const enum ax_status st = ax_path_join(out, cache, "products");
    ax_free(cache);
    return st;
}

/* Ranks of the mesh, of those that were started, or are planned; 0: as many as the mesh has. */
static enum ax_status count_trainers(const struct ax_train_setup *s, int *trainers) {
    const int started = s->planning ? s->ranks : s->fabric ? s->fabric->world : 1;
    *trainers = started > 0 ? started - s->o.rollout_ranks : 0;
    if (*trainers >= 1 || started == 0)
        return AX_OK;
    return ax_config_error(s->cfg, "rollout_ranks",
                           "%d ranks sample beside those that train, but only %d rank%s started: "
                           "start more with `axtrain launch -n %d -- …`",
                           s->o.rollout_ranks, started, started == 1 ? " was" : "s were",
                           s->o.rollout_ranks + 1);
}

static enum ax_status read_mesh(struct ax_runtime_options *o, struct ax_train_setup *s) {
    int trainers;
    AX_TRY(count_trainers(s, &trainers));
    *o = (struct ax_runtime_options){.tf32 = ax_config_holds(s->cfg, "tf32 == true"),
                                     .attention_varies =
                                         ax_config_holds(s->cfg, "!attention_deterministic"),
                                     .fabric = s->fabric};
    AX_TRY(ax_backend_choose(ax_config_str(s->cfg, "device"), s->planning, &o->backend));
    AX_TRY(ax_train_mesh_read(&o->sizes, s->cfg, trainers));
    o->world = ax_train_mesh_ranks(&o->sizes);
    if (!s->planning)
        AX_TRY(find_choices(&s->choices));
    o->choices = s->choices;
    return AX_OK;
}

/* ---- data ---- */

int64_t ax_train_longest(const struct ax_corpus *c) {
    int64_t n = 1;
    for (size_t i = 0; i < c->n; i++)
        n = c->refs[i].n > n ? c->refs[i].n : n;
    return n;
}

/* Tokens of the group that has most. */
static int64_t largest(const struct ax_corpus *c) {
    int64_t most = 1, n = 0;
    for (size_t i = 0; i < c->n; i++) {
        n = c->refs[i].n + (c->refs[i].joined ? n : 0);
        most = n > most ? n : most;
    }
    return most;
}

/* Without packing a sequence is one example, so none is longer than the longest example. */
static void read_data(struct ax_train_setup *s) {
    const struct ax_setup_data *d = &s->data;
    struct ax_train_data *t = &s->o.data;
    const int64_t group = d->method.objective.per == AX_PER_PAIR ? 2 : 1;
    const bool plain = !ax_setup_pretrains(s->cfg) && !d->keys.packs[false];
    const bool eval_plain = !d->keys.packs[true];
    const int64_t bin = d->keys.bin_size;
    *t = (struct ax_train_data){.train = d->train_loader,
                                .eval = d->eval_loader,
                                .sequences_per_batch = d->sequences_per_batch,
                                .sequence_tokens = d->sequence_tokens,
                                .sequence_docs = plain ? group : bin,
                                .doc_tokens = d->sequence_tokens / group,
                                .drop_last = d->drop_last,
                                .keeps_short = !d->keys.drop_last,
                                .drop_partial = d->drop_partial,
                                .countable = !d->stream && !s->uncounted,
                                .pad = PAD};
    if (plain && !d->stream && !s->uncounted) {
        t->sequence_tokens = largest(&d->train);
        t->doc_tokens = ax_train_longest(&d->train);
    }
    if (!d->eval_loader)
        return;
    const int64_t rows = d->keys.eval_batch_size;
    t->eval_doc_tokens = eval_plain ? ax_train_longest(&d->eval) : d->eval_sequence_tokens / group;
    t->eval_tokens = rows * (eval_plain ? largest(&d->eval) : d->eval_sequence_tokens);
    t->eval_docs = t->eval_tokens / 8 > bin ? t->eval_tokens / 8 : bin;
}

/* ---- how often ----
 *
 * As in transformers' Trainer, evaluations by steps are as frequent as the log if nothing says how often. */

#define USUAL_STEPS 500

/* `usual`: of steps that are not said how many. */
static struct ax_cadence cadence(const struct ax_cadence_keys *k, int64_t usual) {
    const char *word = k->strategy;
    if (!isnan(k->steps))
        return (struct ax_cadence){AX_EACH_STEPS, k->steps};
    if (!isnan(k->per_epoch)) {
        if (!(k->per_epoch > 0))
            return (struct ax_cadence){.when = AX_NEVER};
        return k->per_epoch != 1 ? (struct ax_cadence){AX_EACH_PART, 1 / k->per_epoch}
                                 : (struct ax_cadence){.when = AX_EACH_EPOCH};
    }
    if (word && strcmp(word, "no") == 0)
        return (struct ax_cadence){.when = AX_NEVER};
    if (word && strcmp(word, "best") == 0)
        return (struct ax_cadence){.when = AX_WHEN_BEST};
    if (word && strcmp(word, "steps") == 0)
        return (struct ax_cadence){AX_EACH_STEPS, (double)usual};
    return (struct ax_cadence){.when = AX_EACH_EPOCH};
}

/* ---- evaluation ---- */

static const struct {
    enum ax_best_by metric;
    bool greater;
    const char *alias; /* NULL: its own name */
} metrics[] = {
    {AX_BEST_BY_LOSS, false, NULL},    {AX_BEST_BY_PERPLEXITY, false, NULL},
    {AX_BEST_BY_ACCURACY, true, NULL}, {AX_BEST_BY_ACCURACY, true, "mean_token_accuracy"},
    {AX_BEST_BY_REWARD, true, NULL},
};

static const char *metric_name(size_t i) {
    return metrics[i].alias ? metrics[i].alias : ax_best_by_names[metrics[i].metric];
}

/* The index of the measure of rewards that is called so, or of any with NULL; -1 = none. */
static int find_rewards(const struct ax_objective *o, const char *name) {
    static const char rewards[] = "rewards/";
    const size_t n = strlen(rewards);
    for (int i = 0; o->measures && o->measures[i]; i++)
        if (strncmp(o->measures[i], rewards, n) == 0 &&
            (!name || strcmp(o->measures[i], name) == 0))
            return i;
    return -1;
}

/* What completions are worth is the only metric of a run that rewards them, and of no other. A loss of documents has no
 * perplexity, and preferences have measures of rewards in place of an accuracy. */
static bool has_metric(const struct ax_objective *o, bool samples, enum ax_best_by metric) {
    if (samples || metric == AX_BEST_BY_REWARD)
        return samples && metric == AX_BEST_BY_REWARD;
    return metric == AX_BEST_BY_PERPLEXITY ? !o->documents
           : metric == AX_BEST_BY_ACCURACY ? find_rewards(o, NULL) < 0
                                           : true;
}

static enum ax_status refuse_metric(const struct ax_config *cfg, const char *name,
                                    const struct ax_objective *o, bool samples) {
    char all[128] = "";
    for (size_t i = 0, at = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (has_metric(o, samples, metrics[i].metric))
            at += (size_t)snprintf(all + at, sizeof all - at, "%seval_%s", at > 0 ? ", " : "",
                                   metric_name(i));
    return ax_config_error(cfg, "metric_for_best_model", "\"%s\" is not one of %s%s", name, all,
                           !samples && find_rewards(o, NULL) >= 0 ? ", eval_rewards/…" : "");
}

static enum ax_status read_metric(struct ax_train_eval *e, const struct ax_run_keys *k,
                                  const struct ax_config *cfg, const struct ax_objective *o) {
    const bool samples = ax_method_of(cfg)->task == AX_TASK_PROMPT &&
                         strcmp(ax_method_of(cfg)->name, "distill") != 0;
    const char *wanted = k->metric ? k->metric : samples ? "reward" : "loss";
    const size_t n = sizeof metrics / sizeof *metrics;
    wanted += strncmp(wanted, "eval_", 5) == 0 ? 5 : 0;
    const int measure = samples ? -1 : find_rewards(o, wanted);
    size_t i = 0;
    while (i < n &&
           (strcmp(wanted, metric_name(i)) != 0 || !has_metric(o, samples, metrics[i].metric)))
        i++;
    if (i == n && measure < 0)
        return refuse_metric(cfg, k->metric, o, samples);
    e->metric = i < n ? metrics[i].metric : AX_BEST_BY_MEASURE;
    e->measure = i < n ? 0 : measure;
    e->greater_is_better = k->greater_is_better ? strcmp(k->greater_is_better, "true") == 0
                                                : i == n || metrics[i].greater;
    return AX_OK;
}

static enum ax_status read_eval(struct ax_train_setup *s, const struct ax_run_keys *k) {
    const struct ax_config *cfg = s->cfg;
    struct ax_train_eval *e = &s->o.eval;
    e->when = cadence(&k->eval,
                      s->o.metrics.logging_steps > 0 ? s->o.metrics.logging_steps : USUAL_STEPS);
    e->load_best = e->load_best || e->patience > 0;
    e->keep_best = e->load_best || k->metric;
    AX_TRY(read_metric(e, k, cfg, &s->data.method.objective));
    const char *needs = e->patience > 0 ? "early_stopping_patience"
                        : e->load_best  ? "load_best_model_at_end"
                        : e->keep_best  ? "metric_for_best_model"
                                        : NULL;
    if (needs && !s->data.eval_loader && !s->uncounted)
        return ax_config_error(cfg, needs,
                               "no evaluation records; set val_set_size or test_datasets");
    if (needs && e->when.when == AX_NEVER)
        return ax_config_error(cfg, needs, "nothing is evaluated; set eval_steps");
    return AX_OK;
}

/* ---- saving ---- */

/* A relative path begins in output_dir, as in axolotl. */
static enum ax_status read_trigger(struct ax_train_setup *s, const struct ax_run_keys *k) {
    const bool named = k->trigger_file && k->trigger_file[0];
    const char *name = named ? k->trigger_file : "axolotl_checkpoint.save";
    if (!k->triggered)
        return AX_OK;
    AX_TRY(ax_path_join(&s->trigger_file, name[0] == '/' ? "" : s->o.save.output_dir, name));
    s->o.save.trigger_file = s->trigger_file;
    return AX_OK;
}

static enum ax_status read_save(struct ax_train_setup *s, const struct ax_run_keys *k) {
    const struct ax_config *cfg = s->cfg;
    struct ax_train_save *save = &s->o.save;
    save->when = cadence(&k->save, USUAL_STEPS);
    save->hf.dtype = s->o.step.model.dtype;
    if (save->when.when == AX_WHEN_BEST && s->o.eval.when.when == AX_NEVER)
        return ax_config_error(cfg, "save_strategy", "best needs evaluations; set eval_steps");
    return read_trigger(s, k);
}

/* ---- all ---- */

/* What follows from the model and the data; keys are read over it. */
static void begin(struct ax_train_setup *s) {
    struct ax_train_options *o = &s->o;
    const struct ax_distill_options *distill = s->data.method.objective.head.distill;
    o->arch = &s->arch;
    o->weights = s->hf.dir ? &s->hf : NULL;
    o->teacher_weights = s->teacher_hf.dir ? &s->teacher_hf : NULL;
    o->teacher_adapter = s->teacher_adapter.dir ? &s->teacher_adapter : NULL;
    o->remote = s->remote;
    o->start = s->start.dir ? &s->start : NULL;
    o->config = s->config;
    o->about = s->about;
    o->is_fixed = ax_config_is_fixed;
    o->is_default = ax_config_is_default;
    o->step = (struct ax_step_options){
        .objective = &s->data.method.objective,
        .teacher = distill && distill->stored == 0 ? &s->teacher_arch : NULL,
        .teacher_adapter = o->teacher_adapter ? &o->teacher_adapter->config : NULL,
        .teacher_on_base = s->teacher_on_base,
        .n_microbatches = (int)(s->data.sequences_per_step / s->data.sequences_per_batch),
        .virtual_stages = 1,
        .balance_coef = s->arch.moe.balance_coef,
        .model = {.adapter = s->adapter,
                  .base_store = s->base_store,
                  .store_experts = s->store_experts,
                  .coded = s->coded,
                  .unfrozen = s->unfrozen.n > 0 ? &s->unfrozen : NULL}};
    if (s->teacher_name && !distill) {
        const bool is_here = !ax_endpoint_is_url(s->teacher_name);
        o->rollout.teacher = is_here ? &s->teacher_arch : NULL;
        o->rollout.reader = s->teacher_reader.tokenizer ? &s->teacher_reader : NULL;
        o->rollout.most_read = s->teacher_reads;
        o->rollout.remote = s->remote;
    }
    o->warmup = -1;
    o->warmup_ratio = -1;
    o->watchdog = NAN;
    o->replica_check = -1;
}

static enum ax_status read_tasks(struct ax_train_setup *s) {
    AX_TRY(
        ax_setup_tasks_read(&s->tasks, s->cfg, &s->data, s->planning ? NULL : s->base, s->fabric));
    s->o.tasks = s->tasks.o;
    return AX_OK;
}

enum ax_status ax_train_options_read(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    struct ax_train_options *o = &s->o;
    struct ax_run_keys k = {.save = {NULL, NAN, NAN}, .eval = {NULL, NAN, NAN}};
    begin(s);
    AX_FILL(cfg, "", struct ax_train_options, o);
    AX_FILL(cfg, "", struct ax_run_keys, &k);
    AX_TRY(read_mesh(&o->runtime, s));
    AX_TRY(ax_train_qat_read(s));
    AX_TRY(ax_train_sharding_read(&o->step.model.sharding, cfg));
    if (o->step.virtual_stages > AX_MAX_CHUNKS)
        o->step.virtual_stages = AX_MAX_CHUNKS + 1; /* which is too many */
    o->step.model.tp_overlap = ax_config_holds(cfg, "tp_overlap == chunks");
    o->step.tp_auto = ax_config_holds(cfg, "tp_overlap == auto");
    /* also without expert_parallel_size: `axtrain plan --search` tries other meshes */
    o->step.model.expert_overlap = ax_config_holds(cfg, "expert_overlap == halves");
    o->step.model.expert_room = ax_config_f64(cfg, "expert_parallel_buffer_factor");
    read_resume(&o->save, &k);
    AX_TRY(read_dtype(&o->step.model.dtype, s));
    read_recompute(o, cfg);
    read_data(s);
    AX_TRY(ax_setup_rollout_read(&s->rollout, cfg, &s->data, s->planning ? NULL : s->base, o));
    if (o->max_steps <= 0 || ax_config_is_set(cfg, "num_epochs"))
        o->epochs = ax_config_f64(cfg, "num_epochs");
    AX_TRY(ax_train_optimizer_read(o, cfg));
    AX_TRY(ax_train_lr_read(o, cfg));
    AX_TRY(read_eval(s, &k));
    AX_TRY(ax_setup_samples_read(&s->samples, cfg, &s->data, s->planning ? NULL : s->base));
    o->samples = s->samples.o;
    AX_TRY(read_tasks(s));
    AX_TRY(read_save(s, &k));
    o->measure_peak = ax_measure_peak;
    o->metrics.tensorboard = ax_tracker_is_on(cfg, "tensorboard");
    if (ax_config_is_null(cfg, "loss_watchdog_threshold")) {
        o->watchdog = 0;
        o->watchdog_patience = 0;
    }
    return AX_OK;
}
