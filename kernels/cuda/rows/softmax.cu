/* From logits to their distribution and back, per row of a shard of the vocabulary (kernels/ops.h):
 * softmax_stats, softmax_merge, softmax_backward, argmax. Stats are taken in one pass: a thread's sums are
 * relative to its own maximum and shrink when that grows. Bytes moved: logits once; backward also dlogits. */
#include <float.h>

#include "kernels/cuda/vector.cuh"

/* Column of this shard that holds a label, or −1. */
__device__ static inline int64_t label_col(int32_t label, int64_t first_col, int64_t cols) {
    const int64_t col = label - first_col;
    return label >= 0 && col >= 0 && col < cols ? col : -1;
}

/* ---- softmax_stats ---- */

/* A row's sums so far; `rest` is without one element that is max. */
struct running {
    float max, rest, moment, plain;
};

/* Of −inf, 0 times the product would be NaN. */
__device__ static inline float floored(float d) {
    return fmaxf((float)AX_LOG_FLOOR, d);
}

/* Relative to a maximum that is `d` above, of which none is left out. */
__device__ static inline void lower(running &r, float d) {
    const float shrink = expf(d), sum = 1 + r.rest;
    r.moment = shrink * (r.moment + floored(d) * sum);
    r.rest = shrink * sum;
}

template <bool All>
__device__ static inline void take_in(running &r, const float (&x)[AX_NEIGHBORS], int64_t n,
                                      float temper) {
    float max = r.max;
    for (int i = 0; i < AX_NEIGHBORS; i++)
        max = All || i < n ? fmaxf(max, x[i]) : max;
    bool leave_out = max > r.max;
    if (leave_out)
        lower(r, (r.max - max) * temper);
    r.max = max;
    for (int i = 0; i < AX_NEIGHBORS; i++) {
        if (!All && i >= n)
            continue;
        const float d = (x[i] - max) * temper, e = __expf(d);
        r.plain += x[i];
        if (leave_out && x[i] == max) {
            leave_out = false;
            continue;
        }
        r.rest += e;
        r.moment += e * floored(d);
    }
}

#define ROW_THREADS 512

template <class E>
__global__ void __launch_bounds__(ROW_THREADS)
    softmax_stats_kernel(vector_rows<E> logits, const int32_t *labels, rows_of<float> stats,
                         int64_t first_col, float inv_temperature) {
    const int64_t t = blockIdx.x, cols = logits.cols;
    running r = {-FLT_MAX, 0, 0, 0};
    for (int64_t col = threadIdx.x * AX_NEIGHBORS; col < cols; col += blockDim.x * AX_NEIGHBORS) {
        float x[AX_NEIGHBORS];
        logits.load(t, col, x);
        if (cols - col >= AX_NEIGHBORS)
            take_in<true>(r, x, AX_NEIGHBORS, inv_temperature);
        else
            take_in<false>(r, x, cols - col, inv_temperature);
    }
    const float max = block_reduce<max_op>(r.max, -FLT_MAX);
    const bool has_max = r.max == max;
    if (!has_max)
        lower(r, (r.max - max) * inv_temperature);
    /* of the threads that left one out, one does */
    const int others = block_sum(has_max ? 1 : 0) - 1;
    const float rest = block_sum(r.rest) + (float)others, moment = block_sum(r.moment);
    const float plain = block_sum(r.plain);
    if (threadIdx.x != 0)
        return;
    const int64_t label = label_col(labels[t], first_col, cols);
    stats.at(t, 0) = max > -FLT_MAX ? max : -INFINITY;
    stats.at(t, 1) = rest;
    stats.at(t, 2) = moment;
    stats.at(t, 3) = label < 0 ? 0 : (float)logits.data[t * logits.stride + label];
    stats.at(t, 4) = plain;
}

/* Threads for a row of a block's own. */
static unsigned row_threads(int64_t cols) {
    const int64_t threads = (vectors_in(cols) + 31) / 32 * 32;
    return (unsigned)min(threads, (int64_t)ROW_THREADS);
}

extern "C" enum ax_status ax_cuda_softmax_stats(struct ax_queue *q,
                                                const struct ax_softmax_stats *a, void *work) {
    (void)work;
    const int64_t rows = a->logits.shape[0];
    if (rows == 0)
        return AX_OK;
    return by_real(a->logits.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, softmax_stats_kernel<E>, (unsigned)rows,
                         row_threads(a->logits.shape[1]), 0, as_vectors<E>(&a->logits),
                         (const int32_t *)a->labels.data, as_rows<float>(&a->stats), a->first_col,
                         (float)a->inv_temperature);
    });
}

