/* How right scores are, where the records say what they should have been. */
#ifndef AX_OPTIM_EVALUATE_SCORE_STEP_METRICS_H
#define AX_OPTIM_EVALUATE_SCORE_STEP_METRICS_H

#include <stdbool.h>
#include <stddef.h>

/* A step that has a label. */
struct ax_scored_step {
    double p; /* probability that it is right */
    bool right;
};

/* Metrics of solutions with labeled steps. First error: ProcessBench (Zheng et al. 2024, arXiv
 * 2412.06559): the first wrong step, predicted as the first with p < 0.5, is found or not; in
 * solutions without one, none may be found. Its score is the harmonic mean of the two shares. NaN:
 * there is nothing to take a share of. */
struct ax_step_metrics {
    size_t steps, solutions;
    double accuracy;                   /* share of steps for which p > 0.5 agrees with the label */
    double auc;                        /* a right step scores higher than a wrong one; ties half */
    double error_found, correct_found; /* shares of solutions with an error, and without */
    double first_error;                /* their harmonic mean */
};
/* ends[i]: index behind the last step of solution i. Sorts nothing and keeps nothing; NaN for auc
 * without memory. */
struct ax_step_metrics ax_step_metrics(const struct ax_scored_step *steps, const size_t *ends,
                                       size_t solutions);

#endif
