/* The planned times by which the stages of a step are balanced. They come from a dry run of such a
 * step, so the function is in optim/plan/plan_time.c. */
#ifndef AX_OPTIM_STEP_UNIT_TIMES_H
#define AX_OPTIM_STEP_UNIT_TIMES_H

#include "model/arch/arch.h"
#include "parallel/runtime.h"

struct ax_step_options;

/* *out [n_layers + 2]: how long a micro-batch takes in each of the model's units, forward and
 * backward, including waits for tp, cp and ep, but not updates. The unit is a millionth of the sum,
 * rounded to integers so that equal layers are equal. By ax_rates_agreed, from a dry run without
 * stages: the same on all ranks of rt, and in a plan of it. The caller frees *out, also after an
 * error. */
enum ax_status ax_unit_times(double **out, const struct ax_runtime *rt, const struct ax_arch *arch,
                             const struct ax_step_options *so);

#endif
