/* Routes tokens to experts (kernels/ops.h): router_forward, router_balance, router_backward. A warp has a row,
 * as experts are few, forward in shared memory. Bytes moved: each operand once. Loads of experts are counted by block,
 * and added in the order of the blocks. */
#include "kernels/cuda/vector.cuh"

#define ROWS   8   /* of a block at a time, at most */
#define BLOCKS 512 /* forward, at most: four on each processor of a large GPU */
#define ALL    0xffffffffu

/* A number that is larger for a larger score; NaN is below all. 0 is none. */
__device__ static inline uint32_t order_of(float score) {
    const uint32_t u = __float_as_uint(score + 0.0f);
    return score != score ? 1 : u & 0x80000000u ? ~u : u | 0x80000000u;
}
/* The same, of equal ones larger for the first. */
__device__ static inline unsigned long long key_of(uint32_t order, uint32_t i) {
    return order == 0 ? 0 : (unsigned long long)order << 32 | ~i;
}
__device__ static inline uint32_t index_of(unsigned long long key) {
    return ~(uint32_t)key;
}

struct router {
    rows_of<float> logits;
    const float *bias;
    float *probs, *weights;
    int32_t *experts;
    /* of each block [E]: how many of its rows chose an expert, and the sum of their p; NULL = not requested */
    int32_t *chosen;
    float *sums;
    const int32_t *valid;
    int64_t first, rows;
    int n, k; /* n experts */
    struct ax_routing routing;
};

/* A row's experts in shared memory. Lane l writes those that are l modulo 32. */
struct router_row {
    float *probs, *scores;
    uint32_t *order; /* of the scores; 0: chosen, or of a group that is not kept */
    float *sums;     /* of p of the warp's rows */
    int32_t *chosen; /* by all rows of the block */
};
/* Shared memory of a block with this number of warps. */
static inline size_t router_bytes(unsigned warps, int64_t experts) {
    return (size_t)(4 * warps + 1) * (size_t)experts * sizeof(float);
}

__device__ static inline void fill_row(const router &r, int64_t t, const router_row &row) {
    const int lane = threadIdx.x;
    float max = -INFINITY, sum = 0;
    for (int e = lane; e < r.n; e += 32) {
        const float z = r.logits.at(t, e);
        row.probs[e] = r.routing.sigmoid ? 1 / (1 + expf(-z)) : z;
        max = fmaxf(max, z);
    }
    if (!r.routing.sigmoid) {
        max = warp_reduce<max_op>(max);
        for (int e = lane; e < r.n; e += 32) {
            row.probs[e] = expf(row.probs[e] - max);
            sum += row.probs[e];
        }
        sum = warp_reduce<sum_op>(sum);
    }
    for (int e = lane; e < r.n; e += 32) {
        const float p = r.routing.sigmoid ? row.probs[e] : row.probs[e] / sum;
        const float score = r.bias ? p + r.bias[e] : p;
        r.probs[t * r.n + e] = p;
        row.sums[e] += p;
        row.probs[e] = p;
        row.scores[e] = score;
        row.order[e] = order_of(score);
    }
    __syncwarp();
}

/* The key of group g. */
__device__ static inline unsigned long long group_key(const router &r, const router_row &row,
                                                      int g) {
    const int size = r.n / r.routing.groups;
    float best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; e++) {
        const float x = row.scores[e];
        second = x > best ? best : x > second ? x : second;
        best = x > best ? x : best;
    }
    return key_of(order_of(r.routing.group_best == 1 ? best : best + second), (uint32_t)g);
}

/* Keeps the groups whose keys reach the last kept one's. */
__device__ static inline void keep_groups(const router &r, const router_row &row) {
    const int groups = r.routing.groups, lane = threadIdx.x, size = r.n / groups;
    unsigned long long low = lane < groups ? group_key(r, row, lane) : 0;
    unsigned long long high = lane + 32 < groups ? group_key(r, row, lane + 32) : 0;
    unsigned long long last = ~0ull;
    for (int i = 0; i < r.routing.groups_kept; i++)
        last = warp_reduce<max_op>(max(low < last ? low : 0, high < last ? high : 0));
    const uint64_t upper = __ballot_sync(ALL, high >= last && high != 0);
    const uint64_t kept = upper << 32 | __ballot_sync(ALL, low >= last && low != 0);
    for (int e = lane; e < r.n; e += 32)
        if ((kept >> (e / size) & 1) == 0)
            row.order[e] = 0;
}

/* k times the largest key that is left. */
__device__ static inline void choose(const router &r, const router_row &row, int64_t t) {
    double sum = 0;
    if (r.routing.groups > 0)
        keep_groups(r, row);
    for (int i = 0; i < r.k; i++) {
        uint32_t most = 0;
        int at = 0;
        for (int e = threadIdx.x; e < r.n; e += 32) {
            const uint32_t order = row.order[e];
            at = order > most ? e : at;
            most = max(most, order);
        }
        const int best = (int)index_of(warp_reduce<max_op>(key_of(most, (uint32_t)at)));
        sum += (double)row.probs[best];
        if (best % 32 == (int)threadIdx.x)
            row.order[best] = 0;
        if (threadIdx.x == 0) {
            r.experts[t * r.k + i] = best;
            atomicAdd(&row.chosen[best], 1);
        }
    }
    sum = r.routing.renormalize ? sum : 1;
    __syncwarp();
    for (int64_t i = threadIdx.x; i < r.k; i += 32)
        r.weights[t * r.k + i] =
            (float)(r.routing.scale * ((double)row.probs[r.experts[t * r.k + i]] / sum));
}

