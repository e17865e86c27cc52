/* Searching a row of logits without sorting it, by one block: keys that are ordered as the logits are, and
 * the largest key for which something holds, bit after bit, each by one pass over the row. */
#ifndef AX_KERNELS_CUDA_CHOOSE_CUH
#define AX_KERNELS_CUDA_CHOOSE_CUH

#include "kernels/cuda/kernel.cuh"

#define ROW_THREADS 1024 /* at most */

/* Threads for a row of n: sums are in an order that depends on it alone. */
static inline int row_threads(int64_t n) {
    return n >= 16384 ? ROW_THREADS : n >= 2048 ? 256 : 64;
}

/* Larger for larger z; 0 for NaN. Both zeros have one key. */
__device__ static inline uint32_t key_of(float z) {
    const uint32_t u = __float_as_uint(z == 0 ? 0.0f : z);
    return z != z ? 0 : (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
__device__ static inline float value_of(uint32_t key) {
    return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

/* The largest x below 2^bits for which holds(x), which is true up to there; 0 if for none. All threads
 * of the block get it. */
template <class P> __device__ static inline uint32_t largest(int bits, P holds) {
    uint32_t x = 0;
    for (int bit = bits - 1; bit >= 0; bit--)
        if (holds(x | 1u << bit))
            x |= 1u << bit;
    return x;
}

/* How many of 0 … n − 1 fit. */
template <class P> __device__ static inline int64_t count_of(int64_t n, P fits) {
    int64_t count = 0;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
        count += fits(c) ? 1 : 0;
    return block_sum(count);
}

/* The key of the k-th largest of a row, 1 ≤ k ≤ n. */
template <class E> __device__ static inline uint32_t kth_key(const E *row, int64_t n, int64_t k) {
    return largest(32, [&](uint32_t x) {
        return count_of(n, [&](int64_t c) { return key_of((float)row[c]) >= x; }) >= k;
    });
}

#endif
