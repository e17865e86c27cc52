/* What both directions of the gated delta rule share (kernels/delta_ops.h has its formulas): a block computes one
 * value head of one document, chunk by chunk, in memory of its own; S and all products are float. Every sum
 * ascends from what is there in one thread, or is a reduction over a warp or block: no bit depends on the grid or
 * on how many rows are computed together. */
#ifndef AX_KERNELS_CUDA_DELTA_DELTA_CUH
#define AX_KERNELS_CUDA_DELTA_DELTA_CUH

#include "kernels/cuda/kernel.cuh"

#define CHUNK   AX_DELTA_CHUNK
#define THREADS 256
#define WARPS   (THREADS / 32)
#define BLOCKS  132 /* at most, each of which has memory */
#define TILE    4   /* rows of a product that a thread has */

struct delta_sizes {
    int64_t tokens, documents, heads, key_heads, dk, dv, decays; /* decays of a head: 1 or dk */
    bool channels;                                               /* have decays of their own */
};
static inline delta_sizes sizes_of(const struct ax_delta_rule *a) {
    const bool channels = ax_delta_by_channel(a);
    return {
        a->v.shape[0], a->cu.shape[0] - 1,           a->v.shape[1], a->q.shape[1], a->q.shape[2],
        a->v.shape[2], channels ? a->q.shape[2] : 1, channels};
}
/* Floats rounded up, so that doubles may follow. */
__host__ __device__ static inline int64_t even(int64_t floats) {
    return floats + floats % 2;
}
static inline int64_t blocks_for(const delta_sizes &s) {
    const int64_t tasks = s.documents * s.heads;
    return tasks < BLOCKS ? tasks : BLOCKS;
}

template <class E> struct delta_inputs {
    delta_sizes size;
    rows_of<const E> q, k, v;
    rows_of<const float> g, beta;
    rows_of<float> states; /* data NULL: none */
    const E *skip;         /* NULL: none */
    const int32_t *cu, *enters, *leaves;
    float scale;
    bool additive;
};
template <class E> static delta_inputs<E> inputs_of(const struct ax_delta_rule *a) {
    return {sizes_of(a),
            as_rows<const E>(&a->q),
            as_rows<const E>(&a->k),
            as_rows<const E>(&a->v),
            as_rows<const float>(&a->g),
            as_rows<const float>(&a->beta),
            as_rows<float>(&a->states),
            (const E *)a->skip.data,
            (const int32_t *)a->cu.data,
            (const int32_t *)a->enters.data,
            (const int32_t *)a->leaves.data,
            (float)a->scale,
            a->additive};
}

/* One value head of one document. */
struct delta_head {
    int64_t document, head, key_head, first, end;
    int32_t enters, leaves;
};
template <class E>
__device__ static inline delta_head head_of(const delta_inputs<E> &in, int64_t task) {
    const delta_sizes &s = in.size;
    const int64_t d = task / s.heads, h = task % s.heads;
    const bool states = in.states.data != nullptr;
    return {d,
            h,
            h / (s.heads / s.key_heads),
            in.cu[d],
            in.cu[d + 1],
            states ? in.enters[d] : -1,
            states ? in.leaves[d] : -1};
}
__device__ static inline float *state_at(const rows_of<float> &states, const delta_sizes &s,
                                         int64_t slot, int64_t head) {
    return &states.at(slot, head * s.dk * s.dv);
}

/* A chunk's memory: k̂, q̂, and rows of them times factors [CHUNK][dk]; y = v − e^G·Sᵀ·k̂ and u [CHUNK][dv]; of the
 * lower triangle [CHUNK][CHUNK] D_ij = e^(G_i − G_j), k̂_i·k̂_j·D_ij below the diagonal, that times −beta_i, and
 * q̂_i·k̂_j·D_ij, with zeros above in the tiles on the diagonal. With a decay per channel, D is a vector for each i and
 * j, which products with keys take in; then G and e^G are `sums` and `reach` [CHUNK][dk], and decay, grown and rest
 * are 1. */
