/* delta_backward by tensor cores: after the states between chunks (tensor_forward.cu), gradients go from the last chunk
 * to the first, a block for each SLICE of a head's values; then a block for each chunk and value head adds what keys and
 * queries get. With the notation of tensor.cuh, dS' the gradient of the next chunk's state, and R = dv·xᵀ, Q = dout·xᵀ:
 *   dv = Tᵀ·(Pᵀ·dout + F⊙r⊙beta⊙(k·dS')), Tᵀ left out if the rule is additive; x's own gradient is dv / beta
 *   dS = e^G_c·dS' + qᵀ·(E⊙s⊙dout) − kᵀ·(E⊙r⊙dv)
 *   dbeta_i = R_ii / beta_i;  dskip_i = Q_ii
 *   A_ij = −r_i·R_ij·D_ij·beta_j·r_j, j < i;  B_ij = s_i·Q_ij·D_ij·beta_j·r_j, j ≤ i
 *   dq̂ = E⊙(dout·Sᵀ) + (B·k)/s;  l = (A·k)/r − E⊙(dv·Sᵀ);  w = F⊙beta⊙(x·dS'ᵀ);  dk̂ = l + (Bᵀ·q + Aᵀ·k)/r + w
 * and dg as in delta_backward.cu. */
#include "kernels/cuda/delta/tensor.cuh"

struct tensor_results {
    rows_of<const bf16> dout;
    rows_of<bf16> dv;
    rows_of<float> dg, dbeta, dskip, dstates; /* dskip, dstates: data NULL: none */
    float *q_sums, *k_sums;                   /* scale·dq̂ and dk̂ of value heads [T][Hv][dk] */
};

/* ---- from the last chunk to the first ---- */

typedef plane_tile<CHUNK, SLICE, 1> dout_tile;

template <int DK> constexpr size_t reverse_bytes() {
    return 3 * key_tile<DK>::BYTES + 2 * pair_tile::BYTES + state_tile<DK>::BYTES +
           dout_tile::BYTES + 3 * value_tile::BYTES;
}

