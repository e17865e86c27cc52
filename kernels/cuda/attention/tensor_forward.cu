/* attention_forward in bf16 by tensor cores: online softmax (Milakov & Gimelshein 2018) over tiles of keys,
 * in powers of two. Moves q and out once, and k and v once for every tile of rows of queries. */
#include "kernels/cuda/attention/tensor.cuh"

/* The sizes of tiles for heads of up to D elements: M·16 rows per warp, Keys keys. What is in registers: D/4·M
 * of results, Keys/4·M of scores. */
template <int D> struct forward_tiles {
    static constexpr int M = D <= 128 ? 2 : 1, KEYS = D <= 64 ? 64 : D <= 128 ? 64 : 32;
    static constexpr int ROWS = 16 * M * WARPS;
    static constexpr size_t BYTES = (size_t)(ROWS + 2 * KEYS) * D * sizeof(bf16);
    static_assert(BYTES <= MOST_SHARED, "");
};

struct forward_args {
    pattern p;
    divider group;
    scaling by;
    short_heads<const bf16> q, k, v;
    short_heads<bf16> out;
    rows_of<float> lse;
    const float *sink;
};

template <int D>
__global__ void __launch_bounds__(THREADS, 2) attention_forward_tensor(forward_args a) {
    typedef forward_tiles<D> T;
    constexpr int M = T::M, KEYS = T::KEYS;
    const pattern &p = a.p;
    AX_DYNAMIC_SHARED(bf16, memory);
    const tile<D> queries = {shared_of(memory)}, keys = {shared_of(memory + T::ROWS * D)},
                  values = {shared_of(memory + (T::ROWS + KEYS) * D)};
    const place at = last_first(p.kv_heads, T::ROWS);
    const int warp_row = threadIdx.x / 32 * 16 * M, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const query_rows own = query_rows_at(p, a.group, at);
    const int first = own.query(0), last = own.last_query(T::ROWS);
    start_queries<T::ROWS>(queries, a.q, own);
    const reader<D> left = by_rows(queries, warp_row);
    const reader<D> right = by_columns(keys), weighted = by_rows(values, 0);
    softmax<M> state;
    sums<M, D> out = {};
    AX_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        state.most[i] = -INFINITY;
        state.sum[i] = 0;
    }

    for (int n = (int)first_document(p.cu_q, p.documents, first);
         n < (int)p.documents && p.cu_q[n] <= last; n++) {
        const document d = document_of(p, n);
        const view sees = view_of(p, d);
        int to[2 * M];
        AX_UNROLL
        for (int i = 0; i < 2 * M; i++) {
            const int row = warp_row + 8 * i + g;
            const int query = own.query(row) - (int)d.q_first;
            to[i] = sight_of(p, d, query);
            if (a.sink != nullptr && query >= 0 && query < d.nq && own.exists(row)) {
                state.most[i] = a.sink[own.head(row)] * (LOG2E / a.by.factor);
                state.sum[i] = t == 0 ? 1 : 0;
            }
        }
        const span seen = keys_seen(p, d, max(first - d.q_first, (int64_t)0),
                                    min(last - d.q_first, d.nq - 1), KEYS);
        const int first_key = (int)d.k_first, end = (int)seen.to;
        const auto start = [&](tile<D> into, const short_heads<const bf16> &from, int k) {
            start_rows<KEYS>(into, from, [&](int row) -> const bf16 * {
                return k + row < sees.nk ? from.at(first_key + k + row, at.kv_head) : nullptr;
            });
        };
        if (seen.from < seen.to)
            start(keys, a.k, (int)seen.from);
        for (int k = (int)seen.from; k < end; k += KEYS) {
            const sight seen_here = warp_sight(sees, to, k, KEYS);
            copy_wait();
            __syncthreads(); /* the keys are there; the earlier values have been read */
            start(values, a.v, k);
            sums<M, KEYS> s = {};
            if (seen_here.any) {
                add_products<D>(s, left, right);
                cap_scores(s, a.by);
            }
            copy_wait();
            __syncthreads(); /* the values are there; the keys have been read */
            if (k + KEYS < end)
                start(keys, a.k, k + KEYS);
            if (!seen_here.any)
                continue;
            if (!seen_here.all)
                hide_scores(s, sees, to, k);
            take_scores(state, s, out, a.by.factor);
            add_weighted<KEYS>(out, s, weighted);
        }
    }
    copy_wait(); /* without keys, the queries are still on their way */

    AX_UNROLL
    for (int i = 0; i < 2 * M; i++) {
        const int row = warp_row + 8 * i + g;
        const float sum = row_reduce<sum_op>(state.sum[i]);
        if (!own.exists(row))
            continue;
        const int query = own.query(row), head = own.head(row);
        store_row(out, i, sum == 0 ? 0 : 1 / sum, a.out.at(query, head), a.v.size);
        if (t == 0)
            a.lse.at(query, head) =
                sum == 0 ? -INFINITY : (state.most[i] * a.by.factor + log2f(sum)) * LN2;
    }
}

extern "C" enum ax_status ax_tensor_attention_forward(struct ax_queue *q,
                                                      const struct ax_attention *a) {
    const pattern p = pattern_of(a);
    const forward_args args = {p,
                               divider_of(p.group),
                               scaling_of(a),
                               as_short<const bf16>(&a->q),
                               as_short<const bf16>(&a->k),
                               as_short<const bf16>(&a->v),
                               as_short<bf16>(&a->out),
                               as_rows<float>(&a->lse),
                               (const float *)a->sink.data};
    return by_width(a, [&](auto width) {
        typedef forward_tiles<decltype(width)::value> T;
        const unsigned blocks = blocks_in(p.queries * p.group, p.kv_heads, T::ROWS);
        return blocks == 0 ? AX_OK
                           : AX_LAUNCH(q, attention_forward_tensor<decltype(width)::value>, blocks,
                                       THREADS, T::BYTES, args);
    });
}

/* ---- what these kernels take ---- */

extern "C" bool ax_tensor_attention_suits(const struct ax_attention *a,
                                          const struct ax_attention_backward *b) {
    return suits_tiles(a) && a->block_table.data == nullptr &&
           (!b || (has_chunks(&b->dout) && has_chunks(&b->dq) && has_chunks(&b->dk) &&
                   has_chunks(&b->dv)));
}
