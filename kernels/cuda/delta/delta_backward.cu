/* delta_backward: a block per document and value head computes the states at the borders of its chunks, then each
 * chunk's gradients, from the last chunk to the first. With P = weight, N = −system (both lower triangles),
 * D = decay, E = grown, F = rest and rows u, and dS' the gradient of the next chunk's state:
 *   du = Pᵀ·dout + (k̂⊙F)·dS';  z = (I + N)⁻ᵀ·du;  dN = −z·uᵀ and dP = dout·uᵀ, of the triangles
 *   dv = beta⊙z;  dbeta = Σ z⊙y + Σ_j dN⊙similar;  A = beta⊙dN⊙D, B = dP⊙D
 *   dq̂ = E⊙(dout·Sᵀ) + B·k̂;  dk̂ = l + r, l = A·k̂ − E⊙(dv·Sᵀ), r = Bᵀ·q̂ + Aᵀ·k̂ + w, w = F⊙(u·dS'ᵀ)
 *   dS = e^G_c·dS' + (q̂⊙E)ᵀ·dout − (k̂⊙E)ᵀ·dv
 *   dG = Σ q̂⊙dq̂ + Σ k̂⊙(l − r);  dG_c += Σ k̂⊙w + e^G_c·Σ S⊙dS';  dg_t = Σ_{s≥t} dG_s
 * dq̂ and dk̂ of each value head go to the workspace; a second kernel adds those of a key head in order. If the rule is
 * additive, N, A and l are 0, z is du, dS has no last term, and dv gets skip·dout. With a decay per channel, E, F and D
 * belong to elements of keys, A and B have no D, and dG, which has no sum over them, is of each. */
#include "kernels/cuda/delta/delta.cuh"
#include "kernels/cuda/delta/tensor.h"

template <class E> struct delta_results {
    rows_of<const E> dout;
    rows_of<E> dq, dk, dv;
    rows_of<float> dg, dbeta, dskip, dstates; /* dskip, dstates: data NULL: none */
    /* workspace: dq̂, dk̂ [T][Hv][dk]; the state before token t = first + 64·i, i > 0, of a document is number
     * (t / 64 − 1)·Hv + head; memory of blocks */
    float *q_sums, *k_sums, *borders, *blocks;
};

/* A block's memory beside the chunk's: dout, z (then dv) [CHUNK][dv]; dq̂, l, r [CHUNK][dk]; A, B [CHUNK][CHUNK];
 * S, dS [dk][dv]. */
struct delta_gradients {
    float *dout, *z, *dq, *left, *right, *d_system, *d_weight, *state, *d_state;
    float *kept;   /* shared: Σ k̂⊙w */
    double *d_sum; /* shared: dG */
};
static int64_t block_floats(const delta_sizes &s) {
    return even(chunk_floats(s) + CHUNK * (2 * s.dv + 3 * s.dk + 2 * CHUNK) + 2 * s.dk * s.dv);
}
__device__ static inline delta_gradients gradients_at(float *at, const delta_sizes &s) {
    const int64_t keys = CHUNK * s.dk, values = CHUNK * s.dv, pairs = CHUNK * CHUNK;
    delta_gradients g = {};
    g.dout = at + chunk_floats(s);
    g.z = g.dout + values;
    g.dq = g.z + values;
    g.left = g.dq + keys;
    g.right = g.left + keys;
    g.d_system = g.right + keys;
    g.d_weight = g.d_system + pairs;
    g.state = g.d_weight + pairs;
    g.d_state = g.state + s.dk * s.dv;
    return g;
}

template <class E>
__device__ static inline float *border_of(const delta_inputs<E> &in, const delta_results<E> &out,
                                          const delta_head &h, int64_t token) {
    const delta_sizes &s = in.size;
    return out.borders + ((token / CHUNK - 1) * s.heads + h.head) * s.dk * s.dv;
}

template <class E>
__device__ static inline void compute_chunk(const delta_inputs<E> &in, const delta_head &h,
                                            const delta_chunk &c, const float *state, int64_t token,
                                            int rows) {
    load_rows(in, h, c, token, 0, rows);
    add_up(c, in.size, rows);
    update_rows(in, h, c, state, token, 0, rows);
}

