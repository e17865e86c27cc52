/* Log-probs of documents by the reference model, which is always the model as the run found it: the
 * base, or the base with the adapter that training starts from. So they are computed once, before
 * the first step, and there is no second model.
 *
 * Kept by example; a document is one example. */
#ifndef AX_OPTIM_EVALUATE_REFERENCES_H
#define AX_OPTIM_EVALUATE_REFERENCES_H

#include "optim/evaluate/evaluate.h"
#include "parallel/fabric/team.h"

/* Where they are kept between runs (optim/evaluate/reference_file.h). All ranks of the team have the same, but
 * for the folder's content, which may be that of a host. */
struct ax_reference_store {
    const char *cache;   /* folder */
    const json_t *model; /* identifies the model's numbers, and what computes with them */
    struct ax_team *team;
};

struct ax_reference_set {
    const struct ax_examples *set; /* borrowed */
    float *logprob;                /* [set->n]; NaN: not known */
};
struct ax_references { /* zero-initialize */
    struct ax_reference_set *sets;
    size_t n;
    const struct ax_reference_store *store; /* NULL: they are not kept */
};

/* Adds those of the first `rows` sequences of the loader's epoch 0 (0 = all), in evaluation passes as
 * `o` says, whose documents must be set; or reads them, the same bits, if all ranks of the store have
 * them. The loader's position is kept. AX_INTERRUPTED if o->stop says so. */
enum ax_status ax_references_compute(struct ax_references *r, struct ax_model *m,
                                     struct ax_loader *loader, const struct ax_eval_options *o);
/* NaN: not known. */
float ax_references_get(const struct ax_references *r, const struct ax_examples *set,
                        size_t example);
void ax_references_free(struct ax_references *r);

#endif
