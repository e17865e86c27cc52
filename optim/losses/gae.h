/* PPO's advantages of tokens: what a completion is rewarded with, token by token, and how much better
 * than the values said it turned out (Schulman et al. 2016, arXiv 1506.02438; 2017, 1707.06347). Plain C on doubles, one
 * completion at a time. */
#ifndef AX_OPTIM_LOSSES_GAE_H
#define AX_OPTIM_LOSSES_GAE_H

#include <stdint.h>

/* Estimates of the KL divergence by one token, of x = its log-prob less the reference's (Schulman
 * 2020): x, x²/2, e^−x − 1 + x. */
enum ax_kl_estimator { AX_KL_K1, AX_KL_K2, AX_KL_K3 };
/* "k1", "k2", "k3"; −1 for another name. */
int ax_kl_estimator_find(const char *name);
double ax_kl_estimate(enum ax_kl_estimator kind, double x);

/* rewards [m]: −coef·KL of each of n tokens, 0 after them; score is added to the last of m ≥ n
 * places. If a completion was not truncated, TRL has one place more than tokens. */
void ax_token_rewards(enum ax_kl_estimator kind, double coef, int64_t n, const double *logprob,
                      const double *reference, double score, int64_t m, double *rewards);

/* advantages [m]: Σ_k (gamma·lambda)^k δ_{t+k}, δ_t = rewards[t] + gamma·values[t + 1] − values[t]; the
 * value after the end is 0. Returns are advantages + values. */
void ax_gae(double gamma, double lambda, int64_t m, const double *rewards, const double *values,
            double *advantages);

/* x [n] less its mean, divided by √(variance of a sample + 1e-8), in place. */
void ax_whiten(int64_t n, double *x);

#endif
