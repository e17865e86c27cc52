/* Fragments of the tensor cores, and copies (mma.h). Addresses are looked at here: the sanitizers do not watch it. */
#include "tests/doubles/cuda/mma.h"

namespace cu_emu {
void in_shared(const char *at, size_t bytes) {
    const char *first = (const char *)dyn_smem();
    if (at < first || at + bytes > first + blk->dyn_bytes)
        die("an address that is not in the block's dynamic shared memory");
    if ((uintptr_t)at % bytes)
        die("misaligned address in shared memory");
}

/* Sums of products of all of a warp's rows and columns. Registers are two to a slot: a[0 … 3], b0, b1; a lane brings
 * two elements of two rows of A and of a column of B, and two more of each that are eight further. */
static void multiply(double (*sums)[8], const uint64_t (*slot)[SLOTS]) {
    double a[16][16], b[16][8]; /* exact products, summed in more than F32, as the hardware does */
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int k = lane % 4 * 2 + i % 2;
            for (int half = 0; half < 2; half++)
                a[lane / 4 + i / 2 * 8][k + 8 * half] = (double)half_of(slot[lane][half], i);
            b[k + i / 2 * 8][lane / 4] = (double)half_of(slot[lane][2], i);
        }
    for (int r = 0; r < 16; r++) {
        double sum[8] = {0};
        for (int k = 0; k < 16; k++)
            for (int c = 0; c < 8; c++)
                sum[c] += a[r][k] * b[k][c];
        memcpy(sums[r], sum, sizeof sum);
    }
}

/* Who goes on first computes for all. */
__attribute__((noinline)) void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
    const uint64_t mine[SLOTS] = {a[0] | (uint64_t)a[1] << 32, a[2] | (uint64_t)a[3] << 32,
                                  b0 | (uint64_t)b1 << 32};
    const unsigned g = warp_meet(0xffffffffu, mine, 3, false, __builtin_return_address(0));
    WarpOp &o = blk->warps[blk->cur->tid / 32];
    const int lane = blk->cur->tid % 32;
    if (!o.multiplied[g])
        multiply(o.products[g], o.slot[g]);
    o.multiplied[g] = true;
    for (int i = 0; i < 4; i++)
        c[i] = (float)((double)c[i] + o.products[g][lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
}

__attribute__((noinline)) void load_matrices(uint32_t (&x)[4], const char *row, bool transposed) {
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

void copy_start(char *to, const void *from, bool there, size_t bytes) {
    in_shared(to, bytes);
    if ((uintptr_t)from % bytes)
        die("misaligned address of a copy's source");
    memset(to, 0xff, bytes);
    blk->copies[blk->cur->tid].push_back({to, there ? (const char *)from : nullptr, bytes});
}
void copy_finish() {
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
void copy_commit() {
    blk->copies[blk->cur->tid].push_back({(char *)dyn_smem(), nullptr, 0});
}
void copy_wait_but(int pending) {
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
