/* grouped_gemm in bf16 by tensor cores (kernels/cuda/mma.cuh), all groups in one launch: a block finds its
 * group by the offsets on the device, and there are as many blocks as any offsets could need.
 *
 * A block has a tile of c. Both sides come to shared memory in stages of `Depth` terms, several of them on
 * their way while the warps multiply. A sum is one warp's, term after term from the group's first, whatever
 * the tile: a row's bits depend on that row and its group's matrix alone.
 *
 * Moves c once (dW: twice), the left side once for each tile of columns and the right side once for each
 * tile of rows, mostly from the L2 cache: blocks that run at the same time are of neighboring groups. */
#include "kernels/cuda/gemm/grouped.cuh"
#include "kernels/cuda/tiles.cuh"

/* Tiles of c, their terms per stage, and the part of a warp. */
template <int Rows, int Cols, int Depth, int WarpRows, int WarpCols, int BlocksPerSm>
struct tiling {
    static constexpr int ROWS = Rows, COLS = Cols, DEPTH = Depth, STAGES = 4;
    static constexpr int WARP_ROWS = WarpRows, WARP_COLS = WarpCols, BLOCKS = BlocksPerSm;
    static constexpr int WARPS_ACROSS = Cols / WarpCols;
    static constexpr int THREADS = 32 * (Rows / WarpRows) * WARPS_ACROSS;
    static constexpr int STAGE = (Rows + Cols) * Depth * (int)sizeof(bf16);
};
/* Where wgmma is not, and for dW. Two blocks share a multiprocessor: while one begins, or adds to c in memory, the other one multiplies. On an
 * H200, 128 × 256 by eight warps, and stages of 64 terms, are no faster. */
typedef tiling<128, 128, 32, 64, 64, 2> square_tiles;
/* For an adapter's low side, where the other operand's rows are all that is moved. */
typedef tiling<64, 64, 64, 32, 32, 3> narrow_tiles;
/* For few rows per group: many blocks, each with much of its matrix on its way. */
typedef tiling<32, 128, 64, 32, 32, 2> flat_tiles;
#define FEW_ROWS 96 /* from there on, square tiles are as fast */

/* ---- operands in shared memory ---- */

/* A stage of one side: Extent rows or columns of the product, Depth terms. Along: rows of the tile, as of
 * the tensor, are along the sum. */
template <bool Along, int Extent, int Depth> struct side {
    static constexpr bool ALONG = Along;
    typedef tile<Along ? Depth : Extent> layout;
    static constexpr int ROWS = Along ? Extent : Depth, CHUNKS = layout::PITCH / 16;
    static constexpr int BYTES = ROWS * layout::PITCH;
};

template <class Side> __device__ static inline window advanced(const window &w, int terms) {
    return Side::ALONG ? window{w.at + terms, w.stride, w.rows, w.cols - terms}
                       : window{w.at + (int64_t)terms * w.stride, w.stride, w.rows - terms, w.cols};
}

/* Starts copies of a window's beginning; what is beyond its end is zeros. */
template <class Side, int Threads>
__device__ static inline void start_side(shared_at to, const window &from) {
    static_assert(Side::ROWS * Side::CHUNKS % Threads == 0, "each thread has as many chunks");
    AX_UNROLL
    for (int i = 0; i < Side::ROWS * Side::CHUNKS / Threads; i++) {
        const int e = i * Threads + (int)threadIdx.x;
        const int row = e / Side::CHUNKS, c = e % Side::CHUNKS;
        const bool there = row < from.rows && 8 * c < from.cols;
        copy_16(typename Side::layout{to}.chunk(row, c),
                there ? from.at + (int64_t)row * from.stride + 8 * c : from.at, there);
    }
}

/* Where a lane finds fragments of a side, in bytes from the stage's begin. A warp's part begins at a
 * multiple of its own extent, which is at most 64. */
template <class Side, bool Left> struct side_reader {
    typedef typename Side::layout layout;
    int at, swap;
    __device__ explicit side_reader(int first) {
        const int lane = threadIdx.x % 32;
        /* of ldmatrix's four matrices, the second is below the first, or right of it */
        const bool below = Side::ALONG == Left;
        const int row = (below ? lane % 16 : lane / 16 * 8 + lane % 8) + (Side::ALONG ? first : 0);
        const int chunk = (below ? lane / 16 : lane / 8 % 2) + (Side::ALONG ? 0 : first % 64 / 8);
        at = row * layout::PITCH + (Side::ALONG ? 0 : first / 64 * 128);
        swap = chunk ^ layout::swap(row);
    }
    /* Fragment of the i-th 16 rows or columns, and of the k-th 16 terms. */
    __device__ void load(uint32_t (&x)[4], shared_at stage, int i, int k) const {
        const int row = Side::ALONG ? i : k, col = Side::ALONG ? k : i;
        const shared_at from = stage + at + (((2 * col) ^ swap) << 4) + 16 * row * layout::PITCH;
        if (Side::ALONG)
            load_matrices(x, from);
        else
            load_transposed(x, from);
    }
};

/* ---- the product of a tile ---- */

