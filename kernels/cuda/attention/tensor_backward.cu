/* attention_backward in bf16 by tensor cores: dq by one kernel, whose warps have rows of queries and go
 * through the keys, dk and dv by another, whose warps have rows of keys and go through the queries of all
 * heads that read them. Both compute the scores again; no result is added to by two warps. Moves the own side
 * once, and the other one once for every tile of rows. */
#include "kernels/cuda/attention/tensor_backward.cuh"

/* dout·v − δ times the derivative of the cap, from its tanh. */
template <int M, int N>
__device__ static inline void cap_gradients(sums<M, N> &dp, const sums<M, N> &s,
                                            const scaling &by) {
    if (by.inner == 0)
        return;
    AX_UNROLL
    for (int i = 0; i < M * N / 2; i++) {
        const float x = s.at(i);
        dp.at(i) *= 1 - x * x;
    }
}

/* ---- dq ---- */

/* The sizes of tiles for heads of up to D elements. HELD: the rows' q and dout stay in registers; tiles of the
 * other side then come to where they were. */
template <int D> struct dq_tiles {
    static constexpr int M = D <= 64 ? 2 : 1, KEYS = D <= 128 ? 32 : 16, ROWS = 16 * M * WARPS;
    static constexpr bool HELD = D <= 128;
    static constexpr int OWN = 2 * ROWS * D, OTHER = 2 * KEYS * D; /* elements */
    static constexpr int BUFFERS = HELD ? 0 : OWN;                 /* where they begin */
    static constexpr size_t BYTES =
        (size_t)(HELD ? (OWN > 2 * OTHER ? OWN : 2 * OTHER) : OWN + 2 * OTHER) * sizeof(bf16);
    static_assert(BYTES <= MOST_SHARED, "");
};

/* Fragments A of rows: from a tile each time, or loaded once. */
template <bool Held, int M, int D> struct own_rows {
    reader<D> from;
    __device__ own_rows(tile<D> t, int row) : from(by_rows(t, row)) {
    }
    template <int N> __device__ void products(sums<M, N> &s, reader<D> right) const {
        add_products<D>(s, from, right);
    }
};
template <int M, int D> struct own_rows<true, M, D> {
    uint32_t x[M][D / 16][4];
    __device__ own_rows(tile<D> t, int row) {
        const reader<D> from = by_rows(t, row);
        AX_UNROLL
        for (int i = 0; i < M * D / 16; i++)
            load_matrices(x[i / (D / 16)][i % (D / 16)],
                          from.block(i / (D / 16) * 16, i % (D / 16)));
    }
    template <int N> __device__ void products(sums<M, N> &s, reader<D> right) const {
        AX_UNROLL
        for (int k = 0; k < D / 16; k++) {
            AX_UNROLL
            for (int n = 0; n < N / 16; n++) {
                uint32_t b[4];
                load_matrices(b, right.block(16 * n, k));
                AX_UNROLL
                for (int m = 0; m < M; m++) {
                    mma(s.x[m][2 * n], x[m][k], b[0], b[1]);
                    mma(s.x[m][2 * n + 1], x[m][k], b[2], b[3]);
                }
            }
        }
    }
};

