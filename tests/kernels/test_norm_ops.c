/* The cpu backend's RMSNorm, forward and backward, and centering, on every instruction set of this machine,
 * against plain double loops: rows and heads, odd lengths, padded rows, gradients in place and
 * added, 1, 2 and 4 threads with equal bits, rows alone and among others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/kernels/isa.h"

#define EPS 1e-5

/* x [T][heads·n] with a norm over each n. */
struct shape {
    int64_t tokens, heads, n;
};
static const struct shape SHAPES[] = {{67, 1, 577}, {70, 9, 64}, {70, 7, 72}, {300, 1, 128},
                                      {5, 3, 7},    {3, 1, 1},   {9, 1, 5003}};

struct inputs {
    struct ax_tensor x, dy, dx, weight, dweight;
};

static struct inputs make(enum ax_dtype real, const struct shape *s) {
    int64_t cols = s->heads * s->n;
    struct inputs in = {grid(real, s->tokens, cols, 3), grid(real, s->tokens, cols, 1),
                        grid(real, s->tokens, cols, 2), line(real, s->n), line(AX_F32, s->n)};
    randomize(&in.x, 2, 0.1);
    randomize(&in.dy, 1, 0);
    randomize(&in.dx, 1, 0);
    randomize(&in.weight, 0.5, 1);
    randomize(&in.dweight, 1, 0);
    for (int64_t c = 0; c < cols; c++) { /* rows of unusual size */
        set(&in.x, 0, c, get(&in.x, 0, c) * 1e15);
        set(&in.x, 1, c, get(&in.x, 1, c) * 1e-20);
        set(&in.x, 2, c, 0);
    }
    return in;
}

static struct ax_tensor shaped(const struct ax_tensor *flat, const struct shape *s) {
    return s->heads == 1 ? *flat : ax_tensor_heads(flat, s->heads, s->n);
}

static double naive_rstd(const struct ax_tensor *x, int64_t t, int64_t col, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += get(x, t, col + i) * get(x, t, col + i);
    return 1 / sqrt(sum / (double)n + EPS);
}

static double round_to(enum ax_dtype dtype, double x) {
    ax_store(dtype, &x, 0, x);
    return ax_load(dtype, &x, 0);
}

/* y is weight·(x·rstd rounded to real); where x·rstd is close to a tie, either way round will do.
 */
static void assert_normed(const struct isa *isa, const struct inputs *in, const struct ax_tensor *y,
                          int64_t t, int64_t col, int64_t i, double rstd) {
    enum ax_dtype real = y->dtype;
    double normed = get(&in->x, t, col + i) * rstd, weight = get(&in->weight, i, 0);
    double slack = real == AX_BF16 ? 1e-6 : 0;
    double low = round_to(real, normed * (1 - slack)) * weight;
    double high = round_to(real, normed * (1 + slack)) * weight;
    double got = get(y, t, col + i);
    bool is_low = fabs(got - low) < fabs(got - high);
    assert_near(isa, "y", y, t, col + i, is_low ? low : high, fabs(normed * weight) + 1e-3);
}

static void check_forward(const struct isa *isa, enum ax_dtype real) {
    for (size_t k = 0; k < sizeof(SHAPES) / sizeof(SHAPES[0]); k++) {
        const struct shape *s = &SHAPES[k];
        struct inputs in = make(real, s);
        struct ax_tensor first_y = in.x, first_rstd = in.x;
        for (int t = 0; t < 3; t++) {
            struct ax_tensor y = t == 1 ? clone(&in.x) : grid(real, s->tokens, s->heads * s->n, 3);
            struct ax_tensor x = t == 1 ? y : in.x; /* y may be x */
            struct ax_tensor rstd = line(AX_F32, s->tokens * s->heads);
            RUN(isa, THREADS[t], rmsnorm_forward, shaped(&x, s), in.weight, shaped(&y, s), rstd,
                EPS, 0, .once = false);
            for (int64_t i = 0; i < s->tokens * s->heads && t == 0; i++) {
                int64_t row = i / s->heads, col = i % s->heads * s->n;
                double want = naive_rstd(&in.x, row, col, s->n);
                assert_near(isa, "rstd", &rstd, i, 0, want, want);
                for (int64_t d = 0; d < s->n; d++)
                    assert_normed(isa, &in, &y, row, col, d, want);
            }
            if (t == 0) {
                first_y = y;
                first_rstd = rstd;
            }
            for (int64_t r = 0; r < s->tokens; r++) { /* the padding of x is not that of y */
                struct ax_tensor a = ax_tensor_rows(&y, r, 1), b = ax_tensor_rows(&first_y, r, 1);
                assert_same_bits(&a, &b);
            }
            assert_same_bits(&rstd, &first_rstd);
        }
    }
}

