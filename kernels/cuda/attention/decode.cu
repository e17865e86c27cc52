/* attention_forward in bf16 where a document has one query at most: decoding. Moves the keys and values that
 * are seen once for every 16 query heads of a KV head, which are the rows of products by tensor cores.
 *
 * A block has such rows of one query and a part of its keys (flash-decoding: Dao et al. 2023). Each of its
 * warps goes through tiles of keys of its own, which come to its shared memory while it computes; what the
 * warps have is added in their order. Where keys have several parts, a second kernel adds these in theirs. How
 * long a part is depends on shapes alone, and so do bits. */
#include "kernels/cuda/attention/tensor.cuh"

#define ROWS  16
#define LEAST 64 /* keys of a part, at least */
#define BLOCKS                                                                                     \
    (3 * 132)    /* that fill a GPU; always the same, as plans of memory are made without one */
#define AHEAD 16 /* parts whose results a warp has on their way */

template <int D> struct decode_tiles {
    static constexpr int KEYS = D <= 128 ? 32 : 16, RESIDENT = D <= 64 ? 4 : D <= 128 ? 3 : 2;
    static constexpr int OF_WARP = 2 * KEYS * D; /* elements: keys, values; in the end results */
    static constexpr size_t BYTES = (size_t)(ROWS * D + WARPS * OF_WARP) * sizeof(bf16);
    static_assert(BYTES <= MOST_SHARED && KEYS >= ROWS, "");
};

/* Σ 2^(factor·(score − most)) of a row's keys. */
struct softmax_part {
    float most, sum;
};

struct decode_args {
    pattern p;
    divider block_size;
    scaling by;
    short_heads<const bf16> q, k, v;
    short_heads<bf16> out;
    rows_of<float> lse;
    const float *sink;
    int tiles, length, parts; /* tiles of a KV head's rows; keys of a part; parts */
    float *part_out;          /* [row of q][query head][part][size of v] */
    softmax_part *part_of;    /* [row of q][query head][part] */
    int64_t entries;          /* rows of q · query heads */
};

/* ---- a part of the keys ---- */

/* Which keys the query in this row of q sees: none if the row is of no document. */
struct seen_keys {
    int index, first, from, to; /* document, its first row, keys [from, to) of it */
};
__device__ static inline seen_keys keys_of_row(const pattern &p, int row) {
    AX_SHARED(seen_keys, found, [1]);
    if (threadIdx.x == 0)
        found[0] = {-1, 0, 0, 0};
    __syncthreads();
    for (int n = threadIdx.x; n < (int)p.documents; n += THREADS) {
        const int first = p.cu_k[n], keys = p.cu_k[n + 1] - first;
        if (p.cu_q[n] <= row && row < p.cu_q[n + 1])
            found[0] = {n, first,
                        p.window > 0 ? max(0, keys - (int)min(p.window, (int64_t)FAR)) : 0, keys};
    }
    __syncthreads();
    return found[0];
}

/* The row of k and v that has key j. */
__device__ static inline int row_of_key(const decode_args &a, const seen_keys &seen, int j) {
    if (a.p.table == nullptr)
        return seen.first + j;
    const int column = a.block_size.of(j), by = (int)a.block_size.by;
    return a.p.table[seen.index * a.p.table_stride + column] * by + (j - column * by);
}

/* Starts a warp's copies of a head of Keys rows; lane i has the number of row i, or −1 for zeros. */
template <int Keys, int Cols>
__device__ static inline void start_keys(tile<Cols> to, const short_heads<const bf16> &from,
                                         int head, int row_of_lane) {
    constexpr int CHUNKS = Cols / 8;
    const int lane = threadIdx.x % 32;
    AX_UNROLL
    for (int i = 0; i < Keys * CHUNKS / 32; i++) {
        const int e = 32 * i + lane, key = e / CHUNKS, c = e % CHUNKS;
        const int row = __shfl_sync(0xffffffffu, row_of_lane, key);
        const bool there = row >= 0 && 8 * c < from.size;
        copy_16(to.chunk(key, c), there ? from.at(row, head) + 8 * c : from.data, there);
    }
}

