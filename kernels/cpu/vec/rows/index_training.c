/* index_target, index_scores, index_loss, index_backward: what trains the indexer of sparse attention. A thread has
 * rows, and goes through what a row sees from its document's first key on, so that sums do not depend on where
 * the document is among others. */
#include <math.h>

#include "kernels/cpu/vec/attention/attention.h"
#include "kernels/cpu/vec/entries.h"

/* ---- tables ---- */

AX_INLINE void target_vector(const float *s, float *p, v_float lse, v_float share, bool add,
                             int64_t i, int64_t n) {
    const v_float old = add ? v_load_f32(p + i, n) : v_set(0.0f);
    v_store_f32(p + i, n, v_fma(share, v_exp(v_load_f32(s + i, n) - lse), old));
}

enum ax_status AX_VEC(ax_cpu_index_target)(struct ax_queue *q, const struct ax_index_target *args,
                                           void *work) {
    (void)work;
    const v_float share = v_set((float)args->share);
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->s)), t, args->s.shape[0]) {
        const v_float lse = v_set(*(const float *)ax_tensor_row(&args->lse, t));
        AX_EACH_VECTOR(args->s.shape[1], target_vector, ax_tensor_row(&args->s, t),
                       ax_tensor_row(&args->p, t), lse, share, args->accumulate);
    }
    return AX_OK;
}

AX_INLINE void scores_vector(const float *z, float *x, v_float w, bool add, int64_t i, int64_t n) {
    const v_float old = add ? v_load_f32(x + i, n) : v_set(0.0f);
    v_store_f32(x + i, n, v_fma(w, v_max(v_load_f32(z + i, n), v_set(0.0f)), old));
}

enum ax_status AX_VEC(ax_cpu_index_scores)(struct ax_queue *q, const struct ax_index_scores *args,
                                           void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->z)), t, args->z.shape[0]) {
        const v_float w = v_set(*(const float *)ax_tensor_row(&args->w, t));
        AX_EACH_VECTOR(args->z.shape[1], scores_vector, ax_tensor_row(&args->z, t),
                       ax_tensor_row(&args->x, t), w, args->accumulate);
    }
    return AX_OK;
}

AX_INLINE void gradient_vector(enum ax_dtype dtype, const float *dx, const float *z, void *dz,
                               v_float w, v_float *dw, int64_t i, int64_t n) {
    const v_float score = v_load_f32(z + i, n), d = v_load_f32(dx + i, n);
    v_store(dtype, dz, i, n, v_above(score, v_set(0.0f), d * w));
    *dw = v_fma(d, v_max(score, v_set(0.0f)), *dw);
}

AX_INLINE void gradient_row(enum ax_dtype dtype, const struct ax_index_backward *args, int64_t t) {
    const v_float w = v_set(*(const float *)ax_tensor_row(&args->w, t));
    v_float dw = v_set(0.0f);
    AX_EACH_VECTOR(args->z.shape[1], gradient_vector, dtype, ax_tensor_row(&args->dx, t),
                   ax_tensor_row(&args->z, t), ax_tensor_row(&args->dz, t), w, &dw);
    *(float *)ax_tensor_row(&args->dw, t) = (float)v_sum(dw);
}

enum ax_status AX_VEC(ax_cpu_index_backward)(struct ax_queue *q,
                                             const struct ax_index_backward *args, void *work) {
    (void)work;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->z)), t, args->z.shape[0])
        AX_BY_DTYPE(args->dz.dtype, gradient_row, args, t);
    return AX_OK;
}

/* ---- index_loss ---- */

/* What a query sees: columns [from, from + n), of which bits say which it has chosen (NULL: all). */
struct view {
    int64_t from, n;
    const uint32_t *bits;
};

