/* Attention in bf16 by tensor cores (kernels/cuda/mma.cuh), as FlashAttention-2 does (Dao 2023): what its
 * kernels share. A block has four warps. Each has its own rows of a product's left side, 16·M of them, and
 * all columns, so that a row's scores, their sums and its results stay in one warp's registers: of each 8
 * columns a thread has 2t and 2t + 1, of rows g and g + 8 (g = lane / 4, t = lane % 4).
 *
 * Tiles of the other side come to shared memory while the warps compute, from the document's start on, and
 * what a row does not see adds zeros: a row's bits do not depend on the rows beside it. Every sum is one
 * warp's, in the order of keys or queries. */
#ifndef AX_KERNELS_CUDA_ATTENTION_TENSOR_CUH
#define AX_KERNELS_CUDA_ATTENTION_TENSOR_CUH

#include "kernels/cuda/attention/pattern.cuh"
#include "kernels/cuda/attention/tensor.h"
#include "kernels/cuda/tiles.cuh"

#define WARPS   4
#define THREADS (32 * WARPS)
#define LOG2E   1.4426950408889634f
#define LN2     0.6931471805599453f

/* All GPUs since 8.0 have that much shared memory for a block. */
constexpr size_t MOST_SHARED = (size_t)99 << 10;

/* ---- division by what only the host knows ---- */

/* n / by for n < 2³¹ (Granlund & Montgomery 1994). */
struct divider {
    uint32_t by, magic, shift;
    __device__ int of(int n) const {
        return (int)((__umulhi((uint32_t)n, magic) + (uint32_t)n) >> shift);
    }
};
static inline divider divider_of(int by) {
    uint32_t shift = 0;
    while ((1u << shift) < (uint32_t)by)
        shift++;
    const uint64_t over = ((uint64_t)1 << shift) - (uint64_t)by;
    return {(uint32_t)by, (uint32_t)((over << 32) / (uint64_t)by + 1), shift};
}

/* ---- operands ---- */

/* A tensor [rows][heads][size], as heads_of, with a stride that takes one instruction to multiply. */
template <class E> struct short_heads {
    E *data;
    int stride, size;
    __device__ E *at(int row, int head) const {
        return data + (int64_t)row * stride + head * size;
    }
};
template <class E> static inline short_heads<E> as_short(const struct ax_tensor *t) {
    return {(E *)t->data, (int)t->row_stride, (int)t->shape[2]};
}

/* ---- tiles in shared memory: kernels/cuda/tiles.cuh ---- */

/* Starts copies of rows 0 … Rows − 1 of a head, which row_at gives, NULL for zeros; so is what is right of
 * the head's elements. */
template <int Rows, int Cols, class RowAt>
__device__ static inline void start_rows(tile<Cols> to, const short_heads<const bf16> &from,
                                         RowAt row_at) {
    constexpr int CHUNKS = Cols / 8;
    static_assert(Rows * CHUNKS % THREADS == 0, "each thread has as many chunks");
    AX_UNROLL
    for (int i = 0; i < Rows * CHUNKS / THREADS; i++) {
        const unsigned e = i * THREADS + threadIdx.x;
        const int row = (int)(e / CHUNKS), c = (int)(e % CHUNKS);
        const bf16 *source = row_at(row);
        const bool there = source != nullptr && 8 * c < from.size;
        copy_16(to.chunk(row, c), there ? source + 8 * c : from.data, there);
    }
}

/* ---- products of a warp ---- */

