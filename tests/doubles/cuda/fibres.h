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
#include <time.h>

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
inline size_t stack_bytes = 64 * 1024;
inline unsigned schedule_seed = 0; // 0 = ascending order; else a shuffled order per block
inline long switches = 0;
inline const char *kernel_name = ""; /* the kernel that runs */

[[noreturn]] inline void die(const char *what) {
    Block &b = *blk;
    fprintf(stderr, "cuda_emu: %s: block (%u,%u,%u) thread %d\n", what, b.bid.x, b.bid.y, b.bid.z,
            b.cur ? b.cur->tid : -1);
    for (Fiber &f : b.fibers)
        if (f.st == WAIT_WARP || f.st == WAIT_GROUP || f.st == WAIT_BLOCK) {
            fprintf(stderr, "  thread %d waits at %s\n", f.tid,
                    f.st == WAIT_WARP    ? "warp collective"
                    : f.st == WAIT_GROUP ? "wgmma_wait"
                                         : "__syncthreads");
        }
    abort();
}

// ---- context switch: callee-saved registers only, no system call ----
extern "C" void cu_emu_switch(void **save, void *to);
#if defined(__x86_64__)
__asm__(".text\n.weak cu_emu_switch\n.type cu_emu_switch,@function\ncu_emu_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
#else
#error "add an aarch64 cu_emu_switch or use ucontext here"
#endif
#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_start_switch_fiber(void **, const void *, size_t);
extern "C" void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
inline thread_local const void *main_lo;
inline thread_local size_t main_sz;
#endif

inline void to_sched() {
    Block &b = *blk;
    Fiber *me = b.cur;
    switches++;
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    __sanitizer_start_switch_fiber(&fake, main_lo, main_sz);
    cu_emu_switch(&me->sp, b.sched_sp);
    __sanitizer_finish_switch_fiber(fake, &main_lo, &main_sz);
#else
    cu_emu_switch(&me->sp, b.sched_sp);
#endif
}
inline void set_tid(int t) {
    unsigned bx = blk->block.x, by = blk->block.y;
    tid3 = {(unsigned)t % bx, (unsigned)t / bx % by, (unsigned)t / (bx * by)};
}
inline void warp_try_release(int w);
inline void block_try_release();
inline void take(Fiber *f) { // bind the next unstarted CUDA thread to this fiber
    Block &b = *blk;
    f->tid = b.order[b.next++];
    f->st = RUN;
    b.owner[f->tid] = (int)(f - b.fibers.data());
    set_tid(f->tid);
}
inline void entry() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &main_lo, &main_sz);
#endif
    for (;;) {
        Block &b = *blk;
        Fiber *f = b.cur;
        b.body(b.arg);
        if (!b.copies[f->tid].empty())
            die("a thread ends before it has waited for its copies");
        if (!b.products[f->tid].issued.empty())
            die("a thread ends before it has waited for its products");
        b.exited[f->tid] = 1;
        b.live--;
        f->st = DONE;
        b.owner[f->tid] = -1;
        warp_try_release(f->tid / 32);
        block_try_release(); // an exited thread no longer holds others back
        if (b.next < b.n) {
            take(f);
            continue;
        } // reuse the stack: barrier-free kernels never switch
        to_sched();
    }
}
inline void resume(Fiber *f) {
    Block &b = *blk;
    b.cur = f;
    set_tid(f->tid);
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
    __sanitizer_start_switch_fiber(&fake, f->stack, stack_bytes);
    cu_emu_switch(&b.sched_sp, f->sp);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    cu_emu_switch(&b.sched_sp, f->sp);
#endif
    b.cur = nullptr;
}
inline void new_fiber() {
    Block &b = *blk;
    b.fibers.push_back({});
    Fiber *f = &b.fibers.back();
    f->stack = (char *)aligned_alloc(64, stack_bytes);
    void **sp = (void **)(f->stack + stack_bytes) - 2; // keeps rsp % 16 == 8 at entry
    *sp = (void *)entry;
    sp -= 6;
    memset(sp, 0, 6 * sizeof(void *));
    f->sp = sp;
}
inline void run_block() {
    Block &b = *blk;
    b.serial++;
    b.next = 0;
    b.live = b.n;
    b.at_barrier = 0;
    b.bar_site = nullptr;
    b.pred_or = b.pred_cnt = 0;
    b.pred_and = 1;
    b.warps.assign((b.n + 31) / 32, WarpOp{});
    b.exited.assign(b.n, 0);
    b.groups.assign((b.n + 127) / 128, Meeting{});
    b.unseen.assign(b.n, 0);
    b.owner.assign(b.n, -1);
    for (Fiber &f : b.fibers)
        f.st = FREE;
    while (b.live) {
        bool moved = false;
        for (size_t i = 0; i < b.fibers.size(); i++)
            if (b.fibers[i].st == RUN) {
                resume(&b.fibers[i]);
                moved = true;
            }
        for (size_t i = 0; b.next < b.n;) { // start threads not yet begun; those before i wait
            while (i < b.fibers.size() && b.fibers[i].st != FREE && b.fibers[i].st != DONE)
                i++;
            if (i == b.fibers.size())
                new_fiber();
            take(&b.fibers[i]);
            resume(&b.fibers[i]);
            moved = true;
        }
        if (!moved)
            die("deadlock: not every thread of the group reached the collective");
    }
}
inline void block_try_release() {
    Block &b = *blk;
    if (!b.at_barrier || b.at_barrier < b.live)
        return;
    b.pred_res[0] = b.pred_or;
    b.pred_res[1] = b.pred_and;
    b.pred_res[2] = b.pred_cnt;
    b.at_barrier = 0;
    b.bar_site = nullptr;
    b.pred_or = b.pred_cnt = 0;
    b.pred_and = 1;
    for (Fiber &f : b.fibers)
        if (f.st == WAIT_BLOCK)
            f.st = RUN;
}
__attribute__((noinline)) inline void barrier(int p = 1) {
    Block &b = *blk;
    const void *site = __builtin_return_address(0);
    if (b.bar_site && b.bar_site != site)
        die("divergent __syncthreads: two call sites at one barrier");
    b.bar_site = site;
    b.at_barrier++;
    b.cur->st = WAIT_BLOCK;
    b.pred_or |= !!p;
    b.pred_and &= !!p;
    b.pred_cnt += !!p;
    block_try_release();
    if (b.cur->st == WAIT_BLOCK)
        to_sched();
}
inline void warp_try_release(int w) {
    Block &b = *blk;
    WarpOp &o = b.warps[w];
    if (!o.arrived)
        return;
    if (const uint32_t missing = o.mask & ~o.arrived) {
        const int t = w * 32 + __builtin_ctz(missing);
        if (t >= b.n || b.exited[t])
            die("collective mask names a lane that does not exist or has exited");
        return;
    }
    o.arrived = 0;
    o.gen++;
    for (int l = 0; l < 32; l++) {
        int t = w * 32 + l;
        if (t < b.n && b.owner[t] >= 0 && b.fibers[b.owner[t]].st == WAIT_WARP)
            b.fibers[b.owner[t]].st = RUN;
    }
}
// deposit n values, wait for the mask, return the generation whose slots are now complete
inline unsigned warp_meet(uint32_t mask, const uint64_t *v, int n, bool pred, const void *site) {
    Block &b = *blk;
    int t = b.cur->tid, w = t / 32, l = t % 32;
    WarpOp &o = b.warps[w];
    if (!(mask >> l & 1))
        die("calling lane is not in its own collective mask");
    if (o.arrived && o.mask != mask)
        die("lanes disagree about the collective mask");
    if (o.arrived && o.site != site)
        die("lanes meet at different collectives");
    unsigned g = o.gen & 1;
    if (!o.arrived)
        o.pred[g] = 0;
    o.mask = mask;
    o.site = site;
    for (int i = 0; i < n; i++)
        o.slot[g][l][i] = v[i];
    o.pred[g] |= (uint32_t)pred << l;
    o.arrived |= 1u << l;
    b.cur->st = WAIT_WARP;
    warp_try_release(w);
    if (b.cur->st == WAIT_WARP)
        to_sched();
    return g;
}
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
__attribute__((noinline)) inline uint32_t ballot(uint32_t mask, bool p) {
    const void *site = __builtin_return_address(0);
    WarpOp &o = blk->warps[blk->cur->tid / 32];
    unsigned g = warp_meet(mask, nullptr, 0, p, site);
    return o.pred[g] & mask;
}
inline double seconds() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

