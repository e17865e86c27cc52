/* What a warp does with the tensor cores of sm_80 and later: products of bf16 fragments that are summed in
 * F32, loading of fragments from shared memory, and copies to shared memory that no thread waits for until
 * it says so. PTX ISA: mma.m16n8k16, ldmatrix, cp.async. The emulator has the same functions
 * (tests/doubles/cuda/mma.h).
 *
 * Fragments of a lane, with g = lane / 4 and t = lane % 4; a register has two neighbors, the first below:
 *   A 16×16: rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8 (and the next one)
 *   B 16×8:  rows 2t, 2t + 8 (and the next one) of column g
 *   C 16×8:  (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1), in F32
 * so that two C side by side, rounded, are an A. */
#ifndef AX_KERNELS_CUDA_MMA_CUH
#define AX_KERNELS_CUDA_MMA_CUH

#include "kernels/cuda/kernel.cuh"

#ifndef AX_EMULATED_MMA

/* An address in shared memory, in bytes. */
typedef uint32_t shared_at;
__device__ static inline shared_at shared_of(const void *p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* As the hardware counts. */
__device__ static inline uint32_t shared_number(shared_at at) {
    return at;
}
/* The first multiple of a power of two from there on. */
__device__ static inline shared_at shared_aligned(shared_at at, int bytes) {
    return (at + bytes - 1) & -bytes;
}

/* c += a · b. All lanes of the warp, here and below, but for copies. */
__device__ static inline void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four matrices of 8 rows of 16 bytes; lane l has the address of row l % 8 of matrix l / 8. Register i
 * gets elements (g, 2t) and (g, 2t + 1) of matrix i; `transposed`, (2t, g) and (2t + 1, g). */
__device__ static inline void load_matrices(uint32_t (&x)[4], shared_at row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}
__device__ static inline void load_transposed(uint32_t (&x)[4], shared_at row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(row)
                 : "memory");
}

/* Starts copies of 16 or 4 bytes, both sides at multiples of that; if not `there`, of zeros. They may be done
 * at any time until this thread has waited, and other threads see them after a barrier behind that. */
__device__ static inline void copy_16(shared_at to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ static inline void copy_4(shared_at to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                 : "memory");
}
/* Ends a batch of copies, which may be none. */
__device__ static inline void copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for all of this thread's batches but the last `Pending` ones. */
template <int Pending> __device__ static inline void copy_wait_but() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
/* Waits for all copies that this thread has started. */
__device__ static inline void copy_wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Rounded to bf16, `low` in the lower half. */
__device__ static inline uint32_t round_pair(float low, float high) {
    uint32_t x;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
    return x;
}

/* 2^x, off by 2 units in the last place; 0 below 2⁻¹²⁶. */
__device__ static inline float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

#endif
