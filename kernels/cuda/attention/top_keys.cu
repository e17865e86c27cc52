/* top_keys: the keys of sparse attention. A block has a query at a time: the scores of all its heads with 32 keys
 * are tiles as in attention, of which the weighted sum over the heads, in their order, goes to memory; then the
 * block finds the last of the largest by search and goes through all once more in order of position. */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/choose.cuh"

#define BLOCKS (4 * 132) /* at most, each with memory for a query's scores */
#define WARPS  (THREADS / 32)

template <class E> struct top_args {
    pattern p;
    heads_of<const E> q, k;
    rows_of<const float> w;
    rows_of<int32_t> chosen, rows; /* one of them */
    int64_t words, top, stride;    /* words of a row of `chosen`; floats of a block's scores */
    float *scores;
};

/* The scores of query t, which sees the first n keys of d. */
template <class E>
__device__ static inline void score_keys(const top_args<E> &a, const tile_memory &m, int64_t t,
                                         const document &d, int64_t n, float *to) {
    const int y = threadIdx.x / 8, x = threadIdx.x % 8;
    for (int64_t k = 0; k < n; k += TILE) {
        float sum = 0; /* of key k + threadIdx.x */
        const auto key_at = [&](int r) -> const E * {
            return k + r < n ? a.k.at(key_row(a.p, d, k + r), 0) : nullptr;
        };
        for (int h = 0; h < a.p.group; h += TILE) {
            const auto head_at = [&](int r) -> const E * {
                return h + r < a.p.group ? a.q.at(t, h + r) : nullptr;
            };
            const scores s = multiply(m, head_at, key_at, a.q.size);
            AX_UNROLL
            for (int i = 0; i < 2; i++) {
                const int row = y + 16 * i;
                const float weight = h + row < a.p.group ? a.w.at(t, h + row) : 0;
                AX_UNROLL
                for (int j = 0; j < 4; j++)
                    m.weights[row * (TILE + 4) + x + 8 * j] =
                        weight * fmaxf(a.p.scale * s.x[i][j], 0);
            }
            __syncthreads();
            for (int row = 0; row < TILE && threadIdx.x < TILE; row++)
                sum += m.weights[row * (TILE + 4) + threadIdx.x];
        }
        if (threadIdx.x < TILE && k + threadIdx.x < n)
            to[k + threadIdx.x] = sum;
    }
    __syncthreads();
}

/* A bit for each lane that holds; all lanes get it. */
__device__ static inline uint32_t word_of(bool holds) {
    return __ballot_sync(0xffffffffu, holds);
}

/* This thread's place among the block's for which it holds, and how many those are. */
__device__ static inline int place_among(bool holds, int *all) {
    AX_SHARED(int, of_warps, [WARPS]);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t word = word_of(holds);
    int before = __popc(word & ((1u << lane) - 1));
    __syncthreads(); /* the last call's have been read */
    if (lane == 0)
        of_warps[warp] = __popc(word);
    __syncthreads();
    *all = 0;
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? of_warps[w] : 0;
        *all += of_warps[w];
    }
    return before;
}

/* Of the first n keys of d those with the largest scores; all, if these are no more. */
template <class E>
__device__ static inline void choose(const top_args<E> &a, int64_t t, const document &d, int64_t n,
                                     const float *scores) {
    const bool every = n <= a.top;
    const uint32_t least = every ? 0 : kth_key(scores, n, a.top);
    const int64_t above =
        every ? 0 : count_of(scores, n, [&](int64_t, float z) { return key_of(z) > least; });
    int64_t equal = a.top - above, found = 0;
    for (int64_t first = 0; first < n; first += THREADS) {
        const int64_t j = first + threadIdx.x;
        const uint32_t key = j < n && !every ? key_of(scores[j]) : 0;
        const bool ties = j < n && !every && key == least;
        int all_ties, all;
        const bool among = place_among(ties, &all_ties) < equal;
        const bool taken = j < n && (every || key > least || (ties && among));
        const int place = place_among(taken, &all);
        if (a.rows.data != nullptr) {
            if (taken)
                a.rows.at(t, found + place) = (int32_t)key_row(a.p, d, j);
        } else {
            const uint32_t word = word_of(taken);
            if (threadIdx.x % 32 == 0 && j < n)
                a.chosen.at(t, j / 32) = (int32_t)word;
        }
        equal -= all_ties;
        found += all;
    }
    if (a.rows.data != nullptr)
        for (int64_t i = found + threadIdx.x; i < a.top; i += THREADS)
            a.rows.at(t, i) = -1;
    else
        for (int64_t i = (n + 31) / 32 + threadIdx.x; i < a.words; i += THREADS)
            a.chosen.at(t, i) = 0;
}

template <class E>
__global__ void __launch_bounds__(THREADS, RESIDENT) top_keys_kernel(top_args<E> a) {
    const pattern &p = a.p;
    TILE_MEMORY(memory);
    float *scores = a.scores + blockIdx.x * a.stride;
    for (int64_t t = blockIdx.x; t < p.queries; t += gridDim.x) {
        const int64_t index = first_document(p.cu_q, p.documents, t);
        document d = {};
        int64_t n = 0;
        if (index < p.documents) {
            d = document_of(p, index);
            n = max((int64_t)0, t - d.q_first + shift_of(p, d) + 1);
        }
        if (n > a.top)
            score_keys(a, memory, t, d, n, scores);
        choose(a, t, d, n, scores);
        __syncthreads(); /* the scores have been read */
    }
}

static int64_t blocks_for(const struct ax_top_keys *t) {
    return t->q.shape[0] < BLOCKS ? t->q.shape[0] : BLOCKS;
}

extern "C" size_t ax_cuda_top_keys_work(const struct ax_top_keys *t) {
    return (size_t)(blocks_for(t) * t->max_k) * sizeof(float);
}

extern "C" enum ax_status ax_cuda_top_keys(struct ax_queue *q, const struct ax_top_keys *t,
                                           void *work) {
    struct ax_attention as = {};
    if (t->q.shape[0] == 0)
        return AX_OK;
    as.q = t->q;
    as.k = t->k;
    as.cu_q = t->cu_q;
    as.cu_k = t->cu_k;
    as.block_table = t->block_table;
    as.block_size = t->block_size;
    as.causal = true;
    as.scale = t->scale;
    const pattern p = pattern_of(&as);
    return by_real(t->q.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        const top_args<E> args = {p,
                                  as_heads<const E>(&t->q),
                                  as_heads<const E>(&t->k),
                                  as_rows<const float>(&t->w),
                                  as_rows<int32_t>(&t->chosen),
                                  as_rows<int32_t>(&t->rows),
                                  t->chosen.data != nullptr ? t->chosen.shape[1] : 0,
                                  t->top,
                                  t->max_k,
                                  (float *)work};
        return AX_LAUNCH(q, top_keys_kernel<E>, (unsigned)blocks_for(t), THREADS, 0, args);
    });
}