/* A chunk's starting state; the borders' from the one before. */
template <class E>
__device__ static inline void load_start(const delta_inputs<E> &in, const delta_results<E> &out,
                                         const delta_head &h, int64_t token, float *state) {
    const float *from = token > h.first ? border_of(in, out, h, token)
                        : h.enters >= 0 ? state_at(in.states, in.size, h.enters, h.head)
                                        : nullptr;
    copy_state(state, from, in.size.dk * in.size.dv);
}
template <class E>
__device__ static inline void find_borders(const delta_inputs<E> &in, const delta_results<E> &out,
                                           const delta_head &h, const delta_chunk &c,
                                           float *state) {
    load_start(in, out, h, h.first, state);
    for (int64_t token = h.first; token + CHUNK < h.end; token += CHUNK) {
        compute_chunk(in, h, c, state, token, CHUNK);
        next_state(c, in.size, state, CHUNK);
        copy_state(border_of(in, out, h, token + CHUNK), state, in.size.dk * in.size.dv);
    }
}

/* z. */
template <class E>
__device__ static inline void solve(const delta_inputs<E> &in, const delta_results<E> &out,
                                    const delta_head &h, const delta_chunk &c,
                                    const delta_gradients &g, int64_t token, int rows) {
    const int dk = (int)in.size.dk, dv = (int)in.size.dv;
    for (int e = threadIdx.x; e < rows * dv; e += THREADS)
        g.dout[e] = (float)out.dout.at(token + e / dv, h.head * dv + e % dv);
    rest_keys(c, in.size, rows);
    const auto store = [&](int i, int n, float x) { g.z[i * dv + n] = x; };
    each_product<ALL>(0, rows, dv, dk, matrix{c.scaled, dk, 1}, matrix{g.d_state, dv, 1},
                      from_zero(), store);
    each_product<UPPER>(
        0, rows, dv, rows, matrix{c.weight, 1, CHUNK}, matrix{g.dout, dv, 1},
        [&](int i, int n) { return g.z[i * dv + n]; }, store);
    for (int n = threadIdx.x; n < dv && !in.additive; n += THREADS) {
        for (int j = rows - 2; j >= 0; j--) {
            float z = g.z[j * dv + n];
            for (int i = j + 1; i < rows; i++)
                z = fmaf(c.system[i * CHUNK + j], g.z[i * dv + n], z);
            g.z[j * dv + n] = z;
        }
    }
    __syncthreads();
}

/* A, B, dbeta, dskip and dv. */
template <class E>
__device__ static inline void pair_gradients(const delta_inputs<E> &in, const delta_results<E> &out,
                                             const delta_head &h, const delta_chunk &c,
                                             const delta_gradients &g, int64_t token, int rows) {
    const int dv = (int)in.size.dv, lane = threadIdx.x % 32;
    const matrix u = {c.u, 1, dv};
    const float skip = in.skip ? (float)in.skip[h.head] : 0;
    if (!in.additive)
        each_product<ALL, true>(
            0, rows, rows, dv, matrix{g.z, dv, 1}, u, from_zero(),
            [&](int i, int j, float x) { g.d_system[i * CHUNK + j] = j < i ? -x : 0; });
    each_product<ALL, true>(
        0, rows, rows, dv, matrix{g.dout, dv, 1}, u, from_zero(),
        [&](int i, int j, float x) { g.d_weight[i * CHUNK + j] = j <= i ? x : 0; });
    for (int i = threadIdx.x / 32; i < rows; i += WARPS) {
        float sum = 0, skipped = 0;
        for (int at = i * CHUNK + lane; at <= i * CHUNK + i; at += 32) {
            if (!in.additive) {
                sum = fmaf(g.d_system[at], c.similar[at], sum);
                g.d_system[at] *= c.beta[i] * c.decay[at];
            }
            g.d_weight[at] *= c.decay[at];
        }
        for (int n = lane; n < dv; n += 32) {
            float &z = g.z[i * dv + n];
            const float y = c.y[i * dv + n], dout = g.dout[i * dv + n];
            sum = fmaf(z, y, sum);
            skipped = fmaf(dout, y, skipped);
            z *= c.beta[i];
            out.dv.at(token + i, h.head * dv + n) = E(fmaf(skip, dout, z));
        }
        sum = warp_reduce<sum_op>(sum);
        skipped = warp_reduce<sum_op>(skipped);
        if (lane == 0)
            out.dbeta.at(token + i, h.head) = sum;
        if (lane == 0 && out.dskip.data)
            out.dskip.at(token + i, h.head) = skipped;
    }
    __syncthreads();
}

