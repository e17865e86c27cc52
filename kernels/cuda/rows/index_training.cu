/* What trains the indexer of sparse attention (kernels/ops.h): index_target, index_scores, index_loss, index_backward.
 * Tables of pairs: a block has a row, or a piece of one where rows need no sum. Bytes moved: each operand once, in
 * index_loss x three times, of which two hit the cache. */
#include "kernels/cuda/attention/pattern.cuh"

#define THREADS 256

/* A grid of pieces of a row, by rows. */
static dim3 pieces_of(const struct ax_tensor *t) {
    const unsigned pieces = blocks_of(t->shape[1], THREADS);
    return dim3(pieces, (unsigned)(t->shape[0] < 32768 ? t->shape[0] : 32768));
}

/* Calls f(row, column) for the pairs of this thread. */
template <class F> __device__ static inline void own_pairs(int64_t rows, int64_t cols, F f) {
    const int64_t c = thread_number();
    for (int64_t t = blockIdx.y; c < cols && t < rows; t += gridDim.y)
        f(t, c);
}

/* ---- tables ---- */

__global__ void index_target_kernel(rows_of<float> p, rows_of<const float> s,
                                    rows_of<const float> lse, float share, bool add, int64_t rows,
                                    int64_t cols) {
    own_pairs(rows, cols, [&](int64_t t, int64_t c) {
        const float more = share * expf(s.at(t, c) - lse.at(t, 0));
        p.at(t, c) = add ? p.at(t, c) + more : more;
    });
}

extern "C" enum ax_status ax_cuda_index_target(struct ax_queue *q, const struct ax_index_target *a,
                                               void *work) {
    (void)work;
    return ax_tensor_numel(&a->s) == 0
               ? AX_OK
               : AX_LAUNCH(q, index_target_kernel, pieces_of(&a->s), THREADS, 0,
                           as_rows<float>(&a->p), as_rows<const float>(&a->s),
                           as_rows<const float>(&a->lse), (float)a->share, a->accumulate,
                           a->s.shape[0], a->s.shape[1]);
}

__global__ void index_scores_kernel(rows_of<float> x, rows_of<const float> z,
                                    rows_of<const float> w, bool add, int64_t rows, int64_t cols) {
    own_pairs(rows, cols, [&](int64_t t, int64_t c) {
        const float more = w.at(t, 0) * fmaxf(z.at(t, c), 0);
        x.at(t, c) = add ? x.at(t, c) + more : more;
    });
}

extern "C" enum ax_status ax_cuda_index_scores(struct ax_queue *q, const struct ax_index_scores *a,
                                               void *work) {
    (void)work;
    return ax_tensor_numel(&a->z) == 0
               ? AX_OK
               : AX_LAUNCH(q, index_scores_kernel, pieces_of(&a->z), THREADS, 0,
                           as_rows<float>(&a->x), as_rows<const float>(&a->z),
                           as_rows<const float>(&a->w), a->accumulate, a->z.shape[0],
                           a->z.shape[1]);
}

template <class E>
__global__ void __launch_bounds__(THREADS)
    index_backward_kernel(rows_of<const float> dx, rows_of<const float> z, rows_of<const float> w,
                          rows_of<E> dz, rows_of<float> dw, int64_t cols) {
    const int64_t t = blockIdx.x;
    const float weight = w.at(t, 0);
    float sum = 0;
    for (int64_t c = threadIdx.x; c < cols; c += blockDim.x) {
        const float score = z.at(t, c), d = dx.at(t, c);
        dz.at(t, c) = E(score > 0 ? d * weight : 0);
        sum += d * fmaxf(score, 0);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        dw.at(t, 0) = sum;
}

extern "C" enum ax_status ax_cuda_index_backward(struct ax_queue *q,
                                                 const struct ax_index_backward *a, void *work) {
    (void)work;
    if (a->dx.shape[0] == 0)
        return AX_OK;
    return by_real(a->dz.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        return AX_LAUNCH(q, index_backward_kernel<E>, (unsigned)a->dx.shape[0], THREADS, 0,
                         as_rows<const float>(&a->dx), as_rows<const float>(&a->z),
                         as_rows<const float>(&a->w), as_rows<E>(&a->dz), as_rows<float>(&a->dw),
                         a->dx.shape[1]);
    });
}

