/* Rows to experts and back: group_rows, combine. (scatter_rows is in embedding.c; gemm.c
 * has the experts' products.) */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/cpu/vec/simd.h"

/* A counting sort that uses the offsets as counters. Single-threaded: it reads every key twice, and
 * moving the rows takes much longer. */
enum ax_status AX_VEC(ax_cpu_group_rows)(struct ax_queue *q, const struct ax_group_rows *args,
                                         void *work) {
    (void)q;
    (void)work;
    const int64_t n = ax_tensor_numel(&args->keys), groups = args->offsets.shape[0] - 1;
    const int32_t *keys = args->keys.data;
    int32_t *places = args->places.data, *offsets = args->offsets.data, *counts = args->counts.data;
    memset(offsets, 0, (size_t)(groups + 1) * sizeof(*offsets));
    for (int64_t i = 0; i < n; i++) {
        const int64_t g = keys[i] - args->first;
        if (g >= 0 && g < groups)
            offsets[g + 1]++;
    }
    for (int64_t g = 0; g < groups; g++) {
        if (counts != NULL)
            counts[g] = offsets[g + 1];
        offsets[g + 1] += offsets[g];
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t g = keys[i] - args->first;
        places[i] = g >= 0 && g < groups ? offsets[g]++ : -1;
    }
    for (int64_t g = groups; g > 0; g--) /* each counter has become the next offset */
        offsets[g] = offsets[g - 1];
    offsets[0] = 0;
    return AX_OK;
}

/* Sums all choices in order, skipping negative rows. */
AX_INLINE void combine_vector(enum ax_dtype real, enum ax_dtype stream,
                              const struct ax_combine_forward *args, int64_t t, int64_t i,
                              int64_t n) {
    const int64_t k = ax_tensor_row_len(&args->rows);
    const int32_t *rows = (const int32_t *)args->rows.data + t * k;
    const float *weights = args->weights.data;
    const struct ax_tensor *src = &args->src, *addend = &args->addend;
    v_float sum = v_set(0);
    if (addend->data != NULL)
        sum = v_load(stream, addend->data, t * addend->row_stride + i, n);
    for (int64_t j = 0; j < k; j++) {
        if (rows[j] >= 0) {
            v_float weight = v_set(weights == NULL ? 1.0f : weights[t * k + j]);
            sum = v_fma(weight, v_load(real, src->data, rows[j] * src->row_stride + i, n), sum);
        }
    }
    v_store(stream, args->out.data, t * args->out.row_stride + i, n, sum);
}

AX_INLINE void combine_row(enum ax_dtype real, enum ax_dtype stream,
                           const struct ax_combine_forward *args, int64_t t) {
    AX_EACH_VECTOR(args->out.shape[1], combine_vector, real, stream, args, t);
}

enum ax_status AX_VEC(ax_cpu_combine_forward)(struct ax_queue *q,
                                              const struct ax_combine_forward *args, void *work) {
    (void)work;
    const struct ax_tensor *out = &args->out;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(out) * ax_tensor_row_len(&args->rows)), t,
                     out->shape[0])
        AX_BY_DTYPES(out->dtype, args->src.dtype, combine_row, args, t);
    return AX_OK;
}

AX_INLINE void spread_vector(enum ax_dtype real, const void *dout, const void *src, void *dsrc,
                             v_float weight, v_float *dot, int64_t i, int64_t n) {
    v_float dy = v_load(real, dout, i, n);
    *dot = v_fma(dy, v_load(real, src, i, n), *dot);
    if (dsrc != NULL)
        v_store(real, dsrc, i, n, weight * dy);
}

AX_INLINE float spread_row(enum ax_dtype real, const struct ax_combine_backward *args, int64_t t,
                           int32_t row, float weight) {
    v_float dot = v_set(0);
    AX_EACH_VECTOR(args->dout.shape[1], spread_vector, real, ax_tensor_row(&args->dout, t),
                   ax_tensor_row(&args->src, row),
                   args->dsrc.data ? ax_tensor_row(&args->dsrc, row) : NULL, v_set(weight), &dot);
    return (float)v_sum(dot);
}

enum ax_status AX_VEC(ax_cpu_combine_backward)(struct ax_queue *q,
                                               const struct ax_combine_backward *args, void *work) {
    (void)work;
    const int64_t k = ax_tensor_row_len(&args->rows);
    const int32_t *rows = args->rows.data;
    const float *weights = args->weights.data;
    float *dweights = args->dweights.data;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&args->dout) * k), i, args->dout.shape[0] * k) {
        AX_ASSERT(rows[i] < args->src.shape[0]);
        dweights[i] = rows[i] < 0 ? 0
                                  : AX_BY_DTYPE(args->dout.dtype, spread_row, args, i / k, rows[i],
                                                weights[i]);
    }
    return AX_OK;
}

AX_INLINE void sum_vector(enum ax_dtype real, const struct ax_tensor *x, int64_t from, int64_t to,
                          float *out, int64_t i, int64_t n) {
    v_float sum = v_set(0.0f);
    for (int64_t r = from; r < to; r++)
        sum += v_load(real, ax_tensor_row(x, r), i, n);
    v_store_f32(out + i, n, v_load_f32(out + i, n) + sum);
}

AX_INLINE void sum_group(enum ax_dtype real, const struct ax_tensor *x, int64_t from, int64_t to,
                         float *out) {
    AX_EACH_VECTOR(x->shape[1], sum_vector, real, x, from, to, out);
}

enum ax_status AX_VEC(ax_cpu_grouped_colsum)(struct ax_queue *q,
                                             const struct ax_grouped_colsum *args, void *work) {
    (void)work;
    const int32_t *offsets = args->offsets.data;
    const struct ax_tensor *x = &args->x;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(x)), g, args->offsets.shape[0] - 1) {
        AX_BY_DTYPE(x->dtype, sum_group, x, offsets[g], offsets[g + 1],
                    (float *)ax_tensor_row(&args->out, g));
    }
    return AX_OK;
}