template <int DK, bool Additive>
__global__ void __launch_bounds__(THREADS, 1)
    delta_reverse_tensor(delta_inputs<bf16> in, delta_work w, tensor_results out, int64_t tasks) {
    constexpr int COLS = warp_share<DK>::STATE_COLS, LAST = CHUNK / 16;
    const delta_sizes &s = in.size;
    const int64_t slices = slices_of(s);
    const warp_share<DK> own = share_of_warp<DK>();
    AX_DYNAMIC_SHARED(char, memory);
    AX_SHARED(chunk_factors, factors, [2]);
    tile_taker taker = {memory};
    const key_tile<DK> first_keys = taker.take<key_tile<DK>>(),
                       second_keys = taker.take<key_tile<DK>>(),
                       queries = taker.take<key_tile<DK>>();
    const pair_tile inverse = taker.take<pair_tile>(), weight = taker.take<pair_tile>();
    const state_tile<DK> states = taker.take<state_tile<DK>>();
    const value_tile y = taker.take<value_tile>(), for_keys = taker.take<value_tile>(),
                     for_queries = taker.take<value_tile>();
    const dout_tile douts = taker.take<dout_tile>();
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const delta_head h = head_of(in, task / slices);
        const value_columns cols = columns_of(s, h.head, task % slices);
        const int64_t in_head = cols.first - h.head * s.dv;
        const auto rows_at = [&](int64_t token) {
            return token < h.first ? 0 : (int)min((int64_t)CHUNK, h.end - token);
        };
        const auto start_key_rows = [&](const key_tile<DK> &to, const rows_of<const bf16> &from,
                                        int64_t token) {
            start_keys<THREADS>(to, from, s, h.key_head, token, rows_at(token));
        };
        const auto start_others = [&](int64_t token) {
            const int rows = rows_at(token);
            start_split<THREADS>(weight, w.weight, h.head, token, rows, 0, CHUNK);
            if (!Additive)
                start_split<THREADS>(inverse, w.inverse, h.head, token, rows, 0, CHUNK);
            start_plane<CHUNK, THREADS>(douts.plane(0), &out.dout.at(token, cols.first),
                                        out.dout.stride, rows, cols.cols);
        };

        sums<1, COLS> state;
        const float *leaves = out.dstates.data && h.leaves >= 0
                                  ? state_at(out.dstates, s, h.leaves, h.head) + in_head
                                  : nullptr;
        each_pair<COLS>(own.key, own.value, [&](int e, int key, int value) {
            const bool there = leaves != nullptr && key < s.dk && value < cols.cols;
            state.at(e) = there ? leaves[key * s.dv + value] : 0;
            state.at(e + 1) = there ? leaves[key * s.dv + value + 1] : 0;
            states.store(key, value, state.at(e), state.at(e + 1));
        });
        const int64_t last = h.first + (h.end - h.first + CHUNK - 1) / CHUNK * CHUNK - CHUNK;
        set_factors(factors[0], find_factors(in, w, h.head, last, rows_at(last)));
        value_pairs dout = load_values(out.dout, cols, own, last, rows_at(last));
        start_key_rows(first_keys, in.k, last);
        start_others(last);
        copy_wait();
        __syncthreads();

        int buffer = 0;
        for (int64_t token = last; token >= h.first; token -= CHUNK, buffer ^= 1) {
            const int rows = rows_at(token), next_rows = rows_at(token - CHUNK);
            const key_tile<DK> keys = buffer ? second_keys : first_keys;
            const chunk_factors &f = factors[buffer];
            start_key_rows(buffer ? first_keys : second_keys, in.k, token - CHUNK);
            start_key_rows(queries, in.q, token);
            const next_factors next = find_factors(in, w, h.head, token - CHUNK, next_rows);
            const value_pairs next_dout =
                load_values(out.dout, cols, own, token - CHUNK, next_rows);

            sums<1, 16> of_state = {}, dv = {};
            multiply(of_state, rows_from(keys, own.row), columns_from(states, own.col), 0, DK / 16);
            multiply(dv, turned_from(weight, own.row), columns_from(douts, own.col), own.row / 16,
                     LAST);
            each_pair<16>(own.row, own.col, [&](int e, int r, int c) {
                for (int k = 0; k < 2; k++)
                    dv.at(e + k) = fmaf(f.rests[r], of_state.at(e + k), dv.at(e + k));
                if (!Additive)
                    y.store(r, c, dv.at(e), dv.at(e + 1));
            });
            if (!Additive) {
                __syncthreads(); /* y is there */
                dv = {};
                multiply(dv, turned_from(inverse, own.row), columns_from(y, own.col), own.row / 16,
                         LAST);
            }
            const float skip = in.skip ? (float)in.skip[h.head] : 0;
            each_pair<16>(own.row, own.col, [&](int e, int r, int c) {
                float one, two;
                const float a = dv.at(e), b = dv.at(e + 1);
                dout.get(e, one, two);
                for_queries.store(r, c, f.asks[r] * one, f.asks[r] * two);
                if (!Additive)
                    for_keys.store(r, c, -f.meets[r] * a, -f.meets[r] * b);
                if (r >= rows || c >= cols.cols)
                    return;
                store_split(w.dv, token + r, h.head, in_head + c, a, b);
                *(uint32_t *)&out.dv.at(token + r, cols.first + c) =
                    round_pair(fmaf(skip, one, a), fmaf(skip, two, b));
            });
            copy_wait();
            __syncthreads(); /* both rows and the queries are there; P, T, dout, y and dS' have been read */
            start_others(token - CHUNK);
            set_factors(factors[buffer ^ 1], next);

            sums<1, COLS> added = {};
            multiply(added, turned_from(queries, own.key), columns_from(for_queries, own.value), 0,
                     LAST);
            if (!Additive)
                multiply(added, turned_from(keys, own.key), columns_from(for_keys, own.value), 0,
                         LAST);
            each_pair<COLS>(own.key, own.value, [&](int e, int key, int value) {
                for (int k = 0; k < 2; k++)
                    state.at(e + k) = fmaf(f.whole, state.at(e + k), added.at(e + k));
                states.store(key, value, state.at(e), state.at(e + 1));
                if (token > h.first && key < s.dk && value < cols.cols)
                    store_split(w.dstates, token / CHUNK - 1, h.head, key * s.dv + in_head + value,
                                state.at(e), state.at(e + 1));
            });
            dout = next_dout;
            copy_wait();
            __syncthreads(); /* dS and what the next chunk begins with are there */
        }
        if (out.dstates.data && h.enters >= 0) {
            float *enters = state_at(out.dstates, s, h.enters, h.head) + in_head;
            each_pair<COLS>(own.key, own.value, [&](int e, int key, int value) {
                for (int k = 0; k < 2 && key < s.dk && value < cols.cols; k++)
                    enters[key * s.dv + value + k] = state.at(e + k);
            });
        }
    }
}

