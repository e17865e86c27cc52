/* A run in progress, for the files of this folder that work on it. Each file's functions are declared below, in
 * the order of their calls: a file calls only those above it. A field stands under the file that owns it; others
 * read it, and resume.c sets what a checkpoint has of it.
 *
 * What needs no run has headers of its own: options.h, sequences.h, schedule.h, reference.h. */
#ifndef AX_OPTIM_TRAIN_RUN_H
#define AX_OPTIM_TRAIN_RUN_H

#include "base/lock.h"
#include "base/stop.h"
#include "ckpt/state/saver.h"
#include "kernels/finite.h"
#include "kernels/timeline.h"
#include "model/adapter/base_note.h"
#include "model/drafter.h"
#include "optim/metrics/slow_ranks.h"
#include "optim/train/handover.h"
#include "optim/train/options.h"
#include "optim/train/schedule.h"
#include "parallel/fabric/part.h"

/* What the ranks noticed since the last step. */
struct ax_train_vote {
    enum ax_stop stop;
    bool trigger; /* the file that requests a save exists */
    bool saved;   /* the save in flight has ended on all ranks */
    bool compare; /* a comparison of replicas is due */
    /* The vote also lets all ranks change to algorithms that rank 0 has measured
     * (parallel/choices.h). */
};

/* Log-probs of the reference, which an objective compares with. */
struct ax_train_references {
    /* as in the options; used by logprobs and mismatch */
    struct ax_reference_store store;
    struct ax_references logprobs;              /* for training and evaluation data */
    struct ax_mismatch mismatch, eval_mismatch; /* for an objective with an estimate of KL */
    int64_t rows; /* rows of the pass in progress, to show how far it is; 0 = unknown */
};

/* PPO's value model, beside the policy. */
#define AX_VALUE_PREFIX "value." /* prefix of its parts' names in a checkpoint */
struct ax_train_value {
    struct ax_step step;
    struct ax_train_sequences sequences; /* the step in progress */
    /* figures of the step, and of a generation in its first step */
    struct ax_figures figures;
    int first_unit;                  /* index of its first unit among the saver's units */
    char (*names)[AX_NAME_MAX + 32]; /* names of its parts in a checkpoint */
    int64_t updates;                 /* updates in the resumed checkpoint */
};

/* Rewards that teach nothing. */
struct ax_train_worth {
    /* steps of this process; the latest steps in a row without a usable reward */
    int64_t steps, in_a_row;
    bool usable; /* any step so far had a usable reward, or all the highest */
};

/* Generations that were drawn and not trained on yet. */
struct ax_train_ahead {
    /* ---- on a rank that trains ---- */
    json_t *letters;               /* oldest first; NULL: the run has none */
    struct ax_rollout rollout;     /* where ranks that train sample: draws them */
    struct ax_handover *handovers; /* else weights on their way: [staleness + 1], by version */
    int64_t received;              /* number of the newest generation */
    int64_t allowed; /* number of the newest that ranks that sample have weights for */
    /* seconds of this step: waiting for a generation; handing weights over; sampling and rewarding here */
    double waited, handing, sampled, rewarded;
    double elsewhere; /* seconds that other ranks took for the step's generation */
    /* ---- on a rank that only samples ---- */
    struct ax_train_outgoing { /* a generation on its way */
        char *text;
        struct ax_team_letter *letters; /* [ranks that train] */
    } *outgoing;                        /* [staleness + 1], by number */
};

/* Implausible losses. */
#define AX_WATCH_WINDOW 64
struct ax_train_watch {
    double window[AX_WATCH_WINDOW]; /* the latest finite losses */
    int64_t n;                      /* total seen */
    int64_t bad_in_a_row, above_in_a_row;
    int64_t steps, untrained; /* steps of this process; steps among them without a trained token */
};

/* The latest comparison of what ranks hold in common. */
struct ax_train_replicas {
    int64_t compared;    /* after this step; −1: never */
    double end, seconds; /* when it ended, and what it took */
};

