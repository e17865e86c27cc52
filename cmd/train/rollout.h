/* What a run samples, and what its answers are worth: the keys of optim/rollout.h. */
#ifndef AX_CMD_TRAIN_ROLLOUT_H
#define AX_CMD_TRAIN_ROLLOUT_H

#include "cmd/train/data.h"
#include "cmd/model/stop_tokens.h"
#include "optim/train.h"

struct ax_setup_rollout {
    struct ax_stop_tokens stop;
    struct ax_rewards *rewards;
};
/* Adjusts o->data to answers and sets o->rollout; the step, the mesh and data must be read. `base` is
 * the base model's folder; NULL while planning: then no reward function is opened. */
enum ax_status ax_setup_rollout_read(struct ax_setup_rollout *r, const struct ax_config *cfg,
                                     const struct ax_setup_data *d, const char *base,
                                     struct ax_train_options *o);
void ax_setup_rollout_close(struct ax_setup_rollout *r);

#endif
