/* Short convolutions on every instruction set: against the formula in double; and the same bits with any number of
 * threads, for a document alone, and in pieces whose earlier inputs are handed over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/kernels/harness.h"
#include "tests/kernels/isa.h"

enum { C = 150, T = 90, N = 5, SPARE = 3 };
static const int32_t CU[N + 1] = {2, 37, 37, 38, 40, T - SPARE};

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

struct sums {
    double z[T][C], g[T][C]; /* of documents' rows */
};

/* The document of a row, or −1. */
static int document_of(int64_t t) {
    for (int d = 0; d < N; d++)
        if (t >= CU[d] && t < CU[d + 1])
            return d;
    return -1;
}

static double bias_of(const struct ax_conv *a, int64_t c) {
    return a->bias.data ? ax_load(a->bias.dtype, a->bias.data, c) : 0;
}

static void compute(const struct ax_conv *a, const struct ax_tensor *dy, struct sums *s) {
    const int64_t K = a->w.shape[1];
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < C && document_of(t) >= 0; c++) {
            s->z[t][c] = bias_of(a, c);
            for (int64_t i = 0; i < K; i++)
                if (t - K + 1 + i >= CU[document_of(t)])
                    s->z[t][c] += get(&a->w, c, i) * get(&a->x, t - K + 1 + i, c);
            const double z = s->z[t][c], slope = sigmoid(z) * (1 + z * (1 - sigmoid(z)));
            s->g[t][c] = get(dy, t, c) * (a->silu ? slope : 1);
        }
}

static double output(const struct ax_conv *a, const struct sums *s, int64_t t, int64_t c) {
    if (document_of(t) < 0)
        return 0;
    return a->silu ? s->z[t][c] * sigmoid(s->z[t][c]) : s->z[t][c];
}

static double input_gradient(const struct ax_conv *a, const struct sums *s, int64_t t, int64_t c) {
    const int64_t K = a->w.shape[1];
    double sum = 0;
    for (int64_t i = 0; i < K && document_of(t) >= 0; i++)
        if (t + K - 1 - i < CU[document_of(t) + 1])
            sum += get(&a->w, c, i) * s->g[t + K - 1 - i][c];
    return sum;
}

static double tap_gradient(const struct ax_conv *a, const struct sums *s, int64_t c, int64_t i) {
    const int64_t K = a->w.shape[1];
    double sum = 0;
    for (int64_t t = 0; t < T; t++)
        if (document_of(t) >= 0 && t - K + 1 + i >= CU[document_of(t)])
            sum += s->g[t][c] * get(&a->x, t - K + 1 + i, c);
    return sum;
}

static struct ax_conv conv_of(enum ax_dtype real, int64_t taps, bool more) {
    struct ax_conv a = {.x = grid(real, T, C, 3),
                        .w = grid(real, C, taps, 0),
                        .cu_q = ax_tensor_1d(AX_I32, own(sizeof CU), N + 1),
                        .silu = more};
    randomize(&a.x, 1, 0);
    randomize(&a.w, 1, 0);
    memcpy(a.cu_q.data, CU, sizeof CU);
    if (more) {
        a.bias = line(real, C);
        for (int64_t c = 0; c < C; c++)
            ax_store(real, a.bias.data, c, random_unit());
    }
    return a;
}

static void check_formula(const struct isa *isa, enum ax_dtype real, int64_t taps, bool more) {
    static struct sums s;
    struct ax_tensor first[4] = {{0}};
    const struct ax_conv a = conv_of(real, taps, more);
    struct ax_tensor dy = grid(real, T, C, 1);
    randomize(&dy, 1, 0);
    compute(&a, &dy, &s);
    for (int k = 0; k < 3; k++) {
        struct ax_conv f = a;
        f.y = grid(real, T, C, 2);
        const struct ax_tensor dx = grid(real, T, C, 5), dw = grid(AX_F32, C, taps, 0),
                               dbias = line(AX_F32, C);
        RUN_WORK(isa, THREADS[k], conv_forward, .a = f);
        RUN_WORK(isa, THREADS[k], conv_backward, .a = a, .dy = dy, .dx = dx, .dw = dw,
                 .dbias = dbias);
        for (int64_t t = 0; t < T && k == 0; t++)
            for (int64_t c = 0; c < C; c++) {
                assert_near(isa, "y", &f.y, t, c, output(&a, &s, t, c), (double)taps);
                assert_near(isa, "dx", &dx, t, c, input_gradient(&a, &s, t, c), (double)taps);
            }
        for (int64_t c = 0; c < C && k == 0; c++) {
            double sum = 0;
            for (int64_t t = 0; t < T; t++)
                sum += document_of(t) >= 0 ? s.g[t][c] : 0;
            if (fabs(ax_load(AX_F32, dbias.data, c) - sum) > 1e-4)
                fail_msg("dbias[%lld]", (long long)c);
            for (int64_t i = 0; i < taps; i++)
                assert_near(isa, "dw", &dw, c, i, tap_gradient(&a, &s, c, i), T);
        }
        const struct ax_tensor now[] = {f.y, dx, dw};
        for (int i = 0; i < 3; i++) {
            first[i] = k == 0 ? now[i] : first[i];
            assert_same_bits(&now[i], &first[i]);
        }
        first[3] = k == 0 ? dbias : first[3];
        assert_memory_equal(dbias.data, first[3].data, C * sizeof(float));
    }
    release();
}

