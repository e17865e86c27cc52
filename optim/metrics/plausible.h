/* What figures of a step or an evaluation cannot be, whatever is trained: negative times, more trained tokens than
 * tokens, a mean outside of its range. Tests ask for it of every run (AX_CHECK_MEMORY): metrics.c ends the program. */
#ifndef AX_OPTIM_METRICS_PLAUSIBLE_H
#define AX_OPTIM_METRICS_PLAUSIBLE_H

#include "optim/metrics/metrics.h"

/* A name and why its value cannot be, in a static buffer; NULL: all can be. `measures`: see ax_metrics_options. NaN is a
 * figure that there is not. */
const char *ax_figures_of_step_wrong(const struct ax_step_figures *f, const char *const *measures);
const char *ax_figures_of_eval_wrong(const struct ax_eval_result *r, const char *const *measures);

#endif
