/* The ops of number formats: quantization, and rounding to a format while training. Part of the op table
 * (kernels/ops.h), whose words the comments use. */
#ifndef AX_KERNELS_QUANT_QUANT_OPS_H
#define AX_KERNELS_QUANT_QUANT_OPS_H

#include "kernels/tensor.h"

/* Number formats. x is read as F32, flattened and divided into blocks of `block` elements (the last
 * may be shorter), each with one scale s; lo and hi are the least and largest x of a block, amax the
 * largest |x|. rint rounds half to even, and so do e4m3, e5m2 and e2m1, to the nearest such float
 * after clamping to the largest. Sources: Dettmers et al. 2023 (NF4), torchao (the others), OCP
 * Microscaling Formats 1.0 (MX).
 *   NF4        s = amax; code = the nearest of 16 fixed values to x/s, two codes per byte, the even
 *              element in the high half; value = t[code]·s
 *   MAP8       s = the largest |x − offset|; code = the nearest of 256 fixed values, dense near 0,
 *              to (x − offset)/s; value = t[code]·s + offset (for the scales of NF4 themselves)
 *   INT8       s = max(amax/127.5, 2⁻¹²⁶); q = clamp(rint(x·(1/s)), −128, 127); value = q·s
 *   INT4       the same with amax/7.5, −8 and 7
 *   INT4X2     the same, two codes per byte as of NF4, of 4 bits in two's complement
 *   INT8_ASYM  with lo ≤ 0 ≤ hi: s = max((hi − lo)/255, 2⁻¹²⁶), z = clamp(−128 − rint(lo/s), −128,
 *              127), q = clamp(rint(x·(1/s)) + z, −128, 127); value = (q − z)·s; offset = z
 *   INT4_ASYM  s = max(hi − lo, 1e-6)/15, q = clamp(rint((x − lo)/s), 0, 15); value = (q − 8)·s +
 *              offset, offset = lo + 8s
 *   INT4_FP8   y = x after FP8 by rows; s = max(amax(y)/8, 1e-6), q = clamp(rint(y·(1/s)), −8, 7);
 *              value = q·s; outer = the row's scale
 *   FP8, E5M2  s = max(amax, 1e-12)/448 (/57344); q = e4m3 (e5m2) of x/s; value = q·s
 *   NVFP4      outer g = amax of the tensor/2688; scale b = e4m3(clamp(amax/6/g, 2⁻⁶, 448)); q =
 *              e2m1(x·((1/g)/b)); value = q·(b·g)
 *   NVFP4_ONE  b = e4m3(clamp(amax/6, 2⁻⁶, 448)); q = e2m1(x/b); value = q·b
 *   MXFP4      scale byte e + 127, e = floor(log₂ amax) − 2; q = e2m1(x/2ᵉ); value = q·2ᵉ
 *   MXFP4_UP   e = ceil(log₂(amax/6))
 *   MXFP8, MXFP8_UP  with e4m3 in place of e2m1, 8 of 2, and 448 of 6 */
enum ax_quant {
    AX_QUANT_NF4,
    AX_QUANT_INT8,
    AX_QUANT_FP8,
    AX_QUANT_MAP8,
    AX_QUANT_INT4,
    AX_QUANT_INT8_ASYM,
    AX_QUANT_INT4_ASYM,
    AX_QUANT_INT4_FP8,
    AX_QUANT_E5M2,
    AX_QUANT_NVFP4,
    AX_QUANT_NVFP4_ONE,
    AX_QUANT_MXFP4,
    AX_QUANT_MXFP4_UP,
    AX_QUANT_MXFP8,
    AX_QUANT_MXFP8_UP,
    AX_QUANT_INT4X2,
    AX_QUANT_COUNT
};

/* x compute, dense; codes [numel], [(numel + 1)/2] if a byte has two; scale [blocks]; the dtypes of both are in
 * kernels/quant/scheme.h. offset F32 [blocks]: of MAP8, an input; zero F32 [blocks]: the offsets of the
 * ASYM. outer F32 [n], of NVFP4 and INT4_FP8: a scale for each row of range. All 1-D except x.
 * range F32 [n][2], from quant_range, n = 1 or rows of x, each with as many blocks: replaces lo and
 * hi of the blocks, or of the tensor or row that `outer` is of, which needs it. Data NULL = none. */
struct ax_quantize {
    struct ax_tensor x, codes, scale, offset;
    int64_t block;
    enum ax_quant kind;
    struct ax_tensor range, zero, outer;
};
/* out = the values, rounded once from F32 to compute. outer: of NVFP4 alone. */
struct ax_dequantize {
    struct ax_tensor out, codes, scale, offset;
    int64_t block;
    enum ax_quant kind;
    struct ax_tensor outer;
};

