/* Reward modelling: a pair's loss by Bradley and Terry (1952), with c and r the scores of the chosen
 * and the rejected answer and m the record's margin (Touvron et al. 2023, section 3.2.2),
 *
 *   −log σ(c − r − m) + center·(c + r)²
 *
 * where the second term (Eisenstein et al. 2023) keeps scores near 0; a mean over the step's pairs.
 * The score of a document is its scored token's log-sum-exp over a head of one label: its logit. */
#ifndef AX_OPTIM_LOSSES_REWARD_H
#define AX_OPTIM_LOSSES_REWARD_H

#include "optim/losses/documents.h"

/* The columns of a reward model's pairs: margin. */
extern const struct ax_columns ax_reward_columns;

struct ax_reward {
    double center;
    struct ax_documents_objective documents;
};
/* *r must outlive the objective. */
struct ax_objective ax_objective_reward(struct ax_reward *r, double center);

#endif
