/* sample, truncate: a block per row, in the order of steps of kernels/ops.h. A row is read once for its largest
 * logit and once, from cache, for the masses of its parts, which are sums of exp((z − max)/T) in double. With filters
 * the largest go into a list (choose.cuh); sorted, it has running sums of masses, and all is found in it. Where the
 * filters leave more than the list has, the row is read again for the masses of bins of logits, and the one bin where
 * something is to be found becomes a list. If even that is too long, as logits are equal, the k-th largest logit, the
 * one where the largest reach top_p, and the drawn one are found by search, each in some 30 passes over the row. */
#include "kernels/cuda/choose.cuh"
#include "kernels/cuda/philox.cuh"

extern "C" {
#include "kernels/sample.h"
}

/* Running sums of terms in another order differ by less than this part. */
#define BELOW_ALL (1 - 0x1p-48)

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
    float most, inverse; /* 1/T */
    float own_most;      /* the largest that this thread has seen */
    __device__ float share(float logit) const {
        return expf((logit - most) * inverse);
    }
};

__device__ static inline row row_of(const float *z, int64_t n, double temperature) {
    float most = -INFINITY;
    uint32_t at = 0;
    each_of(z, n, [&](int64_t c, float x) {
        if (x > most) {
            most = x;
            at = (uint32_t)c;
        }
    });
    const unsigned long long own = (unsigned long long)key_of(most) << 32 | ~at;
    const unsigned long long first = block_reduce<max_op>(own, 0ull);
    return {z,
            n,
            z[0] != z[0] ? 0 : (int64_t)(uint32_t)~first,
            value_of((uint32_t)(first >> 32)),
            (float)(1 / temperature),
            most};
}

/* Σ of the shares of tokens that fit. */
template <class P> __device__ static inline double mass_of(const row &r, P fits) {
    double sum = 0;
    each_of(r.z, r.n, [&](int64_t c, float z) {
        if (fits(c, key_of(z)))
            sum += (double)r.share(z);
    });
    return block_sum(sum);
}

/* ---- parts of a row: one for each warp, in shared memory ---- */

#define WARP_GROUPS (4 * 32) /* elements that a warp has at a time */

__device__ static inline int64_t part_length(int64_t n) {
    const int64_t warps = blockDim.x / 32;
    return (n + warps * WARP_GROUPS - 1) / (warps * WARP_GROUPS) * WARP_GROUPS;
}
__device__ static inline float share_of_four(const row &r, const four &z, int m,
                                             float (&share)[4]) {
    AX_UNROLL
    for (int i = 0; i < 4; i++)
        share[i] = i < m ? r.share(z.x[i]) : 0;
    return (share[0] + share[1]) + (share[2] + share[3]);
}

/* masses[w] = Σ of shares of part w of [first, end). f(c, z) for each element. */
template <class F>
__device__ static inline void find_masses(const row &r, int64_t first, int64_t end, double *masses,
                                          F f) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t length = part_length(end - first), from = first + warp * length;
    double sum = 0;
    each_four(r.z, from + 4 * lane, min(end, from + length), WARP_GROUPS,
              [&](int64_t c, const four &z, int m) {
                  float share[4];
                  sum += (double)share_of_four(r, z, m, share);
                  AX_UNROLL
                  for (int i = 0; i < 4; i++)
                      if (i < m)
                          f(c + i, z.x[i]);
              });
    sum = warp_reduce<sum_op>(sum);
    __syncthreads(); /* the last call's have been read */
    if (lane == 0)
        masses[warp] = sum;
    __syncthreads();
}

__device__ static inline double total_of(const double *masses) {
    double sum = 0;
    for (int w = 0; w < (int)blockDim.x / 32; w++)
        sum += masses[w];
    return sum;
}

