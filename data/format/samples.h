/* Documents as the formats make them from rows: ids and labels, one document behind the other.
 *
 * Labels stand at their own token (not shifted): the id itself where it is trained, AX_NO_LABEL
 * where it is not. */
#ifndef AX_DATA_FORMAT_SAMPLES_H
#define AX_DATA_FORMAT_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { AX_NO_LABEL = -100 };

/* Where a document comes from. */
struct ax_origin {
    uint32_t file; /* of ax_rows_file */
    uint64_t line;
    int64_t row; /* index among all rows */
};

struct ax_sample {
    size_t start, n; /* tokens [start, start + n) */
    struct ax_origin origin;
};

struct ax_samples {
    int32_t *ids, *labels;
    size_t n, cap;
    struct ax_sample *items;
    size_t n_items, cap_items;
    size_t open; /* first token of the document that is being written */
};

/* Appends tokens to the open document. Labels may be NULL: then `trained` says for all. */
enum ax_status ax_samples_add(struct ax_samples *s, const int32_t *ids, const int32_t *labels,
                              size_t n, bool trained);
/* Ends the open document; an empty one vanishes. */
enum ax_status ax_samples_end(struct ax_samples *s, struct ax_origin origin);
/* Forgets documents from item n_items on, and the open one. */
void ax_samples_cut(struct ax_samples *s, size_t n_items);
void ax_samples_clear(struct ax_samples *s); /* keeps the memory */
void ax_samples_free(struct ax_samples *s);

#endif