template <class T, form Form> struct product {
    typedef side<Form != DW, T::ROWS, T::DEPTH> left_side;
    typedef side<Form == Y, T::COLS, T::DEPTH> right_side;
    static constexpr int M = T::WARP_ROWS / 16, N = T::WARP_COLS / 16, STEPS = T::DEPTH / 16;
    static_assert(STEPS % 2 == 0, "fragments alternate");
    struct fragments {
        uint32_t left[M][4], right[N][4];
    };
    float sums[M][2 * N][4];

    __device__ static void start(shared_at stage, const window &left, const window &right) {
        start_side<left_side, T::THREADS>(stage, left);
        start_side<right_side, T::THREADS>(stage + left_side::BYTES, right);
    }
    __device__ void add(const fragments &f) {
        AX_UNROLL
        for (int n = 0; n < N; n++) {
            AX_UNROLL
            for (int m = 0; m < M; m++) {
                mma(sums[m][2 * n], f.left[m], f.right[n][0], f.right[n][1]);
                mma(sums[m][2 * n + 1], f.left[m], f.right[n][2], f.right[n][3]);
            }
        }
    }

    /* The part of this warp in the tile. */
    __device__ static int warp_row() {
        return (int)(threadIdx.x / 32) / T::WARPS_ACROSS * T::WARP_ROWS;
    }
    __device__ static int warp_col() {
        return (int)(threadIdx.x / 32) % T::WARPS_ACROSS * T::WARP_COLS;
    }

    /* All threads. `busy`: this warp's part has something of c. */
    __device__ void compute(shared_at memory, window left, window right, int terms, bool busy) {
        const side_reader<left_side, true> from_left(warp_row());
        const side_reader<right_side, false> from_right(warp_col());
        fragments f[2];
        const auto load = [&](fragments &into, shared_at stage, int k) {
            AX_UNROLL
            for (int m = 0; m < M; m++)
                from_left.load(into.left[m], stage, m, k);
            AX_UNROLL
            for (int n = 0; n < N; n++)
                from_right.load(into.right[n], stage + left_side::BYTES, n, k);
        };
        int started = 0;
        const auto start_next = [&](shared_at stage) {
            if (started < terms) {
                start(stage, left, right);
                left = advanced<left_side>(left, T::DEPTH);
                right = advanced<right_side>(right, T::DEPTH);
            }
            started += T::DEPTH;
            copy_commit();
        };
        AX_UNROLL
        for (int s = 0; s < T::STAGES - 1; s++)
            start_next(memory + s * T::STAGE);
        copy_wait_but<T::STAGES - 2>();
        __syncthreads();
        if (busy)
            load(f[0], memory, 0);
        unsigned stage = 0;
        for (int done = 0; done < terms; done += T::DEPTH) {
            const shared_at here = memory + stage * T::STAGE;
            const shared_at before = memory + (stage + T::STAGES - 1) % T::STAGES * T::STAGE;
            stage = (stage + 1) % T::STAGES;
            const shared_at next = memory + stage * T::STAGE;
            AX_UNROLL
            for (int k = 0; k < STEPS; k++) {
                if (k == STEPS - 1) {
                    copy_wait_but<T::STAGES - 2>();
                    __syncthreads(); /* the next stage is there, and all of this one is in registers */
                }
                if (k == 0)
                    start_next(before);
                if (busy) {
                    load(f[(k + 1) % 2], k == STEPS - 1 ? next : here, (k + 1) % STEPS);
                    add(f[k % 2]);
                }
            }
        }
        copy_wait();
    }

    /* Adds alpha times them to a matrix in F32. What is there is read before any of 16 rows is written, so that
     * many reads are on their way. */
    __device__ void add_to(float *matrix, float alpha, int rows, int cols, int row, int col) const {
        AX_UNROLL
        for (int m = 0; m < M; m++) {
            float2 old[2][2 * N];
            AX_UNROLL
            for (int i = 0; i < 4 * N; i++) {
                const int r = row_of(row, m, i % 2), c = col_of(col, i / 2);
                if (r < rows && c < cols)
                    old[i % 2][i / 2] = *(const float2 *)(matrix + (int64_t)r * cols + c);
            }
            AX_UNROLL
            for (int i = 0; i < 4 * N; i++) {
                const int r = row_of(row, m, i % 2), c = col_of(col, i / 2);
                const float2 was = old[i % 2][i / 2];
                const float *const pair = sums[m][i / 2] + 2 * (i % 2);
                if (r < rows && c < cols)
                    *(float2 *)(matrix + (int64_t)r * cols + c) = {was.x + alpha * pair[0],
                                                                   was.y + alpha * pair[1]};
            }
        }
    }
};

/* ---- blocks ---- */