/* out = sign·factors_i·(x·Sᵀ). */
__device__ static inline void through_state(const float *x, const float *state,
                                            const float *factors, float sign, int rows, int dk,
                                            int dv, float *out) {
    each_product<ALL>(0, rows, dk, dv, matrix{x, dv, 1}, matrix{state, 1, dv}, from_zero(),
                      [&](int i, int n, float sum) { out[i * dk + n] = sign * factors[i] * sum; });
}

/* Σ a·b by a warp; all lanes get it. */
__device__ static inline float warp_dot(const float *a, const float *b, int n) {
    float sum = 0;
    for (int i = threadIdx.x % 32; i < n; i += 32)
        sum = fmaf(a[i], b[i], sum);
    return warp_reduce<sum_op>(sum);
}

/* dq̂, l, r, Σ k̂⊙w and dG but for the state's share. */
__device__ static inline void key_gradients(const delta_chunk &c, const delta_gradients &g,
                                            bool additive, int rows, int dk, int dv) {
    const auto add = [&](auto shape, const float *x, const float *b, float *to) {
        constexpr delta_shape Shape = decltype(shape)::value;
        const matrix a = {x, Shape == LOWER ? CHUNK : 1, Shape == LOWER ? 1 : CHUNK};
        each_product<Shape>(
            0, rows, dk, rows, a, matrix{b, dk, 1}, [&](int i, int n) { return to[i * dk + n]; },
            [&](int i, int n, float sum) { to[i * dk + n] = sum; });
    };
    const std::integral_constant<delta_shape, LOWER> lower;
    const std::integral_constant<delta_shape, UPPER> upper;
    through_state(g.dout, g.state, c.grown, 1, rows, dk, dv, g.dq);
    add(lower, g.d_weight, c.k, g.dq);
    if (!additive) {
        through_state(g.z, g.state, c.grown, -1, rows, dk, dv, g.left);
        add(lower, g.d_system, c.k, g.left);
    }
    through_state(c.u, g.d_state, c.rest, 1, rows, dk, dv, g.right);
    for (int i = threadIdx.x / 32; i < rows; i += WARPS) {
        const float kept = warp_dot(c.k + i * dk, g.right + i * dk, dk);
        if (threadIdx.x % 32 == 0)
            g.kept[i] = kept;
    }
    __syncthreads();
    add(upper, g.d_weight, c.q, g.right);
    if (!additive)
        add(upper, g.d_system, c.k, g.right);
    for (int i = threadIdx.x / 32; i < rows; i += WARPS) {
        const float of_q = warp_dot(c.q + i * dk, g.dq + i * dk, dk);
        const float left = additive ? 0 : warp_dot(c.k + i * dk, g.left + i * dk, dk);
        const float right = warp_dot(c.k + i * dk, g.right + i * dk, dk);
        if (threadIdx.x % 32 == 0)
            g.d_sum[i] = (double)of_q + (double)left - (double)right;
    }
    __syncthreads();
}

/* The same of channels, and dg: a channel per thread, which has all rows of it. Products with e^(G_i − G_j) are made
 * row by row: rows of `scaled` are the keys as row i sees them, and r has what the rows from i on add to it. */
