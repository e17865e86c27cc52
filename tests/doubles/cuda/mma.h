/* What kernels/cuda/mma.cuh has of the tensor cores, for the host: lanes wait for each other, and each
 * computes its fragment from those of the others. Rows for load_matrices are read when their lane arrives, as early as
 * they may be. A copy to shared memory is done when its thread waits, as late as it may be; until then NaN
 * patterns are there, as it may be done immediately. */
#ifndef AX_TESTS_DOUBLES_CUDA_MMA_H
#define AX_TESTS_DOUBLES_CUDA_MMA_H

#include "tests/doubles/cuda/fibres.h"

#define AX_EMULATED_MMA

typedef char *shared_at;
static inline shared_at shared_of(const void *p) {
    return (shared_at)p;
}
/* As a GPU counts, which has something before a block's dynamic memory, too. */
static inline uint32_t shared_number(shared_at at) {
    return (uint32_t)(at - (shared_at)cu_emu::dyn_smem()) + cu_emu::DYNAMIC_AT;
}
static inline shared_at shared_aligned(shared_at at, int bytes) {
    return at + (-shared_number(at) & (uint32_t)(bytes - 1));
}

namespace cu_emu {
void in_shared(const char *at, size_t bytes); /* or dies */

__attribute__((always_inline)) inline float half_of(uint64_t word, int half) {
    const uint32_t u = (uint32_t)(word >> 16 * half & 0xffffu) << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void load_matrices(uint32_t (&x)[4], const char *row, bool transposed);
void copy_start(char *to, const void *from, bool there, size_t bytes);
void copy_finish();
void copy_commit();
void copy_wait_but(int pending);
} // namespace cu_emu

#define CU_EMU_INLINE static inline __attribute__((always_inline)) void
CU_EMU_INLINE mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    cu_emu::mma(c, a, b0, b1);
}
CU_EMU_INLINE load_matrices(uint32_t (&x)[4], shared_at row) {
    cu_emu::load_matrices(x, row, false);
}
CU_EMU_INLINE load_transposed(uint32_t (&x)[4], shared_at row) {
    cu_emu::load_matrices(x, row, true);
}
static inline void copy_16(shared_at to, const void *from, bool there) {
    cu_emu::copy_start(to, from, there, 16);
}
static inline void copy_4(shared_at to, const void *from, bool there) {
    cu_emu::copy_start(to, from, there, 4);
}
static inline void copy_commit() {
    cu_emu::copy_commit();
}
template <int Pending> static inline void copy_wait_but() {
    cu_emu::copy_wait_but(Pending);
}
static inline void copy_wait() {
    cu_emu::copy_finish();
}
static inline uint32_t round_pair(float low, float high) {
    uint32_t x[2];
    const float f[2] = {low, high};
    for (int i = 0; i < 2; i++) {
        uint32_t u;
        memcpy(&u, &f[i], sizeof u);
        x[i] = (u & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    }
    return x[0] | x[1] << 16;
}
static inline float power_of_two(float x) {
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0 : y;
}

#endif
