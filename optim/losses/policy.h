/* Policy-gradient objectives on completions whose advantages are known: GRPO and its relatives, and
 * PPO's policy.
 *
 * A document is a prompt and a completion; its labels are the completion's tokens. With p a token's
 * log-prob, old that of the policy that wrote it, ref the reference model's, A the advantage and
 * r = exp(p − old), or exp(mean over the completion of p − old) for all of its tokens, the loss of a
 * token is term(r, A) + beta·KL, and a step's loss is a mean, by what the step has. See policy_terms.c for the
 * losses and their sources.
 *
 * Settings are TRL 1.16's. A completion without labels (a truncated one, masked) counts as a
 * completion of no loss.
 *
 * The ratio's part of the gradient of a sequence spreads over all of its tokens, so each token is seen
 * twice: documents are summed, over ranks of context parallelism, too, and then rows get gradients
 * (policy.c). */
#ifndef AX_OPTIM_LOSSES_POLICY_H
#define AX_OPTIM_LOSSES_POLICY_H

#include "optim/losses/objective.h"

struct ax_policy_options;

/* The divisor of a completion's sum of losses. */
enum ax_policy_length {
    AX_POLICY_SUM,    /* 1 */
    AX_POLICY_TOKENS, /* how many tokens it has */
    AX_POLICY_MOST    /* max_completion_length */
};

/* Measures of a loss, as bits: the shares of tokens clipped below and above; the share clipped
 * above; mean weights. */
enum { AX_POLICY_CLIPS = 1, AX_POLICY_CAPS = 2, AX_POLICY_WEIGHTS = 4 };

#define AX_VESPO_LEAST 1e-8 /* the least ratio of which VESPO takes the logarithm */

/* A loss: a row of a table in policy_terms.c. It has a term of the ratio, or a weight of the log-prob. */
struct ax_policy_loss {
    const char *name;
    /* term(r, A); *slope is its derivative by r */
    double (*term)(const struct ax_policy_options *o, double advantage, double ratio,
                   double *slope);
    /* The loss of a token is −weight·A·p, and weight has no gradient. w: Σ (p − old) of the completion, and with the column
     * `sampler`, for a loss of whole completions, the logarithms of its tokens' bounded ratios. */
    double (*weight)(const struct ax_policy_options *o, double advantage, double ratio, double w);
    /* −1: the ratio is clipped below, with A < 0; 1: above, with A > 0; or 0. NULL: nothing is. */
    int (*clipped)(const struct ax_policy_options *o, double advantage, double ratio);
    enum ax_per per; /* over what a step's loss is a mean */
    enum ax_policy_length length;
    bool whole; /* a completion has one loss, whether it has one ratio or not */
    unsigned measures;
};
/* Finds a loss by name ("grpo", …; NULL for another), and by index (NULL after the last). */
const struct ax_policy_loss *ax_policy_loss(const char *name);
const struct ax_policy_loss *ax_policy_loss_at(size_t i);

/* The ratio exp(old − sampler) of a token, or its product over a completion, where tokens were drawn by
 * another than the policy; what multiplies the terms of the loss, as a constant (TRL's
 * vllm_importance_sampling_mode and its bounds). */
struct ax_sampler_ratio {
    bool given;    /* there is a column `sampler`, the log-probs that tokens were drawn with */
    bool sequence; /* one ratio per completion */
    bool masks;    /* a ratio outside the bounds counts as 0, else as the nearer bound */
    double least, most;
};

struct ax_policy_options {
    const struct ax_policy_loss *loss;
    bool sequence; /* one ratio per completion (GSPO, Zheng et al. 2025, arXiv 2507.18071) */
    bool token_advantages; /* column `advantage` has a value per label, else one per document */
    bool old;              /* there is a column `old`; without it the policy has not moved: r = 1 */
    double epsilon, epsilon_high;
    double delta; /* 0: none */
    /* KL is k3 = e^d − d − 1, d = ref − p (Schulman 2020), of column `reference` if beta ≠ 0;
     * correct_kl: times r, which makes its gradient that of the KL divergence. */
    double beta;
    bool correct_kl;
    struct ax_sampler_ratio sampler;
    /* Completions with A < 0 whose mean of (sampler − p), an estimate of KL(sampler ‖ policy), is above
     * it have no terms (DeepSeek-V3.2, arXiv 2512.02556); without the column `sampler`, old takes
     * its place. INFINITY: none. */
    double off_policy_threshold;
    bool entropy_mask; /* terms of tokens whose entropy is below the step's bound are dropped */
    /* this times the mean entropy of tokens with a term is subtracted from the loss */
    double entropy_coef;
    int64_t max_completion_length;      /* for dr_grpo */
    double sapo_temperature[2];         /* τ for A > 0, and for others */
    double vespo_k[2], vespo_lambda[2]; /* k and λ for A ≥ 0, and for others */
};
/* TRL's defaults, for loss_type `loss`, which must be a name. */
struct ax_policy_options ax_policy_defaults(const char *loss);

/* TRL's top_entropy_quantile: the bound that a share `top` of n > 0 entropies is above. They are
 * sorted; *kept: how many it keeps. It lies between the two entropies that it separates, so that
 * rounding moves no token. */
double ax_policy_entropy_cut(double *entropies, int64_t n, double top, int64_t *kept);

/* ---- the objective ---- */

struct ax_policy {
    struct ax_policy_options o;
    struct ax_columns columns;
    int advantage, old, reference, sampler; /* indices of columns; −1: none */
};
/* False if no token of a completion with this advantage has a gradient: it may be left out of a step
 * whose `absent` has its weight. The routers' balancing loss would miss it. */
bool ax_policy_trains(const struct ax_policy_options *o, double advantage);
/* Names of what it measures, NULL-terminated. */
extern const char *const ax_policy_measures[];
/* *p must outlive the objective. */
struct ax_objective ax_objective_policy(struct ax_policy *p, const struct ax_policy_options *o);

#endif
