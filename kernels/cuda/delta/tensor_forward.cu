/* delta_forward by tensor cores (kernels/cuda/delta/tensor.cuh): factors of tokens; T and P of all chunks, a block for
 * each chunk and value head; then the chunks of a document in order, a block for each SLICE of a head's values. */
#include "kernels/cuda/delta/tensor.cuh"

/* ---- factors ---- */

/* r or s of a head, by a warp. */
__device__ static inline void store_norm(const delta_inputs<bf16> &in, const bf16 *x, float factor,
                                         float *to) {
    float squares = 0;
    for (int64_t i = threadIdx.x % 32; i < in.size.dk; i += 32)
        squares = fmaf((float)x[i], (float)x[i], squares);
    if (!in.additive)
        factor /= sqrtf(warp_reduce<sum_op>(squares) + (float)AX_DELTA_EPS);
    if (threadIdx.x % 32 == 0)
        *to = factor;
}

/* A block per chunk and key head. */
__global__ void __launch_bounds__(THREADS)
    delta_factors_kernel(delta_inputs<bf16> in, delta_work w, int64_t tasks) {
    const delta_sizes &s = in.size;
    const int64_t group = s.heads / s.key_heads;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const chunk_place c = chunk_of(in.cu, s.documents, task / s.key_heads);
        const int64_t h = task % s.key_heads;
        for (int64_t t = c.first + threadIdx.x / 32; t < c.first + c.rows; t += WARPS) {
            store_norm(in, &in.k.at(t, h * s.dk), 1, &w.keys[t * s.key_heads + h]);
            store_norm(in, &in.q.at(t, h * s.dk), in.scale, &w.queries[t * s.key_heads + h]);
        }
        for (int64_t v = h * group + threadIdx.x; v < (h + 1) * group; v += THREADS) {
            double sum = 0;
            for (int64_t t = c.first; t < c.first + c.rows; t++) {
                sum += (double)in.g.at(t, v);
                const float high = (float)sum;
                w.sums[t * s.heads + v] = {high, (float)(sum - (double)high)};
            }
        }
    }
}

/* ---- T and P ---- */

#define PAIR_THREADS 128
#define BLOCK        16          /* rows of T that a thread computes at a time */
#define PITCH        (CHUNK + 4) /* of Nᵀ: warps store it without conflicts of banks */

template <int DK> constexpr size_t pair_bytes() {
    return 2 * key_tile<DK>::BYTES + (size_t)CHUNK * (PITCH + CHUNK) * sizeof(float);
}

/* Column n of T from those of N: rows of `turned` are N's columns. */
__device__ static inline void invert_column(const float *turned, float *inverse, int n) {
    for (int first = 0; first < CHUNK; first += BLOCK) {
        float x[BLOCK];
        AX_UNROLL
        for (int r = 0; r < BLOCK; r++)
            x[r] = first + r == n ? 1.0f : 0.0f;
        for (int j = 0; j < first; j++) {
            const float above = -inverse[j * CHUNK + n];
            AX_UNROLL
            for (int r = 0; r < BLOCK; r++)
                x[r] = fmaf(turned[j * PITCH + first + r], above, x[r]);
        }
        AX_UNROLL
        for (int r = 0; r < BLOCK; r++) {
            inverse[(first + r) * CHUNK + n] = x[r];
            AX_UNROLL
            for (int i = r + 1; i < BLOCK; i++)
                x[i] = fmaf(turned[(first + r) * PITCH + first + i], -x[r], x[i]);
        }
    }
}

