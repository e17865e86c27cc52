/* The time of a step on a machine: the dry run of each pipeline stage is recorded (kernels/recording.h),
 * every op and transfer gets its seconds (optim/plan/rates.h), and the stages run together in an event
 * simulator (parallel/schedule/simulate.h). The ranks of a stage do the same at the same time, so one of each
 * stage is enough.
 *
 * With many micro-batches, two shorter steps are simulated, and the difference between them is what
 * each further micro-batch takes: in between, a pipeline repeats itself. */
#ifndef AX_OPTIM_PLAN_PLAN_TIME_H
#define AX_OPTIM_PLAN_PLAN_TIME_H

#include "optim/plan/plan.h"
#include "optim/plan/rates.h"

/* Whose transfers they are. */
enum ax_time_role {
    AX_TIME_GATHERS,    /* of weights */
    AX_TIME_REDUCTIONS, /* of gradients, over shards and replicas */
    AX_TIME_TP,
    AX_TIME_CP,
    AX_TIME_PP,
    AX_TIME_EP,
    AX_TIME_OTHER, /* the loss, the norm */
    AX_TIME_ROLES
};
const char *ax_time_role_name(enum ax_time_role role);

const char *ax_time_kind_name(enum ax_time_kind kind);

/* In seconds of a step, averaged over the pipeline's stages. */
struct ax_plan_time {
    double step;
    double work[AX_TIME_KINDS];    /* by enum ax_time_kind */
    double moved[AX_TIME_ROLES];   /* in which transfers are under way */
    double exposed[AX_TIME_ROLES]; /* in which nothing is computed because of them */
    double idle;                   /* after a rank's last op, until the last rank ends */
    double tokens;                 /* of all ranks */
    double flops, flops_full;      /* a rank's share of what the method needs: struct ax_plan */
    double tokens_per_second;      /* of all ranks */
    double peak;                   /* FLOP/s of the data sheet, in the compute dtype */
    double mfu, mfu_full;          /* shares of it, by flops and flops_full */
    uint64_t arena;                /* bytes, of the stage that needs most */
};

struct ax_plan_time_options {
    const struct ax_rates *rates;
    bool shorten;              /* many micro-batches as said above */
    struct ax_sim_options sim; /* span, if it is observed; contention is the rates' */
};

/* ro: its world, sizes and backend; rank and n_slots are set here. */
enum ax_status ax_plan_time(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                            const struct ax_runtime_options *ro, const struct ax_arch *arch,
                            const struct ax_step_options *so);

/* An estimate for comparisons, from one stage alone (of more than two, the second), and as many micro-batches as fill the
 * pipeline: what each of them takes, times their number and what filling adds, (p − 1)/v of p stages with v chunks,
 * or a third of it if backwards are halved.
 * Sets step, tokens and what follows from them, and arena. */
enum ax_status ax_plan_time_estimate(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                                     const struct ax_runtime_options *ro,
                                     const struct ax_arch *arch, const struct ax_step_options *so);

#endif
