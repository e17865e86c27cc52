/* Products of groups of four warps (wgmma.h). Addresses are looked at here: the sanitizers do not watch it. */
#include "tests/doubles/cuda/wgmma.h"

namespace cu_emu {
enum { GROUP = 128, GROUP_ROWS = 64, DEPTH = 16 };

/* Element `at` of line `line` of an operand: lines are rows of the left side and columns of the right one, each with
 * DEPTH elements. */
static float element_of(uint64_t descriptor, int line, int at, bool transposed) {
    const uint32_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4,
                   stride = (descriptor >> 32 & 0x3fff) << 4;
    uint32_t address = start;
    if (transposed) /* 64 lines lie side by side; 8 elements of them are 1024 bytes */
        address += line / 64 * leading + line % 64 * 2 + at / 8 * stride + at % 8 * 128;
    else /* a line's elements are neighbors; 8 lines are 1024 bytes */
        address += line / 8 * stride + line % 8 * 128 + at * 2;
    address ^= (address >> 7 & 7) << 4;
    const char *from = (const char *)dyn_smem() + address - DYNAMIC_AT;
    in_shared(from, 2);
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return half_of(bits, 0);
}
static void check_descriptor(uint64_t d) {
    if (d >> 62 != 1)
        die("a tile of wgmma that is not of the 128-byte swizzle");
    if ((d >> 49 & 7) != 0 || (d & ~(uint64_t)0xc00e3fff3fff3fff) != 0)
        die("a descriptor of wgmma with bits that mean nothing here");
}

/* Whether a group's lanes have issued the same. */
static bool same_product(const Product &a, const Product &b) {
    return a.columns == b.columns && a.add == b.add && a.held == b.held && a.right == b.right &&
           a.transposed == b.transposed && (a.held || a.left == b.left);
}

/* Row r of the left side, in registers: as fragments A. */
static float held_element(int first, size_t i, int row, int k) {
    const int thread = first + row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
    const int reg = row % 16 / 8 + k / 8 * 2;
    return half_of(blk->products[thread].issued[i].left_registers[reg], k % 2);
}

static void multiply(double *sums, const float (*left)[DEPTH], const float (*right)[128],
                     int columns) {
    memset(sums, 0, sizeof *sums * GROUP_ROWS * (size_t)columns);
    for (int r = 0; r < GROUP_ROWS; r++)
        for (int k = 0; k < DEPTH; k++)
            for (int c = 0; c < columns; c++)
                sums[r * columns + c] += (double)left[r][k] * (double)right[k][c];
}

/* Product i of the lanes from `first` on. */
static void run_product(int first, size_t i) {
    static thread_local float left[GROUP_ROWS][DEPTH], right[DEPTH][128];
    static thread_local double sums[GROUP_ROWS * 128];
    const Product one = blk->products[first].issued[i];
    for (int t = first; t < first + GROUP; t++)
        if (!same_product(one, blk->products[t].issued[i]))
            die("threads of a group issue different products");
    check_descriptor(one.right);
    if (!one.held)
        check_descriptor(one.left);
    for (int e = 0; e < GROUP_ROWS * DEPTH; e++)
        left[e / DEPTH][e % DEPTH] = one.held ? held_element(first, i, e / DEPTH, e % DEPTH)
                                              : element_of(one.left, e / DEPTH, e % DEPTH, false);
    for (int e = 0; e < one.columns * DEPTH; e++)
        right[e % DEPTH][e / DEPTH] = element_of(one.right, e / DEPTH, e % DEPTH, one.transposed);
    multiply(sums, left, right, one.columns);
    for (int t = first; t < first + GROUP; t++) {
        const Product &p = blk->products[t].issued[i];
        const int row = t % GROUP / 32 * 16 + t % 32 / 4, col = t % 4 * 2;
        for (int e = 0; e < one.columns / 2; e++) {
            const double sum = sums[(row + e / 2 % 2 * 8) * one.columns + e / 4 * 8 + col + e % 2];
            const float before = !one.add ? 0 : p.continues ? p.sums[e] : p.before[e];
            p.sums[e] = (float)((double)before + sum);
        }
    }
}

static void hide(Product &p) {
    memcpy(p.before, p.sums, (size_t)p.columns / 2 * sizeof(float));
    memset(p.sums, 0xff, (size_t)p.columns / 2 * sizeof(float));
}

/* Computes the first n products of a thread's group. */
static void run_products(int first, size_t n) {
    for (int t = 0; t < blk->n; t++)
        if (blk->unseen[t])
            die("wgmma reads shared memory before shared_for_wgmma() of who copied there");
    for (size_t i = 0; i < n; i++)
        run_product(first, i);
    for (int t = first; t < first + GROUP; t++) {
        std::vector<Product> &issued = blk->products[t].issued;
        issued.erase(issued.begin(), issued.begin() + (std::ptrdiff_t)n);
        for (size_t i = 0; i < issued.size(); i++) {
            const bool is_first =
                std::none_of(issued.begin(), issued.begin() + (std::ptrdiff_t)i,
                             [&](const Product &p) { return p.sums == issued[i].sums; });
            if (issued[i].continues && is_first) {
                issued[i].continues = false;
                hide(issued[i]);
            }
        }
    }
}

void issue(Product p) {
    std::vector<Product> &issued = blk->products[blk->cur->tid].issued;
    p.continues = std::any_of(issued.begin(), issued.end(),
                              [&](const Product &other) { return other.sums == p.sums; });
    if (!p.continues)
        hide(p);
    issued.push_back(p);
}

void commit() {
    Products &p = blk->products[blk->cur->tid];
    p.batches.push_back(p.issued.size());
}

/* Who comes last computes for all. */
__attribute__((noinline)) void wait_products(size_t pending) {
    Block &b = *blk;
    const int first = b.cur->tid / GROUP * GROUP;
    const void *site = __builtin_return_address(0);
    Meeting &m = b.groups[first / GROUP];
    if (m.arrived && m.site != site)
        die("threads of a group wait at different places");
    m.site = site;
    b.cur->st = WAIT_GROUP;
    if (++m.arrived < GROUP) {
        to_others();
        return;
    }
    m.arrived = 0;
    const std::vector<size_t> batches = b.products[first].batches;
    if (batches.size() > pending) {
        const size_t done = batches.size() - pending, n = batches[done - 1];
        for (int t = first; t < first + GROUP; t++)
            if (b.products[t].batches != batches)
                die("threads of a group have issued different batches");
        run_products(first, n);
        for (int t = first; t < first + GROUP; t++) {
            std::vector<size_t> &rest = b.products[t].batches;
            rest.erase(rest.begin(), rest.begin() + (std::ptrdiff_t)done);
            for (size_t &end : rest)
                end -= n;
        }
    }
    for (int t = first; t < first + GROUP; t++)
        b.fibers[b.owner[t]].st = RUN;
}
} // namespace cu_emu
