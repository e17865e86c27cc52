/* What adapters need besides products (kernels/ops.h): dropout, colscale, dora_norm, dora_scale,
 * merge_low_rank, merged_squares. Bytes moved: each operand once. */
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/vector.cuh"

struct dropping {
    uint64_t threshold; /* words below it are dropped */
    float scale;
    uint32_t tensor;
    int64_t first_row, first_col, cols;
    const int32_t *rows;
    bool accumulate;
    const struct ax_step_scalars *scalars;
};

/* A thread has the four numbers of a random block, as many of them as the row has. */
template <class E> __global__ void dropout_kernel(vector_rows<E> x, vector_rows<E> y, dropping d) {
    const int64_t t = blockIdx.x, row = d.first_row + (d.rows ? d.rows[t] : t);
    const int64_t number = row * d.cols + d.first_col;
    const uint64_t block = (uint64_t)(number / 4 + item_number());
    const int64_t col = (int64_t)(4 * block) - number;
    const struct ax_rng_key key = {d.scalars->seed, (uint32_t)d.scalars->step, d.tensor};
    if (col >= x.cols)
        return;
    const random_block words = random_block_of(key, block);
    for (int i = 0; i < 4; i++) {
        if (col + i < 0 || col + i >= x.cols)
            continue;
        const bool kept = words.word((uint64_t)i) >= d.threshold;
        E &to = y.data[t * y.stride + col + i];
        const float old = d.accumulate ? (float)to : 0;
        to = E(old + (kept ? (float)x.data[t * x.stride + col + i] * d.scale : 0));
    }
}

extern "C" enum ax_status ax_cuda_dropout(struct ax_queue *q, const struct ax_dropout *a,
                                          void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    const dropping d = {(uint64_t)ceil(a->p * 0x1p32),
                        (float)(1 / (1 - a->p)),
                        a->tensor,
                        a->first_row,
                        a->first_col,
                        a->cols,
                        (const int32_t *)a->rows.data,
                        a->accumulate,
                        a->scalars};
    const row_launch l = items_of(rows, cols / 4 + 2); /* blocks that have numbers of a row */
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, dropout_kernel<E>, l.grid, l.threads, 0, as_vectors<E>(&a->x),
                         as_vectors<E>(&a->y), d);
    });
}

/* ---- colscale; scale, bias and addend may have no data ---- */

template <class E, class B>
__global__ void colscale_kernel(vector_rows<E> x, vector_rows<float> scale, vector_rows<B> bias,
                                vector_rows<E> addend, vector_rows<E> y) {
    const int64_t t = blockIdx.x, col = item_number() * AX_NEIGHBORS;
    float v[AX_NEIGHBORS], other[AX_NEIGHBORS];
    if (col >= x.cols)
        return;
    x.load(t, col, v);
    if (scale.data) {
        scale.load(0, col, other);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            v[i] *= other[i];
    }
    if (bias.data) {
        bias.load(0, col, other);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            v[i] += other[i];
    }
    if (addend.data) {
        addend.load(t, col, other);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            v[i] += other[i];
    }
    y.store(t, col, v);
}

extern "C" enum ax_status ax_cuda_colscale(struct ax_queue *q, const struct ax_colscale *a,
                                           void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    const row_launch l = items_of(rows, vectors_in(cols));
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *p) {
        return by_real(a->bias.dtype, [&](auto *b) {
            typedef AX_TYPE(p) E;
            typedef AX_TYPE(b) B;
            return AX_LAUNCH(q, (colscale_kernel<E, B>), l.grid, l.threads, 0, as_vectors<E>(&a->x),
                             as_vector<float>(&a->scale), as_vector<B>(&a->bias),
                             as_vectors<E>(&a->addend), as_vectors<E>(&a->y));
        });
    });
}

/* ---- DoRA ---- */

/* A team per row of the weight. */
template <class E>
__global__ void __launch_bounds__(1024)
    dora_norm_kernel(vector_rows<E> weight, rows_of<E> b, rows_of<float> p, int64_t rank,
                     int64_t rows, float *out) {
    const int64_t row = team_row();
    if (row >= rows)
        return;
    float sum = 0, x[AX_NEIGHBORS];
    for (int64_t col = threadIdx.x * AX_NEIGHBORS; col < weight.cols;
         col += blockDim.x * AX_NEIGHBORS) {
        weight.load(row, col, x);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            sum += x[i] * x[i];
    }
    for (int64_t j = threadIdx.x; j < rank; j += blockDim.x)
        sum += (float)b.at(row, j) * p.at(row, j);
    sum = team_sum(sum);
    if (threadIdx.x == 0)
        out[row] = sum;
}

extern "C" enum ax_status ax_cuda_dora_norm(struct ax_queue *q, const struct ax_dora_norm *a,
                                            void *work) {
    (void)work;
    const int64_t rows = a->weight.shape[0];
    const dim3 team = team_of(a->weight.shape[1]);
    if (rows == 0)
        return AX_OK;
    return by_real(a->weight.dtype, [&](auto *w) {
        typedef AX_TYPE(w) E;
        return AX_LAUNCH(q, dora_norm_kernel<E>, team_blocks(rows, team), team, 0,
                         as_vectors<E>(&a->weight), as_rows<E>(&a->b), as_rows<float>(&a->p),
                         a->b.shape[1], rows, (float *)a->out.data);
    });
}

