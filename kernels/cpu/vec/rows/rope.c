/* Rotary position embedding, in place (Su et al. 2021): halves or neighbors paired. */
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

/* The same on lanes x₁ x₂ x₁ x₂ …; signs is −sign and sign in turn. */
AX_INLINE void rotate_pairs(enum ax_dtype real, void *pairs, const float *cosine, const float *sine,
                            v_float signs, int64_t i, int64_t n) {
    v_float c = v_twice(v_load_f32(cosine + i / 2, n / 2));
    v_float s = v_twice(v_load_f32(sine + i / 2, n / 2)) * signs;
    v_float x = v_load(real, pairs, i, n);
    v_store(real, pairs, i, n, v_fma(v_swap(x), s, x * c));
}

AX_INLINE v_float in_turn(float even, float odd) {
    float lanes[AX_LANES];
    for (int i = 0; i < AX_LANES; i++)
        lanes[i] = i % 2 == 0 ? even : odd;
    return v_load_f32(lanes, AX_LANES);
}

AX_INLINE void rotate_heads(enum ax_dtype real, char *row, const struct ax_rope *args,
                            const float *cosine, const float *sine) {
    const int64_t size = real == AX_BF16 ? 2 : 4, half = args->cos.shape[1];
    const float sign = args->inverse ? -1.0f : 1.0f;
    for (int64_t h = 0; h < args->x.shape[1]; h++) {
        char *low = row + (h * args->x.shape[2] + args->first) * size;
        if (args->interleaved)
            AX_EACH_VECTOR(2 * half, rotate_pairs, real, low, cosine, sine, in_turn(-sign, sign));
        else
            AX_EACH_VECTOR(half, rotate_vector, real, low, low + half * size, cosine, sine,
                           v_set(sign));
    }
}

enum ax_status AX_VEC(ax_cpu_rope)(struct ax_queue *q, const struct ax_rope *args, void *work) {
    (void)work;
    const struct ax_tensor *x = &args->x;
    const int32_t *positions = args->positions.data;
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(x)), t, x->shape[0]) {
        AX_ASSERT(positions[t] >= 0 && positions[t] < args->cos.shape[0]);
        const float *cosine = ax_tensor_row(&args->cos, positions[t]);
        const float *sine = ax_tensor_row(&args->sin, positions[t]);
        AX_BY_DTYPE(x->dtype, rotate_heads, ax_tensor_row(x, t), args, cosine, sine);
    }
    return AX_OK;
}
