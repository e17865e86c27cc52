/* Objectives: what a training method provides. */
#ifndef AX_OPTIM_OBJECTIVE_H
#define AX_OPTIM_OBJECTIVE_H

#include "model/pass.h"

struct ax_objective {
    const char *name;
    const struct ax_columns *columns; /* its examples' and batches' columns; NULL: none */
    bool grouped; /* compares examples: a group may take any sequences of one micro-batch */
    bool
        spills; /* groups too large for that may take several micro-batches of a step, on any ranks:
                     what compares the examples is in their columns */
    struct ax_head_objective head; /* loss and token gradients from log-prob, lse, entropy */
};

/* Supervised fine-tuning: Σ weight·(−logprob) / Σ weight over the step. */
extern const struct ax_objective ax_objective_sft; /* sft.c */

/* With e = label_smoothing and z = z_loss of each token: (1−e)·(−logprob) + e·(the mean of −log p
 * over the vocabulary) + z·lse². With entropy_k > 0 (EAFT) a token's weight is multiplied by
 * H^entropy_alpha, H the entropy of the entropy_k likeliest tokens (ax_top_entropy), through which
 * no gradient flows; the loss is still divided by the weights of the batch. */
struct ax_sft_options {
    double label_smoothing, z_loss;
    int64_t entropy_k; /* at most AX_TOP_MAX */
    double entropy_alpha;
};
/* Still a single pass. *o must outlive the objective. */
struct ax_objective ax_objective_sft_with(struct ax_sft_options *o);

#endif