template <int DK>
__global__ void __launch_bounds__(PAIR_THREADS, 3)
    delta_pairs_tensor(delta_inputs<bf16> in, delta_work w, int64_t tasks) {
    const delta_sizes &s = in.size;
    AX_DYNAMIC_SHARED(char, memory);
    AX_SHARED(two_floats, sum, [CHUNK]);
    AX_SHARED(float, key, [CHUNK]);
    AX_SHARED(float, query, [CHUNK]);
    AX_SHARED(float, column, [CHUNK]);
    tile_taker taker = {memory};
    const key_tile<DK> keys = taker.take<key_tile<DK>>(), queries = taker.take<key_tile<DK>>();
    float *turned = (float *)taker.at, *inverse = turned + CHUNK * PITCH;
    const int first = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const chunk_place c = chunk_of(in.cu, s.documents, task / s.heads);
        const int64_t head = task % s.heads, key_head = head / (s.heads / s.key_heads);
        if (c.rows == 0)
            continue;
        start_keys<PAIR_THREADS>(keys, in.k, s, key_head, c.first, c.rows);
        start_keys<PAIR_THREADS>(queries, in.q, s, key_head, c.first, c.rows);
        if (threadIdx.x < CHUNK) {
            const int i = threadIdx.x;
            const token_factors f = factors_of(in, w, c.first + i, head, i < c.rows);
            sum[i] = f.sum;
            key[i] = f.key;
            query[i] = f.query;
            column[i] = f.key * f.beta;
        }
        copy_wait();
        __syncthreads();

        sums<1, CHUNK> of_queries = {};
        multiply(of_queries, rows_from(queries, first), turned_columns_from(keys, 0), 0, DK / 16);
        for (int i = 0; i < CHUNK / 2; i += 2) {
            const int row = first + 8 * of_queries.row(i) + g, col = of_queries.column(i) + 2 * t;
            float x[2];
            for (int e = 0; e < 2; e++)
                x[e] = col + e <= row ? of_queries.at(i + e) * (query[row] * column[col + e]) *
                                            decay_of(sum[row], sum[col + e])
                                      : 0;
            if (row < c.rows)
                store_split(w.weight, c.first + row, head, col, x[0], x[1]);
        }
        if (!in.additive) {
            sums<1, CHUNK> of_keys = {};
            multiply(of_keys, rows_from(keys, first), turned_columns_from(keys, 0), 0, DK / 16);
            for (int i = 0; i < CHUNK / 2; i++) {
                const int row = first + 8 * of_keys.row(i) + g, col = of_keys.column(i) + 2 * t;
                turned[col * PITCH + row] = col < row ? of_keys.at(i) * (key[row] * column[col]) *
                                                            decay_of(sum[row], sum[col])
                                                      : 0;
            }
            __syncthreads();
            if (threadIdx.x < CHUNK)
                invert_column(turned, inverse, threadIdx.x);
            __syncthreads();
            for (int e = 2 * threadIdx.x; e < c.rows * CHUNK; e += 2 * PAIR_THREADS)
                store_split(w.inverse, c.first + e / CHUNK, head, e % CHUNK, inverse[e],
                            inverse[e + 1]);
        }
        __syncthreads(); /* the tiles have been read */
    }
}

enum ax_status delta_run_pairs(struct ax_queue *q, const delta_inputs<bf16> &in,
                               const delta_work &w) {
    const delta_sizes &s = in.size;
    const int64_t keys = chunk_numbers(s) * s.key_heads, values = chunk_numbers(s) * s.heads;
    AX_TRY(AX_LAUNCH(q, delta_factors_kernel, grid_of(keys), THREADS, 0, in, w, keys));
    return by_keys(s, [&](auto width) {
        constexpr int DK = decltype(width)::value;
        return AX_LAUNCH(q, delta_pairs_tensor<DK>, grid_of(values), PAIR_THREADS, pair_bytes<DK>(),
                         in, w, values);
    });
}

/* ---- the chunks of a document in order ---- */

template <int DK> constexpr size_t state_bytes() {
    return 3 * key_tile<DK>::BYTES + 2 * pair_tile::BYTES + state_tile<DK>::BYTES +
           3 * value_tile::BYTES;
}

