/* RMSNorm (Zhang & Sennrich 2019), forward and backward, and the centering of LayerNorm. A row is read from memory
 * once: its second pass hits the cache. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/ranges.h"
#include "kernels/cpu/vec/rows/rowsum.h"

/* x [T][D], or [T][H][hd] with one norm per head: `heads` norms of n elements in each row, `count`
 * in total. */
struct norms {
    int64_t count, heads, n;
};

static struct norms norms_of(const struct ax_tensor *x) {
    int64_t n = x->shape[x->ndim - 1], heads = ax_tensor_row_len(x) / n;
    return (struct norms){x->shape[0] * heads, heads, n};
}

/* Address of norm i's elements. */
static char *norm_at(const struct ax_tensor *x, const struct norms *s, int64_t i) {
    int64_t element = i / s->heads * x->row_stride + i % s->heads * s->n;
    return (char *)x->data + element * (int64_t)ax_dtype_size(x->dtype);
}

/* The sum over a norm, a square root and two divisions depend on each other; if norms are short,
 * interleaving a group of them hides the latency. */
#define GROUP 8

static int64_t group_of(const struct norms *s, enum ax_dtype real) {
    int64_t fitting = 4096 / (s->n * (int64_t)ax_dtype_size(real));
    return fitting < 1 ? 1 : least(fitting, GROUP);
}

AX_INLINE void square_vector(enum ax_dtype real, const void *x, v_float *sum, int64_t i,
                             int64_t n) {
    v_float v = v_load(real, x, i, n);
    *sum = v_fma(v, v, *sum);
}

