/* Distillation: scatter_topk, support_logits, tail_logits, divergence, divergence_merge, distill_loss, distill_backward. */
#include <math.h>

#include "kernels/ref/ref.h"

enum ax_status ax_ref_scatter_topk(struct ax_queue *q, const struct ax_scatter_topk *a,
                                   void *work) {
    (void)q;
    (void)work;
    const int64_t k = a->ids.shape[1];
    for (int64_t i = 0; i < a->ids.shape[0] * k; i++) {
        const int64_t c = ax_ref_i32(&a->ids, i) - a->first_col;
        if (c >= 0 && c < a->logits.shape[1])
            ax_ref_set(&a->logits, i / k, c, ax_ref_get(&a->values, i / k, i % k));
    }
    return AX_OK;
}

static bool is_marked(const struct ax_tensor *marks, const struct ax_tensor *more, int64_t t,
                      int64_t c) {
    return ax_ref_get(marks, t, c) > AX_TRUNCATED / 2 ||
           (more->data && ax_ref_get(more, t, c) > AX_TRUNCATED / 2);
}

enum ax_status ax_ref_support_logits(struct ax_queue *q, const struct ax_support_logits *a,
                                     void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++)
        for (int64_t c = 0; c < a->logits.shape[1]; c++)
            if (is_marked(&a->marks, &a->more, t, c) != a->inside)
                ax_ref_set(&a->logits, t, c, AX_TRUNCATED);
    return AX_OK;
}

enum ax_status ax_ref_tail_logits(struct ax_queue *q, const struct ax_tail_logits *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        const double shift =
            a->temperature * (ax_ref_get(&a->teacher_tail, t, 0) - ax_ref_get(&a->tail, t, 0));
        for (int64_t c = 0; c < a->logits.shape[1]; c++)
            if (!is_marked(&a->marks, &a->more, t, c))
                ax_ref_set(&a->teacher, t, c, ax_ref_get(&a->logits, t, c) + shift);
    }
    return AX_OK;
}

/* Log-probability of column c; NaN stays. */
static double log_of(const struct ax_tensor *logits, const struct ax_tensor *lse, int64_t t,
                     int64_t c, double inv_temperature) {
    const double x = ax_ref_get(logits, t, c) * inv_temperature - ax_ref_get(lse, t, 0);
    return x < AX_LOG_FLOOR ? AX_LOG_FLOOR : x;
}

/* log((1−β)·e^s + β·e^t) */
static double log_mixture(double s, double t, double beta) {
    if (beta == 0 || beta == 1)
        return beta == 0 ? s : t;
    const double a = s + log(1 - beta), b = t + log(beta);
    return fmax(a, b) + log1p(exp(-fabs(a - b)));
}

enum ax_status ax_ref_divergence(struct ax_queue *q, const struct ax_divergence *a, void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        double teacher = 0, student = 0;
        for (int64_t c = 0; c < a->logits.shape[1]; c++) {
            const double ls = log_of(&a->logits, &a->lse, t, c, a->inv_temperature);
            const double lt = log_of(&a->teacher, &a->teacher_lse, t, c, a->inv_temperature);
            const double lm = log_mixture(ls, lt, a->beta);
            teacher += exp(lt) * (lt - lm);
            student += exp(ls) * (ls - lm);
        }
        ax_ref_set(&a->parts, t, 0, teacher);
        ax_ref_set(&a->parts, t, 1, student);
    }
    return AX_OK;
}

enum ax_status ax_ref_divergence_merge(struct ax_queue *q, const struct ax_divergence_merge *a,
                                       void *work) {
    (void)q;
    (void)work;
    const bool forward = a->beta == 0, reverse = a->beta == 1;
    for (int64_t t = 0; t < a->parts.shape[1]; t++) {
        double teacher = 0, student = 0;
        for (int64_t s = 0; s < a->parts.shape[0]; s++) {
            teacher += ax_ref_get(&a->parts, s, 2 * t);
            student += ax_ref_get(&a->parts, s, 2 * t + 1);
        }
        ax_ref_set(&a->divergence, t, 0,
                   forward   ? teacher
                   : reverse ? student
                             : a->beta * teacher + (1 - a->beta) * student);
        ax_ref_set(&a->student_kl, t, 0, student);
    }
    return AX_OK;
}

enum ax_status ax_ref_distill_loss(struct ax_queue *q, const struct ax_distill_loss *a,
                                   void *work) {
    (void)q;
    (void)work;
    double weight = 0, divergence = 0, nll = 0, entropy = 0;
    for (int64_t t = 0; t < a->logprob.shape[0]; t++) {
        const bool labeled = ax_ref_i32(&a->labels, t) >= 0;
        const double w = labeled ? ax_ref_get(&a->weight, t, 0) : 0;
        ax_ref_set(&a->g_logprob, t, 0, -a->nll_weight * w * a->scalars->inv_weight);
        ax_ref_set(&a->g_divergence, t, 0, a->divergence_weight * w * a->scalars->inv_weight);
        weight += w;
        divergence += labeled ? w * ax_ref_get(&a->divergence, t, 0) : 0;
        nll -= labeled ? w * ax_ref_get(&a->logprob, t, 0) : 0;
        entropy += labeled && a->entropy.data ? w * ax_ref_get(&a->entropy, t, 0) : 0;
    }
    a->scalars->loss +=
        a->scalars->inv_weight * (a->divergence_weight * divergence + a->nll_weight * nll);
    if (a->measures) {
        a->measures->sum[0] += divergence;
        a->measures->sum[1] += nll;
        a->measures->of[0] += weight;
        a->measures->of[1] += weight;
        a->measures->sum[2] += entropy;
        a->measures->of[2] += a->entropy.data ? weight : 0;
    }
    return AX_OK;
}

/* dz of a column: see distill_ops.h. */
static double slope(double ls, double lt, double student_kl, double beta) {
    if (beta == 0)
        return exp(ls) - exp(lt);
    return (beta == 1 ? 1 : 1 - beta) * exp(ls) * (ls - log_mixture(ls, lt, beta) - student_kl);
}

enum ax_status ax_ref_distill_backward(struct ax_queue *q, const struct ax_distill_backward *a,
                                       void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < a->logits.shape[0]; t++) {
        const int64_t label = ax_ref_i32(&a->labels, t);
        const double g_logprob = label >= 0 ? ax_ref_get(&a->g_logprob, t, 0) : 0;
        const double g_divergence = ax_ref_get(&a->g_divergence, t, 0);
        const double kl = ax_ref_get(&a->student_kl, t, 0);
        for (int64_t c = 0; c < a->logits.shape[1]; c++) {
            const double p = exp(ax_ref_get(&a->logits, t, c) - ax_ref_get(&a->nll_lse, t, 0));
            const double ls = log_of(&a->logits, &a->lse, t, c, a->inv_temperature);
            const double lt = log_of(&a->teacher, &a->teacher_lse, t, c, a->inv_temperature);
            const double dz = slope(ls, lt, kl, a->beta);
            ax_ref_set(&a->dlogits, t, c,
                       g_logprob * ((label == a->first_col + c ? 1 : 0) - p) +
                           g_divergence * a->inv_temperature * dz);
        }
    }
    return AX_OK;
}
