/* Tiles of bf16 in shared memory and what a warp multiplies of them (kernels/cuda/mma.cuh): attention's and the
 * recurrences'; grouped products have the tiles. A warp has 16·M rows of a product and some of its columns: of each 8
 * columns a thread has 2t and 2t + 1, of rows g and g + 8 (g = lane / 4, t = lane % 4).
 *
 * A float that is split into two bf16, its nearest and that of the difference, is off by up to 2⁻¹⁸ of itself. Of a
 * product of two such floats, low · low is left out, which is 2⁻¹⁸ of it at most; products of bf16 are exact. */
#ifndef AX_KERNELS_CUDA_TILES_CUH
#define AX_KERNELS_CUDA_TILES_CUH

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/numbers.cuh"

/* Before a loop whose copies side by side would need more registers than there are. */
#ifdef AX_EMULATED_MMA
#define AX_ROLLED
#else
#define AX_ROLLED _Pragma("unroll 1")
#endif

/* ---- tiles ---- */

/* Rows of Cols elements, 32 or a multiple of 64. Chunk c of row r, 16 bytes, is where chunk c ^ swap(r) would be, so
 * that the eight rows that ldmatrix reads of a column of chunks are in different banks. */
template <int Cols> struct tile {
    static constexpr int PITCH = Cols * (int)sizeof(bf16);
    static_assert(Cols == 32 || Cols % 64 == 0, "rows of whole exchanges");
    shared_at at;
    __device__ static int swap(int row) {
        return Cols == 32 ? row / 2 % 4 : row % 8;
    }
    __device__ shared_at chunk(int row, int c) const {
        return at + row * PITCH + ((c ^ swap(row)) << 4);
    }
};

/* What a lane reads of a tile: `at`, in the row that it addresses, and how chunks are exchanged there, in
 * bytes. Of 16·k only k % 4 takes part in that; the rest is a constant of the instruction. */
template <int Cols> struct reader {
    static constexpr int PITCH = tile<Cols>::PITCH;
    shared_at at;
    int swap;
    /* Columns [16·k, 16·k + 16) of 16 rows from `row` on. */
    __device__ shared_at block(int row, int k) const {
        return at + (32 * (k % 4) ^ swap) + (row * PITCH + k / 4 * 128);
    }
};
/* For fragments A, from `row` on, and transposed, for fragments B whose rows are the tile's. */
template <int Cols> __device__ static inline reader<Cols> by_rows(tile<Cols> t, int row) {
    const int lane = threadIdx.x % 32;
    return {t.at + (row + lane % 16) * t.PITCH, 16 * (lane / 16 ^ t.swap(lane % 16))};
}
/* For fragments B whose columns are the tile's rows, and transposed, for fragments A whose columns are. */
template <int Cols> __device__ static inline reader<Cols> by_columns(tile<Cols> t) {
    const int lane = threadIdx.x % 32;
    return {t.at + (lane / 16 * 8 + lane % 8) * t.PITCH, 16 * (lane / 8 % 2 ^ t.swap(lane % 8))};
}

/* ---- products of a warp ---- */

/* 16·M rows and N columns of a product, in F32. A thread has M·N/2 of them: number i is in row
 * 8·row(i) + g, and in column column(i) + 2t. */
template <int M, int N> struct sums {
    float x[M][N / 8][4];
    __device__ float &at(int i) {
        return x[i / (N / 2)][i / 4 % (N / 8)][i % 4];
    }
    __device__ float at(int i) const {
        return x[i / (N / 2)][i / 4 % (N / 8)][i % 4];
    }
    __device__ static int row(int i) {
        return 2 * (i / (N / 2)) + i / 2 % 2;
    }
    __device__ static int column(int i) {
        return 8 * (i / 4 % (N / 8)) + i % 2;
    }
};

/* ---- memory of tiles ---- */

/* Rows × Cols elements in one plane, or in two of the upper and lower parts of floats. */
template <int Rows, int Cols, int Planes> struct plane_tile {
    static constexpr int PLANES = Planes, COLS = Cols;
    static constexpr int APART = Rows * tile<Cols>::PITCH, BYTES = Planes * APART;
    char *data;
    __device__ tile<Cols> plane(int i) const {
        return {shared_of(data + i * APART)};
    }
    /* Elements (row, col) and (row, col + 1), col even, of a plane. */
    __device__ uint32_t *pair(int row, int col, int plane) const {
        return (uint32_t *)(data + plane * APART + row * tile<Cols>::PITCH +
                            ((col / 8 ^ tile<Cols>::swap(row)) << 4) + col % 8 * 2);
    }
    __device__ void load(int row, int col, float &one, float &two) const {
        bf16_pair_to_f32(*pair(row, col, 0), one, two);
        if (Planes == 1)
            return;
        float low_one, low_two;
        bf16_pair_to_f32(*pair(row, col, Planes - 1), low_one, low_two);
        one += low_one;
        two += low_two;
    }
    /* Rounded to what the planes can hold. */
    __device__ void store(int row, int col, float one, float two) const;
};

