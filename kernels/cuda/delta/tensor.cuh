/* The recurrences by tensor cores (kernels/cuda/tiles.cuh), in bf16 with one decay per head: what their kernels share.
 * kernels/delta_ops.h has the formulas. Raw keys, queries, values and dout are exact operands; everything else is
 * a float that is split into two bf16, so that products have about the accuracy of float32.
 *
 * With r the factor that normalizes a key and s that of a query, E = e^G, F = e^(G_c − G), D_ij = e^(G_i − G_j), and
 * x = u / beta, a chunk is
 *   x = T·(v − E⊙r⊙(k·S)),  T = (I + N)⁻¹,  N_ij = r_i·(k_i·k_j)·r_j·D_ij·beta_j, j < i
 *   out = E⊙s⊙(q·S) + P·x,  P_ij = s_i·(q_i·k_j)·r_j·D_ij·beta_j, j ≤ i
 *   S' = e^G_c·S + kᵀ·(F⊙r⊙beta⊙x)
 * and if the rule is additive, x is v. T and P depend on the chunk alone: one kernel computes them for all chunks at
 * the same time. Columns of S depend only on the same columns of values: in the kernels that go from chunk to chunk, a
 * block has SLICE columns of one head of one document, S in registers.
 *
 * A strength of 0 is taken for 2⁻⁶⁰, so that gradients can be divided by it. */
#ifndef AX_KERNELS_CUDA_DELTA_TENSOR_CUH
#define AX_KERNELS_CUDA_DELTA_TENSOR_CUH

#include "kernels/cuda/delta/delta.cuh"
#include "kernels/cuda/delta/tensor.h"
#include "kernels/cuda/tiles.cuh"

#define SLICE       32
#define MOST_SHARED (140 << 10) /* bytes that a block of one of the kernels has */
#define LOG2E       1.4426950408889634f

/* ---- workspace ---- */

struct two_floats {
    float high, low;
};
/* [rows][heads][2][size]: upper parts and lower parts. */
struct split_rows {
    bf16 *data;
    int64_t heads, size;
    __device__ bf16 *high(int64_t row, int64_t head) const {
        return data + (row * heads + head) * 2 * size;
    }
    __device__ int64_t stride() const {
        return heads * 2 * size;
    }
    __device__ bf16 *plane(int64_t row, int64_t head, int i) const {
        return high(row, head) + i * size;
    }
};

struct delta_work {
    two_floats *sums;      /* G [T][Hv] */
    float *keys, *queries; /* r, s [T][Hk] */
    split_rows inverse;    /* T [T][Hv][CHUNK], row by row */
    split_rows weight;     /* P, likewise */
    /* In backward, in forward data NULL: x [T][Hv][dv] and the gradient of v but for skip's share, as x; states before
     * token t = first + 64·i, i > 0, of a document, number t / 64 − 1, [T / 64][Hv][dk][dv], and their gradients;
     * those of the leaving states. */
    split_rows x, dv, states, dstates;
    float *leaving; /* [slots][Hv][dk][dv]; NULL: none */
};

/* Parts of a workspace, at multiples of 256 bytes from its beginning. */
struct work_taker {
    char *base;
    size_t bytes;
    template <class X> X *take(int64_t count) {
        X *at = (X *)(base + bytes);
        bytes += ((size_t)count * sizeof(X) + 255) / 256 * 256;
        return at;
    }
    split_rows take_split(int64_t rows, int64_t heads, int64_t size) {
        return {take<bf16>(rows * heads * 2 * size), heads, size};
    }
};
static inline delta_work take_work(work_taker &from, const delta_sizes &s, bool additive) {
    delta_work w = {};
    w.sums = from.take<two_floats>(s.tokens * s.heads);
    w.keys = from.take<float>(s.tokens * s.key_heads);
    w.queries = from.take<float>(s.tokens * s.key_heads);
    w.weight = from.take_split(s.tokens, s.heads, CHUNK);
    if (!additive)
        w.inverse = from.take_split(s.tokens, s.heads, CHUNK);
    return w;
}

/* ---- chunks ---- */

/* Blocks of a grid; where there are fewer than tasks, each has several. */
#define MOST_BLOCKS ((int64_t)1 << 16)
static inline unsigned grid_of(int64_t tasks) {
    return (unsigned)(tasks < MOST_BLOCKS ? tasks : MOST_BLOCKS);
}

