/* The rows of a micro-batch's head as a call in the queue's order sees them: for an objective that
 * gets all rows together and computes its loss on the host (documents.h, policy.h).
 *
 * ax_rows_of describes them in the device's memory, ax_rows_near where the call has its views. */
#ifndef AX_OPTIM_LOSSES_ROWS_H
#define AX_OPTIM_LOSSES_ROWS_H

#include "model/pass.h"

struct ax_rows {
    enum ax_dtype dtype; /* dtype of the values: accumulation */
    int n_docs, n_cap;   /* documents in use; capacity */
    int64_t n;           /* rows; those with a label come first, in order */
    const void AX_DEVICE *logprob, *lse, *entropy, *mean; /* mean: data NULL if not requested */
    const void AX_DEVICE *labels, *token, *cu;
};
struct ax_rows ax_rows_of(const struct ax_batch *b, const struct ax_head_chunk *c);
/* The first AX_ROWS_VIEWS views of a call. */
#define AX_ROWS_VIEWS 7
void ax_rows_view(const struct ax_rows *r, struct ax_view views[AX_ROWS_VIEWS]);
/* The view of an array with a value per row, in the rows' dtype. */
struct ax_view ax_rows_value(const struct ax_rows *r, const void AX_DEVICE *values,
                             enum ax_view_use use);

struct ax_near_rows {
    enum ax_dtype dtype;
    int n_docs, n_cap;
    int64_t n;
    const void *logprob, *lse, *entropy, *mean;
    /* token: each row's token in the sequence; cu: where documents begin */
    const int32_t *labels, *token, *cu;
};
struct ax_near_rows ax_rows_near(const struct ax_rows *r, void *const *at);

/* Element i of an array of the rows' dtype. */
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

/* Zeroes an array with a value per row; NULL is fine. */
void ax_rows_zero(const struct ax_near_rows *r, void *values);

#endif
