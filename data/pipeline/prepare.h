/* Rows → documents, by several threads, in the order of the rows: what comes out does not depend on
 * the number of threads. Memory is bounded by a few batches of rows. */
#ifndef AX_DATA_PIPELINE_PREPARE_H
#define AX_DATA_PIPELINE_PREPARE_H

#include "data/format/format.h"
#include "data/rows/rows.h"

/* Rows that could not be used. */
#define AX_BAD_ROWS_LISTED 20
struct ax_bad_rows {
    int64_t allowed; /* more than these are an error */
    int64_t n;
    char *texts[AX_BAD_ROWS_LISTED]; /* of the first ones: "FILE:LINE: why" */
};
void ax_bad_rows_free(struct ax_bad_rows *b);

struct ax_prepare_options {
    struct ax_rows *rows; /* borrowed; nobody else reads them meanwhile */
    const struct ax_format *format;
    struct ax_bad_rows *bad; /* counted here */
    int threads;
};

struct ax_prepare;

enum ax_status ax_prepare_open(struct ax_prepare **out, const struct ax_prepare_options *o);
void ax_prepare_close(struct ax_prepare *p);

struct ax_prepared {
    const int32_t *ids, *labels; /* [n], until the next call */
    size_t n;
    struct ax_origin origin;
};
/* The next document; *got = false when the rows have ended. AX_ERR_DATA names the last of too many
 * bad rows. After an error only closing is left. */
enum ax_status ax_prepare_next(struct ax_prepare *p, struct ax_prepared *doc, bool *got);

#endif