/* ---- index_loss ---- */

struct loss_args {
    rows_of<float> p;
    rows_of<const float> x;
    rows_of<const int32_t> chosen; /* data NULL: all keys */
    float *kl;
    const int32_t *cu_q, *cu_k;
    int64_t documents, cols, first, first_key;
    double coef;
    const struct ax_step_scalars *scalars;
};

/* Columns [from, to) that row t sees, but for those that it has not chosen. */
__device__ static inline span seen_by(const loss_args &a, int64_t t) {
    const int64_t query = a.first + t, d = first_document(a.cu_q, a.documents, query);
    if (d == a.documents)
        return {0, 0};
    return {a.cu_k[d] - a.first_key, a.cu_k[d + 1] - (a.cu_q[d + 1] - query) + 1 - a.first_key};
}

__device__ static inline bool sees(const loss_args &a, int64_t t, const span &s, int64_t c) {
    const int64_t j = c - s.from;
    return c >= s.from && c < s.to &&
           (a.chosen.data == nullptr || ((uint32_t)a.chosen.at(t, j / 32) >> j % 32 & 1) != 0);
}

/* A token's part of the step's mean. */
__device__ static inline double share_of(const struct ax_step_scalars *scalars) {
    return scalars->tokens > 0 ? 1 / scalars->tokens : 0;
}

__global__ void __launch_bounds__(THREADS) index_loss_kernel(loss_args a) {
    const int64_t t = blockIdx.x;
    const span s = seen_by(a, t);
    const float factor = (float)(a.coef * share_of(a.scalars));
    float max = -INFINITY;
    for (int64_t c = s.from + threadIdx.x; c < s.to; c += blockDim.x)
        max = sees(a, t, s, c) ? fmaxf(max, a.x.at(t, c)) : max;
    max = block_reduce<max_op>(max, -INFINITY);
    double sum = 0, kl = 0;
    for (int64_t c = s.from + threadIdx.x; c < s.to; c += blockDim.x)
        sum += sees(a, t, s, c) ? (double)expf(a.x.at(t, c) - max) : 0;
    const double all = (double)max + log(block_sum(sum));
    for (int64_t c = threadIdx.x; c < a.cols; c += blockDim.x) {
        const float p = a.p.at(t, c);
        if (!sees(a, t, s, c)) {
            a.p.at(t, c) = 0;
            continue;
        }
        const double log_r = (double)a.x.at(t, c) - all;
        kl += p > 0 ? (double)p * (log((double)p) - log_r) : 0;
        a.p.at(t, c) = factor * (expf((float)log_r) - p);
    }
    kl = block_sum(kl);
    if (threadIdx.x == 0)
        a.kl[t] = (float)kl;
}

__global__ void __launch_bounds__(THREADS)
    add_losses_kernel(const float *kl, int64_t rows, struct ax_step_scalars *scalars) {
    double sum = 0;
    for (int64_t t = threadIdx.x; t < rows; t += blockDim.x)
        sum += (double)kl[t];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        scalars->index_loss += sum * share_of(scalars);
}

extern "C" enum ax_status ax_cuda_index_loss(struct ax_queue *q, const struct ax_index_loss *a,
                                             void *work) {
    (void)work;
    const loss_args args = {as_rows<float>(&a->p),
                            as_rows<const float>(&a->x),
                            as_rows<const int32_t>(&a->chosen),
                            (float *)a->kl.data,
                            (const int32_t *)a->cu_q.data,
                            (const int32_t *)a->cu_k.data,
                            a->cu_q.shape[0] - 1,
                            a->p.shape[1],
                            a->first,
                            a->first_key,
                            a->coef,
                            a->scalars};
    const int64_t rows = a->p.shape[0];
    if (rows == 0)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, index_loss_kernel, (unsigned)rows, THREADS, 0, args));
    return AX_LAUNCH(q, add_losses_kernel, 1, THREADS, 0, (const float *)a->kl.data, rows,
                     a->scalars);
}
