/* What the parts of the training loop share. Private to optim/train*.c. */
#ifndef AX_OPTIM_TRAIN_TRAIN_STATE_H
#define AX_OPTIM_TRAIN_TRAIN_STATE_H

#include "base/lock.h"
#include "base/stop.h"
#include "ckpt/state/saver.h"
#include "kernels/timeline.h"
#include "optim/train/mismatch.h"
#include "optim/metrics/slow_ranks.h"
#include "optim/train/train.h"

/* ---- train_sequences.c: the sequences of a step ---- */

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
    const struct ax_columns *columns; /* of the objective; or NULL */
    size_t width;                     /* of all columns together */
    uint32_t *values;                 /* [n_batches][columns][cap_tokens][a column's width] */
    bool pairs_share;                 /* prompts (shared_prompts.h) */
    int reference;                    /* the column with the reference's log-prob; −1: none */
    const struct ax_references *references; /* … which come from here; set after creation */
    struct ax_document *docs;               /* [n_batches][cap_docs] */
    int *n_docs;                            /* [n_batches] */
    /* of all micro-batches of the step: this rank's number m is m·ranks + own */
    int ranks, own;                  /* data ranks; index among them */
    struct ax_train_origin *origins; /* [n_batches·ranks][cap_docs] */
    struct ax_mismatch_of *examples; /* the same documents' */
    int *all_docs;                   /* [n_batches·ranks] */
    double kl;                       /* the objective's estimate for the step */
    int64_t *longest; /* [n_batches] tokens of the data ranks' longest micro-batch of this number */
    int64_t n_tokens, n_trained; /* of the step */
    int64_t n_computed;          /* tokens without those that are shared or left out */
    int64_t epoch, index;        /* of the step's first sequence */
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

/* ---- train_schedule.c: number of steps, and when to evaluate and save ---- */

struct ax_train_schedule {
    int64_t total;
    struct ax_lr_schedule lr;
    int64_t eval_every, save_every; /* in steps; 0: not by steps */
    int64_t logging_steps;
    const char *limit; /* the key that total comes from */
    double of_epoch;   /* steps of an epoch, at most total */
    int64_t unit;   /* sequences; of an epoch's last ones, those that do not fill it are dropped */
    bool countable; /* the data's */
    int64_t n_epochs;   /* number of epochs counted */
    int64_t *sequences; /* [n_epochs] per epoch */
    double doc_tokens;  /* per document on average; 0 = unknown */
};
enum ax_status ax_train_schedule_make(struct ax_train_schedule *s, const struct ax_train_options *o,
                                      int data_ranks);
void ax_train_schedule_free(struct ax_train_schedule *s);
/* Epochs done after the sequences of this step, and whether it is the last of its epoch, which is counted
 * if it has not been. */
enum ax_status ax_train_epoch_after(struct ax_train_schedule *s, const struct ax_train_sequences *r,
                                    const struct ax_train_data *d, double *epochs, bool *last);

/* ---- train_watch.c: implausible losses ---- */

#define AX_WATCH_WINDOW 64

struct ax_train_watch {
    double window[AX_WATCH_WINDOW]; /* the latest finite losses */
    int64_t n;                      /* total seen */
    int64_t bad_in_a_row, above_in_a_row;
    int64_t steps, untrained; /* of this process; those without a trained token */
};
int64_t ax_train_watch_size(const struct ax_train_watch *w); /* losses in the window */

/* ---- train_rollout.c: rewards that teach nothing ---- */

struct ax_train_worth {
    int64_t steps, in_a_row; /* of this process; the latest without a usable reward */
    bool usable;             /* any step so far had one, or the most that there is */
};

/* ---- train_step.c: a step whose result the host has not read yet ---- */

struct ax_train_cost {            /* of a step */
    double begin;                 /* when it began */
    double seconds;               /* until the next one began; 0 = not yet */
    double data, save;            /* seconds of them */
    bool samples;                 /* it begins with a rollout */
    double flops;                 /* of products */
    uint64_t waits, waits_before; /* all; before its gradients */
};
struct ax_train_late {
    bool pending; /* step done + 1 is enqueued: the fields below are its */
    struct ax_train_sequences sequences;
    bool epoch_end;
    struct ax_train_cost cost;
};

