/* What kernels/cuda/wgmma.cuh has of the tensor cores of sm_90a, for the host. A product is computed when its group waits for
 * it, as late as it may be: tiles that are overwritten before that are wrong, and sums are NaN until then.
 * Descriptors are decoded as the PTX ISA has them ("Matrix Descriptor Format", "Strides", "Swizzling Modes"). */
#ifndef AX_TESTS_DOUBLES_CUDA_WGMMA_H
#define AX_TESTS_DOUBLES_CUDA_WGMMA_H

#include "tests/doubles/cuda/mma.h"

namespace cu_emu {
void issue(Product p);
void commit();
void wait_products(size_t pending);
} // namespace cu_emu

template <bool Transposed, bool Add, int Blocks>
static inline void wgmma(float (&c)[Blocks][4], const uint32_t (&a)[4], uint64_t b) {
    cu_emu::issue(
        {c[0], {}, false, Add, true, Transposed, 8 * Blocks, {a[0], a[1], a[2], a[3]}, 0, b});
}
template <bool Transposed, bool Add, int Blocks>
static inline void wgmma(float (&c)[Blocks][4], uint64_t a, uint64_t b) {
    cu_emu::issue({c[0], {}, false, Add, false, Transposed, 8 * Blocks, {}, a, b});
}
static inline void shared_for_wgmma() {
    cu_emu::blk->unseen[cu_emu::blk->cur->tid] = 0;
}
static inline void wgmma_begin() {
}
static inline void wgmma_commit() {
    cu_emu::commit();
}
template <int Pending> static inline __attribute__((always_inline)) void wgmma_wait() {
    cu_emu::wait_products(Pending);
}
template <int Blocks> static inline void wgmma_done(float (&)[Blocks][4]) {
}

#endif
