/* dropout, colscale, coldot, dora_norm, dora_scale, merge_low_rank, merged_squares. */
#include <math.h>

#include "base/rng.h"
#include "kernels/ref/ref.h"

enum ax_status ax_ref_dropout(struct ax_queue *q, const struct ax_dropout *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_rng_key key = {a->scalars->seed, (uint32_t)a->scalars->step, a->tensor};
    const double threshold = a->p * 0x1p32;
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        const int64_t row = ax_ref_given(&a->rows) ? (int64_t)ax_ref_get(&a->rows, t, 0) : t;
        for (int64_t k = 0; k < a->x.shape[1]; k++) {
            const int64_t index = (a->first_row + row) * a->cols + a->first_col + k;
            const bool kept = (double)ax_rng_u32(key, (uint64_t)index) >= threshold;
            double y = kept ? ax_ref_get(&a->x, t, k) / (1 - a->p) : 0;
            y += a->accumulate ? ax_ref_get(&a->y, t, k) : 0;
            ax_ref_set(&a->y, t, k, y);
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_colscale(struct ax_queue *q, const struct ax_colscale *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        for (int64_t n = 0; n < a->x.shape[1]; n++) {
            double y = ax_ref_get(&a->x, t, n);
            y *= ax_ref_given(&a->scale) ? ax_ref_get(&a->scale, n, 0) : 1;
            y += ax_ref_given(&a->bias) ? ax_ref_get(&a->bias, n, 0) : 0;
            y += ax_ref_given(&a->addend) ? ax_ref_get(&a->addend, t, n) : 0;
            ax_ref_set(&a->y, t, n, y);
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_coldot(struct ax_queue *q, const struct ax_coldot *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < a->a.shape[1]; n++) {
        double sum = 0;
        for (int64_t t = 0; t < a->a.shape[0]; t++)
            sum += ax_ref_get(&a->a, t, n) * ax_ref_get(&a->b, t, n);
        ax_ref_set(&a->out, n, 0, ax_ref_get(&a->out, n, 0) + sum);
    }
    return AX_OK;
}

enum ax_status ax_ref_dora_norm(struct ax_queue *q, const struct ax_dora_norm *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < a->weight.shape[0]; n++) {
        double sum = 0;
        for (int64_t k = 0; k < a->weight.shape[1]; k++)
            sum += ax_ref_get(&a->weight, n, k) * ax_ref_get(&a->weight, n, k);
        for (int64_t j = 0; j < a->b.shape[1]; j++)
            sum += ax_ref_get(&a->b, n, j) * ax_ref_get(&a->p, n, j);
        ax_ref_set(&a->out, n, 0, sum);
    }
    return AX_OK;
}

enum ax_status ax_ref_dora_scale(struct ax_queue *q, const struct ax_dora_scale *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < a->magnitude.shape[0]; n++) {
        const double sumsq = ax_ref_get(&a->sumsq, n, 0);
        const double inverse = sumsq > 0 ? 1 / sqrt(sumsq) : 0;
        ax_ref_set(&a->inverse, n, 0, inverse);
        ax_ref_set(&a->scale, n, 0, ax_ref_get(&a->magnitude, n, 0) * inverse);
    }
    return AX_OK;
}

static double merged(const struct ax_tensor *w, const struct ax_tensor *b,
                     const struct ax_tensor *a, double scale, int64_t n, int64_t k) {
    double v = ax_ref_get(w, n, k);
    for (int64_t j = 0; j < b->shape[1]; j++) {
        const double s = scale * ax_ref_get(b, n, j);
        v += s * ax_ref_get(a, j, k);
    }
    return v;
}

enum ax_status ax_ref_merge_low_rank(struct ax_queue *q, const struct ax_merge_low_rank *a,
                                     void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < a->weight.shape[0]; n++) {
        const double squares = ax_ref_given(&a->squares) ? ax_ref_get(&a->squares, n, 0) : 0;
        const double g = squares > 0 ? ax_ref_get(&a->magnitude, n, 0) / sqrt(squares) : 0;
        for (int64_t k = 0; k < a->weight.shape[1]; k++) {
            const double v = merged(&a->weight, &a->b, &a->a, a->scale, n, k);
            ax_ref_set(&a->out, n, k, ax_ref_given(&a->squares) ? v * g : v);
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_merged_squares(struct ax_queue *q, const struct ax_merged_squares *a,
                                     void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < a->weight.shape[0]; n++) {
        double sum = 0;
        for (int64_t k = 0; k < a->weight.shape[1]; k++) {
            const double v = merged(&a->weight, &a->b, &a->a, a->scale, n, k);
            sum += v * v;
        }
        ax_ref_set(&a->out, n, 0, sum);
    }
    return AX_OK;
}