/* A block of dW has part of one group's matrix. */
template <class T>
__device__ static inline void add_gradient(const grouped_args &a, int tile, int col) {
    typedef product<T, DW> P;
    AX_DYNAMIC_SHARED(bf16, memory);
    const int down = (a.width + T::ROWS - 1) / T::ROWS, group = tile / down;
    const int first = a.offsets[group], terms = a.offsets[group + 1] - first;
    const int row = tile % down * T::ROWS;
    if (terms == 0)
        return;
    P p = {};
    p.compute(shared_of(memory),
              {a.a + (int64_t)first * a.stride_a + row, a.stride_a, terms, a.width - row},
              {a.b + (int64_t)first * a.stride_b + col, a.stride_b, terms, a.cols - col}, terms,
              P::warp_row() < a.width - row && P::warp_col() < a.cols - col);
    p.add_to((float *)a.c + group * a.matrix, a.alpha, a.width, a.cols, row + P::warp_row(),
             col + P::warp_col());
}

/* A block of y or dx has rows of one group. */
template <class T, form Form>
__device__ static inline void multiply_rows(const grouped_args &a, int tile, int col) {
    typedef product<T, Form> P;
    AX_DYNAMIC_SHARED(bf16, memory);
    const place at = find_rows<T::ROWS>(a.offsets, a.groups, tile);
    if (at.group < 0)
        return;
    const int rows = at.end - at.first;
    const bf16 *w = a.b + at.group * a.matrix;
    P p = {};
    p.compute(shared_of(memory), {a.a + (int64_t)at.first * a.stride_a, a.stride_a, rows, a.width},
              Form == Y ? window{w + (int64_t)col * a.width, a.width, a.cols - col, a.width}
                        : window{w + col, a.cols, a.width, a.cols - col},
              a.width, P::warp_row() < rows && P::warp_col() < a.cols - col);
    store_sums(p.sums, result_of(a, at), P::warp_row(), col + P::warp_col());
}

template <class T, form Form>
__global__ void __launch_bounds__(T::THREADS, T::BLOCKS) grouped_product(grouped_args a) {
    const unsigned across = (unsigned)(a.cols + T::COLS - 1) / T::COLS;
    const int tile = (int)(blockIdx.x / across), col = (int)(blockIdx.x % across) * T::COLS;
    if constexpr (Form == DW)
        add_gradient<T>(a, tile, col);
    else
        multiply_rows<T, Form>(a, tile, col);
}

/* ---- launching ---- */

template <class T, form Form>
static enum ax_status launch(struct ax_queue *q, const grouped_args &a, int64_t rows) {
    const int64_t down = Form == DW ? a.groups * (int64_t)((a.width + T::ROWS - 1) / T::ROWS)
                                    : most_row_tiles(rows, a.groups, T::ROWS);
    const int64_t blocks = down * ((a.cols + T::COLS - 1) / T::COLS);
    return blocks == 0 ? AX_OK
                       : AX_LAUNCH(q, (grouped_product<T, Form>), (unsigned)blocks, T::THREADS,
                                   T::STAGES * T::STAGE, a);
}

template <form Form>
static enum ax_status launch_rows(struct ax_queue *q, const grouped_args &a, int64_t rows,
                                  int64_t expected) {
    if (a.cols <= narrow_tiles::COLS)
        return launch<narrow_tiles, Form>(q, a, rows);
    if (expected < (int64_t)FEW_ROWS * a.groups)
        return launch<flat_tiles, Form>(q, a, rows);
    return a.cols > square_tiles::COLS && ax_cuda_has_wgmma(q)
               ? ax_grouped_wgmma(q, Form, a, rows)
               : launch<square_tiles, Form>(q, a, rows);
}

extern "C" enum ax_status ax_cuda_grouped_tiles(struct ax_queue *q,
                                                const struct ax_grouped_gemm *g) {
    const struct ax_tensor *matrices = g->trans_a ? &g->c : &g->b;
    const grouped_args a = {(const bf16 *)g->a.data,
                            (const bf16 *)g->b.data,
                            (const bf16 *)g->bias.data,
                            g->c.data,
                            (const int32_t *)g->offsets.data,
                            (int)g->offsets.shape[0] - 1,
                            (int)g->a.shape[1],
                            (int)g->c.shape[g->c.ndim - 1],
                            (int)g->a.row_stride,
                            (int)g->b.row_stride,
                            (int)g->c.row_stride,
                            matrices->row_stride,
                            g->bias.row_stride,
                            (float)g->alpha,
                            g->accumulate};
    const int64_t rows = g->a.shape[0];
    if (g->trans_a)
        return launch<square_tiles, DW>(q, a, rows);
    return g->trans_b ? launch_rows<Y>(q, a, rows, g->expected_rows)
                      : launch_rows<DX>(q, a, rows, g->expected_rows);
}

/* ---- what these kernels take ---- */

/* Rows begin at multiples of 16 bytes and end there. */
static bool has_chunks(const struct ax_tensor *t) {
    return (uintptr_t)t->data % 16 == 0 && t->row_stride % 8 == 0 && t->row_stride <= INT32_MAX &&
           t->shape[t->ndim - 1] % 8 == 0 && t->shape[t->ndim - 1] > 0;
}

extern "C" bool ax_cuda_grouped_suits(const struct ax_grouped_gemm *a) {
    return a->a.dtype == AX_BF16 && !ax_grouped_gemm_is_large(a) && has_chunks(&a->a) &&
           has_chunks(&a->b) && has_chunks(&a->c) && a->a.shape[0] < (int64_t)1 << 30;
}