/* ---- train_ranks.c: what the ranks of a run decide together ---- */

/* What ranks have noticed since the last step. */
struct ax_train_vote {
    enum ax_stop stop;
    bool trigger; /* the file that requests a save exists */
    bool saved;   /* on all ranks: the save in flight has ended */
    /* and if rank 0 has measured algorithms, all have changed to them (parallel/choices.h) */
};

/* ---- train_value.c: PPO's value model, beside the policy ---- */

struct ax_train_value {
    struct ax_step step;
    struct ax_train_sequences sequences; /* of the step in progress */
    struct ax_figures figures;           /* of the step, and of a generation in its first */
    int first_unit;                      /* of its units among the saver's */
    char (*names)[AX_NAME_MAX + 32];     /* of its parts in a checkpoint: "value.NAME" */
    int64_t updates;                     /* as of the resumed checkpoint */
};

/* ---- the run ---- */

/* A saved step and its evaluation result. */
struct ax_train_kept {
    int64_t step; /* 0 = none yet */
    double value;
};

/* Of the steps that are profiled. */
struct ax_train_timeline {
    bool on, over;
    int64_t first; /* steps done when it began */
    double zero;   /* of its clock */
    struct ax_timeline spans;
};

struct ax_train {
    const struct ax_train_options *o;
    struct ax_train_result *out;
    struct ax_train_schedule schedule;
    struct ax_mesh mesh;               /* of the run, known before the runtime is open */
    struct ax_runtime_options runtime; /* of this rank: its sizes and slots are set */
    struct ax_train_vote vote;
    struct ax_team team;          /* of all ranks; in use by the saver while it saves */
    double waited[AX_ROLE_COUNT]; /* seconds for ranks of each role, before this step */
    struct ax_slow_ranks slow;
    struct ax_runtime *rt;
    struct ax_step step;
    struct ax_train_sequences sequences;        /* of the step in progress */
    struct ax_rollout rollout;                  /* of a run that samples what it trains on */
    struct ax_teacher reference;                /* of its policy, if it is a model of its own */
    struct ax_train_value value;                /* of PPO */
    struct ax_train_late late;                  /* its sequences are unused where no work is late */
    struct ax_reference_store reference_store;  /* that of the options, for the next two */
    struct ax_references references;            /* of an objective that compares with them */
    struct ax_mismatch mismatch, eval_mismatch; /* of an objective with an estimate of KL */
    struct ax_train_watch watch;
    struct ax_train_worth worth;
    struct ax_train_timeline timeline;
    struct ax_metrics *metrics;
    struct ax_claim lock;
    /* saving */
    struct ax_saver saver;
    struct ax_state_parts parts;
    struct ax_save_weight *weights;  /* [n_weights] */
    float **adapters;                /* [2·n_weights] A and B as of the save, of matrices that are
                                        saved with their adapter merged; else NULL */
    char (*names)[AX_NAME_MAX + 32]; /* [n_weights] of an adapter's tensors; else NULL */
    int n_weights;
    int64_t saving, saved; /* step of the save in flight (0 = none); of the last complete one */
    int64_t failed_saves;  /* number in a row */
    /* progress of the run */
    int64_t done; /* steps whose result is known, including skipped ones */
    double epoch; /* epochs done */
    int64_t tokens, trained;
    int64_t updates;                        /* optimizer updates, as of the resumed checkpoint */
    struct ax_metrics_window window;        /* as of the resumed checkpoint */
    double best;                            /* metric of the best evaluation */
    int64_t best_step;                      /* 0 = none yet */
    struct ax_train_kept kept, kept_before; /* best saved step; before the save in flight */
    int64_t worse;                          /* evaluations since the best one */
    bool stop_early;
    bool pending_eval, epoch_ended; /* evaluation pending; the last step ended an epoch */
    int64_t eval_sequences;         /* per evaluation; 0 = unknown */
};

