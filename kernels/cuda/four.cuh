/* Four neighbors of a row at a time: one access of 16 bytes of F32 or 8 of BF16 where their address
 * allows, else one per element. */
#ifndef AX_KERNELS_CUDA_FOUR_CUH
#define AX_KERNELS_CUDA_FOUR_CUH

#include "kernels/cuda/numbers.cuh"

struct four {
    float x[4];
};

template <class T> __device__ static inline bool is_aligned(const void *p) {
    return (uintptr_t)p % sizeof(T) == 0;
}

/* Four elements at an address that allows one access. By intrinsics: plain accesses would be merged with those
 * one by one, and split. */
__device__ static inline four load_aligned(const float *p) {
    const float4 v = __ldca((const float4 *)p);
    return {{v.x, v.y, v.z, v.w}};
}
__device__ static inline four load_aligned(const bf16 *p) {
    const uint2 v = __ldca((const uint2 *)p);
    four out;
    bf16_pair_to_f32(v.x, out.x[0], out.x[1]);
    bf16_pair_to_f32(v.y, out.x[2], out.x[3]);
    return out;
}

/* The first n of four elements at p, the others 0. n ≤ 0: none. */
__device__ static inline four load_four(const float *p, int64_t n) {
    if (n >= 4 && is_aligned<float4>(p))
        return load_aligned(p);
    four out;
    AX_UNROLL
    for (int i = 0; i < 4; i++)
        out.x[i] = i < n ? p[i] : 0;
    return out;
}
__device__ static inline four load_four(const bf16 *p, int64_t n) {
    if (n >= 4 && is_aligned<uint2>(p))
        return load_aligned(p);
    const uint16_t *bits = (const uint16_t *)p;
    four out;
    AX_UNROLL
    for (int i = 0; i < 4; i++)
        out.x[i] = i < n ? bf16_to_f32(bits[i]) : 0;
    return out;
}

__device__ static inline void store_four(float *p, int64_t n, const four &v) {
    if (n >= 4 && is_aligned<float4>(p)) {
        *(float4 *)p = make_float4(v.x[0], v.x[1], v.x[2], v.x[3]);
        return;
    }
    AX_UNROLL
    for (int i = 0; i < 4; i++)
        if (i < n)
            p[i] = v.x[i];
}
__device__ static inline void store_four(uint16_t *p, int64_t n, const uint16_t (&v)[4]) {
    if (n >= 4 && is_aligned<uint2>(p)) {
        *(uint2 *)p = make_uint2(v[0] | (uint32_t)v[1] << 16, v[2] | (uint32_t)v[3] << 16);
        return;
    }
    AX_UNROLL
    for (int i = 0; i < 4; i++)
        if (i < n)
            p[i] = v[i];
}
__device__ static inline void store_four(bf16 *p, int64_t n, const four &v) {
    const uint16_t bits[4] = {f32_to_bf16(v.x[0]), f32_to_bf16(v.x[1]), f32_to_bf16(v.x[2]),
                              f32_to_bf16(v.x[3])};
    store_four((uint16_t *)p, n, bits);
}

/* Elements i … i + 3 of n of an array that is F32 or BF16, which is known while running only. */
__device__ static inline four load_four(enum ax_dtype dtype, const void *p, int64_t i, int64_t n) {
    return dtype == AX_BF16 ? load_four((const bf16 *)p + i, n - i)
                            : load_four((const float *)p + i, n - i);
}

/* The same as they are in memory: F32 a word each, of 16 bits two in a word. Nothing waits for a load before what
 * comes of it is computed, so that several can be on their way. */
struct raw_four {
    uint32_t word[4];
    __device__ uint16_t half(int k) const {
        return (uint16_t)(word[k / 2] >> 16 * (k % 2));
    }
};
__device__ static inline raw_four load_raw(enum ax_dtype dtype, const void *p, int64_t i,
                                           int64_t n) {
    raw_four out = {};
    if (dtype == AX_F32) {
        const uint32_t *at = (const uint32_t *)p + i;
        if (n - i >= 4 && is_aligned<uint4>(at)) {
            const uint4 v = *(const uint4 *)at;
            return {{v.x, v.y, v.z, v.w}};
        }
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            out.word[k] = i + k < n ? at[k] : 0;
        return out;
    }
    const uint16_t *at = (const uint16_t *)p + i;
    if (n - i >= 4 && is_aligned<uint2>(at)) {
        const uint2 v = *(const uint2 *)at;
        return {{v.x, v.y, 0, 0}};
    }
    AX_UNROLL
    for (int k = 0; k < 4; k++)
        out.word[k / 2] |= i + k < n ? (uint32_t)at[k] << 16 * (k % 2) : 0;
    return out;
}
__device__ static inline four values_of(enum ax_dtype dtype, const raw_four &raw) {
    four out;
    AX_UNROLL
    for (int k = 0; k < 4; k++)
        out.x[k] = dtype == AX_F32 ? __uint_as_float(raw.word[k]) : bf16_to_f32(raw.half(k));
    return out;
}

__device__ static inline void store_four(enum ax_dtype dtype, void *p, int64_t i, int64_t n,
                                         const four &v) {
    if (dtype == AX_BF16)
        store_four((bf16 *)p + i, n - i, v);
    else
        store_four((float *)p + i, n - i, v);
}

#endif
