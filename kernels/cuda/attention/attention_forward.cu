/* attention_forward: online softmax (Milakov & Gimelshein 2018) over tiles of keys. Moves q and out
 * once, and k and v once for every 32 rows of queries. */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/cudnn.h"
#include "kernels/cuda/attention/tensor.h"

template <class E> struct forward_args {
    pattern p;
    heads_of<const E> q, k, v;
    heads_of<E> out;
    rows_of<float> lse;
    const float *sink;
    int slices;
};

/* A row's largest score so far and, of this thread's columns, Σ exp(score − that). */
struct softmax {
    float most, sum;
};

/* Takes this thread's four scores of a row, which become their probabilities' numerators, and returns
 * what the earlier ones' are to be multiplied with. */
__device__ static inline float take_scores(softmax *state, float (&s)[4]) {
    float most = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]));
    most = fmaxf(state->most, row_reduce<max_op>(most));
    const float factor = most == state->most ? 1 : expf(state->most - most);
    state->sum *= factor;
    AX_UNROLL
    for (int j = 0; j < 4; j++) {
        s[j] = s[j] == -INFINITY ? 0 : expf(s[j] - most);
        state->sum += s[j];
    }
    state->most = most;
    return factor;
}

template <class E>
__global__ void __launch_bounds__(THREADS, RESIDENT) attention_forward_kernel(forward_args<E> a) {
    const pattern &p = a.p;
    TILE_MEMORY(memory);
    const place at = place_of(p.kv_heads, a.slices);
    const int y = threadIdx.x / 8, x = threadIdx.x % 8;
    const int64_t rows = p.queries * p.group;
    const int64_t first = at.first / p.group, last = (min(rows, at.first + TILE) - 1) / p.group;
    softmax state[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    results out = {};
    const auto query_at = [&](int r) -> const E * {
        const query_row row = query_row_of(p, at.kv_head, at.first + r);
        return row.query < p.queries ? a.q.at(row.query, row.head) : nullptr;
    };

    for (int64_t n = first_document(p.cu_q, p.documents, first);
         n < p.documents && p.cu_q[n] <= last; n++) {
        const document d = document_of(p, n);
        int64_t own[2]; /* this thread's queries, −1 of another document */
        AX_UNROLL
        for (int i = 0; i < 2; i++) {
            const query_row row = query_row_of(p, at.kv_head, at.first + y + 16 * i);
            own[i] = row.query - d.q_first;
            own[i] = own[i] >= 0 && own[i] < d.nq ? own[i] : -1;
            if (own[i] >= 0 && a.sink != nullptr)
                state[i] = {a.sink[row.head], x == 0 ? 1.0f : 0.0f};
        }
        const span seen = keys_seen(p, d, max(first - d.q_first, (int64_t)0),
                                    min(last - d.q_first, d.nq - 1), TILE);
        for (int64_t k = seen.from; k < seen.to; k += TILE) {
            const auto key_at = [&](int r) -> const E * {
                return k + r < d.nk ? a.k.at(key_row(p, d, k + r), at.kv_head) : nullptr;
            };
            const auto value_at = [&](int r) -> const E * {
                return k + r < d.nk ? a.v.at(key_row(p, d, k + r), at.kv_head) : nullptr;
            };
            scores s = multiply(memory, query_at, key_at, a.q.size);
            AX_UNROLL
            for (int i = 0; i < 2; i++) {
                AX_UNROLL
                for (int j = 0; j < 4; j++) {
                    const int64_t key = k + x + 8 * j;
                    const bool visible = own[i] >= 0 && key < d.nk && is_visible(p, d, own[i], key);
                    s.x[i][j] = visible ? logit_of(p, s.x[i][j]) : -INFINITY;
                }
                const float factor = take_scores(&state[i], s.x[i]);
                AX_UNROLL
                for (int j = 0; j < 16; j++)
                    out.x[i][j] *= factor;
            }
            add_weighted(&out, memory, s, value_at, at.slice * SLICE, a.v.size);
        }
    }

    AX_UNROLL
    for (int i = 0; i < 2; i++) {
        const query_row row = query_row_of(p, at.kv_head, at.first + y + 16 * i);
        const float sum = row_reduce<sum_op>(state[i].sum);
        if (row.query >= p.queries)
            continue;
        store_result(out, i, sum == 0 ? 0 : 1 / sum, a.out.at(row.query, row.head),
                     at.slice * SLICE, a.v.size);
        if (x == 0 && at.slice == 0)
            a.lse.at(row.query, row.head) = sum == 0 ? -INFINITY : state[i].most + logf(sum);
    }
}

extern "C" enum ax_status ax_cuda_own_attention_forward(struct ax_queue *q,
                                                        const struct ax_attention *a) {
    if (ax_tensor_attention_suits(a, nullptr))
        return ax_tensor_attention_forward(q, a);
    const pattern p = pattern_of(a);
    const int slices = slices_of(a->v.shape[2]);
    const unsigned blocks = blocks_in(p.queries * p.group, p.kv_heads, slices);
    if (blocks == 0)
        return AX_OK;
    return by_real(a->q.dtype, [&](auto *e) {
        typedef AX_TYPE(e) E;
        const forward_args<E> args = {p,
                                      as_heads<const E>(&a->q),
                                      as_heads<const E>(&a->k),
                                      as_heads<const E>(&a->v),
                                      as_heads<E>(&a->out),
                                      as_rows<float>(&a->lse),
                                      (const float *)a->sink.data,
                                      slices};
        return AX_LAUNCH(q, attention_forward_kernel<E>, blocks, THREADS, 0, args);
    });
}
