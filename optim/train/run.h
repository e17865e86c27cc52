/* What the parts of the training loop share. Private to optim/train*.c. */
#ifndef AX_OPTIM_TRAIN_RUN_H
#define AX_OPTIM_TRAIN_RUN_H

#include "base/lock.h"
#include "base/stop.h"
#include "ckpt/state/saver.h"
#include "kernels/timeline.h"
#include "optim/train/mismatch.h"
#include "optim/metrics/slow_ranks.h"
#include "optim/train/train.h"

/* ---- sequences.c: the sequences of a step ---- */

struct ax_train_origin {
    const char *file; /* borrowed from the data set */
    uint64_t line;
};

/* Host copies of a step's micro-batches, kept until its result is known: to name their source
 * records, to evaluate single documents, and to compute the step again. */
struct ax_train_sequences {
    int64_t cap_tokens, cap_docs; /* per micro-batch */
    int n_batches;
    int32_t *tokens, *labels;         /* [n_batches][cap_tokens] */
    const struct ax_columns *columns; /* the objective's; or NULL */
    size_t width;                     /* width of all columns together */
    uint32_t *values;                 /* [n_batches][columns][cap_tokens][a column's width] */
    bool pairs_share;                 /* pairs share their prompts (shared_prompts.h) */
    int reference;                    /* the column with the reference's log-prob; −1: none */
    /* source of the reference's log-probs; set after creation */
    const struct ax_references *references;
    struct ax_document *docs; /* [n_batches][cap_docs] */
    int *n_docs;              /* [n_batches] */
    /* members about all micro-batches of the step: this rank's number m is the step's m·ranks +
     * own */
    int ranks, own;                  /* data ranks; index among them */
    struct ax_train_origin *origins; /* [n_batches·ranks][cap_docs] */
    struct ax_mismatch_of *examples; /* [n_batches·ranks][cap_docs] */
    int *all_docs;                   /* [n_batches·ranks] */
    double kl;                       /* the objective's estimate for the step */
    int64_t *longest; /* [n_batches] tokens of the data ranks' longest micro-batch of this number */
    int64_t n_tokens, n_trained; /* in the step */
    int64_t n_computed;          /* tokens that are computed: not shared, not left out */
    int64_t epoch, index;        /* position of the step's first sequence */
    int64_t n;                   /* sequences in the step */
};
enum ax_status ax_train_sequences_create(struct ax_train_sequences *r, const struct ax_step *s);
void ax_train_sequences_free(struct ax_train_sequences *r);
/* Reads the sequences of the next step and fills the step's batches; starts the next epoch when
 * this one has no more steps. */
enum ax_status ax_train_sequences_next(struct ax_train_sequences *r, struct ax_step *s,
                                       const struct ax_train_data *d);
/* Column c of micro-batch m, from its token `at`. */
uint32_t *ax_train_column_at(const struct ax_train_sequences *r, int m, int c, int64_t at);
/* Fills the step's batches again. */
enum ax_status ax_train_sequences_fill(const struct ax_train_sequences *r, struct ax_step *s);

/* ---- schedule.c: number of steps, and when to evaluate and save ---- */

struct ax_train_schedule {
    int64_t total;
    struct ax_lr_schedule lr;
    int64_t eval_every, save_every; /* in steps; 0: not by steps */
    int64_t logging_steps;
    const char *limit; /* the key that determines total */
    double of_epoch;   /* steps per epoch, at most total */
    int64_t unit;      /* an epoch's sequences are used in multiples of this; the rest is dropped */
    bool countable;    /* as in the data */
    int64_t n_epochs;  /* number of epochs counted */
    int64_t *sequences; /* [n_epochs] per epoch */
    double doc_tokens;  /* per document on average; 0 = unknown */
};
enum ax_status ax_train_schedule_make(struct ax_train_schedule *s, const struct ax_train_options *o,
                                      int data_ranks);
void ax_train_schedule_free(struct ax_train_schedule *s);
/* *epochs done after this step, and whether the step is the *last of its epoch. Counts the epoch if
 * it has not been counted. */
enum ax_status ax_train_epoch_after(struct ax_train_schedule *s, const struct ax_train_sequences *r,
                                    const struct ax_train_data *d, double *epochs, bool *last);

