/* Attention of our own (kernels/ops.h has the formulas): what its kernels share. Plain arithmetic in
 * F32, tiles in shared memory as in FlashAttention (Dao et al. 2022), no tensor cores.
 *
 * A block has a tile of 32 rows and goes through the other side's 32 at a time. On the side of the
 * queries a row is (query, head): the query heads that read one KV head follow each other, so that they
 * share its keys even if there is one query. A thread (y, x) of 16 · 8 owns rows y and y + 16: of a tile
 * of scores the columns x, x + 8, x + 16 and x + 24, of a result four columns of every 32. The eight
 * threads of a row are lanes of one warp.
 *
 * Tiles of the other side begin at multiples of 32 from the document's start, and what a row does not
 * see adds zeros, so that a row's bits do not depend on the rows beside it. Results have up to 128
 * columns per block; wider heads take several blocks, each computing the scores again. */
#ifndef AX_KERNELS_CUDA_ATTENTION_CUH
#define AX_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/four.cuh"

#define TILE     32  /* rows, and columns of scores */
#define CHUNK    64  /* columns of a head in shared memory */
#define SLICE    128 /* columns of a result per block */
#define THREADS  128
#define RESIDENT 3 /* blocks of an SM at a time, for up to 168 registers: 128 do not do */
#define PITCH    (CHUNK / 4 + 1) /* float4 from a row of a chunk to the next: no bank conflicts */

/* ---- operands ---- */

/* A tensor [rows][heads][size]. */
template <class E> struct heads_of {
    E *data;
    int64_t stride;
    int size;
    __device__ E *at(int64_t row, int64_t head) const {
        return data + row * stride + head * size;
    }
};
template <class E> static inline heads_of<E> as_heads(const struct ax_tensor *t) {
    return {(E *)t->data, t->row_stride, (int)t->shape[2]};
}

/* Which queries see which keys. */
struct pattern {
    const int32_t *cu_q, *cu_k, *table;
    int64_t documents, queries, keys, table_stride, block_size, window, ahead;
    int kv_heads, group; /* group: query heads per KV head */
    bool causal;
    float scale, softcap;
};
static inline pattern pattern_of(const struct ax_attention *a) {
    return {(const int32_t *)a->cu_q.data,
            (const int32_t *)a->cu_k.data,
            (const int32_t *)a->block_table.data,
            a->cu_q.shape[0] - 1,
            a->q.shape[0],
            a->k.shape[0],
            a->block_table.row_stride,
            a->block_size,
            a->window,
            a->ahead,
            (int)a->k.shape[1],
            (int)(a->q.shape[1] / a->k.shape[1]),
            a->causal,
            (float)a->scale,
            (float)a->softcap};
}

struct document {
    int64_t index, q_first, nq, k_first, nk;
};
__device__ static inline document document_of(const pattern &p, int64_t d) {
    return {d, p.cu_q[d], p.cu_q[d + 1] - p.cu_q[d], p.cu_k[d], p.cu_k[d + 1] - p.cu_k[d]};
}

