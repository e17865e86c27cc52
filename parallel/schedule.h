/* The action table: all that one rank does in a step, in order, made from (units, micro-batches,
 * pipeline stage).
 *
 * optim/step executes it; the dry run prints and counts it. A stage runs, per micro-batch, its
 * units forward and its units backward, gathering each unit one ahead, and reduces a unit after
 * each of its backwards. With several stages the micro-batches follow 1F1B (Narayanan et al. 2021):
 * stage r of p first runs p − r − 1 forwards, then one forward and one backward in turn, then the
 * backwards that are left. One stage is the same table without exchanges. */
#ifndef AX_PARALLEL_SCHEDULE_H
#define AX_PARALLEL_SCHEDULE_H

#include <stdbool.h>

#include "base/status.h"

enum ax_action_kind {
    AX_ACT_BEGIN,    /* micro-batch takes a slot */
    AX_ACT_GATHER,   /* unit: parameters whole */
    AX_ACT_FORWARD,  /* unit, micro-batch */
    AX_ACT_BACKWARD, /* unit, micro-batch */
    AX_ACT_RELEASE,  /* unit: whole parameters may be reused */
    AX_ACT_END,      /* micro-batch gives its slot back */
    AX_ACT_NEXT,     /* send the stage's output of a micro-batch to the next stage and receive the
                        gradient of one from it (either may be none) */
    AX_ACT_PREVIOUS, /* send the gradient of a micro-batch to the stage before and receive its
                        output of one (either may be none) */
    AX_ACT_REDUCE,   /* unit, micro-batch: gradients summed over ranks */
    AX_ACT_TIE,      /* unit: gradients of the copies on the first and the last stage are added */
    AX_ACT_CLIP,     /* true global norm; decides skip */
    AX_ACT_UPDATE,   /* unit: optimizer */
    AX_ACT_COUNT
};

struct ax_action {
    enum ax_action_kind kind;
    int unit;       /* −1 where none */
    int microbatch; /* −1 where none; of an exchange: what is sent */
    int slot;       /* of the micro-batch */
    int receive;    /* of an exchange: micro-batch received; −1 = none */
    int receive_slot;
    bool last; /* REDUCE: of the last micro-batch */
};

struct ax_schedule {
    int n, cap;
    struct ax_action *actions;
    int n_slots;      /* activation stashes needed at once */
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
/* Stashes that such a schedule will need. */
int ax_schedule_slots(int stage, int n_stages, int n_microbatches);
/* Units [*first, *end) of a stage when n_units are cut into n_stages: the blocks as evenly as they
 * can be, the embedding (unit 0) with the first, the head (the last unit) with the last. */
void ax_schedule_stage_units(int n_units, int n_stages, int stage, int *first, int *end);
void ax_schedule_free(struct ax_schedule *s);
const char *ax_action_name(enum ax_action_kind kind);

#endif