/* What trained tensors were at the start. */
struct ax_train_unmoved {
    uint64_t *hashes; /* [n_params] of this rank's parts; NULL: nothing is to be looked at */
    int64_t from;     /* step */
};

/* What a checkpoint and the trained model contain. */
struct ax_train_contents {
    struct ax_state_parts parts;
    struct ax_save_weight *weights; /* [n_weights] */
    /* [2·n_weights] A and B when the save began, for matrices that are saved with their adapter
     * merged; else NULL */
    float **adapters;
    char (*names)[AX_NAME_MAX + 32]; /* [n_weights] names of an adapter's tensors; else NULL */
    char copies[AX_ARCH_COPIES][AX_NAME_MAX]; /* names of copies of the embedding and the head */
    int n_weights;
};

/* A step whose result the host has not read yet. */
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

/* The timeline of the steps that are profiled. */
struct ax_train_timeline {
    bool on, over;
    int64_t first; /* steps done when it began */
    double zero;   /* the clock's second that is 0 in the timeline */
    struct ax_timeline spans;
};

/* For a job that goes on without ranks it has lost. */
struct ax_train_elastic {
    bool resumed;   /* from a checkpoint in memory */
    bool in_memory; /* the save in flight is one in memory */
    bool full;      /* there was no room for a checkpoint in memory */
    bool damaged;   /* ranks had different weights: this one's are not to be kept */
    int64_t saved;  /* step of the newest checkpoint in memory */
    int64_t asked;  /* step of the last save on the disk that this process began */
    /* the last step's record, which rank 0 may not have written; the window before it. step 0: none */
    struct ax_step_figures last;
    struct ax_metrics_window before;
    json_t *run; /* the state of the run after step `done`, for a rescue; NULL: none is possible */
    /* what has been done after step `done` */
    enum ax_train_after { AX_AFTER_ALL, AX_AFTER_NOTHING, AX_AFTER_EVALUATION } after;
};

/* A saved step and its evaluation result. */
struct ax_train_kept {
    int64_t step; /* 0 = none yet */
    double value;
};

struct ax_train {
    const struct ax_train_options *o; /* runtime is of the ranks that do the same as this one */
    struct ax_train_result *out;
    /* ranks.c */
    struct ax_fabric_part part; /* these ranks, if there are others */
    struct ax_team all;         /* they and the others: first those that train; else closed */
    struct ax_mesh mesh;        /* the run's, known before the runtime is open */
    struct ax_runtime_options runtime; /* this rank's, with sizes and slots set */
    struct ax_team team;               /* the mesh's ranks; the saver uses it while it saves */
    struct ax_team between;            /* the same ranks, for tasks at evaluations and requests */
    struct ax_train_vote vote;
    struct ax_train_fit fit;      /* memory that was planned */
    double waited[AX_ROLE_COUNT]; /* seconds for ranks of each role, before this step */
    struct ax_slow_ranks slow;
    /* replicas.c, unmoved.c, reference.c, models.c, ahead.c, rollout.c, watch.c, contents.c */
    struct ax_train_replicas replicas;
    struct ax_train_unmoved unmoved;
    struct ax_train_references refs;
    struct ax_train_value value; /* for PPO */
    struct ax_rollout rollout;   /* for a run that samples what it trains on */
    struct ax_drafter drafter;   /* what drafts tokens of the rollout */
    /* reference of the rollout's policy, if that is a model of its own */
    struct ax_teacher reference;
    struct ax_teacher teacher;   /* teacher of the rollout's sampled tokens; the step has its own */
    struct ax_train_ahead ahead; /* for one that samples ahead of training */
    struct ax_train_worth worth;
    struct ax_train_watch watch;
    struct ax_train_contents contents;
    /* elastic.c */
    struct ax_train_elastic elastic;
    /* resume.c: of a base that a resumed run reads again, else "" */
    char base[AX_BASE_VALUES];
    /* folder.c */
    struct ax_claim lock;
    /* save.c */
    struct ax_saver saver;
    /* step of the save in flight (0 = none); step of the last complete save */
    int64_t saving, saved;
    int64_t failed_saves; /* failed saves in a row */
    /* evaluate.c */
    bool pending_eval;      /* an evaluation was interrupted */
    int64_t eval_sequences; /* per evaluation; 0 = unknown */
    /* train.c: the step in progress */
    struct ax_train_sequences sequences;
    /* its sequences are unused if the device does not work late */
    struct ax_train_late late;
    int64_t done;     /* steps whose result is known, including skipped ones */
    double epoch;     /* epochs done */
    bool epoch_ended; /* the last step ended an epoch */
    int64_t tokens, trained;
    int64_t updates;                 /* optimizer updates in the resumed checkpoint */
    struct ax_metrics_window window; /* the metrics' window after step `done` */
    struct ax_train_timeline timeline;
    /* train.c: the run */
    struct ax_train_schedule schedule;
    struct ax_runtime *rt;
    struct ax_step step;
    struct ax_metrics *metrics;
    double best;       /* metric of the best evaluation */
    int64_t best_step; /* 0 = none yet */
    int64_t worse;     /* evaluations since the best one */
    bool stop_early;
    /* best saved step, which a failed save sets back to the one before it */
    struct ax_train_kept kept, kept_before;
};