/* ---- watch.c: implausible losses ---- */

#define AX_WATCH_WINDOW 64

struct ax_train_watch {
    double window[AX_WATCH_WINDOW]; /* the latest finite losses */
    int64_t n;                      /* total seen */
    int64_t bad_in_a_row, above_in_a_row;
    int64_t steps, untrained; /* steps of this process; steps among them without a trained token */
};
int64_t ax_train_watch_size(const struct ax_train_watch *w); /* losses in the window */

/* ---- rollout.c: rewards that teach nothing ---- */

struct ax_train_worth {
    /* steps of this process; the latest steps in a row without a usable reward */
    int64_t steps, in_a_row;
    bool usable; /* any step so far had a usable reward, or all the highest */
};

/* ---- step.c: a step whose result the host has not read yet ---- */

struct ax_train_cost {            /* cost of a step */
    double begin;                 /* when it began */
    double seconds;               /* until the next one began; 0 = not yet */
    double data, save;            /* seconds for data and for saving */
    bool samples;                 /* the step begins with a rollout */
    double flops;                 /* FLOPs of matrix products */
    uint64_t waits, waits_before; /* waits of the host in the step; before its gradients */
};
struct ax_train_late {
    bool pending; /* step done + 1 is enqueued: the members below belong to it */
    struct ax_train_sequences sequences;
    bool epoch_end;
    struct ax_train_cost cost;
};

/* ---- ranks.c: what the ranks of a run decide together ---- */

/* What the ranks noticed since the last step. */
struct ax_train_vote {
    enum ax_stop stop;
    bool trigger; /* the file that requests a save exists */
    bool saved;   /* the save in flight has ended on all ranks */
    /* The vote also lets all ranks change to algorithms that rank 0 has measured
     * (parallel/choices.h). */
};

/* ---- value.c: PPO's value model, beside the policy ---- */

struct ax_train_value {
    struct ax_step step;
    struct ax_train_sequences sequences; /* the step in progress */
    /* figures of the step, and of a generation in its first step */
    struct ax_figures figures;
    int first_unit;                  /* index of its first unit among the saver's units */
    char (*names)[AX_NAME_MAX + 32]; /* names of its parts in a checkpoint: "value.NAME" */
    int64_t updates;                 /* updates in the resumed checkpoint */
};

/* ---- the run ---- */

/* A saved step and its evaluation result. */
struct ax_train_kept {
    int64_t step; /* 0 = none yet */
    double value;
};

/* The timeline of the steps that are profiled. */
struct ax_train_timeline {
    bool on, over;
    int64_t first; /* steps done when it began */
    double zero;   /* the clock's second that is 0 in the timeline */
    struct ax_timeline spans;
};

struct ax_train {
    const struct ax_train_options *o;
    struct ax_train_result *out;
    struct ax_train_schedule schedule;
    struct ax_mesh mesh;               /* the run's, known before the runtime is open */
    struct ax_runtime_options runtime; /* this rank's, with sizes and slots set */
    struct ax_train_vote vote;
    struct ax_team team;          /* all ranks; the saver uses it while it saves */
    double waited[AX_ROLE_COUNT]; /* seconds for ranks of each role, before this step */
    struct ax_slow_ranks slow;
    struct ax_runtime *rt;
    struct ax_step step;
    struct ax_train_sequences sequences; /* the step in progress */
    struct ax_rollout rollout;           /* for a run that samples what it trains on */
    /* reference of the rollout's policy, if that is a model of its own */
    struct ax_teacher reference;
    struct ax_train_value value; /* for PPO */
    /* its sequences are unused if the device does not work late */
    struct ax_train_late late;
    /* as in the options; used by references and mismatch */
    struct ax_reference_store reference_store;
    /* for an objective that compares with the reference */
    struct ax_references references;
    struct ax_mismatch mismatch, eval_mismatch; /* for an objective with an estimate of KL */
    struct ax_train_watch watch;
    struct ax_train_worth worth;
    struct ax_train_timeline timeline;
    struct ax_metrics *metrics;
    struct ax_claim lock;
    /* saving */
    struct ax_saver saver;
    struct ax_state_parts parts;
    struct ax_save_weight *weights; /* [n_weights] */
    /* [2·n_weights] A and B when the save began, for matrices that are saved with their adapter
     * merged; else NULL */
    float **adapters;
    char (*names)[AX_NAME_MAX + 32]; /* [n_weights] names of an adapter's tensors; else NULL */
    int n_weights;
    /* step of the save in flight (0 = none); step of the last complete save */
    int64_t saving, saved;
    int64_t failed_saves; /* failed saves in a row */
    /* progress of the run */
    int64_t done; /* steps whose result is known, including skipped ones */
    double epoch; /* epochs done */
    int64_t tokens, trained;
    int64_t updates;                 /* optimizer updates in the resumed checkpoint */
    struct ax_metrics_window window; /* the window in the resumed checkpoint */
    double best;                     /* metric of the best evaluation */
    int64_t best_step;               /* 0 = none yet */
    /* best saved step; the best one before the save in flight */
    struct ax_train_kept kept, kept_before;
    int64_t worse; /* evaluations since the best one */
    bool stop_early;
    bool pending_eval, epoch_ended; /* evaluation pending; the last step ended an epoch */
    int64_t eval_sequences;         /* per evaluation; 0 = unknown */
};

