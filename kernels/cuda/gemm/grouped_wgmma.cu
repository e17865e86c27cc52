/* Grouped products y and dx in bf16 by wgmma, as grouped.cu has them by mma.sync: tiles of 128 × 256 of c, by two
 * groups of four warps with 64 rows each. Both sides come to shared memory in stages of 64 terms. Of four stages
 * one is read, the last product that reads another one may still run, and copies fill the other two.
 *
 * At 600 TFLOP/s a tile takes 7 TB/s of the L2 cache, and from shared memory, 128 bytes a cycle, 20 KiB of 256
 * cycles for 16 terms. */
#include "kernels/cuda/gemm/grouped.cuh"
#include "kernels/cuda/wgmma.cuh"

constexpr int ROWS = 128, COLS = 256, DEPTH = 64, STAGES = 4;
constexpr int GROUP_ROWS = 64, BLOCK = ROWS / GROUP_ROWS * GROUP_THREADS;
constexpr int SWIZZLE = 1024; /* bytes that a stage begins at a multiple of */
constexpr int LEFT = ROWS * DEPTH * (int)sizeof(bf16), RIGHT = COLS * DEPTH * (int)sizeof(bf16);
constexpr int STAGE = LEFT + RIGHT;
constexpr size_t BYTES = (size_t)STAGES * STAGE + SWIZZLE;

#ifdef AX_WGMMA

constexpr int AHEAD = STAGES - 2; /* stages that copies fill */
constexpr int HALF = 128;         /* columns of an instruction */

/* The right side: of y, rows of W along the sum; of dx, across. */
template <form Form> struct right_side;
template <> struct right_side<Y> {
    static constexpr bool TRANSPOSED = false;
    panels<COLS, DEPTH> tile;
    __device__ wgmma_tile block(int half, int k) const {
        return tile.rows(half * HALF, k);
    }
};
template <> struct right_side<DX> {
    static constexpr bool TRANSPOSED = true;
    panels<DEPTH, COLS> tile;
    __device__ wgmma_tile block(int half, int k) const {
        return panels<DEPTH, HALF>{tile.at + half * (HALF / 64) * tile.PANEL}.columns(k);
    }
};

/* Starts copies of a window's beginning; what is beyond its end is zeros. */
template <int Rows, int Cols>
__device__ static inline void start_panels(panels<Rows, Cols> to, const window &from) {
    constexpr int CHUNKS = Cols / 8, AT_ONCE = BLOCK / CHUNKS;
    static_assert(Rows % AT_ONCE == 0 && AT_ONCE % 8 == 0, "each thread has one column of chunks");
    const int first = (int)threadIdx.x / CHUNKS, c = (int)threadIdx.x % CHUNKS;
    AX_UNROLL
    for (int i = 0; i < Rows / AT_ONCE; i++) {
        const int row = first + i * AT_ONCE;
        const bool there = row < from.rows && 8 * c < from.cols;
        copy_16(to.chunk(row, c), there ? from.at + (int64_t)row * from.stride + 8 * c : from.at,
                there);
    }
}

#endif

template <form Form>
__global__ void __launch_bounds__(BLOCK, 1) grouped_product_wgmma(grouped_args a) {
#ifdef AX_WGMMA
    typedef right_side<Form> right_type;
    AX_DYNAMIC_SHARED(bf16, memory);
    const shared_at stages = shared_aligned(shared_of(memory), SWIZZLE);
    const unsigned across = (unsigned)(a.cols + COLS - 1) / COLS;
    const int col = (int)(blockIdx.x % across) * COLS;
    const place at = find_rows<ROWS>(a.offsets, a.groups, (int)(blockIdx.x / across));
    if (at.group < 0)
        return;
    const bf16 *w = a.b + at.group * a.matrix;
    window left = {a.a + (int64_t)at.first * a.stride_a, a.stride_a, at.end - at.first, a.width};
    window right = Form == Y ? window{w + (int64_t)col * a.width, a.width, a.cols - col, a.width}
                             : window{w + col, a.cols, a.width, a.cols - col};
    const int group_row = (int)threadIdx.x / GROUP_THREADS * GROUP_ROWS;
    int started = 0;
    const auto start_next = [&](int stage) {
        if (started < a.width) {
            const shared_at to = stages + stage * STAGE;
            start_panels(panels<ROWS, DEPTH>{to}, left);
            start_panels(right_type{{to + LEFT}}.tile, right);
            left = {left.at + DEPTH, left.stride, left.rows, left.cols - DEPTH};
            right = Form == Y
                        ? window{right.at + DEPTH, right.stride, right.rows, right.cols - DEPTH}
                        : window{right.at + (int64_t)DEPTH * right.stride, right.stride,
                                 right.rows - DEPTH, right.cols};
        }
        started += DEPTH;
        copy_commit();
    };
    AX_UNROLL
    for (int s = 0; s < AHEAD; s++)
        start_next(s);
    float sums[2][1][HALF / 8][4] = {};
    int stage = 0;
    for (int done = 0; done < a.width; done += DEPTH) {
        const shared_at here = stages + stage * STAGE;
        const panels<ROWS, DEPTH> rows = {here};
        const right_type columns = {{here + LEFT}};
        copy_wait_but<AHEAD - 1>();
        shared_for_wgmma();
        __syncthreads(); /* this stage is there, and the one before the last has been read */
        wgmma_begin();
        AX_UNROLL
        for (int k = 0; k < DEPTH / 16; k++) {
            AX_UNROLL
            for (int half = 0; half < 2; half++)
                wgmma<right_type::TRANSPOSED, true>(sums[half][0], rows.rows(group_row, k),
                                                    columns.block(half, k));
        }
        wgmma_commit();
        start_next((stage + AHEAD) % STAGES);
        wgmma_wait<1>();
        stage = (stage + 1) % STAGES;
    }
    copy_wait();
    wgmma_wait<0>();
    AX_UNROLL
    for (int half = 0; half < 2; half++) {
        wgmma_done(sums[half][0]);
        store_sums(sums[half], result_of(a, at), (int)threadIdx.x / 32 * 16, col + half * HALF);
    }
#endif
}

template <form Form>
static enum ax_status run(struct ax_queue *q, const grouped_args &a, int64_t rows) {
    const int64_t blocks =
        most_row_tiles(rows, a.groups, ROWS) * (((int64_t)a.cols + COLS - 1) / COLS);
    return blocks == 0
               ? AX_OK
               : AX_LAUNCH(q, grouped_product_wgmma<Form>, (unsigned)blocks, BLOCK, BYTES, a);
}

enum ax_status ax_grouped_wgmma(struct ax_queue *q, form of, const grouped_args &a, int64_t rows) {
    return of == Y ? run<Y>(q, a, rows) : run<DX>(q, a, rows);
}