/* ---- models.c: PPO's value model, without which these functions do nothing ---- */

/* _create allocates it, _plan runs its step while planning. */
enum ax_status ax_train_value_create(struct ax_train *t);
enum ax_status ax_train_value_plan(struct ax_train *t);
void ax_train_value_free(struct ax_train *t);
/* Runs a step of the value model on the policy's completions; no result may be pending. */
enum ax_status ax_train_value_step(struct ax_train *t);
/* Adds the value model's masters and optimizer state to a checkpoint's parts, as units from
 * first_unit on. */
enum ax_status ax_train_value_parts(struct ax_train *t, int first_unit);

/* ---- models.c: all models beside the one that trains ---- */

/* The weights that a run starts with, without an adapter: into the policy, or a copy of what it was. */
enum ax_status ax_train_load_base(const struct ax_train_options *o, struct ax_model *m);
/* Allocates a model for the reference beside the policy, and loads what the policy was at the start. */
enum ax_status ax_train_create_reference(const struct ax_train_options *o, struct ax_teacher *t,
                                         const struct ax_model *policy, int64_t max_positions);
enum ax_status ax_train_load_reference(const struct ax_train_options *o, struct ax_model *m);
/* Allocates the reference, if that is a model of its own, and models that reward; loads them, and the value model; frees
 * them. */
enum ax_status ax_train_rollout_create(struct ax_train *t);
enum ax_status ax_train_rollout_load(struct ax_train *t);
void ax_train_rollout_free(struct ax_train *t);
struct ax_rollout_models ax_train_rollout_models(struct ax_train *t);
/* The teacher of the step or of the rollout; NULL: none. */
struct ax_teacher *ax_train_teacher(struct ax_train *t);

/* ---- replicas.c ---- */

/* True on a rank for which a comparison is due after the step that was enqueued last. */
bool ax_train_replicas_are_due(const struct ax_train *t);
/* AX_ERR_PEER naming step, tensor and rank if ranks that should have the same weights have not. All ranks
 * together; does nothing without replicas, if they were compared after this step, or with replica_check 0. */
enum ax_status ax_train_compare_replicas(struct ax_train *t);
/* *hash = that of this rank's part of a parameter, of the first `most` bytes of each tensor that stores it, or
 * with `updated` of those alone that the optimizer updates: beside masters of their own, passes read a BF16 copy,
 * which each update rounds at random. 0: it has none. */
enum ax_status ax_train_hash_param(const struct ax_model *m, const struct ax_param *p, size_t most,
                                   bool updated, uint64_t *hash);
/* *param = index of the first parameter of which this rank has an infinite or NaN element, and that element's
 * index in the entire tensor; n_params if there is none. */
enum ax_status ax_train_first_nonfinite(const struct ax_model *m, int *param,
                                        struct ax_nonfinite *out);
/* Both checks, before anything is saved: AX_ERR_PEER as above, AX_ERR_DIVERGED naming a weight that is not
 * finite. All ranks together. */
