/* Balanced experts without a loss (Wang et al. 2024, DeepSeek-V3): the router's bias, which chooses
 * experts and does not weigh them, follows their loads. After each step, for expert e of a layer
 *
 *   bias[e] += speed·sign(mean load − load[e])
 *
 * where a load is the number of tokens that the expert got in the step, of all micro-batches and
 * ranks. A step that is skipped changes nothing. */
#ifndef AX_OPTIM_STEP_ROUTER_BIAS_H
#define AX_OPTIM_STEP_ROUTER_BIAS_H

#include "optim/step/step.h"

/* AX_ERR_CONFIG if speed is not 0 and the model's routers have no bias. */
enum ax_status ax_router_bias_check(const struct ax_arch *arch, double speed);
/* Updates the bias of a unit's router from the loads of the step (expert_loads.h). */
enum ax_status ax_router_bias_update(struct ax_step *s, int unit);

#endif
