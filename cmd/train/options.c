/* Reads the keys of a run into options: batches, steps, evaluation, saving, resuming, precision,
 * memory. */
#include <math.h>
#include <string.h>

#include "model/convert/base_model.h"
#include "cmd/train/mesh.h"
#include "cmd/train/setup.h"
#include "cmd/tracker/tracker.h"
#include "kernels/backend.h"
#include "parallel/fabric/team.h"

#define PAD 8 /* micro-batches are padded to a multiple of this, for full tiles in GEMMs */

/* ---- resuming, precision and memory ---- */

static enum ax_status read_resume(struct ax_train_save *save, const struct ax_config *cfg) {
    const char *from = ax_config_str(cfg, "resume_from_checkpoint");
    if (ax_config_bool(cfg, "auto_resume_from_checkpoints"))
        save->resume = AX_RESUME_NEWEST;
    if (!from || strcmp(from, "false") == 0)
        return AX_OK;
    if (strcmp(from, "auto") == 0 || strcmp(from, "true") == 0) {
        save->resume = AX_RESUME_NEWEST;
    } else if (strcmp(from, "latest-good") == 0) {
        save->resume = AX_RESUME_NEWEST_GOOD;
    } else {
        save->resume = AX_RESUME_FOLDER;
        save->resume_dir = from;
    }
    return AX_OK;
}

/* What trains faster on this machine; a run that resumes goes on as it began. */
static enum ax_status choose_dtype(enum ax_dtype *out, const struct ax_config *cfg,
                                   const char *backend) {
    struct ax_train_save save = {.output_dir = ax_config_str(cfg, "output_dir")};
    *out = ax_backend_prefers_bf16(backend) ? AX_BF16 : AX_F32;
    AX_TRY(read_resume(&save, cfg));
    return ax_train_resumed_dtype(&save, out);
}

/* By default rank 0 chooses, for all: others may be other machines. */
static enum ax_status read_dtype(enum ax_dtype *out, const struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    const bool leads = !s->fabric || s->fabric->rank == 0;
    *out = AX_F32;
    if (ax_config_bool(cfg, "float32"))
        return AX_OK;
    *out = AX_BF16;
    if (ax_config_bool(cfg, "bfloat16") || ax_config_bool(cfg, "fp16") ||
        ax_config_bool(cfg, "float16"))
        return AX_OK;
    if (strcmp(ax_config_str(cfg, "bf16"), "auto") != 0) {
        *out = ax_config_bool(cfg, "bf16") ? AX_BF16 : AX_F32;
        return AX_OK;
    }
    return ax_team_choice(s->fabric, leads ? choose_dtype(out, cfg, s->o.runtime.backend) : AX_OK,
                          out, sizeof *out);
}

static void read_recompute(struct ax_train_options *o, const struct ax_config *cfg) {
    const char *mode = ax_config_str(cfg, "gradient_checkpointing");
    o->recompute_auto = strcmp(mode, "auto") == 0;
    o->step.recompute = strcmp(mode, "false") == 0 ? AX_RECOMPUTE_OFF : AX_RECOMPUTE_SELECTIVE;
    if (strcmp(mode, "true") == 0 || ax_config_bool(cfg, "fsdp_config.activation_checkpointing"))
        o->step.recompute = AX_RECOMPUTE_ON;
}

/* ---- ranks ---- */

static enum ax_status find_choices(char **out) {
    char *cache;
    AX_TRY(ax_base_model_cache(&cache));
    const enum ax_status st = ax_path_join(out, cache, "products");
    ax_free(cache);
    return st;
}

static enum ax_status read_mesh(struct ax_runtime_options *o, struct ax_train_setup *s) {
    const int started = s->fabric ? s->fabric->world : 1;
    const char *tf32 = ax_config_str(s->cfg, "tf32");
    *o = (struct ax_runtime_options){.tf32 = strcmp(tf32, "true") == 0, .fabric = s->fabric};
    AX_TRY(ax_backend_choose(ax_config_str(s->cfg, "device"), s->planning, &o->backend));
    AX_TRY(ax_train_mesh_read(&o->sizes, s->cfg, s->planning ? s->ranks : started));
    o->world = ax_train_mesh_ranks(&o->sizes);
    if (!s->planning)
        AX_TRY(find_choices(&s->choices));
    o->choices = s->choices;
    return AX_OK;
}

