/* Routes tokens to experts (kernels/ops.h): router_forward, router_balance, router_backward. A warp has a row,
 * as experts are few. Bytes moved: each operand once. */
#include "kernels/cuda/rows/columns.cuh"

#define ROWS 8 /* of a block */
#define ALL  0xffffffffu

/* A number that is larger for a larger score, and of equal ones for the first; NaN is below all. 0 is none. */
__device__ static inline unsigned long long key_of(float score, uint32_t i) {
    const uint32_t u = __float_as_uint(score + 0.0f);
    const uint32_t order = score != score ? 0 : u & 0x80000000u ? ~u : u | 0x80000000u;
    return (unsigned long long)order << 32 | ~i;
}
__device__ static inline uint32_t index_of(unsigned long long key) {
    return ~(uint32_t)key;
}

struct router {
    rows_of<float> logits;
    const float *bias;
    float *probs, *weights;
    int32_t *experts;
    int32_t *chosen; /* [E]: how many rows chose an expert; NULL = not requested */
    const int32_t *valid;
    int64_t first, rows, n, k; /* n experts */
    struct ax_routing routing;
};

__device__ static inline void fill_probs(const router &r, int64_t t, float *probs) {
    const int lane = threadIdx.x;
    float max = -INFINITY, sum = 0;
    for (int64_t e = lane; e < r.n && r.routing.sigmoid; e += 32)
        probs[e] = 1 / (1 + expf(-r.logits.at(t, e)));
    if (r.routing.sigmoid)
        return;
    for (int64_t e = lane; e < r.n; e += 32)
        max = fmaxf(max, r.logits.at(t, e));
    max = warp_reduce<max_op>(max);
    for (int64_t e = lane; e < r.n; e += 32) {
        probs[e] = expf(r.logits.at(t, e) - max);
        sum += probs[e];
    }
    sum = warp_reduce<sum_op>(sum);
    for (int64_t e = lane; e < r.n; e += 32)
        probs[e] /= sum;
}

__device__ static inline float score_of(const router &r, const float *probs, int64_t e) {
    return r.bias ? probs[e] + r.bias[e] : probs[e];
}

/* The key of group g. */
__device__ static inline unsigned long long group_key(const router &r, const float *probs, int g) {
    const int64_t size = r.n / r.routing.groups;
    float best = -INFINITY, second = -INFINITY;
    for (int64_t e = g * size; e < (g + 1) * size; e++) {
        const float x = score_of(r, probs, e);
        second = x > best ? best : x > second ? x : second;
        best = x > best ? x : best;
    }
    return key_of(r.routing.group_best == 1 ? best : best + second, (uint32_t)g);
}

/* The bits of the groups that are kept: those whose keys reach the last kept one's. */
__device__ static inline uint64_t keep_groups(const router &r, const float *probs) {
    const int groups = r.routing.groups, lane = threadIdx.x;
    unsigned long long low = lane < groups ? group_key(r, probs, lane) : 0;
    unsigned long long high = lane + 32 < groups ? group_key(r, probs, lane + 32) : 0;
    unsigned long long last = ~0ull;
    for (int i = 0; i < r.routing.groups_kept; i++)
        last = warp_reduce<max_op>(max(low < last ? low : 0, high < last ? high : 0));
    const uint64_t upper = __ballot_sync(ALL, high >= last && high != 0);
    return upper << 32 | __ballot_sync(ALL, low >= last && low != 0);
}

