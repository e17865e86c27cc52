/* Rows to experts and back: group_rows, combine, grouped_gemm. */
#include "kernels/operands.h"
#include "kernels/ref/ref.h"

enum ax_status ax_ref_group_rows(struct ax_queue *q, const struct ax_group_rows *a, void *work) {
    (void)q;
    (void)work;
    int64_t n = ax_tensor_numel(&a->keys), groups = a->offsets.shape[0] - 1;
    const int32_t *keys = a->keys.data;
    int32_t *places = a->places.data, *offsets = a->offsets.data, *counts = a->counts.data;
    int32_t at = 0;
    for (int64_t i = 0; i < n; i++)
        places[i] = -1;
    for (int64_t g = 0; g < groups; g++) {
        offsets[g] = at;
        for (int64_t i = 0; i < n; i++)
            if (keys[i] - a->first == g)
                places[i] = at++;
        if (counts != NULL)
            counts[g] = at - offsets[g];
    }
    offsets[groups] = at;
    return AX_OK;
}

/* Row and weight of choice i of row t; false if the choice is empty. */
static bool named(const struct ax_tensor *rows, const struct ax_tensor *weights, int64_t t,
                  int64_t i, int64_t *row, double *weight) {
    *row = ((const int32_t *)ax_tensor_row(rows, t))[i];
    *weight = ax_ref_given(weights) ? ax_ref_get(weights, t, i) : 1;
    return *row >= 0;
}

enum ax_status ax_ref_combine_forward(struct ax_queue *q, const struct ax_combine_forward *a,
                                      void *work) {
    (void)q;
    (void)work;
    int64_t row, k = ax_tensor_row_len(&a->rows);
    double weight;
    for (int64_t t = 0; t < a->out.shape[0]; t++) {
        for (int64_t d = 0; d < a->out.shape[1]; d++) {
            double sum = ax_ref_given(&a->addend) ? ax_ref_get(&a->addend, t, d) : 0;
            for (int64_t i = 0; i < k; i++)
                if (named(&a->rows, &a->weights, t, i, &row, &weight))
                    sum += weight * ax_ref_get(&a->src, row, d);
            ax_ref_set(&a->out, t, d, sum);
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_combine_backward(struct ax_queue *q, const struct ax_combine_backward *a,
                                       void *work) {
    (void)q;
    (void)work;
    int64_t row, k = ax_tensor_row_len(&a->rows);
    double weight;
    for (int64_t t = 0; t < a->dout.shape[0]; t++) {
        for (int64_t i = 0; i < k; i++) {
            double dot = 0;
            if (named(&a->rows, &a->weights, t, i, &row, &weight)) {
                for (int64_t d = 0; d < a->dout.shape[1]; d++) {
                    double dy = ax_ref_get(&a->dout, t, d);
                    dot += dy * ax_ref_get(&a->src, row, d);
                    if (ax_ref_given(&a->dsrc))
                        ax_ref_set(&a->dsrc, row, d, weight * dy);
                }
            }
            ax_ref_set(&a->dweights, t, i, dot);
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_grouped_gemm(struct ax_queue *q, const struct ax_grouped_gemm *a,
                                   void *work) {
    for (int64_t g = 0; g + 1 < a->offsets.shape[0]; g++) {
        if (ax_ref_i32(&a->offsets, g + 1) > ax_ref_i32(&a->offsets, g)) {
            const struct ax_gemm one = ax_grouped_gemm_of(a, g);
            AX_TRY(ax_ref_gemm(q, &one, work));
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_grouped_colsum(struct ax_queue *q, const struct ax_grouped_colsum *a,
                                     void *work) {
    (void)q;
    (void)work;
    for (int64_t g = 0; g + 1 < a->offsets.shape[0]; g++) {
        for (int64_t n = 0; n < a->x.shape[1]; n++) {
            double sum = 0;
            for (int64_t r = ax_ref_i32(&a->offsets, g); r < ax_ref_i32(&a->offsets, g + 1); r++)
                sum += ax_ref_get(&a->x, r, n);
            ax_ref_set(&a->out, g, n, ax_ref_get(&a->out, g, n) + sum);
        }
    }
    return AX_OK;
}
