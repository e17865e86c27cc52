/* sample, truncate: a block per row, in the order of steps of kernels/ops.h. The k-th largest logit, the
 * one where the largest reach top_p, and the drawn one are found by search (choose.cuh), each in some 30
 * passes over the row, which is in cache; masses are sums of exp((z − max)/T) in double. */
#include "kernels/cuda/choose.cuh"
#include "kernels/cuda/philox.cuh"

extern "C" {
#include "kernels/sample.h"
}

struct filters {
    double temperature, top_p, min_p;
    int64_t top_k; /* 0: off */
    bool by_p;
};
static inline filters filters_of(const struct ax_sample *a) {
    return {a->temperature, a->top_p, a->min_p, ax_sample_by_k(a) ? a->top_k : 0,
            ax_sample_by_p(a)};
}

/* A row with its largest logit and the first token that has it. */
struct row {
    const float *z;
    int64_t n, top;
    float most, temperature;
    __device__ float share(float logit) const {
        return expf((logit - most) / temperature);
    }
};

__device__ static inline row row_of(const float *z, int64_t n, double temperature) {
    float most = -INFINITY;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
        most = fmaxf(most, z[c]);
    most = block_reduce<max_op>(most, -INFINITY);
    int64_t before = -n; /* −first */
    for (int64_t c = threadIdx.x; c < n && before == -n; c += blockDim.x)
        if (z[c] == most)
            before = -c;
    before = block_reduce<max_op>(before, -n);
    return {z, n, before == -n || z[0] != z[0] ? 0 : -before, most, (float)temperature};
}

/* Σ of the shares of tokens that fit. */
template <class P> __device__ static inline double mass_of(const row &r, P fits) {
    double sum = 0;
    for (int64_t c = threadIdx.x; c < r.n; c += blockDim.x)
        if (fits(c, key_of(r.z[c])))
            sum += (double)r.share(r.z[c]);
    return block_sum(sum);
}

/* The j-th largest id of those that fit, or the smallest of fewer. */
template <class P> __device__ static inline int64_t id_from_end(const row &r, int64_t j, P fits) {
    const auto tie = [&](int64_t c) { return fits(c, key_of(r.z[c])); };
    const int64_t all = count_of(r.n, tie), wanted = max((int64_t)1, min(j, all));
    if (wanted == 1) {
        int64_t last = 0;
        for (int64_t c = threadIdx.x; c < r.n; c += blockDim.x)
            last = tie(c) ? c : last;
        return block_reduce<max_op>(last, (int64_t)0);
    }
    return largest(31, [&](uint32_t x) {
        return count_of(r.n, [&](int64_t c) { return c >= (int64_t)x && tie(c); }) >= wanted;
    });
}

/* How many terms of `each` it takes from `sum` to `target`, or with `beyond` above it. */
__device__ static inline int64_t terms_to(double target, double sum, double each, bool beyond) {
    const double terms = beyond ? floor((target - sum) / each) + 1 : ceil((target - sum) / each);
    return each > 0 && terms < 2147483647.0 ? (int64_t)terms : 2147483647;
}

/* What the filters leave: keys above `key`, those that have it from `id` on, if not less than `least`. */
struct kept {
    uint32_t key;
    int64_t id;
    float least;
    __device__ bool operator()(const row &r, int64_t c, uint32_t k) const {
        return (k > key || (k == key && c >= id)) && r.share(r.z[c]) >= least;
    }
};

__device__ static inline kept filter(const row &r, const filters &f) {
    kept out = {0, 0, (float)f.min_p};
    if (f.top_k > 0)
        out.key = kth_key(r.z, r.n, f.top_k);
    if (!f.by_p)
        return out;
    const uint32_t floor = out.key;
    const double target = f.top_p * mass_of(r, [&](int64_t, uint32_t k) { return k >= floor; });
    out.key = max(floor, largest(32, [&](uint32_t x) {
                      const uint32_t from = max(x, floor);
                      return mass_of(r, [&](int64_t, uint32_t k) { return k >= from; }) >= target;
                  }));
    const double above = mass_of(r, [&](int64_t, uint32_t k) { return k > out.key; });
    const int64_t ties = terms_to(target, above, (double)r.share(value_of(out.key)), false);
    out.id = id_from_end(r, ties, [&](int64_t, uint32_t k) { return k == out.key; });
    return out;
}

