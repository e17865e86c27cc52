/* Short causal convolutions (kernels/mixer_ops.h). A thread of forward or of dx has 8 channels of a row; dw and dbias
 * are sums over rows (columns.cuh), of which a thread has 8 neighbors in [C][K]. Bytes moved: each operand once,
 * neighboring rows of x and dy again from the caches. */
#include "kernels/cuda/rows/columns.cuh"

#define MOST AX_CONV_TAPS

struct documents {
    const int32_t *cu, *cu_k; /* cu_k NULL: no tokens before */
    int64_t n;
};
/* A row's document; number −1: none. */
struct document {
    int64_t number, first, end, past;
};

__device__ static inline document document_at(const documents &d, int64_t t) {
    int64_t low = 0, high = d.n;
    while (low < high) { /* the first document that ends after t */
        const int64_t middle = (low + high) / 2;
        if (d.cu[middle + 1] > t)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == d.n || d.cu[low] > t)
        return {-1, 0, 0, 0};
    const int64_t first = d.cu[low], end = d.cu[low + 1];
    return {low, first, end, d.cu_k ? d.cu_k[low + 1] - d.cu_k[low] - (end - first) : 0};
}

template <class E> struct convolution {
    vector_rows<E> x, before;
    const E *w, *bias; /* bias NULL: none */
    documents docs;
    int64_t rows, channels;
    int taps;
    bool silu;
};

template <class E> static convolution<E> convolution_of(const struct ax_conv *a) {
    return {as_vectors<E>(&a->x),
            as_vectors<E>(&a->before),
            (const E *)a->w.data,
            (const E *)a->bias.data,
            {(const int32_t *)a->cu_q.data,
             a->before.data ? (const int32_t *)a->cu_k.data : nullptr, a->cu_q.shape[0] - 1},
            a->x.shape[0],
            a->x.shape[1],
            (int)a->w.shape[1],
            a->silu};
}

/* 8 channels of the input at row t, which is of the document or before it. */
template <class E>
__device__ static inline void load_input(const convolution<E> &v, const document &d, int64_t t,
                                         int64_t col, float (&x)[AX_NEIGHBORS]) {
    if (t >= d.first)
        v.x.load(t, col, x);
    else
        v.before.load((d.number + 1) * (v.taps - 1) - (d.first - t), col, x);
}

/* z of row t. */
template <class E>
__device__ static inline void sum_taps(const convolution<E> &v, const document &d, int64_t t,
                                       int64_t col, float (&z)[AX_NEIGHBORS]) {
    float x[AX_NEIGHBORS];
    for (int i = 0; i < AX_NEIGHBORS; i++)
        z[i] = v.bias && col + i < v.channels ? (float)v.bias[col + i] : 0;
    for (int k = 0; k < v.taps; k++) {
        const int64_t at = t - v.taps + 1 + k;
        if (at < d.first - d.past)
            continue;
        load_input(v, d, at, col, x);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            if (col + i < v.channels)
                z[i] = fmaf((float)v.w[(col + i) * v.taps + k], x[i], z[i]);
    }
}

__device__ static inline float sigmoid(float z) {
    return 1 / (1 + __expf(-z));
}
__device__ static inline float silu_slope(float z) {
    const float s = sigmoid(z);
    return s * (1 + z * (1 - s));
}

template <class E>
__global__ void __launch_bounds__(256) conv_forward_kernel(convolution<E> v, vector_rows<E> y) {
    const int64_t t = blockIdx.x, col = item_number() * AX_NEIGHBORS;
    if (col >= v.channels)
        return;
    const document d = document_at(v.docs, t);
    float z[AX_NEIGHBORS] = {};
    if (d.number >= 0)
        sum_taps(v, d, t, col, z);
    for (int i = 0; v.silu && i < AX_NEIGHBORS; i++)
        z[i] *= sigmoid(z[i]);
    y.store(t, col, z);
}

extern "C" enum ax_status ax_cuda_conv_forward(struct ax_queue *q, const struct ax_conv_forward *f,
                                               void *work) {
    (void)work;
    const int64_t rows = f->a.x.shape[0], cols = f->a.x.shape[1];
    const row_launch l = items_of(rows, vectors_in(cols));
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(f->a.x.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, conv_forward_kernel<E>, l.grid, l.threads, 0, convolution_of<E>(&f->a),
                         as_vectors<E>(&f->a.y));
    });
}