static enum ax_status read_pipeline(struct ax_step_options *o, const struct ax_config *cfg) {
    AX_TRY(ax_pipeline_parse(ax_config_str(cfg, "pipeline_parallel_schedule"), &o->pipeline));
    const int64_t n = o->pipeline == AX_PIPELINE_INTERLEAVED
                          ? ax_config_i64(cfg, "virtual_pipeline_parallel_size")
                          : 1;
    o->virtual_stages = n > AX_MAX_CHUNKS ? AX_MAX_CHUNKS + 1 : (int)n; /* which is too many */
    return AX_OK;
}

/* ---- data ---- */

static int64_t longest(const struct ax_corpus *c) {
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
    const struct ax_config *cfg = s->cfg;
    const struct ax_setup_data *d = &s->data;
    struct ax_train_data *t = &s->o.data;
    const bool pretraining = ax_config_count(cfg, "pretraining_dataset") > 0;
    const int64_t group = d->method.objective.per == AX_PER_PAIR ? 2 : 1;
    const bool plain = !pretraining && !ax_config_bool(cfg, "sample_packing");
    const bool eval_plain = !ax_config_bool(cfg, "eval_sample_packing");
    const int64_t bin = ax_config_i64(cfg, "sample_packing_bin_size");
    *t = (struct ax_train_data){.train = d->train_loader,
                                .eval = d->eval_loader,
                                .sequences_per_batch = d->sequences_per_batch,
                                .sequence_tokens = d->sequence_tokens,
                                .sequence_docs = plain ? group : bin,
                                .doc_tokens = d->sequence_tokens / group,
                                .drop_last = d->drop_last,
                                .drop_partial = d->drop_partial,
                                .countable = !d->stream && !s->uncounted,
                                .pad = PAD};
    if (plain && !d->stream && !s->uncounted) {
        t->sequence_tokens = largest(&d->train);
        t->doc_tokens = longest(&d->train);
    }
    if (!d->eval_loader)
        return;
    const int64_t rows = ax_config_i64(cfg, "eval_batch_size");
    t->eval_doc_tokens = eval_plain ? longest(&d->eval) : d->eval_sequence_tokens / group;
    t->eval_tokens = rows * (eval_plain ? largest(&d->eval) : d->eval_sequence_tokens);
    t->eval_docs = t->eval_tokens / 8 > bin ? t->eval_tokens / 8 : bin;
}

/* ---- how often ---- */

static struct ax_cadence cadence(const struct ax_config *cfg, const char *steps,
                                 const char *strategy, const char *per_epoch) {
    const char *word =
        ax_config_is_set(cfg, "%s", strategy) ? ax_config_str(cfg, "%s", strategy) : NULL;
    if (ax_config_is_set(cfg, "%s", steps))
        return (struct ax_cadence){AX_EACH_STEPS, ax_config_f64(cfg, "%s", steps)};
    if (ax_config_is_set(cfg, "%s", per_epoch)) {
        const double n = ax_config_f64(cfg, "%s", per_epoch);
        if (!(n > 0))
            return (struct ax_cadence){.when = AX_NEVER};
        return n != 1 ? (struct ax_cadence){AX_EACH_PART, 1 / n}
                      : (struct ax_cadence){.when = AX_EACH_EPOCH};
    }
    if (word && strcmp(word, "no") == 0)
        return (struct ax_cadence){.when = AX_NEVER};
    if (word && strcmp(word, "best") == 0)
        return (struct ax_cadence){.when = AX_WHEN_BEST};
    if (word && strcmp(word, "steps") == 0)
        return (struct ax_cadence){AX_EACH_STEPS, 500};
    return (struct ax_cadence){.when = AX_EACH_EPOCH};
}

/* ---- evaluation ---- */

static const struct {
    const char *name;
    enum ax_best_by metric;
    bool greater;
} metrics[] = {
    {"loss", AX_BEST_BY_LOSS, false},        {"perplexity", AX_BEST_BY_PERPLEXITY, false},
    {"accuracy", AX_BEST_BY_ACCURACY, true}, {"mean_token_accuracy", AX_BEST_BY_ACCURACY, true},
    {"reward", AX_BEST_BY_REWARD, true},
};

