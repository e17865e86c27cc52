/* dropout, colscale, coldot, dora_norm, dora_scale, merge_low_rank and merged_squares. */
#include <math.h>

#include "base/rng.h"
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"

/* Draws elements [from, from + n) of the random stream as keep = 1/(1 − p) or 0. */
static void draw(const struct ax_dropout *a, struct ax_rng_key key, int64_t from, int64_t n,
                 float *keep) {
    double threshold = a->p * 0x1p32;
    float scale = (float)(1 / (1 - a->p));
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = (uint64_t)(from + i);
        if (i == 0 || index % 4 == 0)
            ax_rng_block(key, index / 4, words);
        keep[i] = (double)words[index % 4] >= threshold ? scale : 0;
    }
}

AX_INLINE void drop_vector(enum ax_dtype real, const void *x, const float *keep, void *y,
                           bool accumulate, int64_t i, int64_t n) {
    v_float v = v_load(real, x, i, n) * v_load_f32(keep + i, n);
    if (accumulate)
        v += v_load(real, y, i, n);
    v_store(real, y, i, n, v);
}

AX_INLINE void drop_piece(enum ax_dtype real, const void *x, const float *keep, void *y,
                          bool accumulate, int64_t n) {
    AX_EACH_VECTOR(n, drop_vector, real, x, keep, y, accumulate);
}

#define DRAWN 1024 /* numbers drawn per call */

enum ax_status AX_VEC(ax_cpu_dropout)(struct ax_queue *q, const struct ax_dropout *a, void *work) {
    (void)work;
    const struct ax_tensor *x = &a->x, *y = &a->y;
    const int32_t *numbers = a->rows.data;
    struct ax_rng_key key = {a->scalars->seed, (uint32_t)a->scalars->step, a->tensor};
    int64_t rows = x->shape[0], cols = x->shape[1], per_row = ceil_div(cols, DRAWN);
    size_t size = ax_dtype_size(x->dtype);
    AX_PARALLEL_FOR (team(q, rows * cols), i, rows * per_row) {
        int64_t t = i / per_row, first = i % per_row * DRAWN, n = least(DRAWN, cols - first);
        float keep[DRAWN];
        int64_t row = a->first_row + (numbers != NULL ? numbers[t] : t);
        draw(a, key, row * a->cols + a->first_col + first, n, keep);
        AX_BY_DTYPE(x->dtype, drop_piece, (char *)ax_tensor_row(x, t) + (size_t)first * size, keep,
                    (char *)ax_tensor_row(y, t) + (size_t)first * size, a->accumulate, n);
    }
    return AX_OK;
}

struct scaled {
    const float *scale;
    const void *bias, *addend;
};

AX_INLINE void scale_vector(enum ax_dtype bias, enum ax_dtype stream, const void *x, void *y,
                            const struct scaled *s, int64_t i, int64_t n) {
    v_float v = v_load(stream, x, i, n);
    if (s->scale != NULL)
        v *= v_load_f32(s->scale + i, n);
    if (s->bias != NULL)
        v += v_load(bias, s->bias, i, n);
    if (s->addend != NULL)
        v += v_load(stream, s->addend, i, n);
    v_store(stream, y, i, n, v);
}

AX_INLINE void scale_row(enum ax_dtype bias, enum ax_dtype stream, const void *x, void *y,
                         struct scaled s, int64_t cols) {
    AX_EACH_VECTOR(cols, scale_vector, bias, stream, x, y, &s);
}

enum ax_status AX_VEC(ax_cpu_colscale)(struct ax_queue *q, const struct ax_colscale *a,
                                       void *work) {
    (void)work;
    const struct ax_tensor *x = &a->x;
    int64_t rows = x->shape[0], cols = x->shape[1];
    AX_PARALLEL_FOR (team(q, rows * cols), t, rows) {
        struct scaled s = {.scale = a->scale.data, .bias = a->bias.data};
        if (a->addend.data != NULL)
            s.addend = ax_tensor_row(&a->addend, t);
        AX_BY_DTYPES(x->dtype, a->bias.dtype, scale_row, ax_tensor_row(x, t),
                     ax_tensor_row(&a->y, t), s, cols);
    }
    return AX_OK;
}

size_t AX_VEC(ax_cpu_coldot_workspace)(struct ax_queue *q, const struct ax_coldot *a) {
    (void)q;
    return block_sums_bytes(a->a.shape[0], a->a.shape[1]);
}

AX_INLINE void dot_vector(enum ax_dtype real, float *sums, const void *x, const void *y, int64_t i,
                          int64_t n) {
    v_float sum = v_fma(v_load(real, x, i, n), v_load(real, y, i, n), v_load_f32(sums + i, n));
    v_store_f32(sums + i, n, sum);
}

AX_INLINE void dot_row(enum ax_dtype real, float *sums, const void *x, const void *y,
                       int64_t cols) {
    AX_EACH_VECTOR(cols, dot_vector, real, sums, x, y);
}

enum ax_status AX_VEC(ax_cpu_coldot)(struct ax_queue *q, const struct ax_coldot *a, void *work) {
    int64_t rows = a->a.shape[0], cols = a->a.shape[1];
    struct row_blocks blocks = block_rows(rows);
    AX_PARALLEL_FOR (team(q, rows * cols), b, blocks.count) {
        float *sums = (float *)work + b * cols;
        memset(sums, 0, (size_t)cols * sizeof(*sums));
        for (int64_t t = b * blocks.rows; t < least(rows, (b + 1) * blocks.rows); t++) {
            AX_BY_DTYPE(a->a.dtype, dot_row, sums, ax_tensor_row(&a->a, t), ax_tensor_row(&a->b, t),
                        cols);
        }
    }
    add_blocks(q, a->out.data, work, blocks.count, cols);
    return AX_OK;
}

