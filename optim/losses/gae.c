#include "optim/losses/gae.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {[AX_KL_K1] = "k1", [AX_KL_K2] = "k2", [AX_KL_K3] = "k3"};

int ax_kl_estimator_find(const char *name) {
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

double ax_kl_estimate(enum ax_kl_estimator kind, double x) {
    return kind == AX_KL_K1 ? x : kind == AX_KL_K2 ? x * x / 2 : exp(-x) - 1 + x;
}

void ax_token_rewards(enum ax_kl_estimator kind, double coef, int64_t n, const double *logprob,
                      const double *reference, double score, int64_t m, double *rewards) {
    for (int64_t t = 0; t < m; t++)
        rewards[t] = t < n ? -coef * ax_kl_estimate(kind, logprob[t] - reference[t]) : 0;
    if (m > 0)
        rewards[m - 1] += score;
}

void ax_gae(double gamma, double lambda, int64_t m, const double *rewards, const double *values,
            double *advantages) {
    double after = 0;
    for (int64_t t = m - 1; t >= 0; t--) {
        const double next = t + 1 < m ? values[t + 1] : 0;
        after = rewards[t] + gamma * next - values[t] + gamma * lambda * after;
        advantages[t] = after;
    }
}

void ax_whiten(int64_t n, double *x) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    const double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    const double scale = n > 1 ? 1 / sqrt(squares / (double)(n - 1) + 1e-8) : 0;
    for (int64_t i = 0; i < n; i++)
        x[i] = (x[i] - mean) * scale;
}
