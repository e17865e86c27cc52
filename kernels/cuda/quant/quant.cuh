/* What the kernels of number formats share: the extremes of blocks, and the block of an element. The
 * arithmetic is kernels/quant/quant_block.h's, compiled without fusing products and sums. */
#ifndef AX_KERNELS_CUDA_QUANT_CUH
#define AX_KERNELS_CUDA_QUANT_CUH

#include "kernels/cuda/choose.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/vector.cuh"

extern "C" {
#include "kernels/quant/quant_block.h"
#include "kernels/quant/scheme.h"
}

#define QUANT_THREADS 256
#define QUANT_RUN     1024 /* elements of a block that a warp looks at */

/* Numbers [rows][cols] in blocks, counted without gaps, that may end within a row. */
template <class E> struct blocked {
    rows_of<const E> x;
    int64_t n, cols, block;
    enum ax_quant kind;
    const float *range; /* [range_rows][2], or NULL */
    int64_t range_rows;
    bool outer;           /* range is of the outer scale, not of the blocks */
    const float *offset;  /* offset of each block, subtracted from x; or NULL */
    const uint32_t *keys; /* [blocks][2]: of the largest −x and the largest x */

    __device__ float at(int64_t i) const {
        return (float)x.data[x.stride == cols ? i : i / cols * x.stride + i % cols];
    }
    __device__ float from_offset(int64_t i, int64_t b) const {
        return offset != nullptr ? at(i) - offset[b] : at(i);
    }
};

/* Whether blocks' extremes are x's own. */
template <class E> static inline bool has_extremes(const blocked<E> &a) {
    return a.range == nullptr || a.outer;
}

/* Each warp has a run of one block. Keys are integers, whose maximum no order changes. */
template <class E>
__global__ void __launch_bounds__(QUANT_THREADS)
    quant_extremes(blocked<E> a, int64_t runs, uint32_t *keys) {
    const int64_t warp = thread_number() / 32, b = warp / runs, part = warp % runs;
    const int64_t first = b * a.block + part * QUANT_RUN;
    const int64_t end = min(min(a.n, (b + 1) * a.block), first + QUANT_RUN);
    if (first >= a.n)
        return;
    uint32_t less = 0, more = 0;
    for (int64_t i = first + threadIdx.x % 32; i < end; i += 32) {
        const float v = a.from_offset(i, b);
        less = max(less, key_of(-v));
        more = max(more, key_of(v));
    }
    less = warp_reduce<max_op>(less);
    more = warp_reduce<max_op>(more);
    if (threadIdx.x % 32 == 0) {
        atomicMax(&keys[2 * b], less);
        atomicMax(&keys[2 * b + 1], more);
    }
}

static inline int64_t quant_blocks(int64_t n, int64_t block) {
    return (n + block - 1) / block;
}
static inline size_t quant_bytes(int64_t n, int64_t block) {
    return 2 * (size_t)quant_blocks(n, block) * sizeof(uint32_t);
}

/* Finds the extremes, if they are needed, in `work`: quant_bytes. n > 0. */
template <class E>
static inline enum ax_status find_extremes(struct ax_queue *q, blocked<E> *a, void *work) {
    const int64_t blocks = quant_blocks(a->n, a->block);
    const int64_t runs = (min(a->block, a->n) + QUANT_RUN - 1) / QUANT_RUN;
    struct ax_fill clear = {};
    a->keys = (const uint32_t *)work;
    if (!has_extremes(*a))
        return AX_OK;
    clear.dst = ax_tensor_1d(AX_I32, work, 2 * blocks);
    AX_TRY(ax_cuda_fill(q, &clear, NULL));
    return AX_LAUNCH(q, quant_extremes<E>, blocks_of(blocks * runs, QUANT_THREADS / 32),
                     QUANT_THREADS, 0, *a, runs, (uint32_t *)work);
}

struct extremes {
    float low, high;
};
template <class E> __device__ static inline extremes extremes_of(const blocked<E> &a, int64_t b) {
    const uint32_t less = a.keys[2 * b], more = a.keys[2 * b + 1];
    return {less == 0 ? INFINITY : -value_of(less), more == 0 ? -INFINITY : value_of(more)};
}

/* Block b, whose numbers have these extremes. */
template <class E>
__device__ static inline ax_quant_block block_of(const blocked<E> &a, int64_t b, extremes own) {
    const int64_t row = a.range_rows == 1 ? 0 : b * a.block / a.cols;
    if (a.range != nullptr && !a.outer)
        own = {-a.range[2 * row], a.range[2 * row + 1]};
    const float outer =
        a.outer ? ax_quant_outer(a.kind, ax_greater(a.range[2 * row], a.range[2 * row + 1])) : 0;
    return ax_quant_block_of(a.kind, own.low, own.high, outer);
}

template <class E>
__device__ static inline ax_quant_block block_at(const blocked<E> &a, int64_t b) {
    return block_of(a, b, a.range == nullptr || a.outer ? extremes_of(a, b) : extremes{});
}

/* f(i, block, q) for four elements from i on: q before it is clamped. */
template <class E, class F>
__device__ static inline void for_four(const blocked<E> &a, int64_t i, F f) {
    ax_quant_block block = {};
    for (int k = 0; k < 4 && i + k < a.n; k++) {
        if (k == 0 || (i + k) % a.block == 0)
            block = block_at(a, (i + k) / a.block);
        f(i + k, block, ax_quant_rounded(a.kind, a.at(i + k), &block));
    }
}

