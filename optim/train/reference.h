/* KTO's estimate of the KL divergence from the reference: the mean, over the records of a step, of
 * the policy's less the reference's log-prob of a mismatched answer, which is another record's
 * answer to this record's prompt.
 *
 * The other record is the next one of epoch 0, so an estimate depends on the records of its step
 * alone, not on batches, ranks or accumulation. Mismatched answers are truncated where the example
 * would be longer than any other. */
#ifndef AX_OPTIM_TRAIN_REFERENCE_H
#define AX_OPTIM_TRAIN_REFERENCE_H

#include "optim/evaluate/refer.h"

struct ax_mismatch_places {        /* for the examples of one data set */
    const struct ax_examples *set; /* borrowed */
    /* [set->n] index of the example with the mismatched answer; UINT32_MAX: none */
    uint32_t *at;
};
struct ax_mismatch { /* zero-initialize */
    struct ax_examples set;
    struct ax_mismatch_places *places;
    size_t n_places;
    struct ax_references references; /* log-probs of `set` */
};

/* Makes mismatched examples from the first `rows` sequences (0 = all) of the loader's epoch 0, at
 * most max_len tokens each; computes the reference's log-probs in passes with options `o`. The
 * loader's position is kept. */
enum ax_status ax_mismatch_create(struct ax_mismatch *x, struct ax_model *m,
                                  struct ax_loader *loader, int64_t rows, int64_t max_len,
                                  const struct ax_eval_options *o);
/* The estimate for the n given examples (`of` NULL: for all examples); equal on all ranks. */
struct ax_mismatch_of {
    const struct ax_examples *set;
    size_t example;
};
enum ax_status ax_mismatch_kl(const struct ax_mismatch *x, struct ax_model *m,
                              const struct ax_mismatch_of *of, size_t n,
                              const struct ax_eval_options *o, double *kl);
void ax_mismatch_free(struct ax_mismatch *x);

#endif
