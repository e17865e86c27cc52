/* Sequences of a call, shared among the ranks of a generator. */
#ifndef AX_MODEL_GENERATE_GENERATE_SHARE_H
#define AX_MODEL_GENERATE_GENERATE_SHARE_H

#include "model/generate/generate.h"

/* This rank's part of n sequences: the data ranks, with those of cp, have a range each; stages the same. */
void ax_generate_deal(const struct ax_generator *d, int64_t n, int64_t *first, int64_t *own);
/* Gives all ranks all sequences, and tells the callbacks of those of others; `before`: the counters when generation
 * began. */
enum ax_status ax_generate_share(struct ax_generator *d, int64_t n, struct ax_sequence *seqs,
                                 const struct ax_generate_counters *before);

#endif
