/* swiglu_forward, swiglu_backward: y = silu(gate)·up of [gate | up]. */
#include <math.h>

#include "kernels/ref/ref.h"

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

enum ax_status ax_ref_swiglu_forward(struct ax_queue *q, const struct ax_swiglu_forward *a,
                                     void *work) {
    (void)q;
    (void)work;
    int64_t f_len = a->y.shape[1];
    for (int64_t t = 0; t < a->y.shape[0]; t++) {
        for (int64_t f = 0; f < f_len; f++) {
            double gate = ax_ref_get(&a->gate_up, t, f);
            double up = ax_ref_get(&a->gate_up, t, f_len + f);
            ax_ref_set(&a->y, t, f, gate * sigmoid(gate) * up);
        }
    }
    return AX_OK;
}

/* d silu(g)/dg = σ(g)·(1 + g·(1 − σ(g))). */
enum ax_status ax_ref_swiglu_backward(struct ax_queue *q, const struct ax_swiglu_backward *a,
                                      void *work) {
    (void)q;
    (void)work;
    int64_t f_len = a->dy.shape[1];
    for (int64_t t = 0; t < a->dy.shape[0]; t++) {
        for (int64_t f = 0; f < f_len; f++) {
            double dy = ax_ref_get(&a->dy, t, f);
            double gate = ax_ref_get(&a->gate_up, t, f);
            double up = ax_ref_get(&a->gate_up, t, f_len + f);
            double s = sigmoid(gate);
            ax_ref_set(&a->dgate_up, t, f, dy * up * s * (1 + gate * (1 - s)));
            ax_ref_set(&a->dgate_up, t, f_len + f, dy * gate * s);
        }
    }
    return AX_OK;
}
