/* From a config to everything that a training run needs: the model's files, data, and options.
 *
 * Reading order: setup.c (opening), options.c (keys of the run), optim.c (keys of optimizer and learning
 * rate), adapter.c (keys of adapters), samples.c (prompts answered at evaluations), tasks.c (lm_eval_tasks),
 * rollout.c (answers that are trained on), serve.c (requests of others), rewards.c (what answers are worth),
 * teacher.c (the teacher of a distillation),
 * references.c (where log-probs of a reference are kept), side_files.c (files next to the weights), inputs.c
 * (what the ranks must see alike),
 * about.c (run.json). */
#ifndef AX_CMD_TRAIN_SETUP_H
#define AX_CMD_TRAIN_SETUP_H

#include "base/lock.h"
#include "cmd/train/data/data.h"
#include "cmd/train/rollout.h"
#include "cmd/train/samples.h"
#include "cmd/train/serve.h"
#include "cmd/train/tasks.h"
#include "optim/train/train.h"

#define AX_TRAIN_MAX_TEXTS 6

struct ax_train_setup {
    const struct ax_config *cfg; /* borrowed */
    struct ax_fabric *fabric;    /* borrowed; NULL: one rank */
    bool planning;               /* no weights are needed, and nothing is converted or written */
    int ranks;                   /* number of ranks to plan for; 0: as many as the keys name */
    /* keys of the base, the teacher and the adapter; NULL: unset */
    const char *base_name, *config_name, *revision, *model_type, *teacher_name, *adapter_name;
    const char *prepared; /* dataset_prepared_path */
    const struct ax_yaml_node *model_config, *unfrozen_names;
    bool reinit, merges;          /* reinit_weights, merge_lora */
    bool rounds_rows, means_rows; /* resize_token_embeddings_to_32x, mean_resizing_embeddings */
    char *uncounted;              /* planning: why the data are not counted; NULL = they are */
    char *base;                   /* folder of the base model */
    char *choices;      /* folder of measured algorithms (parallel/choices.h); NULL: planning */
    struct ax_lock use; /* lock on the model's folder, if it is in a cache */
    struct ax_arch arch;
    struct ax_hf hf;
    char *teacher; /* folder of the teacher of a distillation; NULL: none */
    struct ax_lock teacher_use;
    struct ax_arch teacher_arch;
    struct ax_hf teacher_hf;
    struct ax_peft teacher_adapter; /* dir NULL: none */
    bool teacher_on_base;           /* the teacher is the base model, perhaps with that adapter */
    /* a teacher with another tokenizer reads texts with its own, and prompts in its own template */
    struct ax_setup_tokenizer teacher_tok;
    struct ax_setup_entry teacher_entry;
    struct ax_reader teacher_reader; /* tokenizer NULL: it has the model's tokens, or planning */
    int64_t teacher_reads; /* the most of its own tokens that it reads of a text; else 0 */
    struct ax_remote_teacher *remote; /* the teacher is at a URL; NULL: it is not, or planning */
    const struct ax_peft_config *adapter; /* NULL: all weights train; else one of the next two */
    struct ax_peft_config new_adapter;
    struct ax_peft start;       /* lora_model_dir */
    enum ax_storage base_store; /* storage of the frozen base */
    bool store_experts;         /* base_store applies to experts, too */
    const struct ax_hf *coded;  /* as in struct ax_model_options */
    struct ax_scheme qat;       /* name NULL: none */
    struct ax_setup_data data;
    struct ax_setup_samples samples;
    struct ax_setup_tasks tasks;
    struct ax_setup_rollout rollout;
    struct ax_setup_serve serve;
    json_t *config;          /* effective configuration, flat */
    json_t *about;           /* content of run.json */
    json_t *config_edits;    /* fields of the saved config.json that differ from the base's */
    json_t *reference_model; /* identifies the model as it is loaded; NULL: nothing is kept */
    struct ax_peft_names unfrozen;
    char *trigger_file;
    struct ax_hf_text texts[AX_TRAIN_MAX_TEXTS];
    char *text_data[AX_TRAIN_MAX_TEXTS]; /* owned, memory of texts */
    struct ax_train_options o;
};

/* `fabric` of the ranks that train together; NULL: one rank. */
enum ax_status ax_train_setup_open(struct ax_train_setup *s, const struct ax_config *cfg,
                                   struct ax_fabric *fabric);
/* For a plan of `ranks` (0: as many as the mesh keys name): requires config.json of the base;
 * tokenizer and data are used only to count tokens. */