template <int D>
__global__ void __launch_bounds__(THREADS, 2) attention_dq_tensor(backward_args a) {
    typedef dq_tiles<D> T;
    constexpr int M = T::M, KEYS = T::KEYS;
    const pattern &p = a.p;
    AX_DYNAMIC_SHARED(bf16, memory);
    const shared_at buffers = shared_of(memory + T::BUFFERS);
    const auto keys_in = [&](int b) { return tile<D>{buffers + (2 * b) * KEYS * tile<D>::PITCH}; };
    const auto values_in = [&](int b) {
        return tile<D>{buffers + (2 * b + 1) * KEYS * tile<D>::PITCH};
    };
    const place at = last_first(p.kv_heads, T::ROWS);
    const int warp_row = threadIdx.x / 32 * 16 * M, g = threadIdx.x % 32 / 4;
    const query_rows own = query_rows_at(p, a.group, at);
    const int first = own.query(0), last = own.last_query(T::ROWS);

    const tile<D> queries = {shared_of(memory)}, gradients = {shared_of(memory + T::ROWS * D)};
    start_queries<T::ROWS>(queries, a.q, own);
    start_queries<T::ROWS>(gradients, a.dout, own);
    float lse[2 * M], delta[2 * M];
    AX_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        const int row = warp_row + 8 * i + g;
        const bool exists = own.exists(row);
        const int query = own.query(row), head = own.head(row);
        lse[i] = exists ? base_of(a.lse.at(query, head)) : 0;
        delta[i] = exists ? a.delta[(int64_t)query * a.heads + head] : 0;
    }
    copy_wait();
    __syncthreads();
    const own_rows<T::HELD, M, D> q(queries, warp_row), dout(gradients, warp_row);
    if (T::HELD)
        __syncthreads(); /* read, before tiles of keys come there */

    sums<M, D> dq = {};
    int b = 0;
    for (int64_t n = first_document(p.cu_q, p.documents, first);
         n < p.documents && p.cu_q[n] <= last; n++) {
        const document d = document_of(p, n);
        const view sees = view_of(p, d);
        int to[2 * M];
        AX_UNROLL
        for (int i = 0; i < 2 * M; i++)
            to[i] = sight_of(p, d, own.query(warp_row + 8 * i + g) - (int)d.q_first);
        const span seen = keys_seen(p, d, max(first - d.q_first, (int64_t)0),
                                    min(last - d.q_first, d.nq - 1), KEYS);
        const int first_key = (int)d.k_first, end = (int)seen.to;
        const auto start = [&](int into, int k) {
            const auto row_in = [&](const short_heads<const bf16> &from, int row) -> const bf16 * {
                return k + row < sees.nk ? from.at(first_key + k + row, at.kv_head) : nullptr;
            };
            start_rows<KEYS>(keys_in(into), a.k, [&](int row) { return row_in(a.k, row); });
            start_rows<KEYS>(values_in(into), a.v, [&](int row) { return row_in(a.v, row); });
        };
        if (seen.from < seen.to)
            start(b, (int)seen.from);
        for (int k = (int)seen.from; k < end; k += KEYS, b ^= 1) {
            const sight seen_here = warp_sight(sees, to, k, KEYS);
            copy_wait();
            __syncthreads(); /* this tile is there, and the other buffer has been read */
            if (k + KEYS < end)
                start(b ^ 1, k + KEYS);
            if (!seen_here.any)
                continue;
            sums<M, KEYS> s = {}, dp = {};
            q.products(s, by_columns(keys_in(b)));
            cap_scores(s, a.by);
            dout.products(dp, by_columns(values_in(b)));
            AX_UNROLL
            for (int i = 0; i < M * KEYS / 2; i++)
                dp.at(i) -= delta[dp.row(i)];
            cap_gradients(dp, s, a.by);
            if (!seen_here.all)
                hide_scores(s, sees, to, k);
            AX_UNROLL
            for (int i = 0; i < M * KEYS / 2; i++)
                dp.at(i) *= power_of_two(s.at(i) * a.by.factor - lse[s.row(i)]);
            add_weighted<KEYS>(dq, dp, by_rows(keys_in(b), 0));
        }
    }

    AX_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        const int row = warp_row + 8 * i + g;
        if (own.exists(row))
            store_row(dq, i, p.scale, a.dq.at(own.query(row), own.head(row)), a.q.size);
    }
}

/* ---- dk and dv ---- */

/* What a column of scores, a row of queries, has: all that a thread needs of it is 16 bytes. */
struct alignas(16) column {
    float lse, delta;
    int to; /* sight_of */
};

template <int D> struct dkv_tiles {
    static constexpr int M = D <= 64 ? 2 : 1, QUERIES = D <= 128 ? 32 : 16, ROWS = 16 * M * WARPS;
    static constexpr int OWN = 2 * ROWS * D, OTHER = 2 * QUERIES * D; /* elements */
    static constexpr size_t BYTES =
        (size_t)(OWN + 2 * OTHER) * sizeof(bf16) + 2 * QUERIES * sizeof(column);
    static constexpr bool TOGETHER = D <= 128; /* both results are in registers */
    static_assert(BYTES <= MOST_SHARED, "");
};

