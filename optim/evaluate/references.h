/* Log-probs of documents by the reference model. Kept by example; a document is one example. */
#ifndef AX_OPTIM_EVALUATE_REFERENCES_H
#define AX_OPTIM_EVALUATE_REFERENCES_H

#include "data/records/pipeline/loader.h"

struct ax_reference_store;

struct ax_reference_set {
    const struct ax_examples *set; /* borrowed */
    float *logprob;                /* [set->n]; NaN where none is known */
};
struct ax_references { /* zero-initialize */
    struct ax_reference_set *sets;
    size_t n;
    const struct ax_reference_store *store; /* NULL: log-probs are not kept between runs */
};

enum ax_status ax_references_put(struct ax_references *r, const struct ax_examples *set,
                                 size_t example, float logprob);
/* The reference's log-prob of an example; NaN if it is not known. */
float ax_references_get(const struct ax_references *r, const struct ax_examples *set,
                        size_t example);
void ax_references_free(struct ax_references *r);

#endif