/* A copy of the leaving states' gradients, whose slots may get those of the entering ones; a block per slot. */
__global__ void __launch_bounds__(THREADS)
    delta_keep_kernel(rows_of<float> dstates, float *to, int64_t size) {
    for (int64_t i = threadIdx.x; i < size; i += THREADS)
        to[blockIdx.x * size + i] = dstates.at(blockIdx.x, i);
}

/* ---- keys and queries ---- */

#define GRADIENT_THREADS 256 /* warps of 16 rows and half of the columns */
#define HALVES           2
#define PAIR_COLS        (CHUNK / HALVES)

/* What a block reads of SLICE columns of a head. */
template <int DK, bool Additive> struct slice_tiles {
    typedef plane_tile<CHUNK, SLICE, Additive ? 1 : 2> x_tile;
    x_tile x;
    value_tile dv;
    dout_tile dout;
    state_tile<DK> state, d_state;
    static constexpr int BYTES =
        x_tile::BYTES + value_tile::BYTES + dout_tile::BYTES + 2 * state_tile<DK>::BYTES;
    __device__ static slice_tiles take(tile_taker &from) {
        return {from.take<x_tile>(), from.take<value_tile>(), from.take<dout_tile>(),
                from.take<state_tile<DK>>(), from.take<state_tile<DK>>()};
    }
};
template <int DK, bool Additive> constexpr size_t gradient_bytes() {
    return 2 * key_tile<DK>::BYTES + 2 * slice_tiles<DK, Additive>::BYTES;
}

/* A value head of a chunk; borders: numbers of the states before and after it, or −1 at the document's ends. */
struct chunk_task {
    chunk_place c;
    int64_t head, key_head, before, after;
    int32_t enters, leaves; /* there: slots, or −1 */
};
__device__ static inline chunk_task task_of(const delta_inputs<bf16> &in, int64_t number) {
    const delta_sizes &s = in.size;
    const chunk_place c = chunk_of(in.cu, s.documents, number / s.heads);
    const int64_t head = number % s.heads, end = c.first + c.rows;
    chunk_task t = {c, head, head / (s.heads / s.key_heads), -1, -1, -1, -1};
    if (c.rows == 0)
        return t;
    if (c.first > in.cu[c.document])
        t.before = c.first / CHUNK - 1;
    else if (in.states.data)
        t.enters = in.enters[c.document];
    if (end < in.cu[c.document + 1])
        t.after = end / CHUNK - 1;
    else if (in.states.data)
        t.leaves = in.leaves[c.document];
    return t;
}

/* Starts copies of a slice of a state between chunks, or stores one of a document's ends: floats, NULL for zeros. */
template <int DK>
__device__ static inline void start_state(const state_tile<DK> &to, const delta_sizes &s,
                                          const split_rows &from, int64_t border, int64_t head,
                                          const float *end, int64_t first, int cols) {
    if (border >= 0) {
        for (int i = 0; i < 2; i++)
            start_plane<DK, GRADIENT_THREADS>(to.plane(i), from.plane(border, head, i) + first,
                                              s.dv, (int)s.dk, cols);
        return;
    }
    for (int e = threadIdx.x; e < DK * SLICE / 2; e += GRADIENT_THREADS) {
        const int key = e / (SLICE / 2), col = e % (SLICE / 2) * 2;
        const bool there = end != nullptr && key < s.dk && col < cols;
        const float *at = there ? end + key * s.dv + first + col : nullptr;
        to.store(key, col, there ? at[0] : 0, there ? at[1] : 0);
    }
}