AX_INLINE void square_vector(enum ax_dtype real, const void *x, v_float *sum, int64_t i,
                             int64_t n) {
    v_float v = v_load(real, x, i, n);
    *sum = v_fma(v, v, *sum);
}

AX_INLINE void product_vector(enum ax_dtype real, const void *b, const float *p, v_float *sum,
                              int64_t i, int64_t n) {
    *sum = v_fma(v_load(real, b, i, n), v_load_f32(p + i, n), *sum);
}

AX_INLINE double norm_row(enum ax_dtype real, const void *w, int64_t k, const void *b,
                          const float *p, int64_t r) {
    v_float squares = v_set(0), products = v_set(0);
    AX_EACH_VECTOR(k, square_vector, real, w, &squares);
    AX_EACH_VECTOR(r, product_vector, real, b, p, &products);
    return v_sum(squares) + v_sum(products);
}

enum ax_status AX_VEC(ax_cpu_dora_norm)(struct ax_queue *q, const struct ax_dora_norm *a,
                                        void *work) {
    (void)work;
    const struct ax_tensor *w = &a->weight;
    float *out = a->out.data;
    AX_PARALLEL_FOR (team(q, w->shape[0] * w->shape[1]), n, w->shape[0]) {
        out[n] =
            (float)AX_BY_DTYPE(w->dtype, norm_row, ax_tensor_row(w, n), w->shape[1],
                               ax_tensor_row(&a->b, n), ax_tensor_row(&a->p, n), a->b.shape[1]);
    }
    return AX_OK;
}

enum ax_status AX_VEC(ax_cpu_dora_scale)(struct ax_queue *q, const struct ax_dora_scale *a,
                                         void *work) {
    (void)q;
    (void)work;
    const float *sumsq = a->sumsq.data;
    float *scale = a->scale.data, *inverse = a->inverse.data;
    for (int64_t n = 0; n < a->magnitude.shape[0]; n++) {
        double inv = sumsq[n] > 0 ? 1 / sqrt((double)sumsq[n]) : 0;
        inverse[n] = (float)inv;
        scale[n] = (float)(ax_load(a->magnitude.dtype, a->magnitude.data, n) * inv);
    }
    return AX_OK;
}

/* ---- merge_low_rank, merged_squares ---- */

#define MERGED 1024 /* elements of a row at a time */

/* Bits of bf16 or floats as doubles. */
AX_INLINE double as_double(enum ax_dtype real, const void *x, int64_t i) {
    return (double)(real == AX_BF16 ? ax_bf16_to_f32(((const uint16_t *)x)[i])
                                    : ((const float *)x)[i]);
}

AX_INLINE void add_scaled(enum ax_dtype real, const void *a, double s, int64_t first, int64_t n,
                          double *v) {
    for (int64_t k = 0; k < n; k++)
        v[k] += s * as_double(real, a, first + k);
}

/* Elements [first, first + n) of a merged row, n ≤ MERGED. */
AX_INLINE void merge_piece(enum ax_dtype real, const struct ax_merged_squares *a, int64_t row,
                           int64_t first, int64_t n, double *v) {
    const void *w = ax_tensor_row(&a->weight, row), *b = ax_tensor_row(&a->b, row);
    for (int64_t k = 0; k < n; k++)
        v[k] = as_double(real, w, first + k);
    for (int64_t j = 0; j < a->b.shape[1]; j++)
        add_scaled(real, ax_tensor_row(&a->a, j), a->scale * as_double(real, b, j), first, n, v);
}

AX_INLINE void merge_row(enum ax_dtype real, const struct ax_merge_low_rank *a, int64_t row) {
    const struct ax_merged_squares of = {a->weight, a->b, a->a, {0}, a->scale};
    const double *squares = a->squares.data;
    double v[MERGED], g = 1;
    if (squares)
        g = squares[row] > 0 ? as_double(real, a->magnitude.data, row) / sqrt(squares[row]) : 0;
    for (int64_t first = 0; first < a->weight.shape[1]; first += MERGED) {
        const int64_t n = least(MERGED, a->weight.shape[1] - first);
        merge_piece(real, &of, row, first, n, v);
        for (int64_t k = 0; squares && k < n; k++)
            v[k] *= g;
        char *out = (char *)ax_tensor_row(&a->out, row) + (size_t)first * ax_dtype_size(real);
        ax_convert(real, out, AX_F64, v, n);
    }
}

enum ax_status AX_VEC(ax_cpu_merge_low_rank)(struct ax_queue *q, const struct ax_merge_low_rank *a,
                                             void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->weight) * a->b.shape[1]), row, a->weight.shape[0])
        AX_BY_DTYPE(a->weight.dtype, merge_row, a, row);
    return AX_OK;
}

AX_INLINE void square_row(enum ax_dtype real, const struct ax_merged_squares *a, int64_t row) {
    double v[MERGED], sum = 0;
    for (int64_t first = 0; first < a->weight.shape[1]; first += MERGED) {
        const int64_t n = least(MERGED, a->weight.shape[1] - first);
        merge_piece(real, a, row, first, n, v);
        for (int64_t k = 0; k < n; k++)
            sum += v[k] * v[k];
    }
    ((double *)a->out.data)[row] = sum;
}

enum ax_status AX_VEC(ax_cpu_merged_squares)(struct ax_queue *q, const struct ax_merged_squares *a,
                                             void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&a->weight) * a->b.shape[1]), row, a->weight.shape[0])
        AX_BY_DTYPE(a->weight.dtype, square_row, a, row);
    return AX_OK;
}
