/* The action table: everything one rank does in a step, in order, generated from (units,
 * micro-batches, pipeline stage).
 *
 * optim/step.c executes it; the dry run prints and counts it. For each micro-batch a stage runs its
 * units forward and then backward, gathers each unit one ahead, and reduces a unit after each of
 * its backwards. With several stages the micro-batches follow 1F1B (Narayanan et al. 2021): stage r
 * of p first runs p − r − 1 forwards, then alternates one forward and one backward, then the
 * remaining backwards. One stage is the same table without exchanges. */
#ifndef AX_PARALLEL_SCHEDULE_H
#define AX_PARALLEL_SCHEDULE_H

#include <stdbool.h>

#include "base/status.h"

enum ax_action_kind {
    AX_ACT_BEGIN,    /* micro-batch takes a slot */
    AX_ACT_GATHER,   /* unit: unshards its parameters */
    AX_ACT_FORWARD,  /* unit, micro-batch */
    AX_ACT_BACKWARD, /* unit, micro-batch */
    AX_ACT_RELEASE,  /* unit: full parameters may be reused */
    AX_ACT_END,      /* micro-batch gives its slot back */
    AX_ACT_NEXT,     /* send the stage's output of a micro-batch to the next stage and receive the
                        gradient of one from it (either may be absent) */
    AX_ACT_PREVIOUS, /* send the gradient of a micro-batch to the previous stage and receive its
                        output of one (either may be absent) */
    AX_ACT_REDUCE,   /* unit, micro-batch: gradients summed over ranks */
    AX_ACT_TIE,      /* unit: sum the gradients of the copies on the first and the last stage */
    AX_ACT_NORM,     /* unit: adds its gradients to the norm, each element on one rank */
    AX_ACT_CLIP,     /* the global norm; decides skip */
    AX_ACT_UPDATE,   /* unit: optimizer */
    AX_ACT_COUNT
};

struct ax_action {
    enum ax_action_kind kind;
    int unit;       /* −1 if none */
    int microbatch; /* −1 if none; of an exchange: the one sent */
    int slot;       /* of the micro-batch */
    int receive;    /* of an exchange: the one received; −1 = none */
    int receive_slot;
    bool last; /* REDUCE: of the last micro-batch */
};

struct ax_schedule {
    int n, cap;
    struct ax_action *actions;
    int n_slots;      /* activation stashes needed at the same time */
    int first_update; /* index of AX_ACT_CLIP: gradients are complete before it */
};

struct ax_schedule_options {
    int first_unit, end_unit; /* of this stage */
    int stage, n_stages;
    int n_microbatches;
    bool forward_only; /* evaluation: no backward, reduce, clip or update */
    bool tied;         /* unit 0 (embedding) is also the head's matrix */
};
enum ax_status ax_schedule_create(struct ax_schedule *s, const struct ax_schedule_options *o);
/* Number of stashes that such a schedule needs. */
int ax_schedule_slots(int stage, int n_stages, int n_microbatches);
/* Units [*first, *end) of a stage when n_units are split into n_stages: the layers as evenly as
 * possible, the embedding (unit 0) in the first stage, the head (the last unit) in the last. */
void ax_schedule_stage_units(int n_units, int n_stages, int stage, int *first, int *end);
void ax_schedule_free(struct ax_schedule *s);
const char *ax_action_name(enum ax_action_kind kind);

#endif
