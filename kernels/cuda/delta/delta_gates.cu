/* delta_gates_forward, delta_gates_backward: a thread per decay, the first of a head with its strength, too; sums over
 * tokens by columns.cuh, of which a token is a row. */
#include "kernels/cuda/delta/gates.cuh"
#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/rows/columns.cuh"

#define THREADS 256

template <class E> struct gates {
    rows_of<const E> a, b;
    const E *log, *bias;
    int64_t tokens, heads, row, width; /* row: heads of a row of b; width: decays of a head */
    float scale;
};
template <class E>
static gates<E> gates_of(const struct ax_tensor *a, const struct ax_tensor *b,
                         const struct ax_tensor *log, const struct ax_tensor *bias, double scale) {
    const int64_t heads = log->shape[0], row = b->shape[1];
    return {as_rows<const E>(a),
            as_rows<const E>(b),
            (const E *)log->data,
            (const E *)bias->data,
            b->shape[0] / (heads / row),
            heads,
            row,
            bias->shape[0] / heads,
            (float)scale};
}

/* Where token t's head h is, and its decay c, 0 ≤ c < heads · width. */
struct place {
    int64_t n, j;
};
template <class E>
__device__ static inline place place_of(const gates<E> &v, int64_t t, int64_t h) {
    return {t * (v.heads / v.row) + h / v.row, h % v.row};
}
template <class E>
__device__ static inline place decay_place(const gates<E> &v, int64_t t, int64_t c) {
    const place p = place_of(v, t, c / v.width);
    return {p.n, p.j * v.width + c % v.width};
}

__device__ static inline float sigmoid(float x) {
    return 1 / (1 + expf(-x));
}

template <class E>
__global__ void __launch_bounds__(THREADS)
    delta_gates_forward_kernel(gates<E> v, rows_of<float> g, rows_of<float> beta) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t decays = v.heads * v.width;
    if (i >= v.tokens * decays)
        return;
    const int64_t t = i / decays, c = i % decays, h = c / v.width;
    const place d = decay_place(v, t, c), p = place_of(v, t, h);
    const float x = (float)v.a.at(d.n, d.j) + (float)v.bias[c];
    g.at(d.n, d.j) = -expf((float)v.log[h]) * softplus(x);
    if (c % v.width == 0)
        beta.at(p.n, p.j) = v.scale * sigmoid((float)v.b.at(p.n, p.j));
}

extern "C" enum ax_status ax_cuda_delta_gates_forward(struct ax_queue *q,
                                                      const struct ax_delta_gates_forward *f,
                                                      void *work) {
    (void)work;
    return by_real(f->a.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        const gates<E> v = gates_of<E>(&f->a, &f->b, &f->log, &f->bias, f->scale);
        const int64_t n = v.tokens * v.heads * v.width;
        return n == 0 ? AX_OK
                      : AX_LAUNCH(q, delta_gates_forward_kernel<E>, blocks_of(n, THREADS), THREADS,
                                  0, v, as_rows<float>(&f->g), as_rows<float>(&f->beta));
    });
}

template <class E> struct gate_gradients {
    gates<E> v;
    rows_of<const float> dg, dbeta;
    /* −dg·e^log of token t's decay c, and a + bias there */
    __device__ float scaled(int64_t t, int64_t c, float *x) const {
        const place p = decay_place(v, t, c);
        *x = (float)v.a.at(p.n, p.j) + (float)v.bias[c];
        return -dg.at(p.n, p.j) * expf((float)v.log[c / v.width]);
    }
};

template <class E>
__global__ void __launch_bounds__(THREADS)
    delta_gates_backward_kernel(gate_gradients<E> in, rows_of<E> da, rows_of<E> db) {
    const gates<E> &v = in.v;
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t decays = v.heads * v.width;
    if (i >= v.tokens * decays)
        return;
    const int64_t t = i / decays, c = i % decays;
    float x;
    const float scaled = in.scaled(t, c, &x);
    const place d = decay_place(v, t, c), p = place_of(v, t, c / v.width);
    da.at(d.n, d.j) = E(scaled * sigmoid(x));
    if (c % v.width != 0)
        return;
    const float s = sigmoid((float)v.b.at(p.n, p.j));
    db.at(p.n, p.j) = E(in.dbeta.at(p.n, p.j) * v.scale * s * (1 - s));
}

/* Terms of dlog or dbias, a column per decay. */
template <class E, bool Log> struct decay_term {
    gate_gradients<E> in;
    __device__ void operator()(int64_t t, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        const int64_t end = in.v.heads * in.v.width;
        for (int i = 0; i < AX_NEIGHBORS; i++) {
            float x = 0;
            const float scaled = col + i < end ? in.scaled(t, col + i, &x) : 0;
            out[i] = scaled * (Log ? softplus(x) : sigmoid(x));
        }
    }
};

/* out[h] += the sums of pieces of a head's `width` decays; a block per head. */
__global__ void __launch_bounds__(THREADS)
    add_heads_kernel(float *out, const float *sums, int64_t pieces, int64_t width) {
    const int64_t row = gridDim.x * width, first = blockIdx.x * width;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < pieces * width; i += THREADS)
        sum += sums[i / width * row + first + i % width];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[blockIdx.x] += sum;
}

template <class E>
static enum ax_status add_logs(struct ax_queue *q, const gate_gradients<E> &in, float *out,
                               float *work) {
    const int64_t decays = in.v.heads * in.v.width;
    const row_pieces pieces = row_pieces_of(in.v.tokens);
    const decay_term<E, true> term = {in};
    AX_TRY(AX_LAUNCH(q, (column_pieces<decay_term<E, true>>),
                     dim3((unsigned)pieces.count, blocks_of(decays, COLUMN_COLS)),
                     dim3(32, COLUMN_ROWS), 0, term, in.v.tokens, decays, pieces.rows, work));
    return AX_LAUNCH(q, add_heads_kernel, (unsigned)in.v.heads, THREADS, 0, out,
                     (const float *)work, pieces.count, in.v.width);
}

extern "C" size_t ax_cuda_delta_gates_backward_work(const struct ax_delta_gates_backward *b) {
    const int64_t tokens = b->b.shape[0] / (b->log.shape[0] / b->b.shape[1]);
    return column_sums_bytes(tokens, b->bias.shape[0]);
}

template <class E>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_delta_gates_backward *b,
                                   void *work) {
    const gate_gradients<E> in = {gates_of<E>(&b->a, &b->b, &b->log, &b->bias, b->scale),
                                  as_rows<const float>(&b->dg), as_rows<const float>(&b->dbeta)};
    const int64_t tokens = in.v.tokens, heads = in.v.heads, decays = heads * in.v.width;
    if (tokens == 0)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, delta_gates_backward_kernel<E>, blocks_of(tokens * decays, THREADS),
                     THREADS, 0, in, as_rows<E>(&b->da), as_rows<E>(&b->db)));
    if (b->dlog.data)
        AX_TRY(add_logs(q, in, (float *)b->dlog.data, (float *)work));
    return b->dbias.data ? column_sums(q, decay_term<E, false>{in}, tokens, decays,
                                       (float *)b->dbias.data, work)
                         : AX_OK;
}

extern "C" enum ax_status ax_cuda_delta_gates_backward(struct ax_queue *q,
                                                       const struct ax_delta_gates_backward *b,
                                                       void *work) {
    return by_real(b->a.dtype, [&](auto *e) { return run_backward<AX_TYPE(e)>(q, b, work); });
}