/* Of up to WARP_GROUPS tokens from `first` on the one where the running sum exceeds `at`, or the last one. All lanes. */
__device__ static inline int64_t draw_of_group(const row &r, int64_t first, int64_t end,
                                               double at) {
    const int lane = threadIdx.x % 32;
    const int64_t c = first + 4 * lane;
    float share[4];
    const double own = (double)share_of_four(r, load_four(r.z + c, end - c),
                                             (int)max((int64_t)0, min((int64_t)4, end - c)), share);
    double sum = own; /* with all lanes before */
    for (int step = 1; step < 32; step *= 2) {
        const double before = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step)
            sum += before;
    }
    at = fmin(at, __shfl_sync(0xffffffffu, sum, 31) * BELOW_ALL);
    const int drawn = __ffs((int)__ballot_sync(0xffffffffu, own > 0 && at < sum)) - 1;
    int64_t id = c;
    sum -= own;
    bool found = false;
    AX_UNROLL
    for (int i = 0; i < 4; i++) {
        id = share[i] > 0 && !found ? c + i : id;
        sum += (double)share[i];
        found = found || at < sum;
    }
    return __shfl_sync(0xffffffffu, id, drawn);
}

/* The first token, by id, where the running sum exceeds u of all: of all parts, then of that one's, and so on. */
__device__ static inline int64_t draw_by_id(const row &r, double u, double *masses) {
    int64_t first = 0, end = r.n;
    double at = u * total_of(masses);
    while (end - first > WARP_GROUPS) {
        if (first > 0 || end < r.n)
            find_masses(r, first, end, masses, [](int64_t, float) {});
        at = fmin(at, total_of(masses) * BELOW_ALL);
        int w = 0;
        double before = 0;
        for (; w + 1 < (int)blockDim.x / 32 && !(at < before + masses[w]); w++)
            before += masses[w];
        at -= before;
        const int64_t length = part_length(end - first);
        first += w * length;
        end = min(end, first + length);
    }
    return draw_of_group(r, first, end, at);
}

/* ---- what filters leave ---- */

/* Keys above `key`, those that have it from `id` on, if not less than `least`. */
struct kept {
    uint32_t key;
    int64_t id;
    float least;
    double mass;
    __device__ bool operator()(const row &r, int64_t c, uint32_t k) const {
        return (k > key || (k == key && c >= id)) && (least <= 0 || r.share(value_of(k)) >= least);
    }
};

