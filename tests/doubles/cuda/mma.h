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
inline void in_shared(const char *at, size_t bytes) {
    const char *first = (const char *)dyn_smem();
    if (at < first || at + bytes > first + blk->dyn_bytes)
        die("an address that is not in the block's dynamic shared memory");
    if ((uintptr_t)at % bytes)
        die("misaligned address in shared memory");
}

__attribute__((always_inline)) inline float half_of(uint64_t word, int half) {
    const uint32_t u = (uint32_t)(word >> 16 * half & 0xffffu) << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* A lane's four sums. Registers are two to a slot: a[0 … 3], b0, b1; of A a lane reads two rows and of B two columns,
 * each spread over four lanes. A third of the emulator's time, were it compiled as the rest. */
__attribute__((noinline, optimize("O3"), no_sanitize("undefined"))) inline void
add_products(float (&c)[4], const uint64_t (*slot)[SLOTS], int lane) {
    float rows[2][16], cols[2][16];
    for (int k = 0; k < 16; k++) {
        const int of = k % 8 / 2;
        for (int i = 0; i < 2; i++) {
            rows[i][k] = half_of(slot[lane / 4 * 4 + of][k / 8], 2 * i + k % 2);
            cols[i][k] = half_of(slot[(2 * (lane % 4) + i) * 4 + of][2], k / 8 * 2 + k % 2);
        }
    }
    for (int i = 0; i < 4; i++) {
        double sum = 0; /* exact products, summed in more than F32, as the hardware does */
        for (int k = 0; k < 16; k++)
            sum += (double)rows[i / 2][k] * (double)cols[i % 2][k];
        c[i] = (float)((double)c[i] + sum);
    }
}

__attribute__((noinline)) inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
    const uint64_t mine[SLOTS] = {a[0] | (uint64_t)a[1] << 32, a[2] | (uint64_t)a[3] << 32,
                                  b0 | (uint64_t)b1 << 32};
    const unsigned g = warp_meet(0xffffffffu, mine, 3, false, __builtin_return_address(0));
    add_products(c, blk->warps[blk->cur->tid / 32].slot[g], blk->cur->tid % 32);
}

__attribute__((noinline)) inline void load_matrices(uint32_t (&x)[4], const char *row,
                                                    bool transposed) {
    uint64_t mine[2];
    in_shared(row, 16);
    memcpy(mine, row, sizeof mine);
    const int lane = blk->cur->tid % 32;
    const unsigned g = warp_meet(0xffffffffu, mine, 2, false, __builtin_return_address(0));
    const uint64_t(*slot)[SLOTS] = blk->warps[blk->cur->tid / 32].slot[g];
    for (int i = 0; i < 4; i++) {
        x[i] = 0;
        for (int half = 0; half < 2; half++) {
            const int one = lane / 4, two = 2 * (lane % 4) + half;
            const int r = transposed ? two : one, col = transposed ? one : two;
            const uint64_t bits = slot[8 * i + r][col / 4] >> 16 * (col % 4) & 0xffffu;
            x[i] |= (uint32_t)bits << 16 * half;
        }
    }
}

inline void copy_start(char *to, const void *from, bool there, size_t bytes) {
    in_shared(to, bytes);
    if ((uintptr_t)from % bytes)
        die("misaligned address of a copy's source");
    memset(to, 0xff, bytes);
    blk->copies[blk->cur->tid].push_back({to, there ? (const char *)from : nullptr, bytes});
}
inline void copy_finish() {
    for (const Copy &c : blk->copies[blk->cur->tid]) {
        blk->unseen[blk->cur->tid] |= c.bytes > 0;
        if (c.from)
            memcpy(c.to, c.from, c.bytes);
        else
            memset(c.to, 0, c.bytes);
    }
    blk->copies[blk->cur->tid].clear();
}
/* A batch ends with a copy of no bytes. */
inline void copy_commit() {
    blk->copies[blk->cur->tid].push_back({(char *)dyn_smem(), nullptr, 0});
}
inline void copy_wait_but(int pending) {
    std::vector<Copy> &all = blk->copies[blk->cur->tid];
    size_t n = all.size();
    for (int batches = 0; n > 0; n--)
        if (all[n - 1].bytes == 0 && batches++ == pending)
            break;
    std::vector<Copy> later(all.begin() + (std::ptrdiff_t)n, all.end());
    all.resize(n);
    copy_finish();
    all = later;
}
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
