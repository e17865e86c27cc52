/* The loads of experts: how many tokens each got in a step (ax_model.expert_loads). The passes of a
 * step count them; they are summed once, over ranks, and read by the router's biases
 * (router_bias.h) and by metrics (expert_balance.h), with the step's result. */
#ifndef AX_OPTIM_STEP_EXPERT_LOADS_H
#define AX_OPTIM_STEP_EXPERT_LOADS_H

#include "optim/step/step.h"

/* Zeroes the loads; does nothing in a model without experts. */
enum ax_status ax_expert_loads_begin(struct ax_step *s);
/* Sums the loads over ranks, so that every rank has those of all layers, and computes their
 * balance. */
enum ax_status ax_expert_loads_sum(struct ax_step *s);

#endif
