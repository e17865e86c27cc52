/* Opens the base model and the data of a run and checks them before expensive work. */
#include "cmd/train/setup.h"

#include <string.h>

#include "base/log.h"
#include "model/convert/base_model.h"
#include "model/core/builder.h"
#include "optim/plan/choose.h"

/* ---- how the base is quantized ---- */

/* config.json decides, and keys that say it have to agree. */
static const struct {
    const char *key, *value, *method; /* value: NULL = true */
} claims[] = {
    {"gptq", NULL, "gptq"},
    {"model_quantization_config", "Mxfp4Config", "mxfp4"},
    {"model_quantization_config", "FineGrainedFP8Config", "fp8"},
};

static enum ax_status check_quantization_options(const struct ax_config *cfg) {
    static const char key[] = "model_quantization_config_kwargs";
    const struct ax_yaml_node *map = ax_config_node(cfg, "%s", key);
    for (size_t i = 0; map && i < map->n; i++)
        if (strcmp(map->entries[i].key, "dequantize") != 0)
            return ax_config_error(cfg, key,
                                   "%s is not supported; config.json of the base says how its "
                                   "weights are stored. Supported: dequantize",
                                   map->entries[i].key);
    return AX_OK;
}

static enum ax_status check_quantization(const struct ax_train_setup *s) {
    const struct ax_config *cfg = s->cfg;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        const char *key = claims[i].key, *want = claims[i].value;
        const char *value = want ? ax_config_str(cfg, "%s", key) : NULL;
        const bool claimed =
            want ? value && strcmp(value, want) == 0 : ax_config_bool(cfg, "%s", key);
        if (claimed && strcmp(s->arch.quant_method, claims[i].method) != 0)
            return ax_config_error(cfg, key,
                                   "%s%sneeds a base whose config.json says quant_method: %s; "
                                   "remove the key",
                                   want ? want : "", want ? " " : "", claims[i].method);
    }
    if (*s->arch.quant_method && !s->adapter_name && !s->reinit)
        ax_log_info("the base is quantized (%s): training begins with its dequantized weights, and "
                    "what is saved is not quantized",
                    s->arch.quant_method);
    return check_quantization_options(cfg);
}

/* ---- the model ---- */

/* A GGUF base gets a folder next to the prepared data. */
static enum ax_status base_folder(char **out, struct ax_lock *use, const struct ax_train_setup *s,
                                  const char *key, const char *name) {
    const struct ax_config *cfg = s->cfg;
    char where[256];
    const enum ax_status st = ax_base_model_folder(out, use, name, s->revision,
                                                   s->prepared ? s->prepared : "last_run_prepared");
    if (st == AX_OK)
        return AX_OK;
    return ax_error_prefix(st, "%s (%s)", key,
                           ax_config_where(cfg, where, sizeof where, "%s", key));
}

