/* The parts of the GEMM, private to this folder. Reading order: this file, gemm.c (the plan, the
 * loops), gemm_pack.c, gemm_kernel.c, gemm_store.c; gemm_few.c (few rows, as in decoding). Sets
 * with tiles (tiles.h) have gemm_pack_tiles.c, gemm_kernel_tiles.c and gemm_few_tiles.c instead of
 * the files of those names.
 *
 * Both operands are packed into panels of 32-bit *units*, stored as floats: with BF16 instructions
 * a unit is a pair of neighboring k (as vdpbf16ps reads them), else one number. A panel of op(a) is
 * AX_GEMM_MR rows wide, one of op(b) AX_GEMM_NR columns: panel[u][r]. The micro-kernel keeps an
 * MR×NR tile of c in registers and loops over one panel of each. With tiles, operands are bf16 and
 * padded with zeros to full tiles, and a panel consists of tiles: for every AX_TILE_UNITS units,
 * those of a's rows (or b's columns) 0 … 15, and then those of 16 … 31.
 *
 * Every element of c is one accumulator that adds the units in ascending order; between blocks of k
 * it is stored as the same float. (With tiles it adds the sum of 16 units at a time, and blocks
 * are multiples of those.) So its bits depend only on its row of op(a), its column of op(b) and K: not on how c is tiled, on the number of threads, on M or N, or on which operand is
 * transposed. */
#ifndef AX_KERNELS_CPU_VEC_GEMM_GEMM_H
#define AX_KERNELS_CPU_VEC_GEMM_GEMM_H

#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/tiles.h"
#include "kernels/cpu/vec/vec.h"
#include "kernels/ops.h"

#ifdef AX_TILES
#define AX_GEMM_MR    (2 * AX_TILE_ROWS)
#define AX_GEMM_NR    (2 * AX_TILE_ROWS)
#define AX_GEMM_STRIP AX_GEMM_MR
#else
#ifdef __ARM_NEON
#define AX_GEMM_MR (2 * AX_LANES)
#else
#define AX_GEMM_MR (AX_LANES / 2)
#endif
#define AX_GEMM_NV    3 /* vectors in a row of a tile */
#define AX_GEMM_NR    (AX_GEMM_NV * AX_LANES)
#define AX_GEMM_STRIP (2 * AX_GEMM_MR) /* rows of op(a) that are packed together */
#endif

#ifdef __AVX512BF16__
/* A pair of neighbors along k, in every lane. */
AX_INLINE v_float ax_pair_at(const uint16_t *x) {
    float pair;
    memcpy(&pair, x, sizeof pair);
    v_float all = v_set(pair);
#ifdef __clang__
    __asm__("" : "+v"(all)); /* clang 16 crashes when it sees that it is a broadcast */
#endif
    return all;
}
#endif

/* One operand as a matrix of `outer` (rows of op(a), columns of op(b)) by k. */
struct ax_gemm_operand {
    const char *data;
    int64_t stride; /* bytes from one row of the tensor to the next */
    int64_t k;
    enum ax_dtype dtype; /* F32 or BF16 */
    bool k_inside;       /* element (outer, k) is in row `outer` of the tensor; else in row k */
    bool panels;         /* in kernels/panels.h order; `first` below is then a multiple of LANES */
    int64_t ahead;       /* prefetch distance of pack_b in bytes; 0: NR further */
};

static inline struct ax_gemm_operand ax_gemm_rows_along_k(const struct ax_tensor *t) {
    return (struct ax_gemm_operand){.data = t->data,
                                    .stride = t->row_stride * (int64_t)ax_dtype_size(t->dtype),
                                    .k = t->shape[1],
                                    .dtype = t->dtype,
                                    .k_inside = true,
                                    .panels = t->panels};
}

/* True if units are pairs. */
static inline bool ax_gemm_pairs(enum ax_dtype dtype) {
#ifdef __AVX512BF16__
    return dtype == AX_BF16;
#else
    (void)dtype;
    return false;
#endif
}

/* Units in k elements. */
static inline int64_t ax_gemm_units(enum ax_dtype dtype, int64_t k) {
    const int64_t units = ax_gemm_pairs(dtype) ? (k + 1) / 2 : k;
#ifdef AX_TILES
    return (units + AX_TILE_UNITS - 1) / AX_TILE_UNITS * AX_TILE_UNITS;
#else
    return units;
#endif
}

/* How many of `threads` are worth waking. */
int AX_VEC(ax_gemm_threads)(const struct ax_gemm *g, int threads);

/* Packs units [u0, u0 + units) of outer [first, first + n), zeros beyond n or k. pack_a: panels [⌈n
 * / STRIP⌉·2][units][MR] (without the last one, if it has no row). pack_b: panels [⌈n / NR⌉][units][NR]. */
void AX_VEC(ax_gemm_pack_a)(float *dst, const struct ax_gemm_operand *op, int64_t first, int64_t n,
                            int64_t u0, int64_t units);
void AX_VEC(ax_gemm_pack_b)(float *dst, const struct ax_gemm_operand *op, int64_t first, int64_t n,
                            int64_t u0, int64_t units);

/* Cache lines to fetch while products run: of each of `rows` rows, `stride` bytes apart, `lines` lines;
 * `each` of them per AX_LANES units. */
struct ax_gemm_ahead {
    const char *first;
    int64_t stride, rows, lines, each;
    int64_t row, line; /* the next one: row by row, then line by line */
};

/* How calls of the micro-kernel use caches, which never affects bits. One operand's panel stays in the L1 cache from call
 * to call, and the other's passes: it comes from the L2 cache and is read once. */
struct ax_gemm_caches {
    bool a_passes;             /* else b does */
    struct ax_gemm_ahead next; /* what will be packed next */
    struct ax_gemm_ahead sums; /* the next call's acc */
    struct ax_gemm_ahead c;    /* where the sums will be stored */
};

/* acc[r][j] (+)= Σ_u a[u][r]·b[u][j] for r < rows ≤ MR and j < cols ≤ NR rounded up to vectors; acc
 * [MR][NR] starts from 0 if `first`. caches: advanced; NULL only without tiles. */
void AX_VEC(ax_gemm_kernel)(bool pairs, int64_t rows, int64_t cols, int64_t units, const float *a,
                            const float *b, float *acc, bool first, struct ax_gemm_caches *caches);

/* Few rows of op(a), and rows of b along k: another method with the same bits. c is not empty. */
bool AX_VEC(ax_gemm_is_few)(const struct ax_gemm *g);
/* Maximum for this product or any with fewer rows or less k; 0 if none qualifies. */
size_t AX_VEC(ax_gemm_few_workspace)(const struct ax_gemm *g);
void AX_VEC(ax_gemm_few)(const struct ax_gemm *g, int threads, float *work);

/* The same for a weight in panels, which needs no packing: a third method. (With tiles it is the
 * second one, too.) */
bool AX_VEC(ax_gemm_is_panels)(const struct ax_gemm *g);
void AX_VEC(ax_gemm_panels)(const struct ax_gemm *g, int threads);

/* Writes the tile at (row, col) of c from its sums, as struct ax_gemm says. */
void AX_VEC(ax_gemm_store)(const struct ax_gemm *g, const float *acc, int64_t row, int64_t col,
                           int64_t rows, int64_t cols);

#endif
