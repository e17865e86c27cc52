/* Sums over all elements of arrays, in double: one per piece of them, which another block adds. */
#ifndef AX_KERNELS_CUDA_TOTALS_CUH
#define AX_KERNELS_CUDA_TOTALS_CUH

#include "kernels/cuda/kernel.cuh"

#define TOTAL_THREADS 256
#define TOTAL_PIECE   (4 * TOTAL_THREADS * 8)

/* term(i, n): of elements i … i + 3 of n; sums[b] = Σ of piece b. */
template <class Term>
__global__ void __launch_bounds__(TOTAL_THREADS) piece_sums(Term term, int64_t n, double *sums) {
    const int64_t first = blockIdx.x * (int64_t)TOTAL_PIECE, end = min(n, first + TOTAL_PIECE);
    double sum = 0;
    for (int64_t i = first + 4 * threadIdx.x; i < end; i += 4 * TOTAL_THREADS)
        sum += term(i, n);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        sums[blockIdx.x] = sum;
}

/* *total = Σ of n numbers; one block. */
template <class T>
__global__ void __launch_bounds__(TOTAL_THREADS) total_of(const T *x, int64_t n, double *total) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += TOTAL_THREADS)
        sum += (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *total = sum;
}

static inline unsigned total_pieces(int64_t n) {
    return blocks_of(n, TOTAL_PIECE);
}

/* *total = Σ term over n > 0 elements; sums: total_pieces(n). */
template <class Term>
static inline enum ax_status run_total(struct ax_queue *q, const Term &term, int64_t n,
                                       double *sums, double *total) {
    AX_TRY(AX_LAUNCH(q, piece_sums<Term>, total_pieces(n), TOTAL_THREADS, 0, term, n, sums));
    return AX_LAUNCH(q, total_of<double>, 1, TOTAL_THREADS, 0, (const double *)sums,
                     (int64_t)total_pieces(n), total);
}

#endif
