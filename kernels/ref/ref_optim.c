/* The update: sumsq, clip, adamw, sgd. */
#include <math.h>

#include "kernels/ref/ref.h"

enum ax_status ax_ref_sumsq(struct ax_queue *q, const struct ax_sumsq *a, void *work) {
    (void)q;
    (void)work;
    double sum = 0;
    for (int64_t i = 0; i < a->x.shape[0]; i++) {
        double x = ax_ref_get(&a->x, i, 0);
        sum += x * x;
    }
    a->scalars->sumsq += sum;
    return AX_OK;
}

enum ax_status ax_ref_clip(struct ax_queue *q, const struct ax_clip *a, void *work) {
    (void)q;
    (void)work;
    struct ax_step_scalars *s = a->scalars;
    s->grad_norm = sqrt(s->sumsq);
    s->clip = s->max_norm > 0 ? fmin(1, s->max_norm / (s->grad_norm + 1e-6)) : 1;
    s->skip = s->inv_weight == 0 || !isfinite(s->grad_norm) ? 1 : 0;
    return AX_OK;
}

static void store_weight(const struct ax_tensor *master, const struct ax_tensor *copy, int64_t i,
                         double w) {
    ax_ref_set(master, i, 0, w);
    if (ax_ref_given(copy)) { /* the copy rounds the master as it was stored */
        ax_ref_set(copy, i, 0, ax_ref_get(master, i, 0));
    }
}

enum ax_status ax_ref_adamw(struct ax_queue *q, const struct ax_adamw *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    double correct1 = 1 - pow(a->beta1, (double)s->step);
    double correct2 = 1 - pow(a->beta2, (double)s->step);
    for (int64_t i = 0; i < a->master.shape[0]; i++) {
        double g = ax_ref_get(&a->grad, i, 0) * s->clip;
        ax_ref_set(&a->grad, i, 0, 0);
        if (s->skip != 0) {
            continue;
        }
        double m = a->beta1 * ax_ref_get(&a->exp_avg, i, 0) + (1 - a->beta1) * g;
        double v = a->beta2 * ax_ref_get(&a->exp_avg_sq, i, 0) + (1 - a->beta2) * g * g;
        double w = ax_ref_get(&a->master, i, 0) * (1 - s->lr * a->weight_decay);
        w -= s->lr * (m / correct1) / (sqrt(v / correct2) + a->eps);
        ax_ref_set(&a->exp_avg, i, 0, m);
        ax_ref_set(&a->exp_avg_sq, i, 0, v);
        store_weight(&a->master, &a->copy, i, w);
    }
    return AX_OK;
}

enum ax_status ax_ref_sgd(struct ax_queue *q, const struct ax_sgd *a, void *work) {
    (void)q;
    (void)work;
    const struct ax_step_scalars *s = a->scalars;
    for (int64_t i = 0; i < a->master.shape[0]; i++) {
        double g = ax_ref_get(&a->grad, i, 0) * s->clip;
        ax_ref_set(&a->grad, i, 0, 0);
        if (s->skip != 0) {
            continue;
        }
        double w = ax_ref_get(&a->master, i, 0);
        g += a->weight_decay * w;
        if (ax_ref_given(&a->momentum_buffer)) {
            double buf = s->step == 1 ? g : a->momentum * ax_ref_get(&a->momentum_buffer, i, 0) + g;
            ax_ref_set(&a->momentum_buffer, i, 0, buf);
            g = a->nesterov ? g + a->momentum * buf : buf;
        }
        store_weight(&a->master, &a->copy, i, w - s->lr * g);
    }
    return AX_OK;
}
