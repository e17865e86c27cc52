/* Rotary position embedding, in place (Su et al. 2021; halves paired as in transformers). */
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/simd.h"
#include "kernels/cpu/vec/split.h"

/* x₁' = x₁·cos − x₂·sin, x₂' = x₂·cos + x₁·sin; sign −1 rotates back. */
AX_INLINE void rotate_vector(enum ax_dtype real, void *low, void *high, const float *cosine,
                             const float *sine, v_float sign, int64_t i, int64_t n) {
    v_float c = v_load_f32(cosine + i, n), s = v_load_f32(sine + i, n) * sign;
    v_float x1 = v_load(real, low, i, n), x2 = v_load(real, high, i, n);
    v_store(real, low, i, n, v_fnma(x2, s, x1 * c));
    v_store(real, high, i, n, v_fma(x1, s, x2 * c));
}

AX_INLINE void rotate_heads(enum ax_dtype real, char *row, const struct ax_tensor *x,
                            const float *cosine, const float *sine, int64_t half, float sign) {
    int64_t size = real == AX_BF16 ? 2 : 4;
    for (int64_t h = 0; h < x->shape[1]; h++) {
        char *low = row + h * x->shape[2] * size;
        AX_EACH_VECTOR(half, rotate_vector, real, low, low + half * size, cosine, sine,
                       v_set(sign));
    }
}

enum ax_status AX_VEC(ax_cpu_rope)(struct ax_queue *q, const struct ax_rope *args, void *work) {
    (void)work;
    const struct ax_tensor *x = &args->x;
    const int32_t *positions = args->positions.data;
    int64_t half = args->cos.shape[1];
    float sign = args->inverse ? -1.0f : 1.0f;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(x)), t, x->shape[0]) {
        AX_ASSERT(positions[t] >= 0 && positions[t] < args->cos.shape[0]);
        const float *cosine = ax_tensor_row(&args->cos, positions[t]);
        const float *sine = ax_tensor_row(&args->sin, positions[t]);
        AX_BY_DTYPE(x->dtype, rotate_heads, ax_tensor_row(x, t), x, cosine, sine, half, sign);
    }
    return AX_OK;
}