/* Sets t->mesh and t->runtime. */
enum ax_status ax_train_find_mesh(struct ax_train *t);
/* True on the rank that has the output folder, its lock and the metrics. */
bool ax_train_is_main(const struct ax_train *t);
/* values[n] = their maximum over all ranks. */
enum ax_status ax_train_max(const struct ax_train *t, double *values, int n);
/* values[n] = Σ over the parts of the step's loss, in order. */
enum ax_status ax_train_sum(const struct ax_train *t, double *values, int64_t n);
/* How long ranks waited and computed in a step of `seconds`; does nothing on one rank. */
enum ax_status ax_train_compare_ranks(struct ax_train *t, double seconds,
                                      struct ax_rank_figures *out);
/* Sets t->vote; the trigger counts only after a step. */
enum ax_status ax_train_take_vote(struct ax_train *t, bool after_step);
/* AX_ERR_UNSUPPORTED for options that support only one rank so far. */
enum ax_status ax_train_check_ranks(const struct ax_train *t);
/* Opens output_dir before the run, on rank 0. *resume and t->out->nothing_to_do are the same on all
 * ranks; every rank reads the state of the run to resume. */
enum ax_status ax_train_folder_open(struct ax_train *t, const struct ax_step_options *so,
                                    char **resume);

/* ax_train_count_eval counts an evaluation's sequences; call it first. ax_train_evaluate evaluates:
 * *value is the metric that the options choose, or NaN if a rank was asked to stop, which leaves
 * t->pending_eval set. */
void ax_train_count_eval(struct ax_train *t);
enum ax_status ax_train_evaluate(struct ax_train *t, double *value);
/* Samples answers to the prompts in the options. */
enum ax_status ax_train_show_samples(struct ax_train *t);

/* True if the model samples what it trains on. */
bool ax_train_has_rollout(const struct ax_train_options *o);
/* Allocates a reference model (without an adapter, a copy of the base) and models that reward;
 * loads them; frees them. */
enum ax_status ax_train_rollout_create(struct ax_train *t);
enum ax_status ax_train_rollout_load(struct ax_train *t);
void ax_train_rollout_free(struct ax_train *t);
/* Allocates memory for a generation; while planning. */
enum ax_status ax_train_rollout_plan(struct ax_train *t);
/* Fills the step's batches with the next turn, after sampling if it is the first turn of a
 * generation. *stopped: a rank was asked to stop, and there is no step. */
enum ax_status ax_train_rollout_next(struct ax_train *t, bool *stopped);
/* AX_ERR_DATA if the run had 4 or more steps and no usable reward. */
enum ax_status ax_train_worth_end(const struct ax_train *t);

/* True if a value model trains beside the policy. Otherwise the functions below do nothing. _create
 * allocates it, _load loads it, _plan runs its step while planning. */
