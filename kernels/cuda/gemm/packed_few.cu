/* A block has 16 rows of W, which are the rows of mma's A, and up to 64 of a, which are the columns of its B, 8 in a
 * tile. Its warps share the columns of W, 64 at a time, and add their sums at the end, in their order. A lane has 16
 * neighbors of two rows of W and of one of each tile: which columns mma takes for neighbors does not matter, as long as
 * A and B agree. Moves codes and scales once; a comes from cache. */
#include "kernels/cuda/gemm/packed_few.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/quant/codes.cuh"

#define WARPS 8
#define ROWS  16 /* of W, of a block */
#define COLS  64 /* of W, of a warp at a time */
#define OWN   16 /* of these, of a lane */
#define STEPS                                                                                      \
    4 /* whose codes are on their way at the same time, while those before are multiplied */

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

/* What a lane has of two rows of W, of STEPS times COLS columns of its warp. */
template <class Codes> struct ahead {
    typename Codes::group group[STEPS][2][2];
    float scale[STEPS][2];
};
template <class Codes>
__device__ static inline void load_ahead(const few &w, const int64_t (&rows)[2], int from,
                                         ahead<Codes> *to) {
    AX_UNROLL
    for (int s = 0; s < STEPS; s++) {
        const int col = from + s * WARPS * COLS + OWN * (threadIdx.x % 4);
        AX_UNROLL
        for (int r = 0; r < 2 && col < w.k; r++) {
            load_codes<Codes>(w, rows[r], col, to->group[s][r]);
            to->scale[s][r] = w.scale[rows[r] * w.blocks_of_row + (col >> w.shift)];
        }
    }
}

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

template <class Codes, int TILES>
__global__ void __launch_bounds__(32 * WARPS) packed_few_kernel(few w, AX_INDEXED Codes parameter) {
    AX_SHARED(float, sums, [WARPS][TILES * ROWS * 8]);
    const Codes &codes = share(parameter);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t first = blockIdx.x * (int64_t)ROWS;
    const int64_t rows[2] = {min(w.n - 1, first + g), min(w.n - 1, first + g + 8)};
    float c[TILES][4] = {};
    ahead<Codes> next = {};
    load_ahead(w, rows, warp * COLS, &next);
    for (int from = warp * COLS; from < w.k; from += WARPS * STEPS * COLS) {
        const ahead<Codes> now = next;
        load_ahead(w, rows, from + WARPS * STEPS * COLS, &next);
        AX_UNROLL
        for (int s = 0; s < STEPS; s++) {
            const int col = from + s * WARPS * COLS + OWN * t;
            if (col >= w.k) /* of all lanes */
                break;
            const own_columns low = values_of(codes, now.group[s][0], now.scale[s][0]);
            const own_columns high = values_of(codes, now.group[s][1], now.scale[s][1]);
            AX_UNROLL
            for (int tile = 0; tile < TILES; tile++) {
                const own_columns x = load_own(w, min(w.m - 1, 8 * tile + g), col);
                AX_UNROLL
                for (int i = 0; i < OWN / 2; i += 2) {
                    const uint32_t a[4] = {low.pair[i], high.pair[i], low.pair[i + 1],
                                           high.pair[i + 1]};
                    mma(c[tile], a, x.pair[i], x.pair[i + 1]);
                }
            }
        }
    }
    AX_UNROLL
    for (int tile = 0; tile < TILES; tile++) {
        AX_UNROLL
        for (int i = 0; i < 4; i++)
            sums[warp][(8 * tile + 2 * t + i % 2) * ROWS + g + i / 2 * 8] = c[tile][i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < w.m * ROWS; i += 32 * WARPS) {
        const int64_t m = i / ROWS, n = first + i % ROWS;
        float sum = 0;
        AX_UNROLL
        for (int from = 0; from < WARPS; from++)
            sum += sums[from][i];
        if (n >= w.n)
            continue;
        sum += w.bias != nullptr ? (float)w.bias[n] : 0;
        const int64_t at = m * w.c_stride + n, added = m * w.addend_stride + n;
        if (w.c_is_bf16) {
            sum += w.addend != nullptr ? (float)((const bf16 *)w.addend)[added] : 0;
            ((bf16 *)w.c)[at] = bf16(sum);
        } else {
            sum += w.addend != nullptr ? ((const float *)w.addend)[added] : 0;
            ((float *)w.c)[at] = sum;
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

template <class Codes>
static enum ax_status run_few(struct ax_queue *q, const few &w, const Codes &codes) {
    const unsigned blocks = blocks_of(w.n, ROWS), threads = 32 * WARPS;
    if (w.m <= 8)
        return AX_LAUNCH(q, (packed_few_kernel<Codes, 1>), blocks, threads, 0, w, codes);
    if (w.m <= 16)
        return AX_LAUNCH(q, (packed_few_kernel<Codes, 2>), blocks, threads, 0, w, codes);
    if (w.m <= 32)
        return AX_LAUNCH(q, (packed_few_kernel<Codes, 4>), blocks, threads, 0, w, codes);
    return AX_LAUNCH(q, (packed_few_kernel<Codes, 8>), blocks, threads, 0, w, codes);
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