/* What completions are worth is the only metric of a run that samples them, and of no other. */
static enum ax_status read_metric(struct ax_train_eval *e, const struct ax_config *cfg) {
    const bool samples = ax_setup_samples_answers(cfg);
    const char *name = ax_config_str(cfg, "metric_for_best_model");
    const char *wanted = name ? name : samples ? "reward" : "loss";
    const size_t prefix = strncmp(wanted, "eval_", 5) == 0 ? 5 : 0,
                 n = sizeof metrics / sizeof *metrics;
    size_t i = 0;
    while (i < n && (strcmp(wanted + prefix, metrics[i].name) != 0 ||
                     (metrics[i].metric == AX_BEST_BY_REWARD) != samples))
        i++;
    if (i == n)
        return ax_config_error(cfg, "metric_for_best_model", "\"%s\" is not %s", name,
                               samples ? "eval_reward"
                                       : "one of eval_loss, eval_perplexity, eval_accuracy");
    e->metric = metrics[i].metric;
    e->greater_is_better = ax_config_is_set(cfg, "greater_is_better")
                               ? ax_config_bool(cfg, "greater_is_better")
                               : metrics[i].greater;
    return AX_OK;
}

static enum ax_status read_eval(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    struct ax_train_eval *e = &s->o.eval;
    *e = (struct ax_train_eval){.when =
                                    cadence(cfg, "eval_steps", "eval_strategy", "evals_per_epoch"),
                                .load_best = ax_config_bool(cfg, "load_best_model_at_end")};
    e->keep_best = e->load_best || ax_config_is_set(cfg, "metric_for_best_model");
    if (ax_config_has(cfg, "early_stopping_patience"))
        e->patience = ax_config_i64(cfg, "early_stopping_patience");
    AX_TRY(read_metric(e, cfg));
    const char *needs = e->load_best      ? "load_best_model_at_end"
                        : e->patience > 0 ? "early_stopping_patience"
                        : e->keep_best    ? "metric_for_best_model"
                                          : NULL;
    if (needs && !s->data.eval_loader && !s->uncounted)
        return ax_config_error(cfg, needs,
                               "no evaluation records; set val_set_size or test_datasets");
    if (needs && e->when.when == AX_NEVER)
        return ax_config_error(cfg, needs, "nothing is evaluated; set eval_steps");
    return AX_OK;
}

/* ---- saving ---- */

static enum ax_status read_trigger(struct ax_train_setup *s) {
    const char *path = ax_config_str(s->cfg, "dynamic_checkpoint.trigger_file_path");
    if (!ax_config_bool(s->cfg, "dynamic_checkpoint.enabled"))
        return AX_OK;
    AX_TRY(path ? ax_strdup(&s->trigger_file, path)
                : ax_path_join(&s->trigger_file, s->o.save.output_dir, "axolotl_checkpoint.save"));
    s->o.save.trigger_file = s->trigger_file;
    s->o.save.trigger_interval = ax_config_i64(s->cfg, "dynamic_checkpoint.check_interval");
    return AX_OK;
}

/* Leaves the fields that side_files.c has set. */
static enum ax_status read_save(struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    struct ax_train_save *save = &s->o.save;
    save->output_dir = ax_config_str(cfg, "output_dir");
    save->when = cadence(cfg, "save_steps", "save_strategy", "saves_per_epoch");
    save->first_step = ax_config_bool(cfg, "save_first_step");
    save->limit = ax_config_i64(cfg, "save_total_limit");
    save->only_model = ax_config_bool(cfg, "save_only_model");
    save->hf.dtype = s->o.step.model.dtype;
    save->resume_with_changes = ax_config_bool(cfg, "resume_with_changes");
    AX_TRY(read_resume(save, cfg));
    if (save->when.when == AX_WHEN_BEST && s->o.eval.when.when == AX_NEVER)
        return ax_config_error(cfg, "save_strategy", "best needs evaluations; set eval_steps");
    return read_trigger(s);
}

/* ---- all ---- */