template <int DK, bool Additive>
__device__ static inline void
start_slice(const slice_tiles<DK, Additive> &to, const delta_inputs<bf16> &in, const delta_work &w,
            const tensor_results &out, const chunk_task &t, int64_t slice) {
    const delta_sizes &s = in.size;
    const value_columns cols = columns_of(s, t.head, slice);
    const int64_t first = slice * SLICE;
    const int64_t token = t.c.first;
    const int rows = t.c.rows;
    if constexpr (Additive)
        start_plane<CHUNK, GRADIENT_THREADS>(to.x.plane(0), &in.v.at(token, cols.first),
                                             in.v.stride, rows, cols.cols);
    else
        start_split<GRADIENT_THREADS>(to.x, w.x, t.head, token, rows, first, cols.cols);
    start_split<GRADIENT_THREADS>(to.dv, w.dv, t.head, token, rows, first, cols.cols);
    start_plane<CHUNK, GRADIENT_THREADS>(to.dout.plane(0), &out.dout.at(token, cols.first),
                                         out.dout.stride, rows, cols.cols);
    start_state(to.state, s, w.states, t.before, t.head,
                t.enters >= 0 ? state_at(in.states, s, t.enters, t.head) : nullptr, first,
                cols.cols);
    start_state(to.d_state, s, w.dstates, t.after, t.head,
                t.leaves >= 0 && w.leaving ? w.leaving + (t.leaves * s.heads + t.head) * s.dk * s.dv
                                           : nullptr,
                first, cols.cols);
}

/* Factors of a chunk's rows, and rows' sums over keys: a sum for each half of the columns. */
struct gradient_rows {
    chunk_factors by;
    two_floats sum[CHUNK];
    float key[CHUNK], query[CHUNK], beta[CHUNK];    /* r, s, beta */
    float without_key[CHUNK], without_query[CHUNK]; /* 1 / r, scale / s */
    float along[HALVES][CHUNK], kept[HALVES][CHUNK];
};

/* A thread's sums. */
template <int DK> struct gradient_sums {
    sums<1, PAIR_COLS> of_updates, of_results; /* R, Q */
    sums<1, DK / HALVES> query, left, right; /* dout·Sᵀ, dv·Sᵀ, x·dS'ᵀ; then as add_pairs says */
    float states;                            /* Σ S⊙dS' */
};

/* Where a warp's sums are: rows from `row`, of pairs columns from `col`, of keys from `key` on. */
struct gradient_share {
    int row, col, key;
};

template <int DK, bool Additive>
__device__ static inline void add_slice(gradient_sums<DK> &g, const slice_tiles<DK, Additive> &t,
                                        const gradient_share &own) {
    constexpr int K = SLICE / 16;
    const auto x = rows_from(t.x, own.row);
    const auto dv = rows_from(t.dv, own.row);
    const auto dout = rows_from(t.dout, own.row);
    const auto state = turned_columns_from(t.state, own.key);
    const auto x_columns = turned_columns_from(t.x, own.col);
    const auto d_state = turned_columns_from(t.d_state, own.key);
    const bool pairs = own.col <= own.row, diagonal = own.col == own.row / PAIR_COLS * PAIR_COLS;
    AX_ROLLED
    for (int k = 0; k < K; k++) {
        if (Additive ? diagonal : pairs)
            multiply(g.of_updates, dv, x_columns, k, k + 1);
        if (pairs)
            multiply(g.of_results, dout, x_columns, k, k + 1);
        multiply(g.query, dout, state, k, k + 1);
        if (!Additive)
            multiply(g.left, dv, state, k, k + 1);
        multiply(g.right, x, d_state, k, k + 1);
    }
    for (int e = threadIdx.x; e < DK * SLICE / 2; e += GRADIENT_THREADS) {
        float a[2], b[2];
        t.state.load(e / (SLICE / 2), e % (SLICE / 2) * 2, a[0], a[1]);
        t.d_state.load(e / (SLICE / 2), e % (SLICE / 2) * 2, b[0], b[1]);
        g.states = fmaf(a[0], b[0], fmaf(a[1], b[1], g.states));
    }
}

