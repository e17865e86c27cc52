/* KTO (arXiv 2402.01306): answers that are rated one by one.
 *
 * With x = log-prob of an answer less the reference's, and z an estimate of how far the policy is from
 * the reference, KL, which has no gradient:
 *
 *   desirable     desirable_weight · (1 − σ(β·(x − z)))
 *   undesirable   undesirable_weight · (1 − σ(β·(z − x)))
 *
 * a mean over the step's answers. z = max(0, mean of x over the step's prompts, each with the answer
 * of another record): optim/train/reference.h. Of apo_zero_unpaired (2408.06266) z is 0. */
#ifndef AX_OPTIM_LOSSES_KTO_H
#define AX_OPTIM_LOSSES_KTO_H

#include "optim/losses/documents.h"

struct ax_kto_options {
    double beta, desirable_weight, undesirable_weight;
    bool apo_zero_unpaired;
};

/* The columns of KTO's examples: reference, desirable. */
extern const struct ax_columns ax_kto_columns;

struct ax_kto {
    struct ax_kto_options o;
    struct ax_documents_objective documents;
};
/* *k must outlive the objective. */
struct ax_objective ax_objective_kto(struct ax_kto *k, const struct ax_kto_options *o);

#endif
