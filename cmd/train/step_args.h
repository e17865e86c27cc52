/* The options that describe a training step, shared by the commands that run or plan one. */
#ifndef AX_CMD_TRAIN_STEP_ARGS_H
#define AX_CMD_TRAIN_STEP_ARGS_H

#include "cmd/args/args.h"
#include "optim/step/step.h"

struct ax_step_args {
    const char *dtype, *optimizer, *masters, *moments, *recompute; /* words as given */
    int64_t batch, seq, accumulate, threads;
    int64_t lora; /* rank of adapters on all linears; 0 = everything trains */
    bool dora;
    const char *base;              /* storage of the frozen matrices; NULL = plain */
    const char *fp8;               /* recipe of training in 8-bit floats; NULL = none */
    struct ax_peft_config adapter; /* results of these; the step options point to them */
    struct ax_scheme scheme;
};
#define AX_STEP_ARGS_COUNT 13

/* Fills args[0 … AX_STEP_ARGS_COUNT − 1]. */
void ax_step_args_table(struct ax_step_args *a, struct ax_arg *args);
/* Everything except recompute; dtype NULL = what this machine trains faster in. */
enum ax_status ax_step_args_options(struct ax_step_args *a, struct ax_step_options *o);

#endif
