/* Rows by their moments: match_rms, sparsify. A row is read from memory once: its further passes hit the cache. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/cpu/vec/simd.h"

/* ---- match_rms ---- */

AX_INLINE void product_vector(enum ax_dtype of_a, enum ax_dtype of_b, const void *a, const void *b,
                              v_float *sum, int64_t i, int64_t n) {
    *sum = v_fma(v_load(of_a, a, i, n), v_load(of_b, b, i, n), *sum);
}

AX_INLINE double mean_product(enum ax_dtype of_a, enum ax_dtype of_b, const void *a, const void *b,
                              int64_t n) {
    v_float sum = v_set(0);
    AX_EACH_VECTOR(n, product_vector, of_a, of_b, a, b, &sum);
    return v_sum(sum) / (double)n;
}

AX_INLINE void times_vector(enum ax_dtype stream, enum ax_dtype real, const void *x, void *y,
                            v_float s, int64_t i, int64_t n) {
    v_store(stream, y, i, n, s * v_load(real, x, i, n));
}

AX_INLINE void match_row(enum ax_dtype stream, enum ax_dtype real,
                         const struct ax_match_rms_forward *args, int64_t t) {
    const void *x = ax_tensor_row(&args->x, t), *like = ax_tensor_row(&args->like, t);
    const int64_t n = args->x.shape[1];
    const double of_x = fmax(mean_product(real, real, x, x, n), args->floor);
    const float s = (float)sqrt(mean_product(stream, stream, like, like, n) / of_x);
    AX_EACH_VECTOR(n, times_vector, stream, real, x, ax_tensor_row(&args->y, t), v_set(s));
}

enum ax_status AX_VEC(ax_cpu_match_rms_forward)(struct ax_queue *q,
                                                const struct ax_match_rms_forward *args,
                                                void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->x)), t, args->x.shape[0])
        AX_BY_DTYPES(args->x.dtype, args->like.dtype, match_row, args, t);
    return AX_OK;
}

/* The rows of one backward, and the factors of what is added. */
struct match {
    const void *dy, *x, *like;
    void *dx, *dlike;
    v_float s, back, to_like;
};

AX_INLINE void unmatch_vector(enum ax_dtype stream, enum ax_dtype real, const struct match *m,
                              int64_t i, int64_t n) {
    const v_float dy = v_load(stream, m->dy, i, n), x = v_load(real, m->x, i, n);
    v_store(real, m->dx, i, n, m->s * v_fnma(m->back, x, dy));
    v_store(stream, m->dlike, i, n,
            v_fma(m->to_like, v_load(stream, m->like, i, n), v_load(stream, m->dlike, i, n)));
}

AX_INLINE void unmatch_row(enum ax_dtype stream, enum ax_dtype real,
                           const struct ax_match_rms_backward *args, int64_t t) {
    const int64_t n = args->x.shape[1];
    struct match m = {.dy = ax_tensor_row(&args->dy, t),
                      .x = ax_tensor_row(&args->x, t),
                      .like = ax_tensor_row(&args->like, t),
                      .dx = ax_tensor_row(&args->dx, t),
                      .dlike = ax_tensor_row(&args->dlike, t)};
    const double squares = mean_product(real, real, m.x, m.x, n), of_x = fmax(squares, args->floor),
                 of_like = mean_product(stream, stream, m.like, m.like, n),
                 mean = mean_product(stream, real, m.dy, m.x, n);
    m.s = v_set((float)sqrt(of_like / of_x));
    m.back = v_set(squares > args->floor ? (float)(mean / of_x) : 0);
    m.to_like = v_set(of_like > 0 ? (float)(mean / sqrt(of_x * of_like)) : 0);
    AX_EACH_VECTOR(n, unmatch_vector, stream, real, &m);
}

enum ax_status AX_VEC(ax_cpu_match_rms_backward)(struct ax_queue *q,
                                                 const struct ax_match_rms_backward *args,
                                                 void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->x)), t, args->x.shape[0])
        AX_BY_DTYPES(args->x.dtype, args->like.dtype, unmatch_row, args, t);
    return AX_OK;
}

/* ---- sparsify ---- */

