/* A block has 16 or 32 rows of W, 16 of which are the rows of mma's A, and up to 64 of a, which are the columns of its
 * B, 8 in a tile. Its warps share the columns of W, 64 at a time, and add their sums at the end, in their order. A lane
 * has 16 neighbors of two rows of W and of one of each tile: which columns mma takes for neighbors does not matter, as
 * long as A and B agree. Moves codes and scales once; a comes from cache, for each block once. */
#include "kernels/cuda/quant/packed_few.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/quant/codes.cuh"

#define WARPS 8
#define ROWS  16 /* of W, of a piece of a block */
#define COLS  64 /* of W, of a warp at a time */
#define OWN   16 /* of these, of a lane */
#define AHEAD                                                                                      \
    4 /* pieces whose codes are on their way at the same time, while those before are multiplied */

struct few {
    const uint8_t *codes;
    const float *scale;
    int64_t n, blocks_of_row;
    int k, m, shift;               /* of a column to its block */
    bool aligned_codes, aligned_a; /* to one access of 16 neighbors, of 8 */
    const bf16 *a;
    int64_t a_stride;
    const bf16 *bias; /* NULL: none */
    void *c;
    const void *addend; /* NULL: none */
    int64_t c_stride, addend_stride;
    bool c_is_bf16;
};

/* Columns col … col + 15 of a row of W, rounded: two in a word. */
struct own_columns {
    uint32_t pair[OWN / 2];
};
template <class Codes>
__device__ static inline own_columns values_of(const Codes &codes,
                                               const typename Codes::group (&two)[2], float scale) {
    own_columns out;
    AX_UNROLL
    for (int h = 0; h < 2; h++) {
        float v[AX_NEIGHBORS];
        codes.values(two[h], v);
        AX_UNROLL
        for (int i = 0; i < 4; i++)
            out.pair[4 * h + i] = round_pair(v[2 * i] * scale, v[2 * i + 1] * scale);
    }
    return out;
}

template <class Codes>
__device__ static inline void load_codes(const few &w, int64_t row, int col,
                                         typename Codes::group (&two)[2]) {
    const int64_t at = row * w.k + col;
    if (w.aligned_codes) {
        Codes::load_two(w.codes, at / AX_NEIGHBORS, two);
        return;
    }
    const uint8_t *from = w.codes + at * (int)sizeof two / OWN;
    memcpy(two, from, sizeof two);
}

/* What a lane has of W: of PIECES times two rows, and of as many times COLS columns of its warp as AHEAD allows. */
template <class Codes, int PIECES> struct ahead {
    static constexpr int STEPS = AHEAD / PIECES;
    typename Codes::group group[STEPS][2 * PIECES][2];
    float scale[STEPS][2 * PIECES];
    __device__ void load(const few &w, const int64_t (&rows)[2 * PIECES], int from) {
        AX_UNROLL
        for (int s = 0; s < STEPS; s++) {
            const int col = from + s * WARPS * COLS + OWN * (threadIdx.x % 4);
            AX_UNROLL
            for (int r = 0; r < 2 * PIECES && col < w.k; r++) {
                load_codes<Codes>(w, rows[r], col, group[s][r]);
                scale[s][r] = w.scale[rows[r] * w.blocks_of_row + (col >> w.shift)];
            }
        }
    }
};

__device__ static inline own_columns load_own(const few &w, int row, int col) {
    const bf16 *from = w.a + row * w.a_stride + col;
    own_columns out;
    if (w.aligned_a) {
        const uint4 x = __ldg((const uint4 *)from), y = __ldg((const uint4 *)from + 1);
        return {{x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w}};
    }
    AX_UNROLL
    for (int i = 0; i < OWN / 2; i++)
        out.pair[i] = round_pair((float)from[2 * i], (float)from[2 * i + 1]);
    return out;
}

/* c's element [m][n], from the product's. */
__device__ static inline void store_sum(const few &w, int64_t m, int64_t n, float sum) {
    const int64_t at = m * w.c_stride + n, added = m * w.addend_stride + n;
    sum += w.bias != nullptr ? (float)w.bias[n] : 0;
    if (w.c_is_bf16) {
        sum += w.addend != nullptr ? (float)((const bf16 *)w.addend)[added] : 0;
        ((bf16 *)w.c)[at] = bf16(sum);
    } else {
        sum += w.addend != nullptr ? ((const float *)w.addend)[added] : 0;
        ((float *)w.c)[at] = sum;
    }
}

