/* Objectives: what a training method provides. */
#ifndef AX_OPTIM_LOSSES_OBJECTIVE_H
#define AX_OPTIM_LOSSES_OBJECTIVE_H

#include "model/pass.h"

/* Over what a step's loss is a mean: tokens by their weights, documents, or pairs of documents. */
enum ax_per { AX_PER_TOKEN, AX_PER_DOCUMENT, AX_PER_PAIR };

struct ax_documents_objective; /* documents.h */

struct ax_objective {
    const char *name;
    const struct ax_columns *columns; /* columns that its examples and batches have; NULL: none */
    enum ax_per per;      /* pairs: groups of two, which follow each other in one sequence */
    bool labels_in_place; /* labels are classes of their own tokens, not tokens to predict */
    bool spills;          /* groups may span micro-batches and ranks; their columns compare them */
    const struct ax_documents_objective *documents; /* for a loss on documents; else NULL */
    /* names of what it measures beside the loss, at most AX_MEASURES, NULL-terminated; or NULL */
    const char *const *measures;
    double temperature;            /* divides logits before softmax; 0: 1 */
    struct ax_sampling sampling;   /* how the model drew the labels, if it did; else all 0 */
    struct ax_head_objective head; /* loss and token gradients from log-prob, lse, entropy */
};

/* Means of measures; NaN where there is nothing to take a mean of. documents: of the objective, or NULL. */
void ax_measures_mean(const struct ax_documents_objective *documents,
                      const struct ax_step_measures *m, double out[AX_MEASURES]);

/* Supervised fine-tuning: Σ weight·(−logprob) / Σ weight over the step. */
extern const struct ax_objective ax_objective_sft; /* sft.c */

/* For each token, with e = label_smoothing and z = z_loss: (1−e)·(−logprob) + e·(mean of −log p
 * over the vocabulary) + z·lse². With `dynamic` (DFT), −logprob is multiplied by the token's own
 * probability, which has no gradient. With entropy_k > 0 (EAFT), a token's weight is multiplied by
 * H^entropy_alpha, where H is the entropy of the entropy_k most likely tokens (ax_top_entropy) and
 * has no gradient; the loss is still divided by the sum of the batch's own weights. */
struct ax_sft_options {
    double label_smoothing, z_loss;
    int64_t entropy_k; /* at most AX_TOP_MAX */
    double entropy_alpha;
    bool dynamic;
    bool prm; /* set by ax_objective_prm: against column `target`, the probability of label 1 */
};
/* Also a single pass. *o must outlive the objective. */
struct ax_objective ax_objective_sft_with(struct ax_sft_options *o);

/* Process reward modelling: cross-entropy of the labels wrong (0) and right (1) with column `target`,
 * the probability that the token's step is right; without smoothing. */
struct ax_objective ax_objective_prm(struct ax_sft_options *o);

#endif
