/* Log-probs of documents by the reference model, which is always the model as the run found it: the
 * base, or the base with the adapter that training starts from. So they are computed once, before
 * the first step, and there is no second model.
 *
 * They are kept per example, because a document is one example. */
#ifndef AX_OPTIM_EVALUATE_REFERENCES_H
#define AX_OPTIM_EVALUATE_REFERENCES_H

#include "optim/evaluate/evaluate.h"
#include "parallel/fabric/team.h"

/* Where log-probs are kept between runs (reference_file.h). Equal on all ranks of the team, except
 * that each host may have its own folder. */
struct ax_reference_store {
    const char *cache; /* folder */
    /* identifies the model's weights, and the code and settings that compute with them */
    const json_t *model;
    struct ax_team *team;
};

struct ax_reference_set {
    const struct ax_examples *set; /* borrowed */
    float *logprob;                /* [set->n]; NaN where none is known */
};
struct ax_references { /* zero-initialize */
    struct ax_reference_set *sets;
    size_t n;
    const struct ax_reference_store *store; /* NULL: log-probs are not kept between runs */
};

/* Adds the log-probs of the first `rows` sequences of the loader's epoch 0 (0 = all). Computes them
 * in evaluation passes with options `o`, whose `documents` must be set, or reads the same bits if
 * all ranks of the store have them. The loader's position is kept. AX_INTERRUPTED if o->stop
 * returns true. */
enum ax_status ax_references_compute(struct ax_references *r, struct ax_model *m,
                                     struct ax_loader *loader, const struct ax_eval_options *o);
/* The reference's log-prob of an example; NaN if it is not known. */
float ax_references_get(const struct ax_references *r, const struct ax_examples *set,
                        size_t example);
void ax_references_free(struct ax_references *r);

#endif
