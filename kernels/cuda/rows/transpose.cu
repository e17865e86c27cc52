/* transpose: a block has a square, which it reads and writes along rows, through shared memory. Bytes moved: each
 * operand once. */
#include "kernels/cuda/numbers.cuh"

#define SIDE 32
#define ROWS 8 /* of the square, that a block has threads for */

template <class E> struct matrix {
    E *data;
    int64_t stride, rows, cols;
};
template <class E> static inline matrix<E> as_matrix(const struct ax_tensor *t) {
    return {(E *)t->data, t->row_stride, t->shape[0], t->shape[1]};
}

template <class D, class S>
__global__ void __launch_bounds__(SIDE *ROWS)
    transpose_kernel(matrix<D> dst, matrix<S> src, int64_t across, float alpha, bool accumulate) {
    AX_SHARED(float, square, [SIDE][SIDE + 1]);
    const int64_t row = blockIdx.x / across * SIDE, col = blockIdx.x % across * SIDE;
    for (int i = threadIdx.y; i < SIDE; i += ROWS)
        if (row + i < src.rows && col + threadIdx.x < src.cols)
            square[i][threadIdx.x] = (float)src.data[(row + i) * src.stride + col + threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.y; i < SIDE; i += ROWS)
        if (col + i < dst.rows && row + threadIdx.x < dst.cols) {
            D *to = dst.data + (col + i) * dst.stride + row + threadIdx.x;
            const float x = square[threadIdx.x][i];
            *to = D(accumulate ? alpha * x + (float)*to : alpha * x);
        }
}

extern "C" enum ax_status ax_cuda_transpose(struct ax_queue *q, const struct ax_transpose *a,
                                            void *work) {
    const int64_t rows = a->src.shape[0], cols = a->src.shape[1];
    const int64_t down = (rows + SIDE - 1) / SIDE, across = (cols + SIDE - 1) / SIDE;
    (void)work;
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(a->dst.dtype, [&](auto *to) {
        return by_real(a->src.dtype, [&](auto *from) {
            typedef AX_TYPE(to) D;
            typedef AX_TYPE(from) S;
            return AX_LAUNCH(q, (transpose_kernel<D, S>), (unsigned)(down * across),
                             dim3(SIDE, ROWS), 0, as_matrix<D>(&a->dst), as_matrix<S>(&a->src),
                             across, (float)a->alpha, a->accumulate);
        });
    });
}
