/* Updates that need a full matrix: adafactor, muon_momentum, muon_apply. */
#include <math.h>

#include "kernels/ref/update.h"

static double rms_of_weights(const struct ax_ref_weights *w, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double x = ax_ref_weight(w, i);
        sum += x * x;
    }
    return sqrt(sum / (double)n);
}

/* moment = (1 − b)·moment + b·mean */
static void blend(const struct ax_tensor *moment, int64_t i, double b, double mean) {
    ax_store(moment->dtype, moment->data, i, (1 - b) * ax_ref_at(moment, i) + b * mean);
}

/* The mean of g² (+ eps1) over `count` elements with stride `stride`. */
static double mean_square(const struct ax_adafactor *a, int64_t first, int64_t stride,
                          int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const double g = ax_ref_at(&a->grad, first + i * stride) * a->scalars->clip;
        sum += g * g + (a->torch ? 0 : a->eps1);
    }
    return sum / (double)count;
}

static double mean_of(const struct ax_tensor *t) {
    double sum = 0;
    for (int64_t i = 0; i < t->shape[0]; i++)
        sum += ax_ref_at(t, i);
    return sum / (double)t->shape[0];
}

static void new_moments(const struct ax_adafactor *a, double b) {
    const int64_t rows = a->master.shape[0];
    if (a->master.ndim == 1) {
        for (int64_t i = 0; i < rows; i++)
            blend(&a->exp_avg_sq, i, b, mean_square(a, i, 1, 1));
        return;
    }
    const int64_t cols = a->master.shape[1];
    for (int64_t r = 0; r < rows; r++)
        blend(&a->row, r, b, mean_square(a, r * cols, 1, cols));
    for (int64_t c = 0; c < cols; c++)
        blend(&a->col, c, b, mean_square(a, c, cols, rows));
}

/* Element i of the update, before scaling; row_mean is mean(row). */
static double direction(const struct ax_adafactor *a, int64_t i, double row_mean) {
    const double g = ax_ref_at(&a->grad, i) * a->scalars->clip;
    double square;
    if (a->master.ndim == 1) {
        square = ax_ref_at(&a->exp_avg_sq, i);
    } else {
        const int64_t cols = a->master.shape[1];
        square = ax_ref_at(&a->row, i / cols) * ax_ref_at(&a->col, i % cols);
        square /= a->torch ? fmax(row_mean, a->eps1) : row_mean;
    }
    return g / sqrt(a->torch ? fmax(square, a->eps1 * a->eps1) : square);
}

enum ax_status ax_ref_adafactor(struct ax_queue *q, const struct ax_adafactor *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    const struct ax_ref_weights weights = AX_REF_WEIGHTS(a);
    if (s->skip != 0)
        return AX_OK;
    const double step = (double)s->step, b = pow(step, a->decay);
    const int64_t n = ax_tensor_numel(&a->master);
    double size = s->lr, decay = s->lr * a->weight_decay;
    if (a->torch || a->scale_parameter) {
        size = a->torch ? fmin(s->lr, 1 / sqrt(step)) : s->lr;
        size *= fmax(a->eps2, rms_of_weights(&weights, n));
        decay = a->torch ? decay : size * a->weight_decay;
    }
    new_moments(a, b);
    const double row_mean = a->master.ndim == 1 ? 0 : mean_of(&a->row);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double u = direction(a, i, row_mean);
        sum += u * u;
    }
    size /= fmax(1, sqrt(sum / (double)n) / a->threshold);
    for (int64_t i = 0; i < n; i++) {
        const double w = ax_ref_weight(&weights, i);
        ax_ref_set_weight(&weights, i, w * (1 - decay) - size * direction(a, i, row_mean));
    }
    return AX_OK;
}

/* Element i before it is divided, once the buffer is new. */
static double muon_update(const struct ax_muon_momentum *a, int64_t i) {
    const double g = ax_ref_grad(&a->grad, i, a->scalars), buf = ax_ref_at(&a->momentum_buffer, i);
    return a->nesterov ? g + a->momentum * (buf - g) : buf;
}

enum ax_status ax_ref_muon_momentum(struct ax_queue *q, const struct ax_muon_momentum *a,
                                    void *work) {
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    const int64_t n = ax_tensor_numel(&a->grad);
    if (s->skip != 0)
        return ax_ref_fill(q, &(struct ax_fill){a->out, 0}, NULL);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double g = ax_ref_grad(&a->grad, i, s), old = ax_ref_at(&a->momentum_buffer, i);
        ax_store(a->momentum_buffer.dtype, a->momentum_buffer.data, i,
                 old + (1 - a->momentum) * (g - old));
        const double u = muon_update(a, i);
        sum += u * u;
    }
    const double norm = fmax(sqrt(sum), a->eps);
    for (int64_t i = 0; i < n; i++)
        ax_store(a->out.dtype, a->out.data, i, muon_update(a, i) / norm);
    return AX_OK;
}

enum ax_status ax_ref_muon_apply(struct ax_queue *q, const struct ax_muon_apply *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    const struct ax_ref_weights weights = AX_REF_WEIGHTS(a);
    const int64_t n = s->skip != 0 ? 0 : ax_tensor_numel(&a->master);
    for (int64_t i = 0; i < n; i++) {
        const double w = ax_ref_weight(&weights, i) * (1 - s->lr * a->weight_decay);
        ax_ref_set_weight(&weights, i, w - s->lr * a->ratio * ax_ref_at(&a->update, i));
    }
    return AX_OK;
}