bool ax_train_has_value(const struct ax_train_options *o);
enum ax_status ax_train_value_create(struct ax_train *t);
/* The model whose frozen weights others may read; NULL if it changes them. */
const struct ax_model *ax_train_lender(const struct ax_train *t, enum ax_lender which);
enum ax_status ax_train_value_load(struct ax_train *t);
enum ax_status ax_train_value_plan(struct ax_train *t);
void ax_train_value_free(struct ax_train *t);
/* With a value model: _clear empties its micro-batches; _append adds a completion after `at` tokens
 * of micro-batch m. */
void ax_train_value_clear(struct ax_train *t);
void ax_train_value_append(struct ax_train *t, int m, int64_t at, const struct ax_completion *c);
/* Runs a step of the value model on the policy's completions; no result may be pending. */
enum ax_status ax_train_value_step(struct ax_train *t);
/* Adds the value model's masters and optimizer state to a checkpoint's parts, as units from
 * first_unit on. */
enum ax_status ax_train_value_parts(struct ax_train *t, int first_unit);

/* The adapter that a run writes as a folder; NULL: the run writes models. With restarts it writes
 * models, because the adapter fits only the run's own base. */
const struct ax_peft_config *ax_train_saved_adapter(const struct ax_train_options *o);

/* How many sequences are read at a time with this many data ranks, and in how many steps they are
 * trained on. */
int64_t ax_train_sequences_per_step(const struct ax_train_options *o, int data_ranks);
int64_t ax_train_turns(const struct ax_train_options *o);

/* Runs the next step, or none if a rank that samples was asked to stop. If the device works late,
 * the update is only enqueued and its result is pending; the result of the step before is read
 * after this step's gradients have been enqueued. */
enum ax_status ax_train_step(struct ax_train *t);
/* Waits for the pending result, if there is one. */
enum ax_status ax_train_settle(struct ax_train *t);

/* Checks a step's result, before the update or, if it is not above the bound, after it:
 * AX_ERR_DIVERGED if the run must stop. For a loss that is NaN or far off, names the records that
 * caused it: computed with the weights before the update. */
enum ax_status ax_train_watch_step(struct ax_train *t, const struct ax_step_result *r);
/* The loss up to which watching step done + 1 needs no records. */
double ax_train_watch_bound(const struct ax_train *t);
/* At the end of the run: warns if the last steps had no finite loss, but too few to stop the
 * run. */
void ax_train_watch_end(const struct ax_train *t);
/* AX_ERR_DATA if no token of the run was trained on. */
enum ax_status ax_train_watch_trained(const struct ax_train *t);
/* Computes each document's loss separately, in the eval phase: the records of the `n` highest go to
 * worst, NaN first; *found = number of records. While planning, one pass. */
struct ax_train_suspect {
    struct ax_train_origin from;
    double loss;
};
enum ax_status ax_train_probe(struct ax_train *t, struct ax_train_suspect *worst, int n,
                              int *found);
/* AX_ERR_DATA or AX_ERR_DIVERGED (`st`) naming the first weight that is infinite or NaN. */
enum ax_status ax_train_check_weights(const struct ax_train *t, const char *whose,
                                      enum ax_status st);

/* Call before and after each step: records ops and transfers of `profile_steps` steps, and then, or
 * at the run's `last` step, writes output_dir/timeline.json (trace.h), all ranks together. A
 * failure to write is only a warning. */
enum ax_status ax_train_timeline_begin(struct ax_train *t);
enum ax_status ax_train_timeline_end(struct ax_train *t, bool last);

/* Rejects an output_dir that belongs to another run or contains a model; writes nothing. */
enum ax_status ax_train_folder_judge(const struct ax_train_save *save);
/* Before the first step, creates output_dir, takes its lock, checks it again, chooses the
 * checkpoint to resume from, reads the run's state from it, and checks the disk space. */
enum ax_status ax_train_folder_start(struct ax_train *t, const struct ax_step_options *so,
                                     char **resume_from);
/* True if output_dir contains the model of the step that t has reached. */
bool ax_train_is_published(const struct ax_train *t);
/* Removes a model that the run wrote before, starting with the files that mark it as one, so that
 * no remaining part is mistaken for a part of the next model. */
