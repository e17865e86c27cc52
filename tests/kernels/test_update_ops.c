/* Updates in few bits on every instruction set of this machine: the 8-bit map and its codes, and
 * what is drawn: equal for any cut of a parameter, even-handed, and from base/rng.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/rng.h"
#include "kernels/quant/dynamic_map.h"
#include "tests/kernels/isa.h"

/* torch.linspace(0.1, 1, items + 1) in float32, from both ends. */
static float bound(int items, int i) {
    const float step = (1.0f - 0.1f) / (float)items;
    return i <= items / 2 ? 0.1f + step * (float)i : 1.0f - step * (float)(items - i);
}

static int rising(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* The tables are what their formulas give. */
static void check_map(const struct ax_dynamic_map *map, bool is_signed) {
    float values[256];
    int n = 0;
    for (int decade = 0; decade < 7; decade++) {
        const int items = 1 << (decade + !is_signed);
        for (int i = 0; i < items; i++) {
            const float mean = (bound(items, i) + bound(items, i + 1)) / 2;
            values[n++] = (float)(pow(10, decade - 6) * (double)mean);
            if (is_signed) {
                values[n] = -values[n - 1];
                n++;
            }
        }
    }
    values[n++] = 0;
    values[n++] = 1;
    assert_int_equal(n, 256);
    qsort(values, 256, sizeof(float), rising);
    for (int c = 0; c < 256; c++) {
        /* the reference rounds bounds, mean and product each: two last places */
        assert_true(fabsf(map->value[c] - values[c]) <= 2.4e-7f * fabsf(values[c]));
    }
    for (int c = is_signed ? 0 : 1; c < 255; c++) {
        const float half = (map->value[c + 1] - map->value[c]) * 0.5f, x = map->above[c];
        assert_true(x - map->value[c] >= half);
        assert_false(nextafterf(x, -INFINITY) - map->value[c] >= half);
    }
    assert_true(isinf(map->above[255]));
}

static void tables_are_the_formula(void **state) {
    (void)state;
    check_map(&ax_dynamic_signed, true);
    check_map(&ax_dynamic_unsigned, false);
    assert_int_equal(ax_dynamic_encode(&ax_dynamic_signed, 0), 127);
    assert_int_equal(ax_dynamic_encode(&ax_dynamic_signed, -1), 0);
    assert_int_equal(ax_dynamic_encode(&ax_dynamic_unsigned, 0), 0);
    assert_int_equal(ax_dynamic_encode(&ax_dynamic_unsigned, 1e-30F), 1);
    assert_int_equal(ax_dynamic_encode(&ax_dynamic_unsigned, 1), 255);
    for (int c = 0; c < 256; c++) {
        assert_int_equal(ax_dynamic_encode(&ax_dynamic_signed, ax_dynamic_signed.value[c]), c);
        assert_int_equal(ax_dynamic_encode(&ax_dynamic_unsigned, ax_dynamic_unsigned.value[c]), c);
    }
}

/* Numbers where codes change: each limit and its neighbors, powers of ten, and random decades. */
static float hard_number(int64_t i) {
    static const struct ax_dynamic_map *const maps[] = {&ax_dynamic_signed, &ax_dynamic_unsigned};
    if (i < 255 * 6) {
        const float x = maps[i / 3 % 2]->above[i / 6];
        return i % 3 == 0 ? x : nextafterf(x, i % 3 == 1 ? 2 : -2);
    }
    if (i < 255 * 6 + 24) {
        const float x = powf(10, -(float)(i / 3 % 8));
        return i % 3 == 0 ? x : nextafterf(x, i % 3 == 1 ? 2 : -2);
    }
    return (float)(random_unit() * pow(10, -4 * (1 + random_unit())));
}

/* With both betas 0 and no state, m is the gradient; with its square v. The largest of a block is
 * 1, so numbers come as they are. */
static void check_codes(const struct isa *isa, enum ax_dtype real) {
    enum { N = 256 * 64 };
    (void)real;
    struct ax_tensor w = line(AX_F32, N), g = line(AX_F32, N), copy = {.dtype = AX_BF16};
    struct ax_tensor m = line(AX_U8, N), v = line(AX_U8, N);
    struct ax_tensor ms = line(AX_F32, N / 256), vs = line(AX_F32, N / 256);
    struct ax_step_scalars s = {.lr = 1e-3, .clip = 1, .step = 1};
    for (int64_t i = 0; i < N; i++) {
        float x = hard_number(i);
        x = i % 256 == 7 || fabsf(x) > 1 ? 1 : x;
        set(&g, 0, i, (double)x);
    }
    struct ax_tensor in = clone(&g);
    RUN(isa, 2, adamw_8bit, .master = w, g, m, v, ms, vs, copy, 0, 0, 1e-8, 0, &s);
    for (int64_t i = 0; i < N; i++) {
        const float x = (float)get(&in, i, 0), square = x * x;
        const int code = (int)get(&m, i, 0), code2 = (int)get(&v, i, 0);
        if (code != ax_dynamic_encode(&ax_dynamic_signed, x) ||
            code2 != ax_dynamic_encode(&ax_dynamic_unsigned, square)) {
            fail_msg("%s, %d: codes of %.9g are %d and %d, expected %d and %d", isa->name, (int)i,
                     (double)x, code, code2, ax_dynamic_encode(&ax_dynamic_signed, x),
                     ax_dynamic_encode(&ax_dynamic_unsigned, square));
        }
    }
    assert_same_bits(&g, &in);
    assert_true(get(&ms, 3, 0) == 1 && get(&vs, 3, 0) == 1);
}

/* An element with a far smaller gradient than others of its block moves at most a few learning rates in
 * the steps without one, as if it had all bits: its second moment does not become 0. */
static void check_small_gradients(const struct isa *isa, enum ax_dtype real) {
    enum { N = 256 };
    (void)real;
    struct ax_tensor w = line(AX_F32, N), g = line(AX_F32, N), copy = {.dtype = AX_BF16};
    struct ax_tensor m = line(AX_U8, N), v = line(AX_U8, N);
    struct ax_tensor ms = line(AX_F32, 1), vs = line(AX_F32, 1);
    for (int64_t i = 0; i < N; i++)
        set(&m, 0, i, 127);
    for (int64_t step = 1; step <= 6; step++) {
        struct ax_step_scalars s = {.lr = 1e-3, .clip = 1, .step = step};
        for (int64_t i = 0; i < N; i++)
            set(&g, 0, i, step == 1 ? pow(10, -(double)i / 32) : 0);
        RUN(isa, 2, adamw_8bit, .master = w, g, m, v, ms, vs, copy, 0.9, 0.999, 1e-8, 0, &s);
    }
    for (int64_t i = 0; i < N; i++)
        if (!(fabs(get(&w, i, 0)) < 5e-3))
            fail_msg("%s: a gradient of 1e-%g moves a weight by %g", isa->name, (double)i / 32,
                     get(&w, i, 0));
}

/* A parameter in one call, cut in two, and in slices of its columns: the same bits. */
static void check_cuts(const struct isa *isa, enum ax_dtype real) {
    enum { ROWS = 37, COLS = 50, N = ROWS * COLS, CUT = 777, LEFT = 19 };
    if (real != AX_BF16)
        return;
    struct ax_step_scalars s = {.lr = 0.1, .clip = 1, .step = 3, .seed = 5};
    struct ax_tensor start[4] = {line(AX_BF16, N), line(AX_F32, N), line(AX_BF16, N),
                                 line(AX_BF16, N)};
    struct ax_tensor none = {.dtype = AX_BF16}, a[4], b[4];
    for (int k = 0; k < 4; k++) {
        randomize(&start[k], 1, k == 3 ? 1 : 0);
        a[k] = clone(&start[k]);
        b[k] = clone(&start[k]);
    }
    const struct ax_draw draw = {.stream = 99, .first = 1000};
    RUN(isa, 1, adamw, a[0], a[1], a[2], a[3], none, 0.9, 0.999, 1e-8, 0.1, &s, .draw = draw);
    for (int part = 0; part < 2; part++) {
        const int64_t first = part * CUT, n = part ? N - CUT : CUT;
        struct ax_draw own = draw;
        own.first += first;
        RUN(isa, 2, adamw, ax_tensor_rows(&b[0], first, n), ax_tensor_rows(&b[1], first, n),
            ax_tensor_rows(&b[2], first, n), ax_tensor_rows(&b[3], first, n), none, 0.9, 0.999,
            1e-8, 0.1, &s, .draw = own);
    }
    for (int k = 0; k < 4; k++)
        assert_same_bits(&a[k], &b[k]);
    for (int part = 0; part < 2; part++) { /* columns 0 … LEFT − 1 of each row, and the others */
        enum { INSIDE = 13 * LEFT + 7 };   /* where the second of two calls begins: within a row */
        const int64_t from = part ? LEFT : 0, width = part ? COLS - LEFT : LEFT;
        struct ax_tensor slice[4];
        for (int k = 0; k < 4; k++) {
            slice[k] = line(start[k].dtype, ROWS * width);
            for (int64_t i = 0; i < ROWS * width; i++)
                set(&slice[k], i, 0, get(&start[k], i / width * COLS + from + i % width, 0));
        }
        for (int half = 0; half < 2; half++) {
            const int64_t at = half ? INSIDE : 0, n = half ? ROWS * width - INSIDE : INSIDE;
            const struct ax_draw own = {.stream = 99,
                                        .first = 1000 + at / width * COLS + from + at % width,
                                        .column = at % width,
                                        .row = width,
                                        .gap = COLS - width};
            RUN(isa, 2, adamw, ax_tensor_rows(&slice[0], at, n), ax_tensor_rows(&slice[1], at, n),
                ax_tensor_rows(&slice[2], at, n), ax_tensor_rows(&slice[3], at, n), none, 0.9,
                0.999, 1e-8, 0.1, &s, .draw = own);
        }
        for (int64_t i = 0; i < ROWS * width; i++) {
            for (int k = 0; k < 4; k++) {
                assert_true(get(&slice[k], i, 0) ==
                            get(&a[k], i / width * COLS + from + i % width, 0));
            }
        }
    }
}

/* The word of element i as kernels/ops.h numbers it, of the stream `ahead` behind the draw's. */
static uint32_t word_of(const struct ax_draw *draw, const struct ax_step_scalars *s, uint32_t ahead,
                        int64_t i) {
    const int64_t rows = draw->row > 0 ? (i + draw->column) / draw->row : 0;
    const struct ax_rng_key key = {s->seed, (uint32_t)s->step, draw->stream + ahead};
    return ax_rng_u32(key, (uint64_t)(draw->first + i + rows * draw->gap));
}

/* What is kept in bf16 is the float32 number, rounded with the word's upper half (shift 16), its
 * lower half, or the copy's own word. */
static void assert_drawn(const struct isa *isa, const char *what, const struct ax_tensor *got,
                         const struct ax_tensor *exact, const struct ax_draw *draw,
                         const struct ax_step_scalars *s, uint32_t ahead, int shift) {
    for (int64_t i = 0; i < got->shape[0]; i++) {
        const float x = ((const float *)exact->data)[i];
        const uint16_t want = ax_f32_to_bf16_random(x, word_of(draw, s, ahead, i) >> shift);
        if (((const uint16_t *)got->data)[i] != want) {
            fail_msg("%s on %s: element %d of %.9g is %.9g, drawn %.9g", what, isa->name, (int)i,
                     (double)x, get(got, i, 0), (double)ax_bf16_to_f32(want));
        }
    }
}

/* The same numbers in another dtype; those of `start` are exact in bf16. */
static struct ax_tensor as(enum ax_dtype dtype, const struct ax_tensor *start) {
    struct ax_tensor t = line(dtype, start->shape[0]);
    ax_convert(dtype, t.data, start->dtype, start->data, start->shape[0]);
    return t;
}

/* An update twice: with everything in float32, whose arithmetic it shares, and drawn. */
struct twice {
    const struct isa *isa;
    struct ax_draw draw;
    struct ax_step_scalars s;
    struct ax_tensor start[3], grad; /* weights and two moments in bf16 */
    bool copied;                     /* weights are float32 with a copy in bf16 */
    struct ax_tensor exact[3], drawn[3], copy;
    struct ax_tensor none;
};

static void start_again(struct twice *a) {
    for (int k = 0; k < 3; k++) {
        a->exact[k] = as(AX_F32, &a->start[k]);
        a->drawn[k] = k == 0 && a->copied ? as(AX_F32, &a->start[0]) : clone(&a->start[k]);
    }
    a->none = a->copy = (struct ax_tensor){.dtype = AX_BF16};
    if (a->copied)
        a->copy = line(AX_BF16, a->grad.shape[0]);
}

static void assert_weights_drawn(const struct twice *a, const char *what) {
    assert_drawn(a->isa, what, a->copied ? &a->copy : &a->drawn[0], &a->exact[0], &a->draw, &a->s,
                 1, 0);
}

static void adamw_twice(struct twice *a) {
    start_again(a);
    RUN(a->isa, 1, adamw, .master = a->exact[0], a->grad, a->exact[1], a->exact[2], a->none, 0.9,
        0.99, 1e-8, 0.1, &a->s);
    RUN(a->isa, 2, adamw, a->drawn[0], a->grad, a->drawn[1], a->drawn[2], a->copy, 0.9, 0.99, 1e-8,
        0.1, &a->s, .draw = a->draw);
    assert_drawn(a->isa, "adamw's m", &a->drawn[1], &a->exact[1], &a->draw, &a->s, 0, 16);
    assert_drawn(a->isa, "adamw's v", &a->drawn[2], &a->exact[2], &a->draw, &a->s, 0, 0);
    assert_weights_drawn(a, "adamw's weight");
}

static void lion_twice(struct twice *a) {
    start_again(a);
    RUN(a->isa, 1, lion, .master = a->exact[0], a->grad, a->exact[1], a->none, 0.9, 0.99, 0.1,
        &a->s);
    RUN(a->isa, 2, lion, a->drawn[0], a->grad, a->drawn[1], a->copy, 0.9, 0.99, 0.1, &a->s,
        .draw = a->draw);
    assert_drawn(a->isa, "lion's m", &a->drawn[1], &a->exact[1], &a->draw, &a->s, 0, 16);
    assert_weights_drawn(a, "lion's weight");
}

static void sgd_twice(struct twice *a) {
    start_again(a);
    RUN(a->isa, 1, sgd, .master = a->exact[0], a->grad, a->none, a->none, 0, 0.1, false, &a->s);
    RUN(a->isa, 2, sgd, a->drawn[0], a->grad, a->none, a->copy, 0, 0.1, false, &a->s,
        .draw = a->draw);
    assert_weights_drawn(a, "sgd's weight");
}

/* Codes and scales start as 0: no moments before. */
static void adamw_8bit_twice(struct twice *a) {
    enum { PHASE = 100 };
    const int64_t n = a->grad.shape[0], blocks = (PHASE + n + 255) / 256;
    start_again(a);
    for (int k = 0; k < 2; k++) {
        RUN(a->isa, 1 + k, adamw_8bit, k ? a->drawn[0] : a->exact[0], a->grad, line(AX_U8, n),
            line(AX_U8, n), line(AX_F32, blocks), line(AX_F32, blocks), k ? a->copy : a->none, 0.9,
            0.99, 1e-8, 0.1, &a->s, .draw = a->draw, .phase = PHASE);
    }
    assert_weights_drawn(a, "adamw_8bit's weight");
}

static void check_words(const struct isa *isa, enum ax_dtype real) {
    enum { N = 33011 }; /* several pieces, with a tail */
    static const struct ax_draw draws[] = {
        {.stream = 0xfffffff0, .first = 1000003},
        {.stream = 7, .first = 3, .column = 5, .row = 37, .gap = 20}};
    struct twice a = {
        .isa = isa,
        .draw = draws[real == AX_BF16],
        .s = {.lr = 0.1, .clip = 0.5, .step = 3, .seed = (uint64_t)9 << 40 | 1},
        .start = {line(AX_BF16, N), line(AX_BF16, N), line(AX_BF16, N)},
        .grad = line(AX_F32, N),
    };
    randomize(&a.start[0], 1, 0);
    randomize(&a.start[1], 1, 0);
    randomize(&a.start[2], 0.5, 1);
    randomize(&a.grad, 1, 0);
    for (int copied = 0; copied < 2; copied++) {
        a.copied = copied;
        adamw_twice(&a);
        lion_twice(&a);
        sgd_twice(&a);
        adamw_8bit_twice(&a);
    }
}

/* v of 1 with no gradient and β₂ = 0.999: drawn, the mean shrinks as it should; to nearest, never.
 * A weight of 1 whose steps are a hundredth of its last place moves just so on average. */
static void check_small_steps(const struct isa *isa, enum ax_dtype real) {
    enum { N = 20000, STEPS = 50 };
    if (real != AX_BF16)
        return;
    struct ax_tensor w = line(AX_BF16, N), g = line(AX_F32, N), m = line(AX_BF16, N);
    struct ax_tensor v = line(AX_BF16, N), stuck = line(AX_BF16, N), none = {.dtype = AX_BF16};
    struct ax_tensor moved = line(AX_BF16, N), one = line(AX_F32, N);
    for (int64_t i = 0; i < N; i++) {
        set(&w, i, 0, 1);
        set(&v, i, 0, 1);
        set(&stuck, i, 0, 1);
        set(&moved, i, 0, 1);
    }
    for (int step = 1; step <= STEPS; step++) {
        struct ax_step_scalars s = {.lr = 0, .clip = 1, .step = step, .seed = 8};
        RUN(isa, 2, adamw, w, g, m, v, none, 0.9, 0.999, 1e-8, 0, &s, .draw = {.stream = 1});
        RUN(isa, 2, adamw, w, g, m, stuck, none, 0.9, 0.999, 1e-8, 0, &s, .draw = {.stream = 1},
            .nearest = true);
        s.lr = 0x1p-7 / 100;
        for (int64_t i = 0; i < N; i++)
            set(&one, i, 0, -1);
        RUN(isa, 2, sgd, .master = moved, one, none, none, 0, 0, false, &s, .draw = {.stream = 2});
    }
    double mean = 0, mean_moved = 0;
    for (int64_t i = 0; i < N; i++) {
        mean += get(&v, i, 0) / N;
        mean_moved += get(&moved, i, 0) / N;
        assert_true(get(&stuck, i, 0) == 1 && get(&w, i, 0) == 1);
    }
    assert_true(fabs(mean - pow(0.999, STEPS)) < 1e-3);
    assert_true(fabs(mean_moved - (1 + STEPS * 0x1p-7 / 100)) < 1e-4);
}

/* Noise is base/rng.h's, whatever the width and the first token. */
static void check_noise(const struct isa *isa, enum ax_dtype real) {
    enum { T = 30, D = 133 };
    struct ax_tensor x = grid(real, T, D, 3), cu = line(AX_I32, 4);
    static const int32_t ends[] = {2, 2, 21, 28};
    memcpy(cu.data, ends, sizeof(ends));
    const struct ax_step_scalars s = {.step = 4, .seed = (uint64_t)77 << 32 | 5};
    const struct ax_rng_key key = {s.seed, 4, 123};
    RUN(isa, 2, neftune, x, cu, 5, 123, 0, 1001, &s);
    for (int64_t t = 0; t < T; t++) {
        const double length = t < 21 ? 19 : 7, size = 5 / sqrt(length * D);
        for (int64_t d = 0; d < D; d++) {
            const uint64_t number = (uint64_t)((1001 + t) * D + d);
            const double want = size * (2 * (double)ax_rng_uniform(key, number) - 1);
            const bool noisy = t >= 2 && t < 28;
            assert_near(isa, "noise", &x, t, d, noisy ? want : 0, size);
        }
    }
}

#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        for_each_isa(check_##name);                                                                \
    }
TEST(codes)
TEST(small_gradients)
TEST(cuts)
TEST(words)
TEST(small_steps)
TEST(noise)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_the_formula),
        cmocka_unit_test(codes),
        cmocka_unit_test(small_gradients),
        cmocka_unit_test(cuts),
        cmocka_unit_test(words),
        cmocka_unit_test(small_steps),
        cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
