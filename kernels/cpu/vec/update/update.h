/* What the optimizers' updates share: weights kept in one of three ways (kernels/ops.h), moments
 * that may be bf16, the random numbers that both draw, and the loop over pieces.
 *
 * A kernel is a function of (weights, moments, a, i, n): `weights` and `moments` are constants
 * after inlining, and `a` points to its arguments at the start of a run of at most RUN elements. */
#ifndef AX_KERNELS_CPU_VEC_UPDATE_UPDATE_H
#define AX_KERNELS_CPU_VEC_UPDATE_UPDATE_H

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/philox.h"
#include "kernels/cpu/vec/split.h"

#define RUN 512 /* elements whose random words fit the L1 cache */

enum weights_kind {
    WEIGHTS_F32,
    WEIGHTS_COPY_F32,
    WEIGHTS_COPY_BF16,
    WEIGHTS_SPLIT,
    WEIGHTS_DRAWN
};
enum moments_kind { MOMENTS_F32, MOMENTS_NEAREST, MOMENTS_DRAWN };

struct weights {
    void *master, *copy;
    uint16_t *remainder;
    const uint32_t *random; /* if weights_drawn: a word per element */
};

/* True if BF16 weights are rounded with random words. */
AX_INLINE bool weights_drawn(enum weights_kind kind) {
    return kind == WEIGHTS_DRAWN || kind == WEIGHTS_COPY_BF16;
}

static inline enum weights_kind weights_kind_of(const struct ax_tensor *master,
                                                const struct ax_tensor *copy,
                                                const struct ax_tensor *remainder) {
    if (master->dtype == AX_BF16)
        return remainder->data != NULL ? WEIGHTS_SPLIT : WEIGHTS_DRAWN;
    return copy->data == NULL       ? WEIGHTS_F32
           : copy->dtype == AX_BF16 ? WEIGHTS_COPY_BF16
                                    : WEIGHTS_COPY_F32;
}

static inline enum moments_kind moments_kind_of(const struct ax_tensor *moment, bool nearest) {
    return moment->dtype == AX_F32 ? MOMENTS_F32 : nearest ? MOMENTS_NEAREST : MOMENTS_DRAWN;
}

/* Calls function(kind, …) with the kind as a constant. */
#define BY_WEIGHTS(kind, function, ...)                                                            \
    do {                                                                                           \
        switch (kind) {                                                                            \
        case WEIGHTS_F32:                                                                          \
            function(WEIGHTS_F32, __VA_ARGS__);                                                    \
            break;                                                                                 \
        case WEIGHTS_COPY_F32:                                                                     \
            function(WEIGHTS_COPY_F32, __VA_ARGS__);                                               \
            break;                                                                                 \
        case WEIGHTS_COPY_BF16:                                                                    \
            function(WEIGHTS_COPY_BF16, __VA_ARGS__);                                              \
            break;                                                                                 \
        case WEIGHTS_SPLIT:                                                                        \
            function(WEIGHTS_SPLIT, __VA_ARGS__);                                                  \
            break;                                                                                 \
        case WEIGHTS_DRAWN:                                                                        \
            function(WEIGHTS_DRAWN, __VA_ARGS__);                                                  \
            break;                                                                                 \
        }                                                                                          \
    } while (0)

/* bits + 16 random bits, truncated; NaN stays NaN. */
AX_INLINE v_int v_round_random(v_float x, v_int random) {
    v_int bits = v_bits(x);
    v_int quiet = v_or(bits, v_set_int(0x400000u));
    return v_shift_right(v_choose(v_is_nan(x), v_add(bits, random), quiet), 16);
}

AX_INLINE v_float v_load_split(const uint16_t *high, const uint16_t *low, int64_t n) {
    v_int sign = v_set_int(0x8000u), rest = v_sub(v_xor(v_load_u16(low, n), sign), sign);
    return v_from_bits(v_add(v_shift_left(v_load_u16(high, n), 16), rest));
}

AX_INLINE void v_store_split(uint16_t *high, uint16_t *low, int64_t n, v_float x) {
    v_int quiet = v_and(v_or(v_bits(x), v_set_int(0x400000u)), v_set_int(0xffff0000u));
    v_int bits = v_choose(v_is_nan(x), v_bits(x), quiet);
    v_store_u16(high, n, v_shift_right(v_add(bits, v_set_int(0x8000u)), 16));
    v_store_u16(low, n, v_and(bits, v_set_int(0xffffu)));
}

AX_INLINE v_float weights_load(enum weights_kind kind, const struct weights *w, int64_t i,
                               int64_t n) {
    if (kind == WEIGHTS_SPLIT)
        return v_load_split((const uint16_t *)w->master + i, w->remainder + i, n);
    return v_load(kind == WEIGHTS_DRAWN ? AX_BF16 : AX_F32, w->master, i, n);
}

