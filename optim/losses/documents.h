/* Objectives on documents: the loss is a function of what the scored tokens of each document sum to,
 * such as the log-probs of the two answers of a pair. Sums, loss and gradients are computed in double
 * by a call in the queue's order (ax_queue_call), once per micro-batch: there are few documents.
 *
 * The scored tokens of a document are those with a label. Under context parallelism the ranks add up
 * theirs; each computes the loss, the first one counts it. */
#ifndef AX_OPTIM_LOSSES_DOCUMENTS_H
#define AX_OPTIM_LOSSES_DOCUMENTS_H

#include "optim/losses/objective.h"

/* Sums over the scored tokens of one document. Only doubles, so that ranks can add them up. */
struct ax_document_sums {
    double logprob;        /* Σ share·log-prob; share: the column of that name, else 1 */
    double answer;         /* number of scored tokens whose share is not 0 */
    double nll;            /* −Σ log-prob */
    double tokens;         /* number of scored tokens */
    double lse;            /* Σ log-sum-exp: with one logit per token, Σ logit */
    double entropy, logit; /* Σ; logit: mean over the vocabulary, if the head was asked for it */
};

/* d loss / d its sums. */
struct ax_document_gradient {
    double logprob, nll, lse;
};

/* One micro-batch, or an evaluation's documents. */
struct ax_documents {
    int n;
    const struct ax_document_sums *sums; /* [n] */
    /* columns with a value per example: int32_t or float [n]; others NULL */
    const void *columns[AX_COLUMNS_MAX];
    double inv_weight; /* 1 / what the step's loss is a mean over (enum ax_per) */
    double inv_tokens; /* 1 / scored tokens of the first documents of all pairs */
    double kl;         /* estimate of KL for the step's records (reference.h) */
};

struct ax_documents_loss {
    struct ax_document_gradient *gradient; /* [n], zeroed before */
    double loss;
    double sum[AX_MEASURES], of[AX_MEASURES]; /* numerators and denominators of the measures */
    /* right / pairs is an evaluation's accuracy; 0 / 0: there is none */
    double right, pairs;
};

/* The context of such an objective's head. */
struct ax_documents_objective {
    void (*loss)(const void *options, const struct ax_documents *d, struct ax_documents_loss *out);
    const void *options;
    enum ax_per per;                  /* as of the objective */
    const struct ax_columns *columns; /* as of the objective */
    int share, reference;             /* indices of columns; −1: none */
    bool mismatches;                  /* needs d->kl */
    /* sets the measures that are made of the means of others; NULL: there are none */
    void (*derive)(double means[AX_MEASURES]);
};

/* token_grad of the head, which must not be linear; ctx: a struct ax_documents_objective. */
enum ax_status ax_documents_token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c);

#endif
