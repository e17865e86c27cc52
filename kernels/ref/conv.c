/* conv_forward, conv_backward: short causal convolutions. */
#include <math.h>

#include "kernels/ref/ref.h"

/* A document's rows, and how many tokens of its sequence come before them. */
struct rows {
    int64_t number, first, end, past;
};

static struct rows rows_of(const struct ax_conv *a, int64_t d) {
    struct rows r = {d, ax_ref_i32(&a->cu_q, d), ax_ref_i32(&a->cu_q, d + 1), 0};
    if (ax_ref_given(&a->before))
        r.past = ax_ref_i32(&a->cu_k, d + 1) - ax_ref_i32(&a->cu_k, d) - (r.end - r.first);
    return r;
}

/* Input at row t of the document, which may be one before its first. */
static double input(const struct ax_conv *a, const struct rows *r, int64_t t, int64_t c) {
    const int64_t most = a->w.shape[1] - 1, before = r->first - t;
    if (before <= 0)
        return ax_ref_get(&a->x, t, c);
    return before <= r->past ? ax_ref_get(&a->before, (r->number + 1) * most - before, c) : 0;
}

static double sum_of(const struct ax_conv *a, const struct rows *r, int64_t t, int64_t c) {
    const int64_t taps = a->w.shape[1];
    double z = ax_ref_given(&a->bias) ? ax_load(a->bias.dtype, a->bias.data, c) : 0;
    for (int64_t i = 0; i < taps; i++)
        z += ax_ref_get(&a->w, c, i) * input(a, r, t - taps + 1 + i, c);
    return z;
}

static double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

static void clear(const struct ax_tensor *x) {
    for (int64_t t = 0; t < x->shape[0]; t++)
        for (int64_t c = 0; c < x->shape[1]; c++)
            ax_ref_set(x, t, c, 0);
}

enum ax_status ax_ref_conv_forward(struct ax_queue *q, const struct ax_conv_forward *f,
                                   void *work) {
    (void)q;
    (void)work;
    const struct ax_conv *a = &f->a;
    clear(&a->y);
    for (int64_t d = 0; d + 1 < a->cu_q.shape[0]; d++) {
        const struct rows r = rows_of(a, d);
        for (int64_t t = r.first; t < r.end; t++) {
            for (int64_t c = 0; c < a->x.shape[1]; c++) {
                const double z = sum_of(a, &r, t, c);
                ax_ref_set(&a->y, t, c, a->silu ? z * sigmoid(z) : z);
            }
        }
    }
    return AX_OK;
}

/* Gradient of z at row t. */
static double slope(const struct ax_conv_backward *b, const struct rows *r, int64_t t, int64_t c) {
    const double dy = ax_ref_get(&b->dy, t, c);
    if (!b->a.silu)
        return dy;
    const double z = sum_of(&b->a, r, t, c), s = sigmoid(z);
    return dy * s * (1 + z * (1 - s));
}

static void add(const struct ax_tensor *t, int64_t i, double x) {
    if (ax_ref_given(t))
        ax_store(t->dtype, t->data, i, ax_load(t->dtype, t->data, i) + x);
}

/* A channel of a document: dx, and its part of the sums over rows. */
static void backward_channel(const struct ax_conv_backward *b, const struct rows *r, int64_t c,
                             double dw[AX_CONV_TAPS], double *dbias) {
    const int64_t taps = b->a.w.shape[1];
    for (int64_t t = r->first; t < r->end; t++) {
        const double g = slope(b, r, t, c);
        double dx = 0;
        *dbias += g;
        for (int64_t i = 0; i < taps; i++) {
            const int64_t later = t + taps - 1 - i;
            dw[i] += g * input(&b->a, r, t - taps + 1 + i, c);
            if (later < r->end)
                dx += ax_ref_get(&b->a.w, c, i) * slope(b, r, later, c);
        }
        ax_ref_set(&b->dx, t, c, dx);
    }
}

enum ax_status ax_ref_conv_backward(struct ax_queue *q, const struct ax_conv_backward *b,
                                    void *work) {
    (void)q;
    (void)work;
    const int64_t taps = b->a.w.shape[1];
    clear(&b->dx);
    for (int64_t c = 0; c < b->a.x.shape[1]; c++) {
        double dw[AX_CONV_TAPS] = {0}, dbias = 0;
        for (int64_t d = 0; d + 1 < b->a.cu_q.shape[0]; d++) {
            const struct rows r = rows_of(&b->a, d);
            backward_channel(b, &r, c, dw, &dbias);
        }
        for (int64_t i = 0; i < taps; i++)
            add(&b->dw, c * taps + i, dw[i]);
        add(&b->dbias, c, dbias);
    }
    return AX_OK;
}
