/* CUDA C++ as kernels write it, for a C++ compiler of the host (fibres.h). */
#ifndef AX_TESTS_DOUBLES_CUDA_CUDA_RUNTIME_H
#define AX_TESTS_DOUBLES_CUDA_CUDA_RUNTIME_H

#include "tests/doubles/cuda/fibres.h"
#include "tests/doubles/cuda/mma.h"
#include "tests/doubles/cuda/stream.h"
#include "tests/doubles/cuda/wgmma.h"

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline float4 make_float4(float a, float b, float c, float d) {
    return {a, b, c, d};
}
static inline uint2 make_uint2(unsigned a, unsigned b) {
    return {a, b};
}
static inline int4 make_int4(int a, int b, int c, int d) {
    return {a, b, c, d};
}

#define threadIdx       cu_emu::tid3
#define blockIdx        cu_emu::blk->bid
#define blockDim        cu_emu::blk->block
#define gridDim         cu_emu::blk->grid
#define __syncthreads() cu_emu::barrier()
static inline __attribute__((always_inline)) int __syncthreads_or(int p) {
    cu_emu::barrier(p);
    return cu_emu::blk->pred_res[0];
}
static inline __attribute__((always_inline)) int __syncthreads_count(int p) {
    cu_emu::barrier(p);
    return (int)cu_emu::blk->pred_res[2];
}
#define __syncwarp(...) ((void)cu_emu::ballot(cu_emu_mask(__VA_ARGS__), 0))
static inline uint32_t cu_emu_mask(uint32_t m = 0xffffffffu) {
    return m;
}
#define CU_EMU_AI template <class T> static inline __attribute__((always_inline)) T
CU_EMU_AI __shfl_sync(uint32_t m, T v, int s, int w = 32) {
    return cu_emu::shfl(m, v, s, w, 0);
}
CU_EMU_AI __shfl_xor_sync(uint32_t m, T v, int s, int w = 32) {
    return cu_emu::shfl(m, v, s, w, 1);
}
CU_EMU_AI __shfl_up_sync(uint32_t m, T v, int s, int w = 32) {
    return cu_emu::shfl(m, v, s, w, 2);
}
CU_EMU_AI __shfl_down_sync(uint32_t m, T v, int s, int w = 32) {
    return cu_emu::shfl(m, v, s, w, 3);
}
static inline __attribute__((always_inline)) uint32_t __ballot_sync(uint32_t m, int p) {
    return cu_emu::ballot(m, p);
}
static inline __attribute__((always_inline)) int __any_sync(uint32_t m, int p) {
    return cu_emu::ballot(m, p) != 0;
}
static inline __attribute__((always_inline)) int __all_sync(uint32_t m, int p) {
    return cu_emu::ballot(m, p) == m;
}
template <class T> T __ldg(const T *p) {
    return *cu_emu::aligned(p);
}
template <class T> T __ldcs(const T *p) {
    return *cu_emu::aligned(p);
}
template <class T> T __ldca(const T *p) { // by bytes: its type may not be that of what is there
    T v;
    memcpy(&v, cu_emu::aligned(p), sizeof v);
    return v;
}
template <class T> void __stwb(T *p, T v) {
    memcpy(cu_emu::aligned(p), &v, sizeof v);
}
template <class T> void __stcs(T *p, T v) {
    *cu_emu::aligned(p) = v;
}
template <class T> void __stcg(T *p, T v) {
    *cu_emu::aligned(p) = v;
}
template <class T> T atomicAdd(T *p, T v) {
    T o = *p;
    *p = o + v;
    return o;
} // one OS thread: plain code is atomic
template <class T> T atomicMax(T *p, T v) {
    T o = *p;
    if (v > o)
        *p = v;
    return o;
}
template <class T> T atomicCAS(T *p, T c, T v) {
    T o = *p;
    if (o == c)
        *p = v;
    return o;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline double __dmul_rn(double a, double b) { // never contracted: -ffp-contract=off
    return a * b;
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline unsigned __float_as_uint(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float __uint_as_float(unsigned u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline float cu_emu_rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
#define rsqrtf           cu_emu_rsqrtf // macros: glibc already declares __expf, and rsqrtf from 2.41 on
#define __expf           expf
#define __logf           logf
#define __fdividef(a, b) ((a) / (b))
using std::max;
using std::min;

/* ---- what kernels/cuda/kernel.cuh would define ---- */

/* Arguments are copied now, as <<<>>> does, and the kernel runs when the stream gets there. */
#define AX_LAUNCH(q, kernel, grid, block, shared, ...)                                             \
    ax_emulated_launch(ax_cuda_stream(q), #kernel, dim3(grid), dim3(block), (size_t)(shared),      \
                       [](auto... ax_args) { return [=] { kernel(ax_args...); }; }(__VA_ARGS__))
#define AX_SHARED(type, name, extent)                                                              \
    static thread_local type name extent;                                                          \
    cu_emu::touch((void *)&name, sizeof name)
#define AX_DYNAMIC_SHARED(type, name) type *name = (type *)cu_emu::dyn_smem()
#define AX_UNROLL
#define AX_INDEXED const
static inline double device_seconds() {
    return cu_emu::seconds();
}

#endif
