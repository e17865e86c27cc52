/* Training from start to end: steps over the data, evaluation, checkpoints, resuming, and handling
 * of failures.
 *
 * Input is options; output is a trained model folder or, if an adapter is trained (step.adapter), a PEFT
 * folder. The way of a step is told in optim/step/step.c. Read train.c (the run, its loop and a step of
 * it) first. What a step trains on: sequences.c (sequences → micro-batches), rollout.c (completions that the
 * model has sampled → micro-batches, and PPO's other model), reference.c (log-probs that the objective compares
 * with). When: schedule.c. What ranks decide together: ranks.c; what they hold in common: replicas.c. Looking on: watch.c (NaN, spikes, the records
 * behind them), evaluate.c. Between steps: requests.c. What lasts: folder.c (output_dir, run.json), resume.c,
 * contents.c, save.c; in memory: elastic.c. Before a run: options.c, forecast.c (memory, disk, steps). */
#ifndef AX_OPTIM_TRAIN_TRAIN_H
#define AX_OPTIM_TRAIN_TRAIN_H

#include "ckpt/hf/hf.h"
#include "data/records/pipeline/loader.h"
#include "optim/optimizers/lr_schedule.h"
#include "optim/metrics/metrics.h"
#include "optim/plan/peak.h"
#include "optim/plan/plan.h"
#include "optim/evaluate/refer.h"
#include "optim/evaluate/tasks.h"
#include "optim/rollout/rollout.h"
#include "optim/metrics/samples.h"
#include "optim/step/step.h"

/* When something that is repeated happens. */
enum ax_when { AX_NEVER, AX_EACH_EPOCH, AX_EACH_PART, AX_EACH_STEPS, AX_WHEN_BEST };
struct ax_cadence {
    enum ax_when when;
    double steps; /* AX_EACH_STEPS: every N; below 1 a fraction of all steps, rounded up */
                  /* AX_EACH_PART: a fraction of an epoch */
};

enum ax_resume {
    AX_RESUME_NO,
    AX_RESUME_NEWEST,      /* in output_dir; if there is none, resume_dir, or from the start */
    AX_RESUME_NEWEST_GOOD, /* the newest that is not corrupted */
    AX_RESUME_FOLDER       /* resume_dir */
};

struct ax_train_data {
    struct ax_loader *train, *eval; /* eval NULL: no evaluation */
    int64_t sequences_per_batch;    /* per micro-batch */
    int64_t sequence_tokens;        /* capacity of a sequence */
    int64_t sequence_docs;          /* maximum documents per sequence */
    int64_t doc_tokens;             /* longest document */
    bool drop_last;                 /* drop an epoch's last sequences if they do not fill a step */
    bool keeps_short;  /* despite drop_last: an epoch with fewer than a step takes is one step */
    bool drop_partial; /* drop only those that do not fill a micro-batch of each rank */
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
    const char *resume_dir;   /* may be NULL if not needed */
    bool resume_with_changes; /* restart the epoch if the data differs from the checkpoint's */
};

/* State in memory, for a job that goes on without ranks it has lost. */
struct ax_train_elastic_options {
    const char *dir; /* the job's folder in memory; NULL: a lost rank ends the run */
    int64_t steps;   /* a checkpoint there every N steps */
};

enum ax_best_by {
    AX_BEST_BY_LOSS,
    AX_BEST_BY_PERPLEXITY,
    AX_BEST_BY_ACCURACY,
    AX_BEST_BY_REWARD,
    AX_BEST_BY_MEASURE
};
extern const char *const ax_best_by_names[AX_BEST_BY_MEASURE]; /* "loss" … */

struct ax_train_eval {
    struct ax_cadence when;
    enum ax_best_by metric; /* selects the best evaluation */
    int measure;            /* BY_MEASURE: index among the objective's */
    bool greater_is_better;
    bool keep_best;   /* never remove the checkpoint of the best evaluation */
    bool load_best;   /* end the run with the weights of that checkpoint */
    int64_t patience; /* evaluations without improvement before training stops; 0 = off */
};

/* PPO's value model, which trains beside the policy: it has a head of one label and reads the
 * policy's tokens. */
struct ax_train_value_options {
    const struct ax_arch *arch;           /* NULL: none */
    const struct ax_hf *weights;          /* NULL: random */
    const struct ax_objective *objective; /* ax_objective_value's */
    const struct ax_peft_config *adapter; /* a new one; NULL: all its weights train */
    bool on_policy;                       /* it starts from the same weights as the policy */
};

/* Files that the run reads, as every rank sees them: the ranks compare their hashes before the first step. */
#define AX_TRAIN_MAX_INPUTS 64
struct ax_train_inputs {
    struct ax_train_input {
        char what[256]; /* the key and the path */
        uint64_t hash;  /* the content's */
    } list[AX_TRAIN_MAX_INPUTS];
    int n;
};

/* Others' requests, which the model answers between steps. */
struct ax_train_requests {
    /* options of the generator that answers; n_seqs 0: there are none */
    struct ax_generate_options o;
    /* Are there any? They come from other threads. `last`: no step follows, and none are taken any more. */
    bool (*pending)(void *ctx, bool last);
    /* Answers them, with the weights after `step` steps; all ranks together, if one has some. `team`: all ranks. */
    enum ax_status (*answer)(void *ctx, struct ax_generator *g, struct ax_team *team, int64_t step);
    void *ctx;
};