/* Gradient of z at row t. */
template <class E>
__device__ static inline void load_slope(const convolution<E> &v, const vector_rows<E> &dy,
                                         const document &d, int64_t t, int64_t col,
                                         float (&g)[AX_NEIGHBORS]) {
    dy.load(t, col, g);
    if (!v.silu)
        return;
    float z[AX_NEIGHBORS];
    sum_taps(v, d, t, col, z);
    for (int i = 0; i < AX_NEIGHBORS; i++)
        g[i] *= silu_slope(z[i]);
}

template <class E>
__global__ void __launch_bounds__(256)
    conv_dx_kernel(convolution<E> v, vector_rows<E> dy, vector_rows<E> dx) {
    const int64_t t = blockIdx.x, col = item_number() * AX_NEIGHBORS;
    if (col >= v.channels)
        return;
    const document d = document_at(v.docs, t);
    float sum[AX_NEIGHBORS] = {}, g[AX_NEIGHBORS];
    for (int k = 0; d.number >= 0 && k < v.taps; k++) {
        const int64_t later = t + v.taps - 1 - k;
        if (later >= d.end)
            continue;
        load_slope(v, dy, d, later, col, g);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            if (col + i < v.channels)
                sum[i] = fmaf((float)v.w[(col + i) * v.taps + k], g[i], sum[i]);
    }
    dx.store(t, col, sum);
}

/* Gradient of z at one channel of row t. */
template <class E>
__device__ static inline float slope_at(const convolution<E> &v, const vector_rows<E> &dy,
                                        const document &d, int64_t t, int64_t c) {
    const float g = (float)dy.data[t * dy.stride + c];
    float z = v.bias ? (float)v.bias[c] : 0;
    if (!v.silu)
        return g;
    for (int k = 0; k < v.taps; k++) {
        const int64_t at = t - v.taps + 1 + k;
        if (at >= d.first)
            z = fmaf((float)v.w[c * v.taps + k], (float)v.x.data[at * v.x.stride + c], z);
    }
    return g * silu_slope(z);
}

/* Terms of dw [C][K]. */
template <class E> struct taps_term {
    convolution<E> v;
    vector_rows<E> dy;
    __device__ void operator()(int64_t t, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        const document d = document_at(v.docs, t);
        for (int i = 0; i < AX_NEIGHBORS; i++) {
            const int64_t c = (col + i) / v.taps, at = t - v.taps + 1 + (col + i) % v.taps;
            out[i] = 0;
            if (d.number >= 0 && c < v.channels && at >= d.first)
                out[i] = slope_at(v, dy, d, t, c) * (float)v.x.data[at * v.x.stride + c];
        }
    }
};

template <class E> struct bias_term {
    convolution<E> v;
    vector_rows<E> dy;
    __device__ void operator()(int64_t t, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        const document d = document_at(v.docs, t);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            out[i] = 0;
        if (d.number >= 0)
            load_slope(v, dy, d, t, col, out);
    }
};

extern "C" size_t ax_cuda_conv_backward_work(const struct ax_conv_backward *b) {
    return column_sums_bytes(b->a.x.shape[0], b->a.w.shape[0] * b->a.w.shape[1]);
}

template <class E>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_conv_backward *b,
                                   void *work) {
    const convolution<E> v = convolution_of<E>(&b->a);
    const vector_rows<E> dy = as_vectors<E>(&b->dy), dx = as_vectors<E>(&b->dx);
    const row_launch l = items_of(v.rows, vectors_in(v.channels));
    AX_TRY(AX_LAUNCH(q, conv_dx_kernel<E>, l.grid, l.threads, 0, v, dy, dx));
    if (b->dw.data)
        AX_TRY(column_sums(q, taps_term<E>{v, dy}, v.rows, v.channels * v.taps, (float *)b->dw.data,
                           work));
    return b->dbias.data ? column_sums(q, bias_term<E>{v, dy}, v.rows, v.channels,
                                       (float *)b->dbias.data, work)
                         : AX_OK;
}

extern "C" enum ax_status ax_cuda_conv_backward(struct ax_queue *q,
                                                const struct ax_conv_backward *b, void *work) {
    if (b->a.x.shape[0] == 0 || b->a.x.shape[1] == 0)
        return AX_OK;
    return by_real(b->a.x.dtype, [&](auto *e) { return run_backward<AX_TYPE(e)>(q, b, work); });
}