/* Against the formula, from the same rstd. */
static void assert_gradients(const struct isa *isa, const struct shape *s, const struct inputs *in,
                             const struct ax_tensor *rstd, const struct ax_tensor *dx,
                             const struct ax_tensor *dweight, bool accumulate) {
    double *sums = own((size_t)s->n * sizeof(double));
    for (int64_t k = 0; k < s->tokens * s->heads; k++) {
        int64_t t = k / s->heads, col = k % s->heads * s->n;
        double scale = get(rstd, k, 0), mean = 0;
        for (int64_t i = 0; i < s->n; i++) {
            double normed = get(&in->x, t, col + i) * scale;
            mean += get(&in->dy, t, col + i) * get(&in->weight, i, 0) * normed / (double)s->n;
            sums[i] += get(&in->dy, t, col + i) * normed;
        }
        for (int64_t i = 0; i < s->n; i++) {
            double g = get(&in->dy, t, col + i) * get(&in->weight, i, 0);
            double want = scale * (g - get(&in->x, t, col + i) * scale * mean);
            want += accumulate ? get(&in->dx, t, col + i) : 0;
            assert_near(isa, "dx", dx, t, col + i, want, 3 * scale + 1);
        }
    }
    for (int64_t i = 0; i < s->n; i++) {
        assert_near(isa, "dweight", dweight, i, 0, get(&in->dweight, i, 0) + sums[i],
                    sqrt((double)(s->tokens * s->heads)) * 4);
    }
}

static void check_backward(const struct isa *isa, enum ax_dtype real) {
    for (size_t k = 0; k < sizeof(SHAPES) / sizeof(SHAPES[0]); k++) {
        const struct shape *s = &SHAPES[k];
        struct inputs in = make(real, s);
        struct ax_tensor rstd = line(AX_F32, s->tokens * s->heads), first_dw = rstd;
        struct ax_tensor first_dx[2] = {rstd, rstd};
        for (int64_t i = 0; i < s->tokens * s->heads; i++)
            set(&rstd, i, 0, naive_rstd(&in.x, i / s->heads, i % s->heads * s->n, s->n));
        for (int run = 0; run < 6; run++) { /* dx += and, in place of dy, dx = */
            bool accumulate = run < 3;
            struct ax_tensor dx = clone(accumulate ? &in.dx : &in.dy), dw = clone(&in.dweight);
            struct ax_tensor dy = accumulate ? in.dy : dx;
            RUN_WORK(isa, THREADS[run % 3], rmsnorm_backward, shaped(&dy, s), shaped(&in.x, s),
                     in.weight, rstd, shaped(&dx, s), (struct ax_tensor){0}, dw, accumulate, 0);
            if (run % 3 == 0) {
                assert_gradients(isa, s, &in, &rstd, &dx, &dw, accumulate);
                first_dx[accumulate] = dx;
            }
            first_dw = run == 0 ? dw : first_dw;
            assert_same_bits(&dx, &first_dx[accumulate]);
            assert_same_bits(&dw, &first_dw);
        }
    }
}

/* What is written in BF16, too, is what a copy makes of dx, whose bits are the same. */
static void check_narrow(const struct isa *isa, enum ax_dtype real) {
    for (size_t k = 0; k < sizeof(SHAPES) / sizeof(SHAPES[0]) && real == AX_BF16; k++) {
        const struct shape *s = &SHAPES[k];
        const int64_t cols = s->heads * s->n;
        const struct inputs in = make(AX_F32, s);
        const struct ax_tensor rstd = line(AX_F32, s->tokens * s->heads), weight = line(real, s->n);
        for (int64_t i = 0; i < s->n; i++)
            set(&weight, i, 0, get(&in.weight, i, 0));
        for (int64_t i = 0; i < s->tokens * s->heads; i++)
            set(&rstd, i, 0, naive_rstd(&in.x, i / s->heads, i % s->heads * s->n, s->n));
        for (int run = 0; run < 2; run++) {
            struct ax_tensor dx[2], narrow[2];
            for (int i = 0; i < 2; i++) {
                struct ax_tensor dw = clone(&in.dweight), to = {0};
                dx[i] = clone(run ? &in.dx : &in.dy);
                narrow[i] = grid(real, s->tokens, cols, 2);
                const struct ax_tensor dy = run ? in.dy : dx[i];
                if (i == 0)
                    to = shaped(&narrow[i], s);
                RUN_WORK(isa, THREADS[i], rmsnorm_backward, shaped(&dy, s), shaped(&in.x, s),
                         weight, rstd, shaped(&dx[i], s), to, dw, run, 0);
            }
            RUN(isa, 1, copy, narrow[1], dx[1]);
            assert_same_bits(&dx[0], &dx[1]);
            assert_same_bits(&narrow[0], &narrow[1]);
        }
    }
}