/* The first i below n, for which holds(i), which is true from there on; n if for none. */
template <class P> __device__ static inline int first_of(int n, P holds) {
    int low = 0;
    while (low < n) {
        const int middle = (low + n) / 2;
        if (holds(middle))
            n = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The sum of x over the threads before this one. All threads. */
template <class T> __device__ static inline T sum_before(T x) {
    AX_SHARED(T, warps, [32]);
    const int lane = threadIdx.x % 32;
    T sum = x;
    for (int step = 1; step < 32; step *= 2) {
        const T before = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step)
            sum += before;
    }
    __syncthreads(); /* the last call's have been read */
    if (lane == 31)
        warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum -= x;
    for (int w = 0; w < (int)threadIdx.x / 32; w++)
        sum += warps[w];
    return sum;
}

/* running[i] = Σ of shares of a list's entries up to i. All threads. */
__device__ static inline void add_shares(const row &r, const list &l, double *running) {
    const int each = (*l.n + blockDim.x - 1) / blockDim.x, first = threadIdx.x * each;
    const int end = min(*l.n, first + each);
    double own = 0;
    for (int i = first; i < end; i++)
        own += (double)r.share(l.value(i));
    double sum = sum_before(own);
    for (int i = first; i < end; i++) {
        sum += (double)r.share(l.value(i));
        running[i] = sum;
    }
    __syncthreads();
}

/* How many of a sorted list the filters leave, or 0 where the list has too few. `mass`: of the row. */
__device__ static inline int kept_of_list(const row &r, const filters &f, const list &l,
                                          const double *running, double mass) {
    const bool all = *l.n == r.n;
    int n = *l.n;
    if (f.top_k > n)
        return 0;
    if (f.top_k > 0) {
        const uint32_t key = l.key((int)f.top_k - 1);
        n = first_of(n, [&](int i) { return l.key(i) < key; });
        mass = running[n - 1];
    }
    if (f.by_p) {
        const int last = first_of(n, [&](int i) { return running[i] >= f.top_p * mass; });
        if (last == n && f.top_k == 0 && !all)
            return 0;
        n = min(n, last + 1);
    }
    const int left = first_of(n, [&](int i) { return r.share(l.value(i)) < (float)f.min_p; });
    return left == n && f.top_k == 0 && !f.by_p && !all ? 0 : left;
}

/* ---- bins ---- */

#define BINS 2048
#define FINE                                                                                       \
    (BINS / 32.0f) /* of them to a T; what is 32 T below the largest logit has next to no mass */

/* Running masses of bins of a row's logits, the largest ones' first. Masses are integers, whose sums no order changes:
 * multiples of `unit`, so that all together have at most 62 bits. */
struct bins {
    unsigned long long *running; /* [BINS], in shared memory */
    double unit;
    __device__ double mass_to(int bin) const { /* of bins before it, too */
        return bin < 0 ? 0 : (double)running[bin] * unit;
    }
};
__device__ static inline int bin_of(const row &r, float z) {
    return (int)fminf((r.most - z) * r.inverse * FINE, (float)(BINS - 1));
}

__device__ static inline bins bins_of(const row &r, unsigned long long *running) {
    int bits = 1;
    while (r.n >> bits > 0)
        bits++;
    const double unit = ldexp(1.0, bits - 62);
    const float inverse = (float)(1 / unit);
    for (int i = threadIdx.x; i < BINS; i += blockDim.x)
        running[i] = 0;
    __syncthreads();
    each_of(r.z, r.n, [&](int64_t, float z) {
        atomicAdd(&running[bin_of(r, z)], (unsigned long long)(r.share(z) * inverse));
    });
    __syncthreads();
    const int each = BINS / blockDim.x, first = threadIdx.x * each;
    unsigned long long own = 0;
    for (int i = 0; i < each; i++)
        own += running[first + i];
    unsigned long long sum = sum_before(own);
    for (int i = 0; i < each; i++) {
        sum += running[first + i];
        running[first + i] = sum;
    }
    __syncthreads();
    return {running, unit};
}

/* The tokens of a bin, sorted, and their running masses. Returns false if they are more than a list has. */
__device__ static inline bool list_bin(const row &r, int bin, const list &l, double *running) {
    __syncthreads(); /* what was there has been read */
    if (threadIdx.x == 0)
        *l.n = 0;
    __syncthreads();
    each_of(r.z, r.n, [&](int64_t c, float z) {
        if (bin_of(r, z) == bin)
            l.add(c, z);
    });
    __syncthreads();
    if (*l.n > LIST)
        return false;
    sort(l);
    add_shares(r, l, running);
    return true;
}

/* The last token, in order, that top_p leaves: a running mass reaches `target`. Returns false as list_bin. */
__device__ static inline bool find_last(const row &r, const bins &b, double target, const list &l,
                                        double *running, kept *out) {
    const int bin = min(BINS - 1, first_of(BINS, [&](int i) { return b.mass_to(i) >= target; }));
    if (!list_bin(r, bin, l, running))
        return false;
    const double before = b.mass_to(bin - 1);
    const int last = first_of(*l.n, [&](int i) { return before + running[i] >= target; });
    if (*l.n == 0)
        return false;
    out->key = l.key(min(last, *l.n - 1));
    out->id = l.id(min(last, *l.n - 1));
    return true;
}

/* The first token, in order, of those that are left, where the running mass exceeds `at`. Returns false likewise. */
__device__ static inline bool find_drawn(const row &r, const bins &b, const kept &left, double at,
                                         const list &l, double *running, int64_t *id) {
    const int bin = min(BINS - 1, first_of(BINS, [&](int i) { return b.mass_to(i) > at; }));
    if (!list_bin(r, bin, l, running))
        return false;
    const double before = b.mass_to(bin - 1);
    const int n = first_of(*l.n, [&](int i) { return !left(r, l.id(i), l.key(i)); });
    const int drawn = first_of(n, [&](int i) { return before + running[i] > at; });
    if (n == 0)
        return false;
    *id = l.id(min(drawn, n - 1));
    return true;
}

/* ---- the same by search ---- */

/* The j-th largest id of those that fit, or the smallest of fewer. */
template <class P> __device__ static inline int64_t id_from_end(const row &r, int64_t j, P fits) {
    const int64_t all = count_of(r.z, r.n, [&](int64_t c, float z) { return fits(c, key_of(z)); });
    const int64_t wanted = max((int64_t)1, min(j, all));
    if (wanted == 1) {
        int64_t last = 0;
        each_of(r.z, r.n, [&](int64_t c, float z) { last = fits(c, key_of(z)) ? c : last; });
        return block_reduce<max_op>(last, (int64_t)0);
    }
    return largest(31, [&](uint32_t x) {
        return count_of(r.z, r.n, [&](int64_t c, float z) {
                   return c >= (int64_t)x && fits(c, key_of(z));
               }) >= wanted;
    });
}

/* How many terms of `each` it takes from `sum` to `target`, or with `beyond` above it. */
__device__ static inline int64_t terms_to(double target, double sum, double each, bool beyond) {
    const double terms = beyond ? floor((target - sum) / each) + 1 : ceil((target - sum) / each);
    return each > 0 && terms < 2147483647.0 ? (int64_t)terms : 2147483647;
}

__device__ static inline void search_last(const row &r, const filters &f, kept *out) {
    const uint32_t floor = out->key;
    const double target = f.top_p * mass_of(r, [&](int64_t, uint32_t k) { return k >= floor; });
    out->key = max(floor, largest(32, [&](uint32_t x) {
                       const uint32_t from = max(x, floor);
                       return mass_of(r, [&](int64_t, uint32_t k) { return k >= from; }) >= target;
                   }));
    const double above = mass_of(r, [&](int64_t, uint32_t k) { return k > out->key; });
    const int64_t ties = terms_to(target, above, (double)r.share(value_of(out->key)), false);
    out->id = id_from_end(r, ties, [&](int64_t, uint32_t k) { return k == out->key; });
}

/* The first token where the running sum exceeds `at`, with the most probable first, among equals the last. */
__device__ static inline int64_t search_drawn(const row &r, const kept &left, double at) {
    const auto fits = [&](int64_t c, uint32_t k) { return left(r, c, k); };
    const uint32_t key = largest(32, [&](uint32_t x) {
        return mass_of(r, [&](int64_t c, uint32_t k) { return k >= x && fits(c, k); }) > at;
    });
    const double above = mass_of(r, [&](int64_t c, uint32_t k) { return k > key && fits(c, k); });
    const int64_t j = terms_to(at, above, (double)r.share(value_of(key)), true);
    return id_from_end(r, j, [&](int64_t c, uint32_t k) { return k == key && fits(c, k); });
}

/* ---- both ---- */

/* Shared memory of a block that filters: a list, its running sums, and bins'. */
#define FILTER_BYTES (LIST * (sizeof(unsigned long long) + sizeof(double)) + BINS * sizeof(double))

struct filtered {
    kept left;
    list l; /* sorted */
    double *running;
    int n;  /* how many of the list are left; 0: the list has too few */
    bins b; /* then */
};

/* Returns false if there is a NaN. */
__device__ static inline bool filter(const row &r, const filters &f, double *masses,
                                     filtered *out) {
    AX_DYNAMIC_SHARED(unsigned long long, entries);
    AX_SHARED(int, count, [1]);
    double *running = (double *)(entries + LIST);
    const int half = blockDim.x / 2;
    const float least = reached_by(f.top_k > 0 && f.top_k < half ? (int)f.top_k : half, r.own_most);
    *out = {{0, 0, (float)f.min_p, 0}, {entries, count}, running, 0, {}};
    if (threadIdx.x == 0)
        *count = 0;
    __syncthreads();
    find_masses(r, 0, r.n, masses, [&](int64_t c, float z) {
        if (z >= least)
            out->l.add(c, z);
    });
    const double mass = total_of(masses);
    if (!(mass >= 1))
        return false;
    if (*count <= LIST) {
        sort(out->l);
        add_shares(r, out->l, running);
        out->n = kept_of_list(r, f, out->l, running, mass);
    }
    if (out->n > 0) {
        out->left = {out->l.key(out->n - 1), out->l.id(out->n - 1), 0, running[out->n - 1]};
        return true;
    }
    kept *left = &out->left;
    out->b = bins_of(r, (unsigned long long *)(running + LIST));
    if (f.top_k > 0)
        left->key = kth_key(r.z, r.n, f.top_k);
    const bool by_bins = f.by_p && f.top_k == 0;
    if (f.by_p && !(by_bins && find_last(r, out->b, f.top_p * mass, out->l, running, left)))
        search_last(r, f, left);
    left->mass = mass_of(r, [&](int64_t c, uint32_t k) { return (*left)(r, c, k); });
    return true;
}

__device__ static inline int64_t draw(const row &r, const filtered &from, double u) {
    const double at = fmin(u, BELOW_ALL) * from.left.mass; /* some token ends above it */
    int64_t id = 0;
    if (from.n > 0)
        return from.l.id(
            min(from.n - 1, first_of(from.n, [&](int i) { return at < from.running[i]; })));
    if (!find_drawn(r, from.b, from.left, at, from.l, from.running, &id))
        id = search_drawn(r, from.left, at);
    return id;
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
    AX_SHARED(double, masses, [32]);
    const int64_t t = blockIdx.x;
    const row r = row_of(&a.logits.at(t, 0), a.n, a.f.temperature);
    int64_t id = r.top;
    filtered from = {};
    bool draws = a.f.temperature > 0;
    const double u = draws ? uniform(a.seed, a.salt, a.keys + t * AX_SAMPLE_KEY) : 0;
    if (draws && a.by_filters) {
        draws = filter(r, a.f, masses, &from);
        id = draws ? draw(r, from, u) : id;
    } else if (draws) {
        find_masses(r, 0, a.n, masses, [](int64_t, float) {});
        from.left.mass = total_of(masses);
        draws = from.left.mass >= 1; /* false if there is a NaN */
        id = draws ? draw_by_id(r, u, masses) : id;
    }
    if (threadIdx.x == 0)
        a.index[t] = (int32_t)id;
    for (int64_t c = threadIdx.x; c < a.n && a.shares.data != nullptr; c += blockDim.x)
        a.shares.at(t, c) = draws && from.left(r, c, key_of(r.z[c]))
                                ? (float)((double)r.share(r.z[c]) / from.left.mass)
                                : 0;
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
    return AX_LAUNCH(q, sample_kernel, rows, row_threads(n), args.by_filters ? FILTER_BYTES : 0,
                     args);
}

/* ---- truncate ---- */

struct truncate_args {
    rows_of<const float> all;
    rows_of<float> logits;
    const int32_t *labels;
    int64_t n, first, cols;
    filters f;
};

__global__ void __launch_bounds__(ROW_THREADS, 1) truncate_kernel(truncate_args a) {
    AX_SHARED(double, masses, [32]);
    const int64_t t = blockIdx.x;
    const row r = row_of(&a.all.at(t, 0), a.n, a.f.temperature);
    filtered from;
    if (!filter(r, a.f, masses, &from))
        return;
    __syncthreads(); /* logits may be `all`, which all threads have read now */
    for (int64_t c = a.first + threadIdx.x; c < a.first + a.cols; c += blockDim.x)
        if (c != a.labels[t] && !from.left(r, c, key_of(r.z[c])))
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
    return a->all.shape[0] == 0 ? AX_OK
                                : AX_LAUNCH(q, truncate_kernel, (unsigned)a->all.shape[0],
                                            row_threads(n), FILTER_BYTES, args);
}
