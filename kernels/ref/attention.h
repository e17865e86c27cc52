/* What attention forward and backward share: which keys a query sees, and its scores. */
#ifndef AX_KERNELS_REF_ATTENTION_H
#define AX_KERNELS_REF_ATTENTION_H

#include "kernels/ref/ref.h"

/* One document: its queries and keys, [first, first + n). */
struct ax_ref_document {
    int64_t index, q_first, nq, k_first, nk;
};
struct ax_ref_document ax_ref_document(const struct ax_attention *a, int64_t index);

/* Keys [*from, *to) that query i of the document sees. */
void ax_ref_visible(const struct ax_attention *a, const struct ax_ref_document *d, int64_t i,
                    int64_t *from, int64_t *to);
/* Row of k and v that holds key j of the document. */
int64_t ax_ref_key_row(const struct ax_attention *a, const struct ax_ref_document *d, int64_t j);

/* Head `head` of row `row` as doubles. */
void ax_ref_load_head(const struct ax_tensor *t, int64_t row, int64_t head, double *out);
double ax_ref_dot(const double *x, const double *y, int64_t n);

/* The logit of a raw q·k product, soft cap included. */
double ax_ref_logit(const struct ax_attention *a, double product);

#endif
