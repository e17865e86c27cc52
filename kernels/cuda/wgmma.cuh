/* What four warps, a group of 128 neighboring threads, do with the tensor cores of sm_90a: products of bf16
 * tiles that are summed in F32 while the threads do something else. The right side, and if it is not in
 * registers, the left one, are read from shared memory. PTX ISA: wgmma. The emulator has the same functions
 * (tests/doubles/cuda/wgmma.h); other GPUs have none of them (AX_WGMMA).
 *
 * Warp w of the group has rows 16·w … 16·w + 15 of the left side and of the sums, as fragments A and C of mma.cuh:
 * c[n] are 8 columns. */
#ifndef AX_KERNELS_CUDA_WGMMA_CUH
#define AX_KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/mma.cuh"

#define GROUP_THREADS 128

/* Whether this compilation has them: that of the host knows their names. */
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define AX_WGMMA
#endif

/* ---- operands in shared memory ---- */

/* A matrix descriptor: where a tile is, in units of 16 bytes, and how it goes on. `offset` is apart, so that a tile's
 * descriptors differ by constants. */
typedef uint64_t wgmma_tile;
__device__ static inline wgmma_tile wgmma_tile_at(shared_at at, int offset, int leading,
                                                  int stride) {
    constexpr uint32_t SWIZZLE_128 = 1;
    const uint32_t low = (shared_number(at) >> 4) + ((uint32_t)leading >> 4 << 16);
    const uint32_t high = (uint32_t)stride >> 4 | SWIZZLE_128 << 30;
    return (low + ((uint32_t)offset >> 4)) | (uint64_t)high << 32;
}

/* Rows of Cols elements, as panels of 64 columns, 128 bytes, from a multiple of 1024 bytes on. Chunk c of a panel's row r,
 * 16 bytes, is where chunk c ^ r % 8 would be: the layout "128-byte swizzle". */
template <int Rows, int Cols> struct panels {
    static constexpr int PANEL = Rows * 128, BYTES = PANEL * (Cols / 64);
    static_assert(Rows % 8 == 0 && Cols % 64 == 0, "whole swizzles");
    shared_at at;
    __device__ shared_at chunk(int row, int c) const {
        return at + c / 8 * PANEL + row * 128 + ((c % 8 ^ row % 8) << 4);
    }
    /* For either side: its rows from `row` on, a multiple of 8, with elements [16·k, 16·k + 16) of them. */
    __device__ wgmma_tile rows(int row, int k) const {
        return wgmma_tile_at(at + row * 128, k / 4 * PANEL + k % 4 * 32, 16, 1024);
    }
    /* For a right side whose columns are the tile's: elements [16·k, 16·k + 16) of each. */
    __device__ wgmma_tile columns(int k) const {
        return wgmma_tile_at(at, 16 * k * 128, PANEL, 1024);
    }
};

#ifndef AX_EMULATED_MMA
#ifdef AX_WGMMA

/* ---- order ---- */

/* What this thread has written to shared memory, copies that it has waited for, too, is there for wgmma behind a
 * barrier. */
__device__ static inline void shared_for_wgmma() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Before products whose sums or left side were written in registers. All threads of the group, here and below. */
__device__ static inline void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Ends a batch of products. */
__device__ static inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits until at most Pending batches are not done. Sums must not be touched from their product until then, nor
 * what it reads be written. */
template <int Pending> __device__ static inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/* Behind that: the compiler reads these sums no earlier. */
template <int Blocks> __device__ static inline void wgmma_done(float (&c)[Blocks][4]) {
    AX_UNROLL
    for (int i = 0; i < Blocks * 4; i++)
        asm volatile("" : "+f"(c[i / 4][i % 4])::"memory");
}

/* ---- products ---- */

#define AX_SUMS_8(i)                                                                               \
    "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3]), "+f"(c[i + 1][0]),                 \
        "+f"(c[i + 1][1]), "+f"(c[i + 1][2]), "+f"(c[i + 1][3])
#define AX_SUMS_64  AX_SUMS_8(0), AX_SUMS_8(2), AX_SUMS_8(4), AX_SUMS_8(6)
#define AX_SUMS_128 AX_SUMS_64, AX_SUMS_8(8), AX_SUMS_8(10), AX_SUMS_8(12), AX_SUMS_8(14)
#define AX_NAMES_64                                                                                \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "   \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define AX_NAMES_128                                                                               \
    AX_NAMES_64                                                                                    \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, "      \
    "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
/* Products of N columns, with names of the operands behind the sums. */
#define AX_PRODUCT(N, left, right, add, transposed)                                                \
    "{.reg .pred p; setp.ne.b32 p, " add ", 0; "                                                   \
    "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 "                                    \
    "{" AX_NAMES_##N "}, " left ", " right ", p, 1, 1, " transposed ";}"

/* c += a · b, or without Add, c = a · b, over 16 elements. Transposed: b is of columns(), else of rows(). */
template <bool Transposed, bool Add>
__device__ static inline void wgmma(float (&c)[8][4], const uint32_t (&a)[4], wgmma_tile b) {
    asm volatile(AX_PRODUCT(64, "{%32, %33, %34, %35}", "%36", "%37", "%38")
                 : AX_SUMS_64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)Add),
                   "n"((int)Transposed));
}
template <bool Transposed, bool Add>
__device__ static inline void wgmma(float (&c)[16][4], const uint32_t (&a)[4], wgmma_tile b) {
    asm volatile(AX_PRODUCT(128, "{%64, %65, %66, %67}", "%68", "%69", "%70")
                 : AX_SUMS_128
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)Add),
                   "n"((int)Transposed));
}
/* With a left side of rows() in shared memory. */
template <bool Transposed, bool Add>
__device__ static inline void wgmma(float (&c)[8][4], wgmma_tile a, wgmma_tile b) {
    asm volatile(AX_PRODUCT(64, "%32", "%33", "%34", "0, %35")
                 : AX_SUMS_64
                 : "l"(a), "l"(b), "n"((int)Add), "n"((int)Transposed));
}
template <bool Transposed, bool Add>
__device__ static inline void wgmma(float (&c)[16][4], wgmma_tile a, wgmma_tile b) {
    asm volatile(AX_PRODUCT(128, "%64", "%65", "%66", "0, %67")
                 : AX_SUMS_128
                 : "l"(a), "l"(b), "n"((int)Add), "n"((int)Transposed));
}

#endif
#endif

#endif
