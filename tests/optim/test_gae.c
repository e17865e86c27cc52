/* Advantages of tokens by their definition; golden files are compared by tests/goldens/replay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "optim/losses/gae.h"

enum { N = 6 };
static const double rewards[N] = {0.1, -0.2, 0, 0.3, -0.1, 1},
                    values[N] = {0.5, 0.1, -0.4, 0, 1, 2};

/* Σ_k (gamma·lambda)^k δ_{t+k}, term by term. */
static double advantage_at(double gamma, double lambda, int t) {
    double sum = 0;
    for (int k = t; k < N; k++)
        sum += pow(gamma * lambda, k - t) *
               (rewards[k] + gamma * (k + 1 < N ? values[k + 1] : 0) - values[k]);
    return sum;
}

static void advantages_are_sums_of_differences(void **state) {
    (void)state;
    static const double gammas[] = {1, 0.97, 0.5}, lambdas[] = {1, 0.95, 0};
    for (size_t g = 0; g < 3; g++)
        for (size_t l = 0; l < 3; l++) {
            double got[N];
            ax_gae(gammas[g], lambdas[l], N, rewards, values, got);
            for (int t = 0; t < N; t++)
                assert_true(fabs(got[t] - advantage_at(gammas[g], lambdas[l], t)) < 1e-14);
        }
}

/* The score is at the last place, whether or not that has a token. */
static void scores_come_last(void **state) {
    (void)state;
    static const double logprob[] = {-1, -2, -3}, reference[] = {-1.5, -2, -2};
    double got[4];
    ax_token_rewards(AX_KL_K1, 0.1, 3, logprob, reference, 7, 4, got);
    assert_true(fabs(got[0] + 0.05) < 1e-15 && got[1] == 0 && fabs(got[2] - 0.1) < 1e-15);
    assert_true(got[3] == 7);
    ax_token_rewards(AX_KL_K1, 0.1, 3, logprob, reference, 7, 3, got);
    assert_true(fabs(got[2] - 7.1) < 1e-14);
}

static void estimates_of_divergence(void **state) {
    (void)state;
    assert_true(ax_kl_estimate(AX_KL_K1, -0.5) == -0.5);
    assert_true(ax_kl_estimate(AX_KL_K2, -0.5) == 0.125);
    assert_true(fabs(ax_kl_estimate(AX_KL_K3, -0.5) - (exp(0.5) - 1.5)) < 1e-15);
    assert_int_equal(ax_kl_estimator_find("k3"), AX_KL_K3);
    assert_int_equal(ax_kl_estimator_find("k4"), -1);
}

static void white(void **state) {
    (void)state;
    double x[N], sum = 0, squares = 0, one = 3;
    for (int i = 0; i < N; i++)
        x[i] = values[i];
    ax_whiten(N, x);
    for (int i = 0; i < N; i++) {
        sum += x[i];
        squares += x[i] * x[i];
    }
    assert_true(fabs(sum) < 1e-14 && fabs(squares / (N - 1) - 1) < 1e-7);
    assert_true(x[5] > x[4] && x[2] < x[3]);
    ax_whiten(1, &one);
    assert_true(one == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(advantages_are_sums_of_differences),
        cmocka_unit_test(scores_come_last),
        cmocka_unit_test(estimates_of_divergence),
        cmocka_unit_test(white),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