/* Where results of a warp are: of each row, runs of 8 columns are exchanged, as chunks of tiles. */
template <int D> __device__ static inline int result_at(int row, int col) {
    return row * D + 8 * (col / 8 ^ row % 8) + col % 8;
}

__device__ static inline void store_result(bf16 *to, const float4 &x, float factor) {
    *(uint2 *)to =
        make_uint2(round_pair(x.x * factor, x.y * factor), round_pair(x.z * factor, x.w * factor));
}
__device__ static inline float lse_of(const softmax_part &s, float factor) {
    return s.sum == 0 ? -INFINITY : (s.most * factor + log2f(s.sum)) * LN2;
}
__device__ static inline void add(float4 &to, float factor, const float4 &x) {
    to.x += factor * x.x;
    to.y += factor * x.y;
    to.z += factor * x.z;
    to.w += factor * x.w;
}

/* What the largest scores of parts are measured from, in powers of two. */
__device__ static inline float base_of(float most, float factor) {
    return most == -INFINITY ? 0 : most * factor;
}

/* Adds the warps' results of `rows` rows, and stores them: as they are, or as a part's. */
template <int D>
__device__ static inline void store_rows(const decode_args &a, const bf16 *memory,
                                         const softmax_part *of_warps, int rows, int row, int head,
                                         int part) {
    const int columns = a.v.size / 4;
    for (int e = threadIdx.x; e < rows * columns; e += THREADS) {
        const int r = e / columns, col = 4 * (e % columns);
        const int64_t entry = ((int64_t)row * a.p.kv_heads * a.p.group + head + r) * a.parts + part;
        softmax_part all = {-INFINITY, 0};
        float4 x = {};
        for (int w = 0; w < WARPS; w++)
            all.most = fmaxf(all.most, of_warps[w * ROWS + r].most);
        const float base = base_of(all.most, a.by.factor);
        AX_UNROLL
        for (int w = 0; w < WARPS; w++) {
            const softmax_part &s = of_warps[w * ROWS + r];
            const float *results = (const float *)(memory + w * decode_tiles<D>::OF_WARP);
            const float factor = power_of_two(s.most * a.by.factor - base);
            all.sum += factor * s.sum;
            add(x, factor, *(const float4 *)(results + result_at<D>(r, col)));
        }
        if (a.parts > 1) {
            *(float4 *)(a.part_out + entry * a.v.size + col) = x;
            if (col == 0)
                a.part_of[entry] = all;
        } else {
            store_result(a.out.at(row, head + r) + col, x, all.sum == 0 ? 0 : 1 / all.sum);
            if (col == 0)
                a.lse.at(row, head + r) = lse_of(all, a.by.factor);
        }
    }
}

