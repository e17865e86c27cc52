/* The rows of a micro-batch's head as a call in the queue's order sees them: for an objective that
 * gets all rows at once and computes its loss on the host's side (documents.h, policy.h).
 *
 * ax_rows_of describes them in the device's memory, ax_rows_near where the call runs. */
#ifndef AX_OPTIM_ROWS_H
#define AX_OPTIM_ROWS_H

#include "model/pass.h"

struct ax_rows {
    enum ax_dtype dtype; /* of the values: accumulation */
    int n_docs, n_cap;   /* documents: in use, at most */
    int64_t n;           /* rows; those with a label come first, in order */
    const void AX_DEVICE *logprob, *lse, *entropy, *mean; /* mean: data NULL if not requested */
    const void AX_DEVICE *labels, *token, *cu;
};
struct ax_rows ax_rows_of(const struct ax_batch *b, const struct ax_head_chunk *c);

struct ax_near_rows {
    enum ax_dtype dtype;
    int n_docs, n_cap;
    int64_t n;
    const void *logprob, *lse, *entropy, *mean;
    const int32_t *labels, *token, *cu; /* token: of the sequence; cu: where documents begin */
};
struct ax_near_rows ax_rows_near(struct ax_queue *q, const struct ax_rows *r);
/* NULL stays NULL. */
void *ax_near(struct ax_queue *q, const void AX_DEVICE *at);

/* Element i of values of the rows' dtype. */
static inline double ax_row_value(const struct ax_near_rows *r, const void *values, int64_t i) {
    return r->dtype == AX_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
}

static inline void ax_row_set(const struct ax_near_rows *r, void *values, int64_t i, double v) {
    if (r->dtype == AX_F64)
        ((double *)values)[i] = v;
    else
        ((float *)values)[i] = (float)v;
}

/* The document of labeled row i, no earlier than `doc`. */
static inline int ax_row_document(const struct ax_near_rows *r, int doc, int64_t i) {
    while (r->token[i] >= r->cu[doc + 1])
        doc++;
    return doc;
}

/* Zeroes values of all rows; they may be NULL. */
void ax_rows_zero(const struct ax_near_rows *r, void *values);

#endif
