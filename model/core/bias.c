#include "model/core/bias.h"

#include <string.h>

#include "kernels/ops.h"

bool ax_bias_acts(const struct ax_bias *b) {
    return b->presence != 0 || b->frequency != 0 || b->n > 0 || (b->min_new > 0 && b->n_ends > 0) ||
           b->allow != NULL;
}

static void penalize(const struct ax_bias *b, int64_t V, int64_t n_new, const int32_t *generated,
                     float *row) {
    if (b->presence == 0 && b->frequency == 0)
        return;
    for (int64_t i = 0; i < n_new; i++)
        row[generated[i]] += 1;
    for (int64_t i = 0; i < V; i++)
        if (row[i] > 0)
            row[i] = (float)-(b->frequency * (double)row[i] + b->presence);
}

static void exclude(const uint64_t *bits, int64_t V, float *row) {
    for (int64_t from = 0; from < V; from += 64) {
        const uint64_t word = bits[from / 64];
        const int64_t end = from + 64 < V ? from + 64 : V;
        if (word == UINT64_MAX)
            continue;
        for (int64_t i = from; i < end; i++)
            row[i] = word >> (i - from) & 1 ? row[i] : (float)AX_TRUNCATED;
    }
}

enum ax_status ax_bias_fill(const struct ax_bias *b, int64_t V, int64_t n_new,
                            const int32_t *generated, float *row) {
    const uint64_t *bits = NULL;
    memset(row, 0, (size_t)V * sizeof *row);
    penalize(b, V, n_new, generated, row);
    for (int64_t i = 0; i < b->n; i++)
        row[b->tokens[i]] += b->values[i];
    for (int i = 0; i < b->n_ends && n_new < b->min_new; i++)
        row[b->ends[i]] = (float)AX_TRUNCATED;
    if (b->allow)
        AX_TRY(b->allow(b->ctx, &bits));
    if (bits)
        exclude(bits, V, row);
    return AX_OK;
}
