/* What a step's loss is divided by, over all micro-batches and data ranks. */
#ifndef AX_OPTIM_STEP_WEIGH_H
#define AX_OPTIM_STEP_WEIGH_H

#include "optim/step/step.h"

/* Before any compute: sets the batches' weights and the step's, and where the objective measures,
 * clears the measures. */
enum ax_status ax_step_weigh(struct ax_step *s);

#endif