/* Of a tile of keys, as rows, DK or DV or both. */
template <int D, bool DK, bool DV>
__global__ void __launch_bounds__(THREADS, 2) attention_dkv_tensor(backward_args a) {
    typedef dkv_tiles<D> T;
    constexpr int M = T::M, QUERIES = T::QUERIES;
    const pattern &p = a.p;
    AX_DYNAMIC_SHARED(bf16, memory);
    const tile<D> keys = {shared_of(memory)}, values = {shared_of(memory + T::ROWS * D)};
    const shared_at buffers = shared_of(memory + T::OWN);
    column *columns = (column *)(memory + T::OWN + 2 * T::OTHER);
    const auto queries_in = [&](int b) {
        return tile<D>{buffers + (2 * b) * QUERIES * tile<D>::PITCH};
    };
    const auto gradients_in = [&](int b) {
        return tile<D>{buffers + (2 * b + 1) * QUERIES * tile<D>::PITCH};
    };
    const place at = first_first(p.kv_heads, T::ROWS);
    const int warp_row = threadIdx.x / 32 * 16 * M, lane = threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int first = (int)at.first, last = min((int)p.keys, first + T::ROWS) - 1;
    const auto start_own = [&](tile<D> to, const short_heads<const bf16> &from) {
        start_rows<T::ROWS>(to, from, [&](int row) -> const bf16 * {
            return first + row <= last ? from.at(first + row, at.kv_head) : nullptr;
        });
    };
    start_own(keys, a.k);
    if (DK)
        start_own(values, a.v);
    const reader<D> k_rows = by_rows(keys, warp_row), v_rows = by_rows(values, warp_row);

    sums<M, D> dk = {}, dv = {};
    int b = 0;
    for (int64_t n = first_document(p.cu_k, p.documents, first);
         n < p.documents && p.cu_k[n] <= last; n++) {
        const document d = document_of(p, n);
        const view sees = view_of(p, d);
        const int own = (int)(first + warp_row - d.k_first); /* the warp's first key */
        const span seen = rows_seeing(p, d, max(first - d.k_first, (int64_t)0),
                                      min(last - d.k_first, d.nk - 1), QUERIES);
        const auto start = [&](int into, int c) {
            const auto row_in = [&](const short_heads<const bf16> &from, int row) -> const bf16 * {
                const int query = a.group.of(c + row);
                const int head = at.kv_head * p.group + (c + row - query * p.group);
                return query < d.nq ? from.at(d.q_first + query, head) : nullptr;
            };
            start_rows<QUERIES>(queries_in(into), a.q, [&](int row) { return row_in(a.q, row); });
            start_rows<QUERIES>(gradients_in(into), a.dout,
                                [&](int row) { return row_in(a.dout, row); });
            if (threadIdx.x >= QUERIES)
                return;
            column *of = columns + into * QUERIES + threadIdx.x;
            const int row = c + (int)threadIdx.x, query = a.group.of(row);
            const int head = at.kv_head * p.group + (row - query * p.group);
            const bool exists = query < d.nq;
            const int64_t from = exists ? d.q_first + query : 0;
            copy_4(shared_of(&of->lse), &a.lse.at(from, head), exists);
            copy_4(shared_of(&of->delta), a.delta + from * a.heads + head, exists);
            of->to = sight_of(p, d, query);
        };
        if (seen.from < seen.to)
            start(b, (int)seen.from);
        for (int c = (int)seen.from; c < seen.to; c += QUERIES, b ^= 1) {
            copy_wait();
            __syncthreads(); /* this tile is there, and the other buffer has been read */
            if (c + QUERIES < seen.to)
                start(b ^ 1, c + QUERIES);
            const column *of = columns + b * QUERIES;
            const int one = of[lane % QUERIES].to;
            if (!__any_sync(0xffffffffu, sees.shows_any(one, own, 16 * M)))
                continue;
            const bool all = __all_sync(0xffffffffu, sees.shows_all(one, own, 16 * M));
            sums<M, QUERIES> s = {}, dp = {};
            add_products<D>(s, k_rows, by_columns(queries_in(b)));
            cap_scores(s, a.by);
            if (DK)
                add_products<D>(dp, v_rows, by_columns(gradients_in(b)));
            if (DK) {
                AX_UNROLL
                for (int i = 0; i < M * QUERIES / 2; i++)
                    dp.at(i) -= of[dp.column(i) + 2 * t].delta;
                cap_gradients(dp, s, a.by);
            }
            if (!all) {
                AX_UNROLL
                for (int i = 0; i < M * QUERIES / 2; i++)
                    if (!sees.shows(of[s.column(i) + 2 * t].to, own + 8 * s.row(i) + g))
                        s.at(i) = -INFINITY;
            }
            AX_UNROLL
            for (int i = 0; i < M * QUERIES / 2; i++) {
                s.at(i) =
                    power_of_two(s.at(i) * a.by.factor - base_of(of[s.column(i) + 2 * t].lse));
                dp.at(i) *= s.at(i);
            }
            if (DV)
                add_weighted<QUERIES>(dv, s, by_rows(gradients_in(b), 0));
            if (DK)
                add_weighted<QUERIES>(dk, dp, by_rows(queries_in(b), 0));
        }
    }
    copy_wait(); /* without queries, the keys are still on their way */

    AX_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        const int row = first + warp_row + 8 * i + g;
        if (row > last)
            continue;
        if (DK)
            store_row(dk, i, p.scale, a.dk.at(row, at.kv_head), a.k.size);
        if (DV)
            store_row(dv, i, 1, a.dv.at(row, at.kv_head), a.v.size);
    }
}

