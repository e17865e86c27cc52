/* A step: executes the action table over model, batches and optimizer.
 *
 * The caller fills the batches; a step is then gradients (forward and backward of every
 * micro-batch, sums over ranks, global norm) and update. The same code plans: on a planning runtime
 * nothing is computed and the arena's high-water marks are the plan. */
#ifndef AX_OPTIM_STEP_H
#define AX_OPTIM_STEP_H

#include "model/pass.h"
#include "optim/lisa.h"
#include "optim/lr_groups.h"
#include "optim/objective.h"
#include "optim/relora.h"
#include "optim/state.h"
#include "parallel/schedule.h"

struct ax_step_options {
    enum ax_dtype dtype;
    enum ax_recompute recompute;
    const struct ax_optimizer *optimizer;
    struct ax_optimizer_options opt;
    enum ax_masters masters;
    const struct ax_objective *objective;
    double max_norm;      /* ≤ 0: no clipping */
    double balance_coef;  /* coefficient of the routers' balancing loss (model/balance.h); 0 =
                             none */
    double neftune_alpha; /* noise on embeddings; 0 = none */
    uint64_t seed;
    int n_microbatches;
    int64_t tokens; /* T of a micro-batch's packed sequence, over all cp ranks; rounded up to
                              what the mesh needs */
    int64_t pad; /* > 0: micro-batches are as long as the longest of the data ranks needs, rounded
                    up to a multiple of it */
    int64_t n_docs;        /* cap per micro-batch */
    int64_t max_len;       /* longest document */
    int64_t max_positions; /* longest document in other passes, such as evaluation; 0 = max_len */
    const struct ax_peft_config *adapter; /* NULL: all parameters train. Borrowed */
    enum ax_store base_store;             /* for frozen matrices of linears */
    bool store_experts;                   /* … and of experts */
    const struct ax_peft_names *unfrozen; /* NULL: no restriction. Borrowed */
    struct ax_lr_groups lr_groups;
    struct ax_lisa_options lisa;
    struct ax_relora_options relora;
    struct ax_offload offload;
};

enum ax_step_phase { AX_TIME_FORWARD, AX_TIME_BACKWARD, AX_TIME_OPTIMIZER, AX_TIME_COUNT };
const char *ax_step_phase_name(enum ax_step_phase phase);

struct ax_step_result {
    double loss, grad_norm, lr;
    double aux_loss;     /* the routers' balancing loss, before its coefficient; not part of loss */
    double weight_total; /* Σ weight, all micro-batches and data ranks */
    bool skipped;        /* no tokens to train on, or loss or norm not finite: weights unchanged */
    double seconds[AX_TIME_COUNT];
};

struct ax_step {
    struct ax_runtime *rt;
    struct ax_step_options o;
    struct ax_model model;
    struct ax_batch *batches; /* [n_microbatches] */
    struct ax_slot *slots;    /* [schedule.n_slots] */
    struct ax_schedule schedule;
    /* [AX_LR_GROUPS]: the first is used by everything, all are set while the optimizer runs */
    struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_pass *passes;          /* [n_microbatches] */
    struct ax_param_state *states;   /* [model.n_params] */
    struct ax_state_stream stream;   /* of the states, if they are offloaded */
    struct ax_lisa lisa;             /* which layers train, if not all do */
    struct ax_tensor outbox;         /* gradient to send to the previous stage; compute [T/tp][D] */
    int64_t count;                   /* updates so far; scalars->step is the device's count */
    bool begun;                      /* gradients are computed, their update is not */
    char contract[AX_CONTRACT_NAME]; /* of its gradients: one per step of a runtime */
    double seconds[AX_TIME_COUNT];   /* of the step in progress */
    /* Called before a unit's weights, masters and optimizer state change; before a restart also
     * with n_units + unit, for its frozen weights. May be NULL. */
    void (*before_update)(void *ctx, int unit);
    void *before_update_ctx;
};

enum ax_status ax_step_create(struct ax_step *s, struct ax_runtime *rt, const struct ax_arch *arch,
                              const struct ax_step_options *o);
void ax_step_free(struct ax_step *s);

/* Computes complete gradients and their norm from filled batches. Sets loss, grad_norm and skipped
 * in `out`. */
enum ax_status ax_step_gradients(struct ax_step *s, struct ax_step_result *out);
/* Runs the optimizer on every unit; gradients are zero afterwards. */
enum ax_status ax_step_update(struct ax_step *s, double lr, struct ax_step_result *out);
/* Both. */
enum ax_status ax_step_run(struct ax_step *s, double lr, struct ax_step_result *out);
/* Sets the scalars as the last update, number s->count, left them if no step was skipped. */
enum ax_status ax_step_set_scalars(struct ax_step *s);
/* Continues after `count` updates: masters and state have been read from a checkpoint; computes the
 * compute copy from them. */
enum ax_status ax_step_restore(struct ax_step *s, int64_t count);

#endif