/* Chunk i of document d has number cu[d] / CHUNK + d + i, which no other chunk has: a document of n tokens moves the
 * next one's first number by n / CHUNK at least, rounded down, and 1. */
static inline int64_t chunk_numbers(const delta_sizes &s) {
    return s.tokens / CHUNK + s.documents;
}
struct chunk_place {
    int64_t document, first; /* token */
    int rows;                /* 0: there is no chunk of that number */
};
__device__ static inline chunk_place chunk_of(const int32_t *cu, int64_t documents,
                                              int64_t number) {
    int64_t low = 0, high = documents; /* the first document whose number is larger */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (cu[middle] / CHUNK + middle <= number)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return {0, 0, 0};
    const int64_t d = low - 1, first = cu[d] + (number - cu[d] / CHUNK - d) * CHUNK;
    return {d, first, (int)max(min((int64_t)CHUNK, cu[low] - first), (int64_t)0)};
}

/* ---- factors ---- */

__device__ static inline float power_of_e(float x) {
    return power_of_two(x * LOG2E);
}
/* e^(a − b). */
__device__ static inline float decay_of(two_floats a, two_floats b) {
    return power_of_e((a.high - b.high) + (a.low - b.low));
}

/* What a token has to be multiplied with; zeros behind the chunk's rows. */
struct token_factors {
    two_floats sum;
    float key, query, beta; /* r, s, beta */
};
__device__ static inline token_factors factors_of(const delta_inputs<bf16> &in, const delta_work &w,
                                                  int64_t token, int64_t head, bool there) {
    if (!there)
        return {{0, 0}, 0, 0, 0};
    const int64_t key_head = head / (in.size.heads / in.size.key_heads);
    const float beta = in.beta.at(token, head);
    return {w.sums[token * in.size.heads + head], w.keys[token * in.size.key_heads + key_head],
            w.queries[token * in.size.key_heads + key_head],
            fabsf(beta) < 0x1p-60f ? copysignf(0x1p-60f, beta) : beta};
}

/* Factors of a chunk's rows in shared memory, and what a thread reads for these before it may write them. */
struct chunk_factors {
    float meets[CHUNK]; /* E⊙r, for k·S */
    float asks[CHUNK];  /* E⊙s, for q·S */
    float rests[CHUNK]; /* F⊙r⊙beta, for the next S */
    float whole;        /* e^G_c */
};
struct next_factors {
    token_factors row;
    two_floats last;
};
__device__ static inline next_factors find_factors(const delta_inputs<bf16> &in,
                                                   const delta_work &w, int64_t head, int64_t token,
                                                   int rows) {
    next_factors f = {};
    if (rows == 0 || threadIdx.x >= CHUNK)
        return f;
    f.row = factors_of(in, w, token + threadIdx.x, head, (int)threadIdx.x < rows);
    f.last = w.sums[(token + rows - 1) * in.size.heads + head];
    return f;
}
__device__ static inline void set_factors(chunk_factors &to, const next_factors &f) {
    const int i = threadIdx.x;
    if (i >= CHUNK)
        return;
    const float grown = power_of_e(f.row.sum.high + f.row.sum.low);
    to.meets[i] = grown * f.row.key;
    to.asks[i] = grown * f.row.query;
    to.rests[i] = decay_of(f.last, f.row.sum) * (f.row.key * f.row.beta);
    if (i == 0)
        to.whole = power_of_e(f.last.high + f.last.low);
}

/* ---- tiles of a chunk ---- */

template <int DK> using key_tile = plane_tile<CHUNK, DK, 1>;
typedef plane_tile<CHUNK, CHUNK, 2> pair_tile; /* T or P */

/* Starts copies of a chunk's rows of keys or queries. */
template <int Threads, int DK>
__device__ static inline void start_keys(const key_tile<DK> &to, const rows_of<const bf16> &from,
                                         const delta_sizes &s, int64_t key_head, int64_t token,
                                         int rows) {
    start_plane<CHUNK, Threads>(to.plane(0), &from.at(token, key_head * s.dk), from.stride, rows,
                                (int)s.dk);
}
/* Both planes of a chunk's rows, columns from `first` on. */
template <int Threads, int Cols>
__device__ static inline void start_split(const plane_tile<CHUNK, Cols, 2> &to,
                                          const split_rows &from, int64_t head, int64_t token,
                                          int rows, int64_t first, int cols) {
    for (int i = 0; i < 2; i++)
        start_plane<CHUNK, Threads>(to.plane(i), from.plane(token, head, i) + first, from.stride(),
                                    rows, cols);
}