enum ax_status ax_train_check_weights(struct ax_train *t);

/* ---- ranks.c: what the ranks of a run decide together ---- */

/* With ranks that sample alone: opens t->all, and makes o->runtime that of this rank's part. */
enum ax_status ax_train_ranks_split(struct ax_train *t, struct ax_train_options *o);
/* True on a rank that samples and does not train. */
bool ax_train_only_samples(const struct ax_train *t);
/* Sets t->mesh and t->runtime, and opens t->team. AX_ERR_UNSUPPORTED for options that support only
 * one rank so far. */
enum ax_status ax_train_ranks_open(struct ax_train *t);
void ax_train_ranks_close(struct ax_train *t);
/* True on the rank that has the output folder, its lock and the metrics. */
bool ax_train_is_main(const struct ax_train *t);
/* What ranks waited before a step, in evaluations and saves, is not the step's. */
void ax_train_ranks_begin_step(struct ax_train *t);
/* How long ranks waited and computed in a step of `seconds`; does nothing on one rank. */
enum ax_status ax_train_compare_ranks(struct ax_train *t, double seconds,
                                      struct ax_rank_figures *out);
/* Sets t->vote; the trigger counts only after a step. */
enum ax_status ax_train_take_vote(struct ax_train *t, bool after_step);

/* ---- unmoved.c ---- */

/* Notes what the trained tensors are, if enough steps follow. */
enum ax_status ax_train_unmoved_begin(struct ax_train *t);
/* Some steps later: a warning if some are still the same. All ranks together. */
enum ax_status ax_train_unmoved_look(struct ax_train *t);
void ax_train_unmoved_free(struct ax_train *t);
/* After each step: what the fault "weights" asks for. */
enum ax_status ax_train_inject_damage(struct ax_train *t);

/* ---- reference.c ---- */

/* Computes the reference's log-probs, before the run changes the model. */
enum ax_status ax_train_refer(struct ax_train *t);
/* For an objective with an estimate of the KL divergence from the reference: sets t->sequences.kl
 * for the sequences of its step, before the step begins; and computes *kl for evaluations. */
enum ax_status ax_train_estimate_kl(struct ax_train *t);
enum ax_status ax_train_eval_kl(struct ax_train *t, double *kl);
void ax_train_references_free(struct ax_train_references *r);

/* ---- ahead.c: generations that are drawn before the step's weights are there; nothing in other runs ---- */

enum ax_status ax_train_ahead_create(struct ax_train *t);
void ax_train_ahead_free(struct ax_train *t);
/* What a checkpoint has of them; NULL: nothing, or out of memory. Reading follows that of the rollout. */
json_t *ax_train_ahead_json(const struct ax_train *t);
enum ax_status ax_train_ahead_read(struct ax_train *t, struct ax_json list);
/* Tells ranks that sample where to begin, or that there is nothing to do. */
enum ax_status ax_train_ahead_begin(struct ax_train *t);
/* t->rollout = the next step's generation, whose lines are reported; as ax_train_rollout_next. */
enum ax_status ax_train_ahead_next(struct ax_train *t, bool *stopped);
/* Adds the share of time that sampling elsewhere has saved in a step of `seconds`. */
void ax_train_ahead_put_saved(struct ax_train *t, double seconds);
/* Before a save: waits for generations that are being drawn, as the weights for them will be gone. */
enum ax_status ax_train_ahead_collect(struct ax_train *t);
/* Sends ranks that sample home, if the run has ended with `st` on all ranks; returns the run's status. */
enum ax_status ax_train_ahead_end(struct ax_train *t, enum ax_status st);

/* ---- rollout.c: completions to train on ---- */

/* Allocates memory for a generation; while planning. */
enum ax_status ax_train_rollout_plan(struct ax_train *t);
/* Fills the step's batches with the next turn, after sampling if it is the first turn of a
 * generation; then, and with a value model, no result may be pending. *stopped: a rank was asked to
 * stop, and there is no step. */
