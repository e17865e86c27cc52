/* Short causal convolutions (kernels/mixer_ops.h). A thread goes down a piece of the rows with four channels, and the
 * taps' rows in registers: each operand is moved once, but for the rows beside a piece. Sums of pieces are added in
 * a fixed order. */
#include "kernels/cuda/four.cuh"
#include "kernels/cuda/rows/columns.cuh"

struct documents {
    const int32_t *cu, *cu_k; /* cu_k NULL: no tokens before */
    int64_t n;
};
/* A row's document; number −1: none. past: tokens of its sequence before `first`, of which `before` has the last. */
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
    return 1 / (1 + expf(-z));
}
__device__ static inline float silu_slope(float z) {
    const float s = sigmoid(z);
    return s * (1 + z * (1 - s));
}

/* ---- going down the rows ---- */

#define FOUR        4 /* channels of a thread */
#define BATCH       4 /* rows that are read before the first of them is used */
#define THREADS     128
#define MOST_PIECES 256 /* a thread goes down one, with the rows beside it in registers */

static dim3 grid_of(const row_pieces &pieces, int64_t channels) {
    return dim3((unsigned)pieces.count, blocks_of(channels, FOUR * THREADS));
}

/* Inputs of the last W rows of a thread's channels, what is known of dx there, and the taps that these rows meet at
 * the last one; sums of dw and dbias so far. */
template <int W> struct window {
    float w[W][FOUR], x[W][FOUR], dx[W][FOUR], dw[W][FOUR];
    float bias[FOUR], dbias[FOUR];
};

template <class E, int W>
__device__ static inline void load_taps(window<W> &s, const convolution<E> &v, int64_t col) {
    AX_UNROLL
    for (int c = 0; c < FOUR; c++) {
        const bool there = col + c < v.channels;
        s.bias[c] = there && v.bias ? (float)v.bias[col + c] : 0;
        AX_UNROLL
        for (int i = 0; i < W; i++) {
            const int tap = i - W + v.taps;
            s.w[i][c] = there && tap >= 0 ? (float)v.w[(col + c) * v.taps + tap] : 0;
        }
    }
}

/* A row of x becomes the last one. */
template <int W> __device__ static inline void move_down(window<W> &s, const four &x) {
    AX_UNROLL
    for (int c = 0; c < FOUR; c++) {
        AX_UNROLL
        for (int i = 0; i + 1 < W; i++) {
            s.x[i][c] = s.x[i + 1][c];
            s.dx[i][c] = s.dx[i + 1][c];
        }
        s.x[W - 1][c] = x.x[c];
        s.dx[W - 1][c] = 0;
    }
}

/* z of the last row, of whose document the last `known` rows are. */
template <int W> __device__ static inline float sum_window(const window<W> &s, int c, int known) {
    float z = s.bias[c];
    AX_UNROLL
    for (int i = 0; i < W; i++)
        if (i >= W - known)
            z = fmaf(s.w[i][c], s.x[i][c], z);
    return z;
}

/* Rows of the last row's document in the window; 0: it has none. */
template <class E>
__device__ static inline int known_rows(const convolution<E> &v, const document &d, int64_t t) {
    return d.number < 0 ? 0 : (int)min(t - d.first + 1, (int64_t)v.taps);
}

/* ---- forward ---- */

/* Forward without tokens before the documents; a block per piece and 512 channels. */
template <class E, int W>
__global__ void __launch_bounds__(THREADS)
    conv_forward_kernel(convolution<E> v, E *y, int64_t stride, int64_t each) {
    const int64_t first = blockIdx.x * each, end = min(v.rows, first + each);
    const int64_t col = FOUR * ((int64_t)blockIdx.y * THREADS + threadIdx.x), n = v.channels - col;
    if (n <= 0)
        return;
    window<W> s = {};
    load_taps(s, v, col);
    document d = {-1, 0, 0, 0};
    for (int64_t row = max(first - W + 1, (int64_t)0); row < end; row += BATCH) {
        four x[BATCH];
        AX_UNROLL
        for (int j = 0; j < BATCH; j++)
            x[j] = load_four(v.x.data + min(row + j, v.rows - 1) * v.x.stride + col, n);
        AX_UNROLL
        for (int j = 0; j < BATCH; j++) {
            const int64_t t = row + j;
            if (d.number < 0 || t >= d.end)
                d = document_at(v.docs, t);
            move_down(s, x[j]);
            if (t < first || t >= end)
                continue;
            const int known = known_rows(v, d, t);
            four z = {};
            AX_UNROLL
            for (int c = 0; c < FOUR && known > 0; c++) {
                z.x[c] = sum_window(s, c, known);
                z.x[c] *= v.silu ? sigmoid(z.x[c]) : 1;
            }
            store_four(y + t * stride + col, n, z);
        }
    }
}

/* Forward with tokens before them: a thread per 8 channels of a row. */
template <class E>
__global__ void __launch_bounds__(256) conv_continue_kernel(convolution<E> v, vector_rows<E> y) {
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
    if (f->a.x.shape[0] == 0 || f->a.x.shape[1] == 0)
        return AX_OK;
    return by_real(f->a.x.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        const convolution<E> v = convolution_of<E>(&f->a);
        const row_launch l = items_of(v.rows, vectors_in(v.channels));
        if (v.before.data)
            return AX_LAUNCH(q, conv_continue_kernel<E>, l.grid, l.threads, 0, v,
                             as_vectors<E>(&f->a.y));
        E *y = (E *)f->a.y.data;
        const row_pieces pieces = row_pieces_of(v.rows, MOST_PIECES);
        const dim3 grid = grid_of(pieces, v.channels);
        return v.taps <= 4 ? AX_LAUNCH(q, (conv_forward_kernel<E, 4>), grid, THREADS, 0, v, y,
                                       f->a.y.row_stride, pieces.rows)
                           : AX_LAUNCH(q, (conv_forward_kernel<E, AX_CONV_TAPS>), grid, THREADS, 0,
                                       v, y, f->a.y.row_stride, pieces.rows);
    });
}

