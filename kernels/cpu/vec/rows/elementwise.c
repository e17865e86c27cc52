/* fill, copy, add, scale, softcap_backward and colsum. */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"

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

AX_INLINE void add_vector(enum ax_dtype to, enum ax_dtype from, void *dst, const void *src,
                          v_float alpha, int64_t i, int64_t n) {
    v_store(to, dst, i, n, v_fma(alpha, v_load(from, src, i, n), v_load(to, dst, i, n)));
}

AX_INLINE void add_piece(enum ax_dtype from, enum ax_dtype to, void *dst, const void *src,
                         float alpha, int64_t n) {
    AX_EACH_VECTOR(n, add_vector, to, from, dst, src, v_set(alpha));
}

enum ax_status AX_VEC(ax_cpu_add)(struct ax_queue *q, const struct ax_add *args, void *work) {
    (void)work;
    const struct ax_tensor *dst = &args->dst, *src = &args->src;
    float alpha = (float)args->alpha;
    struct pieces pieces = cut(dst, ax_tensor_is_dense(dst) && ax_tensor_is_dense(src));
    AX_PARALLEL_FOR (team(q, pieces.elements), p, pieces.count) {
        struct piece piece = piece_at(&pieces, p);
        AX_BY_DTYPES(dst->dtype, src->dtype, add_piece, piece_of(dst, &piece),
                     piece_of(src, &piece), alpha, piece.n);
    }
    return AX_OK;
}

AX_INLINE void scale_vector(enum ax_dtype to, enum ax_dtype from, void *y, const void *x,
                            v_float alpha, v_float cap, int64_t i, int64_t n) {
    v_store(to, y, i, n, cap * (alpha * v_load(from, x, i, n)));
}

AX_INLINE void cap_vector(enum ax_dtype to, enum ax_dtype from, void *y, const void *x,
                          v_float alpha, v_float cap, int64_t i, int64_t n) {
    v_store(to, y, i, n, cap * v_tanh(alpha * v_load(from, x, i, n)));
}

AX_INLINE void scale_piece(enum ax_dtype from, enum ax_dtype to, void *y, const void *x,
                           float alpha, float softcap, int64_t n) {
    if (softcap > 0)
        AX_EACH_VECTOR(n, cap_vector, to, from, y, x, v_set(alpha / softcap), v_set(softcap));
    else
        AX_EACH_VECTOR(n, scale_vector, to, from, y, x, v_set(alpha), v_set(1.0f));
}

enum ax_status AX_VEC(ax_cpu_scale)(struct ax_queue *q, const struct ax_scale *args, void *work) {
    (void)work;
    const struct ax_tensor *y = &args->y, *x = &args->x;
    struct pieces pieces = cut(y, ax_tensor_is_dense(y) && ax_tensor_is_dense(x));
    AX_PARALLEL_FOR (team(q, pieces.elements), p, pieces.count) {
        struct piece piece = piece_at(&pieces, p);
        AX_BY_DTYPES(y->dtype, x->dtype, scale_piece, piece_of(y, &piece), piece_of(x, &piece),
                     (float)args->alpha, (float)args->softcap, piece.n);
    }
    return AX_OK;
}

AX_INLINE void uncap_vector(enum ax_dtype of, enum ax_dtype from, void *dx, const void *dy,
                            const void *y, v_float alpha, v_float inverse, int64_t i, int64_t n) {
    v_float z = v_load(from, y, i, n) * inverse, one = v_set(1.0f);
    v_float slope = v_max(v_set(0.0f), v_fnma(z, z, one)); /* NaN stays NaN */
    v_store(of, dx, i, n, alpha * v_load(of, dy, i, n) * slope);
}

AX_INLINE void uncap_piece(enum ax_dtype from, enum ax_dtype of, void *dx, const void *dy,
                           const void *y, float alpha, float inverse, int64_t n) {
    AX_EACH_VECTOR(n, uncap_vector, of, from, dx, dy, y, v_set(alpha), v_set(inverse));
}

enum ax_status AX_VEC(ax_cpu_softcap_backward)(struct ax_queue *q,
                                               const struct ax_softcap_backward *args, void *work) {
    (void)work;
    const struct ax_tensor *dx = &args->dx, *dy = &args->dy, *y = &args->y;
    const bool dense = ax_tensor_is_dense(dx) && ax_tensor_is_dense(dy) && ax_tensor_is_dense(y);
    struct pieces pieces = cut(dx, dense);
    AX_PARALLEL_FOR (team(q, pieces.elements), p, pieces.count) {
        struct piece piece = piece_at(&pieces, p);
        AX_BY_DTYPES(dx->dtype, y->dtype, uncap_piece, piece_of(dx, &piece), piece_of(dy, &piece),
                     piece_of(y, &piece), (float)args->alpha, (float)(1 / args->softcap), piece.n);
    }
    return AX_OK;
}

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