/* s += a · bᵀ: rows of `a`, M · 16 of them, with N rows of `b`, over K elements. */
template <int K, int M, int N, int A, int B>
__device__ static inline void add_products(sums<M, N> &s, reader<A> a, reader<B> b) {
    AX_UNROLL
    for (int k = 0; k < K / 16; k++) {
        uint32_t left[M][4];
        AX_UNROLL
        for (int m = 0; m < M; m++)
            load_matrices(left[m], a.block(16 * m, k));
        AX_UNROLL
        for (int n = 0; n < N / 16; n++) {
            uint32_t right[4];
            load_matrices(right, b.block(16 * n, k));
            AX_UNROLL
            for (int m = 0; m < M; m++) {
                mma(s.x[m][2 * n], left[m], right[0], right[1]);
                mma(s.x[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* r += w · b: weights of K rows of `b`, rounded to bf16, with the first N elements of these. */
template <int K, int M, int N, int B>
__device__ static inline void add_weighted(sums<M, N> &r, const sums<M, K> &w, reader<B> b) {
    AX_UNROLL
    for (int k = 0; k < K / 16; k++) {
        uint32_t left[M][4];
        AX_UNROLL
        for (int m = 0; m < M; m++) {
            AX_UNROLL
            for (int i = 0; i < 4; i++) {
                const float *pair = w.x[m][2 * k + i / 2] + 2 * (i % 2);
                left[m][i] = round_pair(pair[0], pair[1]);
            }
        }
        AX_UNROLL
        for (int n = 0; n < N / 16; n++) {
            uint32_t right[4];
            load_transposed(right, b.block(16 * k, n));
            AX_UNROLL
            for (int m = 0; m < M; m++) {
                mma(r.x[m][2 * n], left[m], right[0], right[1]);
                mma(r.x[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* Stores row i of a thread's 2·M, times `factor`. */
template <int M, int N>
__device__ static inline void store_row(const sums<M, N> &r, int i, float factor, bf16 *row,
                                        int size) {
    const int t = threadIdx.x % 4;
    AX_UNROLL
    for (int n = 0; n < N / 8; n++) {
        const float *pair = r.x[i / 2][n] + 2 * (i % 2);
        if (8 * n < size)
            *(uint32_t *)(row + 8 * n + 2 * t) = round_pair(pair[0] * factor, pair[1] * factor);
    }
}

/* A reduction over the four threads of a row. */
template <class Op> __device__ static inline float row_reduce(float v) {
    for (int step = 2; step > 0; step /= 2)
        v = Op()(v, __shfl_xor_sync(0xffffffffu, v, step));
    return v;
}

/* ---- scores ---- */

/* Turns products into scores whose powers of two, times factor, are wanted: the products, or
 * tanh(scale·product / cap). */
struct scaling {
    float factor; /* log₂e times: scale, or the cap */
    float inner;  /* scale / cap, or 0 without a cap */
};
static inline scaling scaling_of(const struct ax_attention *a) {
    return a->softcap > 0 ? scaling{(float)a->softcap * LOG2E, (float)(a->scale / a->softcap)}
                          : scaling{(float)a->scale * LOG2E, 0};
}
__device__ static inline float tanh_of(float x) {
    return 1 - __fdividef(2.0f, 1 + power_of_two(2 * LOG2E * x));
}
template <int M, int N> __device__ static inline void cap_scores(sums<M, N> &s, const scaling &by) {
    if (by.inner == 0)
        return;
    AX_UNROLL
    for (int i = 0; i < M * N / 2; i++)
        s.at(i) = tanh_of(s.at(i) * by.inner);
}

/* A thread's rows: the largest score so far and, of this thread's columns, Σ 2^(factor·(score − that)). */
template <int M> struct softmax {
    float most[2 * M], sum[2 * M];
};

/* Makes scores their probabilities' numerators, and multiplies the earlier ones' sums and results with what
 * is due, which for most tiles is 1. */
template <int M, int N, int D>
__device__ static inline void take_scores(softmax<M> &state, sums<M, N> &s, sums<M, D> &out,
                                          float by) {
    float base[2 * M], factor[2 * M];
    bool grew = false;
    AX_UNROLL
    for (int r = 0; r < 2 * M; r++) {
        float most = -INFINITY;
        AX_UNROLL
        for (int n = 0; n < N / 8; n++)
            most = fmaxf(most, fmaxf(s.x[r / 2][n][2 * (r % 2)], s.x[r / 2][n][2 * (r % 2) + 1]));
        most = fmaxf(state.most[r], row_reduce<max_op>(most));
        base[r] = most == -INFINITY ? 0 : most * by;
        /* 1 exactly where nothing grew: a product fused with its own difference leaves its rounding */
        factor[r] = most == state.most[r] ? 1 : power_of_two(state.most[r] * by - base[r]);
        grew = grew || most != state.most[r];
        state.most[r] = most;
        state.sum[r] *= factor[r];
    }
    AX_UNROLL
    for (int i = 0; i < M * N / 2; i++) {
        s.at(i) = power_of_two(s.at(i) * by - base[s.row(i)]);
        state.sum[s.row(i)] += s.at(i);
    }
    if (!__any_sync(0xffffffffu, grew))
        return;
    AX_UNROLL
    for (int i = 0; i < M * D / 2; i++)
        out.at(i) *= factor[out.row(i)];
}

/* Which keys of a document rows see. A row of queries has one number, `to`: it sees its last `window` keys
 * before that one. FAR: all there are, or if negative, none. */
constexpr int FAR = 1 << 30;
struct view {
    int nk, window;
    __device__ bool shows(int to, int key) const {
        return key < to && key >= to - window && key >= 0 && key < nk;
    }
    /* Whether some, and all, of keys [first, first + count) are shown; one of them is the document's. */
    __device__ bool shows_any(int to, int first, int count) const {
        return first < to && first + count > to - window;
    }
    __device__ bool shows_all(int to, int first, int count) const {
        return first + count <= to && first >= to - window && first >= 0 && first + count <= nk;
    }
};
__device__ static inline view view_of(const pattern &p, const document &d) {
    return {(int)d.nk, p.window > 0 ? (int)min(p.window, (int64_t)FAR) : FAR};
}
/* Where the sight of query i ends, which may be outside of the document. */
__device__ static inline int sight_of(const pattern &p, const document &d, int i) {
    if (i < 0 || i >= d.nq)
        return -FAR;
    return p.causal ? (int)max(min(i + shift_of(p, d) + 1, (int64_t)FAR), -(int64_t)FAR) : FAR;
}

/* Whether some and all of a warp's rows see some and all of keys [first, first + count); `to` are of a thread's
 * rows. */
struct sight {
    bool any, all;
};
template <int N>
__device__ static inline sight warp_sight(const view &sees, const int (&to)[N], int first,
                                          int count) {
    bool any = false, all = true;
    AX_UNROLL
    for (int i = 0; i < N; i++) {
        any = any || sees.shows_any(to[i], first, count);
        all = all && sees.shows_all(to[i], first, count);
    }
    return {__any_sync(0xffffffffu, any) != 0, __all_sync(0xffffffffu, all) != 0};
}

/* Makes −∞ of the scores of keys, from `first` on, that a row does not see. */
template <int M, int N>
__device__ static inline void hide_scores(sums<M, N> &s, const view &sees, const int (&to)[2 * M],
                                          int first) {
    const int t = threadIdx.x % 4;
    AX_UNROLL
    for (int i = 0; i < M * N / 2; i++)
        if (!sees.shows(to[s.row(i)], first + s.column(i) + 2 * t))
            s.at(i) = -INFINITY;
}

/* ---- blocks ---- */

/* The work of a block: a tile of rows, from the last one on, as with causal attention later ones have more
 * to do, and a KV head. */
struct place {
    int64_t first; /* row */
    int kv_head;
};
__device__ static inline place last_first(int kv_heads, int tile) {
    const int64_t tiles = gridDim.x / (unsigned)kv_heads, b = blockIdx.x;
    return {(tiles - 1 - b / kv_heads) * tile, (int)(b % kv_heads)};
}
__device__ static inline place first_first(int kv_heads, int tile) {
    const int64_t b = blockIdx.x;
    return {b / kv_heads * tile, (int)(b % kv_heads)};
}
static inline unsigned blocks_in(int64_t rows, int kv_heads, int tile) {
    return blocks_of(rows, tile) * (unsigned)kv_heads;
}

/* A block's rows of queries: row r of them is query(r)'s, of head(r). */
struct query_rows {
    divider group;
    int first, rows; /* number of row 0 among all; how many there are */
    int first_head;  /* the KV head's */
    __device__ bool exists(int r) const {
        return first + r < rows;
    }
    __device__ int query(int r) const {
        return group.of(first + r);
    }
    __device__ int head(int r) const {
        return first_head + (first + r - query(r) * (int)group.by);
    }
    __device__ int last_query(int tile) const {
        return group.of(min(rows, first + tile) - 1);
    }
};
__device__ static inline query_rows query_rows_at(const pattern &p, divider group, place at) {
    return {group, (int)at.first, (int)p.queries * p.group, at.kv_head * p.group};
}
template <int Rows, int Cols>
__device__ static inline void start_queries(tile<Cols> to, const short_heads<const bf16> &from,
                                            const query_rows &own) {
    start_rows<Rows>(to, from, [&](int r) -> const bf16 * {
        return own.exists(r) ? from.at(own.query(r), own.head(r)) : nullptr;
    });
}

/* f(integral_constant of how many elements tiles have room for in a row), 64, 128 or 256. */
template <class F> static inline enum ax_status by_width(const struct ax_attention *a, F f) {
    const int64_t size = a->q.shape[2] > a->v.shape[2] ? a->q.shape[2] : a->v.shape[2];
    if (size <= 64)
        return f(std::integral_constant<int, 64>());
    if (size <= 128)
        return f(std::integral_constant<int, 128>());
    return f(std::integral_constant<int, 256>());
}

/* ---- what these kernels take ---- */

static inline bool has_chunks(const struct ax_tensor *t) {
    return (uintptr_t)t->data % 16 == 0 && t->row_stride % 8 == 0 && t->row_stride <= INT32_MAX &&
           t->shape[2] % 8 == 0 && t->shape[2] <= 256;
}
static inline bool suits_tiles(const struct ax_attention *a) {
    return a->q.dtype == AX_BF16 && a->scale > 0 && a->chosen.data == nullptr &&
           a->q.shape[0] * a->q.shape[1] < (int64_t)1 << 30 && a->k.shape[0] < (int64_t)1 << 30 &&
           has_chunks(&a->q) && has_chunks(&a->k) && has_chunks(&a->v) && has_chunks(&a->out);
}

#endif