/* Sets t->mesh and t->runtime. */
enum ax_status ax_train_find_mesh(struct ax_train *t);
/* True on the rank that has the output folder, its lock and the metrics. */
bool ax_train_is_main(const struct ax_train *t);
/* values[n] = the largest of each over all ranks. */
enum ax_status ax_train_max(const struct ax_train *t, double *values, int n);
/* values[n] = Σ over the parts of the step's loss, in order. */
enum ax_status ax_train_sum(const struct ax_train *t, double *values, int64_t n);
/* What ranks waited and computed in a step of `seconds`; nothing on one rank. */
enum ax_status ax_train_compare_ranks(struct ax_train *t, double seconds,
                                      struct ax_rank_figures *out);
/* Sets t->vote; the trigger counts only after a step. */
enum ax_status ax_train_take_vote(struct ax_train *t, bool after_step);
/* AX_ERR_UNSUPPORTED for what only one rank does so far. */
enum ax_status ax_train_check_ranks(const struct ax_train *t);
/* What rank 0 does with output_dir before the run: *resume and t->out->nothing_to_do are the same on
 * all ranks, which read the state of the run to resume. */
enum ax_status ax_train_folder_open(struct ax_train *t, const struct ax_step_options *so,
                                    char **resume);

/* Evaluates: *value is the metric that the options choose; NaN if a rank was asked to stop, which
 * leaves t->pending_eval. Counts first what an evaluation has. */
void ax_train_count_eval(struct ax_train *t);
enum ax_status ax_train_evaluate(struct ax_train *t, double *value);
/* Answers the options' prompts. */
enum ax_status ax_train_show_samples(struct ax_train *t);

/* Does the model sample what it trains on? */
bool ax_train_has_rollout(const struct ax_train_options *o);
/* Takes the memory of a reference model, which without an adapter is a copy of the base, and of models
 * that reward; loads them. */
enum ax_status ax_train_rollout_create(struct ax_train *t);
enum ax_status ax_train_rollout_load(struct ax_train *t);
void ax_train_rollout_free(struct ax_train *t);
/* Takes the memory for a generation while planning. */
enum ax_status ax_train_rollout_plan(struct ax_train *t);
/* Fills the step's batches with the next turn, after sampling if it is the first of a generation.
 * *stopped: there is no step, as a rank was asked to stop. */
enum ax_status ax_train_rollout_next(struct ax_train *t, bool *stopped);
/* AX_ERR_DATA if no reward of a run of 4 or more steps was usable. */
enum ax_status ax_train_worth_end(const struct ax_train *t);

/* Does a value model train, too? All of the following do nothing without. Takes its memory; loads it;
 * runs its step while planning. */
bool ax_train_has_value(const struct ax_train_options *o);
enum ax_status ax_train_value_create(struct ax_train *t);
/* The model whose frozen weights others may read, if it does not change them; else NULL. */
const struct ax_model *ax_train_lender(const struct ax_train *t, enum ax_lender which);
enum ax_status ax_train_value_load(struct ax_train *t);
enum ax_status ax_train_value_plan(struct ax_train *t);
void ax_train_value_free(struct ax_train *t);
/* For a run with one: no completion is in its micro-batches; this one follows `at` tokens of number m. */
void ax_train_value_clear(struct ax_train *t);
void ax_train_value_append(struct ax_train *t, int m, int64_t at, const struct ax_completion *c);
/* A step on the completions of the policy's; no result may be pending. */
enum ax_status ax_train_value_step(struct ax_train *t);
/* Adds its masters and optimizer state to what a checkpoint has, as units from first_unit on. */
enum ax_status ax_train_value_parts(struct ax_train *t, int first_unit);

/* The adapter whose folder a run writes; NULL: it writes models. With restarts a model, because the
 * adapter alone fits no base that anyone else has. */
const struct ax_peft_config *ax_train_saved_adapter(const struct ax_train_options *o);

/* Sequences that are read at a time with this many data ranks, and in how many steps they are trained
 * on. */
int64_t ax_train_sequences_per_step(const struct ax_train_options *o, int data_ranks);
int64_t ax_train_turns(const struct ax_train_options *o);

/* Runs the next step; none if a rank that samples was asked to stop. Where the device works late, its update is enqueued and its result is
 * pending; that of the step before is read when this step's gradients are enqueued. */
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

/* Around each step: notes when ops and transfers run in profile_steps steps, and then, or at the run's `last`
 * one, writes output_dir/timeline.json (trace.h), all ranks together. A failure to write is only a warning. */
