/* quant_range, fake_quantize and its backward op: rounding to a format while training. Each reads its
 * numbers twice, the second time from cache if it can, or once with a range. */
#include "kernels/cuda/quant/quant.cuh"
#include "kernels/cuda/ranges.cuh"

/* ---- quant_range ---- */

#define TOGETHER 4 /* loads of a thread that are on their way */

/* A block per row, or with one range for all, every gridDim.x-th row, four neighbors at a time: adds its own to
 * `range`. */
template <class E>
__global__ void __launch_bounds__(QUANT_THREADS)
    range_of_rows(rows_of<const E> x, int64_t rows, int64_t cols, float *range, bool one) {
    const enum ax_dtype dtype = sizeof(E) == 2 ? AX_BF16 : AX_F32;
    float less = 0, more = 0;
    for (int64_t row = blockIdx.x; row < rows; row += TOGETHER * (int64_t)gridDim.x)
        for (int64_t c = 4 * (int64_t)threadIdx.x; c < cols; c += 4 * QUANT_THREADS) {
            raw_four raw[TOGETHER] = {};
            AX_UNROLL
            for (int k = 0; k < TOGETHER; k++)
                if (row + k * (int64_t)gridDim.x < rows)
                    raw[k] = load_raw(dtype, &x.at(row + k * (int64_t)gridDim.x, 0), c, cols);
            AX_UNROLL
            for (int k = 0; k < 4 * TOGETHER; k++) {
                const float v = values_of(dtype, raw[k / 4]).x[k % 4];
                less = raise(less, -v);
                more = raise(more, v);
            }
        }
    less = block_reduce<max_op>(less, 0.0f);
    more = block_reduce<max_op>(more, 0.0f);
    if (threadIdx.x == 0) {
        raise_to(range + (one ? 0 : 2 * blockIdx.x), less);
        raise_to(range + (one ? 0 : 2 * blockIdx.x) + 1, more);
    }
}

#define BLOCKS 8 /* per processor, where they share a range */

/* A block's columns and rows. A thread looks at four neighbors, and its warp at every eighth row. */
#define STRIP      128
#define STRIP_ROWS 256
#define WARPS      (QUANT_THREADS / 32)

/* Warps of a block raise `range` together: atomics are slower than reading. */
template <class E>
__global__ void __launch_bounds__(QUANT_THREADS)
    range_of_columns(rows_of<const E> x, int64_t rows, int64_t cols, float *range) {
    AX_SHARED(float, seen, [WARPS][2 * STRIP]);
    const enum ax_dtype dtype = sizeof(E) == 2 ? AX_BF16 : AX_F32;
    const int64_t per = (cols + STRIP - 1) / STRIP, strip = blockIdx.x % per * STRIP;
    const int64_t end = min(rows, (int64_t)(blockIdx.x / per + 1) * STRIP_ROWS);
    const int warp = threadIdx.x / 32, right = 4 * (threadIdx.x % 32);
    float less[4] = {}, more[4] = {};
    for (int64_t r = (int64_t)(blockIdx.x / per) * STRIP_ROWS + warp; r < end;
         r += TOGETHER * WARPS) {
        raw_four raw[TOGETHER] = {};
        AX_UNROLL
        for (int k = 0; k < TOGETHER; k++)
            if (r + k * WARPS < end)
                raw[k] = load_raw(dtype, &x.at(r + k * WARPS, 0), strip + right, cols);
        AX_UNROLL
        for (int k = 0; k < 4 * TOGETHER; k++) {
            const float v = values_of(dtype, raw[k / 4]).x[k % 4];
            less[k % 4] = raise(less[k % 4], -v);
            more[k % 4] = raise(more[k % 4], v);
        }
    }
    AX_UNROLL
    for (int k = 0; k < 4; k++) {
        seen[warp][2 * (right + k)] = less[k];
        seen[warp][2 * (right + k) + 1] = more[k];
    }
    __syncthreads();
    float most = 0;
    for (int i = 0; i < WARPS; i++)
        most = raise(most, seen[i][threadIdx.x]);
    if (strip + threadIdx.x / 2 < cols)
        raise_to(range + 2 * strip + threadIdx.x, most);
}

