/* Sums over rows, of column sums and gradients of norm weights: pieces of rows are summed, then the
 * pieces in a fixed order. Pieces depend on the number of rows alone. */
#ifndef AX_KERNELS_CUDA_COLUMNS_CUH
#define AX_KERNELS_CUDA_COLUMNS_CUH

#include "kernels/cuda/vector.cuh"

/* out[n] += Σ_p sums[p][n], of `pieces` rows of sums. */
enum ax_status ax_cuda_add_pieces(struct ax_queue *q, float *out, const float *sums, int64_t pieces,
                                  int64_t n);

#define COLUMN_ROWS 8 /* rows that a block adds at a time */
#define COLUMN_COLS (32 * AX_NEIGHBORS)

struct row_pieces {
    int64_t rows, count; /* rows per piece; number of pieces */
};
/* At most `most_pieces` pieces, of at least 64 rows each. */
static inline row_pieces row_pieces_of(int64_t rows, int64_t most_pieces = 64) {
    const int64_t most = (rows + most_pieces - 1) / most_pieces, each = most < 64 ? 64 : most;
    return {each, (rows + each - 1) / each};
}

/* Workspace of ax_cuda_column_sums. */
static inline size_t column_sums_bytes(int64_t rows, int64_t cols) {
    return (size_t)(row_pieces_of(rows).count * cols) * sizeof(float);
}

/* Sums of rows [first, end) of `term`, for COLUMN_COLS columns of which this thread gets the sum of one: the
 * columns' first one is `col`. term(row, col, x) reads 8 neighbors' terms. All threads of a block of 32 ×
 * COLUMN_ROWS call. */
template <class Term>
__device__ static inline float column_sum(const Term &term, int64_t first, int64_t end, int64_t col,
                                          int64_t cols) {
    AX_SHARED(float, parts, [COLUMN_ROWS][COLUMN_COLS]);
    const int64_t mine = col + threadIdx.x * AX_NEIGHBORS;
    float sum[AX_NEIGHBORS] = {}, x[AX_NEIGHBORS];
    for (int64_t row = first + threadIdx.y; row < end && mine < cols; row += COLUMN_ROWS) {
        term(row, mine, x);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            sum[i] += x[i];
    }
    for (int i = 0; i < AX_NEIGHBORS; i++)
        parts[threadIdx.y][threadIdx.x * AX_NEIGHBORS + i] = sum[i];
    __syncthreads();
    float total = 0;
    for (int y = 0; y < COLUMN_ROWS; y++)
        total += parts[y][threadIdx.y * 32 + threadIdx.x];
    return total;
}

template <class Term>
__global__ void __launch_bounds__(32 * COLUMN_ROWS)
    column_pieces(Term term, int64_t rows, int64_t cols, int64_t each, float *sums) {
    const int64_t first = blockIdx.x * each, end = min(rows, first + each);
    const int64_t col = (int64_t)blockIdx.y * COLUMN_COLS;
    const float total = column_sum(term, first, end, col, cols);
    const int64_t mine = col + threadIdx.y * 32 + threadIdx.x;
    if (mine < cols)
        sums[blockIdx.x * cols + mine] = total;
}

/* out[n] += Σ over the rows of `term`. */
template <class Term>
static inline enum ax_status column_sums(struct ax_queue *q, const Term &term, int64_t rows,
                                         int64_t cols, float *out, void *work) {
    const row_pieces pieces = row_pieces_of(rows);
    if (rows == 0 || cols == 0)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, (column_pieces<Term>),
                     dim3((unsigned)pieces.count, blocks_of(cols, COLUMN_COLS)),
                     dim3(32, COLUMN_ROWS), 0, term, rows, cols, pieces.rows, (float *)work));
    return ax_cuda_add_pieces(q, out, (const float *)work, pieces.count, cols);
}

#endif