/* ---- eights: one kernel, where blocks and rows are made of them ---- */

/* Blocks of up to 256 have a team of lanes, each of which has eight neighbors; longer ones a block of threads. */
#define TEAM_BLOCK (32 * AX_NEIGHBORS)

template <class E> static inline bool has_eights(const blocked<E> &a) {
    const bool team = a.block <= TEAM_BLOCK && (a.block & (a.block - 1)) == 0;
    return a.x.stride == a.cols && (uintptr_t)a.x.data % 16 == 0 && a.n % AX_NEIGHBORS == 0 &&
           a.block % AX_NEIGHBORS == 0 && (team || a.block > TEAM_BLOCK);
}

__device__ static inline extremes extremes_of(const float (&x)[AX_NEIGHBORS]) {
    extremes e = {INFINITY, -INFINITY};
    AX_UNROLL
    for (int i = 0; i < AX_NEIGHBORS; i++)
        e = {fminf(e.low, x[i]), fmaxf(e.high, x[i])};
    return e;
}

template <class E>
__device__ static inline void load_eight(const blocked<E> &a, int64_t i, float offset,
                                         float (&x)[AX_NEIGHBORS]) {
    load_wide(a.x.data + i, x);
    AX_UNROLL
    for (int k = 0; k < AX_NEIGHBORS; k++)
        x[k] -= offset;
}

/* to(i, b, extremes of block b, x) for elements i … i + 7. */
template <class E, class To>
__global__ void __launch_bounds__(QUANT_THREADS) quant_teams(blocked<E> a, To to) {
    const int64_t i = AX_NEIGHBORS * thread_number(), b = i / a.block;
    float x[AX_NEIGHBORS] = {};
    if (i < a.n)
        load_eight(a, i, a.offset != nullptr ? a.offset[b] : 0, x);
    extremes own = extremes_of(x);
    for (int step = 1; step < (int)a.block / AX_NEIGHBORS; step *= 2) {
        const float low = __shfl_xor_sync(0xffffffffu, own.low, step);
        const float high = __shfl_xor_sync(0xffffffffu, own.high, step);
        /* a team that ends beyond n has no numbers there */
        const bool there = (i ^ step * AX_NEIGHBORS) < a.n;
        own = {there ? fminf(own.low, low) : own.low, there ? fmaxf(own.high, high) : own.high};
    }
    if (i < a.n)
        to(a, i, b, own, x);
}

template <class E, class To>
__global__ void __launch_bounds__(QUANT_THREADS) quant_long(blocked<E> a, To to) {
    const int64_t b = blockIdx.x, first = b * a.block, end = min(a.n, first + a.block);
    const int64_t from = first + AX_NEIGHBORS * threadIdx.x, step = AX_NEIGHBORS * QUANT_THREADS;
    const float offset = a.offset != nullptr ? a.offset[b] : 0;
    extremes own = {INFINITY, -INFINITY};
    float x[AX_NEIGHBORS];
    for (int64_t i = from; i < end && (a.range == nullptr || a.outer); i += step) {
        load_eight(a, i, offset, x);
        const extremes e = extremes_of(x);
        own = {fminf(own.low, e.low), fmaxf(own.high, e.high)};
    }
    own.low = -block_reduce<max_op>(-own.low, -INFINITY);
    own.high = block_reduce<max_op>(own.high, -INFINITY);
    for (int64_t i = from; i < end; i += step) {
        load_eight(a, i, offset, x);
        to(a, i, b, own, x);
    }
}

template <class E, class To>
static inline enum ax_status run_eights(struct ax_queue *q, const blocked<E> &a, const To &to) {
    if (a.block <= TEAM_BLOCK)
        return AX_LAUNCH(q, (quant_teams<E, To>), blocks_of(a.n, AX_NEIGHBORS * QUANT_THREADS),
                         QUANT_THREADS, 0, a, to);
    return AX_LAUNCH(q, (quant_long<E, To>), (unsigned)quant_blocks(a.n, a.block), QUANT_THREADS, 0,
                     a, to);
}

/* f with the kind, of the formats that train most as a constant: it is chosen once for eight numbers. */
template <class F> __device__ static inline void with_kind(enum ax_quant kind, F f) {
#define ONE(name)                                                                                  \
    case AX_QUANT_##name:                                                                          \
        f(AX_QUANT_##name);                                                                        \
        break;
    switch (kind) {
        ONE(INT8)
        ONE(INT4)
        ONE(INT8_ASYM)
        ONE(INT4_ASYM)
        ONE(FP8)
    default:
        f(kind);
    }
#undef ONE
}

template <class E>
static inline blocked<E> blocked_of(const struct ax_tensor *x, const struct ax_tensor *range,
                                    int64_t block, enum ax_quant kind) {
    return {as_rows<const E>(x),
            ax_tensor_numel(x),
            ax_tensor_row_len(x),
            block,
            kind,
            (const float *)range->data,
            range->shape[0],
            ax_quant_info(kind)->outer != 1,
            nullptr,
            nullptr};
}

#endif