extern "C" enum ax_status ax_cuda_quant_range(struct ax_queue *q, const struct ax_quant_range *a,
                                              void *work) {
    (void)work;
    const int64_t rows = a->x.shape[0], cols = a->x.shape[1];
    struct ax_fill clear = {};
    clear.dst = a->range;
    AX_TRY(ax_cuda_fill(q, &clear, NULL));
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        float *range = (float *)a->range.data;
        if (a->columns)
            return AX_LAUNCH(q, range_of_columns<E>,
                             blocks_of(rows, STRIP_ROWS) * blocks_of(cols, STRIP), QUANT_THREADS, 0,
                             as_rows<const E>(&a->x), rows, cols, range);
        const bool one = a->range.shape[0] == 1;
        const int64_t blocks = one ? min(rows, (int64_t)BLOCKS * ax_cuda_processors(q)) : rows;
        return AX_LAUNCH(q, range_of_rows<E>, (unsigned)blocks, QUANT_THREADS, 0,
                         as_rows<const E>(&a->x), rows, cols, range, one);
    });
}

/* ---- fake_quantize ---- */

template <class E>
__global__ void __launch_bounds__(QUANT_THREADS) fake_kernel(blocked<E> a, rows_of<E> y) {
    for_four(a, 4 * thread_number(), [&](int64_t i, const ax_quant_block &b, float q) {
        y.at(i / a.cols, i % a.cols) = E(ax_quant_value(a.kind, ax_quant_clamped(a.kind, q), &b));
    });
}

template <class E> struct fake_eight {
    rows_of<E> y;
    __device__ void operator()(const blocked<E> &a, int64_t i, int64_t b, const extremes &own,
                               float (&x)[AX_NEIGHBORS]) const {
        const ax_quant_block block = block_of(a, b, own);
        with_kind(a.kind, [&](auto kind) {
            AX_UNROLL
            for (int k = 0; k < AX_NEIGHBORS; k++)
                x[k] = ax_quant_fake(kind, x[k], &block);
        });
        store_wide(y.data + i, x);
    }
};

/* Each column is a block, whose range is given. */
template <class E>
__global__ void __launch_bounds__(QUANT_THREADS)
    fake_columns(rows_of<const E> x, rows_of<E> y, extent e, enum ax_quant kind,
                 const float *range) {
    const int64_t i = thread_number(), c = i % e.cols;
    if (i >= e.n)
        return;
    const ax_quant_block b = ax_quant_block_of(kind, -range[2 * c], range[2 * c + 1], 0);
    y.at(i / e.cols, c) = E(ax_quant_fake(kind, (float)x.at(i / e.cols, c), &b));
}

extern "C" size_t ax_cuda_fake_quantize_work(const struct ax_fake_quantize *a) {
    return a->columns ? 0 : quant_bytes(ax_tensor_numel(&a->x), a->block);
}

template <class E>
static enum ax_status run_fake(struct ax_queue *q, const struct ax_fake_quantize *a, void *work) {
    blocked<E> x = blocked_of<E>(&a->x, &a->range, a->block, a->kind);
    if (a->columns)
        return AX_LAUNCH(q, fake_columns<E>, blocks_of(x.n, QUANT_THREADS), QUANT_THREADS, 0, x.x,
                         as_rows<E>(&a->y), extent_of(&a->x), a->kind, x.range);
    const rows_of<E> y = as_rows<E>(&a->y);
    if (has_eights(x) && y.stride == x.cols && (uintptr_t)y.data % 16 == 0)
        return run_eights(q, x, fake_eight<E>{y});
    AX_TRY(find_extremes(q, &x, work));
    return AX_LAUNCH(q, fake_kernel<E>, blocks_of(x.n, 4 * QUANT_THREADS), QUANT_THREADS, 0, x, y);
}

extern "C" enum ax_status ax_cuda_fake_quantize(struct ax_queue *q,
                                                const struct ax_fake_quantize *a, void *work) {
    if (ax_tensor_numel(&a->x) == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *e) { return run_fake<AX_TYPE(e)>(q, a, work); });
}

/* ---- its gradient ---- */

