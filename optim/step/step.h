/* A step: executes the action table over model, batches and optimizer.
 *
 * The caller fills the batches; a step is then gradients (forward and backward of every
 * micro-batch, sums over ranks), clipping and update. The same code plans: on a planning runtime
 * nothing is computed and the arena's high-water marks are the plan.
 *
 * The device decides by itself whether a step changes the weights (op clip), so the host need not
 * know the result first:
 *
 *   begin, decide, update   the host waits for the result before the update
 *   begin, finish, answer   it waits after the update, or after the next step's begin: a step late
 *
 * See step_create.c (memory), step.c (the way of a step, its actions, its result). */
#ifndef AX_OPTIM_STEP_STEP_H
#define AX_OPTIM_STEP_STEP_H

#include "model/pass.h"
#include "model/core/pipeline.h"
#include "model/teacher.h"
#include "optim/step/expert_balance.h"
#include "optim/optimizers/lr_groups.h"
#include "optim/losses/objective.h"
#include "optim/step/relora.h"
#include "optim/step/state.h"
#include "parallel/schedule/schedule.h"

struct ax_step_options {
    /* The model's. The step decides train, count_loads, chunks and unit_times itself; max_positions is
     * the longest document in other passes, such as evaluation; 0 = max_len. */
    struct ax_model_options model;
    enum ax_recompute recompute;
    const struct ax_optimizer *optimizer;
    struct ax_optimizer_options opt;
    const struct ax_objective *objective;
    /* the teacher's, for an objective with one; else NULL. Borrowed */
    const struct ax_arch *teacher;
    const struct ax_peft_config *teacher_adapter; /* NULL: none. Borrowed */
    bool
        teacher_on_base; /* the teacher's weights, but those of its adapter, are the model's base's */
    double max_norm;     /* ≤ 0: no clipping */
    double balance_coef; /* coefficient of the routers' balancing loss (model/parts/router.h); 0 =
                             none */
    /* coefficient of the routers' loss by sequence (model/parts/router.h); 0 = none */
    double sequence_coef;
    /* coefficient of the loss of indexers (model/parts/index_training.h), if model.indexers says that they train */
    double index_coef;
    /* speed at which the routers' biases follow the loads of experts (step.c); 0: they do not
     * change */
    double router_bias_speed;
    double neftune_alpha; /* noise on embeddings; 0 = none */
    /* weight of the loss of multi-token prediction, for a model with a layer for it (ax_arch_predict);
     * 0: the model has none */
    double mtp_coef;
    uint64_t seed;
    int n_microbatches;
    enum ax_pipeline_kind pipeline;
    int virtual_stages; /* see order.h */
    int64_t tokens;     /* T of a micro-batch's packed sequence, over all cp ranks; rounded up to
                              what the mesh needs */
    int64_t pad; /* > 0: micro-batches are as long as the longest of the data ranks needs, rounded
                    up to a multiple of it */
    int64_t n_docs; /* cap per micro-batch */
    /* the most documents of a micro-batch that share a prefix (model/core/batch.h) */
    int64_t alike;
    int64_t keys;      /* the most tokens of a micro-batch if no prefix were shared */
    int64_t max_len;   /* longest document */
    int64_t qat_after; /* updates before qat begins */
    struct ax_lr_groups lr_groups;
    struct ax_relora_options relora;
    bool tp_auto; /* ax_step_choose sets model.tp_overlap */
};

/* Do frozen weights stay as they were loaded? PiSSA and ReLoRA change them. */
bool ax_step_keeps_base(const struct ax_step_options *o);
/* The teacher of this arch beside the step's model. */
struct ax_teacher_options ax_step_teacher_options(const struct ax_step_options *o,
                                                  const struct ax_arch *teacher);
/* The longest document of any pass, training or not. */
int64_t ax_step_positions(const struct ax_step_options *o);
struct ax_pipeline ax_step_pipeline(const struct ax_step_options *o, int stages);
/* Stashes that a stage of its pipeline needs (ax_pipeline_slots). */
enum ax_status ax_step_slots(const struct ax_step_options *o, int stage, int stages, int *slots);

enum ax_step_phase { AX_TIME_FORWARD, AX_TIME_BACKWARD, AX_TIME_OPTIMIZER, AX_TIME_COUNT };
const char *ax_step_phase_name(enum ax_step_phase phase);

struct ax_step_result {
    double loss, grad_norm, lr;
    double aux_loss; /* the routers' balancing loss, before its coefficient; not part of loss */
    /* the routers' loss by sequence, before its coefficient; not part of loss */
    double sequence_loss;
    /* the divergence of indexers, a mean over them and tokens, before its coefficient; not part of loss */
    double index_loss;
    double mtp_loss; /* that of multi-token prediction, before its weight; not part of loss */
    /* the loss is a mean over this weight (enum ax_per) of all micro-batches and data ranks */
    double weight_total;
    double measures[AX_MEASURES];     /* the objective's; NaN: nothing to take a mean of */
    struct ax_expert_balance experts; /* for a model with experts */
    bool skipped; /* no tokens to train on, loss or norm not finite, or the loss above the bound of
                     ax_step_finish: weights unchanged */
    double seconds[AX_TIME_COUNT]; /* seconds per phase by the device's clock */
};

