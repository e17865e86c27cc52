/* Distillation (GKD: Agarwal et al. 2023, arXiv 2306.13649; Hinton et al. 2015): for each token that is
 * trained on, a divergence from the teacher's distribution and cross-entropy, weighted
 * (model/parts/head.h), divided by the step's Σ weight. Measures: both, unweighted, and with o->entropy the
 * entropy of the student's distribution in the divergence. */
#ifndef AX_OPTIM_LOSSES_DISTILL_H
#define AX_OPTIM_LOSSES_DISTILL_H

#include "model/parts/head.h"
#include "optim/losses/objective.h"

enum { AX_DISTILL_DIVERGENCE, AX_DISTILL_NLL, AX_DISTILL_ENTROPY }; /* the measures */

/* *o must outlive the objective. Steps with it need a teacher (ax_step_options), or, with
 * o->stored, examples with the columns below. */
struct ax_objective ax_objective_distill(struct ax_distill_options *o);
/* Columns of stored log-probs; NULL if o->stored is 0. */
const struct ax_columns *ax_distill_columns(const struct ax_distill_options *o);

#endif
