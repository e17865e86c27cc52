/* attention_backward: δ = Σ out·dout first, then dq by one kernel and dk and dv by another, each result
 * summed by one block in the order of keys or queries, so that every run gives the same bits; dsink by
 * one block per head. Moves out once, q and dout twice, and the other side once for every 32 rows. */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/cudnn.h"
#include "kernels/cuda/attention/tensor.h"

template <class E> struct backward_args {
    pattern p;
    heads_of<const E> q, k, v, out, dout;
    heads_of<E> dq, dk, dv;
    rows_of<const float> lse;
    const float *sink;
    float *delta; /* [queries][query heads] */
    float *dsink;
    int heads, slices; /* heads: of queries; slices: of the results of a kernel */
    int key_slices;    /* of them, dk's, before those of dv */
};

#define WARPS (THREADS / 32)

template <class E> __global__ void __launch_bounds__(THREADS) delta_kernel(backward_args<E> a) {
    const int64_t i = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (i >= a.p.queries * a.heads)
        return;
    const E *out = a.out.at(i / a.heads, i % a.heads), *dout = a.dout.at(i / a.heads, i % a.heads);
    float sum = 0;
    for (int c = 4 * lane; c < a.v.size; c += 4 * 32) {
        const four o = load_four(out + c, a.v.size - c), d = load_four(dout + c, a.v.size - c);
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            sum += o.x[k] * d.x[k];
    }
    sum = warp_reduce<sum_op>(sum);
    if (lane == 0)
        a.delta[i] = sum;
}

/* The probability of a pair and scale·ds, from their products. */
struct pair {
    float p, ds;
};
__device__ static inline pair pair_of(const pattern &p, float product, float dp, float lse,
                                      float delta) {
    const float s = logit_of(p, product), share = expf(s - lse);
    const float capped = p.softcap > 0 ? s / p.softcap : 0;
    return {share, share * (dp - delta) * (1 - capped * capped) * p.scale};
}

template <class E>
__global__ void __launch_bounds__(THREADS, RESIDENT) attention_dq_kernel(backward_args<E> a) {
    const pattern &p = a.p;
    TILE_MEMORY(memory);
    const place at = place_of(p.kv_heads, a.slices);
    const int y = threadIdx.x / 8, x = threadIdx.x % 8;
    const int64_t rows = p.queries * p.group;
    const int64_t first = at.first / p.group, last = (min(rows, at.first + TILE) - 1) / p.group;
    results dq = {};
    const auto row_in = [&](const heads_of<const E> &t, int r) -> const E * {
        const query_row row = query_row_of(p, at.kv_head, at.first + r);
        return row.query < p.queries ? t.at(row.query, row.head) : nullptr;
    };
    const auto query_at = [&](int r) { return row_in(a.q, r); };
    const auto dout_at = [&](int r) { return row_in(a.dout, r); };
    float lse[2] = {}, delta[2] = {};
    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        const query_row row = query_row_of(p, at.kv_head, at.first + y + 16 * i);
        if (row.query < p.queries) {
            lse[i] = a.lse.at(row.query, row.head);
            delta[i] = a.delta[row.query * a.heads + row.head];
        }
    }

    for (int64_t n = first_document(p.cu_q, p.documents, first);
         n < p.documents && p.cu_q[n] <= last; n++) {
        const document d = document_of(p, n);
        const span seen = keys_seen(p, d, max(first - d.q_first, (int64_t)0),
                                    min(last - d.q_first, d.nq - 1), TILE);
        for (int64_t k = seen.from; k < seen.to; k += TILE) {
            const auto key_at = [&](int r) -> const E * {
                return k + r < d.nk ? a.k.at(d.k_first + k + r, at.kv_head) : nullptr;
            };
            const auto value_at = [&](int r) -> const E * {
                return k + r < d.nk ? a.v.at(d.k_first + k + r, at.kv_head) : nullptr;
            };
            scores s = multiply(memory, query_at, key_at, a.q.size);
            const scores dp = multiply(memory, dout_at, value_at, a.v.size);
            AX_UNROLL
            for (int i = 0; i < 2; i++) {
                const query_row row = query_row_of(p, at.kv_head, at.first + y + 16 * i);
                const int64_t own = row.query - d.q_first;
                AX_UNROLL
                for (int j = 0; j < 4; j++) {
                    const int64_t key = k + x + 8 * j;
                    const bool visible =
                        own >= 0 && own < d.nq && key < d.nk && is_visible(p, d, own, key);
                    s.x[i][j] =
                        visible ? pair_of(p, s.x[i][j], dp.x[i][j], lse[i], delta[i]).ds : 0;
                }
            }
            add_weighted(&dq, memory, s, key_at, at.slice * SLICE, a.q.size);
        }
    }
    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        const query_row row = query_row_of(p, at.kv_head, at.first + y + 16 * i);
        if (row.query < p.queries)
            store_result(dq, i, 1, a.dq.at(row.query, row.head), at.slice * SLICE, a.q.size);
    }
}