static enum ax_status load_arch(struct ax_train_setup *s, const char *key) {
    char *folder;
    s->config_edits = s->model_config ? ax_yaml_to_json(s->model_config) : json_object();
    s->o.save.hf.config = s->config_edits;
    if (!s->config_edits)
        return ax_error(AX_ERR_NOMEM, "out of memory for model_config");
    if (s->planning)
        return ax_base_model_arch(&s->arch, s->config_name ? s->config_name : s->base_name,
                                  s->revision, s->config_edits);
    struct ax_lock use = {0};
    if (s->config_name && ax_arch_path_is_config(s->config_name))
        AX_TRY(ax_strdup(&folder, s->config_name));
    else
        AX_TRY(base_folder(&folder, &use, s, key, s->config_name ? s->config_name : s->base_name));
    enum ax_status st = ax_arch_load_with(&s->arch, folder, s->config_edits);
    if (st == AX_OK && s->config_name)
        st = ax_train_inputs_add_config(s, folder);
    ax_lock_drop(&use);
    ax_free(folder);
    AX_TRY(st);
    if (s->arch.unties && s->reinit) { /* there are no weights */
        s->arch.unties = false;
        s->arch.tied = true;
    }
    if (s->arch.unties &&
        json_object_set_new(s->config_edits, "tie_word_embeddings", json_false()) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    return AX_OK;
}

static enum ax_status open_arch(struct ax_train_setup *s) {
    const char *key = s->config_name ? "base_model_config" : "base_model";
    char where[256];
    const enum ax_status st = load_arch(s, key);
    if (st == AX_OK)
        return AX_OK;
    return ax_error_prefix(st, "%s (%s)", key,
                           ax_config_where(s->cfg, where, sizeof where, "%s", key));
}

/* Names that begin with Auto leave the choice to config.json. */
static enum ax_status check_model_type(const struct ax_train_setup *s) {
    const char *type = s->model_type;
    char own[128];
    AX_ASSERT(s->arch.family);
    ax_arch_name(&s->arch, own, sizeof own);
    if (!type || strncmp(type, "Auto", 4) == 0 || strcmp(type, own) == 0)
        return AX_OK;
    return ax_config_error(s->cfg, "model_type",
                           "%s, but config.json of the base says %s; remove the key", type, own);
}

/* Replaces the base's head if the keys train another, before anything looks at the model. */
static enum ax_status choose_head(struct ax_train_setup *s) {
    const struct ax_classifier *kind = ax_method_of(s->cfg)->head;
    char where[256];
    if (!kind)
        return ax_classifier_refuse(&s->arch, s->base_name, "learn to predict tokens");
    const enum ax_status st = ax_classifier_choose(&s->arch, kind);
    if (st != AX_OK)
        return ax_error_prefix(st, "base_model (%s)",
                               ax_config_where(s->cfg, where, sizeof where, "base_model"));
    return ax_classifier_fields(&s->arch, s->config_edits);
}

/* A weight of its loss lets the layer for multi-token prediction train. */
static enum ax_status use_prediction(struct ax_train_setup *s) {
    static const char key[] = "mtp_loss_scaling_factor";
    return ax_config_f64(s->cfg, key) > 0 ? ax_arch_predict(&s->arch, key) : AX_OK;
}

static enum ax_status open_model(struct ax_train_setup *s) {
    if (!s->planning)
        AX_TRY(base_folder(&s->base, &s->use, s, "base_model", s->base_name));
    AX_TRY(open_arch(s));
    AX_TRY(choose_head(s));
    AX_TRY(use_prediction(s));
    AX_TRY(check_model_type(s));
    AX_TRY(check_quantization(s));
    if (s->arch.wrapper && s->reinit)
        return ax_config_error(s->cfg, "reinit_weights",
                               "cannot start a model that contains a text model from random "
                               "weights: its other parts would have none");
    return s->planning || s->reinit ? AX_OK : ax_hf_open(&s->hf, s->base);
}

/* ---- new tokens ---- */

/* Unused rows of the base, which a new token may get, mean nothing until they are trained. */
static enum ax_status check_new_tokens(const struct ax_train_setup *s) {
    const struct ax_peft_config *c = s->adapter;
    struct ax_adapter_target table = {0}, head = {.on = s->arch.classifier};
    if (!c || s->data.tok.n_new == 0)
        return AX_OK;
    for (int i = 0; ax_hf_embeddings[i] && !table.on; i++)
        AX_TRY(ax_adapter_match(c, ax_hf_embeddings[i], -1, &table));
    if (!head.on)
        AX_TRY(ax_adapter_match(c, "lm_head", -1, &head));
    if ((table.on || ax_adapter_saves_embedding(c)) &&
        (head.on || ax_adapter_saves(c, "lm_head.weight")))
        return AX_OK;
    return ax_config_error(s->cfg, "adapter",
                           "%zu of tokens and special_tokens are new, and the rows of such tokens "
                           "are only trained with lora_modules_to_save: [embed_tokens, lm_head]",
                           s->data.tok.n_new);
}

/* Where only some parameters train, the tables of tokens must be among them. */
static enum ax_status check_unfrozen_tables(const struct ax_train_setup *s) {
    bool table = false, head = s->arch.tied || s->arch.classifier;
    if (s->unfrozen.n == 0 || s->data.tok.n_new == 0)
        return AX_OK;
    for (int i = 0; ax_hf_embeddings[i] && !table; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.weight", ax_hf_embeddings[i]);
        AX_TRY(ax_unfrozen_has(&s->unfrozen, name, &table));
    }
    if (!head)
        AX_TRY(ax_unfrozen_has(&s->unfrozen, "lm_head.weight", &head));
    if (table && head)
        return AX_OK;
    return ax_config_error(s->cfg, "unfrozen_parameters",
                           "%zu of tokens and special_tokens are new, and the rows of such tokens "
                           "are only trained if %s is among them",
                           s->data.tok.n_new,
                           table ? "lm_head.weight" : "model.embed_tokens.weight");
}

/* An adapter has all rows that are added, `rows` in place of the model's. */
static enum ax_status check_rows_train(const struct ax_train_setup *s, int64_t ids, int64_t rows) {
    const bool inputs = ax_arch_grows_inputs(&s->arch, rows);
    if (!s->adapter || (ax_adapter_saves_embedding(s->adapter) &&
                        (s->arch.classifier || ax_adapter_saves(s->adapter, "lm_head.weight")) &&
                        (!inputs || ax_adapter_saves(s->adapter, AX_PER_LAYER_TABLE))))
        return AX_OK;
    return ax_config_error(
        s->cfg, "adapter",
        "the tokenizer's ids reach %lld, but the model has %lld embeddings: rows "
        "are only added and trained with lora_modules_to_save: "
        "[embed_tokens, lm_head%s]",
        (long long)ids - 1, (long long)s->arch.vocab_size,
        inputs ? ", embed_tokens_per_layer" : "");
}

/* Adds rows to the tables of tokens for them, and their numbers to the saved config.json. */
static enum ax_status extend_vocabulary(struct ax_train_setup *s) {
    const int64_t ids = (int64_t)ax_tokenizer_size(s->data.tok.tokenizer);
    const int64_t rows = s->rounds_rows ? (ids + 31) / 32 * 32 : ids;
    AX_TRY(check_unfrozen_tables(s));
    if (rows <= s->arch.vocab_size || (s->adapter && ids <= s->arch.vocab_size))
        return check_new_tokens(s);
    AX_TRY(check_rows_train(s, ids, rows));
    ax_log_info("the tokenizer has %lld tokens and the model %lld embeddings: %lld rows are added, "
                "and saved with vocab_size %lld",
                (long long)ids, (long long)s->arch.vocab_size,
                (long long)(rows - s->arch.vocab_size), (long long)rows);
    s->arch.new_rows_mean = s->means_rows;
    ax_arch_grow(&s->arch, rows);
    return ax_arch_grown_fields(&s->arch, s->config_edits);
}

/* ---- the data ---- */

static void log_left_out(const char *what, const struct ax_corpus_report *r, bool prompts) {
    const struct {
        int64_t n;
        const char *why;
    } all[] = {
        {r->too_long, prompts ? "skipped: they leave no room for an answer in sequence_len"
                              : "skipped: longer than sequence_len (see excess_length_strategy)"},
        {r->cut, "truncated to sequence_len"},
        {r->too_short, "skipped: shorter than min_sample_len"},
        {r->untrained, "skipped: without a trained token"},
        {r->duplicates, "skipped: equal to another one"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].n > 0)
            ax_log_warn("%s: %lld record%s %s", what, (long long)all[i].n, all[i].n == 1 ? "" : "s",
                        all[i].why);
}

static enum ax_status check_data(const struct ax_train_setup *s) {
    if (s->data.stream)
        return AX_OK;
    const bool prompts = ax_method_of(s->cfg)->task == AX_TASK_PROMPT;
    log_left_out("training data", &s->data.train_report, prompts);
    log_left_out("evaluation data", &s->data.eval_report, prompts);
    return ax_setup_data_require(&s->data);
}

static enum ax_status read_unfrozen(struct ax_train_setup *s) {
    static const char key[] = "unfrozen_parameters";
    const struct ax_yaml_node *names = s->unfrozen_names;
    const size_t n = names ? names->n : 0;
    if (n > 0 && s->adapter_name)
        return ax_config_error(
            s->cfg, key, "cannot be combined with an adapter, which freezes all other weights");
    AX_TRY(ax_alloc(&s->unfrozen.names, n, sizeof *s->unfrozen.names));
    for (size_t i = 0; i < n; i++) {
        AX_TRY(ax_strdup(&s->unfrozen.names[i], names->entries[i].value->text));
        s->unfrozen.n++;
    }
    return AX_OK;
}

static enum ax_status open_data(struct ax_train_setup *s) {
    AX_TRY(ax_setup_data_open(&s->data, s->cfg, false));
    AX_TRY(ax_setup_data_warnings(&s->data, ax_setup_warn_log, NULL));
    AX_TRY(check_data(s));
    return extend_vocabulary(s);
}

/* Data that is missing or unreadable is not counted; the sizes come from the keys. */
static enum ax_status plan_data(struct ax_train_setup *s) {
    const enum ax_status st = open_data(s);
    if (st != AX_ERR_DATA && st != AX_ERR_IO)
        return st;
    ax_setup_data_close(&s->data);
    AX_TRY(ax_strdup(&s->uncounted, ax_error_text()));
    ax_error_clear();
    return ax_setup_data_sizes(&s->data, s->cfg);
}

static enum ax_status choose(struct ax_train_options *o) {
    struct ax_step_options so = ax_train_step_options(o);
    AX_TRY(ax_step_choose(&so, &o->runtime, o->arch));
    if (o->runtime.sizes.tp > 1 && o->step.tp_auto)
        ax_log_info("tp_overlap: %s", so.model.tp_overlap ? "chunks" : "off");
    if (o->runtime.sizes.cp > 1 && o->step.model.cp_method == AX_CP_AUTO)
        ax_log_info("context_parallel_method: %s", ax_cp_method_name(so.model.cp_method));
    o->step.model.tp_overlap = so.model.tp_overlap;
    o->step.tp_auto = so.tp_auto;
    o->step.model.cp_method = so.model.cp_method;
    return AX_OK;
}

static enum ax_status open_all(struct ax_train_setup *s) {
    AX_TRY(ax_setup_serve_open(&s->serve, s->cfg, s->planning, !s->fabric || s->fabric->rank == 0));
    AX_TRY(open_model(s));
    AX_TRY(read_unfrozen(s));
    AX_TRY(ax_train_adapter_open(s));
    AX_TRY(s->planning ? plan_data(s) : open_data(s));
    AX_TRY(ax_train_teacher_open(s));
    if (!s->planning) {
        AX_TRY(ax_train_about_read(s));
        AX_TRY(ax_train_side_files(s));
    }
    AX_TRY(ax_train_options_read(s));
    AX_TRY(ax_setup_serve_read(&s->serve, s->cfg, &s->data, s->planning ? NULL : s->base, &s->o));
    AX_TRY(choose(&s->o));
    AX_TRY(ax_train_references_read(s));
    return ax_train_inputs_read(s);
}

static enum ax_status open_setup(struct ax_train_setup *s) {
    AX_FILL(s->cfg, "", struct ax_train_setup, s);
    const enum ax_status st = open_all(s);
    if (st != AX_OK)
        ax_train_setup_close(s);
    return st;
}

enum ax_status ax_train_setup_open(struct ax_train_setup *s, const struct ax_config *cfg,
                                   struct ax_fabric *fabric) {
    *s = (struct ax_train_setup){.cfg = cfg, .fabric = fabric};
    return open_setup(s);
}

enum ax_status ax_train_setup_plan(struct ax_train_setup *s, const struct ax_config *cfg,
                                   int ranks) {
    *s = (struct ax_train_setup){.cfg = cfg, .planning = true, .ranks = ranks};
    return open_setup(s);
}

void ax_train_setup_close(struct ax_train_setup *s) {
    for (int i = 0; i < AX_TRAIN_MAX_TEXTS; i++)
        ax_free(s->text_data[i]);
    ax_free(s->trigger_file);
    json_decref(s->config);
    json_decref(s->config_edits);
    for (int i = 0; i < s->unfrozen.n; i++)
        ax_free(s->unfrozen.names[i]);
    ax_free(s->unfrozen.names);
    json_decref(s->about);
    json_decref(s->reference_model);
    ax_setup_tasks_free(&s->tasks);
    ax_setup_samples_free(&s->samples);
    ax_setup_serve_close(&s->serve);
    ax_setup_rollout_close(&s->rollout);
    ax_setup_data_close(&s->data);
    ax_peft_config_free(&s->new_adapter);
    ax_peft_close(&s->start);
    ax_train_teacher_close(s);
    ax_hf_close(&s->hf);
    ax_arch_free(&s->arch);
    ax_lock_drop(&s->use);
    ax_free(s->base);
    ax_free(s->choices);
    ax_free(s->uncounted);
    *s = (struct ax_train_setup){0};
}
