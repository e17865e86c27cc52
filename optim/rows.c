#include "optim/rows.h"

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

void *ax_near(struct ax_queue *q, const void AX_DEVICE *at) {
    return at ? ax_queue_address(q, at) : NULL;
}

struct ax_near_rows ax_rows_near(struct ax_queue *q, const struct ax_rows *r) {
    return (struct ax_near_rows){.dtype = r->dtype,
                                 .n_docs = r->n_docs,
                                 .n_cap = r->n_cap,
                                 .n = r->n,
                                 .logprob = ax_queue_address(q, r->logprob),
                                 .lse = ax_queue_address(q, r->lse),
                                 .entropy = ax_queue_address(q, r->entropy),
                                 .mean = ax_near(q, r->mean),
                                 .labels = ax_queue_address(q, r->labels),
                                 .token = ax_queue_address(q, r->token),
                                 .cu = ax_queue_address(q, r->cu)};
}

void ax_rows_zero(const struct ax_near_rows *r, void *values) {
    if (values)
        memset(values, 0, (size_t)r->n * ax_dtype_size(r->dtype));
}
