/* The action table: everything one rank does in a step, in order, generated from (chunks of units,
 * micro-batches, the pipeline's order).
 *
 * optim/step/step.c executes it; the dry run prints and counts it. For each micro-batch a stage runs the
 * units of a chunk forward and then backward, gathers each unit one ahead, and reduces a unit after
 * each of its backwards. With several stages the passes follow the ticks of an order (order.h), and
 * messages start between two ticks: gradients as soon as they are computed, outputs a tick before the
 * next stage uses them, or as soon as they are computed if that is later. Both sides of a message
 * start it between the same ticks, so that no one waits for a stage that waits for it. What is
 * received is waited for where it is used; what is sent, where its memory is. One stage is the same
 * table without messages. */
#ifndef AX_PARALLEL_SCHEDULE_SCHEDULE_H
#define AX_PARALLEL_SCHEDULE_SCHEDULE_H

#include "parallel/schedule/order.h"
#include "parallel/schedule/chunks.h"

enum ax_action_kind {
    AX_ACT_BEGIN,            /* chunk, micro-batch: take a slot */
    AX_ACT_GATHER,           /* unit: unshards its parameters */
    AX_ACT_FORWARD,          /* unit, micro-batch */
    AX_ACT_BACKWARD,         /* unit, micro-batch; if halved, only gradients of inputs */
    AX_ACT_WEIGHTS,          /* unit, micro-batch: the other half of a halved backward */
    AX_ACT_RELEASE,          /* unit: full parameters may be reused */
    AX_ACT_END,              /* chunk, micro-batch: give the slot back */
    AX_ACT_SEND_OUTPUT,      /* to the next stage: start sending a chunk's output */
    AX_ACT_RECEIVE_INPUT,    /* a chunk's input, from the previous stage, into one of two inboxes */
    AX_ACT_SEND_GRADIENT,    /* gradient of a chunk's input, to the previous stage */
    AX_ACT_RECEIVE_GRADIENT, /* gradient of a chunk's output, from the next stage */
    AX_ACT_TRAVEL,           /* messages since the last one may travel, together */
    AX_ACT_WAIT,             /* for a message; an input goes from its inbox to its slot */
    AX_ACT_REDUCE,           /* unit, micro-batch: gradients summed over ranks */
    AX_ACT_TIE,              /* unit: sum the gradients of the copies on the first and last stage */
    AX_ACT_NORM,             /* unit: adds its gradients to the norm, each element on one rank */
    AX_ACT_CLIP,             /* the global norm; decides skip */
    AX_ACT_UPDATE,           /* unit: optimizer */
    AX_ACT_COUNT
};

struct ax_action {
    enum ax_action_kind kind;
    int unit;                    /* −1 if none */
    int chunk;                   /* index among the stage's chunks; −1 if none */
    int microbatch;              /* −1 if none */
    int slot;                    /* slot of the chunk's pass */
    int inbox;                   /* which inbox an input arrives in */
    enum ax_action_kind message; /* WAIT: the action that started it */
    bool last;                   /* REDUCE after the last micro-batch */
};

struct ax_schedule {
    int n, cap;
    struct ax_action *actions;
    int n_slots;      /* activation stashes needed at the same time */
    int first_update; /* index of AX_ACT_CLIP: gradients are complete before it */
};

struct ax_schedule_options {
    struct ax_pipeline pipeline;
    int stage;               /* index of this rank's stage */
    struct ax_chunks chunks; /* the stage's chunks */
    bool tied;               /* unit 0 (embedding) is also the head's matrix */
    bool predicts;           /* the unit before the head uses unit 0, too, and is in its chunk */
    bool gather_once; /* a unit's parameters stay unsharded from their first use to their last */
    bool reduce_once; /* a unit's gradients are summed over ranks after its last backward only */
};
enum ax_status ax_schedule_create(struct ax_schedule *s, const struct ax_schedule_options *o);
void ax_schedule_free(struct ax_schedule *s);
const char *ax_action_name(enum ax_action_kind kind);

#endif