/* ---- drawing ---- */

/* The sum of x over the threads before this one. */
__device__ static inline double sum_before(double x) {
    AX_SHARED(double, warps, [32]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sum = x;
    for (int step = 1; step < 32; step *= 2) {
        const double before = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step)
            sum += before;
    }
    __syncthreads();
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    double all = 0;
    for (int w = 0; w < warp; w++)
        all += warps[w];
    const double before = __shfl_up_sync(0xffffffffu, sum, 1);
    return all + (lane == 0 ? 0 : before);
}

/* The first token, by id, where the running sum exceeds `at`: each thread has a run of them. */
__device__ static inline int64_t draw_by_id(const row &r, double u) {
    const int64_t run = (r.n + blockDim.x - 1) / blockDim.x, first = threadIdx.x * run;
    const int64_t end = min(r.n, first + run);
    double own = 0;
    for (int64_t c = first; c < end; c++)
        own += (double)r.share(r.z[c]);
    double sum = sum_before(own);
    const double at = u * block_reduce<max_op>(sum + own, 0.0);
    int64_t found = -r.n; /* −first */
    for (int64_t c = first; c < end && found == -r.n; c++) {
        sum += (double)r.share(r.z[c]);
        if (at < sum)
            found = -c;
    }
    found = block_reduce<max_op>(found, -r.n);
    return found == -r.n ? r.n - 1 : -found;
}

/* The same with the most probable first, among equals the last. */
__device__ static inline int64_t draw_by_share(const row &r, const kept &left, double mass,
                                               double u) {
    const auto fits = [&](int64_t c, uint32_t k) { return left(r, c, k); };
    const double at = fmin(u * mass, mass * (1 - 0x1p-50)); /* some token ends above it */
    const uint32_t key = largest(32, [&](uint32_t x) {
        return mass_of(r, [&](int64_t c, uint32_t k) { return k >= x && fits(c, k); }) > at;
    });
    const double above = mass_of(r, [&](int64_t c, uint32_t k) { return k > key && fits(c, k); });
    const int64_t j = terms_to(at, above, (double)r.share(value_of(key)), true);
    return id_from_end(r, j, [&](int64_t c, uint32_t k) { return k == key && fits(c, k); });
}

/* ax_sample_uniform. */
__device__ static inline double uniform(uint64_t seed, uint32_t salt, const int32_t *key) {
    const ax_rng_key k = {seed, (uint32_t)key[0], (uint32_t)key[1] ^ salt};
    const random_block b = random_block_of(k, (uint64_t)(uint32_t)key[3] << 32 | (uint32_t)key[2]);
    return (double)((uint64_t)b.c0 << 21 | b.c1 >> 11) * 0x1p-53;
}

struct sample_args {
    rows_of<const float> logits;
    rows_of<float> shares; /* NULL: not requested */
    const int32_t *keys;
    int32_t *index;
    int64_t n;
    filters f;
    bool by_filters;
    uint64_t seed;
    uint32_t salt;
};

__global__ void __launch_bounds__(ROW_THREADS, 1) sample_kernel(sample_args a) {
    const int64_t t = blockIdx.x;
    const row r = row_of(&a.logits.at(t, 0), a.n, a.f.temperature);
    int64_t id = r.top;
    double mass = 0;
    kept left = {0, 0, 0};
    if (a.f.temperature > 0)
        mass = mass_of(r, [](int64_t, uint32_t) { return true; });
    const bool draws = mass >= 1; /* false if there is a NaN */
    if (draws) {
        const double u = uniform(a.seed, a.salt, a.keys + t * AX_SAMPLE_KEY);
        if (a.by_filters) {
            left = filter(r, a.f);
            mass = mass_of(r, [&](int64_t c, uint32_t k) { return left(r, c, k); });
            id = draw_by_share(r, left, mass, u);
        } else {
            id = draw_by_id(r, u);
        }
    }
    if (threadIdx.x == 0)
        a.index[t] = (int32_t)id;
    for (int64_t c = threadIdx.x; c < a.n && a.shares.data != nullptr; c += blockDim.x)
        a.shares.at(t, c) =
            draws && left(r, c, key_of(r.z[c])) ? (float)((double)r.share(r.z[c]) / mass) : 0;
}

