/* Gated linear units (Shazeer 2020; kernels/ops.h): y = a·b with a made of the gate and b of up; backward
 * dgate = dy·a'·b, dup = dy·a·b'. A thread has 8 elements of y. Bytes moved: each operand once. */
#include "kernels/cuda/ranges.cuh"

__device__ static inline float sigmoid(float x) {
    return 1 / (1 + __expf(-x));
}

/* The factors of y and their slopes. */
struct unit {
    float a, da, b, db;
};

template <ax_gate Gate>
__device__ static inline unit unit_of(float gate, float up, float alpha, float limit) {
    if (Gate == AX_GATE_GELU) { /* ½(1 + tanh z) = σ(2z) */
        const float twice = 1.5957691216057308f, cubic = 0.044715f, square = gate * gate;
        const float s = sigmoid(twice * gate * (1 + cubic * square));
        return {gate * s, s + gate * s * (1 - s) * twice * (1 + 3 * cubic * square), up, 1};
    }
    if (Gate == AX_GATE_CLAMPED) {
        const float g = fminf(gate, limit), u = fminf(fmaxf(up, -limit), limit);
        const float s = sigmoid(alpha * g);
        return {g * s, gate > limit ? 0 : s + g * alpha * s * (1 - s), u + 1,
                fabsf(up) > limit ? 0.0f : 1.0f};
    }
    if (Gate == AX_GATE_LINEAR)
        return {gate, 1, up, 1};
    const float s = sigmoid(gate);
    if (Gate == AX_GATE_SIGMOID)
        return {s, s * (1 - s), up, 1};
    return {gate * s, s * (1 + gate * (1 - s)), up, 1};
}

/* Where the gates and ups of elements [f, f + 8) are: 8 and 8, or interleaved 16 in turn. */
struct pair_columns {
    int64_t one, two, end;
};
template <bool Interleaved>
__device__ static inline pair_columns columns_of(int64_t f, int64_t width) {
    if (Interleaved)
        return {2 * f, 2 * f + AX_NEIGHBORS, 2 * width};
    return {f, f, width};
}
/* Rows of gates and of ups; of interleaved ones the same. */
template <class E> struct pair_rows {
    vector_rows<E> gate, up;
};
template <class E>
static pair_rows<E> rows_of_both(const struct ax_tensor *gate_up, const struct ax_tensor *up,
                                 int64_t cols, bool interleaved) {
    if (interleaved)
        return {as_vectors<E>(gate_up, cols), as_vectors<E>(gate_up, cols)};
    const struct ax_tensor rest = up->data ? *up : ax_tensor_cols(gate_up, cols, cols);
    return {as_vectors<E>(gate_up, cols), as_vectors<E>(&rest)};
}
/* Of 16 values in turn: the first of each pair, and the second. And back. */
__device__ static inline void separate(float (&one)[AX_NEIGHBORS], float (&two)[AX_NEIGHBORS]) {
    float g[AX_NEIGHBORS], u[AX_NEIGHBORS];
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        g[i] = i < 4 ? one[2 * i] : two[2 * i - 8];
        u[i] = i < 4 ? one[2 * i + 1] : two[2 * i - 7];
    }
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        one[i] = g[i];
        two[i] = u[i];
    }
}
__device__ static inline void interleave(float (&one)[AX_NEIGHBORS], float (&two)[AX_NEIGHBORS]) {
    float low[AX_NEIGHBORS], high[AX_NEIGHBORS];
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        low[i] = i % 2 == 0 ? one[i / 2] : two[i / 2];
        high[i] = i % 2 == 0 ? one[4 + i / 2] : two[4 + i / 2];
    }
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        one[i] = low[i];
        two[i] = high[i];
    }
}

template <class E, ax_gate Gate, bool Interleaved> struct swiglu_forward {
    pair_rows<E> in;
    vector_rows<E> y;
    float alpha, limit;
    static const int parts = 1;
    static const bool ranged = !Interleaved;
    typedef E type;
    /* Leaves what it writes in `gate`. */
    __device__ void operator()(int64_t row, int64_t f, float (&gate)[AX_NEIGHBORS],
                               float (&up)[AX_NEIGHBORS]) const {
        const pair_columns c = columns_of<Interleaved>(f, y.cols);
        in.gate.load(row, c.one, c.end, gate);
        in.up.load(row, c.two, c.end, up);
        if (Interleaved)
            separate(gate, up);
        for (int i = 0; i < AX_NEIGHBORS; i++) {
            const unit u = unit_of<Gate>(gate[i], up[i], alpha, limit);
            gate[i] = u.a * u.b;
        }
        y.store(row, f, gate);
    }
};

