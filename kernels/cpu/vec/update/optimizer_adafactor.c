/* Adafactor (Shazeer & Stern 2018). Three passes over the gradient: its squares per row and column,
 * the size of the update, the update. Sums over rows are taken in blocks that depend only on the
 * shape (rowsum.h), so the result does not depend on the number of threads. */
#include <math.h>

#include "kernels/cpu/vec/rows/rowsum.h"
#include "kernels/cpu/vec/update/update.h"

AX_INLINE void square_vector(const float *x, v_double *low, v_double *high, int64_t i, int64_t n) {
    v_float v = v_load_f32(x + i, n);
    v_double a = v_low(v), b = v_high(v);
    *low += a * a;
    *high += b * b;
}

/* mean of w² of all elements, in double. */
AX_INLINE void weight_square(enum weights_kind weights, struct weights w, int64_t first, int64_t n,
                             double *sum) {
    v_double low = v_zero_double(), high = v_zero_double();
    w = weights_at(weights, w, first);
    for (int64_t i = 0; i < n; i += AX_LANES) {
        v_float x = weights_load(weights, &w, i, least(AX_LANES, n - i));
        v_double a = v_low(x), b = v_high(x);
        low += a * a;
        high += b * b;
    }
    *sum = v_sum_double(low + high);
}

/* Adafactor's workspace, divided. A vector is a matrix of one row with its own moment. */
struct adafactor {
    int64_t rows, cols;
    struct row_blocks blocks; /* of rows */
    double *sums;             /* [blocks.count or pieces]: partial sums */
    float *col_sums;          /* [blocks.count][cols] */
    float *col_factor;        /* [cols]: 1/√col */
    float clip, blend, floor; /* floor: least second moment */
    double row_scale;         /* 1/mean(row) */
};

static int64_t pieces_of(const struct ax_adafactor *a) {
    return ceil_div(ax_tensor_numel(&a->master), PIECE);
}

static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static size_t sums_bytes(const struct ax_adafactor *a) {
    const int64_t blocks = block_rows(a->master.shape[0]).count, pieces = pieces_of(a);
    return aligned((size_t)(blocks > pieces ? blocks : pieces) * sizeof(double));
}

size_t AX_VEC(ax_cpu_adafactor_workspace)(struct ax_queue *q, const struct ax_adafactor *a) {
    (void)q;
    const int64_t rows = a->master.shape[0], cols = a->master.ndim == 1 ? 0 : a->master.shape[1];
    return sums_bytes(a) + aligned(block_sums_bytes(rows, cols)) + (size_t)cols * sizeof(float);
}

/* rms(w), for the step's size. */
static double rms_of_weights(struct ax_queue *q, const struct ax_adafactor *a, double *sums) {
    const enum weights_kind kind = weights_kind_of(&a->master, &a->copy, &a->remainder);
    const struct weights w = {a->master.data, a->copy.data, a->remainder.data, NULL};
    const int64_t n = ax_tensor_numel(&a->master), count = pieces_of(a);
    AX_PARALLEL_FOR (team(q, n), p, count)
        BY_WEIGHTS(kind, weight_square, w, p * PIECE, least(PIECE, n - p * PIECE), &sums[p]);
    double sum = 0;
    for (int64_t p = 0; p < count; p++)
        sum += sums[p];
    return sqrt(sum / (double)n);
}

/* g² of a row, added to its block's columns and summed. */
AX_INLINE void row_square_vector(const float *grad, float *col_sums, float clip, float extra,
                                 v_double *low, v_double *high, int64_t i, int64_t n) {
    v_float g = v_load_f32(grad + i, n) * v_set(clip);
    v_float square = v_keep(n, v_fma(g, g, v_set(extra)), 0);
    v_store_f32(col_sums + i, n, v_load_f32(col_sums + i, n) + square);
    *low += v_low(square);
    *high += v_high(square);
}

