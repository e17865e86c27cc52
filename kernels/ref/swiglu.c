/* swiglu_forward, swiglu_backward: gated linear units. */
#include <math.h>

#include "kernels/ref/ref.h"

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* The factor of y that the gate makes, that of up, and their slopes; y = a·b. */
struct unit {
    double a, da, b, db;
};

static struct unit unit_of(const struct ax_gating *how, double gate, double up) {
    const double root = sqrt(2 / 3.14159265358979323846);
    double s;
    switch (how->gate) {
    case AX_GATE_GELU: /* ½(1 + tanh z) = σ(2z) */
        s = sigmoid(2 * root * (gate + 0.044715 * gate * gate * gate));
        return (struct unit){
            gate * s, s + gate * s * (1 - s) * 2 * root * (1 + 3 * 0.044715 * gate * gate), up, 1};
    case AX_GATE_CLAMPED: {
        const double g = fmin(gate, how->limit), u = fmin(fmax(up, -how->limit), how->limit);
        s = sigmoid(how->alpha * g);
        return (struct unit){g * s, gate > how->limit ? 0 : s + g * how->alpha * s * (1 - s), u + 1,
                             fabs(up) > how->limit ? 0 : 1};
    }
    case AX_GATE_SIGMOID:
        s = sigmoid(gate);
        return (struct unit){s, s * (1 - s), up, 1};
    case AX_GATE_LINEAR:
        return (struct unit){gate, 1, up, 1};
    default: /* d silu(g)/dg = σ(g)·(1 + g·(1 − σ(g))) */
        s = sigmoid(gate);
        return (struct unit){gate * s, s * (1 + gate * (1 - s)), up, 1};
    }
}

static int64_t gate_at(const struct ax_gating *how, int64_t f) {
    return how->interleaved ? 2 * f : f;
}
/* In the tensor of both, or in its own. */
static int64_t up_at(const struct ax_gating *how, int64_t f, int64_t f_len, bool apart) {
    return apart ? f : how->interleaved ? 2 * f + 1 : f_len + f;
}

static struct unit load(const struct ax_gating *how, const struct ax_tensor *gate_up,
                        const struct ax_tensor *up, int64_t t, int64_t f, int64_t f_len) {
    const bool apart = ax_ref_given(up);
    return unit_of(how, ax_ref_get(gate_up, t, gate_at(how, f)),
                   ax_ref_get(apart ? up : gate_up, t, up_at(how, f, f_len, apart)));
}

enum ax_status ax_ref_swiglu_forward(struct ax_queue *q, const struct ax_swiglu_forward *a,
                                     void *work) {
    (void)work;
    for (int64_t t = 0; t < a->y.shape[0]; t++) {
        for (int64_t f = 0; f < a->y.shape[1]; f++) {
            const struct unit u = load(&a->how, &a->gate_up, &a->up, t, f, a->y.shape[1]);
            ax_ref_set(&a->y, t, f, u.a * u.b);
        }
    }
    return ax_ref_leave_range(q, &a->range, &a->y);
}

enum ax_status ax_ref_swiglu_backward(struct ax_queue *q, const struct ax_swiglu_backward *a,
                                      void *work) {
    (void)work;
    const int64_t f_len = a->dy.shape[1];
    const bool apart = ax_ref_given(&a->up);
    for (int64_t t = 0; t < a->dy.shape[0]; t++) {
        for (int64_t f = 0; f < f_len; f++) {
            const struct unit u = load(&a->how, &a->gate_up, &a->up, t, f, f_len);
            const double dy = ax_ref_get(&a->dy, t, f);
            ax_ref_set(&a->dgate_up, t, gate_at(&a->how, f), dy * u.da * u.b);
            ax_ref_set(apart ? &a->dup : &a->dgate_up, t, up_at(&a->how, f, f_len, apart),
                       dy * u.a * u.db);
        }
    }
    for (int64_t i = 0; i < a->range.t.shape[0] && ax_ref_given(&a->range.t); i++) {
        const int64_t cols = a->dgate_up.shape[1] / a->range.t.shape[0];
        const struct ax_tensor part = ax_tensor_cols(&a->dgate_up, i * cols, cols);
        const struct ax_range_of range = {ax_tensor_rows(&a->range.t, i, 1), a->range.rows};
        AX_TRY(ax_ref_leave_range(q, &range, &part));
    }
    return AX_OK;
}