enum ax_status ax_train_rollout_next(struct ax_train *t, bool *stopped);
/* AX_ERR_DATA if the run had 4 or more steps and no usable reward. */
enum ax_status ax_train_worth_end(const struct ax_train *t);

/* ---- watch.c ---- */

/* Number of losses in the window. */
static inline int64_t ax_train_watch_size(const struct ax_train_watch *w) {
    return w->n < AX_WATCH_WINDOW ? w->n : AX_WATCH_WINDOW;
}
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
 * worst, NaN first; *found = number of records that have a loss. While planning, one pass. */
struct ax_train_suspect {
    struct ax_train_origin from;
    double loss;
};
enum ax_status ax_train_probe(struct ax_train *t, struct ax_train_suspect *worst, int n,
                              int *found);

/* ---- resume.c ---- */

/* The state of the run that a checkpoint stores; the caller owns *out, which is NULL after an error. */
enum ax_status ax_train_describe(const struct ax_train *t, json_t **out);
/* Reads the state of the run from a checkpoint's manifest: counters, position in the data, best
 * evaluation. Rejects options or data that would make it a different run. */
enum ax_status ax_train_read_run(struct ax_train *t, const char *dir);
/* Loads all models, and with a checkpoint its weights and optimizer state; computes what the objective compares
 * with. AX_ERR_DATA naming the first weight that is infinite or NaN. From its end on, signals are
 * requests to stop that ranks agree about (base/stop.h). */
enum ax_status ax_train_load(struct ax_train *t, const char *resume_from);
/* Initializes a new adapter, or loads the given one. The base must be loaded, except while
 * planning. */
enum ax_status ax_train_start_adapter(struct ax_model *m, const struct ax_train_options *o);
/* Loads only the weights of a checkpoint. */
enum ax_status ax_train_load_weights(struct ax_train *t, const char *dir);

/* True if the model folder of a checkpoint has numbers that training changes and the state lacks. */
bool ax_train_has_buffers(const struct ax_train *t);

/* ---- sampler.c ---- */

/* All that a rank does that only samples. */
enum ax_status ax_train_sample(struct ax_train *t);

/* ---- contents.c ---- */

enum ax_status ax_train_save_create(struct ax_train *t);
void ax_train_save_free(struct ax_train *t);
/* With restarts: copies the adapters as they are now, because a save applies them while it is
 * being written, and meanwhile the optimizer changes them. All ranks together; also runs while
 * planning. */
enum ax_status ax_train_take_adapters(struct ax_train *t);

/* ---- forecast.c ---- */

/* Chooses recompute if requested, the same on all ranks. If the run does not fit into memory, the
 * error says what would help. */
enum ax_status ax_train_choose_memory(struct ax_train *t, struct ax_step_options *step);
/* Runs everything that a run does, once, on a planning runtime. */
enum ax_status ax_train_plan_once(struct ax_runtime *rt, const struct ax_train_options *o,
                                  const struct ax_step_options *so);
/* AX_ERR_STORAGE if the remaining checkpoints and the model do not fit on the disk. */
enum ax_status ax_train_check_disk(const struct ax_train *t, const struct ax_step_options *so);

/* ---- folder.c ---- */

/* Rejects an output_dir that belongs to another run or contains a model; writes nothing. */
enum ax_status ax_train_folder_judge(const struct ax_train_save *save);
/* Before the first step, rank 0 creates output_dir, takes its lock, checks it again, chooses the
 * checkpoint to resume from, checks the disk space and writes run.json. *resume and
 * t->out->nothing_to_do are the same on all ranks; every rank reads the state of the run to resume. */
enum ax_status ax_train_folder_open(struct ax_train *t, const struct ax_step_options *so,
                                    char **resume);
/* Removes a model that the run wrote before, starting with the files that mark it as one, so that
 * no remaining part is mistaken for a part of the next model. */
enum ax_status ax_train_folder_clear(const char *dir);

/* ---- save.c ---- */

/* No save may be in flight. `last`: no other save follows, as in AX_SAVE_LAST. */
enum ax_status ax_train_save_start(struct ax_train *t, bool last);
/* Handles the end of a save. The first failure is only a warning, the second in a row an error; a
 * failure of the run's last save, or after a rank was lost, is always an error. The text says whether the
 * checkpoint is there. */
