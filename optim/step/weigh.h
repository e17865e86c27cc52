/* The weight by which a step's loss is divided, over all micro-batches and data ranks. */
#ifndef AX_OPTIM_STEP_WEIGH_H
#define AX_OPTIM_STEP_WEIGH_H

#include "optim/step/step.h"

/* Sets the batches' weights and the step's, and clears the objective's measures. Call it before any
 * compute. */
enum ax_status ax_step_weigh(struct ax_step *s);

#endif
