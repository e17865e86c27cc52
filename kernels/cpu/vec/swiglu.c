/* SwiGLU (Shazeer 2020): y = silu(gate)·up, forward and backward, with silu(g) = g·σ(g). */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

AX_INLINE v_float sigmoid(v_float x) {
    v_float one = v_set(1.0f);
    return one / (one + v_exp(-x));
}

AX_INLINE void forward_vector(enum ax_dtype real, const void *gate_up, void *y, int64_t features,
                              int64_t i, int64_t n) {
    v_float gate = v_load(real, gate_up, i, n), up = v_load(real, gate_up, features + i, n);
    v_store(real, y, i, n, gate * sigmoid(gate) * up);
}

AX_INLINE void forward_row(enum ax_dtype real, const void *gate_up, void *y, int64_t features) {
    AX_EACH_VECTOR(features, forward_vector, real, gate_up, y, features);
}

enum ax_status AX_VEC(ax_cpu_swiglu_forward)(struct ax_queue *q,
                                             const struct ax_swiglu_forward *args, void *work) {
    (void)work;
    const struct ax_tensor *y = &args->y;
    int64_t features = y->shape[1];
    AX_PARALLEL_FOR (team(q, y->shape[0] * features), t, y->shape[0]) {
        AX_BY_DTYPE(y->dtype, forward_row, ax_tensor_row(&args->gate_up, t), ax_tensor_row(y, t),
                    features);
    }
    return AX_OK;
}

/* dgate = dy·up·σ·(1 + gate·(1 − σ)), dup = dy·gate·σ. Both inputs of an element are loaded before
 * either gradient is stored: dgate_up may be gate_up. */
AX_INLINE void backward_vector(enum ax_dtype real, const void *dy, const void *gate_up,
                               void *dgate_up, int64_t features, int64_t i, int64_t n) {
    v_float gate = v_load(real, gate_up, i, n), up = v_load(real, gate_up, features + i, n);
    v_float d = v_load(real, dy, i, n);
    v_float one = v_set(1.0f), sig = sigmoid(gate);
    v_store(real, dgate_up, i, n, d * up * (sig * v_fma(gate, one - sig, one)));
    v_store(real, dgate_up, features + i, n, d * (gate * sig));
}

AX_INLINE void backward_row(enum ax_dtype real, const void *dy, const void *gate_up, void *dgate_up,
                            int64_t features) {
    AX_EACH_VECTOR(features, backward_vector, real, dy, gate_up, dgate_up, features);
}

enum ax_status AX_VEC(ax_cpu_swiglu_backward)(struct ax_queue *q,
                                              const struct ax_swiglu_backward *args, void *work) {
    (void)work;
    const struct ax_tensor *dy = &args->dy;
    int64_t features = dy->shape[1];
    AX_PARALLEL_FOR (team(q, dy->shape[0] * features), t, dy->shape[0]) {
        AX_BY_DTYPE(dy->dtype, backward_row, ax_tensor_row(dy, t), ax_tensor_row(&args->gate_up, t),
                    ax_tensor_row(&args->dgate_up, t), features);
    }
    return AX_OK;
}
