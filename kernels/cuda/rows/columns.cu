/* colsum, coldot, grouped_colsum: out[n] += Σ_t of x[t][n], a[t][n]·b[t][n], or x[t][n] of a group's rows.
 * Bytes moved: each operand once, and the pieces' sums (columns.cuh). */
#include "kernels/cuda/rows/columns.cuh"

#define ADDED 32 /* pieces at a time */

__global__ void __launch_bounds__(32 * ADDED)
    add_pieces_kernel(float *out, const float *sums, int64_t pieces, int64_t n) {
    AX_SHARED(float, parts, [ADDED][33]);
    const int64_t first = (int64_t)blockIdx.x * 32;
    float sum = 0;
    for (int64_t p = threadIdx.y; p < pieces && first + threadIdx.x < n; p += ADDED)
        sum += sums[p * n + first + threadIdx.x];
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_reduce<sum_op>(parts[threadIdx.x][threadIdx.y]);
    if (threadIdx.x == 0 && first + threadIdx.y < n)
        out[first + threadIdx.y] += sum;
}

enum ax_status ax_cuda_add_pieces(struct ax_queue *q, float *out, const float *sums, int64_t pieces,
                                  int64_t n) {
    return AX_LAUNCH(q, add_pieces_kernel, blocks_of(n, 32), dim3(32, ADDED), 0, out, sums, pieces,
                     n);
}

template <class E> struct value_term {
    vector_rows<E> x;
    __device__ void operator()(int64_t row, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        x.load(row, col, out);
    }
};

extern "C" size_t ax_cuda_colsum_work(const struct ax_colsum *a) {
    return column_sums_bytes(a->x.shape[0], a->x.shape[1]);
}

extern "C" enum ax_status ax_cuda_colsum(struct ax_queue *q, const struct ax_colsum *a,
                                         void *work) {
    return by_real(a->x.dtype, [&](auto *x) {
        typedef AX_TYPE(x) E;
        return column_sums(q, value_term<E>{as_vectors<E>(&a->x)}, a->x.shape[0], a->x.shape[1],
                           (float *)a->out.data, work);
    });
}

template <class E> struct product_term {
    vector_rows<E> a, b;
    __device__ void operator()(int64_t row, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        float x[AX_NEIGHBORS];
        a.load(row, col, out);
        b.load(row, col, x);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            out[i] *= x[i];
    }
};

extern "C" size_t ax_cuda_coldot_work(const struct ax_coldot *a) {
    return column_sums_bytes(a->a.shape[0], a->a.shape[1]);
}

extern "C" enum ax_status ax_cuda_coldot(struct ax_queue *q, const struct ax_coldot *a,
                                         void *work) {
    return by_real(a->a.dtype, [&](auto *x) {
        typedef AX_TYPE(x) E;
        return column_sums(q, product_term<E>{as_vectors<E>(&a->a), as_vectors<E>(&a->b)},
                           a->a.shape[0], a->a.shape[1], (float *)a->out.data, work);
    });
}

/* Blocks in x count groups. */
template <class E>
__global__ void __launch_bounds__(32 * COLUMN_ROWS)
    grouped_colsum_kernel(value_term<E> term, const int32_t *offsets, float *out) {
    const int64_t col = (int64_t)blockIdx.y * COLUMN_COLS, cols = term.x.cols;
    const int32_t first = offsets[blockIdx.x], end = offsets[blockIdx.x + 1];
    const float total = column_sum(term, first, end, col, cols);
    const int64_t mine = col + threadIdx.y * 32 + threadIdx.x;
    if (mine < cols)
        out[blockIdx.x * cols + mine] += total;
}

extern "C" enum ax_status ax_cuda_grouped_colsum(struct ax_queue *q,
                                                 const struct ax_grouped_colsum *a, void *work) {
    (void)work;
    const int64_t groups = a->offsets.shape[0] - 1, cols = a->x.shape[1];
    if (groups < 1 || cols == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *x) {
        typedef AX_TYPE(x) E;
        return AX_LAUNCH(q, (grouped_colsum_kernel<E>),
                         dim3((unsigned)groups, blocks_of(cols, COLUMN_COLS)),
                         dim3(32, COLUMN_ROWS), 0, value_term<E>{as_vectors<E>(&a->x)},
                         (const int32_t *)a->offsets.data, (float *)a->out.data);
    });
}