/* A row that is padding. */
__device__ static inline void route_none(const router &r, int64_t t) {
    for (int e = threadIdx.x; e < r.n; e += 32)
        r.probs[t * r.n + e] = 0;
    for (int64_t i = threadIdx.x; i < r.k; i += 32) {
        r.experts[t * r.k + i] = -1;
        r.weights[t * r.k + i] = 0;
    }
}

__global__ void __launch_bounds__(32 * ROWS, 4) router_forward_kernel(router r) {
    AX_DYNAMIC_SHARED(float, shared);
    const int warps = blockDim.y, all = 32 * warps, mine = 32 * threadIdx.y + threadIdx.x;
    const int64_t valid = r.valid ? *r.valid - r.first : r.rows;
    float *sums = shared, *own = sums + (int64_t)r.n * (warps + 3 * threadIdx.y);
    int32_t *chosen = (int32_t *)(sums + (int64_t)r.n * 4 * warps);
    const router_row row = {own, own + r.n, (uint32_t *)(own + 2 * r.n), sums + r.n * threadIdx.y,
                            chosen};
    for (int i = mine; i < r.n * warps; i += all)
        sums[i] = 0;
    for (int e = mine; e < r.n; e += all)
        chosen[e] = 0;
    __syncthreads();
    const int64_t step = (int64_t)gridDim.x * warps;
    for (int64_t t = (int64_t)blockIdx.x * warps + threadIdx.y; t < r.rows; t += step) {
        if (t < valid) {
            fill_row(r, t, row);
            choose(r, row, t);
            __syncwarp(); /* before the next row comes */
        } else {
            route_none(r, t);
        }
    }
    __syncthreads();
    for (int e = mine; e < r.n && r.chosen; e += all) {
        float sum = 0;
        for (int w = 0; w < warps; w++)
            sum += sums[w * r.n + e];
        r.sums[(int64_t)blockIdx.x * r.n + e] = sum;
        r.chosen[(int64_t)blockIdx.x * r.n + e] = chosen[e];
    }
}

/* load[e] += what the blocks counted; load[n + e] += their sums of p. */
#define LOAD_ROWS 32 /* threads for a column */
__global__ void __launch_bounds__(32 * LOAD_ROWS)
    add_loads_kernel(const int32_t *chosen, const float *sums, int blocks, int n, float *load) {
    AX_SHARED(float, part_sums, [LOAD_ROWS][32]);
    AX_SHARED(int32_t, part_counts, [LOAD_ROWS][32]);
    const int e = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    int32_t count = 0;
    for (int b = threadIdx.y; b < blocks && e < n; b += LOAD_ROWS) {
        sum += sums[(int64_t)b * n + e];
        count += chosen[(int64_t)b * n + e];
    }
    part_sums[threadIdx.y][threadIdx.x] = sum;
    part_counts[threadIdx.y][threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.y != 0 || e >= n)
        return;
    sum = 0;
    count = 0;
    for (int y = 0; y < LOAD_ROWS; y++) {
        sum += part_sums[y][threadIdx.x];
        count += part_counts[y][threadIdx.x];
    }
    load[e] += (float)count;
    load[n + e] += sum;
}

static unsigned warps_of(int64_t experts) {
    return experts <= 512 ? ROWS : 1;
}
static unsigned blocks_of_rows(int64_t rows, int64_t experts) {
    return min((unsigned)BLOCKS, blocks_of(rows, (int)warps_of(experts)));
}

extern "C" size_t ax_cuda_router_forward_work(const struct ax_router_forward *a) {
    const int64_t rows = a->probs.shape[0], experts = a->probs.shape[1];
    return a->load.data == NULL ? 0
                                : (size_t)blocks_of_rows(rows, experts) * (size_t)experts *
                                      (sizeof(float) + sizeof(int32_t));
}

extern "C" enum ax_status ax_cuda_router_forward(struct ax_queue *q,
                                                 const struct ax_router_forward *a, void *work) {
    const int64_t rows = a->probs.shape[0], n = a->probs.shape[1];
    const unsigned warps = warps_of(n), blocks = blocks_of_rows(rows, n);
    float *load = (float *)a->load.data, *sums = load ? (float *)work : NULL;
    int32_t *chosen = load ? (int32_t *)(sums + blocks * n) : NULL;
    const router r = {as_rows<float>(&a->logits),
                      (const float *)a->bias.data,
                      (float *)a->probs.data,
                      (float *)a->weights.data,
                      (int32_t *)a->experts.data,
                      chosen,
                      sums,
                      (const int32_t *)a->valid.data,
                      a->first,
                      rows,
                      (int)n,
                      (int)a->weights.shape[1],
                      a->routing};
    if (rows == 0)
        return AX_OK;
    AX_TRY(AX_LAUNCH(q, router_forward_kernel, blocks, dim3(32, warps), router_bytes(warps, n), r));
    return load == NULL
               ? AX_OK
               : AX_LAUNCH(q, add_loads_kernel, blocks_of(n, 32), dim3(32, LOAD_ROWS), 0,
                           (const int32_t *)chosen, (const float *)sums, (int)blocks, (int)n, load);
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