AX_INLINE void sum_vector(enum ax_dtype real, const void *x, v_float *sum, int64_t i, int64_t n) {
    *sum += v_load(real, x, i, n);
}

/* Lanes beyond the end would count as −mean. */
AX_INLINE void deviation_vector(enum ax_dtype real, const void *x, v_float mean, v_float *sum,
                                int64_t i, int64_t n) {
    const v_float d = v_keep(n, v_load(real, x, i, n) - mean, 0);
    *sum = v_fma(d, d, *sum);
}

/* A row's mean, its standard deviation, and what its elements must exceed. */
struct moments {
    float mean, std, cut;
};
AX_INLINE struct moments moments_of(enum ax_dtype real, const void *x, int64_t n, double z) {
    v_float sum = v_set(0), squares = v_set(0);
    AX_EACH_VECTOR(n, sum_vector, real, x, &sum);
    const float mean = (float)(v_sum(sum) / (double)n);
    AX_EACH_VECTOR(n, deviation_vector, real, x, v_set(mean), &squares);
    const float std = (float)sqrt(v_sum(squares) / (double)n);
    return (struct moments){mean, std, (float)(mean + z * std)};
}

AX_INLINE void cut_vector(enum ax_dtype real, const void *x, void *y, v_float cut, int64_t i,
                          int64_t n) {
    v_store(real, y, i, n, v_max(v_set(0), v_load(real, x, i, n) - cut)); /* NaN stays NaN */
}

AX_INLINE void cut_row(enum ax_dtype real, const struct ax_sparsify_forward *args, int64_t t) {
    const void *x = ax_tensor_row(&args->x, t);
    const int64_t n = args->x.shape[1];
    const struct moments m = moments_of(real, x, n, args->z);
    AX_EACH_VECTOR(n, cut_vector, real, x, ax_tensor_row(&args->y, t), v_set(m.cut));
}

enum ax_status AX_VEC(ax_cpu_sparsify_forward)(struct ax_queue *q,
                                               const struct ax_sparsify_forward *args, void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->x)), t, args->x.shape[0])
        AX_BY_DTYPE(args->x.dtype, cut_row, args, t);
    return AX_OK;
}

/* dy where x is above the cut, else 0. */
AX_INLINE v_float passed(enum ax_dtype real, const void *dy, const void *x, v_float cut, int64_t i,
                         int64_t n) {
    return v_above(v_load(real, x, i, n), cut, v_load(real, dy, i, n));
}

AX_INLINE void passed_vector(enum ax_dtype real, const void *dy, const void *x, v_float cut,
                             v_float *sum, int64_t i, int64_t n) {
    *sum += passed(real, dy, x, cut, i, n);
}

AX_INLINE void uncut_vector(enum ax_dtype real, const void *dy, const void *x, void *dx,
                            struct moments m, v_float mean, v_float slope, int64_t i, int64_t n) {
    const v_float g = passed(real, dy, x, v_set(m.cut), i, n);
    const v_float away = v_load(real, x, i, n) - v_set(m.mean);
    v_store(real, dx, i, n, v_fnma(mean, v_fma(slope, away, v_set(1)), g));
}

AX_INLINE void uncut_row(enum ax_dtype real, const struct ax_sparsify_backward *args, int64_t t) {
    const void *x = ax_tensor_row(&args->x, t), *dy = ax_tensor_row(&args->dy, t);
    const int64_t n = args->x.shape[1];
    const struct moments m = moments_of(real, x, n, args->z);
    v_float sum = v_set(0);
    AX_EACH_VECTOR(n, passed_vector, real, dy, x, v_set(m.cut), &sum);
    AX_EACH_VECTOR(n, uncut_vector, real, dy, x, ax_tensor_row(&args->dx, t), m,
                   v_set((float)(v_sum(sum) / (double)n)),
                   v_set(m.std > 0 ? (float)(args->z / m.std) : 0));
}

enum ax_status AX_VEC(ax_cpu_sparsify_backward)(struct ax_queue *q,
                                                const struct ax_sparsify_backward *args,
                                                void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->x)), t, args->x.shape[0])
        AX_BY_DTYPE(args->x.dtype, uncut_row, args, t);
    return AX_OK;
}
