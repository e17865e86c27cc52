/* match_rms, sparsify: rows as large as others, and what is far above a row's mean. */
#include <math.h>

#include "kernels/ref/ref.h"

static double mean_product(const struct ax_tensor *a, const struct ax_tensor *b, int64_t t) {
    double sum = 0;
    for (int64_t d = 0; d < a->shape[1]; d++)
        sum += ax_ref_get(a, t, d) * ax_ref_get(b, t, d);
    return sum / (double)a->shape[1];
}

enum ax_status ax_ref_match_rms_forward(struct ax_queue *q, const struct ax_match_rms_forward *a,
                                        void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        const double of_x = fmax(mean_product(&a->x, &a->x, t), a->floor);
        const double s = sqrt(mean_product(&a->like, &a->like, t) / of_x);
        for (int64_t d = 0; d < a->x.shape[1]; d++)
            ax_ref_set(&a->y, t, d, s * ax_ref_get(&a->x, t, d));
    }
    return AX_OK;
}

enum ax_status ax_ref_match_rms_backward(struct ax_queue *q, const struct ax_match_rms_backward *a,
                                         void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        const double squares = mean_product(&a->x, &a->x, t);
        const double of_x = fmax(squares, a->floor), of_like = mean_product(&a->like, &a->like, t);
        const double m = mean_product(&a->dy, &a->x, t), s = sqrt(of_like / of_x);
        const double back = squares > a->floor ? m / of_x : 0;
        const double to_like = of_like > 0 ? m / sqrt(of_x * of_like) : 0;
        for (int64_t d = 0; d < a->x.shape[1]; d++) {
            const double like = ax_ref_get(&a->like, t, d);
            ax_ref_set(&a->dx, t, d,
                       s * (ax_ref_get(&a->dy, t, d) - back * ax_ref_get(&a->x, t, d)));
            ax_ref_set(&a->dlike, t, d, ax_ref_get(&a->dlike, t, d) + to_like * like);
        }
    }
    return AX_OK;
}

/* Mean and standard deviation of row t. */
struct moments {
    double mean, std;
};
static struct moments moments_of(const struct ax_tensor *x, int64_t t) {
    const int64_t n = x->shape[1];
    struct moments m = {0};
    double squares = 0;
    for (int64_t d = 0; d < n; d++)
        m.mean += ax_ref_get(x, t, d) / (double)n;
    for (int64_t d = 0; d < n; d++)
        squares += pow(ax_ref_get(x, t, d) - m.mean, 2);
    m.std = sqrt(squares / (double)n);
    return m;
}

enum ax_status ax_ref_sparsify_forward(struct ax_queue *q, const struct ax_sparsify_forward *a,
                                       void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        const struct moments m = moments_of(&a->x, t);
        for (int64_t d = 0; d < a->x.shape[1]; d++) {
            const double above = ax_ref_get(&a->x, t, d) - (m.mean + a->z * m.std);
            ax_ref_set(&a->y, t, d, above <= 0 ? 0 : above); /* NaN stays NaN */
        }
    }
    return AX_OK;
}

enum ax_status ax_ref_sparsify_backward(struct ax_queue *q, const struct ax_sparsify_backward *a,
                                        void *work) {
    (void)q;
    (void)work;
    const int64_t n = a->x.shape[1];
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        const struct moments m = moments_of(&a->x, t);
        const double cut = m.mean + a->z * m.std, slope = m.std > 0 ? a->z / m.std : 0;
        double mean = 0;
        for (int64_t d = 0; d < n; d++)
            mean += ax_ref_get(&a->x, t, d) > cut ? ax_ref_get(&a->dy, t, d) / (double)n : 0;
        for (int64_t d = 0; d < n; d++) {
            const double x = ax_ref_get(&a->x, t, d);
            const double g = x > cut ? ax_ref_get(&a->dy, t, d) : 0;
            ax_ref_set(&a->dx, t, d, g - mean * (1 + slope * (x - m.mean)));
        }
    }
    return AX_OK;
}
