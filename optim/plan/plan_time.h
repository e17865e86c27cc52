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

/* The purposes of transfers. */
enum ax_time_role {
    AX_TIME_GATHERS,    /* gathers of weights */
    AX_TIME_REDUCTIONS, /* sums of gradients, over shards and replicas */
    AX_TIME_TP,
    AX_TIME_CP,
    AX_TIME_PP,
    AX_TIME_EP,
    AX_TIME_OTHER, /* transfers for the loss and the norm */
    AX_TIME_HOST,  /* copies to and from the host tier beside ops */
    AX_TIME_ROLES
};
/* The lane of copies into a tier, behind those of communicators. */
#define AX_TIME_LANES (AX_ROLE_COUNT + AX_TIERS)
static inline int ax_time_lane(uint64_t ticket) {
    return AX_ROLE_COUNT + (int)ax_queue_into(ticket);
}
const char *ax_time_role_name(enum ax_time_role role);

const char *ax_time_kind_name(enum ax_time_kind kind);

/* An op's part of a step. Transfers beside it make it longer, which is in a step's `work` alone. */
struct ax_plan_op_time {
    double seconds, calls;
};

/* The time of a step, in seconds, averaged over the pipeline's stages. */
struct ax_plan_time {
    double step;
    double work[AX_TIME_KINDS]; /* time of ops, by enum ax_time_kind */
    struct ax_plan_op_time ops[AX_OP_COUNT];
    double moved[AX_TIME_ROLES];   /* time in which transfers are in flight */
    double exposed[AX_TIME_ROLES]; /* time in which nothing is computed because of a transfer */
    double idle;                   /* after a rank's last op, until the last rank ends */
    double tokens;                 /* per step, on all ranks */
    /* a rank's share of the FLOPs that the method needs (struct ax_plan) */
    double flops, flops_full;
    double tokens_per_second; /* on all ranks */
    double peak;              /* FLOP/s by the data sheet, in the compute dtype */
    double mfu, mfu_full;     /* shares of the peak, by flops and flops_full */
    uint64_t arena, beside;   /* bytes of the arena, and beside it, on the stage that needs most */
};

struct ax_plan_time_options {
    const struct ax_rates *rates;
    /* simulate two shorter steps in place of many micro-batches, as said above */
    bool shorten;
    struct ax_sim_options sim; /* may set span; contention comes from the rates */
};

/* ro needs world, sizes and backend; rank and n_slots are set here. */
enum ax_status ax_plan_time(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                            const struct ax_runtime_options *ro, const struct ax_arch *arch,
                            const struct ax_step_options *so);

/* An estimate for comparisons, from one stage alone (the second if there are more than two) and as
 * many micro-batches as fill the pipeline. The step is the time of a micro-batch, times their
 * number plus the cost of filling: (p − 1)/v for p stages with v chunks, or a third of it if
 * backwards are halved. Sets step, the members that follow from it, tokens, and arena. */
enum ax_status ax_plan_time_estimate(struct ax_plan_time *t, const struct ax_plan_time_options *o,
                                     const struct ax_runtime_options *ro,
                                     const struct ax_arch *arch, const struct ax_step_options *so);

#endif