enum ax_status ax_train_setup_plan(struct ax_train_setup *s, const struct ax_config *cfg,
                                   int ranks);
void ax_train_setup_close(struct ax_train_setup *s);

/* ---- keys that need work before they are options ---- */

struct ax_teacher_server_keys {
    struct ax_endpoint_options server; /* without url and key */
    const char *model, *key_file;      /* NULL: unset */
    int64_t prompts;
};

struct ax_cadence_keys {
    const char *strategy;
    double steps, per_epoch; /* NaN: unset */
};

struct ax_run_keys {
    struct ax_cadence_keys save, eval;
    const char *metric, *greater_is_better; /* choose the best evaluation; NULL: unset */
    const char *resume;                     /* resume_from_checkpoint */
    bool resumes;                           /* auto_resume_from_checkpoints */
    bool triggered;                         /* dynamic_checkpoint */
    const char *trigger_file;
};

struct ax_adapter_keys {
    const char *start, *init; /* lora_model_dir, peft_init_lora_weights */
    bool all_linear;
    const struct ax_yaml_node *targets, *parameters, *exclude, *save;
    const struct ax_yaml_node *ranks, *alphas, *layers, *layers_pattern;
    const struct ax_yaml_node *packing; /* bnb_config_kwargs */
};

/* ---- parts ---- */

/* Reads the parts of s->o that come from keys. Model and data must be open. */
enum ax_status ax_train_options_read(struct ax_train_setup *s);
int64_t ax_train_longest(const struct ax_corpus *c); /* tokens of an example; 1 if there is none */
enum ax_status ax_train_optimizer_read(struct ax_train_options *o, const struct ax_config *cfg);
enum ax_status ax_train_lr_read(struct ax_train_options *o, const struct ax_config *cfg);
/* Reads adapter, base_store and the keys that depend on them. The base model must be open. */
enum ax_status ax_train_adapter_open(struct ax_train_setup *s);
/* Keys of a scheme: its name, or axolotl's pair of types. */
struct ax_scheme_keys {
    const char *scheme, *weight, *input; /* NULL: unset */
    int64_t group_size;
};
/* The scheme that a map of the configuration, qat or quantization, asks for. */
enum ax_status ax_train_scheme_read(const struct ax_config *cfg, const char *map,
                                    struct ax_scheme *out);
/* Reads s->qat and its step options. */
enum ax_status ax_train_qat_read(struct ax_train_setup *s);
/* The first id whose text differs between tokenizers; −1: none of the ids that both have. */
int32_t ax_train_other_token(const struct ax_tokenizer *a, const struct ax_tokenizer *b);
/* Do two names mean one folder? By name if one is not there: a hub id. */
bool ax_train_same_folder(const char *a, const char *b);
/* Opens kd_teacher, if it is set. The data must be open, and the vocabulary final. */
enum ax_status ax_train_teacher_open(struct ax_train_setup *s);
void ax_train_teacher_close(struct ax_train_setup *s);
/* Reads s->o.references. All else of s->o must be read. The model is identified by path, size and date
 * of its files, never by their content, and by what is done with them while they are loaded. */
enum ax_status ax_train_references_read(struct ax_train_setup *s);
/* merge_lora: merges the trained adapter into its base and writes the result to output_dir/merged.
 * `keep`: does nothing if that exists. */
enum ax_status ax_train_merge(const struct ax_train_setup *s, bool keep);
/* Writes completions.parquet if the run has sampled and DuckDB is installed; a failure is a warning. */
void ax_train_completions_table(const struct ax_train_setup *s);
/* Side files that differ from the base's: the config's special tokens, chat template and positions; the others are
 * found to be readable. */
enum ax_status ax_train_side_files(struct ax_train_setup *s);
/* Adds base_model_config, as found at `path`, a folder or a config.json, to s->o.inputs, where there are several
 * ranks. */
enum ax_status ax_train_inputs_add_config(struct ax_train_setup *s, const char *path);
/* Adds all others. All else must be open. */
enum ax_status ax_train_inputs_read(struct ax_train_setup *s);
/* Sets s->config and s->about (docs/run.md). The data must be open. */
enum ax_status ax_train_about_read(struct ax_train_setup *s);
/* Adds the command line to s->about, with argv[0] as the command; hides secrets. */
enum ax_status ax_train_about_command(const struct ax_train_setup *s, int argc, char **argv);

#endif
