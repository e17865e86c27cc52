/* Objectives: what a training method provides. */
#ifndef AX_OPTIM_OBJECTIVE_H
#define AX_OPTIM_OBJECTIVE_H

#include "model/pass.h"

struct ax_objective {
    const char *name;
    const struct ax_columns *columns; /* its examples' and batches' columns; NULL: none */
    bool grouped; /* compares examples: a group may take any sequences of one micro-batch */
    bool spills;  /* larger groups may span micro-batches and ranks; their columns compare them */
    struct ax_head_objective head; /* loss and token gradients from log-prob, lse, entropy */
};

/* Supervised fine-tuning: Σ weight·(−logprob) / Σ weight over the step. */
extern const struct ax_objective ax_objective_sft; /* sft.c */

/* For each token, with e = label_smoothing and z = z_loss: (1−e)·(−logprob) + e·(mean of −log p
 * over the vocabulary) + z·lse². With entropy_k > 0 (EAFT), a token's weight is multiplied by
 * H^entropy_alpha, where H is the entropy of the entropy_k most likely tokens (ax_top_entropy) and
 * has no gradient; the loss is still divided by the sum of the batch's own weights. */
struct ax_sft_options {
    double label_smoothing, z_loss;
    int64_t entropy_k; /* at most AX_TOP_MAX */
    double entropy_alpha;
};
/* Also a single pass. *o must outlive the objective. */
struct ax_objective ax_objective_sft_with(struct ax_sft_options *o);

#endif
