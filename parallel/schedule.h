/* The action table: all that one rank does in a step, in order, made from (units, micro-batches).
 *
 * optim/step executes it; the dry run prints and counts it. Without pipeline there is one stage;
 * the table then runs, per micro-batch, every unit forward and every unit backward, gathering each
 * unit one ahead, and reduces a unit after its backward of the last micro-batch. */
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
    AX_ACT_REDUCE,   /* unit: gradients summed over ranks */
    AX_ACT_CLIP,     /* true global norm; decides skip */
    AX_ACT_UPDATE,   /* unit: optimizer */
    AX_ACT_COUNT
};

struct ax_action {
    enum ax_action_kind kind;
    int unit;       /* −1 where none */
    int microbatch; /* −1 where none */
    int slot;       /* of the micro-batch */
};

struct ax_schedule {
    int n, cap;
    struct ax_action *actions;
    int n_slots;      /* activation stashes needed at once */
    int first_update; /* index of AX_ACT_CLIP: gradients are complete before it */
};

/* forward_only: evaluation; no backward, reduce, clip or update. */
enum ax_status ax_schedule_create(struct ax_schedule *s, int n_units, int n_microbatches,
                                  bool forward_only);
void ax_schedule_free(struct ax_schedule *s);
const char *ax_action_name(enum ax_action_kind kind);

#endif
