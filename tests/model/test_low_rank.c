/* Singular triplets: of matrices whose values are known, of flat spectra, and alike for any number
 * of threads. numpy's are compared in tests/peers/check_peft.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "model/lora/low_rank.h"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* n random unit vectors of length len, orthogonal; [n][len]. */
static double *basis(uint32_t id, int64_t n, int64_t len) {
    double *x;
    must(ax_alloc(&x, (size_t)(n * len), sizeof *x));
    for (int64_t i = 0; i < n * len; i++)
        x[i] = (double)ax_rng_normal((struct ax_rng_key){5, 0, id}, (uint64_t)i);
    for (int64_t j = 0; j < n; j++) {
        double size = 0;
        for (int64_t i = 0; i < 2 * j; i++) {
            double along = 0;
            for (int64_t k = 0; k < len; k++)
                along += x[i % j * len + k] * x[j * len + k];
            for (int64_t k = 0; k < len; k++)
                x[j * len + k] -= along * x[i % j * len + k];
        }
        for (int64_t k = 0; k < len; k++)
            size += x[j * len + k] * x[j * len + k];
        for (int64_t k = 0; k < len; k++)
            x[j * len + k] /= sqrt(size);
    }
    return x;
}

/* Σ_j s[j]·u_j·v_jᵀ as floats. */
static float *matrix(int64_t rows, int64_t cols, int64_t n, const double *s) {
    double *u = basis(1, n, rows), *v = basis(2, n, cols);
    float *w;
    must(ax_alloc(&w, (size_t)(rows * cols), sizeof *w));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += s[j] * u[j * rows + i] * v[j * cols + k];
            w[i * cols + k] = (float)sum;
        }
    ax_free(u);
    ax_free(v);
    return w;
}

/* ‖W·v − s·u‖ and ‖Wᵀ·u − s·v‖, the largest of all triplets. */
static double residual(const struct ax_low_rank *l) {
    double worst = 0;
    for (int64_t j = 0; j < l->r; j++) {
        double one = 0, other = 0;
        for (int64_t i = 0; i < l->rows; i++) {
            double sum = -l->s[j] * l->u[j * l->rows + i];
            for (int64_t k = 0; k < l->cols; k++)
                sum += (double)l->w[i * l->cols + k] * l->v[j * l->cols + k];
            one += sum * sum;
        }
        for (int64_t k = 0; k < l->cols; k++) {
            double sum = -l->s[j] * l->v[j * l->cols + k];
            for (int64_t i = 0; i < l->rows; i++)
                sum += (double)l->w[i * l->cols + k] * l->u[j * l->rows + i];
            other += sum * sum;
        }
        worst = fmax(worst, sqrt(fmax(one, other)));
    }
    return worst;
}

static void known_values_are_found(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{60, 90}, {90, 60}, {200, 31}};
    double s[24];
    for (int j = 0; j < 24; j++)
        s[j] = 3 * pow(0.8, j);
    for (int i = 0; i < 3; i++) {
        float *w = matrix(shapes[i][0], shapes[i][1], 24, s);
        struct ax_low_rank l = {
            .w = w, .rows = shapes[i][0], .cols = shapes[i][1], .r = 7, .key = {1, 2, 3}};
        must(ax_low_rank_find(&l));
        for (int j = 0; j < 7; j++)
            assert_true(fabs(l.s[j] - s[j]) < 1e-6);
        assert_true(residual(&l) < 1e-6);
        ax_low_rank_free(&l);
        l.iterations = 2;
        must(ax_low_rank_find(&l));
        for (int j = 0; j < 7; j++)
            assert_true(fabs(l.s[j] - s[j]) < 1e-3);
        ax_low_rank_free(&l);
        ax_free(w);
    }
}

static void a_rank_below_the_one_asked_for(void **state) {
    (void)state;
    const double s[] = {2, 1};
    float *w = matrix(40, 50, 2, s);
    struct ax_low_rank l = {.w = w, .rows = 40, .cols = 50, .r = 5, .key = {1, 2, 3}};
    must(ax_low_rank_find(&l));
    assert_true(fabs(l.s[0] - 2) < 1e-6 && fabs(l.s[1] - 1) < 1e-6 && l.s[2] < 1e-6);
    for (int64_t i = 0; i < l.r * 40; i++)
        assert_true(isfinite(l.u[i]));
    ax_low_rank_free(&l);
    ax_free(w);
}

/* A random matrix's values lie close together. */
static void flat_spectra_and_threads(void **state) {
    (void)state;
    float *w;
    uint64_t hash[2];
    must(ax_alloc(&w, 320 * 260, sizeof *w));
    for (int64_t i = 0; i < 320 * 260; i++)
        w[i] = ax_rng_normal((struct ax_rng_key){9, 0, 0}, (uint64_t)i);
    for (int t = 0; t < 2; t++) {
        omp_set_num_threads(t + 1);
        struct ax_low_rank l = {.w = w, .rows = 320, .cols = 260, .r = 8, .key = {1, 2, 3}};
        must(ax_low_rank_find(&l));
        assert_true(residual(&l) < 1e-5);
        hash[t] = ax_hash64(l.u, 8 * 320 * sizeof *l.u, ax_hash64(l.v, 8 * 260 * sizeof *l.v, 0));
        ax_low_rank_free(&l);
    }
    assert_true(hash[0] == hash[1]);
    ax_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values_are_found),
        cmocka_unit_test(a_rank_below_the_one_asked_for),
        cmocka_unit_test(flat_spectra_and_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
