#include "optim/losses/rows.h"

#include <string.h>

struct ax_rows ax_rows_of(const struct ax_batch *b, const struct ax_head_chunk *c) {
    return (struct ax_rows){.dtype = c->logprob.dtype,
                            .n_docs = (int)b->n_docs,
                            .n_cap = (int)b->n_cap,
                            .n = c->n,
                            .logprob = c->logprob.data,
                            .lse = c->lse.data,
                            .entropy = c->entropy.data,
                            .mean = c->mean_logprob.data,
                            .labels = b->labels.data,
                            .token = b->row_order.data,
                            .cu = b->cu_seqlens.data};
}

struct ax_view ax_rows_value(const struct ax_rows *r, const void AX_DEVICE *values,
                             enum ax_view_use use) {
    return (struct ax_view){values, (size_t)r->n * ax_dtype_size(r->dtype), use};
}

static struct ax_view words(const void AX_DEVICE *values, int64_t n) {
    return (struct ax_view){values, (size_t)n * sizeof(int32_t), AX_VIEW_READ};
}

void ax_rows_view(const struct ax_rows *r, struct ax_view views[AX_ROWS_VIEWS]) {
    const void AX_DEVICE *const values[] = {r->logprob, r->lse, r->entropy, r->mean};
    for (int i = 0; i < 4; i++)
        views[i] = ax_rows_value(r, values[i], AX_VIEW_READ);
    views[4] = words(r->labels, r->n);
    views[5] = words(r->token, r->n);
    views[6] = words(r->cu, r->n_cap + 1);
}

struct ax_near_rows ax_rows_near(const struct ax_rows *r, void *const *at) {
    return (struct ax_near_rows){.dtype = r->dtype,
                                 .n_docs = r->n_docs,
                                 .n_cap = r->n_cap,
                                 .n = r->n,
                                 .logprob = at[0],
                                 .lse = at[1],
                                 .entropy = at[2],
                                 .mean = at[3],
                                 .labels = at[4],
                                 .token = at[5],
                                 .cu = at[6]};
}

void ax_rows_zero(const struct ax_near_rows *r, void *values) {
    if (values)
        memset(values, 0, (size_t)r->n * ax_dtype_size(r->dtype));
}