/* ---- launches ---- */

template <int D> static enum ax_status run_dq(struct ax_queue *q, const backward_args &args) {
    typedef dq_tiles<D> T;
    const pattern &p = args.p;
    return p.queries == 0 ? AX_OK
                          : AX_LAUNCH(q, attention_dq_tensor<D>,
                                      blocks_in(p.queries * p.group, p.kv_heads, T::ROWS), THREADS,
                                      T::BYTES, args);
}

template <int D, bool DK, bool DV>
static enum ax_status run_dkv(struct ax_queue *q, const backward_args &args) {
    typedef dkv_tiles<D> T;
    return AX_LAUNCH(q, (attention_dkv_tensor<D, DK, DV>),
                     blocks_in(args.p.keys, args.p.kv_heads, T::ROWS), THREADS, T::BYTES, args);
}

extern "C" enum ax_status ax_tensor_attention_backward(struct ax_queue *q,
                                                       const struct ax_attention_backward *b,
                                                       const float *delta) {
    const struct ax_attention *a = &b->a;
    const pattern p = pattern_of(a);
    const backward_args args = {p,
                                divider_of(p.group),
                                scaling_of(a),
                                as_short<const bf16>(&a->q),
                                as_short<const bf16>(&a->k),
                                as_short<const bf16>(&a->v),
                                as_short<const bf16>(&b->dout),
                                as_short<bf16>(&b->dq),
                                as_short<bf16>(&b->dk),
                                as_short<bf16>(&b->dv),
                                as_rows<const float>(&a->lse),
                                delta,
                                (int)a->q.shape[1]};
    if (ax_wgmma_attention_suits(q, a))
        return ax_wgmma_attention_backward(q, a, args);
    return by_width(a, [&](auto width) {
        constexpr int D = decltype(width)::value;
        AX_TRY(run_dq<D>(q, args));
        if (p.keys == 0)
            return AX_OK;
        if constexpr (dkv_tiles<D>::TOGETHER) {
            return run_dkv<D, true, true>(q, args);
        } else {
            AX_TRY((run_dkv<D, true, false>(q, args)));
            return run_dkv<D, false, true>(q, args);
        }
    });
}
