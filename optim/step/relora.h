/* ReLoRA: restarts of the adapter during training (model/adapter/restart.h), as in axolotl. Before
 * the step after every `interval` steps, adapters are merged into the base and drawn anew, and their
 * moments set to 0; the count of updates goes on, and the learning rate has a schedule of its own.
 * Draws depend on the seed and the number of the restart. */
#ifndef AX_OPTIM_STEP_RELORA_H
#define AX_OPTIM_STEP_RELORA_H

#include "optim/step/state.h"

struct ax_relora_options {
    int64_t interval; /* steps; 0: off */
};

struct ax_step;
/* Performs restart `number`, from 1. Also runs while planning. */
enum ax_status ax_step_restart(struct ax_step *s, int64_t number);
/* Restarts if the next step is the first of an interval, `done` steps into the run. */
enum ax_status ax_step_restart_if_due(struct ax_step *s, int64_t done);

/* Adds the weights that adapters are merged into, as slot "base", to the parts of a checkpoint,
 * under the unit n_units + the parameter's (see ax_step.before_update). */
void ax_relora_parts(struct ax_model *m, struct ax_state_parts *out);

#endif
