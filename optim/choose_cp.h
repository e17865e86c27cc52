/* Ring or gather: how attention on ranks of cp meets the keys of other ranks (model/context_parallel.h). */
#ifndef AX_OPTIM_CHOOSE_CP_H
#define AX_OPTIM_CHOOSE_CP_H

#include "kernels/queue.h"
#include "optim/step.h"

/* AUTO becomes the method with which a step is planned to be faster on an H100 (optim/plan_time.h); if both
 * are within 1 %, the one that needs less memory. The same on every machine, so that a plan and its run, and
 * all ranks, agree. ro: sizes (all 0 = one rank). */
enum ax_status ax_step_choose_cp(struct ax_step_options *so, const struct ax_runtime_options *ro,
                                 const struct ax_arch *arch);

#endif