template <int DK> using state_tile = plane_tile<DK, SLICE, 2>;
typedef plane_tile<CHUNK, SLICE, 2> value_tile; /* rows of values, or of their gradients */

/* f(integral_constant of how many elements tiles have room for in a key). */
template <class F> static inline enum ax_status by_keys(const delta_sizes &s, F f) {
    return s.dk <= 64 ? f(std::integral_constant<int, 64>())
                      : f(std::integral_constant<int, 128>());
}

/* ---- blocks that go from chunk to chunk ---- */

/* What a warp has: 16 rows and columns of products [CHUNK][SLICE], from (row, col) on, and of states [DK][SLICE] 16
 * rows from key on and STATE_COLS columns from value on. */
template <int DK> struct warp_share {
    static constexpr int STATE_COLS = DK / 4;
    int row, col, key, value;
};
template <int DK> __device__ static inline warp_share<DK> share_of_warp() {
    constexpr int ROWS = DK / 16;
    const int warp = threadIdx.x / 32;
    return {warp % 4 * 16, warp / 4 * 16, warp % ROWS * 16, warp / ROWS * 16};
}

/* f(i, row, col) of a thread's numbers i and i + 1 of a product whose first row and column these are: they are in
 * columns col and col + 1. */
template <int N, class F> __device__ static inline void each_pair(int row, int col, F f) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    AX_UNROLL
    for (int i = 0; i < N / 2; i += 2)
        f(i, row + 8 * sums<1, N>::row(i) + g, col + sums<1, N>::column(i) + 2 * t);
}

/* A sum over the four threads of a row. */
__device__ static inline float quad_sum(float x) {
    for (int step = 2; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* A thread's pairs of values or dout, and 0 where there are none. */
struct value_pairs {
    uint32_t x[4];
    __device__ void get(int i, float &one, float &two) const {
        bf16_pair_to_f32(x[i / 2], one, two);
    }
};
/* SLICE columns of a head, from `first` of the tensor's on, of which `cols` exist. */
struct value_columns {
    int64_t first;
    int cols;
};
__host__ __device__ static inline int64_t slices_of(const delta_sizes &s) {
    return (s.dv + SLICE - 1) / SLICE;
}
__device__ static inline value_columns columns_of(const delta_sizes &s, int64_t head,
                                                  int64_t slice) {
    return {head * s.dv + slice * SLICE, (int)min((int64_t)SLICE, s.dv - slice * SLICE)};
}
template <int DK>
__device__ static inline value_pairs
load_values(const rows_of<const bf16> &from, const value_columns &cols, const warp_share<DK> &own,
            int64_t token, int rows) {
    value_pairs v;
    each_pair<16>(own.row, own.col, [&](int i, int row, int col) {
        v.x[i / 2] = row < rows && col < cols.cols
                         ? *(const uint32_t *)&from.at(token + row, cols.first + col)
                         : 0;
    });
    return v;
}

/* Stores elements `at` and `at` + 1 of a row's head, `at` even. */
__device__ static inline void store_split(const split_rows &to, int64_t row, int64_t head,
                                          int64_t at, float one, float two) {
    uint32_t high, low;
    split_pair(one, two, high, low);
    *(uint32_t *)(to.plane(row, head, 0) + at) = high;
    *(uint32_t *)(to.plane(row, head, 1) + at) = low;
}

/* Runs what both directions begin with: r, s, G, T and P of all chunks; and then all chunks in order, which gives out
 * and the documents' last states (out.data not NULL), or x and the states between. */
enum ax_status delta_run_pairs(struct ax_queue *q, const delta_inputs<bf16> &in,
                               const delta_work &w);
enum ax_status delta_run_states(struct ax_queue *q, const delta_inputs<bf16> &in,
                                const delta_work &w, const rows_of<bf16> &out);

/* Parts of a block's dynamic shared memory. */
struct tile_taker {
    char *at;
    template <class Tile> __device__ Tile take() {
        const Tile t = {at};
        at += Tile::BYTES;
        return t;
    }
};

#endif
