/* ssd_gates_forward, ssd_gates_backward: time step and decay of Mamba-2's recurrence. */
#include <math.h>

#include "kernels/ref/ref.h"

static double vector_at(const struct ax_tensor *t, int64_t i) {
    return ax_load(t->dtype, t->data, i);
}

/* ln(1 + e^x), also where e^x is too large. */
static double softplus(double x) {
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

enum ax_status ax_ref_ssd_gates_forward(struct ax_queue *q, const struct ax_ssd_gates_forward *f,
                                        void *work) {
    (void)q;
    (void)work;
    for (int64_t t = 0; t < f->a.shape[0]; t++) {
        for (int64_t h = 0; h < f->a.shape[1]; h++) {
            const double x = ax_ref_get(&f->a, t, h) + vector_at(&f->bias, h);
            const double step = fmin(fmax(softplus(x), f->low), f->high);
            ax_ref_set(&f->g, t, h, -exp(vector_at(&f->log, h)) * step);
            ax_ref_set(&f->step, t, h, step);
        }
    }
    return AX_OK;
}

static void add(const struct ax_tensor *t, int64_t i, double x) {
    if (ax_ref_given(t))
        ax_store(t->dtype, t->data, i, vector_at(t, i) + x);
}

static void backward_head(const struct ax_ssd_gates_backward *b, int64_t h) {
    const double rate = exp(vector_at(&b->log, h));
    double dlog = 0, dbias = 0, dskip = 0;
    for (int64_t t = 0; t < b->a.shape[0]; t++) {
        const double x = ax_ref_get(&b->a, t, h) + vector_at(&b->bias, h), raw = softplus(x);
        const double step = fmin(fmax(raw, b->low), b->high), dg = ax_ref_get(&b->dg, t, h);
        const double da =
            step == raw ? (ax_ref_get(&b->dstep, t, h) - rate * dg) / (1 + exp(-x)) : 0;
        ax_ref_set(&b->da, t, h, da);
        dlog -= dg * rate * step;
        dbias += da;
        dskip += ax_ref_get(&b->shares, t, h);
    }
    add(&b->dlog, h, dlog);
    add(&b->dbias, h, dbias);
    add(&b->dskip, h, dskip);
}

enum ax_status ax_ref_ssd_gates_backward(struct ax_queue *q, const struct ax_ssd_gates_backward *b,
                                         void *work) {
    (void)q;
    (void)work;
    for (int64_t h = 0; h < b->a.shape[1]; h++)
        backward_head(b, h);
    return AX_OK;
}
