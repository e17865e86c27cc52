/* adamw_8bit: AdamW with moments in the 8-bit dynamic format (kernels/quant/dynamic_map.h), a warp per block of
 * 256 of them. Moves 14 bytes per weight with F32 masters and gradients beside the gradient's zeros. */
#include "kernels/cuda/update/update.cuh"

extern "C" {
#include "kernels/quant/dynamic_map.h"
}

#define WARPS  (UPDATE_THREADS / 32)
#define BLOCKS (8 * WARPS) /* of moments, per block of threads */

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
    int64_t n, phase;
};

struct step_8bit {
    float keep, blend1, beta1, beta2, blend2, step_size, root, eps;
};
__device__ static inline step_8bit step_of(const adamw_8bit &a, const ax_step_scalars &s) {
    const double step = (double)s.step;
    return {(float)(1 - s.lr * a.decay),
            (float)(1 - a.beta1),
            (float)a.beta1,
            (float)a.beta2,
            (float)(1 - a.beta2),
            (float)(s.lr / (1 - pow(a.beta1, step))),
            (float)sqrt(1 - pow(a.beta2, step)),
            (float)a.eps};
}

/* ax_dynamic_encode. */
__device__ static inline uint8_t encode(const float *above, float x) {
    int low = 0, high = 255;
    AX_UNROLL
    for (int step = 0; step < 8; step++) { /* 256 codes: after 8 halvings, low = high */
        const int middle = (low + high) / 2;
        if (low < high && x < above[middle])
            high = middle;
        else if (low < high)
            low = middle + 1;
    }
    return (uint8_t)low;
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
    AX_UNROLL
    for (int r = 0; r < 2; r++) {
        AX_UNROLL
        for (int k = 0; k < 4; k++) {
            const int64_t i = first + 128 * r + k;
            if (i < end)
                to.code[i] = encode(above, x[r].x[k] / most);
        }
    }
    if (threadIdx.x % 32 == 0)
        to.scale[block] = most;
}

/* Elements i … i + 3, as far as they are below `end`: new moments and weights. */
__device__ static inline void update_four(const adamw_8bit &a, const step_8bit &c, const weights &w,
                                          float *grad, const float *m_values, const float *v_values,
                                          float m_scale, float v_scale, int64_t i, int64_t end,
                                          four *m, four *v) {
    const float clip = (float)w.scalars->clip;
    const four g = load_four(grad + i, end - i);
    four x = load_weights(w, i, end);
    AX_UNROLL
    for (int k = 0; k < 4; k++) {
        const bool exists = i + k < end;
        const float gk = g.x[k] * clip;
        const float old_m = exists ? m_values[a.m.code[i + k]] * m_scale : 0;
        const float old_v = exists ? v_values[a.v.code[i + k]] * v_scale : 0;
        m->x[k] = fmaf(old_m, c.beta1, c.blend1 * gk);
        v->x[k] = fmaf(old_v, c.beta2, c.blend2 * (gk * gk));
        const float denominator = sqrtf(v->x[k]) / c.root + c.eps;
        x.x[k] = fmaf(-c.step_size, m->x[k] / denominator, x.x[k] * c.keep);
    }
    store_weights(w, i, end, x);
    store_four(grad + i, end - i, {});
}

__global__ void __launch_bounds__(UPDATE_THREADS, 2)
    adamw_8bit_kernel(adamw_8bit a, weights w, float *grad, maps tables) {
    AX_SHARED(maps, table, [1]);
    AX_SHARED(step_8bit, step, [1]);
    const int lane = threadIdx.x % 32;
    const bool skip = w.scalars->skip != 0;
    for (int i = threadIdx.x; i < 256; i += UPDATE_THREADS) {
        table[0].of_m.value[i] = tables.of_m.value[i];
        table[0].of_m.above[i] = tables.of_m.above[i];
        table[0].of_v.value[i] = tables.of_v.value[i];
        table[0].of_v.above[i] = tables.of_v.above[i];
    }
    if (threadIdx.x == 0 && !skip)
        step[0] = step_of(a, *w.scalars);
    __syncthreads();
    const int64_t begin = blockIdx.x * (int64_t)BLOCKS + threadIdx.x / 32;
    for (int64_t block = begin; block < blockIdx.x * (int64_t)BLOCKS + BLOCKS; block += WARPS) {
        const int64_t start = block * AX_8BIT_BLOCK - a.phase;
        const int64_t end = min(a.n, start + AX_8BIT_BLOCK);
        const int64_t first = max((int64_t)0, start) + 4 * lane;
        if (start >= a.n)
            break;
        four m[2] = {}, v[2] = {};
        if (!skip) {
            const float m_scale = a.m.scale[block], v_scale = a.v.scale[block];
            __syncwarp(); /* before they are overwritten */
            AX_UNROLL
            for (int r = 0; r < 2; r++)
                if (first + 128 * r < end)
                    update_four(a, step[0], w, grad, table[0].of_m.value, table[0].of_v.value,
                                m_scale, v_scale, first + 128 * r, end, &m[r], &v[r]);
            store_codes(a.m, table[0].of_m.above, m, block, first, end);
            store_codes(a.v, table[0].of_v.above, v, block, first, end);
        } else {
            for (int r = 0; r < 2; r++)
                if (first + 128 * r < end)
                    store_four(grad + first + 128 * r, end - first - 128 * r, {});
        }
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
                             a->phase};
    const maps tables = {ax_dynamic_signed, ax_dynamic_unsigned};
    if (args.n == 0)
        return AX_OK;
    return AX_LAUNCH(q, adamw_8bit_kernel,
                     blocks_of(args.phase + args.n, (int)(BLOCKS * AX_8BIT_BLOCK)), UPDATE_THREADS,
                     0, args, weights_of(a), (float *)a->grad.data, tables);
}