enum ax_status ax_train_timeline_begin(struct ax_train *t);
enum ax_status ax_train_timeline_end(struct ax_train *t, bool last);

/* Rejects an output_dir that belongs to another run or contains a model; writes nothing. */
enum ax_status ax_train_folder_judge(const struct ax_train_save *save);
/* What happens to output_dir before the first step: creates it, takes its lock, checks it again,
 * chooses the checkpoint to resume from and reads the run's state from it, checks the disk space. */
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
    double checkpoint;   /* bytes of one */
    double need;         /* bytes in total */
    uint64_t available;
};
enum ax_status ax_train_disk(const struct ax_train *t, const struct ax_step_options *so,
                             struct ax_train_disk *d);
/* AX_ERR_STORAGE if they do not fit. */
enum ax_status ax_train_check_disk(const struct ax_train *t, const struct ax_step_options *so);

enum ax_status ax_train_save_create(struct ax_train *t);
/* Plans what the above takes of the host tier. */
enum ax_status ax_train_save_plan(struct ax_train *t);
void ax_train_save_free(struct ax_train *t);
/* With restarts: takes the adapters as they are now, because the optimizer changes them while a save is
 * being written, which applies them. All ranks together; part of the plan, too. */
enum ax_status ax_train_take_adapters(struct ax_train *t);
/* No save may be in flight. `last`: no other save follows, as in AX_SAVE_LAST. */
enum ax_status ax_train_save_start(struct ax_train *t, bool last);
/* Handles the end of a save. The first failure is only a warning, the second in a row an error; a
 * failure of the run's last save is always an error. */
enum ax_save_wait {
    AX_SAVE_LOOK, /* return immediately if it has not ended */
    AX_SAVE_WAIT, /* wait for its end */
    AX_SAVE_LAST  /* the same, and no other save follows */
};
enum ax_status ax_train_save_poll(struct ax_train *t, enum ax_save_wait wait);
/* Writes the model to output_dir, with the current weights or those of the best checkpoint. */
enum ax_status ax_train_publish(struct ax_train *t);

/* Reads the state of the run from a checkpoint's manifest: counters, position in the data, best
 * evaluation. Rejects options or data that would make it a different run. */
enum ax_status ax_train_read_run(struct ax_train *t, const char *dir);
/* True if the model is written and no step remains. */
bool ax_train_is_finished(const struct ax_train *t);
/* Loads weights and optimizer state from that checkpoint. */
enum ax_status ax_train_resume(struct ax_train *t, const char *dir);
/* Initializes a new adapter, or loads the given one; on a loaded base, or while planning. */
enum ax_status ax_train_start_adapter(struct ax_model *m, const struct ax_train_options *o);
/* The state of the run that a checkpoint stores; the caller owns *out. */
enum ax_status ax_train_describe(const struct ax_train *t, json_t **out);
/* Checkpoints have nothing of the teacher: it is loaded on resume, too. */
enum ax_status ax_train_load_teacher(struct ax_train *t);
/* Loads only the weights. */
enum ax_status ax_train_load_weights(struct ax_train *t, const char *dir);

/* Chooses recompute if requested, alike on all ranks. If the run does not fit into memory, the error
 * says what would help. */
enum ax_status ax_train_choose_memory(struct ax_train *t, struct ax_step_options *step);
/* Runs everything a run does once, on a planning runtime. */
enum ax_status ax_train_plan_once(struct ax_runtime *rt, const struct ax_train_options *o,
                                  const struct ax_step_options *so);
struct ax_eval_options ax_train_eval_options(const struct ax_train_options *o);
/* True if the objective compares with the reference's log-probs; the passes that compute them. */
bool ax_train_has_reference(const struct ax_train_options *o);
struct ax_eval_options ax_train_reference_options(const struct ax_train_options *o);
/* Computes them: the model is as the run found it. */
enum ax_status ax_train_refer(struct ax_train *t);
/* Estimates of the KL divergence from the reference, where the objective wants one: t->sequences.kl, for
 * their step; and for evaluations. Before the step begins. */
enum ax_status ax_train_estimate_kl(struct ax_train *t);
enum ax_status ax_train_eval_kl(struct ax_train *t, double *kl);

#endif
