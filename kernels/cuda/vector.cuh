/* Rows that a thread reads and writes eight neighbors at a time, as float: by 16 bytes where addresses,
 * strides and widths are multiples of that, else one by one. Either way a thread has the same elements, so
 * sums have the same order. */
#ifndef AX_KERNELS_CUDA_VECTOR_CUH
#define AX_KERNELS_CUDA_VECTOR_CUH

#include "kernels/cuda/numbers.cuh"

#define AX_NEIGHBORS 8

__host__ __device__ static inline int64_t vectors_in(int64_t cols) {
    return (cols + AX_NEIGHBORS - 1) / AX_NEIGHBORS;
}

/* 8 neighbors in 16 bytes, or in twice that. By intrinsics: plain accesses would be merged with those one by
 * one, and split. */
__device__ static inline uint32_t pack(float one, float two) {
    return __bfloat16_as_ushort(bf16(one)) | (uint32_t)__bfloat16_as_ushort(bf16(two)) << 16;
}
__device__ static inline void load_wide(const bf16 *from, float (&x)[AX_NEIGHBORS]) {
    const uint4 v = __ldca((const uint4 *)from);
    bf16_pair_to_f32(v.x, x[0], x[1]);
    bf16_pair_to_f32(v.y, x[2], x[3]);
    bf16_pair_to_f32(v.z, x[4], x[5]);
    bf16_pair_to_f32(v.w, x[6], x[7]);
}
__device__ static inline void store_wide(bf16 *to, const float (&x)[AX_NEIGHBORS]) {
    const uint4 v = {pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])};
    __stwb((uint4 *)to, v);
}
__device__ static inline void load_wide(const float *from, float (&x)[AX_NEIGHBORS]) {
    const float4 a = __ldca((const float4 *)from), b = __ldca((const float4 *)from + 1);
    const float all[AX_NEIGHBORS] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
    for (int i = 0; i < AX_NEIGHBORS; i++)
        x[i] = all[i];
}
__device__ static inline void store_wide(float *to, const float (&x)[AX_NEIGHBORS]) {
    const float4 a = {x[0], x[1], x[2], x[3]}, b = {x[4], x[5], x[6], x[7]};
    __stwb((float4 *)to, a);
    __stwb((float4 *)to + 1, b);
}

/* Reads elements [0, n) of `from`, n ≤ 8, and takes 0 for those beyond; all 8 if `wide`. */
template <class E>
__device__ static inline void load_neighbors(const E *from, int64_t n, bool wide,
                                             float (&x)[AX_NEIGHBORS]) {
    if (wide) {
        load_wide(from, x);
        return;
    }
    for (int i = 0; i < AX_NEIGHBORS; i++)
        x[i] = i < n ? (float)from[i] : 0;
}

template <class E>
__device__ static inline void store_neighbors(E *to, int64_t n, bool wide,
                                              const float (&x)[AX_NEIGHBORS]) {
    if (wide) {
        store_wide(to, x);
        return;
    }
    for (int i = 0; i < AX_NEIGHBORS; i++)
        if (i < n)
            to[i] = E(x[i]);
}

/* A tensor of two dimensions, by neighbors. */
template <class E> struct vector_rows {
    E *data;
    int64_t stride, cols;
    bool wide;
    /* Elements from `col` on, of those before `end`. */
    __device__ void load(int64_t row, int64_t col, int64_t end, float (&x)[AX_NEIGHBORS]) const {
        load_neighbors(data + row * stride + col, end - col, wide, x);
    }
    __device__ void store(int64_t row, int64_t col, int64_t end,
                          const float (&x)[AX_NEIGHBORS]) const {
        store_neighbors(data + row * stride + col, end - col, wide, x);
    }
    __device__ void load(int64_t row, int64_t col, float (&x)[AX_NEIGHBORS]) const {
        load(row, col, cols, x);
    }
    __device__ void store(int64_t row, int64_t col, const float (&x)[AX_NEIGHBORS]) const {
        store(row, col, cols, x);
    }
};

/* `steps`: an OR of numbers that columns where vectors begin and end are made of. */
template <class E>
static inline vector_rows<E> as_vectors(const struct ax_tensor *t, int64_t steps) {
    const uint64_t bytes = (uint64_t)(uintptr_t)t->data | (uint64_t)t->row_stride * sizeof(E);
    return {(E *)t->data, t->row_stride, ax_tensor_row_len(t),
            bytes % 16 == 0 && steps % AX_NEIGHBORS == 0};
}
template <class E> static inline vector_rows<E> as_vectors(const struct ax_tensor *t) {
    return as_vectors<E>(t, ax_tensor_row_len(t));
}
/* A tensor of one dimension as a row. */
template <class E> static inline vector_rows<E> as_vector(const struct ax_tensor *t) {
    return {(E *)t->data, 0, t->shape[0],
            (uintptr_t)t->data % 16 == 0 && t->shape[0] % AX_NEIGHBORS == 0};
}

/* ---- who computes a row ---- */

/* By elements: blocks in x count rows, blocks in y and threads a row's items (`item_number`). */
struct row_launch {
    dim3 grid;
    unsigned threads;
};
static inline row_launch items_of(int64_t rows, int64_t items) {
    const int64_t threads = items < 256 ? (items + 31) / 32 * 32 : 256;
    return {dim3((unsigned)rows, blocks_of(items, (int)threads)), (unsigned)threads};
}
__device__ static inline int64_t item_number() {
    return (int64_t)blockIdx.y * blockDim.x + threadIdx.x;
}

/* Teams: a warp has a short row, of which each thread has 8 elements, and 8 rows are in a block; a longer
 * row has a block. blockDim.x threads share a row; threadIdx.y is its number in the block. */
#define AX_SHORT_ROW (32 * AX_NEIGHBORS)
static inline dim3 team_of(int64_t n) {
    const int64_t threads = (vectors_in(n) + 31) / 32 * 32;
    return n <= AX_SHORT_ROW ? dim3(32, 8) : dim3((unsigned)(threads < 1024 ? threads : 1024));
}
static inline unsigned team_blocks(int64_t rows, dim3 team) {
    return blocks_of(rows, (int)team.y);
}
__device__ static inline int64_t team_row() {
    return (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
}
template <class Op, class T> __device__ static inline T team_reduce(T x, T identity) {
    return blockDim.x == 32 ? warp_reduce<Op>(x) : block_reduce<Op>(x, identity);
}
template <class T> __device__ static inline T team_sum(T x) {
    return team_reduce<sum_op>(x, T(0));
}

#endif