/* k times the largest key below the last one. */
__device__ static inline void choose(const router &r, const float *probs, int64_t t) {
    const bool grouped = r.routing.groups > 0;
    const uint64_t kept = grouped ? keep_groups(r, probs) : 1;
    const int64_t size = grouped ? r.n / r.routing.groups : r.n;
    unsigned long long last = ~0ull;
    double sum = 0;
    for (int64_t i = 0; i < r.k; i++) {
        unsigned long long best = 0;
        for (int64_t e = threadIdx.x; e < r.n; e += 32) {
            const unsigned long long key = key_of(score_of(r, probs, e), (uint32_t)e);
            if ((kept >> (e / size) & 1) != 0 && key < last)
                best = max(best, key);
        }
        last = warp_reduce<max_op>(best);
        sum += (double)probs[index_of(last)];
        if (threadIdx.x == 0) {
            r.experts[t * r.k + i] = (int32_t)index_of(last);
            if (r.chosen)
                atomicAdd(&r.chosen[index_of(last)], 1);
        }
    }
    sum = r.routing.renormalize ? sum : 1;
    __syncwarp();
    for (int64_t i = threadIdx.x; i < r.k; i += 32)
        r.weights[t * r.k + i] =
            (float)(r.routing.scale * ((double)probs[r.experts[t * r.k + i]] / sum));
}

__global__ void __launch_bounds__(32 * ROWS) router_forward_kernel(router r) {
    const int64_t t = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (t >= r.rows)
        return;
    float *probs = r.probs + t * r.n;
    if (!r.valid || r.first + t < *r.valid) {
        fill_probs(r, t, probs);
        __syncwarp();
        choose(r, probs, t);
        return;
    }
    for (int64_t e = threadIdx.x; e < r.n; e += 32)
        probs[e] = 0;
    for (int64_t i = threadIdx.x; i < r.k; i += 32) {
        r.experts[t * r.k + i] = -1;
        r.weights[t * r.k + i] = 0;
    }
}

__global__ void add_counts_kernel(float *load, const int32_t *chosen, int64_t n) {
    const int64_t e = thread_number();
    if (e < n)
        load[e] += (float)chosen[e];
}

struct prob_term {
    vector_rows<float> probs;
    __device__ void operator()(int64_t row, int64_t col, float (&out)[AX_NEIGHBORS]) const {
        probs.load(row, col, out);
    }
};

/* Counts of experts, then the pieces' sums of p. */
static int64_t counts_bytes(int64_t experts) {
    return (experts * (int64_t)sizeof(int32_t) + 255) / 256 * 256;
}
extern "C" size_t ax_cuda_router_forward_work(const struct ax_router_forward *a) {
    const int64_t rows = a->probs.shape[0], experts = a->probs.shape[1];
    return a->load.data == NULL ? 0
                                : (size_t)counts_bytes(experts) + column_sums_bytes(rows, experts);
}

extern "C" enum ax_status ax_cuda_router_forward(struct ax_queue *q,
                                                 const struct ax_router_forward *a, void *work) {
    const int64_t rows = a->probs.shape[0], n = a->probs.shape[1];
    int32_t *chosen = a->load.data ? (int32_t *)work : NULL;
    float *load = (float *)a->load.data;
    const router r = {as_rows<float>(&a->logits),
                      (const float *)a->bias.data,
                      (float *)a->probs.data,
                      (float *)a->weights.data,
                      (int32_t *)a->experts.data,
                      chosen,
                      (const int32_t *)a->valid.data,
                      a->first,
                      rows,
                      n,
                      a->weights.shape[1],
                      a->routing};
    if (rows == 0)
        return AX_OK;
    if (chosen)
        AX_CUDA_TRY(cudaMemsetAsync(chosen, 0, (size_t)n * sizeof(int32_t), ax_cuda_stream(q)));
    AX_TRY(AX_LAUNCH(q, router_forward_kernel, blocks_of(rows, ROWS), dim3(32, ROWS), 0, r));
    if (!chosen)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, add_counts_kernel, blocks_of(n, 128), 128, 0, load, chosen, n));
    return column_sums(q, prob_term{as_vectors<float>(&a->probs)}, rows, n, load + n,
                       (char *)work + counts_bytes(n));
}

/* ---- router_balance: one block ---- */