static void blend(float *moment, double b, double mean) {
    *moment = (float)((double)*moment + b * (mean - (double)*moment));
}

/* New row and column moments. */
static void matrix_moments(struct ax_queue *q, const struct ax_adafactor *args, struct adafactor *a,
                           double b) {
    float *row = args->row.data, *col = args->col.data;
    const float extra = args->torch ? 0 : (float)args->eps1;
    AX_PARALLEL_FOR (team(q, a->rows * a->cols), k, a->blocks.count) {
        float *sums = a->col_sums + k * a->cols;
        memset(sums, 0, (size_t)a->cols * sizeof(*sums));
        const int64_t end = least(a->rows, (k + 1) * a->blocks.rows);
        for (int64_t r = k * a->blocks.rows; r < end; r++) {
            v_double low = v_zero_double(), high = v_zero_double();
            AX_EACH_VECTOR(a->cols, row_square_vector, (const float *)ax_tensor_row(&args->grad, r),
                           sums, a->clip, extra, &low, &high);
            blend(&row[r], b, v_sum_double(low + high) / (double)a->cols);
        }
    }
    for (int64_t c = 0; c < a->cols; c++) {
        double sum = 0;
        for (int64_t k = 0; k < a->blocks.count; k++)
            sum += (double)a->col_sums[k * a->cols + c];
        blend(&col[c], b, sum / (double)a->rows);
        a->col_factor[c] = (float)(1 / sqrt((double)col[c]));
    }
    double total = 0;
    for (int64_t r = 0; r < a->rows; r++)
        total += (double)row[r];
    const double mean = total / (double)a->rows;
    a->row_scale = 1 / (args->torch ? fmax(mean, args->eps1) : mean);
}

/* Writes the unscaled update of elements [first, first + n) of row r to u. If eps1 bounds the
 * second moment from below (torch), the product of the factors is bounded from above. */
AX_INLINE void direction_vector(const float *grad, const float *factor, float clip,
                                float row_factor, float most, float *u, int64_t i, int64_t n) {
    v_float g = v_load_f32(grad + i, n) * v_set(clip);
    v_float f = v_min(v_load_f32(factor + i, n) * v_set(row_factor), v_set(most));
    v_store_f32(u + i, n, g * f);
}

AX_INLINE void vector_moment_vector(const float *grad, float *moment, float clip, float b,
                                    float extra, int64_t i, int64_t n) {
    v_float g = v_load_f32(grad + i, n) * v_set(clip), v = v_load_f32(moment + i, n);
    v_store_f32(moment + i, n, v_fma(v_set(b), v_fma(g, g, v_set(extra)) - v, v));
}

AX_INLINE void direction_1d_vector(const float *grad, const float *moment, float clip, float least2,
                                   float *u, int64_t i, int64_t n) {
    v_float g = v_load_f32(grad + i, n) * v_set(clip);
    v_float v = v_max(v_load_f32(moment + i, n), v_set(least2));
    v_store_f32(u + i, n, g / v_sqrt(v));
}

static void direction(const struct ax_adafactor *args, const struct adafactor *a, int64_t r,
                      int64_t first, int64_t n, float *u) {
    const float *grad = (const float *)args->grad.data + r * a->cols + first;
    if (args->master.ndim == 1) {
        const float *moment = (const float *)args->exp_avg_sq.data + first;
        AX_EACH_VECTOR(n, direction_1d_vector, grad, moment, a->clip, a->floor, u);
        return;
    }
    const float row = ((const float *)args->row.data)[r];
    const float factor = (float)(1 / sqrt((double)row * a->row_scale));
    const float most = a->floor > 0 ? (float)(1 / sqrt((double)a->floor)) : INFINITY;
    AX_EACH_VECTOR(n, direction_vector, grad, a->col_factor + first, a->clip, factor, most, u);
}