/* ---- the penalty ---- */

/* A row's logits, those of its context changed. */
__global__ void __launch_bounds__(ROW_THREADS, 1)
    penalise_kernel(rows_of<const float> logits, int64_t n, rows_of<const int32_t> context,
                    int64_t tokens, float *out, double penalty) {
    const int64_t t = blockIdx.x;
    for (int64_t c = threadIdx.x; c < n; c += blockDim.x)
        out[t * n + c] = logits.at(t, c);
    int64_t end = -tokens; /* −first that is −1 */
    for (int64_t i = threadIdx.x; i < tokens && end == -tokens; i += blockDim.x)
        if (context.at(t, i) < 0)
            end = -i;
    end = -block_reduce<max_op>(end, -tokens); /* a barrier, too */
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x) {
        float &z = out[t * n + context.at(t, i)];
        z = (float)(z < 0 ? z * penalty : z / penalty);
    }
}

extern "C" size_t ax_cuda_sample_work(const struct ax_sample *a) {
    return ax_sample_penalises(a) ? (size_t)ax_tensor_numel(&a->logits) * sizeof(float) : 0;
}

extern "C" enum ax_status ax_cuda_sample(struct ax_queue *q, const struct ax_sample *a,
                                         void *work) {
    const int64_t n = a->logits.shape[1];
    const unsigned rows = (unsigned)a->logits.shape[0];
    sample_args args = {as_rows<const float>(&a->logits),
                        as_rows<float>(&a->shares),
                        (const int32_t *)a->keys.data,
                        (int32_t *)a->index.data,
                        n,
                        filters_of(a),
                        ax_sample_filters(a),
                        a->seed,
                        ax_hash32("sample")};
    if (rows == 0)
        return AX_OK;
    if (ax_sample_penalises(a)) {
        AX_TRY(AX_LAUNCH(q, penalise_kernel, rows, row_threads(n), 0, args.logits, n,
                         as_rows<const int32_t>(&a->context), a->context.shape[1], (float *)work,
                         a->repetition_penalty));
        args.logits = {(const float *)work, n};
    }
    return AX_LAUNCH(q, sample_kernel, rows, row_threads(n), 0, args);
}

/* ---- truncate ---- */

struct truncate_args {
    rows_of<const float> all;
    rows_of<float> logits;
    const int32_t *labels;
    int64_t n, first, cols;
    filters f;
};

__global__ void __launch_bounds__(ROW_THREADS) truncate_kernel(truncate_args a) {
    const int64_t t = blockIdx.x;
    const row r = row_of(&a.all.at(t, 0), a.n, a.f.temperature);
    if (!(mass_of(r, [](int64_t, uint32_t) { return true; }) >= 1))
        return;
    const kept left = filter(r, a.f);
    __syncthreads(); /* logits may be `all`, which all threads have read now */
    for (int64_t c = a.first + threadIdx.x; c < a.first + a.cols; c += blockDim.x)
        if (c != a.labels[t] && !left(r, c, key_of(r.z[c])))
            a.logits.at(t, c - a.first) = (float)AX_TRUNCATED;
}

extern "C" enum ax_status ax_cuda_truncate(struct ax_queue *q, const struct ax_truncate *a,
                                           void *work) {
    (void)work;
    const int64_t n = a->all.shape[1];
    const struct ax_sample as = ax_truncate_sample(a);
    const truncate_args args = {as_rows<const float>(&a->all),
                                as_rows<float>(&a->logits),
                                (const int32_t *)a->labels.data,
                                n,
                                a->first_col,
                                a->logits.shape[1],
                                filters_of(&as)};
    return a->all.shape[0] == 0
               ? AX_OK
               : AX_LAUNCH(q, truncate_kernel, (unsigned)a->all.shape[0], row_threads(n), 0, args);
}