/* ---- softmax_merge: a thread per row, in double ---- */

struct merged {
    float *logprob, *lse, *entropy, *mean_logprob, *lse_rest;
    double vocab, temper; /* the latter as the other kernels have it, a float */
};

__global__ void softmax_merge_kernel(rows_of<float> stats, int64_t shards, int64_t rows,
                                     const int32_t *labels, merged out) {
    const int64_t t = thread_number(), at = t * AX_SOFTMAX_STATS;
    if (t >= rows)
        return;
    int64_t top = 0;
    for (int64_t s = 1; s < shards; s++)
        top = stats.at(s, at) > stats.at(top, at) ? s : top;
    const double max = (double)stats.at(top, at);
    double rest = 0, moment = 0, at_label = 0, plain = 0;
    for (int64_t s = 0; s < shards; s++) {
        const double d = fmax(AX_LOG_FLOOR, ((double)stats.at(s, at) - max) * out.temper);
        const double share = s == top ? 1 : exp(d);
        const double sum = (double)stats.at(s, at + 1) + (s == top ? 0 : 1);
        rest += share * sum;
        moment += share * ((double)stats.at(s, at + 2) + (s == top ? 0 : d * sum));
        at_label += (double)stats.at(s, at + 3);
        plain += (double)stats.at(s, at + 4);
    }
    const double log_sum = log1p(rest) + (max - max); /* of infinity: NaN */
    const double peak = max * out.temper;
    out.logprob[t] = labels[t] >= 0 ? (float)((at_label - max) * out.temper - log_sum) : 0;
    out.lse[t] = (float)(peak + log_sum);
    out.entropy[t] = (float)(log_sum - moment / (1 + rest));
    if (out.mean_logprob)
        out.mean_logprob[t] = (float)((plain / out.vocab - max) * out.temper - log_sum);
    if (out.lse_rest)
        out.lse_rest[t] = (float)(log_sum - ((double)out.lse[t] - peak));
}

extern "C" enum ax_status ax_cuda_softmax_merge(struct ax_queue *q,
                                                const struct ax_softmax_merge *a, void *work) {
    (void)work;
    const int64_t rows = a->stats.shape[1];
    const merged out = {(float *)a->logprob.data,         (float *)a->lse.data,
                        (float *)a->entropy.data,         (float *)a->mean_logprob.data,
                        (float *)a->lse_rest.data,        (double)a->vocab,
                        (double)(float)a->inv_temperature};
    return rows == 0 ? AX_OK
                     : AX_LAUNCH(q, softmax_merge_kernel, blocks_of(rows, 128), 128, 0,
                                 as_rows<float>(&a->stats), a->stats.shape[0], rows,
                                 (const int32_t *)a->labels.data, out);
}

/* ---- softmax_backward ---- */

/* Per row; lse_rest, g_lse, g_entropy and g_mean may be NULL. */
struct row_gradients {
    const float *lse, *lse_rest, *entropy, *g_logprob, *g_lse, *g_entropy, *g_mean;
    const int32_t *labels;
    int64_t first_col;
    float inv_temperature, inv_vocab;
};

/* dz = even − p·(plain + bent·(d + entropy)), and at the label g_logprob·(1 − p) instead of its −g_logprob·p,
 * which of a label that is almost certain is all that is left */
struct row_slope {
    float lse, lse_rest, entropy, g_logprob, even, plain, bent;
    int64_t label;
};
__device__ static inline row_slope slope_of(const row_gradients &g, int64_t t, int64_t cols) {
    const float g_mean = g.g_mean ? g.g_mean[t] : 0, g_lse = g.g_lse ? g.g_lse[t] : 0;
    const float g_logprob = g.labels[t] >= 0 ? g.g_logprob[t] : 0;
    return {g.lse[t],
            g.lse_rest ? g.lse_rest[t] : 0,
            g.entropy[t],
            g_logprob,
            g_mean * g.inv_vocab,
            g_mean - g_lse,
            g.g_entropy ? g.g_entropy[t] : 0,
            label_col(g.labels[t], g.first_col, cols)};
}

/* A block has a row: of gradients over their logits, those of a tile lie on logits of this tile and of earlier ones,
 * which all threads have read by then. */
