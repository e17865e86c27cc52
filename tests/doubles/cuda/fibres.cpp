/* How fibres take turns and meet (fibres.h). Compiled without the sanitizers' checks, which it only tells what stack is
 * in use: it was most of the emulated kernels' time. */
#include "tests/doubles/cuda/fibres.h"

#include <time.h>

#include <numeric>

#if defined(__SANITIZE_ADDRESS__) || defined(AX_FIBRES_OF_SANITIZED)
extern "C" void __sanitizer_start_switch_fiber(void **, const void *, size_t);
extern "C" void __sanitizer_finish_switch_fiber(void *, const void **, size_t *);
#else
static void __sanitizer_start_switch_fiber(void **, const void *, size_t) {
}
static void __sanitizer_finish_switch_fiber(void *, const void **, size_t *) {
}
#endif

// ---- context switch: callee-saved registers only, no system call ----
extern "C" void cu_emu_switch(void **save, void *to);
#if defined(__x86_64__)
__asm__(".text\n.type cu_emu_switch,@function\ncu_emu_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
#else
#error "add an aarch64 cu_emu_switch or use ucontext here"
#endif

namespace cu_emu {
enum { STACK_BYTES = 64 * 1024 };

/* The stack of the thread of the host. */
static thread_local const void *main_stack;
static thread_local size_t main_stack_bytes;

void die(const char *what) {
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

static void become(Fiber *f) {
    blk->cur = f;
    tid3 = f->at;
}

static void to_scheduler() {
    Block &b = *blk;
    Fiber *me = b.cur;
    void *fake;
    __sanitizer_start_switch_fiber(&fake, main_stack, main_stack_bytes);
    cu_emu_switch(&me->sp, b.sched_sp);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

/* The next fibre that can run follows; after the last one, the scheduler begins again. */
void to_others() {
    Block &b = *blk;
    Fiber *me = b.cur, *next = me + 1, *end = b.fibers.data() + b.fibers.size();
    while (!b.begins && next < end && next->st != RUN)
        next++;
    if (b.begins || next == end) {
        to_scheduler();
        return;
    }
    void *fake;
    become(next);
    __sanitizer_start_switch_fiber(&fake, next->stack, STACK_BYTES);
    cu_emu_switch(&me->sp, next->sp);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
}

static void block_try_release() {
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

__attribute__((noinline)) void barrier(int p) {
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
        to_others();
}

static void warp_try_release(int w) {
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
    o.multiplied[o.gen & 1] = false;
    o.gen++;
    for (int t = w * 32; t < w * 32 + 32 && t < b.n; t++)
        if (b.owner[t] >= 0 && b.fibers[b.owner[t]].st == WAIT_WARP)
            b.fibers[b.owner[t]].st = RUN;
}

unsigned warp_meet(uint32_t mask, const uint64_t *v, int n, bool pred, const void *site) {
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
        to_others();
    return g;
}

__attribute__((noinline)) uint32_t ballot(uint32_t mask, bool p) {
    const void *site = __builtin_return_address(0);
    WarpOp &o = blk->warps[blk->cur->tid / 32];
    unsigned g = warp_meet(mask, nullptr, 0, p, site);
    return o.pred[g] & mask;
}

static void take(Fiber *f) { // bind the next unstarted CUDA thread to this fiber
    Block &b = *blk;
    const unsigned t = (unsigned)(f->tid = b.order[b.next++]), bx = b.block.x, by = b.block.y;
    f->at = {t % bx, t / bx % by, t / (bx * by)};
    f->st = RUN;
    b.owner[f->tid] = (int)(f - b.fibers.data());
    become(f);
}

static void entry() {
    __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_stack_bytes);
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
        to_others();
    }
}

static void resume(Fiber *f) {
    Block &b = *blk;
    void *fake;
    become(f);
    __sanitizer_start_switch_fiber(&fake, f->stack, STACK_BYTES);
    cu_emu_switch(&b.sched_sp, f->sp);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
    b.cur = nullptr;
}

static void new_fiber() {
    Block &b = *blk;
    b.fibers.push_back({});
    Fiber *f = &b.fibers.back();
    f->stack = (char *)aligned_alloc(64, STACK_BYTES);
    void **sp = (void **)(f->stack + STACK_BYTES) - 2; // keeps rsp % 16 == 8 at entry
    *sp = (void *)entry;
    sp -= 6;
    memset(sp, 0, 6 * sizeof(void *));
    f->sp = sp;
}

static void clear_block() {
    Block &b = *blk;
    b.serial++;
    b.next = 0;
    b.live = b.n;
    b.at_barrier = 0;
    b.bar_site = nullptr;
    b.pred_or = b.pred_cnt = 0;
    b.pred_and = 1;
    for (int w = 0; w < (b.n + 31) / 32; w++)
        b.warps[w].arrived = b.warps[w].gen = 0;
    b.exited.assign(b.n, 0);
    b.groups.assign((b.n + 127) / 128, Meeting{});
    b.unseen.assign(b.n, 0);
    b.owner.assign(b.n, -1);
    for (Fiber &f : b.fibers)
        f.st = FREE;
}

static void run_block() {
    Block &b = *blk;
    clear_block();
    while (b.live) {
        bool moved = false;
        for (Fiber &f : b.fibers)
            if (f.st == RUN) {
                resume(&f); /* and who follows it */
                moved = true;
                break;
            }
        b.begins = true;
        for (size_t i = 0; b.next < b.n;) { // start threads not yet begun; those before i wait
            while (i < b.fibers.size() && b.fibers[i].st != FREE && b.fibers[i].st != DONE)
                i++;
            if (i == b.fibers.size())
                new_fiber();
            take(&b.fibers[i]);
            resume(&b.fibers[i]);
            moved = true;
        }
        b.begins = false;
        if (!moved)
            die("deadlock: not every thread of the group reached the collective");
    }
}

/* In an order that the seed chooses. */
static void order_threads(unsigned *random) {
    Block &b = *blk;
    for (int i = 0; i < b.n; i++)
        b.order[i] = i;
    for (int i = b.n - 1; schedule_seed && i > 0; i--) {
        *random = *random * 1664525u + 1013904223u;
        std::swap(b.order[i], b.order[(*random >> 8) % (i + 1)]);
    }
}

/* Blocks, too: from any, by steps that reach each of them. */
struct BlockOrder {
    uint64_t n, at, step;
};

static BlockOrder order_blocks(const dim3 &grid, unsigned *random) {
    BlockOrder o = {(uint64_t)grid.x * grid.y * grid.z, 0, 1};
    if (schedule_seed && o.n > 0) {
        *random = *random * 1664525u + 1013904223u;
        o.at = (*random >> 8) % o.n;
        *random = *random * 1664525u + 1013904223u;
        o.step = 1 + (*random >> 8) % o.n;
        while (std::gcd(o.step, o.n) != 1)
            o.step++;
    }
    return o;
}

void launch_blocks(const char *name, void (*body)(void *), void *arg, dim3 grid, dim3 block,
                   size_t smem) {
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
    b.warps.resize(32);
    b.copies.resize(1024);
    b.products.resize(1024);
    b.order.resize(b.n);
    if (b.dyn.size() != smem + DYNAMIC_AT + 1024) // and no more: the sanitizer watches its end
        b.dyn = std::vector<char>(smem + DYNAMIC_AT + 1024);
    b.dyn_bytes = smem;
    b.statics.clear();
    b.body = body;
    b.arg = arg;
    unsigned random = schedule_seed;
    BlockOrder o = order_blocks(grid, &random);
    for (uint64_t i = 0; i < o.n; i++, o.at = (o.at + o.step) % o.n) {
        b.bid = {(unsigned)(o.at % grid.x), (unsigned)(o.at / grid.x % grid.y),
                 (unsigned)(o.at / grid.x / grid.y)};
        order_threads(&random);
        if (smem) // NaN poison: reading unwritten shared memory shows
            memset(b.dyn.data(), 0xFF, b.dyn.size());
        run_block();
    }
    b.cur = nullptr;
}

void touch(void *p, size_t n) {
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

double seconds() {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
} // namespace cu_emu
