/* top_keys: all scores of a query, then the best key that is left, as often as there are keys to choose. */
#include "kernels/ref/ref.h"

static double score(const struct ax_top_keys *a, int64_t t, int64_t row, double *work) {
    const int64_t d = a->q.shape[2];
    double *query = work, *key = work + d, sum = 0;
    ax_ref_load_row(&a->k, row, 0, d, key);
    for (int64_t h = 0; h < a->q.shape[1]; h++) {
        double product = 0;
        ax_ref_load_row(&a->q, t, h * d, d, query);
        for (int64_t i = 0; i < d; i++)
            product += query[i] * key[i];
        product *= a->scale;
        sum += ax_ref_get(&a->w, t, h) * (product > 0 ? product : 0);
    }
    return sum;
}

static int64_t key_row(const struct ax_top_keys *a, int64_t doc, int64_t j) {
    if (!ax_ref_given(&a->block_table))
        return ax_ref_i32(&a->cu_k, doc) + j;
    const int64_t entry = doc * a->block_table.row_stride + j / a->block_size;
    return ax_ref_i32(&a->block_table, entry) * a->block_size + j % a->block_size;
}

/* Chooses no key for row t. */
static void clear_row(const struct ax_top_keys *a, int64_t t) {
    const struct ax_tensor *out = ax_ref_given(&a->rows) ? &a->rows : &a->chosen;
    int32_t *row = (int32_t *)out->data + t * out->row_stride;
    for (int64_t i = 0; i < out->shape[1]; i++)
        row[i] = ax_ref_given(&a->rows) ? -1 : 0;
}

/* marks[n]: 1 for the keys to choose, of those with scores[n]. */
static void mark(const struct ax_top_keys *a, const double *scores, int64_t n, double *marks) {
    for (int64_t j = 0; j < n; j++)
        marks[j] = 0;
    for (int64_t k = 0; k < a->top && k < n; k++) {
        int64_t best = -1;
        for (int64_t j = 0; j < n; j++)
            if (marks[j] == 0 && (best < 0 || scores[j] > scores[best]))
                best = j;
        marks[best] = 1;
    }
}

/* Chooses among the first n keys of a document for row t. */
static void choose(const struct ax_top_keys *a, int64_t doc, int64_t t, int64_t n, double *work) {
    double *scores = work + 2 * a->q.shape[2], *marks = scores + a->max_k;
    int64_t found = 0;
    for (int64_t j = 0; j < n; j++)
        scores[j] = score(a, t, key_row(a, doc, j), work);
    mark(a, scores, n, marks);
    for (int64_t j = 0; j < n; j++) {
        if (marks[j] == 0)
            continue;
        if (ax_ref_given(&a->rows))
            ((int32_t *)a->rows.data)[t * a->rows.row_stride + found++] =
                (int32_t)key_row(a, doc, j);
        else
            ((uint32_t *)a->chosen.data)[t * a->chosen.row_stride + j / 32] |= 1u << j % 32;
    }
}

enum ax_status ax_ref_top_keys(struct ax_queue *q, const struct ax_top_keys *a, void *work) {
    (void)q;
    for (int64_t t = 0; t < a->q.shape[0]; t++)
        clear_row(a, t);
    for (int64_t d = 0; d + 1 < a->cu_q.shape[0]; d++) {
        const int64_t first = ax_ref_i32(&a->cu_q, d), nq = ax_ref_i32(&a->cu_q, d + 1) - first;
        const int64_t nk = ax_ref_i32(&a->cu_k, d + 1) - ax_ref_i32(&a->cu_k, d);
        AX_ASSERT(nk <= a->max_k);
        for (int64_t i = 0; i < nq; i++)
            choose(a, d, first + i, i + nk - nq + 1, work);
    }
    return AX_OK;
}