template <class E>
__device__ static inline void
channel_gradients(const delta_inputs<E> &in, const delta_results<E> &out, const delta_head &h,
                  const delta_chunk &c, const delta_gradients &g, int64_t token, int rows) {
    const int dk = (int)in.size.dk, dv = (int)in.size.dv, end = (rows - 1) * dk;
    through_state(g.dout, g.state, c.grown, 1, rows, dk, dv, g.dq);
    through_state(g.z, g.state, c.grown, -1, rows, dk, dv, g.left);
    through_state(c.u, g.d_state, c.rest, 1, rows, dk, dv, g.right);
    for (int n = threadIdx.x; n < dk; n += THREADS) {
        double sum = 0, kept = 0;
        for (int i = 0; i < dv; i++)
            sum += (double)(g.state[n * dv + i] * g.d_state[n * dv + i]);
        for (int i = 0, at = n; i < rows; i++, at += dk) {
            const float step = expf((float)(c.sums[at] - (i > 0 ? c.sums[at - dk] : 0)));
            kept += (double)(c.k[at] * expf((float)(c.sums[end + n] - c.sums[at])) * g.right[at]);
            float dq = g.dq[at] * c.reach[at], left = g.left[at] * c.reach[at];
            for (int j = 0; j < i; j++) {
                const float key = c.scaled[j * dk + n] * step;
                c.scaled[j * dk + n] = key;
                dq = fmaf(g.d_weight[i * CHUNK + j], key, dq);
                left = fmaf(g.d_system[i * CHUNK + j], key, left);
            }
            c.scaled[at] = c.k[at];
            g.dq[at] = fmaf(g.d_weight[i * CHUNK + i], c.k[at], dq);
            g.left[at] = left;
        }
        sum = kept + (double)c.reach[end + n] * sum;
        for (int i = rows - 1, at = end + n; i >= 0; i--, at -= dk) {
            const float step = i + 1 < rows ? expf((float)(c.sums[at + dk] - c.sums[at])) : 1.0f;
            for (int j = 0; j <= i; j++)
                g.right[j * dk + n] =
                    fmaf(g.d_weight[i * CHUNK + j], c.q[at],
                         fmaf(g.d_system[i * CHUNK + j], c.k[at], g.right[j * dk + n] * step));
        }
        for (int i = rows - 1, at = end + n; i >= 0; i--, at -= dk) {
            sum += (double)(c.q[at] * g.dq[at] + c.k[at] * (g.left[at] - g.right[at]));
            out.dg.at(token + i, h.head * dk + n) = (float)sum;
        }
    }
    __syncthreads();
}

/* dg of a head with one decay, and what the second kernel adds. */
template <class E>
__device__ static inline void store_sums(const delta_inputs<E> &in, const delta_results<E> &out,
                                         const delta_head &h, const delta_chunk &c,
                                         const delta_gradients &g, int64_t token, int rows) {
    const delta_sizes &s = in.size;
    const int dk = (int)s.dk;
    float part = 0;
    for (int64_t i = threadIdx.x; i < s.dk * s.dv && !s.channels; i += THREADS)
        part = fmaf(g.state[i], g.d_state[i], part);
    const float total = block_sum(part);
    if (threadIdx.x == 0 && !s.channels) {
        double sum = (double)c.grown[rows - 1] * (double)total;
        for (int r = 0; r < rows; r++)
            sum += (double)g.kept[r];
        for (int r = rows - 1; r >= 0; r--) {
            sum += g.d_sum[r];
            out.dg.at(token + r, h.head) = (float)sum;
        }
    }
    for (int e = threadIdx.x; e < rows * dk; e += THREADS) {
        const int64_t at = ((token + e / dk) * s.heads + h.head) * dk + e % dk;
        out.q_sums[at] = in.scale * g.dq[e];
        out.k_sums[at] = (in.additive ? 0 : g.left[e]) + g.right[e];
    }
    __syncthreads();
}

