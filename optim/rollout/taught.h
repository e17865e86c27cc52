/* What a teacher thinks of a generation's sampled tokens. */
#ifndef AX_OPTIM_ROLLOUT_TAUGHT_H
#define AX_OPTIM_ROLLOUT_TAUGHT_H

#include "optim/rollout/rollout.h"

/* Over all sampled tokens: means of log s − log t, which estimates KL(s‖t), of its size, of advantages and of
 * IW-OPD's weights; the extremes of these. */
struct ax_taught {
    int64_t n;
    double kl, size, advantage, weight, least, most;
};

/* Sets taught_kl of completions and, in training, the advantages of tokens, from r->teacher and what rewards left in
 * the completions' advantages. */
enum ax_status ax_rollout_teach(struct ax_rollout *r, struct ax_taught *out);

#endif
