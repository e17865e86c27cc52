/* What a step asks the plan of time before it is created: by what its stages are balanced. A dry run of such
 * a step tells, so optim/plan/plan_time.c has the function. */
#ifndef AX_OPTIM_STEP_UNIT_TIMES_H
#define AX_OPTIM_STEP_UNIT_TIMES_H

#include "model/arch/arch.h"
#include "parallel/runtime.h"

struct ax_step_options;

/* *out [n_layers + 2] is how long a micro-batch takes in each of the model's units, forward and backward,
 * with what they wait for over tp, cp and ep, in millionths of the sum (whole numbers, so that equal layers
 * are equal). Updates are not in it. By ax_rates_agreed, from a dry run without stages: the same on all ranks of rt, and
 * in a plan of it. The caller frees *out, also after an error. */
enum ax_status ax_unit_times(double **out, const struct ax_runtime *rt, const struct ax_arch *arch,
                             const struct ax_step_options *so);

#endif
