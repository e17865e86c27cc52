/* top_entropy, top_logits: the k largest logits of a row, in order. A block per row finds the k-th by
 * search, gathers what is above, and sorts that. Moves a row once from memory, 33 times from cache. */
#include "kernels/cuda/choose.cuh"

/* The k largest in order, then −∞ if there are fewer. All threads. */
template <class E>
__device__ static inline void find_top(const E *row, int64_t n, int64_t k, float *top) {
    AX_SHARED(int, found, [1]);
    const uint32_t least = kth_key(row, n, min(n, k));
    if (threadIdx.x == 0)
        found[0] = 0;
    for (int i = threadIdx.x; i < AX_TOP_MAX; i += blockDim.x)
        top[i] = i < min(n, k) ? value_of(least) : -INFINITY;
    __syncthreads();
    /* In any order: equal numbers are alike once they are sorted. Fewer than k are above the k-th. */
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
        if (key_of((float)row[c]) > least)
            top[atomicAdd(found, 1)] = (float)row[c];
    __syncthreads();
    for (int size = 2; size <= AX_TOP_MAX; size *= 2) { /* bitonic */
        for (int step = size / 2; step > 0; step /= 2) {
            for (int i = threadIdx.x; i < AX_TOP_MAX; i += blockDim.x) {
                const int other = i ^ step;
                const bool falls = (i & size) == 0;
                if (other > i && falls == (top[i] < top[other])) {
                    const float kept = top[i];
                    top[i] = top[other];
                    top[other] = kept;
                }
            }
            __syncthreads();
        }
    }
}

template <class E>
__global__ void __launch_bounds__(ROW_THREADS)
    top_logits_kernel(rows_of<const E> logits, int64_t n, rows_of<float> out, int64_t k) {
    AX_SHARED(float, top, [AX_TOP_MAX]);
    find_top(&logits.at(blockIdx.x, 0), n, k, top);
    for (int i = threadIdx.x; i < k; i += blockDim.x)
        out.at(blockIdx.x, i) = top[i];
}

extern "C" enum ax_status ax_cuda_top_logits(struct ax_queue *q, const struct ax_top_logits *a,
                                             void *work) {
    (void)work;
    const int64_t n = a->logits.shape[1];
    if (a->logits.shape[0] == 0)
        return AX_OK;
    return by_real(a->logits.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        return AX_LAUNCH(q, top_logits_kernel<E>, (unsigned)a->logits.shape[0], row_threads(n), 0,
                         as_rows<const E>(&a->logits), n, as_rows<float>(&a->out), a->out.shape[1]);
    });
}

struct entropy_options {
    int64_t k;
    float alpha, inv_temperature;
};

template <class E>
__global__ void __launch_bounds__(ROW_THREADS)
    top_entropy_kernel(rows_of<const E> logits, int64_t n, const float *weight, float *out,
                       entropy_options o) {
    AX_SHARED(float, top, [AX_TOP_MAX]);
    const int64_t t = blockIdx.x, k = min(n, o.k);
    find_top(&logits.at(t, 0), n, o.k, top);
    double sum = 0, entropy = 0;
    for (int i = threadIdx.x; i < k; i += blockDim.x)
        sum += exp((double)((top[i] - top[0]) * o.inv_temperature));
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < k; i += blockDim.x) {
        const double p = exp((double)((top[i] - top[0]) * o.inv_temperature)) / sum;
        entropy -= p * log(p + 1e-10);
    }
    entropy = block_sum(entropy);
    if (threadIdx.x == 0)
        out[t] = (float)(weight[t] * pow(fmax(entropy, 0.0), (double)o.alpha));
}

extern "C" enum ax_status ax_cuda_top_entropy(struct ax_queue *q, const struct ax_top_entropy *a,
                                              void *work) {
    (void)work;
    const int64_t n = a->logits.shape[1];
    const entropy_options o = {a->k, (float)a->alpha, (float)a->inv_temperature};
    if (a->logits.shape[0] == 0)
        return AX_OK;
    return by_real(a->logits.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        return AX_LAUNCH(q, top_entropy_kernel<E>, (unsigned)a->logits.shape[0], row_threads(n), 0,
                         as_rows<const E>(&a->logits), n, (const float *)a->weight.data,
                         (float *)a->out.data, o);
    });
}
