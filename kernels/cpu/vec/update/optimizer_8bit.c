/* AdamW with 8-bit moments (Dettmers et al. 2022), a block at a time: codes are decoded through the
 * map, the weights are updated with the unrounded moments, and the moments are encoded relative to
 * the block's largest, by arithmetic rather than search (kernels/quant/dynamic_map.h). */
#include <math.h>

#include "kernels/cpu/vec/update/update.h"
#include "kernels/quant/dynamic_map.h"

struct adamw_8bit {
    struct weights w;
    const float *grad;
    uint8_t *m, *v;
    float scale1, scale2;
    float clip, keep, blend1, blend2, step_size, eps; /* as in optimizer.c */
    float inverse_root;                               /* 1/√(1−β₂ᵗ) */
};

/* New moments to m and v, weights in place. */
AX_INLINE void update_vector(enum weights_kind weights, const struct adamw_8bit *a, float *new_m,
                             float *new_v, int64_t i, int64_t n) {
    v_float g = v_load_f32(a->grad + i, n) * v_set(a->clip);
    v_float m = v_lookup(ax_dynamic_signed.value, v_load_u8(a->m + i, n)) * v_set(a->scale1);
    v_float v = v_lookup(ax_dynamic_unsigned.value, v_load_u8(a->v + i, n)) * v_set(a->scale2);
    m = v_fma(v_set(a->blend1), g - m, m);
    v = v_fma(v_set(a->blend2), g * g - v, v);
    v_float denominator = v_fma(v_sqrt(v), v_set(a->inverse_root), v_set(a->eps));
    v_float w = weights_load(weights, &a->w, i, n) * v_set(a->keep);
    w = v_fnma(v_set(a->step_size), m / denominator, w);
    weights_store(weights, &a->w, i, n, w);
    v_store_f32(new_m + i, n, m);
    v_store_f32(new_v + i, n, v);
}

AX_INLINE void largest_vector(const float *x, v_float *largest, int64_t i, int64_t n) {
    *largest = v_max(v_abs(v_load_f32(x + i, n)), *largest);
}

/* A block's divisor: its largest magnitude. */
AX_INLINE float scale_of(const float *x, int64_t n) {
    v_float largest = v_set(1e-12f);
    AX_EACH_VECTOR(n, largest_vector, x, &largest);
    return v_max_lane(largest);
}

/* Where the levels are. In decade d, from 10^(d−7) to 10^(d−6), with 2^d parts if signed, else
 * 2^(d+1), the level of x is slope[d]·x + start[d], truncated. Level 0 is x = 0, and decade 0
 * extends down to 0. A decade starts at foot[d], halfway between the last level of the one below
 * and its own first; decade 0 of unsigned levels, which has every x > 0, at −1. */
struct levels {
    float slope[8], start[8], foot[8];
};

/* parts: of the lowest decade. */
static struct levels levels_of(int parts) {
    struct levels l;
    double below = 0; /* levels of the lower decades */
    for (int d = 0; d < 8; d++) {
        const double high = pow(10, d - 6), count = ldexp(parts, d), width = 0.9 * high / count;
        l.slope[d] = (float)(1 / width);
        l.start[d] = (float)(1 + below - count / 9);
        l.foot[d] = (float)(d > 0        ? high / 10 + 0.2 * width
                            : parts == 1 ? (high / 10 + width / 2) / 2
                                         : -1);
        below += count;
    }
    return l;
}

/* The codes of x, |x| ≤ 1, from its position in its decade. That is exact except within 1e-4 of
 * a level's limits. There the limits of `map` decide, because they were computed in float32
 * arithmetic. Lanes are that close so rarely that looking up the limits costs nothing. */