/* dS of the chunk's start. */
__device__ static inline void move_gradient(const delta_chunk &c, const delta_sizes &s,
                                            const delta_gradients &g, bool additive, int rows) {
    const int dk = (int)s.dk, dv = (int)s.dv;
    for (int part = 0; part < (additive ? 1 : 2); part++) {
        const float *x = part == 0 ? c.q : c.k, sign = part == 0 ? 1.0f : -1.0f;
        if (s.channels)
            reach_rows(c, x, sign, 0, rows, dk);
        else
            scale_rows(c, x, c.grown, sign, rows, dk);
        each_product<ALL>(
            0, dk, dv, rows, matrix{c.scaled, 1, dk}, matrix{part == 0 ? g.dout : g.z, dv, 1},
            [&](int i, int n) {
                return (part == 0 ? last_decay(c, s, rows, i) : 1.0f) * g.d_state[i * dv + n];
            },
            [&](int i, int n, float x) { g.d_state[i * dv + n] = x; });
    }
}

template <class E>
__global__ void __launch_bounds__(THREADS)
    delta_backward_kernel(delta_inputs<E> in, delta_results<E> out, int64_t floats) {
    const delta_sizes &s = in.size;
    const int dk = (int)s.dk, dv = (int)s.dv;
    float *mine = out.blocks + blockIdx.x * floats;
    AX_SHARED(float, kept, [CHUNK]);
    AX_SHARED(double, d_sum, [CHUNK]);
    DELTA_CHUNK(c, mine, s);
    delta_gradients g = gradients_at(mine, s);
    g.kept = kept;
    g.d_sum = d_sum;
    for (int64_t task = blockIdx.x; task < s.documents * s.heads; task += gridDim.x) {
        const delta_head h = head_of(in, task);
        const bool states = out.dstates.data != nullptr;
        find_borders(in, out, h, c, g.state);
        copy_state(g.d_state,
                   states && h.leaves >= 0 ? state_at(out.dstates, s, h.leaves, h.head) : nullptr,
                   s.dk * s.dv);
        const int64_t chunks = (h.end - h.first + CHUNK - 1) / CHUNK;
        for (int64_t i = chunks - 1; i >= 0; i--) {
            const int64_t token = h.first + i * CHUNK;
            const int rows = (int)min((int64_t)CHUNK, h.end - token);
            load_start(in, out, h, token, g.state);
            compute_chunk(in, h, c, g.state, token, rows);
            solve(in, out, h, c, g, token, rows);
            pair_gradients(in, out, h, c, g, token, rows);
            if (s.channels)
                channel_gradients(in, out, h, c, g, token, rows);
            else
                key_gradients(c, g, in.additive, rows, dk, dv);
            store_sums(in, out, h, c, g, token, rows);
            move_gradient(c, s, g, in.additive, rows);
        }
        if (states && h.enters >= 0)
            copy_state(state_at(out.dstates, s, h.enters, h.head), g.d_state, s.dk * s.dv);
    }
}

/* ---- the second kernel: a warp per token and key head ---- */

/* dx = r·(dx̂ − x̂·(x̂·dx̂)), x̂ = x·r, or dx̂ if the rule is additive, with dx̂ the sum of the rows of a key head's
 * value heads, the first of which gets it. */
template <class E>
__device__ static inline void backward_norm(const delta_inputs<E> &in, const E *x, float *rows,
                                            E *dx) {
    const int64_t n = in.size.dk, group = in.size.heads / in.size.key_heads;
    float squares = 0, along = 0;
    for (int64_t i = threadIdx.x % 32; i < n; i += 32) {
        float sum = rows[i];
        for (int64_t h = 1; h < group; h++)
            sum += rows[h * n + i];
        rows[i] = sum;
        squares = fmaf((float)x[i], (float)x[i], squares);
        along = fmaf((float)x[i], sum, along);
    }
    float r = 1 / sqrtf(warp_reduce<sum_op>(squares) + (float)AX_DELTA_EPS);
    float back = warp_reduce<sum_op>(along) * r * r;
    if (in.additive) {
        r = 1;
        back = 0;
    }
    for (int64_t i = threadIdx.x % 32; i < n; i += 32)
        dx[i] = E(r * (rows[i] - (float)x[i] * back));
}