template <class E>
__global__ void dora_scale_kernel(const E *magnitude, const float *sumsq, float *scale,
                                  float *inverse, int64_t n) {
    const int64_t i = thread_number();
    if (i >= n)
        return;
    const double inv = sumsq[i] > 0 ? 1 / sqrt((double)sumsq[i]) : 0;
    inverse[i] = (float)inv;
    scale[i] = (float)((double)(float)magnitude[i] * inv);
}

extern "C" enum ax_status ax_cuda_dora_scale(struct ax_queue *q, const struct ax_dora_scale *a,
                                             void *work) {
    (void)work;
    const int64_t n = a->magnitude.shape[0];
    if (n == 0)
        return AX_OK;
    return by_real(a->magnitude.dtype, [&](auto *m) {
        typedef AX_TYPE(m) E;
        return AX_LAUNCH(q, dora_scale_kernel<E>, blocks_of(n, 128), 128, 0,
                         (const E *)a->magnitude.data, (const float *)a->sumsq.data,
                         (float *)a->scale.data, (float *)a->inverse.data, n);
    });
}

/* ---- merge_low_rank, merged_squares: in double, with the roundings and the order of a merged file ---- */

template <class E> __device__ static inline double as_double(E x) {
    return (double)(float)x;
}
__device__ static inline double as_double(double x) {
    return x;
}

/* weight + scale·b·a. */
template <class E> struct low_rank {
    rows_of<E> weight, b, a;
    int64_t cols, rank;
    double scale;
    __device__ double at(int64_t n, int64_t k) const {
        double v = as_double(weight.at(n, k));
        for (int64_t j = 0; j < rank; j++) {
            const double s = __dmul_rn(scale, as_double(b.at(n, j)));
            v = __dadd_rn(v, __dmul_rn(s, as_double(a.at(j, k))));
        }
        return v;
    }
};
template <class E, class Args> static low_rank<E> low_rank_of(const Args *a) {
    return {as_rows<E>(&a->weight), as_rows<E>(&a->b), as_rows<E>(&a->a),
            a->weight.shape[1],     a->b.shape[1],     a->scale};
}

__device__ static inline void store_rounded(float *to, double x) {
    *to = (float)x;
}
__device__ static inline void store_rounded(bf16 *to, double x) {
    *(uint16_t *)to = f64_to_bf16(x);
}
__device__ static inline void store_rounded(double *to, double x) {
    *to = x;
}

/* by_real with F64. */
template <class F> static enum ax_status by_any_real(enum ax_dtype dtype, F f) {
    return dtype == AX_F64 ? f((double *)nullptr) : by_real(dtype, f);
}

template <class E>
__global__ void merge_low_rank_kernel(low_rank<E> m, const E *magnitude, const double *squares,
                                      rows_of<E> out) {
    const int64_t n = blockIdx.x, k = item_number();
    if (k >= m.cols)
        return;
    double g = 1;
    if (squares)
        g = squares[n] > 0 ? as_double(magnitude[n]) / sqrt(squares[n]) : 0;
    store_rounded(&out.at(n, k), __dmul_rn(m.at(n, k), g));
}

extern "C" enum ax_status ax_cuda_merge_low_rank(struct ax_queue *q,
                                                 const struct ax_merge_low_rank *a, void *work) {
    (void)work;
    const int64_t rows = a->weight.shape[0], cols = a->weight.shape[1];
    const row_launch l = items_of(rows, cols);
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_any_real(a->weight.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, merge_low_rank_kernel<E>, l.grid, l.threads, 0, low_rank_of<E>(a),
                         (const E *)a->magnitude.data, (const double *)a->squares.data,
                         as_rows<E>(&a->out));
    });
}

#define SQUARES 256 /* columns, and threads */

/* One thread adds what all computed, in the order of k. */
template <class E>
__global__ void __launch_bounds__(SQUARES) merged_squares_kernel(low_rank<E> m, double *out) {
    AX_SHARED(double, squares, [SQUARES]);
    const int64_t n = blockIdx.x;
    double sum = 0;
    for (int64_t first = 0; first < m.cols; first += SQUARES) {
        const int64_t k = first + threadIdx.x, count = min((int64_t)SQUARES, m.cols - first);
        const double v = k < m.cols ? m.at(n, k) : 0;
        squares[threadIdx.x] = __dmul_rn(v, v);
        __syncthreads();
        for (int64_t i = 0; i < count && threadIdx.x == 0; i++)
            sum = __dadd_rn(sum, squares[i]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[n] = sum;
}

extern "C" enum ax_status ax_cuda_merged_squares(struct ax_queue *q,
                                                 const struct ax_merged_squares *a, void *work) {
    (void)work;
    const int64_t rows = a->weight.shape[0];
    if (rows == 0)
        return AX_OK;
    return by_any_real(a->weight.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, merged_squares_kernel<E>, (unsigned)rows, SQUARES, 0, low_rank_of<E>(a),
                         (double *)a->out.data);
    });
}
