/* The cpu backend's match_rms and sparsify on every instruction set of this machine: forward against plain double loops,
 * backward against difference quotients of those, 1, 2 and 4 threads with equal bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/kernels/isa.h"

#define FLOOR 1e-5
#define STEP  1e-5
enum { T = 9, MOST = 300 };
static const int64_t WIDTHS[] = {1, 7, 37, MOST};

/* A row as numbers. */
static void load(const struct ax_tensor *t, int64_t row, double *out) {
    for (int64_t i = 0; i < t->shape[1]; i++)
        out[i] = get(t, row, i);
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* ---- match_rms ---- */

static double factor(const double *x, const double *like, int64_t n) {
    const double of_x = dot(x, x, n) / (double)n;
    return sqrt(dot(like, like, n) / (double)n / (of_x > FLOOR ? of_x : FLOOR));
}

static double match_loss(const double *x, const double *like, const double *dy, int64_t n) {
    return factor(x, like, n) * dot(x, dy, n);
}

/* The gradient of the loss with respect to element i of x, or of `like`. */
static double match_slope(double *x, double *like, const double *dy, int64_t n, double *of) {
    const double was = *of;
    *of = was + STEP;
    const double up = match_loss(x, like, dy, n);
    *of = was - STEP;
    const double down = match_loss(x, like, dy, n);
    *of = was;
    return (up - down) / (2 * STEP);
}

static void check_matched(const struct isa *isa, const struct ax_tensor *x,
                          const struct ax_tensor *like, const struct ax_tensor *dy,
                          const struct ax_tensor *y, const struct ax_tensor *dx,
                          const struct ax_tensor *dlike) {
    const int64_t n = x->shape[1];
    double a[MOST], b[MOST], d[MOST];
    for (int64_t t = 0; t < T; t++) {
        load(x, t, a);
        load(like, t, b);
        load(dy, t, d);
        const double s = factor(a, b, n), size = 100 * (1 + s + fabs(dot(a, d, n)));
        for (int64_t i = 0; i < n; i++) {
            assert_near(isa, "y", y, t, i, s * a[i], 10 * s);
            assert_near(isa, "dx", dx, t, i, match_slope(a, b, d, n, &a[i]), size * (1 + s));
            assert_near(isa, "dlike", dlike, t, i, 3 + match_slope(a, b, d, n, &b[i]), size);
        }
    }
}

/* Row 1 of x is below the floor, and far enough for the differences. */
static void check_match_rms(const struct isa *isa, enum ax_dtype real) {
    for (size_t k = 0; k < sizeof WIDTHS / sizeof *WIDTHS; k++) {
        const int64_t n = WIDTHS[k];
        const struct ax_tensor x = grid(real, T, n, 1), like = grid(AX_F32, T, n, 3),
                               dy = grid(AX_F32, T, n, 0);
        struct ax_tensor first[3];
        randomize(&x, 1, 0.3);
        randomize(&like, 2, 0.5);
        randomize(&dy, 1, 0);
        for (int64_t i = 0; i < n; i++)
            set(&x, 1, i, get(&x, 1, i) * 1e-3);
        for (int run = 0; run < 3; run++) {
            struct ax_tensor out[] = {grid(AX_F32, T, n, 2), grid(real, T, n, 2),
                                      grid(AX_F32, T, n, 1)};
            for (int64_t i = 0; i < T * n; i++)
                set(&out[2], i / n, i % n, 3);
            RUN(isa, THREADS[run], match_rms_forward, x, like, out[0], FLOOR);
            RUN(isa, THREADS[run], match_rms_backward, dy, x, like, out[1], out[2], FLOOR);
            if (run == 0)
                check_matched(isa, &x, &like, &dy, &out[0], &out[1], &out[2]);
            for (int i = 0; i < 3; i++) {
                first[i] = run == 0 ? out[i] : first[i];
                assert_same_bits(&out[i], &first[i]);
            }
        }
    }
}

/* ---- sparsify ---- */

static double cut_of(const double *x, int64_t n, double z) {
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean) / (double)n;
    return mean + z * sqrt(squares);
}

