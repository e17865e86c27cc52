/* The steps of an answer: as a process reward model reads them, one score from theirs, and how right the
 * scores of labeled ones are. */
#ifndef AX_OPTIM_EVALUATE_SCORE_STEPS_H
#define AX_OPTIM_EVALUATE_SCORE_STEPS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* A text, or the texts of messages, a line each: a new reference in *out. AX_ERR_DATA: a message has
 * none. */
enum ax_status ax_steps_prompt(const json_t *prompt, json_t **out);
/* The pieces of an answer between separators, without the blank ones: a new list in *out. */
enum ax_status ax_steps_split(const char *text, size_t len, const char *separator, json_t **out);

/* How the probabilities of steps become one score of a solution. */
enum ax_score_by { AX_SCORE_MIN, AX_SCORE_PRODUCT, AX_SCORE_LAST, AX_SCORE_BYS };
extern const char *const ax_score_by_names[AX_SCORE_BYS]; /* "min", "product", "last" */

/* AX_ERR_CONFIG names `option` and what it takes. */
enum ax_status ax_score_by_parse(const char *option, const char *name, enum ax_score_by *out);
/* 1 if there are no steps, NaN if a step that counts is. */
double ax_score_steps(enum ax_score_by by, const double *p, size_t n);

/* A step that has a label. */
struct ax_scored_step {
    double p; /* probability that it is right */
    bool right;
};

/* Metrics of a solution's labeled steps. First error: ProcessBench (Zheng et al. 2024, arXiv 2412.06559): the
 * first wrong step, predicted as the first with p < 0.5, is found or not; in solutions without one,
 * none may be found. Its score is the harmonic mean of the two shares. NaN: there is nothing that it is
 * a share of, or a step has no score. */
struct ax_step_metrics {
    size_t steps, solutions;
    double accuracy;                   /* share of steps with p > 0.5 as labeled */
    double auc;                        /* a right step scores higher than a wrong one; ties half */
    double error_found, correct_found; /* shares of solutions with an error, and without */
    double first_error;                /* their harmonic mean */
};
/* ends[i]: index behind the last step of solution i. Sorts nothing and keeps nothing; NaN for auc
 * without memory. */
struct ax_step_metrics ax_step_metrics(const struct ax_scored_step *steps, const size_t *ends,
                                       size_t solutions);

#endif