struct ax_train_options {
    const struct ax_arch *arch;
    const struct ax_hf *weights;           /* NULL: random, from the seed */
    const struct ax_hf *teacher_weights;   /* weights of step.teacher; NULL: random */
    const struct ax_peft *teacher_adapter; /* NULL: none */
    /* the teacher, if a server has it, of step or rollout; NULL: none, or planning. Borrowed */
    const struct ax_remote_teacher *remote;
    const struct ax_peft *start; /* initial value of step.adapter; NULL: a new one, from the seed */
    /* where log-probs that the objective compares with are kept; cache NULL: they are not. The run
     * sets the team. */
    struct ax_reference_store references;
    struct ax_step_options step; /* n_microbatches; tokens, n_docs, max_len follow from data */
    bool recompute_auto;         /* use the least recompute that fits; else step.recompute */
    struct ax_runtime_options runtime;
    struct ax_train_data data;
    struct ax_lr_schedule lr; /* total and warmup are derived; stable too if it is −1 */
    int64_t warmup;           /* steps; −1: warmup_ratio */
    double warmup_ratio;      /* fraction of all steps; −1: 3 %, at most 100 steps */
    double epochs;            /* 0: max_steps decides */
    int64_t max_steps;        /* 0: epochs decide; if both are set, the fewer steps */
    struct ax_train_eval eval;
    struct ax_samples samples; /* generated at each evaluation */
    struct ax_train_requests requests;
    struct ax_tasks tasks; /* evaluated with each evaluation */
    /* group > 0: data.train has prompts, and the model trains on completions that it samples */
    struct ax_rollout_options rollout;
    /* the last ranks of runtime.fabric, beside those of the mesh, that sample and do not train; 0: all do both */
    int rollout_ranks;
    struct ax_train_value_options value; /* if rollout.ppo */
    struct ax_train_inputs inputs;       /* n 0: not compared */
    /* steps between comparisons of what ranks hold in common; −1: as often as it costs 0.1 % of the time;
     * 0: never. Else it is compared before each save, too, and if a gradient is not finite. */
    int64_t replica_check;
    struct ax_train_save save;
    struct ax_train_elastic_options elastic;
    struct ax_metrics_options metrics; /* logging_steps 0: every 1/200 of the run, 1 to 10 steps;
                                          fields that follow from the run are filled in */
    /* Called after the first step on each rank; the sum over ranks is the reference for MFU.
     * ax_measure_peak, or NULL. A run that is to take few seconds is measured for less long. */
    enum ax_status (*measure_peak)(const struct ax_runtime_options *o, double limit,
                                   struct ax_peak *peak);
    /* `profile_steps` steps, after the first `profile_first` ones, are written as a timeline; 0:
     * none */
    int64_t profile_steps, profile_first;
    /* losses above it, or far above the recent ones if it is NaN, are too large */
    double watchdog;
    /* this many logged steps in a row with too large losses stop the run; 0 = off */
    int64_t watchdog_patience;
    const json_t *about;  /* contents of run.json, to which memory by name is added; NULL: no
                                  run.json */
    const json_t *config; /* the effective configuration, stored in checkpoints */
    /* true for keys of config, such as "trl.num_generations", that may not change on resume; NULL: all may */
    bool (*is_fixed)(const char *key);
    /* true for the value that a key has if it is not set; NULL: none has one */
    bool (*is_default)(const char *key, const json_t *value);
};

/* Sets *dtype to the compute dtype of the checkpoint that a run with these options would resume
 * from, if there is one. */
enum ax_status ax_train_resumed_dtype(const struct ax_train_save *save, enum ax_dtype *dtype);

struct ax_train_result {
    int64_t steps, total_steps; /* done, planned */
    const char *limit;          /* the key that determines total_steps */
    int64_t resumed_from;       /* step; 0 = none */
    double loss;                /* last finite one; NaN: none */
    bool evaluated;
    struct ax_eval_result first_eval, last_eval; /* evaluations by this process */
    int64_t best_step;
    bool stopped_early;
    bool nothing_to_do; /* the run had finished earlier: nothing was written */
    struct ax_arena_plan plan;
    double save_waited, train_seconds;
};

/* A run's step options, for ax_plan_make. */
struct ax_step_options ax_train_step_options(const struct ax_train_options *o);
/* ---- before a run ---- */

/* The memory that a run needs. */
struct ax_train_fit {
    uint64_t arena;     /* bytes of the arena, for steps and evaluations */
    uint64_t beside;    /* bytes beside it, about (ax_backend_beside) */
    uint64_t available; /* at present; 0 = unknown */
    bool held;          /* weights are gathered once for a generation, not in each pass */
    bool fits;
    struct ax_plan_blocks blocks; /* names in the arena, of all models together */
};
/* Chooses step->recompute if recompute_auto asks for it. */
enum ax_status ax_train_fit(const struct ax_train_options *o, struct ax_step_options *step,
                            struct ax_train_fit *fit);

/* For plans of a mesh (runtime.sizes, without a fabric): the rank of a stage that needs most
 * memory, and how much. Ranks differ by sizes that do not divide evenly; if there are many, only
 * those at the mesh's corners are planned. */
struct ax_train_stage {
    int rank, n_slots;
    uint64_t arena;
};
/* Fills stages[pp], and sets the rank whose memory is planned: the one that needs most. */
enum ax_status ax_train_choose_rank(struct ax_train_options *o, struct ax_train_stage *stages);

/* What a run will need, computed from its options alone, without reading weights or writing
 * anything. */
struct ax_train_forecast {
    struct ax_train_fit fit;
    int64_t steps;  /* 0 = unknown: the data are not counted, or streamed without max_steps */
    double epochs;  /* epochs in these steps; 0 = unknown */
    int64_t tokens; /* tokens of all steps, without padding; 0 = unknown */
    struct ax_loader_count epoch; /* the first epoch's; zeroed = unknown */
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
