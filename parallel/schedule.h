/* The action table: everything one rank does in a step, in order, generated from (chunks of units,
 * micro-batches, the pipeline's order).
 *
 * optim/step.c executes it; the dry run prints and counts it. For each micro-batch a stage runs the
 * units of a chunk forward and then backward, gathers each unit one ahead, and reduces a unit after
 * each of its backwards. With several stages the passes follow the ticks of an order (order.h):
 * between two ticks, gradients go to the previous stage as soon as they are computed, and outputs to
 * the next one when it is about to use them. All stages send in the order of that clock, so no one
 * waits for a stage that waits for it. One stage is the same table without messages. */
#ifndef AX_PARALLEL_SCHEDULE_H
#define AX_PARALLEL_SCHEDULE_H

#include "parallel/order.h"
#include "parallel/chunks.h"

enum ax_action_kind {
    AX_ACT_BEGIN,            /* chunk, micro-batch: take a slot */
    AX_ACT_GATHER,           /* unit: unshards its parameters */
    AX_ACT_FORWARD,          /* unit, micro-batch */
    AX_ACT_BACKWARD,         /* unit, micro-batch */
    AX_ACT_RELEASE,          /* unit: full parameters may be reused */
    AX_ACT_END,              /* chunk, micro-batch: give the slot back */
    AX_ACT_SEND_OUTPUT,      /* to the next stage: start sending a chunk's output */
    AX_ACT_RECEIVE_INPUT,    /* of a chunk, from the previous stage */
    AX_ACT_SEND_GRADIENT,    /* of a chunk's input, to the previous stage */
    AX_ACT_RECEIVE_GRADIENT, /* of a chunk's output, from the next stage */
    AX_ACT_WAIT,             /* for all messages since the last wait */
    AX_ACT_REDUCE,           /* unit, micro-batch: gradients summed over ranks */
    AX_ACT_TIE,              /* unit: sum the gradients of the copies on the first and last stage */
    AX_ACT_NORM,             /* unit: adds its gradients to the norm, each element on one rank */
    AX_ACT_CLIP,             /* the global norm; decides skip */
    AX_ACT_UPDATE,           /* unit: optimizer */
    AX_ACT_COUNT
};

struct ax_action {
    enum ax_action_kind kind;
    int unit;       /* −1 if none */
    int chunk;      /* of the stage's; −1 if none */
    int microbatch; /* −1 if none */
    int slot;       /* of the chunk's pass */
    bool last;      /* REDUCE: of the last micro-batch */
};

struct ax_schedule {
    int n, cap;
    struct ax_action *actions;
    int n_slots;      /* activation stashes needed at the same time */
    int first_update; /* index of AX_ACT_CLIP: gradients are complete before it */
};

struct ax_schedule_options {
    struct ax_pipeline pipeline;
    int stage;               /* which of the pipeline's */
    struct ax_chunks chunks; /* its chunks */
    bool tied;               /* unit 0 (embedding) is also the head's matrix */
    bool gather_once; /* a unit's parameters stay unsharded from their first use to their last */
    bool reduce_once; /* a unit's gradients are summed over ranks after its last backward only */
};
enum ax_status ax_schedule_create(struct ax_schedule *s, const struct ax_schedule_options *o);
void ax_schedule_free(struct ax_schedule *s);
const char *ax_action_name(enum ax_action_kind kind);

#endif
