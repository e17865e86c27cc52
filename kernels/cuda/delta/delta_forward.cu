/* delta_forward: a block per document and value head, which keeps S where it leaves it, if it does. */
#include "kernels/cuda/delta/delta.cuh"
#include "kernels/cuda/delta/tensor.h"

/* Slots of generation; past NULL: none. */
template <class E> struct delta_slots {
    const int32_t *past;
    rows_of<E> keys;
    rows_of<float> updates, decays;
};

/* Rows 0 … rows − 1 of the running chunk. */
template <class E>
__device__ static inline void load_running(const delta_inputs<E> &in, const delta_slots<E> &slots,
                                           const delta_head &h, const delta_chunk &c, int rows) {
    const delta_sizes &s = in.size;
    for (int r = threadIdx.x / 32; r < rows; r += WARPS) {
        const E *k = &slots.keys.at(h.leaves, (r * s.key_heads + h.key_head) * s.dk);
        const float *u = &slots.updates.at(h.leaves, (r * s.heads + h.head) * s.dv);
        load_head(in, k, 1, c.k + r * s.dk);
        for (int64_t i = threadIdx.x % 32; i < s.dv; i += 32)
            c.u[r * s.dv + i] = u[i];
        load_decay(c, s, r, &slots.decays.at(h.leaves, (r * s.heads + h.head) * s.decays));
    }
}

/* u and g of rows from … to − 1; other blocks may still read k: see append_keys_kernel. */
template <class E>
__device__ static inline void append(const delta_inputs<E> &in, const delta_slots<E> &slots,
                                     const delta_head &h, const delta_chunk &c, int64_t token,
                                     int from, int to) {
    const delta_sizes &s = in.size;
    for (int r = from + threadIdx.x / 32; r < to; r += WARPS) {
        float *u = &slots.updates.at(h.leaves, (r * s.heads + h.head) * s.dv);
        for (int64_t i = threadIdx.x % 32; i < s.dv; i += 32)
            u[i] = c.u[r * s.dv + i];
        for (int64_t i = threadIdx.x % 32; i < s.decays; i += 32)
            slots.decays.at(h.leaves, (r * s.heads + h.head) * s.decays + i) =
                in.g.at(token + r - from, h.head * s.decays + i);
    }
    __syncthreads();
}

template <class E>
__device__ static inline void store_out(const delta_inputs<E> &in, const delta_head &h,
                                        const delta_chunk &c, const float *state,
                                        const rows_of<E> &out, int64_t token, int from, int to) {
    const int dk = (int)in.size.dk, dv = (int)in.size.dv;
    each_product<ALL>(from, to, dv, dk, meeting(c, in.size, c.q, from, to), matrix{state, dv, 1},
                      from_zero(),
                      [&](int i, int n, float x) { c.y[i * dv + n] = c.grown[i] * x; });
    each_product<LOWER>(
        from, to, dv, to, matrix{c.weight, CHUNK, 1}, matrix{c.u, dv, 1},
        [&](int i, int n) { return c.y[i * dv + n]; },
        [&](int i, int n, float x) {
            const int64_t t = token + i - from, col = h.head * dv + n;
            const float skip = in.skip ? (float)in.skip[h.head] : 0;
            out.at(t, col) = E(fmaf(skip, (float)in.v.at(t, col), x));
        });
}

template <class E>
__global__ void __launch_bounds__(THREADS, 1)
    delta_forward_kernel(delta_inputs<E> in, delta_slots<E> slots, rows_of<E> out, float *work) {
    const delta_sizes &s = in.size;
    const int64_t size = s.dk * s.dv;
    float *mine = work + blockIdx.x * even(chunk_floats(s) + size);
    DELTA_CHUNK(c, mine, s);
    for (int64_t task = blockIdx.x; task < s.documents * s.heads; task += gridDim.x) {
        const delta_head h = head_of(in, task);
        const bool pieces = slots.past != nullptr && h.leaves >= 0;
        const int64_t past = pieces ? slots.past[h.document] : 0;
        int from = (int)(past % CHUNK);
        float *state =
            h.leaves >= 0 ? state_at(in.states, s, h.leaves, h.head) : mine + chunk_floats(s);
        if (pieces && h.first == h.end)
            continue;
        if (pieces ? past == 0 : h.enters != h.leaves || h.enters < 0)
            copy_state(state,
                       !pieces && h.enters >= 0 ? state_at(in.states, s, h.enters, h.head)
                                                : nullptr,
                       size);
        if (from > 0)
            load_running(in, slots, h, c, from);
        for (int64_t token = h.first; token < h.end; from = 0) {
            const int to = (int)min((int64_t)CHUNK, from + h.end - token);
            load_rows(in, h, c, token, from, to);
            add_up(c, s, to);
            update_rows(in, h, c, state, token, from, to);
            store_out(in, h, c, state, out, token, from, to);
            if (pieces)
                append(in, slots, h, c, token, from, to);
            if (to == CHUNK || !pieces)
                next_state(c, s, state, to);
            token += to - from;
        }
    }
}

