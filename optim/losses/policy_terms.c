/* The losses of policies, in the words of policy.h.
 *
 *   grpo     −min(min(r, delta)·A, clip(r, 1 − epsilon, 1 + epsilon_high)·A), a mean over each
 *            completion's tokens, then over completions (Shao et al. 2024, arXiv 2402.03300)
 *   bnpo     the same, over tokens
 *   dapo     the same, over tokens (Yu et al. 2025, arXiv 2503.14476)
 *   dr_grpo  the same, over completions of max_completion_length (Liu et al. 2025, 2503.20783)
 *   luspo    the same, sums of completions over completions
 *   cispo    −sg(min(r, epsilon_high))·A·p, over tokens (MiniMax 2025, arXiv 2506.13585)
 *   sapo     −σ(τ(r − 1))·(4/τ)·A, like grpo; τ depends on the sign of A
 *   vespo    −sg(φ)·A·p, over tokens; φ = exp(λ + k·w − λ·e^w), w = Σ (p − old), to which the logarithms of
 *            the sampler's ratios are added, between log 1e-8 and 20; k and λ depend on the sign of A
 *
 * bnpo and dapo differ in TRL, whose means are over a micro-batch, or over what was generated at a time;
 * here both are over the step. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/losses/policy.h"

#define VESPO_MOST 20 /* Σ log-ratios */

static double clamp(double x, double low, double high) {
    return fmin(fmax(x, low), high);
}

/* ---- formulas ---- */

static double cispo_weight(const struct ax_policy_options *o, double advantage, double ratio,
                           double w) {
    (void)advantage;
    (void)w;
    return fmin(ratio, o->epsilon_high);
}

static double vespo_weight(const struct ax_policy_options *o, double advantage, double ratio,
                           double w) {
    const int side = !(advantage >= 0);
    const double k = o->vespo_k[side], lambda = o->vespo_lambda[side];
    const double bounded = clamp(w, log(AX_VESPO_LEAST), VESPO_MOST);
    (void)ratio;
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

static double seen(const struct ax_policy_options *o, double ratio) {
    return o->delta > 0 ? fmin(ratio, o->delta) : ratio;
}

static int clipped_ratio(const struct ax_policy_options *o, double advantage, double ratio) {
    if (seen(o, ratio) > 1 + o->epsilon_high && advantage > 0)
        return 1;
    return seen(o, ratio) < 1 - o->epsilon && advantage < 0 ? -1 : 0;
}

static int capped_ratio(const struct ax_policy_options *o, double advantage, double ratio) {
    return seen(o, ratio) > o->epsilon_high && advantage > 0;
}

/* ---- the losses ---- */

#define CLIPPED .term = clipped_term, .clipped = clipped_ratio, .measures = AX_POLICY_CLIPS

static const struct ax_policy_loss losses[] = {
    {.name = "grpo", CLIPPED, .per = AX_PER_DOCUMENT, .length = AX_POLICY_TOKENS},
    {.name = "bnpo", CLIPPED, .per = AX_PER_TOKEN},
    {.name = "dr_grpo", CLIPPED, .per = AX_PER_DOCUMENT, .length = AX_POLICY_MOST},
    {.name = "dapo", CLIPPED, .per = AX_PER_TOKEN},
    {.name = "cispo",
     .weight = cispo_weight,
     .clipped = capped_ratio,
     .per = AX_PER_TOKEN,
     .measures = AX_POLICY_CAPS},
    {.name = "sapo", .term = soft_term, .per = AX_PER_DOCUMENT, .length = AX_POLICY_TOKENS},
    {.name = "luspo", CLIPPED, .per = AX_PER_DOCUMENT},
    {.name = "vespo",
     .weight = vespo_weight,
     .per = AX_PER_TOKEN,
     .whole = true,
     .measures = AX_POLICY_WEIGHTS},
};

const struct ax_policy_loss *ax_policy_loss_at(size_t i) {
    return i < sizeof losses / sizeof *losses ? &losses[i] : NULL;
}

const struct ax_policy_loss *ax_policy_loss(const char *name) {
    const struct ax_policy_loss *loss;
    for (size_t i = 0; (loss = ax_policy_loss_at(i)) != NULL; i++)
        if (strcmp(name, loss->name) == 0)
            break;
    return loss;
}

struct ax_policy_options ax_policy_defaults(const char *loss) {
    AX_ASSERT(ax_policy_loss(loss));
    return (struct ax_policy_options){.loss = ax_policy_loss(loss),
                                      .epsilon = 0.2,
                                      .epsilon_high = 0.2,
                                      .correct_kl = true,
                                      .sampler = {.most = INFINITY},
                                      .off_policy_threshold = INFINITY,
                                      .max_completion_length = 256,
                                      .sapo_temperature = {1, 1.05},
                                      .vespo_k = {2, 3},
                                      .vespo_lambda = {3, 2}};
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
