/* First-fit decreasing. Private to pack*.c. */
#ifndef AX_DATA_PIPELINE_PACK_FIT_H
#define AX_DATA_PIPELINE_PACK_FIT_H

#include "data/pipeline/pack.h"

/* row[i] = the row of document i; rows are numbered as they are opened, *n_rows of them. */
enum ax_status ax_pack_fit(const struct ax_pack_options *o, const uint32_t *lengths, size_t n,
                           uint32_t *row, size_t *n_rows);

#endif