enum ax_status ax_train_folder_clear(const char *dir);
/* Writes output_dir/run.json; failures are only warnings, since training does not need it. */
void ax_train_write_about(const struct ax_train *t, const struct ax_step_options *so);
/* Disk space needed by the remaining checkpoints and the model, computed only from t->o and
 * t->schedule; output_dir need not exist. */
struct ax_train_disk {
    int64_t checkpoints; /* kept in addition to those that exist */
    double checkpoint;   /* bytes of one checkpoint */
    double need;         /* bytes in total */
    uint64_t available;
};
enum ax_status ax_train_disk(const struct ax_train *t, const struct ax_step_options *so,
                             struct ax_train_disk *d);
/* AX_ERR_STORAGE if the remaining files do not fit on the disk. */
enum ax_status ax_train_check_disk(const struct ax_train *t, const struct ax_step_options *so);

enum ax_status ax_train_save_create(struct ax_train *t);
/* Plans the host tier memory of ax_train_save_create. */
enum ax_status ax_train_save_plan(struct ax_train *t);
void ax_train_save_free(struct ax_train *t);
/* With restarts: copies the adapters as they are now, because a save applies them while it is
 * being written, and meanwhile the optimizer changes them. All ranks together; also runs while
 * planning. */
enum ax_status ax_train_take_adapters(struct ax_train *t);
/* No save may be in flight. `last`: no other save follows, as in AX_SAVE_LAST. */
enum ax_status ax_train_save_start(struct ax_train *t, bool last);
/* Handles the end of a save. The first failure is only a warning, the second in a row an error; a
 * failure of the run's last save is always an error. */
enum ax_save_wait {
    AX_SAVE_LOOK, /* return immediately if it has not ended */
    AX_SAVE_WAIT, /* wait for its end */
    AX_SAVE_LAST  /* wait for its end; no other save follows */
};
enum ax_status ax_train_save_poll(struct ax_train *t, enum ax_save_wait wait);
/* Writes the model to output_dir, with the current weights or those of the best checkpoint. */
enum ax_status ax_train_publish(struct ax_train *t);

/* Reads the state of the run from a checkpoint's manifest: counters, position in the data, best
 * evaluation. Rejects options or data that would make it a different run. */
enum ax_status ax_train_read_run(struct ax_train *t, const char *dir);
/* True if the model is written and no step remains. */
bool ax_train_is_finished(const struct ax_train *t);
/* Loads weights and optimizer state from a checkpoint. */
enum ax_status ax_train_resume(struct ax_train *t, const char *dir);
/* Initializes a new adapter, or loads the given one. The base must be loaded, except while
 * planning. */
enum ax_status ax_train_start_adapter(struct ax_model *m, const struct ax_train_options *o);
/* The state of the run that a checkpoint stores; the caller owns *out. */
enum ax_status ax_train_describe(const struct ax_train *t, json_t **out);
/* Loads the teacher, which checkpoints do not contain; on resume, too. */
enum ax_status ax_train_load_teacher(struct ax_train *t);
/* Loads only the weights of a checkpoint. */
enum ax_status ax_train_load_weights(struct ax_train *t, const char *dir);

/* Chooses recompute if requested, the same on all ranks. If the run does not fit into memory, the
 * error says what would help. */
enum ax_status ax_train_choose_memory(struct ax_train *t, struct ax_step_options *step);
/* Runs everything that a run does, once, on a planning runtime. */
enum ax_status ax_train_plan_once(struct ax_runtime *rt, const struct ax_train_options *o,
                                  const struct ax_step_options *so);
struct ax_eval_options ax_train_eval_options(const struct ax_train_options *o);
/* ax_train_has_reference: true if the objective compares with the reference's log-probs.
 * ax_train_reference_options: options for the passes that compute them. */
bool ax_train_has_reference(const struct ax_train_options *o);
struct ax_eval_options ax_train_reference_options(const struct ax_train_options *o);
/* Computes the reference's log-probs, before the run changes the model. */
enum ax_status ax_train_refer(struct ax_train *t);
/* For an objective with an estimate of the KL divergence from the reference: sets t->sequences.kl
 * for the sequences of its step, before the step begins; and computes *kl for evaluations. */
enum ax_status ax_train_estimate_kl(struct ax_train *t);
enum ax_status ax_train_eval_kl(struct ax_train *t, double *kl);

#endif
