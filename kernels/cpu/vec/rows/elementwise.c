/* fill, copy, colsum, and the ops that are formulas of elements. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"
#include "kernels/pointwise.h"

enum ax_status AX_VEC(ax_cpu_fill)(struct ax_queue *q, const struct ax_fill *args, void *work) {
    (void)work;
    const struct ax_tensor *dst = &args->dst;
    size_t size = ax_dtype_size(dst->dtype);
    char pattern[256];
    for (size_t i = 0; i < sizeof(pattern) / size; i++)
        ax_store(dst->dtype, pattern, (int64_t)i, args->value);
    struct pieces pieces = cut(dst, ax_tensor_is_dense(dst));
    AX_PARALLEL_FOR (team(q, pieces.elements), p, pieces.count) {
        struct piece piece = piece_at(&pieces, p);
        char *at = piece_of(dst, &piece);
        size_t bytes = (size_t)piece.n * size;
        size_t done = 0;
        for (; done + sizeof(pattern) <= bytes; done += sizeof(pattern))
            memcpy(at + done, pattern, sizeof(pattern));
        memcpy(at + done, pattern, bytes - done);
    }
    return AX_OK;
}

AX_INLINE void convert_vector(enum ax_dtype to, enum ax_dtype from, void *dst, const void *src,
                              int64_t i, int64_t n) {
    v_store(to, dst, i, n, v_load(from, src, i, n));
}

static void copy_piece(enum ax_dtype to, char *dst, enum ax_dtype from, const char *src,
                       int64_t n) {
    if (to == AX_BF16 && from == AX_F32)
        AX_EACH_VECTOR(n, convert_vector, AX_BF16, AX_F32, dst, src);
    else if (to == AX_F32 && from == AX_BF16)
        AX_EACH_VECTOR(n, convert_vector, AX_F32, AX_BF16, dst, src);
    else /* the same dtype, or one that only appears in loading */
        ax_convert(to, dst, from, src, n);
}

enum ax_status AX_VEC(ax_cpu_copy)(struct ax_queue *q, const struct ax_copy *args, void *work) {
    (void)work;
    const struct ax_tensor *dst = &args->dst, *src = &args->src;
    struct pieces pieces = cut(dst, ax_tensor_is_dense(dst) && ax_tensor_is_dense(src));
    AX_PARALLEL_FOR (team(q, pieces.elements), p, pieces.count) {
        struct piece piece = piece_at(&pieces, p);
        copy_piece(dst->dtype, piece_of(dst, &piece), src->dtype, piece_of(src, &piece), piece.n);
    }
    return AX_OK;
}

/* ---- formulas ---- */

struct numbers {
    float p, r, per_r; /* per_r: 1/r */
};
typedef void piece_fn(enum ax_dtype to, enum ax_dtype from, void *z, const void *x, const void *y,
                      struct numbers k, int64_t n);

static enum ax_status each_piece(struct ax_queue *q, const struct ax_tensor *z,
                                 const struct ax_tensor *x, const struct ax_tensor *y,
                                 struct numbers k, piece_fn *compute) {
    const bool dense = ax_tensor_is_dense(z) && ax_tensor_is_dense(x) && ax_tensor_is_dense(y);
    const struct pieces pieces = cut(z, dense);
    AX_PARALLEL_FOR (team(q, pieces.elements), i, pieces.count) {
        const struct piece at = piece_at(&pieces, i);
        compute(z->dtype, x->dtype, piece_of(z, &at), piece_of(x, &at), piece_of(y, &at), k, at.n);
    }
    return AX_OK;
}

#define AX_EACH(p)       v_set(p)
#define AX_FMA(a, b, c)  v_fma(a, b, c)
#define AX_FNMA(a, b, c) v_fnma(a, b, c)
#define AX_OVER_R(x)     ((x)*v_set(k.per_r))
#define AX_CAP(x)        (v_set(r) * v_tanh(v_set(p / r) * (x)))
#define AX_POSITIVE(x)   v_max(v_set(0.0f), x) /* NaN stays NaN */

#define DEFINE_POINTWISE(op, Z, X, Y, INPUTS, P, R, FORMULA)                                       \
    AX_INLINE void op##_vector(enum ax_dtype to, enum ax_dtype from, void *zs, const void *xs,     \
                               const void *ys, struct numbers k, int64_t i, int64_t n) {           \
        const float p = k.p, r = k.r;                                                              \
        const v_float x = v_load(from, xs, i, n), y = INPUTS > 1 ? v_load(to, ys, i, n) : x;       \
        (void)p;                                                                                   \
        (void)r;                                                                                   \
        (void)y;                                                                                   \
        v_store(to, zs, i, n, FORMULA);                                                            \
    }                                                                                              \
    AX_INLINE void op##_elements(enum ax_dtype from, enum ax_dtype to, void *z, const void *x,     \
                                 const void *y, struct numbers k, int64_t n) {                     \
        AX_EACH_VECTOR(n, op##_vector, to, from, z, x, y, k);                                      \
    }                                                                                              \
    static void op##_piece(enum ax_dtype to, enum ax_dtype from, void *z, const void *x,           \
                           const void *y, struct numbers k, int64_t n) {                           \
        AX_BY_DTYPES(to, from, op##_elements, z, x, y, k, n);                                      \
    }                                                                                              \
    enum ax_status AX_VEC(ax_cpu_##op)(struct ax_queue * q, const struct ax_##op *a, void *work) { \
        (void)work;                                                                                \
        const struct numbers k = {(float)(P), (float)(R), (float)(1 / (double)(R))};               \
        return each_piece(q, &a->Z, &a->X, &a->Y, k, op##_piece);                                  \
    }
AX_POINTWISE(DEFINE_POINTWISE)

/* ---- sums of columns ---- */

size_t AX_VEC(ax_cpu_colsum_workspace)(struct ax_queue *q, const struct ax_colsum *args) {
    (void)q;
    return block_sums_bytes(args->x.shape[0], args->x.shape[1]);
}

AX_INLINE void add_row_vector(enum ax_dtype real, float *sums, const void *row, int64_t i,
                              int64_t n) {
    v_store_f32(sums + i, n, v_load_f32(sums + i, n) + v_load(real, row, i, n));
}

AX_INLINE void add_row(enum ax_dtype real, float *sums, const void *row, int64_t cols) {
    AX_EACH_VECTOR(cols, add_row_vector, real, sums, row);
}

enum ax_status AX_VEC(ax_cpu_colsum)(struct ax_queue *q, const struct ax_colsum *args, void *work) {
    const struct ax_tensor *x = &args->x;
    int64_t rows = x->shape[0], cols = x->shape[1];
    struct row_blocks blocks = block_rows(rows);
    AX_PARALLEL_FOR (team(q, rows * cols), b, blocks.count) {
        float *sums = (float *)work + b * cols;
        memset(sums, 0, (size_t)cols * sizeof(*sums));
        int64_t end = least(rows, (b + 1) * blocks.rows);
        for (int64_t t = b * blocks.rows; t < end; t++)
            AX_BY_DTYPE(x->dtype, add_row, sums, ax_tensor_row(x, t), cols);
    }
    add_blocks(q, args->out.data, work, blocks.count, cols);
    return AX_OK;
}
