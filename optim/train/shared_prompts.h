/* Which documents of a training run share a prompt, so that a micro-batch has its tokens once
 * (model/core/shared_prefix.h): the answers of a sampled group, and the two of a pair. */
#ifndef AX_OPTIM_TRAIN_SHARED_PROMPTS_H
#define AX_OPTIM_TRAIN_SHARED_PROMPTS_H

#include "optim/train/train.h"

/* True if the run's data are pairs that share their prompts. */
bool ax_train_pairs_share(const struct ax_train_options *o);
/* Sets `alike`, `keys` and, if fewer suffice, `tokens` of a step. */
void ax_train_share_prompts(struct ax_step_options *so, const struct ax_train_options *o);

#endif