/* Rows are keys, columns are (query, head); a block has columns of dk or of dv. */
template <class E>
__global__ void __launch_bounds__(THREADS, RESIDENT) attention_dkv_kernel(backward_args<E> a) {
    const pattern &p = a.p;
    TILE_MEMORY(memory);
    const place at = place_of(p.kv_heads, a.slices);
    const int y = threadIdx.x / 8, x = threadIdx.x % 8;
    const int64_t last = min(p.keys, at.first + TILE) - 1;
    const bool is_dk = at.slice < a.key_slices;
    const int first_col = (is_dk ? at.slice : at.slice - a.key_slices) * SLICE;
    results sum = {};
    const auto key_at = [&](int r) -> const E * {
        return at.first + r < p.keys ? a.k.at(at.first + r, at.kv_head) : nullptr;
    };
    const auto value_at = [&](int r) -> const E * {
        return at.first + r < p.keys ? a.v.at(at.first + r, at.kv_head) : nullptr;
    };

    for (int64_t n = first_document(p.cu_k, p.documents, at.first);
         n < p.documents && p.cu_k[n] <= last; n++) {
        const document d = document_of(p, n);
        const span seen = rows_seeing(p, d, max(at.first - d.k_first, (int64_t)0),
                                      min(last - d.k_first, d.nk - 1), TILE);
        for (int64_t c = seen.from; c < seen.to; c += TILE) {
            const auto row_in = [&](const heads_of<const E> &t, int r) -> const E * {
                const query_row row = query_row_of(p, at.kv_head, c + r);
                return row.query < d.nq ? t.at(d.q_first + row.query, row.head) : nullptr;
            };
            const auto query_at = [&](int r) { return row_in(a.q, r); };
            const auto dout_at = [&](int r) { return row_in(a.dout, r); };
            scores s = multiply(memory, key_at, query_at, a.q.size), dp = {};
            if (is_dk)
                dp = multiply(memory, value_at, dout_at, a.v.size);
            AX_UNROLL
            for (int j = 0; j < 4; j++) {
                const query_row row = query_row_of(p, at.kv_head, c + x + 8 * j);
                const bool exists = row.query < d.nq;
                const int64_t query = d.q_first + row.query;
                const float lse = exists ? a.lse.at(query, row.head) : 0;
                const float delta = exists ? a.delta[query * a.heads + row.head] : 0;
                AX_UNROLL
                for (int i = 0; i < 2; i++) {
                    const int64_t key = at.first + y + 16 * i - d.k_first;
                    const bool visible =
                        exists && key >= 0 && key < d.nk && is_visible(p, d, row.query, key);
                    const pair both = pair_of(p, s.x[i][j], dp.x[i][j], lse, delta);
                    s.x[i][j] = !visible ? 0 : is_dk ? both.ds : both.p;
                }
            }
            if (is_dk)
                add_weighted(&sum, memory, s, query_at, first_col, a.q.size);
            else
                add_weighted(&sum, memory, s, dout_at, first_col, a.v.size);
        }
    }
    const heads_of<E> &to = is_dk ? a.dk : a.dv;
    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        const int64_t row = at.first + y + 16 * i;
        if (row < p.keys)
            store_result(sum, i, 1, to.at(row, at.kv_head), first_col, to.size);
    }
}

