/* top_entropy, top_logits: the k largest logits of a row, in order, by a block per row. Moves a row once from
 * memory, once more from cache. */
#include "kernels/cuda/choose.cuh"

#define THREADS 512 /* at most: while two blocks of a processor sort, others read */
static int top_threads(int64_t n) {
    return min(THREADS, row_threads(n));
}

/* What fits, into an emptied list. */
template <class E, class P>
__device__ static inline void list_those(const E *row, int64_t n, const list &l, P fits) {
    __syncthreads(); /* what was there has been read */
    if (threadIdx.x == 0)
        *l.n = 0;
    __syncthreads();
    each_of(row, n, [&](int64_t c, float z) {
        if (fits(z))
            l.add(c, z);
    });
    __syncthreads();
}

/* The k largest in order, then −∞ if there are fewer. All threads. */
template <class E>
__device__ static inline void find_top(const E *row, int64_t n, int64_t k, const list &l,
                                       float *top) {
    const int there = (int)min(n, k);
    float most = -INFINITY;
    each_of(row, n, [&](int64_t, float z) { most = fmaxf(most, z); });
    const float least = reached_by((int)k, most);
    float others = -INFINITY; /* after those of the list */
    list_those(row, n, l, [&](float z) { return z >= least; });
    if (*l.n < there ||
        *l.n > LIST) { /* NaNs, or many equal ones: fewer than k are above the k-th */
        const uint32_t last = kth_key(row, n, there);
        others = value_of(last);
        list_those(row, n, l, [&](float z) { return key_of(z) > last; });
    }
    sort(l);
    for (int i = threadIdx.x; i < AX_TOP_MAX; i += blockDim.x)
        top[i] = i >= there ? -INFINITY : i < *l.n ? l.value(i) : others;
    __syncthreads();
}

template <class E>
__global__ void __launch_bounds__(THREADS, 2)
    top_logits_kernel(rows_of<const E> logits, int64_t n, rows_of<float> out, int64_t k) {
    AX_SHARED(float, top, [AX_TOP_MAX]);
    AX_SHARED(unsigned long long, entries, [LIST]);
    AX_SHARED(int, count, [1]);
    const list found = {entries, count};
    find_top(&logits.at(blockIdx.x, 0), n, k, found, top);
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
        return AX_LAUNCH(q, top_logits_kernel<E>, (unsigned)a->logits.shape[0], top_threads(n), 0,
                         as_rows<const E>(&a->logits), n, as_rows<float>(&a->out), a->out.shape[1]);
    });
}

struct entropy_options {
    int64_t k;
    float alpha, inv_temperature;
};

template <class E>
__global__ void __launch_bounds__(THREADS, 2)
    top_entropy_kernel(rows_of<const E> logits, int64_t n, const float *weight, float *out,
                       entropy_options o) {
    AX_SHARED(float, top, [AX_TOP_MAX]);
    AX_SHARED(unsigned long long, entries, [LIST]);
    AX_SHARED(int, count, [1]);
    const list found = {entries, count};
    const int64_t t = blockIdx.x, k = min(n, o.k);
    find_top(&logits.at(t, 0), n, o.k, found, top);
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
        return AX_LAUNCH(q, top_entropy_kernel<E>, (unsigned)a->logits.shape[0], top_threads(n), 0,
                         as_rows<const E>(&a->logits), n, (const float *)a->weight.data,
                         (float *)a->out.data, o);
    });
}