template <class X, class Y>
__global__ void __launch_bounds__(ROW_THREADS)
    softmax_backward_kernel(vector_rows<X> logits, row_gradients g, vector_rows<Y> dlogits) {
    const int64_t t = blockIdx.x, cols = logits.cols;
    const row_slope s = slope_of(g, t, cols);
    for (int64_t first = 0; first < cols; first += blockDim.x * AX_NEIGHBORS) {
        const int64_t col = first + threadIdx.x * AX_NEIGHBORS;
        float x[AX_NEIGHBORS];
        if (col < cols)
            logits.load(t, col, x);
        __syncthreads();
        if (col >= cols)
            continue;
        for (int i = 0; i < AX_NEIGHBORS; i++) {
            const float d = fmaf(x[i], g.inv_temperature, -s.lse) - s.lse_rest, p = __expf(d);
            const float slope = s.plain + s.bent * (floored(d) + s.entropy);
            const float likely = col + i == s.label ? expm1f(d) : p;
            x[i] = g.inv_temperature * (s.even - s.g_logprob * likely - p * slope);
        }
        dlogits.store(t, col, x);
    }
}

extern "C" enum ax_status
ax_cuda_softmax_backward(struct ax_queue *q, const struct ax_softmax_backward *a, void *work) {
    (void)work;
    const int64_t rows = a->logits.shape[0], cols = a->logits.shape[1];
    const row_gradients g = {(const float *)a->lse.data,
                             (const float *)a->lse_rest.data,
                             (const float *)a->entropy.data,
                             (const float *)a->g_logprob.data,
                             (const float *)a->g_lse.data,
                             (const float *)a->g_entropy.data,
                             (const float *)a->g_mean.data,
                             (const int32_t *)a->labels.data,
                             a->first_col,
                             (float)a->inv_temperature,
                             a->vocab > 0 ? (float)(1 / (double)a->vocab) : 0};
    if (rows == 0 || cols == 0)
        return AX_OK;
    return by_real(a->logits.dtype, [&](auto *x) {
        return by_real(a->dlogits.dtype, [&](auto *y) {
            typedef AX_TYPE(x) X;
            typedef AX_TYPE(y) Y;
            return AX_LAUNCH(q, (softmax_backward_kernel<X, Y>), (unsigned)rows, row_threads(cols),
                             0, as_vectors<X>(&a->logits), g, as_vectors<Y>(&a->dlogits));
        });
    });
}

/* ---- argmax ---- */

/* A number that is larger for a larger x, and of equal ones for the first. NaN is below all. */
__device__ static inline unsigned long long rank_of(float x, uint32_t col) {
    const uint32_t u = __float_as_uint(x + 0.0f); /* −0 is 0 */
    const uint32_t order = x != x ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
    return (unsigned long long)order << 32 | ~col;
}

template <class E>
__global__ void __launch_bounds__(ROW_THREADS)
    argmax_kernel(vector_rows<E> logits, const int32_t *after, int32_t *index) {
    const int64_t t = blockIdx.x, cols = logits.cols;
    unsigned long long best = 0, below = ~0ull;
    if (after)
        below = after[t] < 0
                    ? 0
                    : rank_of((float)logits.data[t * logits.stride + after[t]], (uint32_t)after[t]);
    for (int64_t col = threadIdx.x * AX_NEIGHBORS; col < cols; col += blockDim.x * AX_NEIGHBORS) {
        float x[AX_NEIGHBORS];
        logits.load(t, col, x);
        for (int i = 0; i < AX_NEIGHBORS; i++)
            if (col + i < cols && rank_of(x[i], (uint32_t)(col + i)) < below)
                best = max(best, rank_of(x[i], (uint32_t)(col + i)));
    }
    best = block_reduce<max_op>(best, 0ull);
    if (threadIdx.x == 0)
        index[t] = (int32_t) ~(uint32_t)best;
}

extern "C" enum ax_status ax_cuda_argmax(struct ax_queue *q, const struct ax_argmax *a,
                                         void *work) {
    (void)work;
    const int64_t rows = a->logits.shape[0];
    if (rows == 0)
        return AX_OK;
    return by_real(a->logits.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, argmax_kernel<E>, (unsigned)rows, row_threads(a->logits.shape[1]), 0,
                         as_vectors<E>(&a->logits), (const int32_t *)a->after.data,
                         (int32_t *)a->index.data);
    });
}