/* The first document that ends after this row of cu, or their number. */
__device__ static inline int64_t first_document(const int32_t *cu, int64_t documents, int64_t row) {
    int64_t low = 0, high = documents;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (cu[middle + 1] > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The last key that query i of a document sees, if it is causal, less i. */
__device__ static inline int64_t shift_of(const pattern &p, const document &d) {
    return p.ahead > 0 ? d.nk - 1 + p.ahead : d.nk - d.nq;
}

/* True if query i of a document sees its key j; both must be in the document. */
__device__ static inline bool is_visible(const pattern &p, const document &d, int64_t i,
                                         int64_t j) {
    const int64_t diagonal = i + shift_of(p, d);
    return !p.causal || (j <= diagonal && (p.window == 0 || j > diagonal - p.window));
}

__device__ static inline int64_t key_row(const pattern &p, const document &d, int64_t j) {
    if (p.table == nullptr)
        return d.k_first + j;
    return p.table[d.index * p.table_stride + j / p.block_size] * p.block_size + j % p.block_size;
}

__device__ static inline float logit_of(const pattern &p, float product) {
    const float s = p.scale * product;
    return p.softcap > 0 ? p.softcap * tanhf(s / p.softcap) : s;
}

/* ---- tiles ---- */

struct tile_memory {
    float4 *left, *right; /* [TILE][PITCH]: a chunk of the rows' and of the columns' heads */
    float *weights;       /* [TILE][TILE + 4]: what results are sums with */
};
#define TILE_MEMORY(name)                                                                          \
    AX_SHARED(float4, name##_left, [TILE * PITCH]);                                                \
    AX_SHARED(float4, name##_right, [TILE * PITCH]);                                               \
    AX_SHARED(float4, name##_weights, [TILE * (TILE / 4 + 1)]);                                    \
    const tile_memory name = {name##_left, name##_right, (float *)name##_weights}

struct scores {
    float x[2][4]; /* rows y + 16·i, columns x + 8·j */
};
struct results {
    float x[2][16]; /* column 32·(j / 4) + 4·x + j % 4 of the slice */
};

/* Columns [first, first + CHUNK) of rows 0 … 31, which row_at gives, NULL for zeros. */
template <class Rows>
__device__ static inline void load_chunk(float4 *to, Rows row_at, int first, int size) {
    for (int e = threadIdx.x; e < TILE * CHUNK / 4; e += THREADS) {
        const int row = e / (CHUNK / 4), col = e % (CHUNK / 4);
        const auto *from = row_at(row);
        four v = {};
        if (from != nullptr && first + 4 * col < size)
            v = load_four(from + first + 4 * col, size - first - 4 * col);
        to[row * PITCH + col] = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
    }
}

/* The product of each row with each column, over heads of `size` elements. */
template <class Left, class Right>
__device__ static inline scores multiply(const tile_memory &m, Left left, Right right, int size) {
    const int y = threadIdx.x / 8, x = threadIdx.x % 8;
    scores s = {};
    for (int first = 0; first < size; first += CHUNK) {
        __syncthreads();
        load_chunk(m.left, left, first, size);
        load_chunk(m.right, right, first, size);
        __syncthreads();
        const int count = (min(size - first, CHUNK) + 3) / 4;
        for (int c = 0; c < count; c++) {
            float4 a[2], b[4];
            AX_UNROLL
            for (int i = 0; i < 2; i++)
                a[i] = m.left[(y + 16 * i) * PITCH + c];
            AX_UNROLL
            for (int j = 0; j < 4; j++)
                b[j] = m.right[(x + 8 * j) * PITCH + c];
            AX_UNROLL
            for (int i = 0; i < 2; i++) {
                AX_UNROLL
                for (int j = 0; j < 4; j++) {
                    s.x[i][j] += a[i].x * b[j].x;
                    s.x[i][j] += a[i].y * b[j].y;
                    s.x[i][j] += a[i].z * b[j].z;
                    s.x[i][j] += a[i].w * b[j].w;
                }
            }
        }
    }
    return s;
}

/* Adds to 32 columns of a thread's rows, from the first of a chunk's two halves on. */
__device__ static inline void add_half(float *row, float weight, const float4 &b) {
    row[0] += weight * b.x;
    row[1] += weight * b.y;
    row[2] += weight * b.z;
    row[3] += weight * b.w;
}

/* r += weights · right, for columns [first, first + SLICE) of heads of `size` elements. The weights of
 * a row are its own threads'. */
template <class Right>
__device__ static inline void add_weighted(results *r, const tile_memory &m, const scores &weights,
                                           Right right, int first, int size) {
    const int y = threadIdx.x / 8, x = threadIdx.x % 8;
    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        AX_UNROLL
        for (int j = 0; j < 4; j++)
            m.weights[(y + 16 * i) * (TILE + 4) + x + 8 * j] = weights.x[i][j];
    }
    __syncwarp();
    const float4 *rows = (const float4 *)m.weights;
    AX_UNROLL
    for (int part = 0; part < SLICE / CHUNK; part++) {
        if (first + part * CHUNK >= size)
            break;
        __syncthreads();
        load_chunk(m.right, right, first + part * CHUNK, size);
        __syncthreads();
        for (int k = 0; k < TILE / 4; k++) {
            AX_UNROLL
            for (int i = 0; i < 2; i++) {
                const float4 w = rows[(y + 16 * i) * (TILE / 4 + 1) + k];
                const float each[4] = {w.x, w.y, w.z, w.w};
                AX_UNROLL
                for (int n = 0; n < 4; n++) {
                    const float4 *b = m.right + (4 * k + n) * PITCH + x;
                    add_half(r->x[i] + 8 * part, each[n], b[0]);
                    add_half(r->x[i] + 8 * part + 4, each[n], b[CHUNK / 8]);
                }
            }
        }
    }
}

/* Stores row i of the thread, times `factor`. */
template <class E>
__device__ static inline void store_result(const results &r, int i, float factor, E *row, int first,
                                           int size) {
    const int x = threadIdx.x % 8;
    AX_UNROLL
    for (int part = 0; part < SLICE / TILE; part++) {
        four v;
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            v.x[k] = r.x[i][4 * part + k] * factor;
        const int col = first + TILE * part + 4 * x;
        if (col < size)
            store_four(row + col, size - col, v);
    }
}

/* A reduction over the eight threads of a row. */
template <class Op> __device__ static inline float row_reduce(float v) {
    for (int step = 4; step > 0; step /= 2)
        v = Op()(v, __shfl_xor_sync(0xffffffffu, v, step, 8));
    return v;
}

/* ---- blocks ---- */

/* The work of a block: a tile of rows, a KV head, a slice of the result's columns. */
struct place {
    int64_t first; /* row */
    int kv_head, slice;
};
__device__ static inline place place_of(int kv_heads, int slices) {
    const int64_t b = blockIdx.x;
    return {b / slices / kv_heads * TILE, (int)(b / slices % kv_heads), (int)(b % slices)};
}
static inline int slices_of(int64_t size) {
    return (int)((size + SLICE - 1) / SLICE);
}
static inline unsigned blocks_in(int64_t rows, int kv_heads, int slices) {
    return blocks_of(rows, TILE) * (unsigned)kv_heads * (unsigned)slices;
}

/* The rows of queries: row r of all is query r / group and head kv_head·group + r % group. */
struct query_row {
    int64_t query, head;
};
__device__ static inline query_row query_row_of(const pattern &p, int kv_head, int64_t row) {
    return {row / p.group, kv_head * (int64_t)p.group + row % p.group};
}

/* The tiles of keys that queries [from, to] of a document see some of, as keys. */
struct span {
    int64_t from, to;
};
__device__ static inline span keys_seen(const pattern &p, const document &d, int64_t from,
                                        int64_t to) {
    const int64_t shift = shift_of(p, d);
    const int64_t end = p.causal ? min(d.nk, to + shift + 1) : d.nk;
    const int64_t begin = p.window > 0 ? from + shift - p.window + 1 : 0;
    return {max((int64_t)0, begin) / TILE * TILE, end};
}

#endif