/* The sink is a logit without a value: ds = −p·δ. */
template <class E> __global__ void __launch_bounds__(THREADS) dsink_kernel(backward_args<E> a) {
    const int head = blockIdx.x;
    const int64_t end = a.p.cu_q[a.p.documents];
    double sum = 0;
    for (int64_t row = a.p.cu_q[0] + threadIdx.x; row < end; row += THREADS)
        sum -= (double)expf(a.sink[head] - a.lse.at(row, head)) * a.delta[row * a.heads + head];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        a.dsink[head] += (float)sum;
}

extern "C" size_t ax_cuda_own_attention_backward_work(const struct ax_attention_backward *b) {
    return (size_t)(b->a.q.shape[0] * b->a.q.shape[1]) * sizeof(float);
}

template <class E>
static backward_args<E> args_of(const struct ax_attention_backward *b, void *work) {
    const struct ax_attention *a = &b->a;
    return {pattern_of(a),
            as_heads<const E>(&a->q),
            as_heads<const E>(&a->k),
            as_heads<const E>(&a->v),
            as_heads<const E>(&a->out),
            as_heads<const E>(&b->dout),
            as_heads<E>(&b->dq),
            as_heads<E>(&b->dk),
            as_heads<E>(&b->dv),
            as_rows<const float>(&a->lse),
            (const float *)a->sink.data,
            (float *)work,
            (float *)b->dsink.data,
            (int)a->q.shape[1],
            slices_of(a->q.shape[2]),
            slices_of(a->q.shape[2])};
}

template <class E>
static enum ax_status run_delta(struct ax_queue *q, const backward_args<E> &args) {
    const int64_t rows = args.p.queries * args.heads;
    return rows == 0 ? AX_OK
                     : AX_LAUNCH(q, delta_kernel<E>, blocks_of(rows, WARPS), THREADS, 0, args);
}

template <class E>
static enum ax_status run_dsink(struct ax_queue *q, const backward_args<E> &args) {
    return args.dsink == nullptr || args.p.queries == 0
               ? AX_OK
               : AX_LAUNCH(q, dsink_kernel<E>, (unsigned)args.heads, THREADS, 0, args);
}

template <class E>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_attention_backward *b,
                                   void *work) {
    backward_args<E> args = args_of<E>(b, work);
    const pattern &p = args.p;
    AX_TRY(run_delta(q, args));
    if (ax_tensor_attention_suits(&b->a, b)) {
        AX_TRY(ax_tensor_attention_backward(q, b, args.delta));
        return run_dsink(q, args);
    }
    if (p.queries > 0)
        AX_TRY(AX_LAUNCH(q, attention_dq_kernel<E>,
                         blocks_in(p.queries * p.group, p.kv_heads, args.slices), THREADS, 0,
                         args));
    args.slices += slices_of(b->a.v.shape[2]);
    if (p.keys > 0)
        AX_TRY(AX_LAUNCH(q, attention_dkv_kernel<E>, blocks_in(p.keys, p.kv_heads, args.slices),
                         THREADS, 0, args));
    return run_dsink(q, args);
}

extern "C" enum ax_status ax_cuda_own_attention_backward(struct ax_queue *q,
                                                         const struct ax_attention_backward *b,
                                                         void *work) {
    return by_real(b->a.q.dtype, [&](auto *e) { return run_backward<AX_TYPE(e)>(q, b, work); });
}

extern "C" enum ax_status
ax_cuda_own_attention_dsink(struct ax_queue *q, const struct ax_attention_backward *b, void *work) {
    return by_real(b->a.q.dtype, [&](auto *e) {
        const auto args = args_of<AX_TYPE(e)>(b, work);
        AX_TRY(run_delta(q, args));
        return run_dsink(q, args);
    });
}