template <class E, ax_gate Gate, bool Interleaved> struct swiglu_backward {
    vector_rows<E> dy;
    pair_rows<E> in, out;
    float alpha, limit;
    static const int parts = 2;
    static const bool ranged = !Interleaved;
    typedef E type;
    /* Leaves what it writes in `gate` and `up`. */
    __device__ void operator()(int64_t row, int64_t f, float (&gate)[AX_NEIGHBORS],
                               float (&up)[AX_NEIGHBORS]) const {
        const pair_columns c = columns_of<Interleaved>(f, dy.cols);
        float d[AX_NEIGHBORS];
        dy.load(row, f, d);
        in.gate.load(row, c.one, c.end, gate);
        in.up.load(row, c.two, c.end, up);
        if (Interleaved)
            separate(gate, up);
        for (int i = 0; i < AX_NEIGHBORS; i++) {
            const unit u = unit_of<Gate>(gate[i], up[i], alpha, limit);
            gate[i] = d[i] * u.da * u.b;
            up[i] = d[i] * u.a * u.db;
        }
        if (Interleaved)
            interleave(gate, up);
        out.gate.store(row, c.one, c.end, gate);
        out.up.store(row, c.two, c.end, up);
    }
};

template <class F> __global__ void __launch_bounds__(256) swiglu_kernel(F f, int64_t cols) {
    const int64_t col = item_number() * AX_NEIGHBORS;
    float one[AX_NEIGHBORS], two[AX_NEIGHBORS];
    if (col < cols)
        f(blockIdx.x, col, one, two);
}

/* The same, with the range of what f writes: a block of threads has a row, or a part of it. */
template <class F>
__global__ void __launch_bounds__(256) swiglu_ranged(F f, int64_t cols, range_to range) {
    const int64_t col = item_number() * AX_NEIGHBORS;
    float one[AX_NEIGHBORS] = {}, two[AX_NEIGHBORS] = {};
    if (col < cols)
        f(blockIdx.x, col, one, two);
    if (blockIdx.x >= range.rows)
        return;
    seen_range first = {}, second = {};
    first.see(one);
    if (F::parts == 2)
        (range.two ? second : first).see(two);
    raise_range<typename F::type>(range.at, first);
    if (F::parts == 2 && range.two)
        raise_range<typename F::type>(range.at + 2, second);
}

template <class F>
static enum ax_status launch(struct ax_queue *q, const F &f, int64_t rows, int64_t cols,
                             const struct ax_range_of *of) {
    const row_launch l = items_of(rows, vectors_in(cols));
    range_to range;
    AX_TRY(begin_range(q, of, &range));
    if (rows == 0 || cols == 0)
        return AX_OK;
    if constexpr (F::ranged)
        if (range.at != nullptr)
            return AX_LAUNCH(q, swiglu_ranged<F>, l.grid, l.threads, 0, f, cols, range);
    return AX_LAUNCH(q, swiglu_kernel<F>, l.grid, l.threads, 0, f, cols);
}

/* f(gate, interleaved) with both as types' values. */
template <class F> static enum ax_status by_gating(const struct ax_gating &how, F f) {
    const auto by_order = [&](auto gate) {
        return how.interleaved ? f(gate, std::true_type()) : f(gate, std::false_type());
    };
    switch (how.gate) {
    case AX_GATE_GELU:
        return by_order(std::integral_constant<ax_gate, AX_GATE_GELU>());
    case AX_GATE_CLAMPED:
        return by_order(std::integral_constant<ax_gate, AX_GATE_CLAMPED>());
    case AX_GATE_SIGMOID:
        return by_order(std::integral_constant<ax_gate, AX_GATE_SIGMOID>());
    case AX_GATE_LINEAR:
        return by_order(std::integral_constant<ax_gate, AX_GATE_LINEAR>());
    default:
        return by_order(std::integral_constant<ax_gate, AX_GATE_SILU>());
    }
}

extern "C" enum ax_status ax_cuda_swiglu_forward(struct ax_queue *q,
                                                 const struct ax_swiglu_forward *a, void *work) {
    (void)work;
    const int64_t rows = a->y.shape[0], cols = a->y.shape[1];
    return by_real(a->y.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return by_gating(a->how, [&](auto gate, auto interleaved) {
            const swiglu_forward<E, decltype(gate)::value, decltype(interleaved)::value> f = {
                rows_of_both<E>(&a->gate_up, &a->up, cols, a->how.interleaved),
                as_vectors<E>(&a->y), (float)a->how.alpha, (float)a->how.limit};
            return launch(q, f, rows, cols, &a->range);
        });
    });
}

extern "C" enum ax_status ax_cuda_swiglu_backward(struct ax_queue *q,
                                                  const struct ax_swiglu_backward *a, void *work) {
    (void)work;
    const int64_t rows = a->dy.shape[0], cols = a->dy.shape[1];
    return by_real(a->dy.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return by_gating(a->how, [&](auto gate, auto interleaved) {
            const swiglu_backward<E, decltype(gate)::value, decltype(interleaved)::value> f = {
                as_vectors<E>(&a->dy),
                rows_of_both<E>(&a->gate_up, &a->up, cols, a->how.interleaved),
                rows_of_both<E>(&a->dgate_up, &a->dup, cols, a->how.interleaved),
                (float)a->how.alpha, (float)a->how.limit};
            return launch(q, f, rows, cols, &a->range);
        });
    });
}
