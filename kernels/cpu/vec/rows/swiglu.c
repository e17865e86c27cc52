/* Gated linear units (Shazeer 2020), forward and backward: y = a·b with a made of the gate, b of up. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/ranges.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

AX_INLINE v_float sigmoid(v_float x) {
    v_float one = v_set(1.0f);
    return one / (one + v_exp(-x));
}

/* The kind and its numbers; `kind` and `interleaved` are constants at every call. */
struct gating {
    enum ax_gate kind;
    bool interleaved;
    float alpha, limit;
};

struct unit {
    v_float a, da, b, db; /* factors and slopes */
};

AX_INLINE struct unit silu(v_float gate, v_float up) {
    v_float one = v_set(1.0f), sig = sigmoid(gate);
    return (struct unit){gate * sig, sig * v_fma(gate, one - sig, one), up, one};
}

/* ½(1 + tanh z) = σ(2z), z = √(2/π)·(x + 0.044715x³). */
AX_INLINE struct unit gelu(v_float gate, v_float up) {
    v_float one = v_set(1.0f), twice = v_set(0x1.988454p+0f); /* 2·√(2/π) */
    v_float cubic = v_set(0.044715f) * (gate * gate);
    v_float sig = sigmoid(twice * v_fma(gate, cubic, gate));
    v_float slope = twice * v_fma(v_set(3.0f), cubic, one);
    return (struct unit){gate * sig, sig * v_fma(gate * slope, one - sig, one), up, one};
}

AX_INLINE struct unit clamped(const struct gating *how, v_float gate, v_float up) {
    v_float one = v_set(1.0f), limit = v_set(how->limit), alpha = v_set(how->alpha);
    v_float g = v_min(limit, gate), u = v_min(limit, v_max(-limit, up)); /* NaN stays NaN */
    v_float sig = sigmoid(alpha * g);
    v_float slope = sig * v_fma(alpha * g, one - sig, one);
    return (struct unit){g * sig, slope - v_above(gate, limit, slope), u + one,
                         one - v_above(up, limit, one) - v_above(-limit, up, one)};
}

AX_INLINE struct unit unit_of(const struct gating *how, v_float gate, v_float up) {
    const v_float one = v_set(1.0f);
    switch (how->kind) {
    case AX_GATE_GELU:
        return gelu(gate, up);
    case AX_GATE_CLAMPED:
        return clamped(how, gate, up);
    case AX_GATE_SIGMOID: {
        const v_float sig = sigmoid(gate);
        return (struct unit){sig, sig * (one - sig), up, one};
    }
    case AX_GATE_LINEAR:
        return (struct unit){gate, one, up, one};
    default:
        return silu(gate, up);
    }
}

/* Rows of gates and of ups; of interleaved ones `gate` has both. */
struct row {
    void *gate, *up;
};

/* Elements i … i + n − 1 of both. */
AX_INLINE void load_pair(enum ax_dtype real, bool interleaved, struct row row, int64_t i, int64_t n,
                         v_float *gate, v_float *up) {
    const void *from = row.gate;
    if (!interleaved) {
        *gate = v_load(real, from, i, n);
        *up = v_load(real, row.up, i, n);
        return;
    }
    float both[2 * AX_LANES] = {0}, apart[2][AX_LANES];
    const int64_t low = least(2 * n, AX_LANES), high = 2 * n - low;
    v_store_f32(both, AX_LANES, v_load(real, from, 2 * i, low));
    if (high > 0)
        v_store_f32(both + AX_LANES, AX_LANES, v_load(real, from, 2 * i + AX_LANES, high));
    for (int k = 0; k < AX_LANES; k++) {
        apart[0][k] = both[2 * k];
        apart[1][k] = both[2 * k + 1];
    }
    *gate = v_load_f32(apart[0], AX_LANES);
    *up = v_load_f32(apart[1], AX_LANES);
}

AX_INLINE void store_pair(enum ax_dtype real, bool interleaved, struct row row, int64_t i,
                          int64_t n, v_float gate, v_float up) {
    void *to = row.gate;
    if (!interleaved) {
        v_store(real, to, i, n, gate);
        v_store(real, row.up, i, n, up);
        return;
    }
    float both[2 * AX_LANES], apart[2][AX_LANES];
    const int64_t low = least(2 * n, AX_LANES), high = 2 * n - low;
    v_store_f32(apart[0], AX_LANES, gate);
    v_store_f32(apart[1], AX_LANES, up);
    for (int k = 0; k < AX_LANES; k++) {
        both[2 * k] = apart[0][k];
        both[2 * k + 1] = apart[1][k];
    }
    v_store(real, to, 2 * i, low, v_load_f32(both, AX_LANES));
    if (high > 0)
        v_store(real, to, 2 * i + AX_LANES, high, v_load_f32(both + AX_LANES, AX_LANES));
}

AX_INLINE void forward_vector(enum ax_dtype real, const struct gating *how, struct row in, void *y,
                              int64_t i, int64_t n) {
    v_float gate, up;
    load_pair(real, how->interleaved, in, i, n, &gate, &up);
    const struct unit u = unit_of(how, gate, up);
    v_store(real, y, i, n, u.a * u.b);
}