/* Two floats as pairs of upper and lower parts. */
__device__ static inline void split_pair(float one, float two, uint32_t &high, uint32_t &low) {
    float high_one, high_two;
    high = round_pair(one, two);
    bf16_pair_to_f32(high, high_one, high_two);
    low = round_pair(one - high_one, two - high_two);
}

template <int Rows, int Cols, int Planes>
__device__ inline void plane_tile<Rows, Cols, Planes>::store(int row, int col, float one,
                                                             float two) const {
    uint32_t high, low;
    split_pair(one, two, high, low);
    *pair(row, col, 0) = high;
    if (Planes == 2)
        *pair(row, col, Planes - 1) = low;
}

/* Starts copies of Rows rows of one plane, by `Threads` threads: `from` is the first row, whose elements from `size` on,
 * a multiple of 8, are zeros, as are all of rows from `rows` on. A thread has the same chunk of rows that are
 * exchanged alike. */
template <int Rows, int Threads, int Cols>
__device__ static inline void start_plane(tile<Cols> to, const bf16 *from, int64_t stride, int rows,
                                          int size) {
    constexpr int CHUNKS = Cols / 8, STEP = Threads / CHUNKS;
    static_assert(STEP % 8 == 0 && Rows % STEP == 0, "");
    const int row = threadIdx.x / CHUNKS, c = threadIdx.x % CHUNKS;
    const shared_at at = to.chunk(row, c);
    const bf16 *source = from + row * stride + 8 * c;
    if (8 * c >= size)
        rows = 0;
    AX_UNROLL
    for (int first = 0; first < Rows; first += STEP, source += STEP * stride)
        copy_16(at + first * to.PITCH, source, row + first < rows);
}

/* ---- products of operands with planes ---- */

/* Fragments A of 16 rows of a tile, or of 16 columns if it is transposed, from number `first` on. */
template <class Tile, bool Transposed> struct left_operand {
    static constexpr int PLANES = Tile::PLANES;
    reader<Tile::COLS> plane[PLANES];
    int column;
    __device__ left_operand(const Tile &t, int first) : column(first / 16) {
        AX_UNROLL
        for (int i = 0; i < PLANES; i++)
            plane[i] = Transposed ? by_columns(t.plane(i)) : by_rows(t.plane(i), first);
    }
    __device__ void load(uint32_t (&x)[4], int i, int k) const {
        if (Transposed)
            load_transposed(x, plane[i].block(16 * k, column));
        else
            load_matrices(x, plane[i].block(0, k));
    }
};
/* Fragments B of columns of a tile, or of rows if it is transposed, from number `first` on, a multiple of 16. */
template <class Tile, bool Transposed> struct right_operand {
    static constexpr int PLANES = Tile::PLANES;
    reader<Tile::COLS> plane[PLANES];
    int column;
    __device__ right_operand(const Tile &t, int first) : column(first / 16) {
        AX_UNROLL
        for (int i = 0; i < PLANES; i++)
            plane[i] = Transposed ? by_columns(t.plane(i)) : by_rows(t.plane(i), 0);
    }
    __device__ void load(uint32_t (&x)[4], int i, int k, int n) const {
        if (Transposed)
            load_matrices(x, plane[i].block(16 * (column + n), k));
        else
            load_transposed(x, plane[i].block(16 * k, column + n));
    }
};
template <class Tile>
__device__ static inline left_operand<Tile, false> rows_from(const Tile &t, int first) {
    return {t, first};
}
template <class Tile>
__device__ static inline left_operand<Tile, true> turned_from(const Tile &t, int first) {
    return {t, first};
}
template <class Tile>
__device__ static inline right_operand<Tile, false> columns_from(const Tile &t, int first) {
    return {t, first};
}
template <class Tile>
__device__ static inline right_operand<Tile, true> turned_columns_from(const Tile &t, int first) {
    return {t, first};
}

template <int N>
__device__ static inline void add_product(sums<1, N> &s, int n, const uint32_t (&a)[4],
                                          const uint32_t (&b)[4]) {
    mma(s.x[0][2 * n], a, b[0], b[1]);
    mma(s.x[0][2 * n + 1], a, b[2], b[3]);
}

/* s += a · b over elements 16·from … 16·to − 1. */
template <int N, class A, class B>
__device__ static inline void multiply(sums<1, N> &s, const A &a, const B &b, int from, int to) {
    for (int k = from; k < to; k++) {
        uint32_t left[A::PLANES][4];
        AX_UNROLL
        for (int i = 0; i < A::PLANES; i++)
            a.load(left[i], i, k);
        AX_UNROLL
        for (int n = 0; n < N / 16; n++) {
            uint32_t right[B::PLANES][4];
            AX_UNROLL
            for (int i = 0; i < B::PLANES; i++)
                b.load(right[i], i, k, n);
            add_product(s, n, left[0], right[0]);
            if (B::PLANES == 2)
                add_product(s, n, left[0], right[B::PLANES - 1]);
            if (A::PLANES == 2)
                add_product(s, n, left[A::PLANES - 1], right[0]);
        }
    }
}

#endif
