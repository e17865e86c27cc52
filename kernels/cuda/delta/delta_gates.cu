/* delta_gates_forward, delta_gates_backward: a thread per element; sums over tokens by columns.cuh, of which a token
 * is a row. */
#include "kernels/cuda/delta/gates.cuh"
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/rows/columns.cuh"

#define THREADS 256

template <class E> struct gates {
    rows_of<const E> a, b;
    const E *log, *bias;
    int64_t tokens, heads, row; /* row: heads of a row of a and b */
    float scale;
};
template <class E>
static gates<E> gates_of(const struct ax_tensor *a, const struct ax_tensor *b,
                         const struct ax_tensor *log, const struct ax_tensor *bias, double scale) {
    const int64_t heads = log->shape[0], row = a->shape[1];
    return {as_rows<const E>(a),
            as_rows<const E>(b),
            (const E *)log->data,
            (const E *)bias->data,
            a->shape[0] / (heads / row),
            heads,
            row,
            (float)scale};
}

/* Where token t's head h is. */
struct place {
    int64_t n, j;
};
template <class E>
__device__ static inline place place_of(const gates<E> &v, int64_t t, int64_t h) {
    return {t * (v.heads / v.row) + h / v.row, h % v.row};
}

__device__ static inline float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

template <class E>
__global__ void __launch_bounds__(THREADS)
    delta_gates_forward_kernel(gates<E> v, rows_of<float> g, rows_of<float> beta) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= v.tokens * v.heads)
        return;
    const int64_t h = i % v.heads;
    const place p = place_of(v, i / v.heads, h);
    const float x = (float)v.a.at(p.n, p.j) + (float)v.bias[h];
    g.at(p.n, p.j) = -expf((float)v.log[h]) * softplus(x);
    beta.at(p.n, p.j) = v.scale * sigmoid((float)v.b.at(p.n, p.j));
}

extern "C" enum ax_status ax_cuda_delta_gates_forward(struct ax_queue *q,
                                                      const struct ax_delta_gates_forward *f,
                                                      void *work) {
    (void)work;
    return by_real(f->a.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        const gates<E> v = gates_of<E>(&f->a, &f->b, &f->log, &f->bias, f->scale);
        const int64_t n = v.tokens * v.heads;
        return n == 0 ? AX_OK
                      : AX_LAUNCH(q, delta_gates_forward_kernel<E>, blocks_of(n, THREADS), THREADS,
                                  0, v, as_rows<float>(&f->g), as_rows<float>(&f->beta));
    });
}

template <class E> struct gate_gradients {
    gates<E> v;
    rows_of<const float> dg, dbeta;
    /* −dg·e^log of token t's head h, and a + bias there */
    __device__ float scaled(int64_t t, int64_t h, float *x) const {
        const place p = place_of(v, t, h);
        *x = (float)v.a.at(p.n, p.j) + (float)v.bias[h];
        return -dg.at(p.n, p.j) * expf((float)v.log[h]);
    }
};

template <class E>
__global__ void __launch_bounds__(THREADS)
    delta_gates_backward_kernel(gate_gradients<E> in, rows_of<E> da, rows_of<E> db) {
    const gates<E> &v = in.v;
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= v.tokens * v.heads)
        return;
    float x;
    const float scaled = in.scaled(i / v.heads, i % v.heads, &x);
    const place p = place_of(v, i / v.heads, i % v.heads);
    const float s = sigmoid((float)v.b.at(p.n, p.j));
    da.at(p.n, p.j) = E(scaled * sigmoid(x));
    db.at(p.n, p.j) = E(in.dbeta.at(p.n, p.j) * v.scale * s * (1 - s));
}

/* Terms of dbias, or of dlog. */
template <class E, bool Log> struct head_term {
    gate_gradients<E> in;
    __device__ void operator()(int64_t t, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        for (int i = 0; i < AX_NEIGHBORS; i++) {
            float x = 0;
            out[i] = 0;
            if (col + i >= in.v.heads)
                continue;
            const float scaled = in.scaled(t, col + i, &x);
            out[i] = scaled * (Log ? softplus(x) : sigmoid(x));
        }
    }
};

extern "C" size_t ax_cuda_delta_gates_backward_work(const struct ax_delta_gates_backward *b) {
    const int64_t heads = b->log.shape[0];
    return column_sums_bytes(b->a.shape[0] / (heads / b->a.shape[1]), heads);
}

template <class E>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_delta_gates_backward *b,
                                   void *work) {
    const gate_gradients<E> in = {gates_of<E>(&b->a, &b->b, &b->log, &b->bias, b->scale),
                                  as_rows<const float>(&b->dg), as_rows<const float>(&b->dbeta)};
    const int64_t tokens = in.v.tokens, heads = in.v.heads;
    if (tokens == 0)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, delta_gates_backward_kernel<E>, blocks_of(tokens * heads, THREADS), THREADS,
                     0, in, as_rows<E>(&b->da), as_rows<E>(&b->db)));
    if (b->dlog.data)
        AX_TRY(column_sums(q, head_term<E, true>{in}, tokens, heads, (float *)b->dlog.data, work));
    return b->dbias.data ? column_sums(q, head_term<E, false>{in}, tokens, heads,
                                       (float *)b->dbias.data, work)
                         : AX_OK;
}

extern "C" enum ax_status ax_cuda_delta_gates_backward(struct ax_queue *q,
                                                       const struct ax_delta_gates_backward *b,
                                                       void *work) {
    return by_real(b->a.dtype, [&](auto *e) { return run_backward<AX_TYPE(e)>(q, b, work); });
}
