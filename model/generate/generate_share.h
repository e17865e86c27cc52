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

/* Counters as numbers: what has been added since `before`; and what all `ranks` data ranks have added, in the mean of
 * their times, on top of it. */
#define AX_GENERATE_COUNTERS 13
void ax_generate_put_counters(const struct ax_generate_counters *now,
                              const struct ax_generate_counters *before,
                              double v[AX_GENERATE_COUNTERS]);
void ax_generate_take_counters(struct ax_generate_counters *c,
                               const struct ax_generate_counters *before,
                               const double v[AX_GENERATE_COUNTERS], int ranks);

#endif