template <class E>
__device__ static inline void clear_rows(const delta_inputs<E> &in, const delta_results<E> &out,
                                         int64_t t, int64_t key_head) {
    const delta_sizes &s = in.size;
    const int64_t group = s.heads / s.key_heads, lane = threadIdx.x % 32;
    for (int64_t i = lane; i < s.dk; i += 32)
        out.dq.at(t, key_head * s.dk + i) = out.dk.at(t, key_head * s.dk + i) = E(0.0f);
    for (int64_t i = lane; i < group * s.dv; i += 32)
        out.dv.at(t, key_head * group * s.dv + i) = E(0.0f);
    for (int64_t i = lane; i < group * s.decays; i += 32)
        out.dg.at(t, key_head * group * s.decays + i) = 0;
    for (int64_t h = key_head * group + lane; h < (key_head + 1) * group; h += 32) {
        out.dbeta.at(t, h) = 0;
        if (out.dskip.data)
            out.dskip.at(t, h) = 0;
    }
}

template <class E>
__global__ void __launch_bounds__(THREADS)
    delta_keys_kernel(delta_inputs<E> in, delta_results<E> out) {
    const delta_sizes &s = in.size;
    const int64_t i = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= s.tokens * s.key_heads)
        return;
    const int64_t t = i / s.key_heads, h = i % s.key_heads, group = s.heads / s.key_heads;
    if (is_outside(t, in.cu, s.documents)) {
        clear_rows(in, out, t, h);
        return;
    }
    const int64_t at = (t * s.heads + h * group) * s.dk, col = h * s.dk;
    backward_norm(in, &in.q.at(t, col), out.q_sums + at, &out.dq.at(t, col));
    backward_norm(in, &in.k.at(t, col), out.k_sums + at, &out.dk.at(t, col));
}

/* Floats of the sums, the borders' states, the blocks. */
struct work_sizes {
    int64_t sums, borders, blocks;
};
static work_sizes work_of(const delta_sizes &s) {
    return {s.tokens * s.heads * s.dk, even(s.tokens / CHUNK * s.heads * s.dk * s.dv),
            blocks_for(s) * block_floats(s)};
}

extern "C" size_t ax_cuda_delta_backward_work(const struct ax_delta_backward *b) {
    const work_sizes w = work_of(sizes_of(&b->a));
    const size_t sums = (size_t)(2 * w.sums) * sizeof(float);
    const size_t own = (size_t)(w.borders + w.blocks) * sizeof(float);
    const size_t tensor = ax_tensor_delta_fits(&b->a) ? ax_tensor_delta_backward_work(b) : 0;
    return sums + (own > tensor ? own : tensor);
}

template <class E>
static enum ax_status run_backward(struct ax_queue *q, const struct ax_delta_backward *b,
                                   float *work) {
    const delta_inputs<E> in = inputs_of<E>(&b->a);
    const delta_sizes &s = in.size;
    const work_sizes w = work_of(s);
    const delta_results<E> out = {as_rows<const E>(&b->dout),
                                  as_rows<E>(&b->dq),
                                  as_rows<E>(&b->dk),
                                  as_rows<E>(&b->dv),
                                  as_rows<float>(&b->dg),
                                  as_rows<float>(&b->dbeta),
                                  as_rows<float>(&b->dskip),
                                  as_rows<float>(&b->dstates),
                                  work,
                                  work + w.sums,
                                  work + 2 * w.sums,
                                  work + 2 * w.sums + w.borders};
    if (ax_tensor_delta_suits(&b->a, b))
        AX_TRY(ax_tensor_delta_backward(q, b, out.q_sums, out.k_sums, out.borders));
    else if (blocks_for(s) > 0)
        AX_TRY(AX_LAUNCH(q, delta_backward_kernel<E>, (unsigned)blocks_for(s), THREADS, 0, in, out,
                         block_floats(s)));
    if (s.tokens == 0)
        return AX_OK;
    return AX_LAUNCH(q, delta_keys_kernel<E>, blocks_of(s.tokens * s.key_heads, WARPS), THREADS, 0,
                     in, out);
}

extern "C" enum ax_status ax_cuda_delta_backward(struct ax_queue *q,
                                                 const struct ax_delta_backward *b, void *work) {
    return by_real(b->a.q.dtype,
                   [&](auto *e) { return run_backward<AX_TYPE(e)>(q, b, (float *)work); });
}