AX_INLINE void forward_row(enum ax_dtype real, const struct gating *how, struct row in, void *y,
                           int64_t features) {
    AX_EACH_VECTOR(features, forward_vector, real, how, in, y);
}

/* Both inputs of an element are loaded before either gradient is stored: dgate_up may be gate_up. */
AX_INLINE void backward_vector(enum ax_dtype real, const struct gating *how, const void *dy,
                               struct row in, struct row out, int64_t i, int64_t n) {
    v_float gate, up, d = v_load(real, dy, i, n);
    load_pair(real, how->interleaved, in, i, n, &gate, &up);
    const struct unit u = unit_of(how, gate, up);
    store_pair(real, how->interleaved, out, i, n, d * u.b * u.da, d * u.a * u.db);
}

AX_INLINE void backward_row(enum ax_dtype real, const struct gating *how, const void *dy,
                            struct row in, struct row out, int64_t features) {
    AX_EACH_VECTOR(features, backward_vector, real, how, dy, in, out);
}

/* Calls row(dtype, gating, …) with kind and order as constants. */
#define BY_KIND(kind, order, dtype, how, row, ...)                                                 \
    do {                                                                                           \
        const struct gating constant = {kind, order, (float)(how).alpha, (float)(how).limit};      \
        AX_BY_DTYPE(dtype, row, &constant, __VA_ARGS__);                                           \
    } while (0)
#define BY_ORDER(kind, dtype, how, row, ...)                                                       \
    do {                                                                                           \
        if ((how).interleaved)                                                                     \
            BY_KIND(kind, true, dtype, how, row, __VA_ARGS__);                                     \
        else                                                                                       \
            BY_KIND(kind, false, dtype, how, row, __VA_ARGS__);                                    \
    } while (0)
#define BY_GATING(dtype, how, row, ...)                                                            \
    do {                                                                                           \
        if ((how).gate == AX_GATE_SILU)                                                            \
            BY_ORDER(AX_GATE_SILU, dtype, how, row, __VA_ARGS__);                                  \
        else if ((how).gate == AX_GATE_GELU)                                                       \
            BY_ORDER(AX_GATE_GELU, dtype, how, row, __VA_ARGS__);                                  \
        else if ((how).gate == AX_GATE_SIGMOID)                                                    \
            BY_ORDER(AX_GATE_SIGMOID, dtype, how, row, __VA_ARGS__);                               \
        else if ((how).gate == AX_GATE_LINEAR)                                                     \
            BY_ORDER(AX_GATE_LINEAR, dtype, how, row, __VA_ARGS__);                                \
        else                                                                                       \
            BY_ORDER(AX_GATE_CLAMPED, dtype, how, row, __VA_ARGS__);                               \
    } while (0)

/* Row t of both, with ups apart or after the gates. */
static struct row row_of(const struct ax_tensor *gate_up, const struct ax_tensor *up, int64_t t) {
    char *gate = ax_tensor_row(gate_up, t);
    const size_t gates = (size_t)(gate_up->shape[1] / 2) * ax_dtype_size(gate_up->dtype);
    return (struct row){gate, up->data ? ax_tensor_row(up, t) : gate + gates};
}

enum ax_status AX_VEC(ax_cpu_swiglu_forward)(struct ax_queue *q,
                                             const struct ax_swiglu_forward *args, void *work) {
    (void)work;
    const struct ax_tensor *y = &args->y;
    int64_t features = y->shape[1];
    AX_PARALLEL_FOR (team(q, y->shape[0] * features), t, y->shape[0]) {
        BY_GATING(y->dtype, args->how, forward_row, row_of(&args->gate_up, &args->up, t),
                  ax_tensor_row(y, t), features);
    }
    return leave_range(q, &args->range, y);
}

enum ax_status AX_VEC(ax_cpu_swiglu_backward)(struct ax_queue *q,
                                              const struct ax_swiglu_backward *args, void *work) {
    (void)work;
    const struct ax_tensor *dy = &args->dy;
    int64_t features = dy->shape[1];
    AX_PARALLEL_FOR (team(q, dy->shape[0] * features), t, dy->shape[0]) {
        BY_GATING(dy->dtype, args->how, backward_row, ax_tensor_row(dy, t),
                  row_of(&args->gate_up, &args->up, t), row_of(&args->dgate_up, &args->dup, t),
                  features);
    }
    const struct ax_tensor *all = &args->range.t;
    for (int64_t i = 0; all->data != NULL && i < all->shape[0]; i++) {
        const int64_t cols = args->dgate_up.shape[1] / all->shape[0];
        const struct ax_tensor part = ax_tensor_cols(&args->dgate_up, i * cols, cols);
        const struct ax_range_of range = {ax_tensor_rows(all, i, 1), args->range.rows};
        AX_TRY(leave_range(q, &range, &part));
    }
    return AX_OK;
}