/* A and B of sums R and Q; dbeta and dskip. */
template <int DK>
__device__ static inline void store_pairs(const gradient_sums<DK> &g, const pair_tile &a,
                                          const pair_tile &b, const gradient_rows &rows,
                                          const tensor_results &out, const chunk_task &task,
                                          const gradient_share &own) {
    if (own.col > own.row)
        return;
    each_pair<PAIR_COLS>(own.row, own.col, [&](int e, int r, int c) {
        float of_a[2], of_b[2];
        for (int k = 0; k < 2; k++) {
            const int col = c + k;
            const float factor =
                col <= r ? decay_of(rows.sum[r], rows.sum[col]) * (rows.beta[col] * rows.key[col])
                         : 0;
            of_a[k] = col < r ? -rows.key[r] * g.of_updates.at(e + k) * factor : 0;
            of_b[k] = rows.query[r] * g.of_results.at(e + k) * factor;
            if (col != r || r >= task.c.rows)
                continue;
            out.dbeta.at(task.c.first + r, task.head) = g.of_updates.at(e + k) / rows.beta[r];
            if (out.dskip.data)
                out.dskip.at(task.c.first + r, task.head) = g.of_results.at(e + k);
        }
        a.store(r, c, of_a[0], of_a[1]);
        b.store(r, c, of_b[0], of_b[1]);
    });
}

/* Stores a warp's sums of its rows, over its columns of keys; a thread has its share of rows g and g + 8. */
__device__ static inline void store_row_sums(float (&to)[HALVES][CHUNK], const float (&share)[2],
                                             const gradient_share &own, int columns) {
    for (int half = 0; half < 2; half++) {
        const float sum = quad_sum(share[half]);
        if (threadIdx.x % 4 == 0)
            to[own.key / columns][own.row + 8 * half + threadIdx.x % 32 / 4] = sum;
    }
}

/* Makes dq̂·s, l·r and (dk̂ − l)·r of a thread's sums, which get what A and B add; rows' sums of k̂⊙w. */
template <int DK, bool Additive>
__device__ static inline void
add_pairs(gradient_sums<DK> &g, const pair_tile &a, const pair_tile &b, const key_tile<DK> &keys,
          const key_tile<DK> &queries, gradient_rows &rows, const gradient_share &own) {
    constexpr int N = DK / HALVES, LAST = CHUNK / 16;
    const int from = own.row / 16;
    float kept[2] = {}; /* of rows g and g + 8 */
    each_pair<N>(own.row, own.key, [&](int e, int r, int c) {
        float k[2];
        keys.load(r, c, k[0], k[1]);
        for (int i = 0; i < 2; i++) {
            g.query.at(e + i) *= rows.by.asks[r];
            g.left.at(e + i) *= -rows.by.meets[r];
            g.right.at(e + i) *= rows.by.rests[r];
            kept[e / 2 % 2] = fmaf(k[i], g.right.at(e + i), kept[e / 2 % 2]);
        }
    });
    store_row_sums(rows.kept, kept, own, N);
    const auto key_columns = columns_from(keys, own.key);
    multiply(g.query, rows_from(b, own.row), key_columns, 0, from + 1);
    multiply(g.right, turned_from(b, own.row), columns_from(queries, own.key), from, LAST);
    if (Additive)
        return;
    multiply(g.left, rows_from(a, own.row), key_columns, 0, from + 1);
    multiply(g.right, turned_from(a, own.row), key_columns, from, LAST);
}