/* A row alone has the bits it has among others; NaN and inf fill their row and no other. */
static void check_rows(const struct isa *isa, enum ax_dtype real) {
    enum { T = 67, D = 577, NAN_ROW = 20, INF_ROW = 40 };
    const struct shape s = {T, 1, D};
    struct inputs in = make(real, &s);
    set(&in.x, NAN_ROW, 100, NAN);
    set(&in.x, INF_ROW, 576, INFINITY);
    struct ax_tensor y = grid(real, T, D, 0), rstd = line(AX_F32, T);
    RUN(isa, 2, rmsnorm_forward, in.x, in.weight, y, rstd, EPS, 0, .once = false);
    struct ax_tensor dx = grid(real, T, D, 0), dw = clone(&in.dweight);
    RUN_WORK(isa, 2, rmsnorm_backward, in.dy, in.x, in.weight, rstd, dx, (struct ax_tensor){0}, dw,
             false, 0);
    for (int64_t t = 0; t < T; t++) {
        struct ax_tensor x1 = ax_tensor_rows(&in.x, t, 1), dy1 = ax_tensor_rows(&in.dy, t, 1);
        struct ax_tensor y1 = grid(real, 1, D, 0), rstd1 = line(AX_F32, 1);
        struct ax_tensor dx1 = grid(real, 1, D, 0), dw1 = line(AX_F32, D);
        RUN(isa, 1, rmsnorm_forward, x1, in.weight, y1, rstd1, EPS, 0, .once = false);
        RUN_WORK(isa, 1, rmsnorm_backward, dy1, x1, in.weight, rstd1, dx1, (struct ax_tensor){0},
                 dw1, false, 0);
        bool odd = t == NAN_ROW || t == INF_ROW;
        for (int64_t d = 0; d < D; d++) {
            assert_true(odd || get(&y, t, d) == get(&y1, 0, d));
            assert_true(odd || get(&dx, t, d) == get(&dx1, 0, d));
            assert_true(isnan(get(&dx, t, d)) == odd);
            assert_true(t != NAN_ROW || isnan(get(&y, t, d)));
        }
    }
    assert_true(isnan(get(&y, INF_ROW, 576))); /* inf·(1/inf) */
    assert_true(isnan(get(&dw, 100, 0)) && isnan(get(&dw, 576, 0)));
}

/* Rows less their mean, in place or added, into either dtype. */
static void check_center(const struct isa *isa, enum ax_dtype real) {
    enum { T = 19 };
    for (int64_t D = 1; D < 700; D += 173) {
        const struct ax_tensor x = grid(real, T, D, 3);
        randomize(&x, 2, 5);
        for (int run = 0; run < 6; run++) {
            const bool adds = run >= 3;
            struct ax_tensor first = x;
            for (int t = 0; t < 3; t++) {
                struct ax_tensor from = clone(&x);
                struct ax_tensor y = run % 3 == 0 && !adds ? from
                                     : run % 3 == 2        ? grid(AX_F32, T, D, 1)
                                                           : grid(real, T, D, 1);
                for (int64_t i = 0; i < T * D && adds; i++)
                    set(&y, i / D, i % D, (double)(i % 7));
                RUN(isa, THREADS[t], center, from, y, adds);
                for (int64_t r = 0; r < T && t == 0; r++) {
                    double mean = 0;
                    for (int64_t d = 0; d < D; d++)
                        mean += get(&x, r, d) / (double)D;
                    for (int64_t d = 0; d < D; d++)
                        assert_near(isa, "y", &y, r, d,
                                    get(&x, r, d) - mean + (adds ? (double)((r * D + d) % 7) : 0),
                                    10);
                }
                if (t == 0)
                    first = y;
                assert_same_bits(&y, &first);
            }
        }
    }
}

#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        for_each_isa(check_##name);                                                                \
    }
TEST(forward)
TEST(backward)
TEST(narrow)
TEST(rows)
TEST(center)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward), cmocka_unit_test(backward), cmocka_unit_test(narrow),
        cmocka_unit_test(rows),    cmocka_unit_test(center),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
