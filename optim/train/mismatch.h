/* KTO's estimate of the KL divergence from the reference: the mean, over the records of a step, of
 * policy's less reference's log-prob of the answer of another record to the record's prompt.
 *
 * The other record is the next one of epoch 0, so an estimate depends on the records of its step
 * alone, not on batches, ranks or accumulation. An answer that would make a record longer than any
 * other is cut. */
#ifndef AX_OPTIM_TRAIN_MISMATCH_H
#define AX_OPTIM_TRAIN_MISMATCH_H

#include "optim/evaluate/references.h"

struct ax_mismatch_places {        /* of the examples of one data set */
    const struct ax_examples *set; /* borrowed */
    uint32_t *at;                  /* [set->n] index of the mismatched one; UINT32_MAX: none */
};
struct ax_mismatch { /* zero-initialize */
    struct ax_examples set;
    struct ax_mismatch_places *places;
    size_t n_places;
    struct ax_references references; /* of `set` */
};

/* Makes them of the first `rows` sequences (0 = all) of the loader's epoch 0, whose position is kept, at
 * most max_len tokens each; computes the reference's log-probs in passes as `o` says. */
enum ax_status ax_mismatch_create(struct ax_mismatch *x, struct ax_model *m,
                                  struct ax_loader *loader, int64_t rows, int64_t max_len,
                                  const struct ax_eval_options *o);
/* The estimate of the n given examples, or with NULL of all n; alike on all ranks. */
struct ax_mismatch_of {
    const struct ax_examples *set;
    size_t example;
};
enum ax_status ax_mismatch_kl(const struct ax_mismatch *x, struct ax_model *m,
                              const struct ax_mismatch_of *of, size_t n,
                              const struct ax_eval_options *o, double *kl);
void ax_mismatch_free(struct ax_mismatch *x);

#endif
