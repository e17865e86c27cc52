/* Records → examples, by several threads, in the order of the records: what comes out does not
 * depend on the number of threads. Memory is bounded by a few batches of records. */
#ifndef AX_DATA_PIPELINE_PREPARE_H
#define AX_DATA_PIPELINE_PREPARE_H

#include "data/format/format.h"
#include "data/pipeline/examples.h"
#include "data/rows/rows.h"

struct ax_prepare_options {
    struct ax_rows *rows; /* borrowed; nobody else reads them meanwhile */
    const struct ax_format *format;
    struct ax_bad_records *bad; /* counted here */
    int threads;
};

struct ax_prepare;

enum ax_status ax_prepare_open(struct ax_prepare **out, const struct ax_prepare_options *o);
void ax_prepare_close(struct ax_prepare *p);

/* The next example, valid until the next call; *got = false when the records have ended.
 * AX_ERR_DATA names the last of too many bad ones. After an error only closing is left. */
enum ax_status ax_prepare_next(struct ax_prepare *p, struct ax_example *out, bool *got);

#endif
