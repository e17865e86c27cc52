/* PPO's values: what a completion is expected to return, from each of its tokens on, by a head of one
 * label (model/arch/classifier.h).
 *
 * With v the logit at a labeled token, R column `return` and v' = v within cliprange of column
 * `old_value`, the loss is coef·½·max((v − R)², (v' − R)²), a mean over the step's labeled tokens
 * (Schulman et al. 2017, arXiv 1707.06347, and its reference implementation). */
#ifndef AX_OPTIM_LOSSES_VALUE_H
#define AX_OPTIM_LOSSES_VALUE_H

#include "optim/losses/objective.h"

struct ax_value_options {
    double coef, cliprange;
};

/* Indices of the objective's measures: the loss without coef; the share of tokens whose clipped
 * value has the larger error. */
enum { AX_VALUE_LOSS, AX_VALUE_CLIPPED };

/* *o must outlive the objective. */
struct ax_objective ax_objective_value(struct ax_value_options *o);

#endif