struct delta_chunk {
    double *sums;
    float *reach;
    float *k, *q, *scaled, *y, *u, *decay, *similar, *system, *weight;
    float *beta, *grown, *rest; /* shared: beta, e^G_i, e^(G_c − G_i) */
    double *sum;                /* shared: G */
};
__host__ __device__ static inline int64_t chunk_floats(const delta_sizes &s) {
    return CHUNK * (3 * s.dk + 2 * s.dv + 4 * CHUNK + (s.channels ? 3 * s.dk : 0));
}
/* A block's shared memory for it, once per kernel. */
#define DELTA_CHUNK(c, memory, s)                                                                  \
    AX_SHARED(float, c##_beta, [CHUNK]);                                                           \
    AX_SHARED(float, c##_grown, [CHUNK]);                                                          \
    AX_SHARED(float, c##_rest, [CHUNK]);                                                           \
    AX_SHARED(double, c##_sum, [CHUNK]);                                                           \
    delta_chunk c = chunk_at(memory, s);                                                           \
    c.beta = c##_beta;                                                                             \
    c.grown = c##_grown;                                                                           \
    c.rest = c##_rest;                                                                             \
    c.sum = c##_sum
__device__ static inline delta_chunk chunk_at(float *at, const delta_sizes &s) {
    const int64_t keys = CHUNK * s.dk, values = CHUNK * s.dv, pairs = CHUNK * CHUNK;
    delta_chunk c = {};
    if (s.channels) {
        c.sums = (double *)at;
        c.reach = at + 2 * keys;
        at = c.reach + keys;
    }
    c.k = at;
    c.q = c.k + keys;
    c.scaled = c.q + keys;
    c.y = c.scaled + keys;
    c.u = c.y + values;
    c.decay = c.u + values;
    c.similar = c.decay + pairs;
    c.system = c.similar + pairs;
    c.weight = c.system + pairs;
    return c;
}

/* ---- products ---- */

/* Element (i, j) is data[i·row + j·col]. */
struct matrix {
    const float *data;
    int64_t row, col;
};

/* Which j a row i of a's has: all; j ≤ i; j from the first row of i's tile on, where those before i are 0. */
enum delta_shape { ALL, LOWER, UPPER };

/* store(i, n, start(i, n) + Σ_j a(i, j)·b(j, n)), j ascending, for rows first … end − 1 and columns n < cols; in
 * triangles, columns up to the last row of the tile only (`square`). All threads of the block call it. */
template <delta_shape Shape, bool Square = false, class Start, class Store>
__device__ static inline void each_product(int first, int end, int cols, int units, matrix a,
                                           matrix b, Start start, Store store) {
    const int tiles = (end - first + TILE - 1) / TILE * cols;
    for (int tile = threadIdx.x; tile < tiles; tile += THREADS) {
        const int i = first + tile / cols * TILE, n = tile % cols, last = end - 1;
        float sum[TILE];
        if (Square && n >= i + TILE)
            continue;
        AX_UNROLL
        for (int r = 0; r < TILE; r++)
            sum[r] = start(min(i + r, last), n);
        const int to = Shape == LOWER ? i : units;
        for (int j = Shape == UPPER ? i : 0; j < to; j++) {
            const float right = b.data[j * b.row + n * b.col];
            AX_UNROLL
            for (int r = 0; r < TILE; r++)
                sum[r] = fmaf(a.data[min(i + r, last) * a.row + j * a.col], right, sum[r]);
        }
        AX_UNROLL
        for (int r = 0; r < TILE; r++) {
            for (int j = i; Shape == LOWER && j <= min(i + r, last); j++)
                sum[r] = fmaf(a.data[(i + r) * a.row + j * a.col], b.data[j * b.row + n * b.col],
                              sum[r]);
            if (i + r <= last)
                store(i + r, n, sum[r]);
        }
    }
    __syncthreads();
}

struct from_zero {
    __device__ float operator()(int, int) const {
        return 0;
    }
};

/* ---- a chunk ---- */

/* row = x·factor/√(Σx² + eps), or x·factor if the rule is additive, of a head's elements, by a warp. */
template <class E>
__device__ static inline void load_head(const delta_inputs<E> &in, const E *x, float factor,
                                        float *row) {
    const int64_t n = in.size.dk;
    const int lane = threadIdx.x % 32;
    float squares = 0;
    for (int64_t i = lane; i < n; i += 32)
        squares = fmaf((float)x[i], (float)x[i], squares);
    if (!in.additive)
        factor /= sqrtf(warp_reduce<sum_op>(squares) + (float)AX_DELTA_EPS);
    for (int64_t i = lane; i < n; i += 32)
        row[i] = (float)x[i] * factor;
}

/* The same of channels, whose g are in `sums`. */
__device__ static inline void add_up_channels(const delta_chunk &c, int dk, int to) {
    for (int i = threadIdx.x; i < dk; i += THREADS) {
        double sum = 0;
        for (int r = 0; r < to; r++) {
            sum += c.sums[r * dk + i];
            c.sums[r * dk + i] = sum;
            c.reach[r * dk + i] = expf((float)sum);
        }
    }
    if ((int)threadIdx.x < to)
        c.grown[threadIdx.x] = c.rest[threadIdx.x] = 1;
    __syncthreads();
}

/* G and e^G of rows 0 … to − 1, whose g are in `grown`. */
__device__ static inline void add_up(const delta_chunk &c, const delta_sizes &s, int to) {
    __syncthreads();
    if (s.channels) {
        add_up_channels(c, (int)s.dk, to);
        return;
    }
    if (threadIdx.x == 0)
        for (int r = 0; r < to; r++)
            c.sum[r] = (r > 0 ? c.sum[r - 1] : 0) + (double)c.grown[r];
    __syncthreads();
    if ((int)threadIdx.x < to) {
        c.grown[threadIdx.x] = expf((float)c.sum[threadIdx.x]);
        c.rest[threadIdx.x] = expf((float)(c.sum[to - 1] - c.sum[threadIdx.x]));
    }
    __syncthreads();
}

/* Row r's g, from the head's first one. */
__device__ static inline void load_decay(const delta_chunk &c, const delta_sizes &s, int r,
                                         const float *g) {
    for (int64_t i = threadIdx.x % 32; i < s.decays; i += 32)
        if (s.channels)
            c.sums[r * s.dk + i] = (double)g[i];
        else
            c.grown[r] = g[0];
}

/* k̂, q̂, beta and g (for add_up) of rows from … to − 1, the tokens from `token` on. */
template <class E>
__device__ static inline void load_rows(const delta_inputs<E> &in, const delta_head &h,
                                        const delta_chunk &c, int64_t token, int from, int to) {
    const int64_t dk = in.size.dk, col = h.key_head * dk;
    for (int r = from + threadIdx.x / 32; r < to; r += WARPS) {
        load_head(in, &in.k.at(token + r - from, col), 1, c.k + r * dk);
        load_head(in, &in.q.at(token + r - from, col), in.scale, c.q + r * dk);
        load_decay(c, in.size, r, &in.g.at(token + r - from, h.head * in.size.decays));
    }
    const int r = from + threadIdx.x;
    if (r < to)
        c.beta[r] = in.beta.at(token + threadIdx.x, h.head);
}

/* similar, system and weight of rows from … to − 1 if channels have decays of their own: a pair per thread, whose
 * factors e^(G_i − G_j) are at most 1. */
__device__ static inline void channel_pairs(const delta_chunk &c, int dk, int from, int to) {
    for (int at = from * CHUNK + threadIdx.x; at < to * CHUNK; at += THREADS) {
        const int i = at / CHUNK, j = at % CHUNK;
        float of_key = 0, of_query = 0;
        for (int n = 0; n < dk && j <= i; n++) {
            const float decay = expf((float)(c.sums[i * dk + n] - c.sums[j * dk + n]));
            const float key = c.k[j * dk + n] * decay;
            of_key = fmaf(c.k[i * dk + n], key, of_key);
            of_query = fmaf(c.q[i * dk + n], key, of_query);
        }
        c.decay[at] = 1;
        c.similar[at] = j < i ? of_key : 0;
        c.system[at] = -c.beta[i] * c.similar[at];
        c.weight[at] = of_query;
    }
    __syncthreads();
}

/* scaled = factor·x⊙e^G of rows from … to − 1. */
__device__ static inline void reach_rows(const delta_chunk &c, const float *x, float factor,
                                         int from, int to, int dk) {
    for (int e = from * dk + threadIdx.x; e < to * dk; e += THREADS)
        c.scaled[e] = x[e] * (factor * c.reach[e]);
    __syncthreads();
}

/* Rows from … to − 1 of k̂ or q̂ (x) as they meet S, but for the factor `grown`. */
__device__ static inline matrix meeting(const delta_chunk &c, const delta_sizes &s, const float *x,
                                        int from, int to) {
    if (s.channels)
        reach_rows(c, x, 1, from, to, (int)s.dk);
    return matrix{s.channels ? c.scaled : x, s.dk, 1};
}

/* After load_rows and add_up: all else of rows from … to − 1; the rows before have k̂ and u. */
template <class E>
__device__ static inline void update_rows(const delta_inputs<E> &in, const delta_head &h,
                                          const delta_chunk &c, const float *state, int64_t token,
                                          int from, int to) {
    const int dk = (int)in.size.dk, dv = (int)in.size.dv;
    const matrix keys = {c.k, dk, 1}, columns = {c.k, 1, dk}, queries = {c.q, dk, 1};
    const bool channels = in.size.channels;
    const auto similar = [&](int i, int j, float x) {
        const int at = i * CHUNK + j;
        const float decay = j <= i ? expf((float)(c.sum[i] - c.sum[j])) : 0;
        c.decay[at] = decay;
        c.similar[at] = j < i ? x * decay : 0;
        c.system[at] = -c.beta[i] * c.similar[at];
    };
    if (channels)
        channel_pairs(c, dk, from, to);
    if (!in.additive && !channels)
        each_product<ALL, true>(from, to, to, dk, keys, columns, from_zero(), similar);
    const auto weight = [&](int i, int j, float x) {
        const int at = i * CHUNK + j;
        if (in.additive)
            c.decay[at] = j <= i ? expf((float)(c.sum[i] - c.sum[j])) : 0;
        c.weight[at] = x * c.decay[at];
    };
    if (!channels)
        each_product<ALL, true>(from, to, to, dk, queries, columns, from_zero(), weight);
    const auto begin = [&](int i, int n, float x) {
        const float v = (float)in.v.at(token + i - from, h.head * dv + n);
        c.y[i * dv + n] = fmaf(-c.grown[i], x, v);
        c.u[i * dv + n] = c.beta[i] * c.y[i * dv + n];
    };
    /* a product of no units if the rule is additive */
    each_product<ALL>(from, to, dv, in.additive ? 0 : dk, meeting(c, in.size, c.k, from, to),
                      matrix{state, dv, 1}, from_zero(), begin);
    for (int n = threadIdx.x; n < dv && !in.additive; n += THREADS) {
        for (int i = from; i < to; i++) {
            float u = c.u[i * dv + n];
            for (int j = 0; j < i; j++)
                u = fmaf(c.system[i * CHUNK + j], c.u[j * dv + n], u);
            c.u[i * dv + n] = u;
        }
    }
    __syncthreads();
}

/* scaled = x·factor·factors_r, of each row. */
__device__ static inline void scale_rows(const delta_chunk &c, const float *x, const float *factors,
                                         float factor, int rows, int dk) {
    for (int e = threadIdx.x; e < rows * dk; e += THREADS)
        c.scaled[e] = x[e] * (factor * factors[e / dk]);
    __syncthreads();
}

/* scaled = k̂ times e^(G_c − G) of the chunk's rows. */
__device__ static inline void rest_keys(const delta_chunk &c, const delta_sizes &s, int rows) {
    const int dk = (int)s.dk;
    if (!s.channels) {
        scale_rows(c, c.k, c.rest, 1, rows, dk);
        return;
    }
    for (int e = threadIdx.x; e < rows * dk; e += THREADS)
        c.scaled[e] = c.k[e] * expf((float)(c.sums[(rows - 1) * dk + e % dk] - c.sums[e]));
    __syncthreads();
}

/* e^G of the chunk's last row, of channel i. */
__device__ static inline float last_decay(const delta_chunk &c, const delta_sizes &s, int rows,
                                          int i) {
    return s.channels ? c.reach[(rows - 1) * s.dk + i] : c.grown[rows - 1];
}

/* S of the next chunk. */
__device__ static inline void next_state(const delta_chunk &c, const delta_sizes &s, float *state,
                                         int rows) {
    const int dk = (int)s.dk, dv = (int)s.dv;
    rest_keys(c, s, rows);
    each_product<ALL>(
        0, dk, dv, rows, matrix{c.scaled, 1, dk}, matrix{c.u, dv, 1},
        [&](int i, int n) { return last_decay(c, s, rows, i) * state[i * dv + n]; },
        [&](int i, int n, float x) { state[i * dv + n] = x; });
}

/* to = from, or zeros for NULL. */
__device__ static inline void copy_state(float *to, const float *from, int64_t n) {
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        to[i] = from ? from[i] : 0;
    __syncthreads();
}

/* True for rows that are no document's. */
__device__ static inline bool is_outside(int64_t t, const int32_t *cu, int64_t documents) {
    return t < cu[0] || t >= cu[documents];
}

#endif