/* Four sums at a time: a single one would be latency-bound. */
AX_INLINE double sum_squares(enum ax_dtype real, const void *x, int64_t n) {
    v_float sum[4] = {v_set(0), v_set(0), v_set(0), v_set(0)};
    int64_t i = 0;
    for (; i + 4 * AX_LANES <= n; i += 4 * AX_LANES)
        for (int k = 0; k < 4; k++)
            square_vector(real, x, &sum[k], i + k * AX_LANES, AX_LANES);
    for (; i < n; i += AX_LANES)
        square_vector(real, x, &sum[0], i, least(n - i, AX_LANES));
    return v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

/* What a norm does besides: see kernels/ops.h. */
struct kind {
    float offset;
    bool once;
};

AX_INLINE void scale_vector(enum ax_dtype real, enum ax_dtype stream, const void *x,
                            const void *weight, void *y, v_float rstd, struct kind kind, int64_t i,
                            int64_t n) {
    v_float normed = v_load(stream, x, i, n) * rstd;
    if (!kind.once)
        normed = v_round(stream, normed);
    v_store(real, y, i, n, normed * (v_set(kind.offset) + v_load(real, weight, i, n)));
}

AX_INLINE float rstd_of(enum ax_dtype real, const void *x, int64_t n, double eps) {
    return (float)(1.0 / sqrt(sum_squares(real, x, n) / (double)n + eps));
}

AX_INLINE void scale_row(enum ax_dtype real, enum ax_dtype stream, const void *x,
                         const void *weight, void *y, float rstd, struct kind kind, int64_t n) {
    AX_EACH_VECTOR(n, scale_vector, real, stream, x, weight, y, v_set(rstd), kind);
}

enum ax_status AX_VEC(ax_cpu_rmsnorm_forward)(struct ax_queue *q,
                                              const struct ax_rmsnorm_forward *args, void *work) {
    (void)work;
    const struct ax_tensor *x = &args->x, *y = &args->y;
    struct norms s = norms_of(x);
    int64_t group = group_of(&s, args->x.dtype);
    float *rstd = args->rstd.data;
    const struct kind kind = {(float)args->offset, args->once};
    AX_PARALLEL_FOR (team(q, s.count * s.n), g, ceil_div(s.count, group)) {
        int64_t first = g * group, end = least(s.count, first + group);
        for (int64_t i = first; i < end; i++)
            rstd[i] = AX_BY_DTYPE(x->dtype, rstd_of, norm_at(x, &s, i), s.n, args->eps);
        for (int64_t i = first; i < end; i++) {
            AX_BY_DTYPES(x->dtype, y->dtype, scale_row, norm_at(x, &s, i), args->weight.data,
                         norm_at(y, &s, i), rstd[i], kind, s.n);
        }
    }
    return leave_range(q, &args->range, y);
}

/* One norm of the backward pass: what it reads, what it adds to. */
struct backward {
    const void *dy, *x, *weight;
    void *dx, *narrow; /* narrow NULL: not wanted */
    float *dweight;    /* this block's sums (discarded if the weight is frozen) */
    float rstd, offset;
    bool accumulate;
};

/* function(dtype of dy, of x and dx, of weight, …): they differ only if the residual dtype is
 * F32. */
#define BY_DTYPES(args, function, ...)                                                             \
    ((args)->weight.dtype == AX_F32 ? function(AX_F32, AX_F32, AX_F32, __VA_ARGS__)                \
     : (args)->x.dtype == AX_BF16                                                                  \
         ? function(AX_BF16, AX_BF16, AX_BF16, __VA_ARGS__)                                        \
         : AX_BY_DTYPE((args)->dy.dtype, function, AX_F32, AX_BF16, __VA_ARGS__))

/* dy·(offset + weight). */
AX_INLINE v_float weighted(enum ax_dtype real, const struct backward *b, v_float dy, int64_t i,
                           int64_t n) {
    return dy * (v_set(b->offset) + v_load(real, b->weight, i, n));
}

/* Σ g·x with g = dy·(offset + weight), and dweight += dy·x̂. */
AX_INLINE void dot_vector(enum ax_dtype dy_type, enum ax_dtype stream, enum ax_dtype real,
                          const struct backward *b, v_float *dot, int64_t i, int64_t n) {
    v_float dy = v_load(dy_type, b->dy, i, n), x = v_load(stream, b->x, i, n);
    *dot = v_fma(weighted(real, b, dy, i, n), x, *dot);
    v_float dweight = v_load_f32(b->dweight + i, n);
    v_store_f32(b->dweight + i, n, v_fma(dy, x * v_set(b->rstd), dweight));
}

/* The factor that turns x into x̂·mean(g·x̂). */
AX_INLINE float scale_of(enum ax_dtype dy_type, enum ax_dtype stream, enum ax_dtype real,
                         struct backward b, int64_t n) {
    v_float dot = v_set(0);
    AX_EACH_VECTOR(n, dot_vector, dy_type, stream, real, &b, &dot);
    return (float)(v_sum(dot) * (double)b.rstd * (double)b.rstd / (double)n);
}

/* dx (+)= rstd·(g − x·scale). */
AX_INLINE void dx_vector(enum ax_dtype dy_type, enum ax_dtype stream, enum ax_dtype real,
                         const struct backward *b, v_float scale, int64_t i, int64_t n) {
    v_float g = weighted(real, b, v_load(dy_type, b->dy, i, n), i, n);
    v_float dx = v_fnma(v_load(stream, b->x, i, n), scale, g) * v_set(b->rstd);
    if (b->accumulate)
        dx += v_load(stream, b->dx, i, n);
    v_store(stream, b->dx, i, n, dx);
    if (b->narrow)
        v_store(real, b->narrow, i, n, dx);
}

AX_INLINE void dx_row(enum ax_dtype dy_type, enum ax_dtype stream, enum ax_dtype real,
                      struct backward b, float scale, int64_t n) {
    AX_EACH_VECTOR(n, dx_vector, dy_type, stream, real, &b, v_set(scale));
}

size_t AX_VEC(ax_cpu_rmsnorm_backward_workspace)(struct ax_queue *q,
                                                 const struct ax_rmsnorm_backward *args) {
    (void)q;
    struct norms s = norms_of(&args->x);
    return block_sums_bytes(s.count, s.n);
}

static void backward_group(const struct ax_rmsnorm_backward *args, const struct norms *s,
                           int64_t first, int64_t count, float *dweight) {
    struct backward b[GROUP];
    float scale[GROUP];
    const bool narrow = args->narrow.data != NULL;
    for (int64_t k = 0; k < count; k++) {
        b[k] = (struct backward){.dy = norm_at(&args->dy, s, first + k),
                                 .x = norm_at(&args->x, s, first + k),
                                 .weight = args->weight.data,
                                 .dx = norm_at(&args->dx, s, first + k),
                                 .narrow = narrow ? norm_at(&args->narrow, s, first + k) : NULL,
                                 .dweight = dweight,
                                 .rstd = ((const float *)args->rstd.data)[first + k],
                                 .offset = (float)args->offset,
                                 .accumulate = args->accumulate};
        scale[k] = BY_DTYPES(args, scale_of, b[k], s->n);
    }
    for (int64_t k = 0; k < count; k++)
        BY_DTYPES(args, dx_row, b[k], scale[k], s->n);
}

enum ax_status AX_VEC(ax_cpu_rmsnorm_backward)(struct ax_queue *q,
                                               const struct ax_rmsnorm_backward *args, void *work) {
    struct norms s = norms_of(&args->x);
    struct row_blocks blocks = block_rows(s.count);
    int64_t group = group_of(&s, args->x.dtype);
    AX_PARALLEL_FOR (team(q, s.count * s.n), b, blocks.count) {
        float *dweight = (float *)work + b * s.n;
        memset(dweight, 0, (size_t)s.n * sizeof(*dweight));
        int64_t end = least(s.count, (b + 1) * blocks.rows);
        for (int64_t i = b * blocks.rows; i < end; i += group)
            backward_group(args, &s, i, least(group, end - i), dweight);
    }
    if (args->dweight.data != NULL)
        add_blocks(q, args->dweight.data, work, blocks.count, s.n);
    return AX_OK;
}

/* ---- center ---- */

AX_INLINE void sum_vector(enum ax_dtype real, const void *x, v_float *sum, int64_t i, int64_t n) {
    *sum += v_load(real, x, i, n);
}

AX_INLINE float mean_of(enum ax_dtype real, const void *x, int64_t n) {
    v_float sum = v_set(0);
    AX_EACH_VECTOR(n, sum_vector, real, x, &sum);
    return (float)(v_sum(sum) / (double)n);
}

AX_INLINE void center_vector(enum ax_dtype to, enum ax_dtype from, const void *x, void *y,
                             v_float mean, bool accumulate, int64_t i, int64_t n) {
    v_float v = v_load(from, x, i, n) - mean;
    if (accumulate)
        v += v_load(to, y, i, n);
    v_store(to, y, i, n, v);
}

AX_INLINE void center_row(enum ax_dtype to, enum ax_dtype from, const void *x, void *y, float mean,
                          bool accumulate, int64_t n) {
    AX_EACH_VECTOR(n, center_vector, to, from, x, y, v_set(mean), accumulate);
}

enum ax_status AX_VEC(ax_cpu_center)(struct ax_queue *q, const struct ax_center *args, void *work) {
    (void)work;
    const struct ax_tensor *x = &args->x, *y = &args->y;
    const struct norms s = norms_of(x);
    AX_PARALLEL_FOR (team(q, s.count * s.n), t, s.count) {
        const float mean = AX_BY_DTYPE(x->dtype, mean_of, norm_at(x, &s, t), s.n);
        AX_BY_DTYPES(x->dtype, y->dtype, center_row, norm_at(x, &s, t), norm_at(y, &s, t), mean,
                     args->accumulate, s.n);
    }
    return AX_OK;
}