/* Stores what keys and queries get; rows' sums of q̂⊙dq̂ + k̂⊙(l − r). */
template <int DK>
__device__ static inline void store_keys(const gradient_sums<DK> &g, const key_tile<DK> &keys,
                                         const key_tile<DK> &queries, gradient_rows &rows,
                                         const tensor_results &out, const chunk_task &task,
                                         const delta_sizes &s, const gradient_share &own) {
    float along[2] = {};
    each_pair<DK / HALVES>(own.row, own.key, [&](int e, int r, int c) {
        float k[2], q[2], of_query[2], of_key[2];
        if (r >= task.c.rows)
            return;
        keys.load(r, c, k[0], k[1]);
        queries.load(r, c, q[0], q[1]);
        for (int i = 0; i < 2; i++) {
            const float left = g.left.at(e + i), right = g.right.at(e + i);
            along[e / 2 % 2] =
                fmaf(q[i], g.query.at(e + i), fmaf(k[i], left - right, along[e / 2 % 2]));
            of_query[i] = rows.without_query[r] * g.query.at(e + i);
            of_key[i] = rows.without_key[r] * (left + right);
        }
        const int64_t at = ((task.c.first + r) * s.heads + task.head) * s.dk + c;
        if (c >= s.dk)
            return;
        *(float2 *)(out.q_sums + at) = {of_query[0], of_query[1]};
        *(float2 *)(out.k_sums + at) = {of_key[0], of_key[1]};
    });
    store_row_sums(rows.along, along, own, DK / HALVES);
}

/* dg of a chunk's rows: the sum of what each and those after it got, by a warp of which each lane has two. */
__device__ static inline void store_decays(const gradient_rows &rows, float states,
                                           const tensor_results &out, const chunk_task &task) {
    const int lane = threadIdx.x, n = task.c.rows;
    double got[2], kept = 0;
    for (int i = 0; i < 2; i++) {
        const int r = 2 * lane + i;
        got[i] = r < n ? (double)rows.along[0][r] + (double)rows.along[1][r] : 0;
        kept += r < n ? (double)rows.kept[0][r] + (double)rows.kept[1][r] : 0;
    }
    double sum = got[0] + got[1]; /* of this lane and those after it */
    for (int step = 1; step < 32; step *= 2) {
        const double other = __shfl_down_sync(0xffffffffu, sum, step);
        sum += lane + step < 32 ? other : 0;
    }
    const double later = __shfl_down_sync(0xffffffffu, sum, 1);
    double total = warp_reduce<sum_op>(kept) + (double)rows.by.whole * (double)states +
                   (lane < 31 ? later : 0);
    for (int i = 1; i >= 0; i--) {
        total += got[i];
        if (2 * lane + i < n)
            out.dg.at(task.c.first + 2 * lane + i, task.head) = (float)total;
    }
}

template <int DK, bool Additive>
__global__ void __launch_bounds__(GRADIENT_THREADS, 1)
    delta_gradients_tensor(delta_inputs<bf16> in, delta_work w, tensor_results out, int64_t tasks) {
    typedef slice_tiles<DK, Additive> slice_type;
    const delta_sizes &s = in.size;
    const int64_t slices = slices_of(s);
    const int warp = threadIdx.x / 32;
    const gradient_share own = {warp % 4 * 16, warp / 4 * PAIR_COLS, warp / 4 * (DK / HALVES)};
    AX_DYNAMIC_SHARED(char, memory);
    AX_SHARED(gradient_rows, rows, [1]);
    tile_taker taker = {memory};
    const key_tile<DK> keys = taker.take<key_tile<DK>>(), queries = taker.take<key_tile<DK>>();
    char *const slices_at = taker.at;
    const auto slice_tiles_of = [&](int64_t slice) {
        tile_taker from = {slices_at + slice % 2 * slice_type::BYTES};
        return slice_type::take(from);
    };
    const pair_tile a = taker.take<pair_tile>(),
                    b = taker.take<pair_tile>(); /* where slices were */
    for (int64_t number = blockIdx.x; number < tasks; number += gridDim.x) {
        const chunk_task task = task_of(in, number);
        const chunk_place &c = task.c;
        if (c.rows == 0)
            continue;
        start_keys<GRADIENT_THREADS>(keys, in.k, s, task.key_head, c.first, c.rows);
        start_keys<GRADIENT_THREADS>(queries, in.q, s, task.key_head, c.first, c.rows);
        start_slice(slice_tiles_of(0), in, w, out, task, 0);
        if (threadIdx.x < CHUNK) {
            const int i = threadIdx.x;
            const next_factors f = find_factors(in, w, task.head, c.first, c.rows);
            set_factors(rows->by, f);
            rows->sum[i] = f.row.sum;
            rows->key[i] = f.row.key;
            rows->query[i] = f.row.query;
            rows->beta[i] = f.row.beta;
            rows->without_key[i] = i < c.rows ? 1 / f.row.key : 0;
            rows->without_query[i] = i < c.rows ? in.scale / f.row.query : 0;
        }
        gradient_sums<DK> g = {};
        for (int64_t slice = 0; slice < slices; slice++) {
            copy_wait();
            __syncthreads(); /* this slice is there, the one before has been read */
            if (slice + 1 < slices)
                start_slice(slice_tiles_of(slice + 1), in, w, out, task, slice + 1);
            add_slice(g, slice_tiles_of(slice), own);
        }
        const float states = block_sum(g.states); /* the slices have been read */
        store_pairs(g, a, b, *rows, out, task, own);
        __syncthreads();
        add_pairs<DK, Additive>(g, a, b, keys, queries, *rows, own);
        store_keys(g, keys, queries, *rows, out, task, s, own);
        __syncthreads();
        if (warp == 0)
            store_decays(*rows, states, out, task);
        __syncthreads(); /* sums have been read */
    }
}

