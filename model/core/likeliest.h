/* The likeliest tokens of rows of logits, and their log-probs, which have the bits that a chosen token's would
 * have. */
#ifndef AX_MODEL_CORE_LIKELIEST_H
#define AX_MODEL_CORE_LIKELIEST_H

#include "kernels/ops.h"
#include "model/core/results.h"

#define AX_LIKELIEST_MAX 20

/* Rows whose softmax statistics have been computed. */
struct ax_likeliest_rows {
    struct ax_tensor logits; /* [n][V] */
    /* accumulation [shards][n][AX_SOFTMAX_STATS], of each shard of the columns; the labels' logits change */
    struct ax_tensor stats;
    struct ax_tensor lse, entropy; /* accumulation [n], written again */
    double inv_temperature;        /* that of stats */
};
/* In the results: the k likeliest tokens, the likeliest first, of equal ones the first; −1 where there
 * are fewer. */
struct ax_likeliest {
    int k;
    struct ax_tensor id[AX_LIKELIEST_MAX];      /* i32 [n] */
    struct ax_tensor logprob[AX_LIKELIEST_MAX]; /* accumulation [n] */
};
/* How many bytes of the results those of n rows take. */
size_t ax_likeliest_bytes(enum ax_dtype accum, int64_t n, int k);
/* Does not wait. k ≤ AX_LIKELIEST_MAX. */
enum ax_status ax_likeliest_run(struct ax_queue *q, struct ax_results *results,
                                const struct ax_likeliest_rows *rows, int k,
                                struct ax_likeliest *out);
/* Those of row i, from what the last ax_results_read read, to ids[k] and logprobs[k]. */
void ax_likeliest_get(const struct ax_results *results, const struct ax_likeliest *l, int64_t i,
                      int k, int32_t *ids, double *logprobs);

#endif
