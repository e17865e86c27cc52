/* embedding_forward, embedding_backward: rows of a table, or of one vocabulary shard of it;
 * neftune.
 */
#include <math.h>

#include "base/rng.h"
#include "kernels/ref/ref.h"

/* Row of this shard that holds token t, or −1. */
static int64_t shard_row(const struct ax_tensor *tokens, int64_t t, int64_t first_row,
                         int64_t known, const struct ax_tensor *table) {
    const int64_t token = ax_ref_i32(tokens, t);
    int64_t row = AX_EMBEDDING_ROW(token, known) - first_row;
    return row >= 0 && row < table->shape[0] ? row : -1;
}

enum ax_status ax_ref_embedding_forward(struct ax_queue *q, const struct ax_embedding_forward *a,
                                        void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->out.shape[0]; t++) {
        int64_t row = shard_row(&a->tokens, t, a->first_row, a->known, &a->weight);
        for (int64_t d = 0; d < a->out.shape[1]; d++)
            ax_ref_set(&a->out, t, d, row < 0 ? 0 : ax_ref_get(&a->weight, row, d));
    }
    return AX_OK;
}

enum ax_status ax_ref_embedding_backward(struct ax_queue *q, const struct ax_embedding_backward *a,
                                         void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->dout.shape[0]; t++) {
        int64_t row = shard_row(&a->tokens, t, a->first_row, a->known, &a->dweight);
        bool skip = row < 0 || row + a->first_row == a->skip_token;
        for (int64_t d = 0; d < a->dout.shape[1] && !skip; d++) {
            double sum = ax_ref_get(&a->dweight, row, d) + ax_ref_get(&a->dout, t, d);
            ax_ref_set(&a->dweight, row, d, sum);
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_neftune(struct ax_queue *q, const struct ax_neftune *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_rng_key key = {a->scalars->seed, (uint32_t)a->scalars->step, a->stream};
    const int64_t width = a->x.shape[1], stop = a->first + a->x.shape[0];
    for (int64_t k = 0; k + 1 < a->cu.shape[0]; k++) {
        const int64_t first = ax_ref_i32(&a->cu, k), end = ax_ref_i32(&a->cu, k + 1);
        const double bound = a->alpha / sqrt((double)((end - first) * width));
        for (int64_t i = first * width; i < end * width; i++) {
            const int64_t t = i / width, row = t - a->first;
            if (row < 0 || t >= stop)
                continue;
            const uint64_t number = (uint64_t)(a->first_token * width + i);
            const double unit = 2 * (double)ax_rng_uniform(key, number) - 1;
            const double x = ax_ref_get(&a->x, row, i % width);
            ax_ref_set(&a->x, row, i % width, x + bound * unit);
        }
    }
    return AX_OK;
}