template <int D>
__global__ void __launch_bounds__(THREADS, decode_tiles<D>::RESIDENT)
    attention_decode(decode_args a) {
    typedef decode_tiles<D> T;
    constexpr int KEYS = T::KEYS, STEP = WARPS * KEYS;
    const pattern &p = a.p;
    AX_DYNAMIC_SHARED(bf16, memory);
    AX_SHARED(softmax_part, of_warps, [WARPS * ROWS]);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    bf16 *own = memory + ROWS * D + warp * T::OF_WARP;
    const tile<D> queries = {shared_of(memory)}, keys = {shared_of(own)},
                  values = {shared_of(own + KEYS * D)};
    int b = (int)blockIdx.x;
    const int part = b % a.parts;
    b /= a.parts;
    const int first_row = b % a.tiles * ROWS;
    b /= a.tiles;
    const int kv_head = b % p.kv_heads, row = b / p.kv_heads;
    const int head = kv_head * p.group + first_row, rows = min(ROWS, p.group - first_row);

    start_rows<ROWS>(queries, a.q, [&](int r) -> const bf16 * {
        return r < rows ? a.q.at(row, head + r) : nullptr;
    });
    const seen_keys seen = keys_of_row(p, row);
    const int from = min(seen.from + part * a.length, seen.to), to = min(from + a.length, seen.to);
    int k = from + warp * KEYS;
    const auto row_at = [&](int first) {
        const int j = first + lane % KEYS;
        return j < to ? row_of_key(a, seen, j) : -1;
    };
    if (k < to) {
        const int first = row_at(k);
        start_keys<KEYS>(keys, a.k, kv_head, first);
        start_keys<KEYS>(values, a.v, kv_head, first);
    }
    softmax<1> state = {{-INFINITY, -INFINITY}, {0, 0}};
    sums<1, D> out = {};
    if (a.sink != nullptr && seen.index >= 0 && part == 0 && warp == 0) {
        AX_UNROLL
        for (int h = 0; h < 2; h++) {
            if (g + 8 * h < rows)
                state.most[h] = a.sink[head + g + 8 * h] * (LOG2E / a.by.factor);
            state.sum[h] = t == 0 && g + 8 * h < rows ? 1 : 0;
        }
    }
    copy_wait();
    __syncthreads(); /* the queries are there */

    for (; k < to; k += STEP) {
        const int next = row_at(k + STEP);
        copy_wait();
        __syncwarp();
        sums<1, KEYS> s = {};
        add_products<D>(s, by_rows(queries, 0), by_columns(keys));
        __syncwarp(); /* the keys have been read */
        if (k + STEP < to)
            start_keys<KEYS>(keys, a.k, kv_head, next);
        cap_scores(s, a.by);
        if (k + KEYS > to) {
            AX_UNROLL
            for (int i = 0; i < KEYS / 2; i++)
                if (k + 8 * (i / 4) + 2 * t + i % 2 >= to)
                    s.x[0][i / 4][i % 4] = -INFINITY;
        }
        take_scores(state, s, out, a.by.factor);
        add_weighted<KEYS>(out, s, by_rows(values, 0));
        __syncwarp(); /* the values have been read */
        if (k + STEP < to)
            start_keys<KEYS>(values, a.v, kv_head, next);
    }

    float *results = (float *)own;
    AX_UNROLL
    for (int h = 0; h < 2; h++) {
        const float sum = row_reduce<sum_op>(state.sum[h]);
        if (t == 0)
            of_warps[warp * ROWS + g + 8 * h] = {state.most[h], sum};
        AX_UNROLL
        for (int n = 0; n < D / 8; n++)
            *(float2 *)(results + result_at<D>(g + 8 * h, 8 * n + 2 * t)) = {
                out.x[0][n][2 * h], out.x[0][n][2 * h + 1]};
    }
    __syncthreads();
    store_rows<D>(a, memory + ROWS * D, of_warps, rows, row, head, part);
}

/* ---- all parts ---- */

/* A warp for each row of q and head, whose lanes have four columns of every 128. Parts without keys are the
 * last ones, and have no results. */
__global__ void __launch_bounds__(THREADS) attention_decode_merge(decode_args a) {
    const int64_t entry = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (entry >= a.entries)
        return;
    const int lane = threadIdx.x % 32, heads = a.p.kv_heads * a.p.group;
    const softmax_part *parts = a.part_of + entry * a.parts;
    softmax_part all = {-INFINITY, 0};
    int count = 0;
    for (int first = 0; first < a.parts; first += 32) {
        const bool there = first + lane < a.parts && parts[first + lane].sum != 0;
        all.most = fmaxf(all.most, there ? parts[first + lane].most : -INFINITY);
        count += __popc(__ballot_sync(0xffffffffu, there));
    }
    all.most = warp_reduce<max_op>(all.most);
    const float base = base_of(all.most, a.by.factor);
    const int row = (int)(entry / heads), head = (int)(entry % heads);
    for (int col = 4 * lane; col - 4 * lane < a.v.size; col += 128) {
        const float *results = a.part_out + entry * a.parts * a.v.size + col;
        const bool inside = col < a.v.size;
        float4 x = {};
        all.sum = 0;
        for (int first = 0; first < count; first += 32) {
            const softmax_part s =
                first + lane < count ? parts[first + lane] : softmax_part{-INFINITY, 0};
            const float weight = power_of_two(s.most * a.by.factor - base);
            all.sum += warp_reduce<sum_op>(weight * s.sum);
            for (int i = 0; i < min(32, count - first); i += AHEAD) {
                float4 each[AHEAD];
                AX_UNROLL
                for (int j = 0; j < AHEAD; j++)
                    each[j] =
                        inside
                            ? *(const float4 *)(results +
                                                (int64_t)min(first + i + j, count - 1) * a.v.size)
                            : float4{};
                AX_UNROLL
                for (int j = 0; j < AHEAD; j++)
                    add(x, __shfl_sync(0xffffffffu, weight, i + j), each[j]);
            }
        }
        if (inside)
            store_result(a.out.at(row, head) + col, x, all.sum == 0 ? 0 : 1 / all.sum);
    }
    if (lane == 0)
        a.lse.at(row, head) = lse_of(all, a.by.factor);
}

