/* adamw_8bit: AdamW with moments in the 8-bit dynamic format (kernels/quant/dynamic_map.h), a warp per block of
 * 256 of them. Moves 16 bytes per weight with F32 masters and gradients and no copy. As many blocks of
 * threads as run at the same time go on until the end, so that each has tables and constants once. */
#include "kernels/cuda/update/update.cuh"

extern "C" {
#include "kernels/quant/dynamic_map.h"
}

#define WARPS (UPDATE_THREADS / 32)

struct maps {
    struct ax_dynamic_map of_m, of_v;
};

struct codes {
    uint8_t *code;
    float *scale;
};

struct adamw_8bit {
    double beta1, beta2, eps, decay;
    codes m, v;
    int64_t n, phase, blocks;
};

struct step_8bit {
    float keep, blend1, beta1, beta2, blend2, step_size, inverse_root, eps;
};
__device__ static inline step_8bit step_of(const adamw_8bit &a, const ax_step_scalars &s) {
    const double step = (double)s.step;
    return {(float)(1 - s.lr * a.decay),
            (float)(1 - a.beta1),
            (float)a.beta1,
            (float)a.beta2,
            (float)(1 - a.beta2),
            (float)(s.lr / (1 - pow(a.beta1, step))),
            (float)(1 / sqrt(1 - pow(a.beta2, step))),
            (float)a.eps};
}

/* ax_dynamic_encode: how many of 255 thresholds x reaches. */
__device__ static inline uint32_t encode(const float *above, float x) {
    uint32_t code = 0;
    AX_UNROLL
    for (uint32_t step = 128; step > 0; step /= 2)
        code += x < above[code + step - 1] ? 0 : step;
    return code;
}

/* The codes of elements i … i + 3, as far as they are below `end`: one in a byte. */
__device__ static inline uint32_t load_four_codes(const uint8_t *code, int64_t i, int64_t end) {
    uint32_t word = 0;
    if (end - i >= 4 && is_aligned<uint32_t>(code + i))
        return *(const uint32_t *)(code + i);
    AX_UNROLL
    for (int k = 0; k < 4; k++)
        word |= i + k < end ? (uint32_t)code[i + k] << 8 * k : 0;
    return word;
}
__device__ static inline void store_four_codes(uint8_t *code, int64_t i, int64_t end,
                                               uint32_t word) {
    if (end - i >= 4 && is_aligned<uint32_t>(code + i)) {
        *(uint32_t *)(code + i) = word;
        return;
    }
    AX_UNROLL
    for (int k = 0; k < 4; k++)
        if (i + k < end)
            code[i + k] = (uint8_t)(word >> 8 * k);
}

/* A warp's 256 moments: scale = max(largest |x|, 1e-12), and codes of x / scale. */
__device__ static inline void store_codes(const codes &to, const float *above, const four (&x)[2],
                                          int64_t block, int64_t first, int64_t end) {
    float most = 1e-12f;
    AX_UNROLL
    for (int r = 0; r < 2; r++) {
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            most = fmaxf(most, fabsf(x[r].x[k]));
    }
    most = warp_reduce<max_op>(most);
    const float inverse = 1 / most;
    AX_UNROLL
    for (int r = 0; r < 2; r++) {
        uint32_t word = 0;
        AX_UNROLL
        for (int k = 0; k < 4; k++)
            word |= encode(above, x[r].x[k] * inverse) << 8 * k;
        store_four_codes(to.code, first + 128 * r, end, word);
    }
    if (threadIdx.x % 32 == 0)
        to.scale[block] = most;
}

/* What a thread reads of elements i … i + 3. */
struct raw_8bit {
    raw_four grad;
    raw_weights weights;
    uint32_t m, v;
};
__device__ static inline raw_8bit load_raw(const adamw_8bit &a, const weights &w, const float *grad,
                                           int64_t i, int64_t end) {
    return {load_raw(AX_F32, grad, i, end), load_raw_weights(w, i, end),
            load_four_codes(a.m.code, i, end), load_four_codes(a.v.code, i, end)};
}