static double sparse_loss(const double *x, const double *dy, int64_t n, double z) {
    const double cut = cut_of(x, n, z);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] > cut ? dy[i] * (x[i] - cut) : 0;
    return sum;
}

/* A row in which no element is so near to the cut that a step could lead past it. */
static bool is_smooth(const double *x, int64_t n, double z) {
    const double cut = cut_of(x, n, z);
    bool yes = n > 1;
    for (int64_t i = 0; i < n; i++)
        yes = yes && fabs(x[i] - cut) > 10 * STEP;
    return yes;
}

static int check_sparse(const struct isa *isa, double z, const struct ax_tensor *x,
                        const struct ax_tensor *dy, const struct ax_tensor *y,
                        const struct ax_tensor *dx) {
    const int64_t n = x->shape[1];
    double a[MOST], d[MOST];
    int smooth = 0;
    for (int64_t t = 0; t < T; t++) {
        load(x, t, a);
        load(dy, t, d);
        const double cut = cut_of(a, n, z);
        for (int64_t i = 0; i < n; i++)
            assert_near(isa, "y", y, t, i, a[i] > cut ? a[i] - cut : 0, 10);
        if (!is_smooth(a, n, z))
            continue;
        smooth++;
        for (int64_t i = 0; i < n; i++) {
            const double was = a[i];
            a[i] = was + STEP;
            const double up = sparse_loss(a, d, n, z);
            a[i] = was - STEP;
            const double down = sparse_loss(a, d, n, z);
            a[i] = was;
            assert_near(isa, "dx", dx, t, i, (up - down) / (2 * STEP), 100);
        }
    }
    return smooth;
}

static void check_sparsify(const struct isa *isa, enum ax_dtype real) {
    static const double cuts[] = {0, 0.8416212335729143, -0.5};
    int smooth = 0;
    for (size_t k = 0; k < sizeof WIDTHS / sizeof *WIDTHS; k++)
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
            const int64_t n = WIDTHS[k];
            const struct ax_tensor x = grid(real, T, n, 3), dy = grid(real, T, n, 3);
            struct ax_tensor first[2];
            randomize(&x, 2, 0.5);
            randomize(&dy, 1, 0);
            for (int run = 0; run < 3; run++) { /* in place, but for the first */
                struct ax_tensor y = run ? clone(&x) : grid(real, T, n, 3);
                struct ax_tensor dx = run ? clone(run == 1 ? &dy : &x) : grid(real, T, n, 3);
                RUN(isa, THREADS[run], sparsify_forward, run ? y : x, y, cuts[c]);
                RUN(isa, THREADS[run], sparsify_backward, run == 1 ? dx : dy, run == 2 ? dx : x, dx,
                    cuts[c]);
                if (run == 0)
                    smooth += check_sparse(isa, cuts[c], &x, &dy, &y, &dx);
                first[0] = run == 0 ? y : first[0];
                first[1] = run == 0 ? dx : first[1];
                for (int64_t r = 0; r < T; r++) { /* clones have the padding of what they are of */
                    struct ax_tensor a = ax_tensor_rows(&y, r, 1), b = ax_tensor_rows(&dx, r, 1);
                    struct ax_tensor of_a = ax_tensor_rows(&first[0], r, 1),
                                     of_b = ax_tensor_rows(&first[1], r, 1);
                    assert_same_bits(&a, &of_a);
                    assert_same_bits(&b, &of_b);
                }
            }
        }
    assert_true(smooth > T);
}

#define TEST(name)                                                                                 \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        for_each_isa(check_##name);                                                                \
    }
TEST(match_rms)
TEST(sparsify)

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(match_rms), cmocka_unit_test(sparsify)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