/* ---- calls ---- */

static int tiles_of(const struct ax_attention *a) {
    return (int)blocks_of(a->q.shape[1] / a->k.shape[1], ROWS);
}

static int64_t power_from(int64_t n) {
    int64_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* How many keys a part has: a power of two, of which there are as many as fill a GPU with blocks. */
static int64_t length_of(const struct ax_attention *a, int64_t most) {
    const int64_t blocks = a->q.shape[0] * a->k.shape[1] * tiles_of(a);
    int64_t length = power_from(most), parts = 1;
    while (length > LEAST && 2 * parts * blocks <= BLOCKS) {
        length /= 2;
        parts *= 2;
    }
    return length;
}

extern "C" bool ax_decode_attention_suits(const struct ax_attention *a) {
    return a->max_q == 1 && a->ahead == 0 && suits_tiles(a) && a->q.shape[0] > 0 && a->max_k < FAR;
}

static size_t out_bytes(const struct ax_attention *a) {
    const int64_t group = a->q.shape[1] / a->k.shape[1];
    return (size_t)(BLOCKS * (group < ROWS ? group : ROWS) * a->v.shape[2]) * sizeof(float);
}

/* Blocks that have a part of the keys are at most BLOCKS. */
extern "C" size_t ax_decode_attention_work(const struct ax_attention *a) {
    return out_bytes(a) + (size_t)(BLOCKS * ROWS) * sizeof(softmax_part);
}

extern "C" enum ax_status ax_decode_attention_forward(struct ax_queue *q,
                                                      const struct ax_attention *a, void *work) {
    const pattern p = pattern_of(a);
    const int64_t reach = p.window > 0 && p.window < a->max_k ? p.window : a->max_k;
    const int64_t length = length_of(a, reach),
                  parts = reach > 0 ? (reach + length - 1) / length : 1;
    const decode_args args = {p,
                              divider_of(p.table == nullptr ? 1 : (int)p.block_size),
                              scaling_of(a),
                              as_short<const bf16>(&a->q),
                              as_short<const bf16>(&a->k),
                              as_short<const bf16>(&a->v),
                              as_short<bf16>(&a->out),
                              as_rows<float>(&a->lse),
                              (const float *)a->sink.data,
                              tiles_of(a),
                              (int)length,
                              (int)parts,
                              (float *)work,
                              (softmax_part *)((char *)work + out_bytes(a)),
                              a->q.shape[0] * a->q.shape[1]};
    const unsigned blocks = (unsigned)(p.queries * p.kv_heads * args.tiles * parts);
    AX_TRY(by_width(a, [&](auto width) {
        constexpr int D = decltype(width)::value;
        return AX_LAUNCH(q, attention_decode<D>, blocks, THREADS, decode_tiles<D>::BYTES, args);
    }));
    return parts == 1 ? AX_OK
                      : AX_LAUNCH(q, attention_decode_merge, blocks_of(args.entries, WARPS),
                                  THREADS, 0, args);
}
