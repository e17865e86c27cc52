/* Tools that kernels share: launching, the types of a call, reductions. Compiled by nvcc, or by a
 * C++ compiler with headers of its own (tests/doubles/cuda/), which define the next section as well.
 *
 * Every sum has a fixed order: a block's threads add strided parts, then lanes and warps are added
 * in one order, and partial sums of blocks by one block. No atomics on floats. Blocks have a
 * multiple of 32 threads. */
#ifndef AX_KERNELS_CUDA_KERNEL_CUH
#define AX_KERNELS_CUDA_KERNEL_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <type_traits>

#include "kernels/cuda/cuda.h"

typedef __nv_bfloat16 bf16;

/* ---- launching ---- */

#ifndef AX_LAUNCH
#define AX_UNROLL _Pragma("unroll") /* before a loop: arrays that it indexes are to be registers */
/* A kernel has up to 48 KiB of shared memory unless it is allowed more. If it may not have so much, the
 * launch fails as well. */
template <class K> static inline void ax_allow_shared(K *kernel, size_t bytes) {
    if (bytes > (size_t)48 << 10)
        (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}
#define AX_LAUNCH(q, kernel, grid, block, shared, ...)                                             \
    (ax_allow_shared(kernel, (size_t)(shared)),                                                    \
     kernel<<<dim3(grid), dim3(block), (size_t)(shared), ax_cuda_stream(q)>>>(__VA_ARGS__),        \
     ax_cuda_check(cudaGetLastError(), #kernel))
#define AX_SHARED(type, name, extent) __shared__ type name extent
/* An argument of a kernel that threads index: they would copy it first. */
#define AX_INDEXED const __grid_constant__
#define AX_DYNAMIC_SHARED(type, name)                                                              \
    extern __shared__ __align__(16) unsigned char ax_dynamic_shared[];                             \
    type *name = (type *)ax_dynamic_shared
/* The device's clock, in seconds since any time. */
__device__ static inline double device_seconds() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return 1e-9 * (double)ns;
}
#endif

/* Blocks of `threads` that cover n elements, as a grid of one dimension (at most 2³¹ − 1). */
static inline unsigned blocks_of(int64_t n, int threads) {
    return (unsigned)((n + threads - 1) / threads);
}

/* The number of this thread in a grid of one dimension. */
__device__ static inline int64_t thread_number() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}

/* ---- types ---- */

/* f((E *)0) with the C++ type of a dtype, F32 or BF16. */
template <class F> static inline enum ax_status by_real(enum ax_dtype dtype, F f) {
    return dtype == AX_BF16 ? f((bf16 *)nullptr) : f((float *)nullptr);
}

/* The same of two: f(type of compute, of residual). */
template <class F>
static inline enum ax_status by_types(enum ax_dtype compute, enum ax_dtype residual, F f) {
    return compute == AX_F32     ? f((float *)nullptr, (float *)nullptr)
           : residual == AX_BF16 ? f((bf16 *)nullptr, (bf16 *)nullptr)
                                 : f((bf16 *)nullptr, (float *)nullptr);
}
#define AX_TYPE(pointer) std::remove_pointer_t<decltype(pointer)>

/* A tensor of two dimensions as kernels see it. */
template <class E> struct rows_of {
    E *data;
    int64_t stride; /* elements from a row to the next */
    __device__ E &at(int64_t row, int64_t col) const {
        return data[row * stride + col];
    }
};
template <class E> static inline rows_of<E> as_rows(const struct ax_tensor *t) {
    return {(E *)t->data, t->row_stride};
}

/* ---- reductions ---- */

struct sum_op {
    template <class T> __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct max_op {
    template <class T> __device__ T operator()(T a, T b) const {
        return a > b ? a : b;
    }
};

/* A reduction over a warp's 32 values; all lanes get the result. */
template <class Op, class T> __device__ static inline T warp_reduce(T x) {
    for (int step = 16; step > 0; step /= 2)
        x = Op()(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* A reduction over all threads of a block; all threads must call it and get the result. `identity`
 * is used for warps that do not exist. */
template <class Op, class T> __device__ static inline T block_reduce(T x, T identity) {
    AX_SHARED(T, parts, [32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_reduce<Op>(x);
    __syncthreads(); /* the last call's parts have been read */
    if (lane == 0)
        parts[warp] = x;
    __syncthreads();
    return warp_reduce<Op>(lane < warps ? parts[lane] : identity);
}
template <class T> __device__ static inline T block_sum(T x) {
    return block_reduce<sum_op>(x, T(0));
}

#endif