template <int DK, bool Additive>
__global__ void __launch_bounds__(THREADS, 1)
    delta_states_tensor(delta_inputs<bf16> in, delta_work w, rows_of<bf16> out, int64_t tasks) {
    constexpr int COLS = warp_share<DK>::STATE_COLS;
    const delta_sizes &s = in.size;
    const int64_t slices = slices_of(s);
    const warp_share<DK> own = share_of_warp<DK>();
    const bool answers = out.data != nullptr;
    AX_DYNAMIC_SHARED(char, memory);
    AX_SHARED(chunk_factors, factors, [2]);
    tile_taker taker = {memory};
    const key_tile<DK> first_keys = taker.take<key_tile<DK>>(),
                       second_keys = taker.take<key_tile<DK>>(),
                       queries = taker.take<key_tile<DK>>();
    const pair_tile inverse = taker.take<pair_tile>(), weight = taker.take<pair_tile>();
    const state_tile<DK> states = taker.take<state_tile<DK>>();
    const value_tile y = taker.take<value_tile>(), x = taker.take<value_tile>(),
                     z = taker.take<value_tile>();
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const delta_head h = head_of(in, task / slices);
        const value_columns cols = columns_of(s, h.head, task % slices);
        const int64_t in_head = cols.first - h.head * s.dv;
        const auto rows_at = [&](int64_t token) {
            return (int)max(min((int64_t)CHUNK, h.end - token), (int64_t)0);
        };
        const auto start_key_rows = [&](const key_tile<DK> &to, int64_t token) {
            start_keys<THREADS>(to, in.k, s, h.key_head, token, rows_at(token));
        };
        /* What the products at the end of a chunk do not read any more. */
        const auto start_others = [&](int64_t token) {
            if (answers)
                start_keys<THREADS>(queries, in.q, s, h.key_head, token, rows_at(token));
            if (!Additive)
                start_split<THREADS>(inverse, w.inverse, h.head, token, rows_at(token), 0, CHUNK);
        };

        sums<1, COLS> state;
        const float *enters =
            h.enters >= 0 ? state_at(in.states, s, h.enters, h.head) + in_head : nullptr;
        each_pair<COLS>(own.key, own.value, [&](int e, int key, int value) {
            const bool there = enters != nullptr && key < s.dk && value < cols.cols;
            state.at(e) = there ? enters[key * s.dv + value] : 0;
            state.at(e + 1) = there ? enters[key * s.dv + value + 1] : 0;
            states.store(key, value, state.at(e), state.at(e + 1));
        });
        set_factors(factors[0], find_factors(in, w, h.head, h.first, rows_at(h.first)));
        value_pairs v = load_values(in.v, cols, own, h.first, rows_at(h.first));
        start_key_rows(first_keys, h.first);
        start_others(h.first);
        copy_wait();
        __syncthreads();

        int buffer = 0;
        for (int64_t token = h.first; token < h.end; token += CHUNK, buffer ^= 1) {
            const int rows = rows_at(token);
            const key_tile<DK> keys = buffer ? second_keys : first_keys;
            start_key_rows(buffer ? first_keys : second_keys, token + CHUNK);
            if (answers)
                start_split<THREADS>(weight, w.weight, h.head, token, rows, 0, CHUNK);
            const chunk_factors &f = factors[buffer];
            const int next_rows = rows_at(token + CHUNK);
            const next_factors next = find_factors(in, w, h.head, token + CHUNK, next_rows);
            const value_pairs next_v = load_values(in.v, cols, own, token + CHUNK, next_rows);

            const auto with_state = columns_from(states, own.col);
            sums<1, 16> result = {}, update = {};
            if (answers)
                multiply(result, rows_from(queries, own.row), with_state, 0, DK / 16);
            if (!Additive) {
                sums<1, 16> meeting = {};
                multiply(meeting, rows_from(keys, own.row), with_state, 0, DK / 16);
                each_pair<16>(own.row, own.col, [&](int e, int r, int c) {
                    float one, two;
                    v.get(e, one, two);
                    y.store(r, c, fmaf(-f.meets[r], meeting.at(e), one),
                            fmaf(-f.meets[r], meeting.at(e + 1), two));
                });
                __syncthreads(); /* y is there */
                multiply(update, rows_from(inverse, own.row), columns_from(y, own.col), 0,
                         own.row / 16 + 1);
            }
            each_pair<16>(own.row, own.col, [&](int e, int r, int c) {
                float one = update.at(e), two = update.at(e + 1);
                if (Additive)
                    v.get(e, one, two);
                x.store(r, c, one, two);
                z.store(r, c, f.rests[r] * one, f.rests[r] * two);
                if (!Additive && w.x.data && r < rows && c < cols.cols)
                    store_split(w.x, token + r, h.head, in_head + c, one, two);
            });
            copy_wait();
            __syncthreads(); /* x, z and P are there; queries, T, y and S have been read */
            start_others(token + CHUNK);
            set_factors(factors[buffer ^ 1], next);

            sums<1, COLS> added = {};
            multiply(added, turned_from(keys, own.key), columns_from(z, own.value), 0, CHUNK / 16);
            const bool kept = w.states.data && token + CHUNK < h.end;
            each_pair<COLS>(own.key, own.value, [&](int e, int key, int value) {
                for (int k = 0; k < 2; k++)
                    state.at(e + k) = fmaf(f.whole, state.at(e + k), added.at(e + k));
                states.store(key, value, state.at(e), state.at(e + 1));
                if (kept && key < s.dk && value < cols.cols)
                    store_split(w.states, (token + CHUNK) / CHUNK - 1, h.head,
                                key * s.dv + in_head + value, state.at(e), state.at(e + 1));
            });
            if (answers) {
                sums<1, 16> inner = {};
                multiply(inner, rows_from(weight, own.row), columns_from(x, own.col), 0,
                         own.row / 16 + 1);
                const float skip = in.skip ? (float)in.skip[h.head] : 0;
                each_pair<16>(own.row, own.col, [&](int e, int r, int c) {
                    float one, two;
                    v.get(e, one, two);
                    one = fmaf(skip, one, fmaf(f.asks[r], result.at(e), inner.at(e)));
                    two = fmaf(skip, two, fmaf(f.asks[r], result.at(e + 1), inner.at(e + 1)));
                    if (r < rows && c < cols.cols)
                        *(uint32_t *)&out.at(token + r, cols.first + c) = round_pair(one, two);
                });
            }
            v = next_v;
            copy_wait();
            __syncthreads(); /* S and what the next chunk begins with are there */
        }
        if (answers && h.leaves >= 0) {
            float *leaves = state_at(in.states, s, h.leaves, h.head) + in_head;
            each_pair<COLS>(own.key, own.value, [&](int e, int key, int value) {
                for (int k = 0; k < 2 && key < s.dk && value < cols.cols; k++)
                    leaves[key * s.dv + value + k] = state.at(e + k);
            });
        }
    }
}

