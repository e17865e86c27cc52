#include "optim/losses/advantages.h"

#include <math.h>
#include <string.h>

#define EPSILON 1e-4 /* added to a standard deviation */
#define ZERO    1e-8 /* a standard deviation up to this is 0 */

static const char *const names[] = {
    [AX_SCALE_GROUP] = "group", [AX_SCALE_BATCH] = "batch", [AX_SCALE_NONE] = "none"};

int ax_scale_rewards_find(const char *name) {
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

/* Differences from the first value: equal values have a mean without rounding. */
struct ax_reward_stats ax_reward_stats_of(const double *x, int64_t n, int64_t stride) {
    double first = NAN, sum = 0, squares = 0, count = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = x[i * stride];
        first = isnan(first) ? v : first;
        sum += isnan(v) ? 0 : v - first;
        count += !isnan(v);
    }
    const double mean = first + sum / count;
    for (int64_t i = 0; i < n; i++) {
        const double d = x[i * stride] - mean;
        squares += isnan(d) ? 0 : d * d;
    }
    return (struct ax_reward_stats){mean, count > 1 ? sqrt(squares / (count - 1)) : NAN};
}

static double weight_of(const struct ax_advantage_options *o, int k) {
    return o->weights ? o->weights[k] : 1;
}

void ax_reward_totals(const struct ax_advantage_options *o, int64_t n, const double *rewards,
                      double *totals) {
    for (int64_t i = 0; i < n; i++) {
        const double *own = rewards + i * o->n_rewards;
        double sum = 0;
        int count = 0;
        for (int k = 0; k < o->n_rewards; k++) {
            sum += isnan(own[k]) ? 0 : weight_of(o, k) * own[k];
            count += !isnan(own[k]);
        }
        totals[i] = count > 0 ? sum : NAN;
    }
}

/* A deviation that is no number (of one value) leaves no advantage. */
static double or_none(double advantage) {
    return isnan(advantage) ? 0 : advantage;
}

static void normalize_groups(const struct ax_advantage_options *o, int64_t n, double *x) {
    const double all = ax_reward_stats_of(x, n, 1).std;
    for (int64_t first = 0; first < n; first += o->group) {
        const struct ax_reward_stats own = ax_reward_stats_of(x + first, o->group, 1);
        const double by = o->scale == AX_SCALE_GROUP   ? own.std + EPSILON
                          : o->scale == AX_SCALE_BATCH ? all + EPSILON
                                                       : 1;
        for (int64_t i = first; i < first + o->group; i++)
            x[i] = or_none((x[i] - own.mean) / by);
    }
}

/* Weighted sums of the functions' normalized rewards, where there are any. */
static void sum_normalized(const struct ax_advantage_options *o, int64_t n, const double *rewards,
                           double *sums) {
    const int m = o->n_rewards;
    ax_reward_totals(o, n, rewards, sums);
    for (int64_t i = 0; i < n; i++)
        sums[i] = isnan(sums[i]) ? NAN : 0;
    for (int64_t first = 0; first < n; first += o->group)
        for (int k = 0; k < m; k++) {
            const double *own = rewards + first * m + k;
            const struct ax_reward_stats of = ax_reward_stats_of(own, o->group, m);
            for (int64_t i = 0; i < o->group; i++)
                sums[first + i] +=
                    weight_of(o, k) * or_none((own[i * m] - of.mean) / (of.std + EPSILON));
        }
}

void ax_advantages(const struct ax_advantage_options *o, int64_t n, const double *rewards,
                   double *advantages) {
    if (!o->normalize_then_sum) {
        ax_reward_totals(o, n, rewards, advantages);
        normalize_groups(o, n, advantages);
        return;
    }
    sum_normalized(o, n, rewards, advantages);
    const struct ax_reward_stats all = ax_reward_stats_of(advantages, n, 1);
    for (int64_t i = 0; i < n; i++)
        advantages[i] = or_none((advantages[i] - all.mean) / (all.std + EPSILON));
}

/* What completions are compared by. */
static void put_worth(const struct ax_advantage_options *o, int64_t n, const double *rewards,
                      double *worth) {
    if (o->normalize_then_sum)
        sum_normalized(o, n, rewards, worth);
    else
        ax_reward_totals(o, n, rewards, worth);
}

bool ax_group_teaches(const struct ax_advantage_options *o, const double *rewards, double *work) {
    put_worth(o, o->group, rewards, work);
    return ax_reward_stats_of(work, o->group, 1).std > ZERO;
}

double ax_share_without_spread(const struct ax_advantage_options *o, int64_t n,
                               const double *rewards, double *work) {
    double flat = 0, groups = 0;
    put_worth(o, n, rewards, work);
    if (o->normalize_then_sum || o->scale == AX_SCALE_BATCH)
        return ax_reward_stats_of(work, n, 1).std <= ZERO;
    for (int64_t first = 0; first < n; first += o->group, groups++)
        flat += o->group == 1 || ax_reward_stats_of(work + first, o->group, 1).std <= ZERO;
    return flat / groups;
}
