/* The losses of one token: see policy.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/losses/policy.h"

#define VESPO_MAX 20 /* of |Σ log-ratios| */

static const char *const names[] = {
    [AX_POLICY_GRPO] = "grpo",   [AX_POLICY_BNPO] = "bnpo",   [AX_POLICY_DR_GRPO] = "dr_grpo",
    [AX_POLICY_DAPO] = "dapo",   [AX_POLICY_CISPO] = "cispo", [AX_POLICY_SAPO] = "sapo",
    [AX_POLICY_LUSPO] = "luspo", [AX_POLICY_VESPO] = "vespo"};

int ax_policy_loss_find(const char *name) {
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

struct ax_policy_options ax_policy_defaults(enum ax_policy_loss loss) {
    return (struct ax_policy_options){.loss = loss,
                                      .epsilon = 0.2,
                                      .epsilon_high = 0.2,
                                      .correct_kl = true,
                                      .max_completion_length = 256,
                                      .sapo_temperature = {1, 1.05},
                                      .vespo_k = {2, 3},
                                      .vespo_lambda = {3, 2}};
}

static double clamp(double x, double low, double high) {
    return fmin(fmax(x, low), high);
}

bool ax_policy_weighs(const struct ax_policy_options *o) {
    return o->loss == AX_POLICY_CISPO || o->loss == AX_POLICY_VESPO;
}

double ax_policy_weight(const struct ax_policy_options *o, double advantage, double ratio,
                        double w) {
    if (o->loss == AX_POLICY_CISPO)
        return fmin(ratio, o->epsilon_high);
    const int side = !(advantage >= 0);
    const double k = o->vespo_k[side], lambda = o->vespo_lambda[side];
    const double bounded = clamp(w, -VESPO_MAX, VESPO_MAX);
    return exp(lambda + k * bounded - lambda * exp(bounded));
}

/* No gradient flows through a ratio that was clipped. */
static double clipped_term(const struct ax_policy_options *o, double advantage, double ratio,
                           double *slope) {
    const double low = 1 - o->epsilon, high = 1 + o->epsilon_high;
    const double cap = o->delta > 0 ? o->delta : INFINITY;
    const double free = fmin(ratio, cap) * advantage;
    const double clipped = clamp(ratio, low, high) * advantage;
    const bool moves = free <= clipped ? ratio <= cap : ratio >= low && ratio <= high;
    *slope = moves ? -advantage : 0;
    return -fmin(free, clipped);
}

static double soft_term(const struct ax_policy_options *o, double advantage, double ratio,
                        double *slope) {
    const double tau = o->sapo_temperature[!(advantage > 0)];
    const double gate = 1 / (1 + exp(-tau * (ratio - 1)));
    *slope = -4 * gate * (1 - gate) * advantage;
    return -gate * 4 / tau * advantage;
}

double ax_policy_term(const struct ax_policy_options *o, double advantage, double ratio,
                      double *slope) {
    return o->loss == AX_POLICY_SAPO ? soft_term(o, advantage, ratio, slope)
                                     : clipped_term(o, advantage, ratio, slope);
}

int ax_policy_clipped(const struct ax_policy_options *o, double advantage, double ratio) {
    const bool cispo = o->loss == AX_POLICY_CISPO;
    const double seen = o->delta > 0 ? fmin(ratio, o->delta) : ratio;
    if (seen > (cispo ? 0 : 1) + o->epsilon_high && advantage > 0)
        return 1;
    return !cispo && seen < 1 - o->epsilon && advantage < 0 ? -1 : 0;
}

bool ax_policy_trains(const struct ax_policy_options *o, double advantage) {
    return advantage != 0 || o->beta != 0 || o->entropy_coef != 0;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile is interpolated between two neighbors, of which the upper one is kept. */
double ax_policy_entropy_cut(double *entropies, int64_t n, double top, int64_t *kept) {
    qsort(entropies, (size_t)n, sizeof *entropies, by_value);
    int64_t first = (int64_t)ceil((1 - top) * (double)(n - 1));
    while (first > 0 && entropies[first - 1] == entropies[first])
        first--;
    *kept = n - first;
    return first > 0 ? (entropies[first - 1] + entropies[first]) / 2 : 0;
}
