/* Training from start to end: steps over the data, evaluation, checkpoints, resuming, and handling
 * of failures.
 *
 * Input is options; output is a trained model folder or, if an adapter is trained (step.adapter), a
 * PEFT folder. See train.c (the loop), train_step.c (a step of it), train_sequences.c (sequences →
 * micro-batches), train_schedule.c (how many steps; when to evaluate and save), train_watch.c (NaN,
 * spikes, the records behind them), train_reference.c (log-probs that the objective compares with),
 * train_rollout.c (completions that the model has sampled → micro-batches), train_value.c (PPO's other
 * model), train_evaluate.c,
 * train_timeline.c, train_samples.c, train_save.c and train_resume.c, train_folder.c (output_dir),
 * train_memory.c (whether memory suffices, and what would help), train_disk.c (whether the disk
 * does), train_forecast.c (both, and steps and tokens, for a plan), train_about.c (run.json). */
#ifndef AX_OPTIM_TRAIN_TRAIN_H
#define AX_OPTIM_TRAIN_TRAIN_H

#include "ckpt/hf/hf.h"
#include "data/records/pipeline/loader.h"
#include "optim/optimizers/lr_schedule.h"
#include "optim/metrics/metrics.h"
#include "optim/plan/peak.h"
#include "optim/evaluate/references.h"
#include "optim/rollout/rollout.h"
#include "optim/metrics/samples.h"
#include "optim/step/step.h"

/* When something is repeated. */
enum ax_when { AX_NEVER, AX_EACH_EPOCH, AX_EACH_PART, AX_EACH_STEPS, AX_WHEN_BEST };
struct ax_cadence {
    enum ax_when when;
    double steps; /* AX_EACH_STEPS: every N; below 1 a fraction of all steps, rounded up */
                  /* AX_EACH_PART: a fraction of an epoch */
};

enum ax_resume {
    AX_RESUME_NO,
    AX_RESUME_NEWEST,      /* in output_dir; from the start if there is none */
    AX_RESUME_NEWEST_GOOD, /* the same, skipping corrupted ones */
    AX_RESUME_FOLDER       /* resume_dir */
};

struct ax_train_data {
    struct ax_loader *train, *eval; /* eval NULL: no evaluation */
    int64_t sequences_per_batch;    /* per micro-batch */
    int64_t sequence_tokens;        /* capacity of a sequence */
    int64_t sequence_docs;          /* maximum documents per sequence */
    int64_t doc_tokens;             /* longest document */
    bool drop_last;    /* drop an epoch's last sequences if they do not fill a step, … */
    bool drop_partial; /* … or only those that do not fill a micro-batch of each rank */
    bool countable;    /* whether an epoch's length is known; else use max_steps */
    int64_t eval_tokens, eval_docs; /* per evaluation pass */
    int64_t eval_doc_tokens;        /* longest evaluation document */
    int64_t pad;                    /* micro-batches are padded to a multiple of this */
};

struct ax_train_save {
    const char *output_dir;
    struct ax_cadence when;
    bool first_step; /* also after step 1 */
    int64_t limit;   /* checkpoints kept; 0 = all */
    bool only_model;
    struct ax_hf_save hf;     /* base_dir, tokenizer_dir, config, texts and dtype */
    const char *trigger_file; /* creating it requests a save; NULL: disabled */
    int64_t trigger_interval;
    enum ax_resume resume;
    const char *resume_dir;
    bool resume_with_changes; /* restart the epoch if the data differs from the checkpoint's */
};

enum ax_best_by { AX_BEST_BY_LOSS, AX_BEST_BY_PERPLEXITY, AX_BEST_BY_ACCURACY, AX_BEST_BY_REWARD };

struct ax_train_eval {
    struct ax_cadence when;
    enum ax_best_by metric; /* selects the best evaluation */
    bool greater_is_better;
    bool keep_best;   /* never remove the checkpoint of the best evaluation */
    bool load_best;   /* … and end the run with it */
    int64_t patience; /* evaluations without improvement before training stops; 0 = off */
};

/* PPO's value model, which trains beside the policy: a head of one label, the policy's tokens. */
struct ax_train_value_options {
    const struct ax_arch *arch;           /* NULL: none */
    const struct ax_hf *weights;          /* NULL: random */
    const struct ax_objective *objective; /* ax_objective_value's */
    const struct ax_peft_config *adapter; /* a new one; NULL: all its weights train */
    bool on_policy;                       /* its weights are those that the policy starts from */
};

