/* Private to pack*.c. */
#ifndef AX_DATA_PIPELINE_PACK_IMPL_H
#define AX_DATA_PIPELINE_PACK_IMPL_H

#include "data/pipeline/pack.h"

/* sequence[i] = the sequence of example i; sequences are numbered in the order in which they
 * were opened. *n_sequences = their number. */
enum ax_status ax_pack_fit(const struct ax_pack_options *o, const struct ax_corpus *c,
                           uint32_t *sequence, size_t *n_sequences);
/* The error for the group refs[first, end). */
enum ax_status ax_pack_too_large(const struct ax_pack_options *o, const struct ax_corpus *c,
                                 size_t first, size_t end);

#endif
