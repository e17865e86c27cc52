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

/* Of element (n, j). */
static int64_t head_of(const struct ax_tensor *a, const struct ax_tensor *log, int64_t n,
                       int64_t j) {
    const int64_t row = a->shape[1];
    return n % (log->shape[0] / row) * row + j;
}

enum ax_status ax_ref_delta_gates_forward(struct ax_queue *q,
                                          const struct ax_delta_gates_forward *f, void *work) {
    (void)q;
    (void)work;
    for (int64_t n = 0; n < f->a.shape[0]; n++) {
        for (int64_t j = 0; j < f->a.shape[1]; j++) {
            const int64_t h = head_of(&f->a, &f->log, n, j);
            const double x = ax_ref_get(&f->a, n, j) + vector_at(&f->bias, h);
            ax_ref_set(&f->g, n, j, -exp(vector_at(&f->log, h)) * softplus(x));
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
    const int64_t row = b->a.shape[1], count = b->log.shape[0] / row, j = h % row;
    const double decay = exp(vector_at(&b->log, h));
    double dlog = 0, dbias = 0;
    for (int64_t n = h / row; n < b->a.shape[0]; n += count) {
        const double x = ax_ref_get(&b->a, n, j) + vector_at(&b->bias, h);
        const double s = sigmoid(ax_ref_get(&b->b, n, j)), dg = ax_ref_get(&b->dg, n, j);
        const double da = -dg * decay * sigmoid(x);
        ax_ref_set(&b->da, n, j, da);
        ax_ref_set(&b->db, n, j, ax_ref_get(&b->dbeta, n, j) * b->scale * s * (1 - s));
        dlog -= dg * decay * softplus(x);
        dbias += da;
    }
    add(&b->dlog, h, dlog);
    add(&b->dbias, h, dbias);
}

enum ax_status ax_ref_delta_gates_backward(struct ax_queue *q,
                                           const struct ax_delta_gates_backward *b, void *work) {
    (void)q;
    (void)work;
    for (int64_t h = 0; h < b->log.shape[0]; h++)
        backward_head(b, h);
    return AX_OK;
}
