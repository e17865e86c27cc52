/* Rewards of completions → advantages, as TRL 1.16's GRPOTrainer computes them.
 *
 * Completions come in groups of one prompt each, and several functions may reward each of them. A
 * reward of NaN is none: the function has no opinion of that completion, and neither mean nor
 * standard deviation (of a sample: n − 1) sees it. A completion without any reward has advantage 0. */
#ifndef AX_OPTIM_LOSSES_ADVANTAGES_H
#define AX_OPTIM_LOSSES_ADVANTAGES_H

#include <stdbool.h>
#include <stdint.h>

/* By what rewards, less their group's mean, are divided: a standard deviation + 1e-4, or 1. */
enum ax_scale_rewards {
    AX_SCALE_GROUP,
    AX_SCALE_BATCH, /* standard deviation of all completions */
    AX_SCALE_NONE   /* 1 (Dr. GRPO, Liu et al. 2025, arXiv 2503.20783) */
};
/* "group", "batch", "none"; −1 for another name. */
int ax_scale_rewards_find(const char *name);

struct ax_advantage_options {
    int64_t group;         /* completions per prompt */
    int n_rewards;         /* functions */
    const double *weights; /* [n_rewards]; NULL: 1 each */
    enum ax_scale_rewards scale;
    /* GDPO (Liu et al. 2026, arXiv 2601.05242): each function's rewards are normalized within their
     * group, and their weighted sum over all completions; `scale` is not used. */
    bool normalize_then_sum;
};

struct ax_reward_stats {
    double mean, std; /* mean is NaN without values, std with fewer than two */
};
/* Statistics of x[0], x[stride], … (n values), without those that are NaN. If all are equal, mean
 * and std are exact. */
struct ax_reward_stats ax_reward_stats_of(const double *x, int64_t n, int64_t stride);

/* totals [n]: the weighted sums of rewards [n][n_rewards]; NaN where there is none. */
void ax_reward_totals(const struct ax_advantage_options *o, int64_t n, const double *rewards,
                      double *totals);
/* advantages [n], n a multiple of `group`: exactly 0 in a group of equal totals, unless
 * normalize_then_sum. */
void ax_advantages(const struct ax_advantage_options *o, int64_t n, const double *rewards,
                   double *advantages);
/* True if completions of a group differ in what they are worth: in their totals or, with
 * normalize_then_sum, in the sums of their normalized rewards; not if only rounding tells them apart.
 * rewards [group][n_rewards]; work [group]. */
bool ax_group_teaches(const struct ax_advantage_options *o, const double *rewards, double *work);
/* TRL's frac_reward_zero_std: the share of groups whose completions are worth the same, as the one
 * completion of a group is; of a batch's deviation, where that is what counts, 0 or 1. rewards
 * [n][n_rewards]; work [n]. */
double ax_share_without_spread(const struct ax_advantage_options *o, int64_t n,
                               const double *rewards, double *work);

#endif