template <class E, class D>
__global__ void __launch_bounds__(QUANT_THREADS)
    fake_backward(blocked<E> a, rows_of<const D> dy, rows_of<D> dx, bool accumulate) {
    for_four(a, 4 * thread_number(), [&](int64_t i, const ax_quant_block &, float q) {
        const int64_t row = i / a.cols, col = i % a.cols;
        const bool kept = !ax_quant_is_integer(a.kind) || q == ax_quant_clamped(a.kind, q);
        const float before = accumulate ? (float)dx.at(row, col) : 0;
        dx.at(row, col) = D(before + (kept ? (float)dy.at(row, col) : 0));
    });
}

/* ax_quant_asym_gradient, a warp per block: sums in double, each lane's in order, then the lanes'. */
template <class E, class D>
__global__ void __launch_bounds__(QUANT_THREADS)
    asym_backward(blocked<E> a, rows_of<const D> dy, rows_of<D> dx, bool accumulate) {
    const int64_t block = thread_number() / 32, first = block * a.block;
    const int lane = threadIdx.x % 32;
    if (first >= a.n)
        return;
    const extremes own = extremes_of(a, block);
    const ax_quant_block b = block_at(a, block);
    const int64_t row = first / a.cols, col = first % a.cols; /* blocks end in their row */
    double d_scale = 0, d_low = 0;
    int lows = 0, highs = 0;
    for (int64_t i = lane; i < a.block; i += 32) {
        const float x = a.at(first + i), q = ax_quant_rounded(a.kind, x, &b);
        const bool kept = ax_quant_kept(a.kind, x, &b);
        const double u = kept ? (double)((x - b.low) / b.scale) : 0;
        const double d = (double)(float)dy.at(row, col + i);
        d_scale += d * ((double)ax_quant_clamped(a.kind, q) - u);
        d_low += kept ? 0 : d;
        lows += x == own.low;
        highs += x == own.high;
    }
    d_scale = warp_reduce<sum_op>(d_scale);
    d_low = warp_reduce<sum_op>(d_low);
    lows = warp_reduce<sum_op>(lows);
    highs = warp_reduce<sum_op>(highs);
    d_scale = own.high - own.low >= 1e-6f ? d_scale / 15 : 0;
    for (int64_t i = lane; i < a.block; i += 32) {
        const float x = a.at(first + i);
        double d = ax_quant_kept(a.kind, x, &b) ? (double)(float)dy.at(row, col + i) : 0;
        if (x == own.low)
            d += (d_low - d_scale) / lows;
        if (x == own.high)
            d += d_scale / highs;
        D &to = dx.at(row, col + i);
        to = D((float)((accumulate ? (double)(float)to : 0) + d));
    }
}

extern "C" size_t ax_cuda_fake_quantize_backward_work(const struct ax_fake_quantize_backward *a) {
    return quant_bytes(ax_tensor_numel(&a->x), a->block);
}

template <class E, class D>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_fake_quantize_backward *a,
                                   void *work) {
    blocked<E> x = blocked_of<E>(&a->x, &a->range, a->block, a->kind);
    AX_TRY(find_extremes(q, &x, work));
    if (a->kind == AX_QUANT_INT4_ASYM)
        return AX_LAUNCH(q, (asym_backward<E, D>),
                         blocks_of(quant_blocks(x.n, x.block), QUANT_THREADS / 32), QUANT_THREADS,
                         0, x, as_rows<const D>(&a->dy), as_rows<D>(&a->dx), a->accumulate);
    return AX_LAUNCH(q, (fake_backward<E, D>), blocks_of(x.n, 4 * QUANT_THREADS), QUANT_THREADS, 0,
                     x, as_rows<const D>(&a->dy), as_rows<D>(&a->dx), a->accumulate);
}

extern "C" enum ax_status ax_cuda_fake_quantize_backward(struct ax_queue *q,
                                                         const struct ax_fake_quantize_backward *a,
                                                         void *work) {
    if (ax_tensor_numel(&a->x) == 0)
        return AX_OK;
    return by_real(a->x.dtype, [&](auto *e) {
        return by_real(a->dy.dtype,
                       [&](auto *d) { return run_backward<AX_TYPE(e), AX_TYPE(d)>(q, a, work); });
    });
}