enum ax_status ax_train_options_read(struct ax_train_setup *s) {
    static const char *const fixed[] = {"base_model",
                                        "model_revision",
                                        "model_config",
                                        "reinit_weights",
                                        "rl",
                                        "dpo_loss_type",
                                        "kto_loss_type",
                                        "trl.num_generations",
                                        "ld_alpha",
                                        "reward_model",
                                        "process_reward_model",
                                        "kd_teacher",
                                        "kd_trainer",
                                        "kd_topk",
                                        "adapter",
                                        "gptq",
                                        "load_in_4bit",
                                        "load_in_8bit",
                                        "quantize_moe_experts",
                                        "bnb_config_kwargs",
                                        "lora_model_dir",
                                        "lora_r",
                                        "lora_alpha",
                                        "lora_alpha_pattern",
                                        "lora_target_modules",
                                        "lora_target_linear",
                                        "lora_target_parameters",
                                        "lora_exclude_modules",
                                        "lora_modules_to_save",
                                        "peft_layers_to_transform",
                                        "peft_init_lora_weights",
                                        "peft_use_dora",
                                        "peft_use_rslora",
                                        "qat.scheme",
                                        "qat.weight_dtype",
                                        "qat.activation_dtype",
                                        "qat.group_size",
                                        "qat.fake_quant_after_n_steps",
                                        "fp8",
                                        "fp8_recipe",
                                        "fp8_format",
                                        "num_layers_at_start_in_bf16",
                                        "num_layers_at_end_in_bf16",
                                        "tokens",
                                        "unfrozen_parameters",
                                        "relora",
                                        NULL};
    const struct ax_config *cfg = s->cfg;
    struct ax_train_options *o = &s->o;
    const struct ax_distill_options *distill = s->data.method.objective.head.distill;
    o->arch = &s->arch;
    o->weights = s->hf.dir ? &s->hf : NULL;
    o->teacher_weights = s->teacher_hf.dir ? &s->teacher_hf : NULL;
    o->start = s->start.dir ? &s->start : NULL;
    o->config = s->config;
    o->about = s->about;
    o->fixed_keys = fixed;
    AX_TRY(read_mesh(&o->runtime, s));
    o->step = (struct ax_step_options){
        .objective = &s->data.method.objective,
        .teacher = distill && distill->stored == 0 ? &s->teacher_arch : NULL,
        .seed = (uint64_t)ax_config_i64(cfg, "seed"),
        .n_microbatches = (int)(s->data.sequences_per_step / s->data.sequences_per_batch),
        .model.adapter = s->adapter,
        .model.base_store = s->base_store,
        .balance_coef = s->arch.moe.balance_coef,
        .sequence_coef = ax_config_f64(cfg, "router_seq_aux_loss_coef"),
        .model.expert_room = ax_config_f64(cfg, "expert_parallel_buffer_factor"),
        .model.store_experts = s->store_experts,
        .model.unfrozen = s->unfrozen.n > 0 ? &s->unfrozen : NULL};
    AX_TRY(ax_train_qat_read(s));
    if (ax_config_has(cfg, "router_bias_update_speed"))
        o->step.router_bias_speed = ax_config_f64(cfg, "router_bias_update_speed");
    if (ax_config_has(cfg, "neftune_noise_alpha"))
        o->step.neftune_alpha = ax_config_f64(cfg, "neftune_noise_alpha");
    AX_TRY(ax_train_sharding_read(&o->step.model.sharding, cfg));
    o->step.model.tp_overlap = strcmp(ax_config_str(cfg, "tp_overlap"), "chunks") == 0;
    o->step.tp_auto = strcmp(ax_config_str(cfg, "tp_overlap"), "auto") == 0;
    o->step.model.expert_overlap = strcmp(ax_config_str(cfg, "expert_overlap"), "halves") == 0;
    AX_TRY(ax_cp_method_parse(ax_config_str(cfg, "context_parallel_method"),
                              &o->step.model.cp_method));
    AX_TRY(read_dtype(&o->step.model.dtype, s));
    AX_TRY(read_pipeline(&o->step, cfg));
    read_recompute(o, cfg);
    read_data(s);
    AX_TRY(ax_setup_rollout_read(&s->rollout, cfg, &s->data, s->planning ? NULL : s->base, o));
    o->max_steps = ax_config_has(cfg, "max_steps") ? ax_config_i64(cfg, "max_steps") : 0;
    if (o->max_steps <= 0 || ax_config_is_set(cfg, "num_epochs"))
        o->epochs = ax_config_f64(cfg, "num_epochs");
    AX_TRY(ax_train_optimizer_read(o, cfg));
    AX_TRY(ax_train_lr_read(o, cfg));
    AX_TRY(read_eval(s));
    AX_TRY(ax_setup_samples_read(&s->samples, cfg, &s->data, s->planning ? NULL : s->base));
    o->samples = s->samples.o;
    AX_TRY(read_save(s));
    o->profile_steps = ax_config_i64(cfg, "profiler_steps");
    o->profile_first = ax_config_i64(cfg, "profiler_steps_start");
    o->measure_peak = ax_measure_peak;
    o->metrics.tensorboard = ax_tracker_is_on(cfg, "tensorboard");
    if (ax_config_has(cfg, "logging_steps"))
        o->metrics.logging_steps = ax_config_i64(cfg, "logging_steps");
    if (!ax_config_is_null(cfg, "loss_watchdog_threshold")) {
        o->watchdog = ax_config_has(cfg, "loss_watchdog_threshold")
                          ? ax_config_f64(cfg, "loss_watchdog_threshold")
                          : NAN;
        o->watchdog_patience = ax_config_i64(cfg, "loss_watchdog_patience");
    }
    return AX_OK;
}