/* Calls `each` for the runs of a block of rows. */
AX_INLINE void update_rows(enum weights_kind weights, const struct ax_adafactor *args,
                           const struct adafactor *a, struct move move, int64_t block) {
    float u[RUN];
    const int64_t end = least(a->rows, (block + 1) * a->blocks.rows);
    for (int64_t r = block * a->blocks.rows; r < end; r++) {
        for (int64_t c = 0; c < a->cols; c += RUN) {
            const int64_t n = least(RUN, a->cols - c);
            direction(args, a, r, c, n, u);
            move_run(weights, AX_F32, move, u, r * a->cols + c, n);
        }
    }
}

/* Σ u² of a block of rows. */
static double size_of_rows(const struct ax_adafactor *args, const struct adafactor *a,
                           int64_t block) {
    float u[RUN];
    v_double low = v_zero_double(), high = v_zero_double();
    const int64_t end = least(a->rows, (block + 1) * a->blocks.rows);
    for (int64_t r = block * a->blocks.rows; r < end; r++) {
        for (int64_t c = 0; c < a->cols; c += RUN) {
            const int64_t n = least(RUN, a->cols - c);
            direction(args, a, r, c, n, u);
            AX_EACH_VECTOR(n, square_vector, u, &low, &high);
        }
    }
    return v_sum_double(low + high);
}

/* rms(u), before clipping. */
static double rms_of_update(struct ax_queue *q, const struct ax_adafactor *args,
                            const struct adafactor *a) {
    AX_PARALLEL_FOR (team(q, a->rows * a->cols), k, a->blocks.count)
        a->sums[k] = size_of_rows(args, a, k);
    double sum = 0;
    for (int64_t k = 0; k < a->blocks.count; k++)
        sum += a->sums[k];
    return sqrt(sum / (double)(a->rows * a->cols));
}

enum ax_status AX_VEC(ax_cpu_adafactor)(struct ax_queue *q, const struct ax_adafactor *args,
                                        void *work) {
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip)
        return AX_OK;
    const bool flat = args->master.ndim == 1;
    struct adafactor a = {.rows = flat ? 1 : args->master.shape[0],
                          .cols = flat ? args->master.shape[0] : args->master.shape[1],
                          .sums = work,
                          .clip = (float)s->clip,
                          .floor = args->torch ? (float)(args->eps1 * args->eps1) : 0};
    a.blocks = block_rows(a.rows);
    const size_t col_bytes = flat ? 0 : aligned(block_sums_bytes(a.rows, a.cols));
    a.col_sums = (float *)(void *)((char *)work + sums_bytes(args));
    a.col_factor = (float *)(void *)((char *)a.col_sums + col_bytes);
    const double step = (double)s->step, b = pow(step, args->decay);
    double size = s->lr, decay = s->lr * args->weight_decay;
    if (args->torch || args->scale_parameter) {
        size = args->torch ? fmin(s->lr, 1 / sqrt(step)) : s->lr;
        size *= fmax(args->eps2, rms_of_weights(q, args, a.sums));
        decay = args->torch ? decay : size * args->weight_decay;
    }
    if (flat) {
        AX_EACH_VECTOR(a.cols, vector_moment_vector, (const float *)args->grad.data,
                       (float *)args->exp_avg_sq.data, a.clip, (float)b,
                       args->torch ? 0 : (float)args->eps1);
    } else {
        matrix_moments(q, args, &a, b);
    }
    size /= fmax(1, rms_of_update(q, args, &a) / args->threshold);
    struct move move = move_of(&args->master, &args->copy, &args->remainder, &args->draw, s);
    move.keep = (float)(1 - decay);
    move.size = (float)size;
    const enum weights_kind weights = weights_kind_of(&args->master, &args->copy, &args->remainder);
    AX_PARALLEL_FOR (team(q, a.rows * a.cols), k, a.blocks.count)
        BY_WEIGHTS(weights, update_rows, args, &a, move, k);
    return AX_OK;
}
