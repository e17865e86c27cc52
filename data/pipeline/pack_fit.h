/* First-fit decreasing. Private to pack*.c. */
#ifndef AX_DATA_PIPELINE_PACK_FIT_H
#define AX_DATA_PIPELINE_PACK_FIT_H

#include "data/pipeline/pack.h"

/* sequence[i] = that of example i; they are numbered as they are opened, *n_sequences of them. */
enum ax_status ax_pack_fit(const struct ax_pack_options *o, const uint32_t *lengths, size_t n,
                           uint32_t *sequence, size_t *n_sequences);

#endif
