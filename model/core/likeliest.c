#include "model/core/likeliest.h"

#define LABEL_LOGIT 3 /* which of a row's stats */

size_t ax_likeliest_bytes(enum ax_dtype accum, int64_t n, int k) {
    return (size_t)k * (ax_results_bytes(AX_I32, n) + ax_results_bytes(accum, n)) +
           ax_results_bytes(accum, n * k);
}

/* The logits of the labels, [shards · n]: one shard has a row's, those of the others are 0. */
static struct ax_tensor labels_of(const struct ax_tensor *stats) {
    const struct ax_tensor rows = ax_tensor_2d(stats->dtype, stats->data,
                                               stats->shape[0] * stats->shape[1], AX_SOFTMAX_STATS);
    return ax_tensor_cols(&rows, LABEL_LOGIT, 1);
}

/* The log-probs of ids, whose logits are column i of `tops`. */
static enum ax_status log_probs(struct ax_queue *q, const struct ax_likeliest_rows *rows,
                                const struct ax_tensor *tops, int i, struct ax_likeliest *out) {
    const struct ax_tensor labels = labels_of(&rows->stats);
    const struct ax_copy label = {.dst = ax_tensor_rows(&labels, 0, tops->shape[0]),
                                  .src = ax_tensor_cols(tops, i, 1)};
    AX_TRY(ax_run_copy(q, &label));
    return ax_run_softmax_merge(
        q, &(struct ax_softmax_merge){.stats = rows->stats,
                                      .labels = out->id[i],
                                      .logprob = out->logprob[i],
                                      .lse = rows->lse,
                                      .entropy = rows->entropy,
                                      .inv_temperature = rows->inv_temperature});
}

enum ax_status ax_likeliest_run(struct ax_queue *q, struct ax_results *results,
                                const struct ax_likeliest_rows *rows, int k,
                                struct ax_likeliest *out) {
    const int64_t n = rows->logits.shape[0];
    const enum ax_dtype accum = rows->stats.dtype;
    out->k = k;
    if (k == 0)
        return AX_OK;
    AX_ASSERT(k <= AX_LIKELIEST_MAX);
    struct ax_tensor tops = ax_results_take(results, accum, n * k);
    tops = ax_tensor_2d(accum, tops.data, n, k);
    if (rows->stats.shape[0] > 1)
        AX_TRY(ax_run_fill(q, &(struct ax_fill){.dst = labels_of(&rows->stats)}));
    AX_TRY(ax_run_top_logits(q, &(struct ax_top_logits){.logits = rows->logits, .out = tops}));
    for (int i = 0; i < k; i++) {
        struct ax_argmax next = {.logits = rows->logits};
        if (i > 0)
            next.after = out->id[i - 1];
        next.index = out->id[i] = ax_results_take(results, AX_I32, n);
        out->logprob[i] = ax_results_take(results, accum, n);
        AX_TRY(ax_run_argmax(q, &next));
        AX_TRY(log_probs(q, rows, &tops, i, out));
    }
    return AX_OK;
}

void ax_likeliest_get(const struct ax_results *results, const struct ax_likeliest *l, int64_t i,
                      int k, int32_t *ids, double *logprobs) {
    for (int j = 0; j < k; j++) {
        ids[j] = (int32_t)ax_results_get(results, &l->id[j], i);
        logprobs[j] = ax_results_get(results, &l->logprob[j], i);
    }
}
