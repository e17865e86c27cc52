/* Searching a row of logits without sorting it, by one block. Numbers have keys, which are ordered as they are. The
 * largest ones go into a list, which is sorted; what a list does not hold is found as the largest key for which
 * something holds, bit after bit, each by one pass over the row. */
#ifndef AX_KERNELS_CUDA_CHOOSE_CUH
#define AX_KERNELS_CUDA_CHOOSE_CUH

#include "kernels/cuda/four.cuh"

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

/* f(c, z, m) for groups of four elements z of row[0 … end): of columns c … c + 3, of which m are there. From `c`
 * on, every `step`, which is a multiple of four. */
template <class E, class F>
__device__ static inline void each_four(const E *row, int64_t c, int64_t end, int64_t step, F f) {
    if ((uintptr_t)(row + c) % (4 * sizeof(E)) == 0) {
        for (; c + 3 * step + 4 <= end; c += 4 * step) {
            four z[4]; /* on their way at the same time */
            AX_UNROLL
            for (int k = 0; k < 4; k++)
                z[k] = load_aligned(row + c + k * step);
            AX_UNROLL
            for (int k = 0; k < 4; k++)
                f(c + k * step, z[k], 4);
        }
    }
    for (; c < end; c += step)
        f(c, load_four(row + c, end - c), (int)min((int64_t)4, end - c));
}

/* The same for one element at a time, of all that the block's thread has of a row of n: f(c, z). */
template <class E, class F> __device__ static inline void each_of(const E *row, int64_t n, F f) {
    const int64_t step = 4 * (int64_t)blockDim.x;
    each_four(row, 4 * (int64_t)threadIdx.x, n, step, [&](int64_t c, const four &z, int m) {
        AX_UNROLL
        for (int i = 0; i < 4; i++)
            if (i < m)
                f(c + i, z.x[i]);
    });
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

/* How many elements of a row of n fit: fits(c, z). */
template <class E, class P>
__device__ static inline int64_t count_of(const E *row, int64_t n, P fits) {
    int64_t count = 0;
    each_of(row, n, [&](int64_t c, float z) { count += fits(c, z) ? 1 : 0; });
    return block_sum(count);
}

/* The key of the k-th largest of a row, 1 ≤ k ≤ n. */
template <class E> __device__ static inline uint32_t kth_key(const E *row, int64_t n, int64_t k) {
    return largest(32, [&](uint32_t x) {
        return count_of(row, n, [&](int64_t, float z) { return key_of(z) >= x; }) >= k;
    });
}

/* ---- lists ---- */

#define LIST 4096 /* at most */

/* Elements of a row, in shared memory: keys, and below them their columns. */
struct list {
    unsigned long long *entry; /* [LIST] */
    int *n;                    /* may be more than LIST, which are not there */
    __device__ uint32_t key(int i) const {
        return (uint32_t)(entry[i] >> 32);
    }
    __device__ float value(int i) const {
        return value_of(key(i));
    }
    __device__ int64_t id(int i) const {
        return (int64_t)(uint32_t)entry[i];
    }
    __device__ void add(int64_t id, float z) const {
        const int at = atomicAdd(n, 1);
        if (at < LIST)
            entry[at] = (unsigned long long)key_of(z) << 32 | (uint32_t)id;
    }
};

/* A number that is reached by what is largest of at least j threads, and if possible of few more: by as many elements
 * of their row at least, and seldom by many more. −∞ if there are fewer threads. */
__device__ static inline float reached_by(int j, float own_largest) {
    const uint32_t key = key_of(own_largest) >> 12; /* 20 bits are enough */
    if (j > (int)blockDim.x)
        return -INFINITY;
    const uint32_t x =
        largest(20, [&](uint32_t least) { return __syncthreads_count(key >= least) >= j; });
    return x << 12 <= key_of(-INFINITY) ? -INFINITY : value_of(x << 12);
}

/* The largest first, of equal ones the last column. All threads. */
__device__ static inline void sort(const list &l) {
    const int n = *l.n;
    int size = 32;
    while (size < n)
        size *= 2;
    for (int i = n + threadIdx.x; i < size; i += blockDim.x)
        l.entry[i] = 0;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) { /* bitonic */
        for (int step = run / 2; step > 0; step /= 2) {
            for (int pair = threadIdx.x; pair < size / 2; pair += blockDim.x) {
                const int i = 2 * pair - (pair & (step - 1)), other = i + step;
                const unsigned long long x = l.entry[i], y = l.entry[other];
                if (((i & run) == 0) == (x < y)) {
                    l.entry[i] = y;
                    l.entry[other] = x;
                }
            }
            __syncthreads();
        }
    }
}

#endif