/* c = a·Wᵀ [+ bias] [+ addend] for W [N][K], the values that dequantize makes of codes, with the bits of
 * gemm; of codes in panels, with the scales taken out of the sums: Σ over blocks s·(Σ a·t), where t is what a
 * code means without its scale s, rounded to compute (integers are exact), and s·t is not rounded. Of up to 64 rows
 * a GPU adds up the products of gemm in another order. a compute [M][K]; c compute or accumulation [M][N]; bias compute [N], addend [M][N] of c's dtype,
 * data NULL = none. Formats without offset or outer. */
struct ax_packed_gemm {
    struct ax_tensor a, codes, scale, c, bias, addend;
    int64_t block;
    enum ax_quant kind;
};

/* range[i] = the largest −x and the largest x, both at least 0, of row i, or with `columns` of column i;
 * with one row of range, of all of x. x compute [R][C], range F32 [R][2], [C][2] or [1][2]. */
struct ax_quant_range {
    struct ax_tensor x, range;
    bool columns;
};
/* y = the values that x has in a number format, rounded once from F32. x, y compute [R][C], y may be
 * x; `block` divides C. The formats above but NF4, INT4X2 and MAP8; range as of quantize. With `columns`, of FP8
 * and E5M2, each column is a block with that row of range, [C][2]; `block` is C. */
struct ax_fake_quantize {
    struct ax_tensor x, y, range;
    int64_t block;
    enum ax_quant kind;
    bool columns;
};
/* Operands of fp8_gemm: the codes of x, whose kind is FP8 or E5M2, with the scales that `range` gives; the code of a
 * NaN is 0x7f, which is one in both formats. rows U8 [R][C]; columns U8 [C][R'], the transposition, with zeros up to
 * R', the next multiple of 16; dense, data NULL = none, at least one is given. x compute [R][C]; C is a multiple of
 * 16. scale F32 [n], range F32 [n][2]: n = 1, one for all of x; or, of rows alone, R, one for each of them, where
 * range may be absent: each row's own; or, of columns alone, C, one for each of them. */
struct ax_fp8_codes {
    struct ax_tensor x, range, rows, columns, scale;
    enum ax_quant kind;
};
#define AX_FP8_STEP 16 /* sums of fp8_gemm have a multiple of as many terms */
static inline int64_t ax_fp8_round_up(int64_t n) {
    return (n + AX_FP8_STEP - 1) / AX_FP8_STEP * AX_FP8_STEP;
}
/* True if each row has a scale; if each column has one. */
static inline bool ax_fp8_codes_by_row(const struct ax_fp8_codes *a) {
    return !a->columns.data && a->scale.shape[0] == a->x.shape[0];
}
static inline bool ax_fp8_codes_by_column(const struct ax_fp8_codes *a) {
    return !a->rows.data && a->scale.shape[0] == a->x.shape[1];
}
/* c = s_a·s_b · a·bᵀ [+ bias] [+ addend] [+ c if accumulate] of codes: a U8 [M][K] of a_kind and b U8 [N][K] of
 * b_kind, FP8 or E5M2 but not both E5M2; a_scale and b_scale F32 [1], or of rows: a_scale [M] and b_scale [N]. c and
 * addend [M][N], of one dtype, compute or accumulation; bias compute [N]; data NULL = none; addend not together with
 * accumulate. As cuBLASLt takes them: K and N multiples of AX_FP8_STEP, and rows of a, b, c and addend begin at
 * multiples of 16 bytes, as do scales of rows.
 *   y = x·Wᵀ      a = rows of x, b = rows of W
 *   dx = dy·W     a = rows of dy, b = columns of W
 *   dW += dyᵀ·x   a = columns of dy, b = columns of x, accumulate */
struct ax_fp8_gemm {
    struct ax_tensor a, b, a_scale, b_scale, c, bias, addend;
    enum ax_quant a_kind, b_kind;
    bool accumulate;
};
/* True if rows of t, absent or of c's shape, begin at multiples of 16 bytes. */
bool ax_fp8_gemm_aligned(const struct ax_tensor *t);
/* True if each row of a and b has a scale: there are at least AX_FP8_STEP of b. */
static inline bool ax_fp8_gemm_by_rows(const struct ax_fp8_gemm *g) {
    return g->b_scale.ndim == 1 && g->b_scale.shape[0] > 1;
}

/* dx (+)= dy where rounding did not clamp, else 0; scales are constants (Bengio et al. 2013). Of
 * INT4_ASYM, lo, hi and s have gradients, too, as in torchao; equal extremes share them. x and range
 * as in the forward op; dy, dx compute or accumulation [R][C], of one dtype; dx may be dy unless it
 * accumulates. */
struct ax_fake_quantize_backward {
    struct ax_tensor x, dy, dx, range;
    int64_t block;
    enum ax_quant kind;
    bool accumulate;
};

#endif