/* Elements i … i + 3, as far as they are below `end`: new moments and weights. */
__device__ static inline void update_four(const step_8bit &c, const weights &w, float clip,
                                          const raw_8bit &raw, const maps &table, float m_scale,
                                          float v_scale, int64_t i, int64_t end, four *m, four *v) {
    const four g = values_of(AX_F32, raw.grad);
    four x = values_of(w, raw.weights);
    AX_UNROLL
    for (int k = 0; k < 4; k++) {
        const bool exists = i + k < end;
        const float gk = g.x[k] * clip;
        const float old_m = exists ? table.of_m.value[raw.m >> 8 * k & 255] * m_scale : 0;
        const float old_v = exists ? table.of_v.value[raw.v >> 8 * k & 255] * v_scale : 0;
        m->x[k] = fmaf(old_m, c.beta1, c.blend1 * gk);
        v->x[k] = fmaf(old_v, c.beta2, c.blend2 * (gk * gk));
        const float denominator = sqrtf(v->x[k]) * c.inverse_root + c.eps;
        x.x[k] = fmaf(-c.step_size, m->x[k] / denominator, x.x[k] * c.keep);
    }
    store_weights(w, i, end, x);
}

__global__ void __launch_bounds__(UPDATE_THREADS, 2)
    adamw_8bit_kernel(adamw_8bit a, weights w, const float *grad, AX_INDEXED maps tables) {
    AX_SHARED(maps, table, [1]);
    AX_SHARED(step_8bit, step, [1]);
    const int lane = threadIdx.x % 32;
    if (w.scalars->skip != 0)
        return;
    for (int i = threadIdx.x; i < 256; i += UPDATE_THREADS) {
        table[0].of_m.value[i] = tables.of_m.value[i];
        table[0].of_m.above[i] = tables.of_m.above[i];
        table[0].of_v.value[i] = tables.of_v.value[i];
        table[0].of_v.above[i] = tables.of_v.above[i];
    }
    if (threadIdx.x == 0)
        step[0] = step_of(a, *w.scalars);
    __syncthreads();
    const float clip = (float)w.scalars->clip;
    for (int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; block < a.blocks;
         block += (int64_t)gridDim.x * WARPS) {
        const int64_t start = block * AX_8BIT_BLOCK - a.phase;
        const int64_t end = min(a.n, start + AX_8BIT_BLOCK);
        const int64_t first = max((int64_t)0, start) + 4 * lane;
        four m[2] = {}, v[2] = {};
        const float m_scale = a.m.scale[block], v_scale = a.v.scale[block];
        raw_8bit raw[2];
        AX_UNROLL
        for (int r = 0; r < 2; r++)
            raw[r] = load_raw(a, w, grad, first + 128 * r, end);
        __syncwarp(); /* before scales are overwritten */
        AX_UNROLL
        for (int r = 0; r < 2; r++)
            if (first + 128 * r < end)
                update_four(step[0], w, clip, raw[r], table[0], m_scale, v_scale, first + 128 * r,
                            end, &m[r], &v[r]);
        store_codes(a.m, table[0].of_m.above, m, block, first, end);
        store_codes(a.v, table[0].of_v.above, v, block, first, end);
    }
}

extern "C" enum ax_status ax_cuda_adamw_8bit(struct ax_queue *q, const struct ax_adamw_8bit *a,
                                             void *work) {
    (void)work;
    const adamw_8bit args = {a->beta1,
                             a->beta2,
                             a->eps,
                             a->weight_decay,
                             {(uint8_t *)a->exp_avg.data, (float *)a->exp_avg_scale.data},
                             {(uint8_t *)a->exp_avg_sq.data, (float *)a->exp_avg_sq_scale.data},
                             a->master.shape[0],
                             a->phase,
                             (a->phase + a->master.shape[0] + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK};
    const unsigned teams = blocks_of(args.blocks, WARPS);
    const unsigned most = 2 * (unsigned)ax_cuda_processors(q);
    const maps tables = {ax_dynamic_signed, ax_dynamic_unsigned};
    if (args.n == 0)
        return AX_OK;
    return AX_LAUNCH(q, adamw_8bit_kernel, teams < most ? teams : most, UPDATE_THREADS, 0, args,
                     weights_of(a), (const float *)a->grad.data, tables);
}