/* ---- backward ---- */

template <class E> struct gradients {
    const E *dy;
    E *dx;
    int64_t dy_stride, dx_stride;
    float *dw, *dbias; /* sums of pieces, [pieces][C][K] and [pieces][C]; NULL: frozen */
};

/* The last row's gradient of z, and what dx and, if it `counts`, dw and dbias get of it. The last `known` rows are of
 * its document. */
template <int W>
__device__ static inline void add_row(window<W> &s, const four &dy, int known, bool silu,
                                      bool counts) {
    AX_UNROLL
    for (int c = 0; c < FOUR; c++) {
        const float g = silu ? dy.x[c] * silu_slope(sum_window(s, c, known)) : dy.x[c];
        AX_UNROLL
        for (int i = 0; i < W; i++)
            if (i >= W - known) {
                s.dx[i][c] = fmaf(s.w[i][c], g, s.dx[i][c]);
                s.dw[i][c] = counts ? fmaf(g, s.x[i][c], s.dw[i][c]) : s.dw[i][c];
            }
        s.dbias[c] += counts ? g : 0;
    }
}

template <class E, int W>
__device__ static inline void store_sums(const window<W> &s, const convolution<E> &v,
                                         const gradients<E> &out, int64_t col) {
    AX_UNROLL
    for (int c = 0; c < FOUR; c++) {
        const int64_t at = blockIdx.x * v.channels + col + c;
        if (col + c >= v.channels)
            break;
        if (out.dbias)
            out.dbias[at] = s.dbias[c];
        AX_UNROLL
        for (int i = 0; i < W; i++)
            if (out.dw && i >= W - v.taps)
                out.dw[at * v.taps + i - W + v.taps] = s.dw[i][c];
    }
}

/* A block per piece and 512 channels. */
template <class E, int W>
__global__ void __launch_bounds__(THREADS)
    conv_backward_kernel(convolution<E> v, gradients<E> out, int64_t each) {
    const int64_t first = blockIdx.x * each, end = min(v.rows, first + each);
    const int64_t col = FOUR * ((int64_t)blockIdx.y * THREADS + threadIdx.x), n = v.channels - col;
    if (n <= 0)
        return;
    window<W> s = {};
    load_taps(s, v, col);
    document d = {-1, 0, 0, 0};
    for (int64_t row = max(first - W + 1, (int64_t)0); row < end + W - 1; row += BATCH) {
        four x[BATCH], dy[BATCH];
        AX_UNROLL
        for (int j = 0; j < BATCH; j++) {
            const int64_t t = min(row + j, v.rows - 1);
            x[j] = load_four(v.x.data + t * v.x.stride + col, n);
            dy[j] = load_four(out.dy + t * out.dy_stride + col, n);
        }
        AX_UNROLL
        for (int j = 0; j < BATCH; j++) {
            const int64_t t = row + j, done = t - W + 1;
            if (d.number < 0 || t >= d.end)
                d = document_at(v.docs, t);
            move_down(s, x[j]);
            if (t >= first && d.number >= 0)
                add_row(s, dy[j], known_rows(v, d, t), v.silu, t < end);
            if (done >= first && done < end)
                store_four(out.dx + done * out.dx_stride + col, n,
                           four{{s.dx[0][0], s.dx[0][1], s.dx[0][2], s.dx[0][3]}});
        }
    }
    store_sums(s, v, out, col);
}

extern "C" size_t ax_cuda_conv_backward_work(const struct ax_conv_backward *b) {
    const int64_t sums = b->a.w.shape[0] * (b->a.w.shape[1] + 1);
    return (size_t)(row_pieces_of(b->a.x.shape[0], MOST_PIECES).count * sums) * sizeof(float);
}

template <class E>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_conv_backward *b,
                                   float *work) {
    const convolution<E> v = convolution_of<E>(&b->a);
    const row_pieces pieces = row_pieces_of(v.rows, MOST_PIECES);
    const int64_t taps = v.channels * v.taps;
    const gradients<E> out = {(const E *)b->dy.data,
                              (E *)b->dx.data,
                              b->dy.row_stride,
                              b->dx.row_stride,
                              b->dw.data ? work : nullptr,
                              b->dbias.data ? work + pieces.count * taps : nullptr};
    const dim3 grid = grid_of(pieces, v.channels);
    AX_TRY(v.taps <= 4
               ? AX_LAUNCH(q, (conv_backward_kernel<E, 4>), grid, THREADS, 0, v, out, pieces.rows)
               : AX_LAUNCH(q, (conv_backward_kernel<E, AX_CONV_TAPS>), grid, THREADS, 0, v, out,
                           pieces.rows));
    if (out.dw)
        AX_TRY(ax_cuda_add_pieces(q, (float *)b->dw.data, out.dw, pieces.count, taps));
    return out.dbias
               ? ax_cuda_add_pieces(q, (float *)b->dbias.data, out.dbias, pieces.count, v.channels)
               : AX_OK;
}

extern "C" enum ax_status ax_cuda_conv_backward(struct ax_queue *q,
                                                const struct ax_conv_backward *b, void *work) {
    if (b->a.x.shape[0] == 0 || b->a.x.shape[1] == 0)
        return AX_OK;
    return by_real(b->a.x.dtype,
                   [&](auto *e) { return run_backward<AX_TYPE(e)>(q, b, (float *)work); });
}
