/* AdamW with 8-bit moments (Dettmers et al. 2022), a block at a time: codes are read through the
 * map, the weights updated with the moments as they are then, and the moments written back as codes
 * relative to the block's largest.
 *
 * A code is found by arithmetic, not by search: the decade of |x|, its part of the decade, and one
 * look at the limit between that code and its neighbour (kernels/dynamic_map.h), which makes it
 * exact. */
#include <math.h>

#include "kernels/cpu/vec/update.h"
#include "kernels/dynamic_map.h"

struct adamw_8bit {
    struct weights w;
    float *grad;
    uint8_t *m, *v;
    float scale1, scale2;
    float clip, keep, blend1, blend2, step_size, root, eps; /* as in optimizer.c */
};

/* New moments to m and v, weights in place. */
AX_INLINE void update_vector(enum weights_kind weights, const struct adamw_8bit *a, float *new_m,
                             float *new_v, int64_t i, int64_t n) {
    v_float g = v_load_f32(a->grad + i, n) * v_set(a->clip);
    v_float m = v_lookup(ax_dynamic_signed.value, v_load_u8(a->m + i, n)) * v_set(a->scale1);
    v_float v = v_lookup(ax_dynamic_unsigned.value, v_load_u8(a->v + i, n)) * v_set(a->scale2);
    m = v_fma(v_set(a->blend1), g - m, m);
    v = v_fma(v_set(a->blend2), g * g - v, v);
    v_float denominator = v_sqrt(v) / v_set(a->root) + v_set(a->eps);
    v_float w = weights_load(weights, &a->w, i, n) * v_set(a->keep);
    w = v_fnma(v_set(a->step_size), m / denominator, w);
    weights_store(weights, &a->w, i, n, w);
    v_store_f32(new_m + i, n, m);
    v_store_f32(new_v + i, n, v);
    v_store_f32(a->grad + i, n, v_set(0));
}

AX_INLINE void largest_vector(const float *x, v_float *largest, int64_t i, int64_t n) {
    *largest = v_max(v_abs(v_load_f32(x + i, n)), *largest);
}

/* What divides a block: its largest magnitude. */
AX_INLINE float scale_of(const float *x, int64_t n) {
    v_float largest = v_set(1e-12f);
    AX_EACH_VECTOR(n, largest_vector, x, &largest);
    return v_max_lane(largest);
}

/* Level k ≥ 1 of decade d (10^(d−7) to 10^(d−6), 2^d or 2^(d+1) parts) is x·slope[d] + start[d],
 * cut off. Decade 0 goes down to 0 with the slope of the lowest one. */
struct guess {
    float slope[8], start[8];
};

/* parts: of the lowest decade. */
static struct guess guess_of(int parts) {
    struct guess guess;
    double below = 0; /* levels of the lower decades */
    for (int d = 0; d < 8; d++) {
        const double high = pow(10, d - 6), count = ldexp(parts, d);
        guess.slope[d] = (float)(count / (0.9 * high));
        guess.start[d] = (float)(1 + below - count / 9);
        below += count;
    }
    return guess;
}

/* The code of x (254 for that of 1), or one less. Levels count from 0 at x = 0; `zero` is the code
 * of level 0. */
AX_INLINE v_int guess_code(v_float x, v_eight slope, v_eight start, bool is_signed) {
    v_float size = v_abs(x);
    v_int decade = v_set_int(0);
    decade = v_sub(decade, v_not_less(size, v_set(1e-6f)));
    decade = v_sub(decade, v_not_less(size, v_set(1e-5f)));
    decade = v_sub(decade, v_not_less(size, v_set(1e-4f)));
    decade = v_sub(decade, v_not_less(size, v_set(1e-3f)));
    decade = v_sub(decade, v_not_less(size, v_set(1e-2f)));
    decade = v_sub(decade, v_not_less(size, v_set(1e-1f)));
    /* the nearest level is this one or, at the foot of a decade, the one below */
    v_float level = v_fma(size, v_pick(slope, decade), v_pick(start, decade)) + v_set(1e-3f);
    v_int up = v_truncate(v_max(v_set(1), v_min(v_set(is_signed ? 127 : 254), level)));
    if (!is_signed) {
        return v_sub(up, v_set_int(1));
    }
    v_int negative = v_not_less(v_set(0), x);
    return v_choose(negative, v_add(v_set_int(126), up), v_sub(v_set_int(127), up));
}

AX_INLINE void encode_vector(const struct ax_dynamic_map *map, bool is_signed, const float *x,
                             uint8_t *codes, float scale, v_eight slope, v_eight start, int64_t i,
                             int64_t n) {
    v_float relative = v_load_f32(x + i, n) / v_set(scale);
    v_int code = guess_code(relative, slope, start, is_signed);
    code = v_sub(code, v_not_less(relative, v_lookup(map->above, code)));
    code = v_sub(code, v_not_less(relative, v_set(map->above[254]))); /* 1 is in no decade */
    v_store_u8(codes + i, n, code);
}

struct guesses {
    struct guess m, v;
};

AX_INLINE void adamw_block(enum weights_kind weights, const struct ax_adamw_8bit *args,
                           const struct adamw_8bit *whole, const struct guesses *guesses,
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
    if (weights == WEIGHTS_DRAWN) {
        a.w.random = draw_words(&args->draw, args->scalars, 1, first, n, room);
    }
    AX_EACH_VECTOR(n, update_vector, weights, &a, m, v);
    *scale1 = scale_of(m, n);
    *scale2 = scale_of(v, n);
    AX_EACH_VECTOR(n, encode_vector, &ax_dynamic_signed, true, m, a.m, *scale1,
                   v_eight_of(guesses->m.slope), v_eight_of(guesses->m.start));
    AX_EACH_VECTOR(n, encode_vector, &ax_dynamic_unsigned, false, v, a.v, *scale2,
                   v_eight_of(guesses->v.slope), v_eight_of(guesses->v.start));
}

enum ax_status AX_VEC(ax_cpu_adamw_8bit)(struct ax_queue *q, const struct ax_adamw_8bit *args,
                                         void *work) {
    (void)work;
    const struct ax_step_scalars *s = args->scalars;
    if (s->skip) {
        return clear_gradient(q, &args->grad);
    }
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
        .root = (float)sqrt(1.0 - pow(args->beta2, step)),
        .eps = (float)args->eps,
    };
    const struct guesses guesses = {guess_of(1), guess_of(2)};
    const enum weights_kind weights = weights_kind_of(&args->master, &args->copy, &args->remainder);
    int64_t n = args->master.shape[0], count = ceil_div(n + args->phase, AX_8BIT_BLOCK);
    AX_PARALLEL_FOR(team(q, n))
    for (int64_t b = 0; b < count; b++) {
        BY_WEIGHTS(weights, adamw_block, args, &a, &guesses, b);
    }
    return AX_OK;
}
