/* rmsnorm_forward, rmsnorm_backward over the last dimension of [T][D] or [T][H][hd]; center. */
#include <math.h>

#include "kernels/ref/ref.h"

static int64_t last_dim(const struct ax_tensor *t) {
    return t->shape[t->ndim - 1];
}

/* Row t, group h of x starts at column h·n; its rstd is element t·groups + h. */
enum ax_status ax_ref_rmsnorm_forward(struct ax_queue *q, const struct ax_rmsnorm_forward *a,
                                      void *work) {
    (void)work;
    int64_t n = last_dim(&a->x);
    int64_t groups = ax_tensor_row_len(&a->x) / n;
    for (int64_t i = 0; i < a->x.shape[0] * groups; i++) {
        int64_t t = i / groups;
        int64_t col = i % groups * n;
        double squares = 0;
        for (int64_t d = 0; d < n; d++) {
            double x = ax_ref_get(&a->x, t, col + d);
            squares += x * x;
        }
        double rstd = 1 / sqrt(squares / (double)n + a->eps);
        ax_store(a->rstd.dtype, a->rstd.data, i, rstd);
        for (int64_t d = 0; d < n; d++) {
            double normed = ax_ref_get(&a->x, t, col + d) * rstd;
            if (!a->once)
                normed = ax_ref_round(a->x.dtype, normed);
            ax_ref_set(&a->y, t, col + d, normed * (a->offset + ax_ref_get(&a->weight, d, 0)));
        }
    }
    return ax_ref_leave_range(q, &a->range, &a->y);
}

/* dy·(offset + weight). */
static double weighted(const struct ax_rmsnorm_backward *a, int64_t t, int64_t col, int64_t d) {
    return ax_ref_get(&a->dy, t, col + d) * (a->offset + ax_ref_get(&a->weight, d, 0));
}

/* dx may be dy, so a group's dy is not read after its dx is written. */
static void backward_dx(const struct ax_rmsnorm_backward *a, int64_t t, int64_t col, int64_t n,
                        double rstd) {
    double dot = 0;
    for (int64_t d = 0; d < n; d++)
        dot += weighted(a, t, col, d) * ax_ref_get(&a->x, t, col + d) * rstd;
    double mean = dot / (double)n;
    for (int64_t d = 0; d < n; d++) {
        double normed = ax_ref_get(&a->x, t, col + d) * rstd;
        double dx = rstd * (weighted(a, t, col, d) - normed * mean);
        dx += a->accumulate ? ax_ref_get(&a->dx, t, col + d) : 0;
        ax_ref_set(&a->dx, t, col + d, dx);
        if (ax_ref_given(&a->narrow))
            ax_ref_set(&a->narrow, t, col + d, ax_ref_get(&a->dx, t, col + d));
    }
}

enum ax_status ax_ref_rmsnorm_backward(struct ax_queue *q, const struct ax_rmsnorm_backward *a,
                                       void *work) {
    (void)q;
    (void)work;
    int64_t n = last_dim(&a->x);
    int64_t groups = ax_tensor_row_len(&a->x) / n;
    int64_t rows = a->x.shape[0] * groups;
    for (int64_t d = 0; d < n && ax_ref_given(&a->dweight); d++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++) {
            int64_t col = i % groups * n + d;
            sum += ax_ref_get(&a->dy, i / groups, col) * ax_ref_get(&a->x, i / groups, col) *
                   ax_load(a->rstd.dtype, a->rstd.data, i);
        }
        ax_ref_set(&a->dweight, d, 0, ax_ref_get(&a->dweight, d, 0) + sum);
    }
    for (int64_t i = 0; i < rows; i++)
        backward_dx(a, i / groups, i % groups * n, n, ax_load(a->rstd.dtype, a->rstd.data, i));
    return AX_OK;
}

enum ax_status ax_ref_center(struct ax_queue *q, const struct ax_center *a, void *work) {
    (void)q;
    (void)work;
    const int64_t n = a->x.shape[1];
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        double sum = 0;
        for (int64_t d = 0; d < n; d++)
            sum += ax_ref_get(&a->x, t, d);
        const double mean = sum / (double)n;
        for (int64_t d = 0; d < n; d++)
            ax_ref_set(&a->y, t, d,
                       ax_ref_get(&a->x, t, d) - mean +
                           (a->accumulate ? ax_ref_get(&a->y, t, d) : 0));
    }
    return AX_OK;
}