struct ax_train_options {
    const struct ax_arch *arch;
    const struct ax_hf *weights;         /* NULL: random, from the seed */
    const struct ax_hf *teacher_weights; /* likewise, of step.teacher */
    const struct ax_peft *start; /* initial value of step.adapter; NULL: a new one, from the seed */
    /* where log-probs that the objective compares with are kept; cache NULL: nowhere. The team is the
     * run's. */
    struct ax_reference_store references;
    struct ax_step_options step; /* n_microbatches; tokens, n_docs, max_len follow from data */
    bool recompute_auto;         /* use the least recompute that fits; else step.recompute */
    struct ax_runtime_options runtime;
    struct ax_train_data data;
    struct ax_lr_schedule lr; /* total and warmup are derived; stable too if it is −1 */
    int64_t warmup;           /* steps; −1: warmup_ratio */
    double warmup_ratio;      /* of all steps; −1: 3 %, at most 100 steps */
    double epochs;            /* 0: as many as max_steps takes */
    int64_t max_steps;        /* 0: from epochs; both: the fewer steps of the two */
    struct ax_train_eval eval;
    struct ax_samples samples;         /* generated at each evaluation */
    struct ax_rollout_options rollout; /* group > 0: data.train has prompts, and completions of them
                                          are trained on */
    struct ax_train_value_options value; /* if rollout.ppo */
    struct ax_train_save save;
    struct ax_metrics_options metrics; /* logging_steps 0: every 1/200 of the run, 1 to 10 steps;
                                          fields that follow from the run are filled in */
    /* After the first step, each rank's, whose sum is the reference for MFU: ax_measure_peak, or
     * NULL. */
    enum ax_status (*measure_peak)(const struct ax_runtime_options *o, struct ax_peak *peak);
    /* `profile_steps` steps, after the first `profile_first` ones, are written as a timeline; 0:
     * none */
    int64_t profile_steps, profile_first;
    double watchdog;           /* a loss above it, or with NaN far above the recent ones, … */
    int64_t watchdog_patience; /* … for this many logged steps in a row stops the run; 0 = off */
    const json_t *about;       /* contents of run.json, to which memory by name is added; NULL: no
                                  run.json */
    const json_t *config;      /* the effective configuration, stored in checkpoints; flat */
    const char *const *fixed_keys; /* keys of it that may not change on resume; NULL-terminated */
};

/* The compute dtype of the checkpoint that such a run would resume from; unchanged if there is none. */
enum ax_status ax_train_resumed_dtype(const struct ax_train_save *save, enum ax_dtype *dtype);

struct ax_train_result {
    int64_t steps, total_steps; /* done, planned */
    const char *limit;          /* the key that planned these */
    int64_t resumed_from;       /* step; 0 = none */
    double loss;                /* last finite one; NaN: none */
    bool evaluated;
    struct ax_eval_result first_eval, last_eval; /* of this process */
    int64_t best_step;
    bool stopped_early;
    bool nothing_to_do; /* the run was finished before: nothing was written */
    struct ax_arena_plan plan;
    double save_waited, train_seconds;
};

/* A run's step options, for ax_plan_make. */
struct ax_step_options ax_train_step_options(const struct ax_train_options *o);
/* ---- before a run ---- */

/* Memory of a run. */
struct ax_train_fit {
    uint64_t arena;     /* bytes; of steps and evaluations */
    uint64_t beside;    /* code, libraries, data sets and parsers, approximately */
    uint64_t available; /* at present; 0 = unknown */
    bool held;          /* weights are gathered once for a generation, not in each pass */
    bool fits;
};
/* Chooses step->recompute if recompute_auto asks for it. */
enum ax_status ax_train_fit(const struct ax_train_options *o, struct ax_step_options *step,
                            struct ax_train_fit *fit);

/* For plans of a mesh (runtime.sizes, without a fabric): the rank of a stage that needs most, and how
 * much. Ranks differ by what cannot be divided; of many, only those at the mesh's corners are
 * planned. */
struct ax_train_stage {
    int rank, n_slots;
    uint64_t arena;
};
/* Fills stages[pp], and sets the rank whose memory is planned, that of the stage that needs most. */
enum ax_status ax_train_choose_rank(struct ax_train_options *o, struct ax_train_stage *stages);

/* What a run will need, from its options alone: reads no weights and writes nothing. */
struct ax_train_forecast {
    struct ax_train_fit fit;
    int64_t steps;  /* 0 = unknown: the data are not counted, or streamed without max_steps */
    double epochs;  /* in these steps; 0 = unknown */
    int64_t tokens; /* of all steps, without padding; 0 = unknown */
    struct ax_loader_count epoch; /* of the first epoch; zeroed = unknown */
    int64_t checkpoints;          /* number kept */
    double checkpoint_bytes, disk_bytes;
    uint64_t disk_available;
};
enum ax_status ax_train_forecast(const struct ax_train_options *o, struct ax_step_options *step,
                                 struct ax_train_forecast *out);

/* ---- the run ---- */

/* AX_OK: the model is in output_dir. AX_SAVED_REQUEUE and AX_INTERRUPTED: stopped on request, after
 * saving. */
enum ax_status ax_train(const struct ax_train_options *o, struct ax_train_result *out);

#endif