/* ---- both ---- */

static delta_work take_backward(work_taker &from, const delta_sizes &s,
                                const struct ax_delta_backward *b) {
    delta_work w = take_work(from, s, b->a.additive);
    if (!b->a.additive)
        w.x = from.take_split(s.tokens, s.heads, s.dv);
    w.dv = from.take_split(s.tokens, s.heads, s.dv);
    w.states = from.take_split(s.tokens / CHUNK, s.heads, s.dk * s.dv);
    w.dstates = from.take_split(s.tokens / CHUNK, s.heads, s.dk * s.dv);
    if (b->dstates.data)
        w.leaving = from.take<float>(b->dstates.shape[0] * s.heads * s.dk * s.dv);
    return w;
}

extern "C" size_t ax_tensor_delta_backward_work(const struct ax_delta_backward *b) {
    work_taker taker = {};
    take_backward(taker, sizes_of(&b->a), b);
    return taker.bytes;
}

template <int DK, bool Additive>
static enum ax_status run(struct ax_queue *q, const delta_inputs<bf16> &in, const delta_work &w,
                          const tensor_results &out) {
    const int64_t blocks = in.size.documents * in.size.heads * slices_of(in.size);
    const int64_t tasks = chunk_numbers(in.size) * in.size.heads;
    AX_TRY(AX_LAUNCH(q, (delta_reverse_tensor<DK, Additive>), grid_of(blocks), THREADS,
                     reverse_bytes<DK>(), in, w, out, blocks));
    return AX_LAUNCH(q, (delta_gradients_tensor<DK, Additive>), grid_of(tasks), GRADIENT_THREADS,
                     (gradient_bytes<DK, Additive>()), in, w, out, tasks);
}

extern "C" enum ax_status ax_tensor_delta_backward(struct ax_queue *q,
                                                   const struct ax_delta_backward *b, float *q_sums,
                                                   float *k_sums, void *work) {
    const delta_inputs<bf16> in = inputs_of<bf16>(&b->a);
    const delta_sizes &s = in.size;
    work_taker taker = {(char *)work, 0};
    const delta_work w = take_backward(taker, s, b);
    const tensor_results out = {as_rows<const bf16>(&b->dout),
                                as_rows<bf16>(&b->dv),
                                as_rows<float>(&b->dg),
                                as_rows<float>(&b->dbeta),
                                as_rows<float>(&b->dskip),
                                as_rows<float>(&b->dstates),
                                q_sums,
                                k_sums};
    if (s.documents == 0 || s.tokens == 0)
        return AX_OK;
    if (w.leaving && b->dstates.shape[0] > 0)
        AX_TRY(AX_LAUNCH(q, delta_keep_kernel, (unsigned)b->dstates.shape[0], THREADS, 0,
                         out.dstates, w.leaving, s.heads * s.dk * s.dv));
    AX_TRY(delta_run_pairs(q, in, w));
    AX_TRY(delta_run_states(q, in, w, {}));
    return by_keys(s, [&](auto width) {
        constexpr int DK = decltype(width)::value;
        return in.additive ? run<DK, true>(q, in, w, out) : run<DK, false>(q, in, w, out);
    });
}
