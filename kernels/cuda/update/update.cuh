/* What updates share: weights kept in one of three ways, moments that may be BF16, the random words that
 * both are rounded with (kernels/ops.h), and the kernel that applies a rule to every element.
 *
 * Each thread has runs of four neighbors. The step's scalars are read on the device, by one thread of
 * each block, which computes the rule's constants in double for the others: there are as many blocks as
 * run at the same time, and each goes on until the end, so that it does so once. */
#ifndef AX_KERNELS_CUDA_UPDATE_CUH
#define AX_KERNELS_CUDA_UPDATE_CUH

#include "kernels/cuda/four.cuh"
#include "kernels/cuda/philox.cuh"

/* ---- random words ---- */

struct words {
    uint32_t w[4];
};

/* The random words of elements i … i + 3, from stream draw.stream + ahead. */
__device__ static inline words words_of(const ax_draw &draw, const ax_step_scalars *s,
                                        uint32_t ahead, int64_t i) {
    const ax_rng_key key = {s->seed, (uint32_t)s->step, draw.stream + ahead};
    words out;
    random_block block = {};
    uint64_t have = ~(uint64_t)0;
    const int64_t at = i + draw.column;
    int64_t row = draw.row > 0 ? at / draw.row : 0; /* one division for all: it is slow */
    int64_t column = at - row * draw.row;
    AX_UNROLL
    for (int k = 0; k < 4; k++) {
        const uint64_t number = (uint64_t)(draw.first + i + k + row * draw.gap);
        if (++column == draw.row) {
            column = 0;
            row++;
        }
        if (number / 4 != have) {
            have = number / 4;
            block = random_block_of(key, have);
        }
        out.w[k] = block.word(number);
    }
    return out;
}

/* ax_f32_to_bf16_random. */
__device__ static inline uint16_t round_random(float x, uint32_t random) {
    return x != x ? f32_to_bf16(x) : (uint16_t)((__float_as_uint(x) + (random & 0xffffu)) >> 16);
}

__device__ static inline void store_random(void *p, int64_t i, int64_t n, const four &v,
                                           const words &random, int shift) {
    uint16_t bits[4];
    AX_UNROLL
    for (int k = 0; k < 4; k++)
        bits[k] = round_random(v.x[k], random.w[k] >> shift);
    store_four((uint16_t *)p + i, n - i, bits);
}

/* ---- weights ---- */

struct weights {
    void *master, *copy;
    int16_t *remainder;
    enum ax_dtype master_dtype, copy_dtype;
    ax_draw draw;
    const ax_step_scalars *scalars;
};
template <class A> static inline weights weights_of(const A *a) {
    return {a->master.data,  a->copy.data,  (int16_t *)a->remainder.data,
            a->master.dtype, a->copy.dtype, a->draw,
            a->scalars};
}

struct raw_weights {
    raw_four master, remainder;
};
__device__ static inline raw_weights load_raw_weights(const weights &w, int64_t i, int64_t n) {
    raw_weights raw = {load_raw(w.master_dtype, w.master, i, n), {}};
    if (w.remainder != nullptr)
        raw.remainder = load_raw(AX_BF16, w.remainder, i, n);
    return raw;
}

__device__ static inline four values_of(const weights &w, const raw_weights &raw) {
    if (w.remainder == nullptr)
        return values_of(w.master_dtype, raw.master);
    four v;
    AX_UNROLL
    for (int k = 0; k < 4; k++)
        v.x[k] = f32_join(raw.master.half(k), (int16_t)raw.remainder.half(k));
    return v;
}

__device__ static inline four load_weights(const weights &w, int64_t i, int64_t n) {
    return values_of(w, load_raw_weights(w, i, n));
}

__device__ static inline void store_split(const weights &w, int64_t i, int64_t n, const four &v) {
    uint16_t high[4], low[4];
    AX_UNROLL
    for (int k = 0; k < 4; k++) {
        int16_t rest;
        high[k] = f32_split(v.x[k], &rest);
        low[k] = (uint16_t)rest;
    }
    store_four((uint16_t *)w.master + i, n - i, high);
    store_four((uint16_t *)w.remainder + i, n - i, low);
}

__device__ static inline void store_weights(const weights &w, int64_t i, int64_t n, const four &v) {
    if (w.remainder != nullptr) {
        store_split(w, i, n, v);
        return;
    }
    void *rounded = w.copy;
    if (w.master_dtype == AX_BF16)
        rounded = w.master;
    else
        store_four((float *)w.master + i, n - i, v);
    if (rounded == nullptr)
        return;
    if (rounded == w.copy && w.copy_dtype == AX_F32)
        store_four((float *)w.copy + i, n - i, v);
    else
        store_random(rounded, i, n, v, words_of(w.draw, w.scalars, 1, i), 0);
}

/* ---- rules ---- */

#define UPDATE_THREADS 256
#define UPDATE_BLOCKS  3                    /* that a processor has at a time */
#define UPDATE_RUN     (4 * UPDATE_THREADS) /* elements that a block has at a time */

/* A rule has a struct `constants`, `constants of(const ax_step_scalars &) const`, a struct `moments`, as they are
 * in memory, `moments load(int64_t i, int64_t n) const`, and
 * `void apply(const constants &, const weights &, int64_t i, int64_t n, const moments &, const four &g, four &w) const`,
 * which computes new weights w, and moments, of elements i … i + 3 from the clipped gradient g. grad
 * NULL: of a rule without one. All loads begin before anything is computed: at the speed of memory a processor
 * needs some 25 kB on their way. */
template <class Rule>
__global__ void __launch_bounds__(UPDATE_THREADS, UPDATE_BLOCKS)
    update_kernel(weights w, const float *grad, int64_t n, Rule rule) {
    AX_SHARED(typename Rule::constants, shared, [1]);
    const ax_step_scalars *s = w.scalars;
    if (s->skip != 0)
        return;
    if (threadIdx.x == 0)
        shared[0] = rule.of(*s);
    __syncthreads();
    const float clip = (float)s->clip;
    const int64_t first = blockIdx.x * (int64_t)UPDATE_RUN + 4 * threadIdx.x;
    for (int64_t i = first; i < n; i += gridDim.x * (int64_t)UPDATE_RUN) {
        raw_four raw = {};
        if (grad != nullptr)
            raw = load_raw(AX_F32, grad, i, n);
        const raw_weights at = load_raw_weights(w, i, n);
        const typename Rule::moments moments = rule.load(i, n);
        four g = values_of(AX_F32, raw), x = values_of(w, at);
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            g.x[k] *= clip;
        rule.apply(shared[0], w, i, n, moments, g, x);
        store_weights(w, i, n, x);
    }
}

template <class A, class Rule>
static inline enum ax_status run_update(struct ax_queue *q, const A *a, const float *grad,
                                        const Rule &rule) {
    const int64_t n = ax_tensor_numel(&a->master);
    const unsigned runs = blocks_of(n, UPDATE_RUN);
    const unsigned most = UPDATE_BLOCKS * (unsigned)ax_cuda_processors(q);
    return n == 0 ? AX_OK
                  : AX_LAUNCH(q, (update_kernel<Rule>), runs < most ? runs : most, UPDATE_THREADS,
                              0, weights_of(a), grad, n, rule);
}

#endif