template <class F> void launch(const char *name, F &&f, dim3 grid, dim3 block, size_t smem) {
    kernel_name = name;
    static thread_local Block own;
    blk = &own;
    Block &b = *blk;
    b.grid = grid;
    b.block = block;
    b.n = (int)(block.x * block.y * block.z);
    if (b.n < 1 || b.n > 1024 || smem > 227 * 1024)
        die("bad launch configuration");
    b.fibers.reserve(1024);
    b.dyn.resize(smem + DYNAMIC_AT + 1024);
    b.dyn_bytes = smem;
    b.copies.resize(1024);
    b.products.resize(1024);
    b.body = [](void *a) { (*(std::remove_reference_t<F> *)a)(); };
    b.arg = (void *)&f;
    b.order.resize(b.n);
    unsigned r = schedule_seed;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                b.bid = {x, y, z};
                for (int i = 0; i < b.n; i++)
                    b.order[i] = i;
                if (schedule_seed)
                    for (int i = b.n - 1; i > 0; i--) {
                        r = r * 1664525u + 1013904223u;
                        std::swap(b.order[i], b.order[(r >> 8) % (i + 1)]);
                    }
                if (smem)
                    memset(b.dyn.data(), 0xFF,
                           b.dyn.size()); // NaN poison: reading unwritten shared memory shows
                run_block();
            }
    b.cur = nullptr;
}
// static shared memory: NaN-poisoned the first time each block reaches the declaration
inline void touch(void *p, size_t n) {
    Block &b = *blk;
    for (auto &s : b.statics)
        if (s.first == p) {
            if (s.second != b.serial) {
                s.second = b.serial;
                memset(p, 0xFF, n);
            }
            return;
        }
    b.statics.push_back({p, b.serial});
    memset(p, 0xFF, n);
}
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