enum ax_status delta_run_states(struct ax_queue *q, const delta_inputs<bf16> &in,
                                const delta_work &w, const rows_of<bf16> &out) {
    const int64_t tasks = in.size.documents * in.size.heads * slices_of(in.size);
    return by_keys(in.size, [&](auto width) {
        constexpr int DK = decltype(width)::value;
        return in.additive ? AX_LAUNCH(q, (delta_states_tensor<DK, true>), grid_of(tasks), THREADS,
                                       state_bytes<DK>(), in, w, out, tasks)
                           : AX_LAUNCH(q, (delta_states_tensor<DK, false>), grid_of(tasks), THREADS,
                                       state_bytes<DK>(), in, w, out, tasks);
    });
}

extern "C" size_t ax_tensor_delta_forward_work(const struct ax_delta_rule *a) {
    work_taker taker = {};
    take_work(taker, sizes_of(a), a->additive);
    return taker.bytes;
}

extern "C" enum ax_status ax_tensor_delta_forward(struct ax_queue *q, const struct ax_delta_rule *a,
                                                  void *work) {
    const delta_inputs<bf16> in = inputs_of<bf16>(a);
    work_taker taker = {(char *)work, 0};
    const delta_work w = take_work(taker, in.size, a->additive);
    if (in.size.documents == 0 || in.size.tokens == 0)
        return AX_OK;
    AX_TRY(delta_run_pairs(q, in, w));
    return delta_run_states(q, in, w, as_rows<bf16>(&a->out));
}

/* ---- what these kernels take ---- */

extern "C" bool ax_tensor_delta_fits(const struct ax_delta_rule *a) {
    const delta_sizes s = sizes_of(a);
    return a->q.dtype == AX_BF16 && !s.channels && s.dk % 8 == 0 && s.dk <= 128 && s.dv % 8 == 0;
}

static bool has_chunks(const struct ax_tensor *t) {
    return (uintptr_t)t->data % 16 == 0 && t->row_stride % 8 == 0;
}
/* Whether a block may have as much shared memory as these kernels want. */
static bool has_shared_memory() {
    int gpu, bytes;
    return cudaGetDevice(&gpu) == cudaSuccess &&
           cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu) ==
               cudaSuccess &&
           bytes >= MOST_SHARED;
}
extern "C" bool ax_tensor_delta_suits(const struct ax_delta_rule *a,
                                      const struct ax_delta_backward *b) {
    return ax_tensor_delta_fits(a) && has_chunks(&a->q) && has_chunks(&a->k) && has_chunks(&a->v) &&
           has_chunks(b ? &b->dout : &a->out) && (!b || has_chunks(&b->dv)) && a->scale > 0 &&
           has_shared_memory();
}