/* A block per document. */
template <class E>
__global__ void __launch_bounds__(THREADS)
    append_keys_kernel(delta_inputs<E> in, delta_slots<E> slots) {
    const delta_head h = head_of(in, blockIdx.x * in.size.heads);
    const int64_t n = in.size.key_heads * in.size.dk, count = (h.end - h.first) * n;
    const int64_t past = h.leaves >= 0 ? slots.past[h.document] : 0;
    const int64_t kept = min((int64_t)CHUNK, h.end - h.first); /* the others would be overwritten */
    for (int64_t e = count - kept * n + threadIdx.x; e < count && h.leaves >= 0; e += THREADS) {
        const int64_t t = e / n, r = (past + t) % CHUNK;
        slots.keys.at(h.leaves, r * n + e % n) = in.k.at(h.first + t, e % n);
    }
}

/* A block per row. */
template <class E>
__global__ void __launch_bounds__(THREADS)
    clear_outside_kernel(rows_of<E> out, int64_t cols, const int32_t *cu, int64_t documents) {
    const int64_t t = blockIdx.x;
    for (int64_t i = threadIdx.x; i < cols && is_outside(t, cu, documents); i += THREADS)
        out.at(t, i) = E(0.0f);
}

/* In generation a token's bits must not depend on the tokens after it that come in the same piece. */
static bool is_for_tensors(const struct ax_delta_forward *f) {
    return f->past.data == nullptr && ax_tensor_delta_fits(&f->a);
}

extern "C" size_t ax_cuda_delta_forward_work(const struct ax_delta_forward *f) {
    const delta_sizes s = sizes_of(&f->a);
    const size_t own =
        (size_t)(blocks_for(s) * even(chunk_floats(s) + s.dk * s.dv)) * sizeof(float);
    const size_t tensor = is_for_tensors(f) ? ax_tensor_delta_forward_work(&f->a) : 0;
    return own > tensor ? own : tensor;
}

template <class E>
static enum ax_status run_forward(struct ax_queue *q, const struct ax_delta_forward *f,
                                  float *work) {
    const delta_inputs<E> in = inputs_of<E>(&f->a);
    const delta_sizes &s = in.size;
    const rows_of<E> out = as_rows<E>(&f->a.out);
    const delta_slots<E> slots = {(const int32_t *)f->past.data, as_rows<E>(&f->keys),
                                  as_rows<float>(&f->updates), as_rows<float>(&f->decays)};
    if (s.tokens > 0)
        AX_TRY(AX_LAUNCH(q, clear_outside_kernel<E>, (unsigned)s.tokens, THREADS, 0, out,
                         s.heads * s.dv, in.cu, s.documents));
    if (blocks_for(s) == 0)
        return AX_OK;
    if (is_for_tensors(f) && ax_tensor_delta_suits(&f->a, nullptr))
        return ax_tensor_delta_forward(q, &f->a, work);
    AX_TRY(AX_LAUNCH(q, delta_forward_kernel<E>, (unsigned)blocks_for(s), THREADS, 0, in, slots,
                     out, work));
    if (slots.past)
        AX_TRY(AX_LAUNCH(q, append_keys_kernel<E>, (unsigned)s.documents, THREADS, 0, in, slots));
    return AX_OK;
}

extern "C" enum ax_status ax_cuda_delta_forward(struct ax_queue *q,
                                                const struct ax_delta_forward *f, void *work) {
    return by_real(f->a.q.dtype,
                   [&](auto *e) { return run_forward<AX_TYPE(e)>(q, f, (float *)work); });
}
