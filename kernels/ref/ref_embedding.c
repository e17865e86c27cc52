/* embedding_forward, embedding_backward: rows of a table, or of one vocabulary shard of it. */
#include "kernels/ref/ref.h"

/* Row of this shard that holds token t, or −1. */
static int64_t shard_row(const struct ax_tensor *tokens, int64_t t, int64_t first_row,
                         const struct ax_tensor *table) {
    int64_t row = ax_ref_i32(tokens, t) - first_row;
    return row >= 0 && row < table->shape[0] ? row : -1;
}

enum ax_status ax_ref_embedding_forward(struct ax_queue *q, const struct ax_embedding_forward *a,
                                        void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->out.shape[0]; t++) {
        int64_t row = shard_row(&a->tokens, t, a->first_row, &a->weight);
        for (int64_t d = 0; d < a->out.shape[1]; d++) {
            ax_ref_set(&a->out, t, d, row < 0 ? 0 : ax_ref_get(&a->weight, row, d));
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_embedding_backward(struct ax_queue *q, const struct ax_embedding_backward *a,
                                         void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->dout.shape[0]; t++) {
        int64_t row = shard_row(&a->tokens, t, a->first_row, &a->dweight);
        bool skip = row < 0 || row + a->first_row == a->skip_token;
        for (int64_t d = 0; d < a->dout.shape[1] && !skip; d++) {
            double sum = ax_ref_get(&a->dweight, row, d) + ax_ref_get(&a->dout, t, d);
            ax_ref_set(&a->dweight, row, d, sum);
        }
    }
    return AX_OK;
}