static void check_isa(const struct isa *isa, enum ax_dtype real) {
    check_formula(isa, real, 3, false);
    check_formula(isa, real, 4, true);
    check_formula(isa, real, 8, true);
}

static void formula(void **state) {
    (void)state;
    for_each_isa(check_isa);
}

/* One document of T rows, in pieces of 1, 2, 5, 64 rows: a piece gets the inputs before it, those that there
 * are. */
static void check_pieces(const struct isa *isa, enum ax_dtype real) {
    static const int64_t sizes[] = {1, 2, 5, 64};
    enum { TAPS = 4 };
    const int32_t all[] = {0, T};
    struct ax_conv whole = conv_of(real, TAPS, true);
    whole.cu_q = ax_tensor_1d(AX_I32, own(sizeof all), 2);
    memcpy(whole.cu_q.data, all, sizeof all);
    whole.y = grid(real, T, C, 2);
    RUN_WORK(isa, 1, conv_forward, .a = whole);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const struct ax_tensor y = grid(real, T, C, 2);
        for (int64_t at = 0; at < T; at += sizes[k]) {
            const int64_t n = at + sizes[k] < T ? sizes[k] : T - at;
            const int32_t cu_q[] = {0, (int32_t)n}, cu_k[] = {0, (int32_t)(at + n)};
            struct ax_conv a = whole;
            a.x = ax_tensor_rows(&whole.x, at, n);
            a.y = ax_tensor_rows(&y, at, n);
            a.cu_q.data = (void *)(uintptr_t)cu_q;
            a.cu_k = ax_tensor_1d(AX_I32, (void *)(uintptr_t)cu_k, 2);
            a.before = grid(real, TAPS - 1, C, 1);
            randomize(&a.before, 1e30, 0);
            for (int64_t i = 0; i < TAPS - 1; i++)
                for (int64_t c = 0; c < C && at - TAPS + 1 + i >= 0; c++)
                    set(&a.before, i, c, get(&whole.x, at - TAPS + 1 + i, c));
            RUN_WORK(isa, 2, conv_forward, .a = a);
        }
        assert_same_bits(&y, &whole.y);
    }
    release();
}

static void pieces(void **state) {
    (void)state;
    for_each_isa(check_pieces);
}

/* Every document alone. */
static void check_alone(const struct isa *isa, enum ax_dtype real) {
    struct ax_conv all = conv_of(real, 3, true);
    all.y = grid(real, T, C, 2);
    const struct ax_tensor dy = grid(real, T, C, 0), dx = grid(real, T, C, 2);
    randomize(&dy, 1, 0);
    RUN_WORK(isa, 2, conv_forward, .a = all);
    RUN_WORK(isa, 2, conv_backward, .a = all, .dy = dy, .dx = dx);
    for (int d = 0; d < N; d++) {
        const int64_t first = CU[d], n = CU[d + 1] - first;
        const int32_t cu[] = {0, (int32_t)n};
        struct ax_conv a = all;
        const struct ax_tensor own_dy = ax_tensor_rows(&dy, first, n), own_dx = grid(real, n, C, 2);
        const struct ax_tensor want[] = {ax_tensor_rows(&all.y, first, n),
                                         ax_tensor_rows(&dx, first, n)};
        a.x = ax_tensor_rows(&all.x, first, n);
        a.y = grid(real, n, C, 2);
        a.cu_q = ax_tensor_1d(AX_I32, (void *)(uintptr_t)cu, 2);
        if (n == 0)
            continue;
        RUN_WORK(isa, 1, conv_forward, .a = a);
        RUN_WORK(isa, 1, conv_backward, .a = a, .dy = own_dy, .dx = own_dx);
        assert_true(same_bits(&a.y, &want[0]) && same_bits(&own_dx, &want[1]));
    }
    release();
}

static void alone(void **state) {
    (void)state;
    for_each_isa(check_alone);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(formula), cmocka_unit_test(pieces),
                                       cmocka_unit_test(alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
