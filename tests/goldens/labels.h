/* An objective on given values of labeled rows, without a model: its loss and their gradients. */
#ifndef TESTS_GOLDENS_LABELS_H
#define TESTS_GOLDENS_LABELS_H

#include "tests/goldens/objectives.h"
#include "optim/losses/objective.h"

/* [n][width] values, of which those under the mask count; each row is a document. */
struct ax_golden_labels {
    const struct ax_objective *objective;
    int64_t n, width;
    const double *mask;
    const double *logprob, *lse; /* NULL: 0 */
    struct {
        const char *name;
        const double *values; /* [n], or [n][width] */
    } columns[AX_COLUMNS_MAX];
    double inv_weight; /* of the step */
    /* out */
    double loss;
    struct ax_step_measures measures;
    double *g_logprob, *g_lse; /* [n][width], owned; 0 outside of the mask */
};
/* Fills what is marked as out. Values are of float64 on ref, else of float32. */
enum ax_status ax_golden_labels_run(struct ax_golden_labels *l, const struct ax_golden_options *o);
void ax_golden_labels_free(struct ax_golden_labels *l);

/* Records a figure against what a case's `expect` has of that name, if it has; ratio: relative. */
enum ax_status ax_golden_expect(struct ax_golden_report *r, struct ax_json e, const char *family,
                                const char *name, double got);
/* Records the gradient against the golden tensor CASE.grad.INPUT. */
enum ax_status ax_golden_gradient(struct ax_golden_report *r, const struct ax_safetensors *st,
                                  struct ax_json e, const char *family, const char *input,
                                  const double *got, int64_t numel);

#endif