__global__ void router_balance_kernel(const float *load, float *slope, int64_t experts, double k,
                                      double weight, double coef, bool counts,
                                      struct ax_step_scalars *scalars) {
    double assigned = 0, dot = 0;
    for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) {
        assigned += (double)load[e];
        dot += (double)load[e] * (double)load[experts + e];
    }
    assigned = block_sum(assigned);
    dot = block_sum(dot);
    const double n = assigned / k, share = weight * scalars->inv_weight;
    const double scale = n > 0 ? share * (double)experts / (n * n) : 0;
    for (int64_t e = threadIdx.x; e < experts; e += blockDim.x)
        slope[e] = (float)(coef * scale * (double)load[e]);
    if (threadIdx.x == 0 && counts)
        scalars->aux_loss += scale * dot;
}

extern "C" enum ax_status ax_cuda_router_balance(struct ax_queue *q,
                                                 const struct ax_router_balance *a, void *work) {
    (void)work;
    return AX_LAUNCH(q, router_balance_kernel, 1, 256, 0, (const float *)a->load.data,
                     (float *)a->slope.data, a->load.shape[1], (double)a->k, a->weight, a->coef,
                     a->counts, a->scalars);
}

/* ---- router_backward ---- */

struct router_gradient {
    const float *probs, *dweights, *slope, *slopes;
    const int32_t *experts;
    int64_t rows, n, k;
    struct ax_routing routing;
};

/* dp of expert e of row t: through its weight, if it was chosen, and the slopes. */
__device__ static inline double dp_of(const router_gradient &g, int64_t t, int64_t e, double shift,
                                      double scale) {
    double dp = g.slope ? (double)g.slope[e] : 0;
    dp += g.slopes ? (double)g.slopes[t * g.n + e] : 0;
    for (int64_t i = t * g.k; i < (t + 1) * g.k; i++)
        if (g.experts[i] == e)
            dp += ((double)g.dweights[i] - shift) * scale;
    return dp;
}

template <class E>
__global__ void __launch_bounds__(32 * ROWS)
    router_backward_kernel(router_gradient g, rows_of<E> dlogits) {
    const int64_t t = (int64_t)blockIdx.x * ROWS + threadIdx.y;
    if (t >= g.rows)
        return;
    const float *probs = g.probs + t * g.n;
    const bool token = g.experts[t * g.k] >= 0;
    double sum = 0, dot = 0, mean = 0;
    for (int64_t i = t * g.k; i < (t + 1) * g.k && token && g.routing.renormalize; i++) {
        sum += (double)probs[g.experts[i]];
        dot += (double)g.dweights[i] * (double)probs[g.experts[i]];
    }
    const double shift = g.routing.renormalize ? dot / sum : 0;
    const double scale = g.routing.scale / (g.routing.renormalize ? sum : 1);
    for (int64_t e = threadIdx.x; e < g.n && token && !g.routing.sigmoid; e += 32)
        mean += (double)probs[e] * dp_of(g, t, e, shift, scale);
    mean = warp_reduce<sum_op>(mean);
    for (int64_t e = threadIdx.x; e < g.n; e += 32) {
        const double p = (double)probs[e], dp = token ? dp_of(g, t, e, shift, scale) : 0;
        const double d = g.routing.sigmoid ? p * (1 - p) * dp : p * (dp - mean);
        dlogits.at(t, e) = E(token ? (float)d : 0.0f);
    }
}

extern "C" enum ax_status ax_cuda_router_backward(struct ax_queue *q,
                                                  const struct ax_router_backward *a, void *work) {
    (void)work;
    const int64_t rows = a->probs.shape[0];
    const router_gradient g = {(const float *)a->probs.data,
                               (const float *)a->dweights.data,
                               (const float *)a->slope.data,
                               (const float *)a->slopes.data,
                               (const int32_t *)a->experts.data,
                               rows,
                               a->probs.shape[1],
                               a->dweights.shape[1],
                               a->routing};
    if (rows == 0)
        return AX_OK;
    return by_real(a->dlogits.dtype, [&](auto *p) {
        typedef AX_TYPE(p) E;
        return AX_LAUNCH(q, router_backward_kernel<E>, blocks_of(rows, ROWS), dim3(32, ROWS), 0, g,
                         as_rows<E>(&a->dlogits));
    });
}