struct ax_step {
    struct ax_runtime *rt;
    struct ax_step_options o;
    struct ax_model model;
    struct ax_batch *batches; /* [n_microbatches] */
    /* [n_units]: planned times by which pipeline stages are balanced; NULL: one stage */
    double *unit_times;
    struct ax_teacher teacher;
    /* [n_microbatches]: the teacher's states for this step; NULL: no teacher */
    struct ax_teacher_states *taught;
    struct ax_slot *slots; /* [schedule.n_slots] */
    struct ax_schedule schedule;
    /* [ax_lr_group_count]: the first is used by everything, all are set while the optimizer runs */
    struct ax_step_scalars AX_DEVICE *scalars;
    /* times of the phases of the step in progress; stored between measures and ahead */
    struct ax_times AX_DEVICE *times;
    /* scalars of the loss of multi-token prediction; stored between times and scalars */
    struct ax_step_scalars AX_DEVICE *ahead;
    struct ax_step_measures AX_DEVICE *measures; /* measures of the step in progress */
    struct ax_expert_balance AX_DEVICE *balance; /* balance of the step; stored before measures */
    struct ax_pass *passes;                      /* [chunks][n_microbatches] */
    struct ax_step_messages {
        struct ax_message_tickets tickets[4]; /* by AX_ACT_SEND_OUTPUT … AX_ACT_RECEIVE_GRADIENT */
    } *messages;                              /* [chunks][n_microbatches] */
    /* sums in flight: a unit's sum over shards (or its only one); and the preceding unit's sum over
     * replicas */
    struct ax_unit_sum reduction, second;
    struct ax_param_state *states; /* [model.n_params] */
    struct ax_state_stream stream; /* streams the states, if they are offloaded */
    /* memory of what crosses to the previous stage, and of what has come from it (model/boundary.h) */
    void AX_DEVICE *outbox;
    void AX_DEVICE *inboxes[2];
    /* name in its contracts, of gradients and of what clips them: each step object of a runtime has its own */
    char contract[AX_CONTRACT_NAME];
    /* Inputs of the objective in the next ax_step_begin: KTO's estimate of KL; the least entropy of
     * tokens that train; and how many of this rank's tokens reach it (0: all train). */
    double kl, entropy_cut;
    int64_t entropy_tokens;
    /* weight of this rank's documents that have no gradient and were left out of the batches; the
     * loss is divided by it, too */
    double absent;
    /* updates so far. A pending update counts, until the answer says that it was skipped;
     * scalars->step is the device's count */
    int64_t count;
    bool begun;         /* gradients are computed, their update is not */
    uint64_t ticket;    /* ticket of the requested result */
    bool known_skipped; /* the result is known, and the step skipped */
    bool counted;       /* count includes the step whose result is pending */
    /* Called before a unit's weights, masters and optimizer state change; before a restart also
     * with n_units + unit, for its frozen weights. May be NULL. */
    void (*before_update)(void *ctx, int unit);
    void *before_update_ctx;
};

enum ax_status ax_step_create(struct ax_step *s, struct ax_runtime *rt, const struct ax_arch *arch,
                              const struct ax_step_options *o);
void ax_step_free(struct ax_step *s);

/* FLOPs that training needs per token: the model's, and the teacher's forward pass. */
double ax_step_flops_per_token(const struct ax_step *s, int64_t seq);
/* The step's teacher, whose weights the caller loads; NULL: none. */
struct ax_teacher *ax_step_teacher(struct ax_step *s);

/* Computes complete gradients from filled batches. */
enum ax_status ax_step_begin(struct ax_step *s);
/* Waits for the result; then the optimizer runs on every unit, and gradients are zero. */
enum ax_status ax_step_decide(struct ax_step *s, struct ax_step_result *out);
enum ax_status ax_step_update(struct ax_step *s, double lr, struct ax_step_result *out);
/* Enqueues the update of a step whose result is not known. If the loss is above hold_above, the
 * update is skipped, so that the host can inspect the loss. ax_step_answer must follow before the
 * next finish or decide. */
enum ax_status ax_step_finish(struct ax_step *s, double lr, double hold_above);
enum ax_status ax_step_answer(struct ax_step *s, struct ax_step_result *out);
/* Forgets the gradients of a step that has begun. */
void ax_step_drop(struct ax_step *s);
/* ax_step_gradients: begin and decide. ax_step_run: begin, finish and answer. */
enum ax_status ax_step_gradients(struct ax_step *s, struct ax_step_result *out);
enum ax_status ax_step_run(struct ax_step *s, double lr, struct ax_step_result *out);

/* Sets the scalars as the last update, number s->count, left them if no step was skipped. */
enum ax_status ax_step_set_scalars(struct ax_step *s);
/* Continues after `count` updates: masters and state have been read from a checkpoint; computes the
 * compute copy from them. */
enum ax_status ax_step_restore(struct ax_step *s, int64_t count);

/* AX_ERR_CONFIG if speed is not 0 and the model's routers have no bias. */
enum ax_status ax_router_bias_check(const struct ax_arch *arch, double speed);

#endif
