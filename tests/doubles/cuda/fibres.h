/* Runs CUDA kernels on the host: each thread of a block is a fibre, which runs until it meets the
 * others (a barrier, a shuffle, a vote) or returns. A block runs on one thread of the host, its warps in
 * an order that a seed chooses. Whoever meets the others at another place, or names lanes that are not
 * there, aborts with the thread's number; shared memory begins as NaN patterns, so that what is read
 * before it is written shows. Of the tensor cores and cp.async, what mma.h and wgmma.h have. No TMA, PTX or grids in
 * step. */
#ifndef AX_TESTS_DOUBLES_CUDA_FIBRES_H
#define AX_TESTS_DOUBLES_CUDA_FIBRES_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// one copy per OS thread = one copy per running block
#define __shared__ static thread_local
#define warpSize   32

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {
    }
};

namespace cu_emu {
enum State : uint8_t { FREE, RUN, WAIT_WARP, WAIT_GROUP, WAIT_BLOCK, DONE };
struct Fiber {
    void *sp;
    char *stack;
    int tid;
    uint3 at; /* its thread's threadIdx */
    State st;
};
enum {
    DYNAMIC_AT = 1024 + 16
};                  // the number of the first byte of dynamic shared memory: no more than aligned
enum { SLOTS = 3 }; // 8 bytes each: what a lane brings to a meeting
struct WarpOp {
    uint32_t mask, arrived;
    const void *site;
    unsigned gen;
    uint64_t slot[2][32][SLOTS];
    uint32_t pred[2];
    bool multiplied[2];        /* whether somebody has computed … */
    double products[2][16][8]; /* … the sums of mma's products (mma.cpp) */
};
struct Copy { // to shared memory, started and not waited for; from nullptr: zeros
    char *to;
    const char *from;
    size_t bytes;
};
/* A product that a lane of a group of four warps has issued (wgmma.h). */
struct Product {
    float *sums,
        before[64]; /* before: of `sums`, unless it goes on with those of another product */
    bool continues, add, held, transposed;
    int columns;
    uint32_t left_registers[4]; /* held */
    uint64_t left, right;       /* descriptors */
};
struct Products { /* a lane's that nobody has waited for */
    std::vector<Product> issued;
    std::vector<size_t> batches; /* where they end */
};
struct Meeting { /* of a group's lanes */
    int arrived;
    const void *site;
};
struct Block {
    dim3 grid, block;
    uint3 bid;
    int n, next, live, at_barrier;
    bool begins; /* threads are started, one after the other */
    const void *bar_site;
    void (*body)(void *);
    void *arg;
    std::vector<Fiber> fibers;
    std::vector<int> order, owner; // owner[tid] = fiber index
    std::vector<WarpOp> warps;
    std::vector<uint8_t> exited;
    std::vector<char> dyn;
    size_t dyn_bytes;
    std::vector<std::vector<Copy>> copies; // of each thread
    std::vector<Products> products;
    std::vector<Meeting> groups;
    std::vector<uint8_t> unseen; // whether a thread has copied what wgmma does not see yet
    std::vector<std::pair<void *, unsigned>> statics;
    unsigned serial;
    void *sched_sp;
    Fiber *cur;
    unsigned pred_or, pred_and, pred_cnt, pred_res[3];
    ~Block() {
        for (Fiber &f : fibers)
            free(f.stack);
    }
};
inline thread_local Block
    *blk; /* the thread's: a pointer is read without a look whether it was made */
inline thread_local uint3 tid3;
inline unsigned schedule_seed = 0;   // 0 = ascending order; else blocks and threads are shuffled
inline const char *kernel_name = ""; /* the kernel that runs */

/* What kernels call is in this header and has the sanitizers' checks; how lanes meet is in fibres.cpp, and has none. */
[[noreturn]] void die(const char *what);
void to_others(); /* until somebody lets this lane run again */
void barrier(int p = 1);
/* Deposits n values, waits for the mask, and returns the generation whose slots are now complete. */
unsigned warp_meet(uint32_t mask, const uint64_t *v, int n, bool pred, const void *site);
template <class T>
__attribute__((noinline)) T shfl(uint32_t mask, T v, int src, int width, int kind) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>,
                  "shuffle moves 4 or 8 byte values");
    uint64_t raw = 0;
    memcpy(&raw, &v, sizeof v);
    const void *site = __builtin_return_address(0);
    int l = blk->cur->tid % 32, lo = l & ~(width - 1), s;
    if (kind == 0)
        s = lo + (src & (width - 1));
    else if (kind == 1)
        s = (l ^ src) < lo + width ? (l ^ src) : l;
    else if (kind == 2)
        s = l - src < lo ? l : l - src;
    else
        s = l + src >= lo + width ? l : l + src;
    WarpOp &o = blk->warps[blk->cur->tid / 32];
    unsigned g = warp_meet(mask, &raw, 1, 0, site);
    if (!(mask >> s & 1))
        die("shuffle reads a lane outside the mask");
    T r;
    memcpy(&r, &o.slot[g][s][0], sizeof r);
    return r;
}
uint32_t ballot(uint32_t mask, bool p);
double seconds();

void launch_blocks(const char *name, void (*body)(void *), void *arg, dim3 grid, dim3 block,
                   size_t smem);
template <class F> void launch(const char *name, F &&f, dim3 grid, dim3 block, size_t smem) {
    launch_blocks(
        name, [](void *a) { (*(std::remove_reference_t<F> *)a)(); }, (void *)&f, grid, block, smem);
}
/* Static shared memory: NaN-poisoned the first time each block reaches the declaration. */
void touch(void *p, size_t n);
inline void *dyn_smem() {
    return (void *)((((uintptr_t)blk->dyn.data() + 1023) & ~(uintptr_t)1023) + DYNAMIC_AT);
}
template <class T> T *aligned(T *p) {
    if ((uintptr_t)p % alignof(std::remove_const_t<T>))
        die("misaligned vector access");
    return p;
}
} // namespace cu_emu

#endif