AX_INLINE void weights_store(enum weights_kind kind, const struct weights *w, int64_t i, int64_t n,
                             v_float x) {
    if (kind == WEIGHTS_SPLIT) {
        v_store_split((uint16_t *)w->master + i, w->remainder + i, n, x);
        return;
    }
    if (kind != WEIGHTS_DRAWN)
        v_store_f32((float *)w->master + i, n, x);
    if (kind == WEIGHTS_COPY_F32) {
        v_store_f32((float *)w->copy + i, n, x);
    } else if (weights_drawn(kind)) {
        v_int random = v_shift_right(v_shift_left(v_load_int(w->random + i), 16), 16);
        uint16_t *out = kind == WEIGHTS_DRAWN ? w->master : w->copy;
        v_store_u16(out + i, n, v_round_random(x, random));
    }
}

/* The weights from element `at` on. */
AX_INLINE struct weights weights_at(enum weights_kind kind, struct weights w, int64_t at) {
    const bool half = kind == WEIGHTS_SPLIT || kind == WEIGHTS_DRAWN;
    w.master = (char *)w.master + at * (half ? 2 : 4);
    if (kind == WEIGHTS_COPY_F32 || kind == WEIGHTS_COPY_BF16)
        w.copy = (char *)w.copy + at * (kind == WEIGHTS_COPY_F32 ? 4 : 2);
    if (kind == WEIGHTS_SPLIT)
        w.remainder += at;
    return w;
}

AX_INLINE v_float moment_load(enum moments_kind kind, const void *moment, int64_t i, int64_t n) {
    return v_load(kind == MOMENTS_F32 ? AX_F32 : AX_BF16, moment, i, n);
}

/* random: 16 bits in each lane. */
AX_INLINE void moment_store(enum moments_kind kind, void *moment, int64_t i, int64_t n, v_float x,
                            v_int random) {
    if (kind == MOMENTS_DRAWN)
        v_store_u16((uint16_t *)moment + i, n, v_round_random(x, random));
    else
        v_store(kind == MOMENTS_F32 ? AX_F32 : AX_BF16, moment, i, n, x);
}

AX_INLINE void *moment_at(enum moments_kind kind, void *moment, int64_t at) {
    return (char *)moment + at * (kind == MOMENTS_F32 ? 4 : 2);
}

/* The random words of elements [first, first + n), n ≤ RUN, of stream draw->stream + ahead. They
 * are stored somewhere in `room`; returns their address. */
static __attribute__((noinline, unused)) const uint32_t *draw_words(const struct ax_draw *draw,
                                                                    const struct ax_step_scalars *s,
                                                                    uint32_t ahead, int64_t first,
                                                                    int64_t n, uint32_t *room) {
    const struct ax_rng_key key = {s->seed, (uint32_t)s->step, draw->stream + ahead};
    if (draw->row == 0)
        return random_words(key, draw->first + first, n, room);
    uint32_t part[RANDOM_ROOM(RUN)];
    for (int64_t done = 0; done < n;) {
        const int64_t at = first + done + draw->column, row = at / draw->row;
        const int64_t len = least((row + 1) * draw->row - at, n - done);
        const int64_t number = draw->first + first + done + row * draw->gap;
        memcpy(room + done, random_words(key, number, len, part), (size_t)len * sizeof(*room));
        done += len;
    }
    return room;
}

/* For updates with a known step size: w = w·keep − size·u. */
struct move {
    struct weights w;
    const struct ax_draw *draw;
    const struct ax_step_scalars *scalars;
    float keep, size;
};

static inline struct move move_of(const struct ax_tensor *master, const struct ax_tensor *copy,
                                  const struct ax_tensor *remainder, const struct ax_draw *draw,
                                  const struct ax_step_scalars *s) {
    return (struct move){
        .w = {master->data, copy->data, remainder->data, NULL}, .draw = draw, .scalars = s};
}

AX_INLINE void move_vector(enum weights_kind weights, enum ax_dtype dtype, const struct move *m,
                           const void *u, int64_t i, int64_t n) {
    v_float w = weights_load(weights, &m->w, i, n) * v_set(m->keep);
    weights_store(weights, &m->w, i, n, v_fnma(v_set(m->size), v_load(dtype, u, i, n), w));
}

/* Applies to elements [first, first + n) the update u[0 … n − 1]; n ≤ RUN. */
AX_INLINE void move_run(enum weights_kind weights, enum ax_dtype dtype, struct move m,
                        const void *u, int64_t first, int64_t n) {
    uint32_t room[RANDOM_ROOM(RUN)];
    m.w = weights_at(weights, m.w, first);
    if (weights_drawn(weights))
        m.w.random = draw_words(m.draw, m.scalars, 1, first, n, room);
    AX_EACH_VECTOR(n, move_vector, weights, dtype, &m, u);
}

#endif