AX_INLINE v_int encode(const struct ax_dynamic_map *map, bool is_signed, const struct levels *l,
                       v_float x) {
    v_float size = v_abs(x);
    v_int decade = v_count(v_set_int(0), size, v_set(1e-6f));
    decade = v_count(decade, size, v_set(1e-5f));
    decade = v_count(decade, size, v_set(1e-4f));
    decade = v_count(decade, size, v_set(1e-3f));
    decade = v_count(decade, size, v_set(1e-2f));
    decade = v_count(decade, size, v_set(1e-1f));
    v_float slope = v_pick(v_eight_of(l->slope), decade);
    v_float place = v_fma(size, slope, v_pick(v_eight_of(l->start), decade));
    v_float foot = (size - v_pick(v_eight_of(l->foot), decade)) * slope;
    const float one = is_signed ? 128 : 255; /* the level of 1, which is in no decade */
    place = v_min(v_max(place, v_set(1.5f)), v_set(one - 0.5f));
    v_int level = v_truncate(place);
    v_float part = place - v_to_float(level);
    v_float edge = v_min(v_min(part, v_set(1) - part), v_abs(foot));
    v_int code = v_sub(v_count(level, foot, v_set(0)), v_set_int(1));
    if (is_signed) {
        v_int minus = v_negative(x); /* 127 + level or 127 − level */
        code = v_add(v_set_int(127), v_sub(v_xor(code, minus), minus));
    } else { /* decade 0 has no foot: only 0 is at level 0 */
        code = v_count(v_sub(code, v_set_int(1)), x, v_set(map->above[0]));
    }
    code = v_count(code, x, v_set(map->above[254]));
    if (__builtin_expect(v_any_less(edge, v_set(1e-4f)), 0)) {
        v_int lower = v_sub(code, v_count(v_set_int(0), v_to_float(code), v_set(1)));
        code = v_count(lower, x, v_lookup(map->above, lower));
        code = v_count(code, x, v_lookup(map->above, code));
    }
    return code;
}

AX_INLINE void encode_vector(const struct ax_dynamic_map *map, bool is_signed, const float *x,
                             uint8_t *codes, float scale, float inverse, const struct levels *l,
                             int64_t i, int64_t n) {
    v_float value = v_load_f32(x + i, n), quotient = value * v_set(inverse);
    /* x / scale to the last bit (Markstein 1990) */
    quotient = v_fma(v_fnma(quotient, v_set(scale), value), v_set(inverse), quotient);
    v_store_u8(codes + i, n, encode(map, is_signed, l, quotient));
}

struct both_levels {
    struct levels m, v;
};

AX_INLINE void adamw_block(enum weights_kind weights, const struct ax_adamw_8bit *args,
                           const struct adamw_8bit *whole, const struct both_levels *levels,
                           int64_t block) {
    const int64_t start = block * AX_8BIT_BLOCK - args->phase, first = start < 0 ? 0 : start;
    const int64_t n = least(start + AX_8BIT_BLOCK, args->master.shape[0]) - first;
    float m[AX_8BIT_BLOCK], v[AX_8BIT_BLOCK];
    uint32_t room[RANDOM_ROOM(AX_8BIT_BLOCK)];
    float *scale1 = (float *)args->exp_avg_scale.data + block;
    float *scale2 = (float *)args->exp_avg_sq_scale.data + block;
    struct adamw_8bit a = *whole;
    a.w = weights_at(weights, whole->w, first);
    a.grad += first;
    a.m += first;
    a.v += first;
    a.scale1 = *scale1;
    a.scale2 = *scale2;
    if (weights_drawn(weights))
        a.w.random = draw_words(&args->draw, args->scalars, 1, first, n, room);
    AX_EACH_VECTOR(n, update_vector, weights, &a, m, v);
    *scale1 = scale_of(m, n);
    *scale2 = scale_of(v, n);
    AX_EACH_VECTOR(n, encode_vector, &ax_dynamic_signed, true, m, a.m, *scale1, 1 / *scale1,
                   &levels->m);
    AX_EACH_VECTOR(n, encode_vector, &ax_dynamic_unsigned, false, v, a.v, *scale2, 1 / *scale2,
                   &levels->v);
}

enum ax_status AX_VEC(ax_cpu_adamw_8bit)(struct ax_queue *q, const struct ax_adamw_8bit *args,
                                         void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip)
        return AX_OK;
    double step = (double)s->step;
    const struct adamw_8bit a = {
        .w = {args->master.data, args->copy.data, args->remainder.data, NULL},
        .grad = args->grad.data,
        .m = args->exp_avg.data,
        .v = args->exp_avg_sq.data,
        .clip = (float)s->clip,
        .keep = (float)(1.0 - s->lr * args->weight_decay),
        .blend1 = (float)(1.0 - args->beta1),
        .blend2 = (float)(1.0 - args->beta2),
        .step_size = (float)(s->lr / (1.0 - pow(args->beta1, step))),
        .inverse_root = (float)(1 / sqrt(1.0 - pow(args->beta2, step))),
        .eps = (float)args->eps,
    };
    const struct both_levels levels = {levels_of(1), levels_of(2)};
    const enum weights_kind weights = weights_kind_of(&args->master, &args->copy, &args->remainder);
    int64_t n = args->master.shape[0], count = ceil_div(n + args->phase, AX_8BIT_BLOCK);
    AX_PARALLEL_FOR (team(q, n), b, count)
        BY_WEIGHTS(weights, adamw_block, args, &a, &levels, b);
    return AX_OK;
}