template <class Codes, int TILES, int PIECES>
__global__ void __launch_bounds__(32 * WARPS) packed_few_kernel(few w, AX_INDEXED Codes parameter) {
    AX_SHARED(float, sums, [WARPS][TILES * ROWS * 8]);
    typedef ahead<Codes, PIECES> codes_ahead;
    const Codes &codes = share(parameter);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t first = blockIdx.x * (int64_t)(ROWS * PIECES);
    int64_t rows[2 * PIECES];
    AX_UNROLL
    for (int r = 0; r < 2 * PIECES; r++)
        rows[r] = min(w.n - 1, first + g + 8 * r);
    float c[PIECES][TILES][4] = {};
    codes_ahead next = {};
    next.load(w, rows, warp * COLS);
    for (int from = warp * COLS; from < w.k; from += codes_ahead::STEPS * WARPS * COLS) {
        const codes_ahead now = next;
        next.load(w, rows, from + codes_ahead::STEPS * WARPS * COLS);
        AX_UNROLL
        for (int s = 0; s < codes_ahead::STEPS; s++) {
            const int col = from + s * WARPS * COLS + OWN * t;
            if (col >= w.k) /* of all lanes */
                break;
            own_columns own[2 * PIECES];
            AX_UNROLL
            for (int r = 0; r < 2 * PIECES; r++)
                own[r] = values_of(codes, now.group[s][r], now.scale[s][r]);
            AX_UNROLL
            for (int tile = 0; tile < TILES; tile++) {
                const own_columns x = load_own(w, min(w.m - 1, 8 * tile + g), col);
                AX_UNROLL
                for (int i = 0; i < OWN / 2 * PIECES; i += 2) {
                    const int piece = i / (OWN / 2), at = i % (OWN / 2);
                    const uint32_t *low = own[2 * piece].pair + at;
                    const uint32_t *high = own[2 * piece + 1].pair + at;
                    const uint32_t a[4] = {low[0], high[0], low[1], high[1]};
                    mma(c[piece][tile], a, x.pair[at], x.pair[at + 1]);
                }
            }
        }
    }
    AX_UNROLL
    for (int piece = 0; piece < PIECES; piece++) {
        __syncthreads(); /* the last piece's have been read */
        AX_UNROLL
        for (int i = 0; i < 4 * TILES; i++)
            sums[warp][(8 * (i / 4) + 2 * t + i % 2) * ROWS + g + i % 4 / 2 * 8] =
                c[piece][i / 4][i % 4];
        __syncthreads();
        for (int i = threadIdx.x; i < w.m * ROWS; i += 32 * WARPS) {
            const int64_t n = first + piece * ROWS + i % ROWS;
            float sum = 0;
            AX_UNROLL
            for (int from = 0; from < WARPS; from++)
                sum += sums[from][i];
            if (n < w.n)
                store_sum(w, i / ROWS, n, sum);
        }
    }
}

/* ---- the host's side ---- */

static bool is_power_of_two(int64_t x) {
    return (x & (x - 1)) == 0;
}

extern "C" bool ax_cuda_packed_few_fits(const struct ax_packed_gemm *a) {
    const int64_t k = a->a.shape[1];
    const bool known = a->kind == AX_QUANT_NF4 || a->kind == AX_QUANT_INT4X2 ||
                       a->kind == AX_QUANT_INT8 || a->kind == AX_QUANT_INT4 ||
                       a->kind == AX_QUANT_FP8;
    return known && !a->codes.panels && a->a.dtype == AX_BF16 && a->a.shape[0] <= 64 &&
           k % COLS == 0 && k > 0 && k < 1 << 30 &&
           (a->block == k || (a->block >= OWN && is_power_of_two(a->block) && k % a->block == 0));
}

static int shift_of(const struct ax_packed_gemm *a) {
    int shift = 0;
    if (a->block == a->a.shape[1])
        return 31;
    while ((int64_t)1 << shift < a->block)
        shift++;
    return shift;
}

template <int TILES, int PIECES, class Codes>
static enum ax_status launch(struct ax_queue *q, const few &w, const Codes &codes) {
    return AX_LAUNCH(q, (packed_few_kernel<Codes, TILES, PIECES>), blocks_of(w.n, ROWS * PIECES),
                     32 * WARPS, 0, w, codes);
}
/* Many rows of a would come from cache for too many blocks. */
template <class Codes>
static enum ax_status run_few(struct ax_queue *q, const few &w, const Codes &codes) {
    return w.m <= 8    ? launch<1, 1>(q, w, codes)
           : w.m <= 16 ? launch<2, 1>(q, w, codes)
           : w.m <= 32 ? launch<4, 2>(q, w, codes)
                       : launch<8, 2>(q, w, codes);
}

extern "C" enum ax_status ax_cuda_packed_few(struct ax_queue *q, const struct ax_packed_gemm *a) {
    const int64_t k = a->a.shape[1];
    const few w = {(const uint8_t *)a->codes.data,
                   (const float *)a->scale.data,
                   a->c.shape[1],
                   k / a->block,
                   (int)k,
                   (int)a->a.shape[0],
                   shift_of(a),
                   (uintptr_t)a->codes.data % 16 == 0,
                   (uintptr_t)a->a.data % 16 == 0 && a->a.row_stride % AX_NEIGHBORS == 0,
                   (const bf16 *)a->a.data,
                   a->a.row_stride,
                   (const bf16 *)a->bias.data,
                   a->c.data,
                   a->addend.data,
                   a->c.row_stride,
                   a->addend.row_stride,
                   a->c.dtype == AX_BF16};
    if (w.m == 0 || w.n == 0)
        return AX_OK;
    if (ax_quant_info(a->kind)->values != nullptr)
        return run_few(q, w, half_codes_of(a->kind));
    return a->kind == AX_QUANT_FP8 ? run_few(q, w, e4m3_codes()) : run_few(q, w, integer_codes());
}
