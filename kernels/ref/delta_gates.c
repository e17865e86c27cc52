/* delta_gates_forward, delta_gates_backward: decay and strength of the gated delta rule. */
#include <math.h>

#include "kernels/ref/ref.h"

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* ln(1 + e^x), also where e^x is too large. */
static double softplus(double x) {
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double vector_at(const struct ax_tensor *t, int64_t i) {
    return ax_load(t->dtype, t->data, i);
}

/* Head of element (n, j) of b. */
static int64_t head_of(const struct ax_tensor *b, const struct ax_tensor *log, int64_t n,
                       int64_t j) {
    const int64_t row = b->shape[1];
    return n % (log->shape[0] / row) * row + j;
}

/* Decays of a head. */
static int64_t width_of(const struct ax_tensor *bias, const struct ax_tensor *log) {
    return bias->shape[0] / log->shape[0];
}

enum ax_status ax_ref_delta_gates_forward(struct ax_queue *q,
                                          const struct ax_delta_gates_forward *f, void *work) {
    (void)q;
    (void)work;
    const int64_t w = width_of(&f->bias, &f->log);
    for (int64_t n = 0; n < f->b.shape[0]; n++) {
        for (int64_t j = 0; j < f->b.shape[1]; j++) {
            const int64_t h = head_of(&f->b, &f->log, n, j);
            for (int64_t i = 0; i < w; i++) {
                const double x = ax_ref_get(&f->a, n, j * w + i) + vector_at(&f->bias, h * w + i);
                ax_ref_set(&f->g, n, j * w + i, -exp(vector_at(&f->log, h)) * softplus(x));
            }
            ax_ref_set(&f->beta, n, j, f->scale * sigmoid(ax_ref_get(&f->b, n, j)));
        }
    }
    return AX_OK;
}

static void add(const struct ax_tensor *t, int64_t i, double x) {
    if (ax_ref_given(t))
        ax_store(t->dtype, t->data, i, vector_at(t, i) + x);
}

/* The elements of one head, which are in every count-th row. */
static void backward_head(const struct ax_delta_gates_backward *b, int64_t h) {
    const int64_t row = b->b.shape[1], count = b->log.shape[0] / row, j = h % row;
    const int64_t w = width_of(&b->bias, &b->log);
    const double decay = exp(vector_at(&b->log, h));
    double dlog = 0;
    for (int64_t n = h / row; n < b->b.shape[0]; n += count) {
        const double s = sigmoid(ax_ref_get(&b->b, n, j));
        ax_ref_set(&b->db, n, j, ax_ref_get(&b->dbeta, n, j) * b->scale * s * (1 - s));
    }
    for (int64_t i = 0; i < w; i++) {
        double dbias = 0;
        for (int64_t n = h / row; n < b->b.shape[0]; n += count) {
            const double x = ax_ref_get(&b->a, n, j * w + i) + vector_at(&b->bias, h * w + i);
            const double dg = ax_ref_get(&b->dg, n, j * w + i), da = -dg * decay * sigmoid(x);
            ax_ref_set(&b->da, n, j * w + i, da);
            dlog -= dg * decay * softplus(x);
            dbias += da;
        }
        add(&b->dbias, h * w + i, dbias);
    }
    add(&b->dlog, h, dlog);
}

enum ax_status ax_ref_delta_gates_backward(struct ax_queue *q,
                                           const struct ax_delta_gates_backward *b, void *work) {
    (void)q;
    (void)work;
    for (int64_t h = 0; h < b->log.shape[0]; h++)
        backward_head(b, h);
    return AX_OK;
}
