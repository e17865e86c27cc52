/* Pruning of Adam's moments when an adapter starts anew (ReLoRA): most of them become 0. */
#ifndef AX_OPTIM_PRUNE_H
#define AX_OPTIM_PRUNE_H

#include "base/rng.h"
#include "optim/state.h"

enum ax_prune_method {
    AX_PRUNE_MAGNITUDE, /* the smallest: |x| ≤ the quantile `ratio` of all |x| of the parameter,
                           linearly interpolated as in torch.quantile */
    AX_PRUNE_RANDOM     /* each with this probability */
};

struct ax_prune {
    enum ax_prune_method method;
    double ratio;
};

/* Sets elements of exp_avg and exp_avg_sq to 0, each chosen by itself, in whatever dtype they are
 * kept; other state stays. Random numbers are those of the element's index in the parameter, so the
 * result is the same on any mesh. Every rank of the parameter's groups calls it, also for a
 * parameter of which it has nothing, and while planning. */
enum ax_status ax_prune_moments(const struct ax_model *m, int index,
                                const struct ax_param_state *state, const struct ax_prune *prune,
                                uint64_t seed);

/* The quantile `ratio` of n ≥ 1 values, which are reordered. */
double ax_quantile(double *values, int64_t n, double ratio);

#endif
