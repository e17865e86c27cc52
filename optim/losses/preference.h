/* Preference objectives: dpo and its relatives, ipo, orpo, cpo, simpo.
 *
 * A pair is two documents of one prompt: the answer that was chosen, then the one that was rejected.
 * With c and r their log-probs (sums over the answer, or means per token), each less the reference
 * model's if there is one, and d = c − r, the loss of a pair is a weighted sum of terms t(c, r), and
 * the loss of a step the mean over its pairs. See preference.c for the terms and their
 * sources. */
#ifndef AX_OPTIM_LOSSES_PREFERENCE_H
#define AX_OPTIM_LOSSES_PREFERENCE_H

#include "optim/losses/documents.h"

enum ax_preference_term {
    AX_PREFER_SIGMOID,
    AX_PREFER_HINGE,
    AX_PREFER_IPO,
    AX_PREFER_IPO_SUM,
    AX_PREFER_ROBUST,
    AX_PREFER_EXO_PAIR,
    AX_PREFER_NCA_PAIR,
    AX_PREFER_BCO_PAIR,
    AX_PREFER_SPPO_HARD,
    AX_PREFER_APO_ZERO,
    AX_PREFER_APO_DOWN,
    AX_PREFER_DISCOPOP,
    AX_PREFER_SIGMOID_NORM,
    AX_PREFER_ODDS_RATIO, /* orpo's; c and r are mean log-probs */
    AX_PREFER_SFT,        /* −log-prob of the chosen answers, a mean over the step's tokens */
    AX_PREFER_TERMS
};
/* "sigmoid", …; −1 for another name. */
int ax_preference_term_find(const char *name);
const char *ax_preference_term_name(enum ax_preference_term term);

struct ax_preference_options {
    double beta;
    double label_smoothing; /* for sigmoid, robust, exo_pair */
    double gamma;           /* simpo's margin: d − gamma / beta */
    double discopop_tau;
    bool reference; /* column `reference` has the reference's log-prob of each document */
    bool shares;    /* column `share`: see ax_document_sums */
    bool mean;      /* c and r are means per token, whatever the term */
    double weight[AX_PREFER_TERMS]; /* factor of each term; 0: not part of the loss */
};

/* A pair as the terms see it. */
struct ax_preference_pair {
    double chosen, rejected; /* c and r */
    /* tokens of each answer, by which terms on means divide the sums */
    double n_chosen, n_rejected;
};

struct ax_preference {
    struct ax_preference_options o;
    struct ax_documents_objective documents;
};
/* *p must outlive the objective. */
struct ax_objective ax_objective_preference(struct ax_preference *p, const char *name,
                                            const struct ax_preference_options *o);

#endif
