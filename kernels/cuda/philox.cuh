/* base/rng.h's numbers on the device: Philox4x32-10 (Salmon et al. 2011). */
#ifndef AX_KERNELS_CUDA_PHILOX_CUH
#define AX_KERNELS_CUDA_PHILOX_CUH

#include "kernels/cuda/kernel.cuh"

extern "C" {
#include "base/rng.h"
}

struct random_block {
    uint32_t c0, c1, c2, c3;

    /* Word i mod 4, without an array, which would not be in registers. */
    __device__ uint32_t word(uint64_t i) const {
        return i & 2 ? (i & 1 ? c3 : c2) : (i & 1 ? c1 : c0);
    }
};

/* ax_rng_block. */
__device__ static inline random_block random_block_of(ax_rng_key key, uint64_t index) {
    random_block b = {(uint32_t)index, (uint32_t)(index >> 32), key.step, key.tensor};
    uint32_t k0 = (uint32_t)key.seed, k1 = (uint32_t)(key.seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * b.c0, p1 = (uint64_t)0xCD9E8D57u * b.c2;
        b = {(uint32_t)(p1 >> 32) ^ b.c1 ^ k0, (uint32_t)p1, (uint32_t)(p0 >> 32) ^ b.c3 ^ k1,
             (uint32_t)p0};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return b;
}

#endif