enum ax_save_wait {
    AX_SAVE_LOOK, /* return immediately if it has not ended */
    AX_SAVE_WAIT, /* wait for its end */
    AX_SAVE_LAST  /* wait for its end; no other save follows */
};
enum ax_status ax_train_save_poll(struct ax_train *t, enum ax_save_wait wait);
/* For metrics that are about to be opened, on rank 0: the newest intact checkpoint in output_dir up to
 * t->done. The caller frees saved->path. */
enum ax_status ax_train_saved_before(const struct ax_train *t, struct ax_metrics_saved *saved);
/* Writes the model to output_dir, with the current weights or those of the best checkpoint. */
enum ax_status ax_train_publish(struct ax_train *t);

/* The same in memory: only the newest is kept. A failure is never an error. */
enum ax_status ax_train_save_in_memory(struct ax_train *t);

/* ---- elastic.c: nothing of it without o->elastic.dir ---- */

/* True if step `step` ends with a checkpoint in memory. */
bool ax_train_elastic_is_due(const struct ax_train *t, int64_t step);
/* After each step: saves in memory if that is due. All ranks together. */
enum ax_status ax_train_elastic_save(struct ax_train *t);
/* Call it with each step's record, before rank 0 writes it. */
void ax_train_elastic_record(struct ax_train *t, const struct ax_step_figures *f);
/* Remembers the state of the run after step t->done, of which `after` is done. */
enum ax_status ax_train_elastic_note(struct ax_train *t, enum ax_train_after after);
/* The state is the same, but more is done. */
void ax_train_elastic_mark(struct ax_train *t, enum ax_train_after after);
/* The same after the step's evaluation, when rank 0 has certainly written its record. All ranks together. */
enum ax_status ax_train_elastic_evaluated(struct ax_train *t);
/* After an error of run_steps: if another rank is lost, and this one has the state of a step, writes its parts to memory.
 * Of replicas one does. A failure is only a warning. */
void ax_train_elastic_rescue(struct ax_train *t, enum ax_status st);
/* On rank 0, before a run resumes: joins what ranks have rescued; replaces *resume (NULL: the start) by the newest
 * checkpoint in memory if that is newer. */
enum ax_status ax_train_elastic_choose(const struct ax_train *t, char **resume);
/* Sets t->elastic from the state of the run in checkpoint `dir`. */
enum ax_status ax_train_elastic_read(struct ax_train *t, const char *dir, struct ax_json run);
/* On rank 0, before and after metrics are opened: does the record of the last step lack? Writes it. */
bool ax_train_elastic_lacks_record(const struct ax_train *t);
/* At the start of a run: tells the launcher its step, and says which steps are done again. */
void ax_train_elastic_say(const struct ax_train *t);

/* ---- requests.c: what others ask between steps ---- */

/* *any: there are requests, on a rank. `last`: there will be none. */
enum ax_status ax_train_requests_look(struct ax_train *t, bool last, bool *any);
/* Answers those that have come; no result may be pending. While planning, takes the memory for it. */
enum ax_status ax_train_requests_answer(struct ax_train *t);

/* ---- eval_sampled.c ---- */

/* Evaluates a distillation on the completions of r. */
enum ax_status ax_train_evaluate_sampled(struct ax_train *t, const struct ax_rollout *r,
                                         const struct ax_eval_options *o,
                                         struct ax_eval_result *out);
/* The same by a teacher of sampled tokens alone, from the rollout's figures. */
void ax_train_evaluate_taught(const struct ax_rollout *r, struct ax_eval_result *out);

/* ---- evaluate.c ---- */

/* The name of what selects the best evaluation. */
const char *ax_train_best_by(const struct ax_train *t);
/* *value is the metric that the options choose, or NaN if a rank was asked to stop, which leaves
 * t->pending_eval set. Samples answers to the prompts in the options, too. */
enum ax_status ax_train_evaluate(struct ax_train *t, double *value);

#endif
