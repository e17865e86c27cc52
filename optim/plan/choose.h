/* Choices that the plan of time makes where a key says auto. */
#ifndef AX_OPTIM_PLAN_CHOOSE_H
#define AX_OPTIM_PLAN_CHOOSE_H

#include "kernels/queue.h"
#include "optim/step/step.h"

/* Chooses the way with which a step is planned to be faster on an H100 (plan_time.h). The H100 is
 * the same on every machine, so that a plan and its run, and all ranks, agree. ro: sizes (all 0 =
 * one rank).
 *
 *   tp_auto         whether rows travel over tp in chunks, one per rank, or all at a time. A chunk needs
 *                   a product of its own of each kind, which does not pay with few rows
 *   cp_method AUTO  how attention on ranks of cp meets the keys of other ranks, ring or gather
 *                   (model/parallel/context_parallel.h); if both are within 1 %, the one that needs
 *                   less memory */
enum ax_status ax_step_choose(struct ax_step_options *so, const struct ax_runtime_options *ro,
                              const struct ax_arch *arch);

#endif
