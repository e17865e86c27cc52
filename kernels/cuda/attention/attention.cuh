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

#include "kernels/cuda/attention/pattern.cuh"
#include "kernels/cuda/four.cuh"

#define TILE     32  /* rows, and columns of scores */
#define CHUNK    64  /* columns of a head in shared memory */
#define SLICE    128 /* columns of a result per block */
#define THREADS  128
#define RESIDENT 3 /* blocks of an SM at a time, for up to 168 registers: 128 do not do */
#define PITCH    (CHUNK / 4 + 1) /* float4 from a row of a chunk to the next: no bank conflicts */

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

#endif
