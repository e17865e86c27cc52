/* Log-probs of documents by the reference model, which is always the model as the run found it: the
 * base, or the base with the adapter that training starts from. So they are computed once, before
 * the first step, and there is no second model.
 *
 * Kept by example; a document is one example. */
#ifndef AX_OPTIM_REFERENCES_H
#define AX_OPTIM_REFERENCES_H

#include "optim/evaluate.h"

struct ax_reference_set {
    const struct ax_examples *set; /* borrowed */
    float *logprob;                /* [set->n]; NaN: not known */
};
struct ax_references { /* zero-initialize */
    struct ax_reference_set *sets;
    size_t n;
};

/* Adds those of the first `rows` sequences of the loader's epoch 0 (0 = all), in evaluation passes as
 * `o` says, whose documents must be set. The loader's position is kept. AX_INTERRUPTED if o->stop says so. */
enum ax_status ax_references_compute(struct ax_references *r, struct ax_model *m,
                                     struct ax_loader *loader, const struct ax_eval_options *o);
/* NaN: not known. */
float ax_references_get(const struct ax_references *r, const struct ax_examples *set,
                        size_t example);
void ax_references_free(struct ax_references *r);

#endif
