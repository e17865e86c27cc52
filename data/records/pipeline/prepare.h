/* Records → examples on several threads, in record order: the result does not depend on the number
 * of threads. Memory is bounded by a few batches of records. */
#ifndef AX_DATA_RECORDS_PIPELINE_PREPARE_H
#define AX_DATA_RECORDS_PIPELINE_PREPARE_H

#include "data/records/format/format.h"
#include "data/records/pipeline/examples.h"
#include "data/records/rows/rows.h"

struct ax_prepare_options {
    struct ax_rows *rows; /* borrowed; no other reader meanwhile */
    const struct ax_format *format;
    bool numbered;              /* origins have numbers of records (rows.h) in place of indices */
    struct ax_bad_records *bad; /* updated here */
    int threads;
};

struct ax_prepare;

enum ax_status ax_prepare_open(struct ax_prepare **out, const struct ax_prepare_options *o);
void ax_prepare_close(struct ax_prepare *p);

/* The next example, valid until the next call; *got = false at the end. AX_ERR_DATA names the
 * record that exceeded the limit of bad ones. After an error, only close is allowed. */
enum ax_status ax_prepare_next(struct ax_prepare *p, struct ax_example *out, bool *got);

#endif