static struct view view_of(const struct ax_index_loss *args, int64_t t) {
    const int32_t *cu_q = args->cu_q.data, *cu_k = args->cu_k.data;
    const int64_t query = args->first + t, docs = args->cu_q.shape[0] - 1;
    int64_t low = 0, high = docs; /* the first document that ends after the query */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        *(cu_q[middle + 1] > query ? &high : &low) = cu_q[middle + 1] > query ? middle : middle + 1;
    }
    if (low == docs)
        return (struct view){0};
    return (struct view){.from = cu_k[low] - args->first_key,
                         .n = cu_k[low + 1] - cu_k[low] - (cu_q[low + 1] - query) + 1,
                         .bits = args->chosen.data ? (const uint32_t *)args->chosen.data +
                                                         t * args->chosen.row_stride
                                                   : NULL};
}

/* x[0 … n) of the row's view from key j on, −inf where a key is not seen. */
AX_INLINE v_float seen(const struct view *v, v_float x, int64_t j, int64_t n) {
    x = v_keep(n, x, -INFINITY);
    return v->bits ? v_chosen(x, v->bits[j / 32] >> j % 32) : x;
}

AX_INLINE void max_vector(const struct view *v, const float *x, v_float *max, int64_t j,
                          int64_t n) {
    *max = v_max(seen(v, v_load_f32(x + j, n), j, n), *max);
}

AX_INLINE void sum_vector(const struct view *v, const float *x, v_float max, v_double *low,
                          v_double *high, int64_t j, int64_t n) {
    const v_float e = v_exp(seen(v, v_load_f32(x + j, n) - max, j, n));
    *low += v_low(e);
    *high += v_high(e);
}

AX_INLINE void slope_vector(const struct view *v, const float *x, float *p, v_float all,
                            v_float factor, int64_t j, int64_t n) {
    const v_float one = v_set(1.0f), r = v_exp(v_load_f32(x + j, n) - all);
    const v_float slope = factor * (r - v_load_f32(p + j, n));
    v_store_f32(p + j, n, v_above(seen(v, one, j, n), v_set(0.0f), slope));
}

/* log Σ e^x of what the row sees. */
static double log_sum(const struct view *v, const float *x) {
    v_float max = v_set(-INFINITY);
    v_double low = v_zero_double(), high = v_zero_double();
    AX_EACH_VECTOR(v->n, max_vector, v, x, &max);
    const float most = v_max_lane(max);
    AX_EACH_VECTOR(v->n, sum_vector, v, x, v_set(most), &low, &high);
    return (double)most + log(v_sum_double(low + high));
}

/* A table has a logarithm per pair, and a product for each head. */
static double divergence(const struct view *v, const float *p, const float *x, double all) {
    double kl = 0;
    for (int64_t j = 0; j < v->n; j++)
        if (p[j] > 0 && (!v->bits || (v->bits[j / 32] >> j % 32 & 1) != 0))
            kl += (double)p[j] * (log((double)p[j]) - ((double)x[j] - all));
    return kl;
}

static void clear(float *p, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        p[i] = 0;
}

static void loss_of_row(const struct ax_index_loss *args, int64_t t, v_float factor) {
    const struct view v = view_of(args, t);
    const float *x = (const float *)ax_tensor_row(&args->x, t) + v.from;
    float *p = ax_tensor_row(&args->p, t);
    const double all = v.n > 0 ? log_sum(&v, x) : 0;
    ((float *)args->kl.data)[t] = (float)divergence(&v, p + v.from, x, all);
    AX_EACH_VECTOR(v.n, slope_vector, &v, x, p + v.from, v_set((float)all), factor);
    clear(p, v.from);
    clear(p + v.from + v.n, args->p.shape[1] - v.from - v.n);
}

enum ax_status AX_VEC(ax_cpu_index_loss)(struct ax_queue *q, const struct ax_index_loss *args,
                                         void *work) {
    (void)work;
    const double tokens = args->scalars->tokens, share = tokens > 0 ? 1 / tokens : 0;
    const v_float factor = v_set((float)(args->coef * share));
    double sum = 0;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->p)), t, args->p.shape[0])
        loss_of_row(args, t, factor);
    for (int64_t t = 0; t < args->p.shape[0]; t++)
        sum += (double)((const float *)args->kl.data)[t];
    args->scalars->index_loss += sum * share;
    return AX_OK;
}
